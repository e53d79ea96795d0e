//! What an agent says with its attempt's own token: questions, progress, results.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use belay_api::port::Who;
use belay_api::{Code, NewQuestion, Progress, Submission};
use belay_kernel::QuestionId;
use serde::Deserialize;

use crate::answer::{Failed, json};
use crate::read::{Asked, Body, Caller, Principal, wait};
use crate::service::Service;

type Answered = Result<Response, Failed>;

/// The routes below `/api/v1/attempt`, which are for the attempt whose token is sent.
pub(crate) fn routes<S: Service>() -> Router<S> {
    Router::new()
        .route("/questions", post(ask::<S>))
        .route("/questions/{question}", get(question::<S>))
        .route("/questions/{question}/handed-over", post(handed_over::<S>))
        .route("/progress", post(progress::<S>))
        .route("/result", post(result::<S>))
}

/// The attempt that speaks.
fn who(caller: &Caller) -> Result<Who, Failed> {
    match caller.by {
        Principal::Attempt(who) => Ok(who),
        Principal::Admin => {
            Err(Failed::new(Code::Forbidden, "this takes the token of an attempt that runs"))
        }
    }
}

async fn ask<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(question): Body<NewQuestion>,
) -> Answered {
    let patience = wait(question.wait_ms);
    json(&service.ask(who(&caller)?, question, patience).await?)
}

/// How long to wait.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Patience {
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
