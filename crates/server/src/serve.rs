//! Accepting connections, and the gate that every request passes.
//!
//! On the way out no new connection is taken, requests that only wait are told to ask again, those
//! that change something may finish, and what is not done after [`DRAIN_LIMIT`] is dropped.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, Version};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use belay_api::Code;
use belay_api::port::Who;
use belay_kernel::TaskId;
use futures_util::FutureExt;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, bearer, unknown_token};
use crate::answer::Failed;
use crate::read::Principal;
use crate::routes::routes;
use crate::service::Service;

/// How many connections are open at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
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
/// What is an agent's own.
const ATTEMPT: &str = "/api/v1/attempt/";
const MCP: &str = "/mcp";

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
    let gate = Gate { access: Arc::new(access), service: service.clone(), closing };
    let streams = CancellationToken::new();
    let app = routes(service, streams.clone()).layer(middleware::from_fn_with_state(gate, pass::<S>));
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut stop = std::pin::pin!(stop);
    loop {
        let slot = tokio::select! {
            () = &mut stop => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.map_err(io::Error::other)?,
        };
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => take(stream, slot, app.clone(), &graceful),
                // A connection that broke before it was taken, or no file descriptor left: both
                // pass, and neither is a reason to end.
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    // Nobody listens any more if every request is over.
    let _ = close.send(true);
    streams.cancel();
    if tokio::time::timeout(DRAIN_LIMIT, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still under way after {DRAIN_LIMIT:?}");
    }
    Ok(())
}

fn take(stream: TcpStream, slot: OwnedSemaphorePermit, app: Router, graceful: &GracefulShutdown) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(app);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let watched = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            tracing::debug!("a connection ended: {error}");
        }
        drop(slot);
    });
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
        let who = gate.service.speaker(&token).await?.ok_or_else(unknown_token)?;
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
    if (*method == Method::POST && path == TASKS) || path == MCP || path.starts_with(ATTEMPT) {
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
