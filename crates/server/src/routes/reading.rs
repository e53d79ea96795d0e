//! What happened: events, transcripts, diffs, receipts.

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use belay_api::{AfterCursor, Events, ReceiptView, TranscriptRange, WhichAttempt};

use super::Answered;
use crate::answer::{bytes, json};
use crate::read::{Asked, Id, wait};
use crate::service::Service;
use crate::table::{Reach, Table, VIEWER};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .get("/api/v1/events", VIEWER, "Tells what happened after a cursor.", events::<S>)
        .query::<AfterCursor>()
        .answers::<Events>(200);
    let family = VIEWER.attempt(Reach::Family);
    table
        .get("/api/v1/tasks/{id}/events", family, "The same, of one task.", task_events::<S>)
        .query::<AfterCursor>()
        .answers::<Events>(200);
    table
        .get("/api/v1/tasks/{id}/transcript", family, "What an attempt printed.", transcript::<S>)
        .query::<TranscriptRange>()
        .answers_bytes(200, Some("application/octet-stream"));
    table
        .get("/api/v1/tasks/{id}/diff", family, "What an attempt changed, as a patch.", diff::<S>)
        .query::<WhichAttempt>()
        .answers_bytes(200, Some("text/x-diff"));
    table
        .get("/api/v1/tasks/{id}/receipt", family, "The receipt of a stop.", receipt::<S>)
        .answers::<ReceiptView>(200);
}

async fn events<S: Service>(
    State(service): State<S>,
    Asked(asked): Asked<AfterCursor>,
) -> Answered {
    json(&service.events(None, asked.after, wait(asked.wait_ms)).await?)
}

async fn task_events<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<AfterCursor>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.events(Some(task), asked.after, wait(asked.wait_ms)).await?)
}

async fn transcript<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<TranscriptRange>,
) -> Answered {
    let task = service.find(&id).await?;
    let waits = wait(asked.wait_ms);
    let piece = service.transcript(task, asked.attempt, asked.from, waits).await?;
    let mut response = bytes("application/octet-stream", piece.bytes);
    for (name, value) in [
        ("belay-attempt", u64::from(piece.attempt.0)),
        ("belay-from", piece.from),
        ("belay-ended", u64::from(piece.ended)),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
    Ok(response)
}

async fn diff<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<WhichAttempt>,
) -> Answered {
    let task = service.find(&id).await?;
    Ok(bytes("text/x-diff", service.diff(task, asked.attempt).await?))
}

async fn receipt<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    let task = service.find(&id).await?;
    json(&service.receipt(task).await?)
}
