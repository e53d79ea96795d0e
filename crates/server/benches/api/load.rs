//! A client that costs little: requests as bytes over connections that stay open.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request, ready to be sent.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// A request with a token, a key and a body, as far as they are not empty.
    pub(crate) fn new(line: &str, token: &str, key: &str, body: &[u8]) -> Self {
        let mut head = format!("{line} HTTP/1.1\r\nHost: localhost\r\n");
        if !token.is_empty() {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if !key.is_empty() {
            head += &format!("Idempotency-Key: {key}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        Self(bytes)
    }
}

/// A connection that stays open.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, buffer: Vec::with_capacity(16 << 10) }
    }

    /// Sends a request and reads its answer: status and body.
    pub(crate) async fn ask(&mut self, request: &Request) -> (u16, Vec<u8>) {
        self.stream.write_all(&request.0).await.expect("a server");
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
            assert!(read > 0, "the server closed the connection");
            let Some(head) = find(&self.buffer, b"\r\n\r\n") else { continue };
            let text = std::str::from_utf8(&self.buffer[..head]).expect("a head");
            let length = text.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            let status = text[9..12].parse().expect("a status");
            let end = head + 4 + length.expect("a length");
            while self.buffer.len() < end {
                let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
                assert!(read > 0, "the server closed the connection");
            }
            return (status, self.buffer[head + 4..end].to_vec());
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// What was measured.
#[derive(Default)]
pub(crate) struct Tally {
    times: Vec<f64>,
    last: Vec<u8>,
    elapsed: Duration,
}

impl Tally {
    pub(crate) fn note(&mut self, took: Duration) {
        self.times.push(took.as_secs_f64() * 1_000.0);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.last = other.last;
    }

    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }

    /// How many in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The time, in milliseconds, that this share did not take.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
        sorted.get(index).copied().unwrap_or_default()
    }

    /// The id in the last answer.
    pub(crate) fn last_id(&self) -> String {
        let answer: serde_json::Value = serde_json::from_slice(&self.last).expect("JSON");
        answer["id"].as_str().expect("an id").to_owned()
    }
}

/// Lets `clients` ask one request after the other, for a while.
pub(crate) async fn drive(
    address: SocketAddr,
    clients: usize,
    span: Duration,
    make: impl Fn(usize, usize) -> Request,
) -> Tally {
    let began = Instant::now();
    let one = async |client: usize| {
        let mut connection = Connection::open(address).await;
        let mut tally = Tally::default();
        for round in 0.. {
            let request = make(client, round);
            let asked = Instant::now();
            let (status, answer) = connection.ask(&request).await;
            assert!(status < 300, "{status} {}", String::from_utf8_lossy(&answer));
            tally.note(asked.elapsed());
            if began.elapsed() >= span {
                tally.last = answer;
                break;
            }
        }
        tally.elapsed = began.elapsed();
        tally
    };
    let mut all = Tally::default();
    for tally in futures_util::future::join_all((0..clients).map(one)).await {
        all.add(tally);
    }
    all
}
