//! Live streams: how long an event takes to reach everybody, while thousands only wait.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::load::{Connection, Request, Tally};
use crate::node::{TOKEN, head};
use crate::{Server, text};

/// Streams that wait for something else, and streams to which every event goes.
const IDLE: usize = 5_000;
const ACTIVE: usize = 500;
/// How many events are told, and how far apart.
const EVENTS: usize = 200;
const APART: Duration = Duration::from_millis(50);

async fn open(address: SocketAddr, query: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let line = format!("GET /api/v1/events/stream{query}");
    stream.write_all(format!("{}\r\n", head(&line, TOKEN)).as_bytes()).await.expect("a server");
    let mut first = vec![0; 16];
    // The first bytes of the answer: the stream is open.
    stream.read_exact(&mut first).await.expect("an answer");
    stream
}

pub(crate) async fn measure(server: &Server) {
    crate::heading("streams");
    let (address, before) = (server.address, server.rss_mib());
    let (talker, other) = (&server.agents[0], &server.agents[1]);
    let mut idle = Vec::with_capacity(IDLE);
    let of_other = format!("?task={}", text(other, "task"));
    for _ in 0..IDLE {
        idle.push(open(address, &of_other).await);
    }
    let open_now = server.rss_mib();
    println!(
        "  {IDLE} idle streams: {:.0} MiB, {:.1} KiB each",
        open_now - before,
        (open_now - before) * 1024.0 / IDLE as f64
    );
    let (arrived, mut arrivals) = mpsc::unbounded_channel::<(usize, Instant)>();
    let mut listeners = tokio::task::JoinSet::new();
    for _ in 0..ACTIVE {
        let stream = open(address, "?kind=agent.latency").await;
        listeners.spawn(listen(stream, arrived.clone()));
    }
    drop(arrived);
    let meter = server.meter();
    let sent = tell(talker, address).await;
    let mut tally = Tally::default();
    while tally.count() < ACTIVE * EVENTS {
        let next = tokio::time::timeout(Duration::from_secs(20), arrivals.recv()).await;
        let Ok(Some((number, at))) = next else { break };
        tally.note(at.saturating_duration_since(sent[number]));
    }
    println!(
        "  event → {ACTIVE} streams: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms  (≤ 20), {} of {}",
        tally.at(0.5),
        tally.at(0.99),
        tally.at(1.0),
        tally.count(),
        ACTIVE * EVENTS
    );
    let (of_server, of_client) = meter.micros_each(tally.count());
    println!("  from before the request is sent, with {IDLE} idle streams beside them;");
    println!("  {of_server:.1} + {of_client:.1} µs of a processor for each that arrived");
    drop(idle);
}

/// Tells events, and when each was sent.
async fn tell(agent: &Value, address: SocketAddr) -> Vec<Instant> {
    let line = format!("POST /api/v1/sandboxes/{}/events", text(agent, "sandbox"));
    let mut connection = Connection::open(address).await;
    let mut sent = Vec::with_capacity(EVENTS);
    let mut ticks = tokio::time::interval(APART);
    for number in 0..EVENTS {
        ticks.tick().await;
        let body = format!("{{\"kind\":\"agent.latency\",\"data\":{{\"marked\":{number}}}}}");
        let request = Request::new(&line, text(agent, "token"), "", body.as_bytes());
        sent.push(Instant::now());
        let (status, answer) = connection.ask(&request).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }
    sent
}

async fn listen(mut stream: TcpStream, arrived: mpsc::UnboundedSender<(usize, Instant)>) {
    const MARK: &[u8] = b"\"marked\":";
    let mut buffer = Vec::with_capacity(4 << 10);
    let mut seen = 0;
    while seen < EVENTS {
        let Ok(1..) = stream.read_buf(&mut buffer).await else { return };
        let at = Instant::now();
        while let Some(found) = buffer.windows(MARK.len()).position(|bytes| bytes == MARK) {
            let rest = &buffer[found + MARK.len()..];
            let Some(end) = rest.iter().position(|byte| !byte.is_ascii_digit()) else { break };
            let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
            let _ = arrived.send((number.expect("a number"), at));
            seen += 1;
            buffer.drain(..found + MARK.len() + end);
        }
    }
}

/// Opens so many streams, and goes away.
pub(crate) async fn come_and_go(address: SocketAddr, count: usize) {
    let mut open_now = Vec::with_capacity(count);
    for _ in 0..count {
        open_now.push(open(address, "?after=oldest").await);
    }
}
