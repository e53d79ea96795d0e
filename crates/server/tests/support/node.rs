//! A node with a real control plane on a real database, and an agent's attempt that runs in it.
//! The measurements use it too, and each uses a part.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use belay_api::port::{ClaimRequest, Hello, Port, Start, Who};
use belay_api::{ATTEMPT_TOKEN, Chance, Client, NewTask, token_hash};
use belay_control::{Control, FileVault, MemoryVault, Parts, Settings, Vault};
use belay_kernel::{RunnerId, SandboxId, TaskId};
use belay_server::{Access, Token, serve};
use belay_store::blob::{BlobLimits, Blobs};
use belay_store::{Sqlite, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The token that opens the node.
pub(crate) const TOKEN: &str = "secret";
const RUNNER: RunnerId = RunnerId::from_bits(7);

#[derive(Debug)]
struct Counting(AtomicU64);

impl Chance for Counting {
    fn draw(&self) -> u128 {
        let next = u128::from(self.0.fetch_add(1, Ordering::SeqCst) + 1);
        next.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

async fn control<S: Store>(store: S, vault: Arc<dyn Vault>) -> Control<S> {
    let parts = Parts {
        store,
        blobs: Blobs::in_memory(BlobLimits::default()),
        vault,
        chance: Arc::new(Counting(AtomicU64::new(0))),
        settings: Settings { agent: "claude".into(), ..Settings::default() },
        embedded: Some(RUNNER),
        back_up: None,
        courier: None,
    };
    Control::open(parts).await.unwrap()
}

/// A node.
pub(crate) struct Node<S = Sqlite> {
    pub(crate) control: Control<S>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

/// An attempt whose agent speaks for itself.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) who: Who,
    pub(crate) sandbox: SandboxId,
    pub(crate) token: String,
}

impl Node {
    /// A node over the database in this directory.
    pub(crate) async fn on(directory: &Path) -> Self {
        let vault = FileVault::open(directory.join("vault")).unwrap();
        Self::open(Sqlite::open(directory).unwrap(), Arc::new(vault)).await
    }
}

impl<S: Store> Node<S> {
    /// A node over this store.
    pub(crate) async fn with(store: S) -> Self {
        Self::open(store, Arc::new(MemoryVault::default())).await
    }

    async fn open(store: S, vault: Arc<dyn Vault>) -> Self {
        let control = control(store, vault).await;
        let hello = Hello {
            runner: RUNNER,
            name: "here".into(),
            slots: 1_000,
            roles: vec!["default".into()],
            providers: vec!["process".into()],
            version: "1".into(),
        };
        control.join(hello).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let access = Access::new(Token::new(TOKEN), address);
        let stopped = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(serve(listener, control.clone(), access, stopped));
        Self { control, address, stop: Some(stop), served }
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.tell_to_stop();
        (&mut self.served).await.unwrap().unwrap();
    }

    /// Tells it to stop.
    pub(crate) fn tell_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), TOKEN)
    }

    /// A new task whose agent runs.
    pub(crate) async fn agent(&self) -> Agent {
        let task = NewTask { prompt: "Mend it.".into(), ..NewTask::default() };
        let made = self.control.create("ada", task).await.unwrap().summary.id;
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        let claimed = self.control.claim(ask).await.unwrap().remove(0);
        assert_eq!(claimed.who.task, made);
        let token = format!("{ATTEMPT_TOKEN}{made}_{}_x", claimed.who.attempt.0);
        let start = Start { token_hash: token_hash(&token), partial_output: true };
        self.control.start(claimed.who, start).await.unwrap();
        Agent { who: claimed.who, sandbox: claimed.sandbox, token }
    }

    /// The cursors of every event of the log, in order.
    pub(crate) async fn log(&self, task: Option<TaskId>) -> Vec<String> {
        let (mut cursors, mut after) = (Vec::new(), None);
        loop {
            let read = self.control.events(task, after, std::time::Duration::ZERO).await.unwrap();
            if read.events.is_empty() {
                return cursors;
            }
            cursors.extend(read.events.into_iter().map(|event| event.cursor));
            after = Some(read.cursor);
        }
    }
}

/// The head of a request, up to its length.
pub(crate) fn head(line: &str, token: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n")
}

/// Sends a request as it is and reads the whole answer: status and body.
pub(crate) async fn ask(
    address: SocketAddr,
    line: &str,
    token: &str,
    body: &[u8],
) -> std::io::Result<(u16, String)> {
    ask_once(address, line, token, None, body).await
}

/// The status that a request without a token is answered with.
pub(crate) async fn ask_without_token(address: SocketAddr, line: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    whole(&answer).expect("an answer").0
}

/// The same, known again by its key.
pub(crate) async fn ask_once(
    address: SocketAddr,
    line: &str,
    token: &str,
    key: Option<&str>,
    body: &[u8],
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let mut head = head(line, token);
    if let Some(key) = key {
        head += &format!("Idempotency-Key: {key}\r\n");
    }
    head += &format!("Connection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    // A server that refuses early may close before everything is sent.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    whole(&answer).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Status and body of an answer, if it is whole.
fn whole(answer: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let said = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    (said.unwrap_or(0) == body.len()).then(|| (status, body.to_owned()))
}
