//! Tickets, with which a page in a browser opens a stream.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use belay_api::MadeTicket;

use super::Answered;
use crate::answer::json;
use crate::gate::Revocable;
use crate::read::Caller;
use crate::service::Service;
use crate::table::{Reach, Table, VIEWER};
use crate::ticket::{Held, LASTS, Tickets};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let says = "Gives a ticket, which opens one stream instead of the token: for pages, which \
                cannot put a token on a stream.";
    table
        .post("/api/v1/tickets", VIEWER.attempt(Reach::Handled), says, give)
        .answers::<MadeTicket>(201)
        .repeatable();
}

async fn give(
    Extension(tickets): Extension<Arc<Tickets>>,
    Caller { principal, .. }: Caller,
    request: Request,
) -> Answered {
    let token = request.extensions().get::<Revocable>().map(|token| token.0.clone());
    let ticket = tickets.give(Held { principal, token }, Instant::now())?;
    let lasts_ms = u64::try_from(LASTS.as_millis()).unwrap_or(u64::MAX);
    let mut response = json(&MadeTicket { ticket, lasts_ms })?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
