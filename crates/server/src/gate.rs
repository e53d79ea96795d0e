//! The gate that every request passes: it gets an id, its host and token are checked, a fault of
//! its handler is contained, and it is told when the server stops.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belay_api::{Code, Principal, Scope};
use belay_control::trace::within;
use futures_util::FutureExt;
use tokio::sync::watch;
use tracing::Instrument;

use crate::access::{Access, bearer, unknown_token};
use crate::answer::{Failed, REQUEST_ID};
use crate::failures::Failures;
use crate::figures::Figures;
use crate::live::{STREAM, WEBSOCKET};
use crate::service::Service;
use crate::table::Matched;
use crate::ticket::{self, Held, Tickets};
use crate::traced::Traced;

/// The header that names a request.
const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest name that a client may give to its request.
const LONGEST_NAME: usize = 128;

/// Where a ticket does instead of a token.
const TICKETED: [&str; 2] = [STREAM, WEBSOCKET];

/// What the gate knows.
#[derive(Clone)]
pub(crate) struct Gate<S> {
    pub(crate) access: Arc<Access>,
    pub(crate) service: S,
    pub(crate) closing: Closing,
    pub(crate) names: Arc<Names>,
    pub(crate) failures: Arc<Failures>,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) figures: Arc<Figures>,
}

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Told when the server stops: an answer that goes on and on ends then.
#[derive(Clone, Debug)]
pub(crate) struct Closing(pub(crate) watch::Receiver<bool>);

impl Closing {
    /// Over when the server is being stopped.
    pub(crate) async fn wait(&mut self) {
        // An error means that the server is gone, and then nobody waits for this either.
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}

/// A token that may open nothing any more before a long answer is over.
#[derive(Clone)]
pub(crate) struct Revocable(pub(crate) String);

/// Names for requests that come without one: unique in this process, and unlike other processes'.
#[derive(Debug)]
pub(crate) struct Names {
    process: u64,
    next: AtomicU64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { process: RandomState::new().hash_one(0), next: AtomicU64::new(1) }
    }

    /// The name that a client gave, if it is plain and short; else one of ours.
    fn name(&self, headers: &HeaderMap) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        let given = headers.get(REQUEST_ID_HEADER).and_then(|value| value.to_str().ok());
        match given {
            Some(name) if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain) => {
                name.to_owned()
            }
            Some(_) | None => {
                format!("{:08x}-{}", self.process >> 32, self.next.fetch_add(1, Ordering::Relaxed))
            }
        }
    }
}

/// Passes a request on, if it may pass, and names the answer as the request was named.
pub(crate) async fn pass<S: Service>(
    State(gate): State<Gate<S>>,
    request: Request,
    next: Next,
) -> Response {
    let name = gate.names.name(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let span = tracing::info_span!("request", id = name, %method, path);
    let started = Instant::now();
    let traced = Traced::begin(&gate.service, request.headers(), &method);
    let meant = request.extensions().get::<MatchedPath>().cloned();
    let figures = Arc::clone(&gate.figures);
    let handled = async {
        let response = answer(gate, request, next).await;
        let place = match response.extensions().get::<Matched>() {
            Some(Matched(_, place)) => *place,
            None => figures.place(meant.as_ref().map(MatchedPath::as_str), &method),
        };
        figures.answered(place, response.status(), started.elapsed());
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(status = response.status().as_u16(), took_ms, "answered");
        response
    };
    let handled = within(traced.as_ref().map(Traced::context), handled.instrument(span));
    let mut response = REQUEST_ID.scope(name.clone(), handled).await;
    if let Some(traced) = traced {
        traced.end(&response, &name);
    }
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(REQUEST_ID_HEADER, name);
    }
    response
}

async fn answer<S: Service>(gate: Gate<S>, mut request: Request, next: Next) -> Response {
    if let Err(failed) = admit(&gate, &mut request).await {
        return failed.into_response();
    }
    let only_reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut closing = gate.closing.clone();
    request.extensions_mut().insert(gate.closing);
    let closed =
        async move { if only_reads { closing.wait().await } else { std::future::pending().await } };
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    tokio::select! {
        () = closed => Failed::new(Code::Unavailable, "the server is being stopped; ask again")
            .into_response(),
        handled = handled => handled.unwrap_or_else(|_| {
            let detail = "Belay failed at this request; its log says more";
            Failed::new(Code::Internal, detail).into_response()
        }),
    }
}

/// Finds out who asks. Nobody, if there is no token; the route's rule says whether that will do.
async fn admit<S: Service>(gate: &Gate<S>, request: &mut Request) -> Result<(), Failed> {
    if request.version() < Version::HTTP_11 {
        return Err(Failed::new(Code::BadRequest, "HTTP/1.1 is needed"));
    }
    gate.access.check_host(request.uri(), request.headers())?;
    let Some(token) = bearer(request.headers())?.map(str::to_owned) else {
        return if gate.access.only_agents() { Err(needs_token()) } else { redeem(gate, request) };
    };
    let peer = request.extensions().get::<Peer>().copied();
    let principal = match gate.access.opens(&token) {
        true => Principal::holder(Scope::Admin, "admin"),
        false => {
            let principal = known(gate, &token, peer).await?;
            request.extensions_mut().insert(Revocable(token));
            principal
        }
    };
    if gate.access.only_agents() && principal.scope() != Scope::Attempt {
        let scope = principal.scope();
        let detail = format!("this socket is for agents, and takes no token for {scope}");
        return Err(Failed::new(Code::Forbidden, detail));
    }
    request.extensions_mut().insert(principal);
    Ok(())
}

/// Lets whoever has a ticket pass, where tickets are taken. Those that open nothing are not
/// counted: nobody guesses one in its half minute, and a page that comes back with a used one keeps
/// no other page out.
fn redeem<S: Service>(gate: &Gate<S>, request: &mut Request) -> Result<(), Failed> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if !path.is_some_and(|path| TICKETED.contains(&path)) {
        return Ok(());
    }
    let Some(ticket) = ticket::in_query(request.uri().query()) else { return Ok(()) };
    let Some(Held { principal, token }) = gate.tickets.take(ticket, Instant::now()) else {
        let detail = "the ticket opens nothing: it was used, or it is older than 30 seconds";
        return Err(Failed::new(Code::Unauthorized, detail));
    };
    let extensions = request.extensions_mut();
    extensions.insert(principal);
    if let Some(token) = token {
        extensions.insert(Revocable(token));
    }
    Ok(())
}

/// Whose token this is. Whoever guesses is told to wait, without a look at the database; an agent
/// whose attempt is over guesses nothing, and is told that.
async fn known<S: Service>(
    gate: &Gate<S>,
    token: &str,
    peer: Option<Peer>,
) -> Result<Principal, Failed> {
    let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    gate.failures.check(address, token, Instant::now())?;
    if let Some(principal) = gate.service.principal(token).await? {
        gate.failures.opened(address, token, Instant::now());
        return Ok(principal);
    }
    if let Some(problem) = gate.service.over(token).await? {
        return Err(problem.into());
    }
    gate.failures.failed(address, token, Instant::now());
    Err(unknown_token())
}

/// What whoever has no token is told.
pub(crate) fn needs_token() -> Failed {
    Failed::new(
        Code::Unauthorized,
        "this needs a token: `Authorization: Bearer …`, with one that `belay token create` made, \
         or what is in the file `token` of the data directory",
    )
}
