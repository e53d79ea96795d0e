//! Accepting connections, and the gate that every request passes.
//!
//! On the way out no new connection is taken, requests that only wait are told to ask again, those
//! that change something may finish, and what is not done after [`DRAIN_LIMIT`] is dropped.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Method, Version};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use belay_api::Code;
use belay_api::port::Who;
use belay_kernel::TaskId;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tower_service::Service as _;

use crate::access::{Access, bearer, unknown_token};
use crate::answer::Failed;
use crate::live::{Hub, Live, Slot};
use crate::patient::Patient;
use crate::read::Principal;
use crate::routes::routes;
use crate::service::Service;

/// How many connections are open at a time, streams apart; further ones wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of what it is sent.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a request may take, with everything that it waits for.
const REQUEST_LIMIT: Duration = Duration::from_secs(110);
/// The same for a backup, which copies the whole database.
const BACKUP_LIMIT: Duration = Duration::from_secs(590);
/// How long requests may go on after the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// The only path that is answered without a token.
const HEALTH: &str = "/api/v1/health";
const BACKUP: &str = "/api/v1/backup";
const TASKS: &str = "/api/v1/tasks";
const SANDBOXES: &str = "/api/v1/sandboxes/";
/// The live streams, over either transport.
const STREAM: [&str; 2] = ["/api/v1/events/stream", "/api/v1/events/ws"];

#[derive(Clone)]
struct Gate<S> {
    access: Arc<Access>,
    service: S,
    closing: watch::Receiver<bool>,
}

/// Serves until `stop` is over, and then until what is under way is done.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: S,
    access: Access,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (close, closing) = watch::channel(false);
    let hub = Hub::new();
    let (live, mut streams) = Live::new(hub.clone(), closing.clone());
    let reading = {
        let service = service.clone();
        tokio::spawn(async move { hub.run(&service).await })
    };
    let gate = Gate { access: Arc::new(access), service: service.clone(), closing };
    let app = routes(service)
        .layer(Extension(live))
        .layer(middleware::from_fn_with_state(gate, pass::<S>));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (open, mut connections) = mpsc::channel::<()>(1);
    let ear = Ear { app, closing: close.subscribe(), open };
    let mut stop = pin!(stop);
    loop {
        let slot = tokio::select! {
            () = &mut stop => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.map_err(io::Error::other)?,
        };
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => ear.clone().take(stream, slot),
                // A connection that broke before it was taken, or no file descriptor left: both
                // pass, and neither is a reason to end.
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Whoever connected before we stopped is served: their requests may be under way already.
    while let (Some(Ok((stream, _))), Ok(slot)) =
        (listener.accept().now_or_never(), Arc::clone(&slots).try_acquire_owned())
    {
        ear.clone().take(stream, slot);
    }
    drop((listener, ear));
    // Nobody listens any more if every request is over.
    let _ = close.send(true);
    let over = async {
        // Nothing is ever sent: this is over when the last connection and the last stream are.
        let _ = connections.recv().await;
        let _ = streams.recv().await;
    };
    if tokio::time::timeout(DRAIN_LIMIT, over).await.is_err() {
        tracing::warn!("requests were still under way after {DRAIN_LIMIT:?}");
    }
    reading.abort();
    // It ends because it was told to.
    let _ = reading.await;
    Ok(())
}

/// What every connection is served with.
#[derive(Clone)]
struct Ear {
    app: Router,
    closing: watch::Receiver<bool>,
    /// Held by every connection: closed when all of them are over.
    open: mpsc::Sender<()>,
}

impl Ear {
    fn take(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let Self { app, mut closing, open } = self;
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let slot = Slot::new(slot);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(slot.clone());
            app.clone().call(request)
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .serve_connection(TokioIo::new(Patient::new(stream, STALL_LIMIT)), service)
            .with_upgrades();
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let told = async {
                // An error means that the server is gone, which is the same.
                let _ = closing.wait_for(|closing| *closing).await;
            };
            let ended = tokio::select! {
                ended = connection.as_mut() => Some(ended),
                () = told => None,
            };
            let ended = match ended {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!("a connection ended: {error}");
            }
            drop(open);
        });
    }
}

/// Checks name and token, and bounds how long the rest may take.
async fn pass<S: Service>(
    State(gate): State<Gate<S>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(failed) = admit(&gate, &mut request).await {
        return failed.into_response();
    }
    let only_reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let limit = if request.uri().path() == BACKUP { BACKUP_LIMIT } else { REQUEST_LIMIT };
    let line = format!("{} {}", request.method(), request.uri().path());
    let mut closing = gate.closing;
    let closed = async move {
        if only_reads {
            // An error means that the server is gone, and then nobody waits for this either.
            let _ = closing.wait_for(|closing| *closing).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    let response = tokio::select! {
        () = closed => Failed::new(Code::Unavailable, "the server is being stopped; ask again")
            .into_response(),
        () = tokio::time::sleep(limit) => {
            let detail = format!("no answer within {limit:?}; it may have been done: look again");
            Failed::new(Code::Unavailable, detail).into_response()
        }
        handled = handled => handled.unwrap_or_else(|_| {
            let detail = "Belay failed at this request; its log says more";
            Failed::new(Code::Internal, detail).into_response()
        }),
    };
    tracing::debug!(status = response.status().as_u16(), "{line}");
    response
}

async fn admit<S: Service>(gate: &Gate<S>, request: &mut Request) -> Result<(), Failed> {
    if request.version() < Version::HTTP_11 {
        return Err(Failed::new(Code::BadRequest, "HTTP/1.1 is needed"));
    }
    gate.access.check_host(request.uri(), request.headers())?;
    let Some(token) = bearer(request.headers())?.map(str::to_owned) else {
        if request.uri().path() == HEALTH {
            return Ok(());
        }
        return Err(Failed::new(
            Code::Unauthorized,
            "this needs a token: `Authorization: Bearer …`, with what is in the file `token` of \
             the data directory",
        ));
    };
    let principal = if gate.access.opens(&token) {
        Principal::Admin
    } else {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let who = match path.starts_with(SANDBOXES) {
            true => gate.service.voice(&token).await?,
            false => gate.service.speaker(&token).await?,
        };
        let who = who.ok_or_else(unknown_token)?;
        may_ask(&gate.service, who, &method, &path).await?;
        Principal::Attempt(who)
    };
    request.extensions_mut().insert(principal);
    Ok(())
}

/// An agent may make subtasks, and read its own task and its subtasks; nothing else.
async fn may_ask<S: Service>(
    service: &S,
    who: Who,
    method: &Method,
    path: &str,
) -> Result<(), Failed> {
    // What speaks for a sandbox, and what listens, is checked where that is known.
    if *method == Method::POST && (path == TASKS || path.starts_with(SANDBOXES)) {
        return Ok(());
    }
    if STREAM.contains(&path) {
        return Ok(());
    }
    let named = path.strip_prefix(TASKS).and_then(|rest| rest.split('/').nth(1));
    let named = named.and_then(|id| id.parse::<TaskId>().ok());
    if let (&Method::GET, Some(id)) = (method, named)
        && (id == who.task || service.show(id).await?.summary.parent == Some(who.task))
    {
        return Ok(());
    }
    let detail = "an attempt's token makes subtasks and reads its own task, and nothing else";
    Err(Failed::new(Code::Forbidden, detail))
}
