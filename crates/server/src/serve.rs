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
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Access;
use crate::gate::{Closing, Gate, Names, Peer, pass};
use crate::routes::router;
use crate::service::Service;
use crate::tls::Tls;

/// How many connections are open at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How large the head of a request may be; one that is larger is answered 431.
const HEAD_SIZE: usize = 64 << 10;
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
        failures: Arc::default(),
    };
    let tls = gate.access.tls().cloned();
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
                Ok((stream, peer)) => {
                    let connection = Connection { stream, peer: Peer(peer.ip()), slot };
                    let (app, watcher) = (app.clone(), graceful.watcher());
                    tokio::spawn(connection.serve(app, tls.clone(), watcher));
                }
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

/// A connection that was accepted.
struct Connection {
    stream: TcpStream,
    peer: Peer,
    slot: OwnedSemaphorePermit,
}

impl Connection {
    /// Answers its requests until it ends.
    async fn serve(self, app: Router, tls: Option<Tls>, watcher: Watcher) {
        // Answers are small and waited for.
        let _ = self.stream.set_nodelay(true);
        let ended = match tls {
            None => converse(self.stream, self.peer, app, watcher).await,
            Some(tls) => match tokio::time::timeout(HEAD_LIMIT, tls.accept(self.stream)).await {
                Ok(Ok(stream)) => converse(stream, self.peer, app, watcher).await,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("no key was agreed on in time".to_owned()),
            },
        };
        if let Err(why) = ended {
            tracing::debug!("a connection ended: {why}");
        }
        drop(self.slot);
    }
}

async fn converse<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: I,
    peer: Peer,
    app: Router,
    watcher: Watcher,
) -> Result<(), String> {
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        app.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    watcher.watch(connection).await.map_err(|error| error.to_string())
}
