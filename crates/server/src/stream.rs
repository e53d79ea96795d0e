//! The routes of live streams: who may listen to what, and from where on.

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use belay_api::Code;
use serde::Deserialize;

use crate::access::bearer;
use crate::answer::Failed;
use crate::live::{self, Listener, Live, Slot, Wanted, names};
use crate::read::{Asked, Caller, Principal};
use crate::service::Service;

type Answered = Result<Response, Failed>;

/// Which events, and after which.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Stream {
    after: Option<String>,
    task: String,
    workflow: String,
    #[serde(alias = "type")]
    kind: String,
}

async fn listener<S: Service>(
    service: &S,
    live: Live,
    stream: Stream,
    caller: &Caller,
    headers: &HeaderMap,
    slot: Option<Slot>,
) -> Result<Listener, Failed> {
    let mut wanted = Wanted::default().of_kinds(&stream.kind)?.of_workflows(&stream.workflow)?;
    for id in names(&stream.task)? {
        wanted.tasks.insert(service.find(id).await?);
    }
    let mut token = None;
    if let Principal::Attempt(who) = caller.by {
        if wanted.tasks.iter().any(|task| *task != who.task) {
            let detail = "an attempt's token listens to its own task, and to nothing else";
            return Err(Failed::new(Code::Forbidden, detail));
        }
        wanted.tasks.insert(who.task);
        token = bearer(headers)?.map(str::to_owned);
    }
    // A browser that comes back on its own says where it was in a header, which is newer.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let after = last.filter(|id| !id.is_empty()).or(stream.after);
    Ok(Listener { live, wanted, after, token, slot })
}

/// A stream of server-sent events.
pub(crate) async fn sse<S: Service>(
    State(service): State<S>,
    Extension(live): Extension<Live>,
    Asked(stream): Asked<Stream>,
    caller: Caller,
    request: Request,
) -> Answered {
    let slot = request.extensions().get::<Slot>().cloned();
    let headers = request.headers();
    let listener = listener(&service, live, stream, &caller, headers, slot).await?;
    live::sse(service, listener).await
}

/// The same over a WebSocket.
pub(crate) async fn ws<S: Service>(
    State(service): State<S>,
    Extension(live): Extension<Live>,
    Asked(stream): Asked<Stream>,
    caller: Caller,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Answered {
    let upgrade = upgrade.map_err(|rejection| {
        let detail = format!("this is for WebSockets: {}", rejection.body_text());
        Failed::new(Code::BadRequest, detail)
    })?;
    let slot = request.extensions().get::<Slot>().cloned();
    let headers = request.headers();
    let listener = listener(&service, live, stream, &caller, headers, slot).await?;
    live::ws(service, listener, upgrade).await
}
