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

/// The name of the sandbox whose token is used.
const SELF: &str = "self";

/// What an attempt says of its sandbox, with its own token.
struct Said {
    who: Who,
    /// The sandbox that the path names; nothing, if that is `self`.
    sandbox: Option<SandboxId>,
    key: Option<String>,
    /// The body, whole and bounded.
    body: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for Said {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        let (mut parts, body) = request.into_parts();
        let sandbox = sandbox(&mut parts, state).await?;
        let caller = Caller::from_request_parts(&mut parts, state).await?;
        let body = whole(Request::from_parts(parts, body), state).await?;
        let detail = "only an attempt's own token speaks for its sandbox";
        let who = caller.principal.who().ok_or_else(|| Failed::new(Code::Forbidden, detail))?;
        Ok(Self { who, sandbox, key: caller.ask.key, body })
    }
}

async fn sandbox<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<Option<SandboxId>, Failed> {
    let bad = || Failed::new(Code::BadRequest, "the path names no sandbox");
    let id = Path::<String>::from_request_parts(parts, state).await;
    match id.map_err(|_| bad())?.0.as_str() {
        SELF => Ok(None),
        id => Ok(Some(id.parse().map_err(|_| bad())?)),
    }
}

/// Takes events: one, or a batch.
async fn events<S: Service>(State(service): State<S>, said: Said) -> Answered {
    let events = read_events(&said.body)?;
    json(&service.take_events(said.who, said.sandbox, events, said.key).await?)
}

/// Takes a beat.
async fn heartbeat<S: Service>(State(service): State<S>, said: Said) -> Answered {
    let beat: Heartbeat = serde_json::from_slice(&said.body).map_err(|error| {
        Failed::new(Code::BadRequest, format!("the body is not what is taken: {error}"))
    })?;
    json(&service.take_heartbeat(said.who, said.sandbox, beat).await?)
}
