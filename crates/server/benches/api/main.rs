//! What the API does in a second, through real sockets, every answer durable: a node in a process
//! of its own, a client in this one, both on the same processors.
//!
//! `cargo xtask bench api [SOAK_SECONDS]`. Beside the figures stand those of the same run that
//! bound them: a bare route of the same server library, and a bare synced write on the same disk.
//! With each stands how much of a processor one of them took, of the server and of the client: that
//! says what they cost also where others use the machine.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../tests/support/node.rs"]
mod node;

mod cost;
mod load;
mod streams;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cost::Meter;
use load::{Connection, Request, Tally, drive};
use node::{Agent, Node, TOKEN};
use serde_json::{Value, json};

/// How long each figure is taken for.
const SPAN: Duration = Duration::from_secs(5);
/// How many agents tell events, and how many events at a time.
const AGENTS: usize = 4;
const BATCH: u64 = 1_000;
/// Set in the process that serves.
const SERVE: &str = "BELAY_BENCH_SERVE";

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    if let Some(directory) = std::env::var_os(SERVE) {
        return runtime.block_on(serve(Path::new(&directory)));
    }
    let soak = std::env::args().find_map(|word| word.parse().ok()).map(Duration::from_secs);
    runtime.block_on(measure(soak.unwrap_or(Duration::from_secs(20))));
}

/// The process that serves: says where it is and who its agents are, and ends with its input.
async fn serve(directory: &Path) {
    let node = Node::on(directory).await;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        let Agent { who, sandbox, token } = node.agent().await;
        agents.push(json!({ "task": who.task, "sandbox": sandbox, "token": token }));
    }
    let bare = bare_route().await;
    println!("{}", json!({ "address": node.address, "bare": bare, "agents": agents }));
    std::io::stdout().flush().expect("the other side reads");
    let waits = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    waits.await.expect("the other side goes away");
    node.stop().await;
}

/// A route of the same library that does nothing, answering as much as a task's view.
async fn bare_route() -> SocketAddr {
    let body = json!({ "nothing": "x".repeat(1_000) }).to_string();
    let route = axum::routing::get(move || std::future::ready(body.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = axum::Router::new().route("/", route);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            let service = hyper_util::service::TowerToHyperService::new(app.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            let served = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
            tokio::spawn(served);
        }
    });
    address
}

/// The process that serves, as this one sees it.
struct Server {
    child: Child,
    address: SocketAddr,
    bare: SocketAddr,
    agents: Vec<Value>,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(SERVE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        let said = child.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut line).expect("it says where it is");
        let said: Value = serde_json::from_str(&line).expect("as JSON");
        let address = |name: &str| said[name].as_str().expect("an address").parse().expect("one");
        let agents = said["agents"].as_array().expect("agents").clone();
        Self { address: address("address"), bare: address("bare"), agents, child }
    }

    /// What it costs from now on.
    fn meter(&self) -> Meter {
        Meter::begin(self.child.id())
    }

    fn rss_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
        let kib: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("KiB");
        kib / 1024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn heading(text: &str) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\n{text}  (load {})", load.split(' ').next().unwrap_or(""));
}

/// Prints a figure, with what each of `count` cost since the meter began.
fn figure(name: &str, rate: f64, count: usize, wanted: &str, tally: &Tally, meter: &Meter) {
    let (half, most) = (tally.at(0.5), tally.at(0.99));
    let (server, client) = meter.micros_each(count);
    println!(
        "  {name:<22}{rate:>9.0} /s  p50 {half:>7.2} ms  p99 {most:>7.2} ms  \
         {server:>6.1} + {client:.1} µs  {wanted}"
    );
}

async fn measure(soak: Duration) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path());
    heading("baselines");
    let synced = synced_writes(directory.path());
    println!("  {:<22}{synced:>10.0} /s", "a synced write");
    let get = |_, _| Request::new("GET /", "", "", b"");
    let meter = server.meter();
    let bare = drive(server.bare, 32, SPAN, get).await;
    figure("a bare route", bare.rate(), bare.count(), "", &bare, &meter);

    heading("requests; µs of a processor: of the server + of the client");
    let task = json!({ "prompt": "Mend the fence.", "hold": true }).to_string();
    let create = |client, round| {
        let key = format!("{client}-{round}");
        Request::new("POST /api/v1/tasks", TOKEN, &key, task.as_bytes())
    };
    let meter = server.meter();
    let created = drive(server.address, 64, SPAN, create).await;
    figure("create a task", created.rate(), created.count(), "≥ 2,000", &created, &meter);
    let path = format!("GET /api/v1/tasks/{}", created.last_id());
    let meter = server.meter();
    let shown = drive(server.address, 32, SPAN, |_, _| Request::new(&path, TOKEN, "", b"")).await;
    figure("show a task", shown.rate(), shown.count(), "≥ 15,000", &shown, &meter);
    let made = made_token(&server).await;
    let meter = server.meter();
    let by = drive(server.address, 32, SPAN, |_, _| Request::new(&path, &made, "", b"")).await;
    figure("… with a made token", by.rate(), by.count(), "", &by, &meter);
    println!("  show / bare route = {:.2}", shown.rate() / bare.rate());
    println!("  create / synced write = {:.2}", created.rate() / synced);
    events_in(&server).await;
    streams::measure(&server).await;
    soaked(&server, soak).await;
}

/// A token that a person made: it is looked up with every request.
async fn made_token(server: &Server) -> String {
    let body = br#"{"name":"bench","scope":"viewer"}"#;
    let request = Request::new("POST /api/v1/tokens", TOKEN, "", body);
    let (status, answer) = Connection::open(server.address).await.ask(&request).await;
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
    let made: Value = serde_json::from_slice(&answer).expect("JSON");
    text(&made, "token").to_owned()
}

/// Synced appends of one page, one after the other, in a second.
fn synced_writes(directory: &Path) -> f64 {
    let mut file = fs::File::create(directory.join("synced")).expect("a file");
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(2) {
        file.write_all(&[7; 4_096]).expect("room");
        file.sync_data().expect("a disk");
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

/// A batch of numbered events from `first` on.
fn batch(first: u64) -> Vec<u8> {
    let event = |seq: u64| {
        json!({
            "kind": "agent.tool_use", "seq": seq,
            "data": { "tool": "Bash", "input": { "command": "cargo test --workspace" } },
        })
    };
    let events: Vec<_> = (first..first + BATCH).map(event).collect();
    serde_json::to_vec(&events).expect("JSON")
}

async fn events_in(server: &Server) {
    let clients = server.agents.iter().map(|agent| {
        let line = format!("POST /api/v1/sandboxes/{}/events", text(agent, "sandbox"));
        let token = text(agent, "token").to_owned();
        let address = server.address;
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            let (mut tally, mut next) = (Tally::default(), 1);
            let began = Instant::now();
            while began.elapsed() < SPAN {
                // Not what is measured: the batch is made before the clock starts.
                let request = Request::new(&line, &token, "", &batch(next));
                let asked = Instant::now();
                let (status, answer) = connection.ask(&request).await;
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
                tally.note(asked.elapsed());
                next += BATCH;
            }
            tally
        })
    });
    let (began, meter) = (Instant::now(), server.meter());
    let mut all = Tally::default();
    for client in clients.collect::<Vec<_>>() {
        all.add(client.await.expect("a client"));
    }
    let count = all.count() * BATCH as usize;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    figure("events in, by 1,000", rate, count, "≥ 100,000", &all, &meter);
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().expect("a text")
}

/// Everything at once, for a while: what the server holds must not grow with what it has done.
async fn soaked(server: &Server, span: Duration) {
    heading(&format!("soak, {span:?}"));
    let task = json!({ "prompt": "Mend the fence.", "hold": true }).to_string();
    let begin = Instant::now();
    let (mut sizes, mut done) = (Vec::new(), 0);
    while begin.elapsed() < span {
        let round = sizes.len();
        let create = |client, number| {
            let key = format!("soak-{round}-{client}-{number}");
            Request::new("POST /api/v1/tasks", TOKEN, &key, task.as_bytes())
        };
        let listen = streams::come_and_go(server.address, 50);
        let (made, ()) = tokio::join!(drive(server.address, 8, span / 20, create), listen);
        let list = |_, _| Request::new("GET /api/v1/tasks?limit=50", TOKEN, "", b"");
        drive(server.address, 4, span / 40, list).await;
        done += made.count();
        sizes.push(server.rss_mib());
    }
    let quarter = |n: usize| sizes.get((sizes.len() * n).div_ceil(4).saturating_sub(1));
    let quarters = (1..=4).filter_map(quarter).map(|size| format!("{size:.0}"));
    let quarters = quarters.collect::<Vec<_>>().join(", ");
    println!("  {done} tasks made, 50 streams opened and closed each round");
    println!("  memory after each quarter: {quarters} MiB");
}
