//! The routes, each a line of reading and a call of the service.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use belay_api::{
    Accept, Answer, Code, Comment, Continue, ListTasks, NewTask, Problem, Resume, Stop,
};
use serde::Deserialize;

use crate::BODY_LIMIT;
use crate::answer::{Failed, bytes, json};
use crate::read::{Asked, Body, Caller, Id, Principal, wait};
use crate::service::Service;
use crate::{ingest, stream};

type Answered = Result<Response, Failed>;

/// Every route.
pub(crate) fn routes<S: Service>(service: S) -> Router {
    let task = Router::new()
        .route("/", get(show::<S>).delete(delete::<S>))
        .route("/why", get(why::<S>))
        .route("/run", post(run::<S>))
        .route("/stop", post(stop::<S>))
        .route("/cancel", post(cancel::<S>))
        .route("/receipt", get(receipt::<S>))
        .route("/answer", post(answer::<S>))
        .route("/accept", post(accept::<S>))
        .route("/reject", post(reject::<S>))
        .route("/retry", post(retry::<S>))
        .route("/resume", post(resume::<S>))
        .route("/continue", post(follow::<S>))
        .route("/events", get(task_events::<S>))
        .route("/transcript", get(transcript::<S>))
        .route("/diff", get(diff::<S>));
    let api = Router::new()
        .route("/health", get(health::<S>))
        .route("/tasks", get(list::<S>).post(create::<S>))
        .nest("/tasks/{id}", task)
        .route("/events", get(events::<S>))
        .route("/events/stream", get(stream::sse::<S>))
        .route("/events/ws", get(stream::ws::<S>))
        .route("/sandboxes/{id}/events", post(ingest::events::<S>))
        .route("/sandboxes/{id}/heartbeat", post(ingest::heartbeat::<S>))
        .route("/backup", post(backup::<S>));
    Router::new()
        .nest("/api/v1", api)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(service)
}

async fn no_route(uri: Uri) -> Failed {
    let path: String = uri.path().chars().take(200).collect();
    Failed::new(Code::NotFound, format!("there is nothing at `{path}`"))
}

async fn no_method(method: Method, uri: Uri) -> Failed {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("`{path}` does not take {method}");
    let status = StatusCode::METHOD_NOT_ALLOWED.as_u16();
    Failed(Problem { status, ..Problem::new(Code::BadRequest, detail) })
}

async fn health<S: Service>(State(service): State<S>, request: Request) -> Answered {
    let known = request.extensions().get::<Principal>().is_some();
    let health = service.health().await?;
    if known { json(&health) } else { json(&serde_json::json!({ "status": health.status })) }
}

async fn create<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(task): Body<NewTask>,
) -> Answered {
    let made = match caller.by {
        Principal::Admin => service.create(caller.by.name(), task, caller.key).await?,
        Principal::Attempt(who) => service.add_subtask(who, task, caller.key).await?,
    };
    let mut response = json(&made)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn list<S: Service>(State(service): State<S>, Asked(which): Asked<ListTasks>) -> Answered {
    json(&service.list(which).await?)
}

async fn show<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    // Whether a whole id is a task's is found out by showing it.
    let task = match id.parse() {
        Ok(task) => task,
        Err(_) => service.find(&id).await?,
    };
    json(&service.show(task).await?)
}

async fn why<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    let task = service.find(&id).await?;
    json(&service.why(task).await?)
}

async fn receipt<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    let task = service.find(&id).await?;
    json(&service.receipt(task).await?)
}

async fn run<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let task = service.find(&id).await?;
    json(&service.run(caller.by.name(), task, caller.key).await?)
}

async fn stop<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(stop): Body<Stop>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.stop(caller.by.name(), task, wait(stop.wait_ms), caller.key).await?)
}

async fn cancel<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let task = service.find(&id).await?;
    json(&service.stop(caller.by.name(), task, wait(0), caller.key).await?)
}

async fn answer<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(answer): Body<Answer>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.answer(caller.by.name(), task, answer, caller.key).await?)
}

async fn accept<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(accept): Body<Accept>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.accept(caller.by.name(), task, accept, caller.key).await?)
}

async fn reject<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(comment): Body<Comment>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.reject(caller.by.name(), task, comment, caller.key).await?)
}

async fn retry<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let task = service.find(&id).await?;
    json(&service.retry(caller.by.name(), task, caller.key).await?)
}

async fn resume<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(resume): Body<Resume>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.resume(caller.by.name(), task, resume, caller.key).await?)
}

async fn follow<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(message): Body<Continue>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.follow(caller.by.name(), task, message, caller.key).await?)
}

async fn delete<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let task = service.find(&id).await?;
    service.delete(caller.by.name(), task).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Which events.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct After {
    after: Option<String>,
    wait_ms: u64,
}

async fn events<S: Service>(State(service): State<S>, Asked(asked): Asked<After>) -> Answered {
    json(&service.events(None, asked.after, wait(asked.wait_ms)).await?)
}

async fn task_events<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<After>,
) -> Answered {
    let task = service.find(&id).await?;
    json(&service.events(Some(task), asked.after, wait(asked.wait_ms)).await?)
}

/// Which bytes of which attempt.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Piece {
    attempt: Option<u32>,
    from: u64,
    wait_ms: u64,
}

async fn transcript<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<Piece>,
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

/// Of which attempt.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Which {
    attempt: Option<u32>,
}

async fn diff<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    Asked(asked): Asked<Which>,
) -> Answered {
    let task = service.find(&id).await?;
    Ok(bytes("text/x-diff", service.diff(task, asked.attempt).await?))
}

/// Where a backup goes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Where {
    path: String,
}

async fn backup<S: Service>(State(service): State<S>, _: Caller, body: Body<Where>) -> Answered {
    let Body(Where { path }) = body;
    if !path.starts_with('/') {
        let detail = "a backup needs an absolute path on the server's machine";
        return Err(Failed::new(Code::BadRequest, detail));
    }
    json(&service.backup(path).await?)
}
