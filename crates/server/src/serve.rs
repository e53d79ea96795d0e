//! Accepting connections, and letting them end.
//!
//! On the way out no new connection is taken, requests that only wait are told to ask again, those
//! that change something may finish, and what is not done after [`DRAIN_LIMIT`] is dropped.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Access;
use crate::gate::{Closing, Gate, Names, pass};
use crate::routes::router;
use crate::service::Service;

/// How many connections are open at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long requests may go on after the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Serves until `stop` is over, and then until what is under way is done.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: S,
    access: Access,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (close, closing) = watch::channel(false);
    let gate = Gate {
        access: Arc::new(access),
        service: service.clone(),
        closing: Closing(closing),
        names: Arc::new(Names::new()),
    };
    let app = router(service).layer(middleware::from_fn_with_state(gate, pass::<S>));
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
