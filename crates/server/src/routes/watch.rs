//! Webhooks and their letters, alerts, figures.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use belay_api::{
    AlertList, Code, EditWebhook, LetterPage, ListLetters, MadeWebhook, NewWebhook, Replayed,
    WebhookList, WebhookView,
};

use super::Answered;
use crate::answer::{Failed, bytes, json};
use crate::figures::Figures;
use crate::read::{Asked, Body, Caller, Id};
use crate::service::Service;
use crate::table::{ADMIN, Table, VIEWER};

/// What Prometheus wants its figures to be called.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table.get("/api/v1/webhooks", ADMIN, "Lists webhooks.", list::<S>).answers::<WebhookList>(200);
    table
        .post("/api/v1/webhooks", ADMIN, "Makes a webhook.", make::<S>)
        .body::<NewWebhook>()
        .answers::<MadeWebhook>(201);
    table
        .get("/api/v1/webhooks/{id}", ADMIN, "Shows a webhook.", show::<S>)
        .answers::<WebhookView>(200);
    table
        .patch("/api/v1/webhooks/{id}", ADMIN, "Changes or pauses a webhook.", edit::<S>)
        .body::<EditWebhook>()
        .answers::<WebhookView>(200);
    table
        .delete("/api/v1/webhooks/{id}", ADMIN, "Removes a webhook and its letters.", remove::<S>)
        .answers_bytes(204, None);
    table
        .post("/api/v1/webhooks/{id}/test", ADMIN, "Sends a webhook a test.", test::<S>)
        .answers::<WebhookView>(200);
    table
        .get(
            "/api/v1/webhooks/{id}/letters",
            ADMIN,
            "Lists what a webhook was not told yet, and what was given up.",
            letters::<S>,
        )
        .query::<ListLetters>()
        .answers::<LetterPage>(200);
    table
        .post(
            "/api/v1/webhooks/{id}/replay",
            ADMIN,
            "Sends all dead letters of a webhook again.",
            replay_all::<S>,
        )
        .answers::<Replayed>(200);
    table
        .post(
            "/api/v1/webhooks/{id}/letters/{number}/replay",
            ADMIN,
            "Sends a dead letter again.",
            replay_one::<S>,
        )
        .answers::<Replayed>(200);
    table
        .get("/api/v1/alerts", VIEWER, "Lists alerts, firing ones first.", alerts::<S>)
        .answers::<AlertList>(200);
    table
        .get("/metrics", VIEWER, "Tells the figures, as Prometheus reads them.", metrics::<S>)
        .answers_bytes(200, Some("text/plain"));
}

async fn list<S: Service>(State(service): State<S>) -> Answered {
    json(&service.webhooks().await?)
}

async fn make<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(new): Body<NewWebhook>,
) -> Answered {
    let mut response = json(&service.make_webhook(caller.ask, new).await?)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn show<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    json(&service.webhook(&id).await?)
}

async fn edit<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(edit): Body<EditWebhook>,
) -> Answered {
    json(&service.edit_webhook(caller.ask, &id, edit).await?)
}

async fn remove<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    service.remove_webhook(caller.ask, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn test<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    json(&service.test_webhook(caller.ask, &id).await?)
}

async fn letters<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<ListLetters>,
) -> Answered {
    json(&service.letters(&id, asked).await?)
}

async fn replay_all<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    json(&service.replay(caller.ask, &id, None).await?)
}

async fn replay_one<S: Service>(
    State(service): State<S>,
    Path((id, number)): Path<(String, String)>,
    caller: Caller,
) -> Answered {
    let number = number.parse().map_err(|_| {
        Failed::new(Code::BadRequest, "a letter is named by the number of its event")
    })?;
    json(&service.replay(caller.ask, &id, Some(number)).await?)
}

async fn alerts<S: Service>(State(service): State<S>) -> Answered {
    json(&service.alerts().await?)
}

async fn metrics<S: Service>(
    State(service): State<S>,
    Extension(figures): Extension<Arc<Figures>>,
) -> Answered {
    let mut page = service.metrics().await?;
    figures.tell(&mut page);
    Ok(bytes(PROMETHEUS, page.text().into_bytes()))
}
