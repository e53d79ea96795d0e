//! The routes of live streams: who may listen to what, and from where on.

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use belay_api::{Code, Listen, Principal};

use super::Answered;
use crate::answer::Failed;
use crate::gate::Revocable;
use crate::live::{self, Listener, Live, STREAM, Slot, WEBSOCKET, Wanted, names};
use crate::read::{Asked, Caller};
use crate::service::Service;
use crate::table::{Reach, Table, VIEWER};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let rule = VIEWER.attempt(Reach::Handled);
    let says = "Tells what happens, while it happens, as server-sent events. `Last-Event-ID` \
                counts more than `after`.";
    table
        .get(STREAM, rule, says, sse::<S>)
        .query::<Listen>()
        .answers_bytes(200, Some("text/event-stream"));
    let says = "The same over a WebSocket, as JSON messages.";
    table.get(WEBSOCKET, rule, says, ws::<S>).query::<Listen>().answers_bytes(101, None);
}

async fn listener<S: Service>(
    service: &S,
    live: Live,
    listen: Listen,
    principal: &Principal,
    parts: &Parts,
) -> Result<Listener, Failed> {
    let mut wanted = Wanted::default().of_kinds(&listen.kind)?.of_workflows(&listen.workflow)?;
    let tasks = names(&listen.task)?;
    if let Some(who) = principal.who() {
        // What is not its own is not told from what does not exist.
        if tasks.iter().any(|id| id.parse() != Ok(who.task)) {
            let detail = "an attempt's token listens to its own task, and to nothing else";
            return Err(Failed::new(Code::Forbidden, detail));
        }
        wanted.tasks.insert(who.task);
    } else {
        for id in tasks {
            wanted.tasks.insert(service.find(id).await?);
        }
    }
    // A browser that comes back on its own says where it was in a header, which is newer.
    let last = parts.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.filter(|id| !id.is_empty()).map(str::to_owned);
    let slot = parts.extensions.get::<Slot>().cloned();
    let token = parts.extensions.get::<Revocable>().map(|token| token.0.clone());
    Ok(Listener { live, wanted, after: last.or(listen.after), token, slot })
}

/// A stream of server-sent events.
async fn sse<S: Service>(
    State(service): State<S>,
    Extension(live): Extension<Live>,
    Asked(listen): Asked<Listen>,
    Caller { principal, .. }: Caller,
    request: Request,
) -> Answered {
    let (parts, _) = request.into_parts();
    let listener = listener(&service, live, listen, &principal, &parts).await?;
    live::sse(service, listener).await
}

/// The same over a WebSocket.
async fn ws<S: Service>(
    State(service): State<S>,
    Extension(live): Extension<Live>,
    Asked(listen): Asked<Listen>,
    Caller { principal, .. }: Caller,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Answered {
    let upgrade = upgrade.map_err(|rejection| {
        let detail = format!("this is for WebSockets: {}", rejection.body_text());
        Failed::new(Code::BadRequest, detail)
    })?;
    let (parts, _) = request.into_parts();
    let listener = listener(&service, live, listen, &principal, &parts).await?;
    live::ws(service, listener, upgrade).await
}
