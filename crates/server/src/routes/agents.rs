//! What agents that run elsewhere send: events and beats, with their attempt's own token.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use belay_api::port::Who;
use belay_api::{Code, EventsTaken, Heartbeat, HeartbeatTaken, NewAgentEvents, read_events};
use belay_kernel::SandboxId;

use super::Answered;
use crate::answer::{Failed, json};
use crate::read::{Caller, whole};
use crate::service::Service;
use crate::table::{AGENT, Table};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let says = "Takes what an agent tells of itself: one event, or many in order, whole or not at \
                all. The sandbox may be named `self`.";
    table
        .post("/api/v1/sandboxes/{id}/events", AGENT, says, events::<S>)
        .body::<NewAgentEvents>()
        .answers::<EventsTaken>(200);
    let says = "Takes a heartbeat of an agent. The sandbox may be named `self`.";
    table
        .post("/api/v1/sandboxes/{id}/heartbeat", AGENT, says, heartbeat::<S>)
        .repeatable()
        .body::<Heartbeat>()
        .answers::<HeartbeatTaken>(200);
}

/// The sandbox in a path: by its id, or `self` for the one whose token is used.
struct Sandbox(Option<SandboxId>);

/// The name of whoever's token it is.
const SELF: &str = "self";

impl<S: Send + Sync> FromRequestParts<S> for Sandbox {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let bad = || Failed::new(Code::BadRequest, "the path names no sandbox");
        let id = Path::<String>::from_request_parts(parts, state).await;
        match id.map_err(|_| bad())?.0.as_str() {
            SELF => Ok(Self(None)),
            id => Ok(Self(Some(id.parse().map_err(|_| bad())?))),
        }
    }
}

/// A body, whole and bounded.
struct Raw(Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        Ok(Self(whole(request, state).await?))
    }
}

fn speaker(caller: &Caller) -> Result<Who, Failed> {
    let detail = "only an attempt's own token speaks for its sandbox";
    caller.principal.who().ok_or_else(|| Failed::new(Code::Forbidden, detail))
}

/// Takes events: one, or a batch.
async fn events<S: Service>(
    State(service): State<S>,
    Sandbox(sandbox): Sandbox,
    caller: Caller,
    Raw(body): Raw,
) -> Answered {
    let who = speaker(&caller)?;
    let events = read_events(&body)?;
    json(&service.take_events(who, sandbox, events, caller.ask.key).await?)
}

/// Takes a beat.
async fn heartbeat<S: Service>(
    State(service): State<S>,
    Sandbox(sandbox): Sandbox,
    caller: Caller,
    Raw(body): Raw,
) -> Answered {
    let who = speaker(&caller)?;
    let beat: Heartbeat = serde_json::from_slice(&body).map_err(|error| {
        Failed::new(Code::BadRequest, format!("the body is not what is taken: {error}"))
    })?;
    json(&service.take_heartbeat(who, sandbox, beat).await?)
}
