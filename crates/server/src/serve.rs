//! Accepting connections, and letting them end.
//!
//! On the way out no new connection is taken, requests that only wait are told to ask again, those
//! that change something may finish, and what is not done after [`DRAIN_LIMIT`] is dropped.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router, middleware};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tower_service::Service as _;

use crate::access::Access;
use crate::bounds::Bounds;
use crate::figures::Figures;
use crate::gate::{Closing, Gate, Names, Peer, pass};
use crate::listener::{Listener, Stream};
use crate::live::{Hub, Live, Slot};
use crate::patient::Patient;
use crate::routes::router;
use crate::service::Service;
use crate::ticket::Tickets;
use crate::tls::Tls;

/// How long a client may take nothing of what it is sent.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// How large the head of a request may be; one that is larger is answered 431.
const HEAD_SIZE: usize = 64 << 10;
/// How long requests may go on after the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Serves until `stop` is over, and then until what is under way is done.
pub async fn serve<S: Service>(
    listener: impl Into<Listener>,
    service: S,
    access: Access,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = listener.into();
    let (close, closing) = watch::channel(false);
    let hub = Hub::new();
    let (live, mut streams) = Live::new(hub.clone(), closing.clone());
    let reading = {
        let service = service.clone();
        tokio::spawn(async move { hub.run(&service).await })
    };
    let (tls, bounds) = (access.tls().cloned(), access.bounds());
    let figures = access.figures().cloned().unwrap_or_else(|| Arc::new(Figures::new::<S>()));
    let routes = router(service.clone(), bounds, &figures);
    let tickets = Arc::new(Tickets::default());
    let gate = Gate {
        access: Arc::new(access),
        service,
        closing: Closing(closing),
        names: Arc::new(Names::new()),
        failures: Arc::default(),
        tickets: Arc::clone(&tickets),
        figures,
    };
    let app = routes
        .layer(Extension(live))
        .layer(Extension(tickets))
        .layer(middleware::from_fn_with_state(gate, pass::<S>));
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let (open, mut connections) = mpsc::channel::<()>(1);
    let ear = Ear { app, tls, bounds, closing: close.subscribe(), open };
    let mut stop = pin!(stop);
    loop {
        let slot = tokio::select! {
            () = &mut stop => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.map_err(io::Error::other)?,
        };
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => ear.clone().take(stream, peer, slot),
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
    while let (Some(Ok((stream, peer))), Ok(slot)) =
        (listener.accept().now_or_never(), Arc::clone(&slots).try_acquire_owned())
    {
        ear.clone().take(stream, peer, slot);
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
    tls: Option<Tls>,
    bounds: Bounds,
    closing: watch::Receiver<bool>,
    /// Held by every connection: closed when all of them are over.
    open: mpsc::Sender<()>,
}

impl Ear {
    /// Answers the requests of a connection until it ends.
    fn take(self, stream: Stream, peer: Peer, slot: OwnedSemaphorePermit) {
        let slot = Slot::new(slot);
        tokio::spawn(async move {
            let ended = match stream {
                Stream::Network(stream) => {
                    // Answers are small and waited for.
                    let _ = stream.set_nodelay(true);
                    self.agree(stream, peer, slot).await
                }
                // What does not leave this machine is not encrypted.
                Stream::Socket(stream) => self.converse(stream, peer, slot).await,
            };
            if let Err(why) = ended {
                tracing::debug!("a connection ended: {why}");
            }
        });
    }

    /// Agrees on a key first, if connections are encrypted.
    async fn agree(self, stream: TcpStream, peer: Peer, slot: Slot) -> Result<(), String> {
        let Some(tls) = self.tls.clone() else { return self.converse(stream, peer, slot).await };
        match tokio::time::timeout(self.bounds.head, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, peer, slot).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no key was agreed on in time".to_owned()),
        }
    }

    async fn converse<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        stream: I,
        peer: Peer,
        slot: Slot,
    ) -> Result<(), String> {
        let Self { app, bounds, mut closing, open, tls: _ } = self;
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(slot.clone());
            app.clone().call(request)
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head)
            .max_buf_size(HEAD_SIZE)
            .serve_connection(TokioIo::new(Patient::new(stream, STALL_LIMIT)), service)
            .with_upgrades();
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
        drop(open);
        ended.map_err(|error| error.to_string())
    }
}
