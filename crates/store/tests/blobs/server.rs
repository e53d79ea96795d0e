//! A real S3 server on loopback, with faults on demand.
//!
//! The server checks a condition and then writes, which are two steps; S3 makes them one. The lock
//! around conditional writes restores that, and nothing else about the server is changed.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::header::IF_NONE_MATCH;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// What goes wrong with one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It is answered “service unavailable” and not done.
    Unavailable,
    /// The connection is reset and it is not done.
    Reset,
    /// It is done, and the connection is reset before the answer.
    LostReply,
}

#[derive(Default)]
struct State {
    faults: Mutex<VecDeque<Fault>>,
    /// The folder in which conditions are ignored, as some servers do.
    overwrites: Option<PathBuf>,
    conditional: tokio::sync::Mutex<()>,
    requests: AtomicU64,
}

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    root: TempDir,
    port: u16,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(tempfile::tempdir().unwrap(), State::default()).await
    }

    /// A server that overwrites what it was told to keep.
    pub(crate) async fn start_overwriting() -> Self {
        let root = tempfile::tempdir().unwrap();
        let overwrites = Some(root.path().to_owned());
        Self::start_with(root, State { overwrites, ..State::default() }).await
    }

    async fn start_with(root: TempDir, state: State) -> Self {
        std::fs::create_dir(root.path().join("blobs")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("belay", "secret"));
        let service = builder.build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(state);
        let accepting = tokio::spawn(accept(listener, service, Arc::clone(&state)));
        Self { root, port, state, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The folder of the bucket `blobs`.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.root.path().join("blobs")
    }

    /// The next requests go wrong like this, in this order.
    pub(crate) fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.faults.lock().unwrap().extend(faults);
    }

    /// No more faults.
    pub(crate) fn clear(&self) {
        self.state.faults.lock().unwrap().clear();
    }

    /// How many faults were not used up.
    pub(crate) fn faults_left(&self) -> usize {
        self.state.faults.lock().unwrap().len()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, service: S3Service, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        socket.set_nodelay(true).unwrap();
        // So that a connection which a fault closes is reset, as by a host that went down.
        socket.set_zero_linger().unwrap();
        let (service, state) = (service.clone(), Arc::clone(&state));
        let answer =
            service_fn(move |request| answer(service.clone(), Arc::clone(&state), request));
        connections.spawn(async move {
            // A connection that ends in an injected fault is what was asked for.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

async fn answer(
    service: S3Service,
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<HttpResponse, HttpError> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let closed = || HttpError::new("closed by an injected fault".into());
    let fault = state.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
    match fault {
        Fault::None | Fault::LostReply => {}
        Fault::Reset => return Err(closed()),
        Fault::Unavailable => {
            let mut response = HttpResponse::new(Body::empty());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response);
        }
    }
    if let Some(root) = &state.overwrites {
        // Its condition is part of what is signed, so it is made true instead of being removed.
        let _ = std::fs::remove_file(root.join(request.uri().path().trim_start_matches('/')));
    }
    let _one = match request.headers().contains_key(IF_NONE_MATCH) {
        true => Some(state.conditional.lock().await),
        false => None,
    };
    let response = service.call(request.map(Body::from)).await;
    match fault {
        Fault::LostReply => Err(closed()),
        _ => response,
    }
}
