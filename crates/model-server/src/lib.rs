//! A scripted model server for tests. It speaks Anthropic's Messages, OpenAI's Responses and Chat
//! Completions, and Gemini's generateContent over loopback, with streaming, so that the real CLIs
//! of agents run whole turns without a network; and it speaks MCP over HTTP, so that a test sees
//! whether an agent really reached the server it was pointed at.
//!
//! What it answers is a [`Script`]. What it was asked is kept, so that a test can judge from
//! outside what an agent sent. Plain threads: one per connection, none outlives the server by more
//! than its own connection.
//!
//! Beside it, [`clis`] installs the agents' real CLIs, pinned, for the same tests.
//!
//! Nothing of the product depends on this crate; tests do.

mod api;
pub mod clis;
mod http;
mod mcp;
mod script;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use api::Api;
pub use script::{Act, Script, ScriptError, Step, Tokens};

use api::Content;
use http::{Chunked, Incoming};

/// A request that the server was sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model API, or nothing for MCP and all else.
    pub api: Option<Api>,
    /// The path with its query.
    pub path: String,
    /// The `authorization` header.
    pub authorization: Option<String>,
    /// The body, if it is JSON.
    pub body: Value,
    /// Whether the script answered it; titles and summaries are answered without it.
    pub scripted: bool,
}

#[derive(Default)]
struct State {
    script: Script,
    requests: Vec<Request>,
    connections: Vec<TcpStream>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    calls: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server; it ends when it is dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts a server on a free port of the loopback interface.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::start_on(0, script)
    }

    /// Starts a server on this port of the loopback interface.
    pub fn start_on(port: u16, script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { script, ..State::default() }),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new()
            .name("model-server".into())
            .spawn(move || accept(&listener, &for_acceptor))?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces what is left of the script.
    pub fn set_script(&self, script: Script) {
        self.shared.lock().script = script;
    }

    /// How many steps of the script are left.
    pub fn steps_left(&self) -> usize {
        self.shared.lock().script.len()
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// Waits until a request satisfies `wanted`; says whether one did within `limit`.
    pub fn wait_for(&self, limit: Duration, wanted: impl Fn(&Request) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.lock();
        loop {
            if state.requests.iter().any(&wanted) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        for connection in &self.shared.lock().connections {
            // A peer that is already gone is as closed as it can be.
            let _ = connection.shutdown(Shutdown::Both);
        }
        // The acceptor wakes for one more connection and sees that it is to end.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        if let Ok(handle) = stream.try_clone() {
            shared.lock().connections.push(handle);
        }
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // A client that hangs up in the middle is an ordinary end of its connection.
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(incoming) = Incoming::read(stream)? {
        serve_one(stream, shared, &incoming)?;
        if !incoming.stays() {
            break;
        }
    }
    Ok(())
}

fn serve_one(stream: &TcpStream, shared: &Shared, incoming: &Incoming) -> io::Result<()> {
    let body: Value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
    let api = Api::of_path(&incoming.path).filter(|_| incoming.method == "POST");
    let scripted = api.is_some() && Api::is_conversation(&body);
    let step = {
        let mut state = shared.lock();
        state.requests.push(Request {
            api,
            path: incoming.path.clone(),
            authorization: incoming.header("authorization").map(str::to_owned),
            body: body.clone(),
            scripted,
        });
        scripted.then(|| state.script.take())
    };
    shared.changed.notify_all();
    match api {
        Some(api) => {
            let aside = || Step::new(Act::Say("Scripted.".into()));
            answer(stream, shared, api, incoming, &body, &step.unwrap_or_else(aside))
        }
        None if incoming.is_mcp() => mcp::answer(stream, incoming, &body),
        None => answer_other(stream, incoming),
    }
}

/// What is not a conversation: probes, lists of models, counts of tokens.
fn answer_other(stream: &TcpStream, incoming: &Incoming) -> io::Result<()> {
    let path = incoming.path.split('?').next().unwrap_or_default();
    let (status, body) = match path {
        "/" => (200, json!({})),
        path if path.ends_with("/models") => {
            (200, json!({"object": "list", "data": [], "models": []}))
        }
        path if path.ends_with("/count_tokens") => (200, json!({"input_tokens": 100})),
        path if path.ends_with(":countTokens") => (200, json!({"totalTokens": 100})),
        _ => (404, json!({"error": {"message": "not found", "type": "not_found_error"}})),
    };
    http::respond(stream, status, &[], "application/json", body.to_string().as_bytes())
}

fn answer(
    stream: &TcpStream,
    shared: &Shared,
    api: Api,
    incoming: &Incoming,
    body: &Value,
    step: &Step,
) -> io::Result<()> {
    if let Act::Fail { status, retry_after, reset } = step.act {
        let mut headers: Vec<_> =
            retry_after.iter().map(|seconds| ("retry-after", seconds.to_string())).collect();
        headers.extend(reset.into_iter().flat_map(|reset| api.limit_headers(reset)));
        let error = api.error(status, reset).to_string();
        return http::respond(stream, status, &headers, "application/json", error.as_bytes());
    }
    let id = format!("call_{}", shared.calls.fetch_add(1, Ordering::Relaxed));
    let model = body["model"].as_str().unwrap_or("scripted");
    let reply = Content::of(&step.act, &id).map(|content| api.reply(&content, step.tokens, model));
    let streams = api.streams(&incoming.path, body);
    match (&step.act, reply) {
        (Act::Hang(_) | Act::Drop(_), Some(reply)) if streams => {
            let mut chunked = Chunked::begin(stream, "text/event-stream")?;
            for frame in &reply.beginning {
                chunked.send(frame.as_bytes())?;
            }
            linger(stream, shared, &step.act)
        }
        (Act::Hang(_) | Act::Drop(_), _) | (_, None) => linger(stream, shared, &step.act),
        (_, Some(reply)) if streams => {
            let mut chunked = Chunked::begin(stream, "text/event-stream")?;
            for frame in reply.beginning.iter().chain(&reply.ending) {
                chunked.send(frame.as_bytes())?;
            }
            chunked.finish()
        }
        (_, Some(reply)) => {
            let whole = reply.whole.to_string();
            http::respond(stream, 200, &[], "application/json", whole.as_bytes())
        }
    }
}

/// Holds a hanging connection open until the client goes or the server ends; lets a dropped one go.
fn linger(stream: &TcpStream, shared: &Shared, act: &Act) -> io::Result<()> {
    if matches!(act, Act::Hang(_)) {
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut byte = [0];
        while !shared.closing.load(Ordering::SeqCst) {
            match stream.peek(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
                Ok(_) => break,
            }
        }
    }
    Ok(())
}
