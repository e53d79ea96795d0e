//! What an agent says with its attempt's own token: questions, progress, results.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use belay_api::port::Who;
use belay_api::{Asking, Code, NewQuestion, Progress, Submission};
use belay_kernel::QuestionId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Answered;
use crate::answer::{Failed, json};
use crate::read::{Asked, Body, Caller, wait};
use crate::service::Service;
use crate::table::{AGENT, Table};

/// The routes for the attempt whose token is sent.
pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let says = "Asks the person who gave the task. The same words are the same question until its \
                answer was handed over.";
    table
        .post("/api/v1/attempt/questions", AGENT, says, ask::<S>)
        .repeatable()
        .body::<NewQuestion>()
        .answers::<Asking>(200);
    let says = "How a question of the attempt stands.";
    table
        .get("/api/v1/attempt/questions/{question}", AGENT, says, question::<S>)
        .query::<Patience>()
        .answers::<Asking>(200);
    let says = "The agent has the answer.";
    let path = "/api/v1/attempt/questions/{question}/handed-over";
    table.post(path, AGENT, says, handed_over::<S>).repeatable().answers_bytes(204, None);
    let says = "Tells how far the agent is.";
    table
        .post("/api/v1/attempt/progress", AGENT, says, progress::<S>)
        .repeatable()
        .body::<Progress>()
        .answers_bytes(204, None);
    let says = "Tells what came of the agent's work; what was told last counts.";
    table
        .post("/api/v1/attempt/result", AGENT, says, result::<S>)
        .repeatable()
        .body::<Submission>()
        .answers_bytes(204, None);
}

/// The attempt that speaks; the rule of these routes lets nobody else in.
fn who(caller: &Caller) -> Result<Who, Failed> {
    let who = caller.principal.who();
    who.ok_or_else(|| Failed::new(Code::Forbidden, "this takes the token of an attempt that runs"))
}

async fn ask<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(question): Body<NewQuestion>,
) -> Answered {
    json(&service.ask(who(&caller)?, question).await?)
}

/// How long to wait.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct Patience {
    /// Wait so many milliseconds for the answer.
    wait_ms: u64,
}

async fn question<S: Service>(
    State(service): State<S>,
    caller: Caller,
    named: Path<String>,
    Asked(asked): Asked<Patience>,
) -> Answered {
    let (who, question) = (who(&caller)?, named_question(&named)?);
    json(&service.await_answer(who, question, wait(asked.wait_ms)).await?)
}

async fn handed_over<S: Service>(
    State(service): State<S>,
    caller: Caller,
    named: Path<String>,
) -> Answered {
    service.handed_over(who(&caller)?, named_question(&named)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn progress<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(progress): Body<Progress>,
) -> Answered {
    service.report_progress(who(&caller)?, progress).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn result<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(result): Body<Submission>,
) -> Answered {
    service.submit_result(who(&caller)?, result).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn named_question(named: &str) -> Result<QuestionId, Failed> {
    let bad = |_| Failed::new(Code::BadRequest, "the path names no question");
    named.parse().map_err(bad)
}
