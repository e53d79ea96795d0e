//! Tokens: made, listed, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use belay_api::{ListTokens, MadeToken, NewToken, TokenPage, TokenView};

use super::Answered;
use crate::answer::json;
use crate::read::{Asked, Body, Caller, Id};
use crate::service::Service;
use crate::table::{ADMIN, Table};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .get("/api/v1/tokens", ADMIN, "Lists tokens, newest first.", list::<S>)
        .query::<ListTokens>()
        .answers::<TokenPage>(200);
    table
        .post("/api/v1/tokens", ADMIN, "Makes a token, which is told this once.", create::<S>)
        .body::<NewToken>()
        .answers::<MadeToken>(201);
    table
        .delete("/api/v1/tokens/{id}", ADMIN, "Revokes a token, by id or name.", revoke::<S>)
        .answers::<TokenView>(200);
}

async fn list<S: Service>(State(service): State<S>, Asked(which): Asked<ListTokens>) -> Answered {
    json(&service.tokens(which).await?)
}

async fn create<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(new): Body<NewToken>,
) -> Answered {
    let mut response = json(&service.make_token(caller.ask, new).await?)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn revoke<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    json(&service.revoke_token(caller.ask, &id).await?)
}
