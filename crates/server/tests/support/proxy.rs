//! A proxy between a client and a server that cuts, delays and duplicates, by a seed.
//!
//! A connection is cut after some bytes in either direction, so that a request or its answer is
//! lost half-way. Pieces are held up. A request that went through may be sent to the server once
//! more on a connection of its own, whose answer nobody reads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How often each thing was done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) duplicated: AtomicU64,
}

/// A proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Numbers out of a seed.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }
}

impl Proxy {
    /// A proxy in front of `server`.
    pub(crate) async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let mut dice = Dice(seed);
        let accepting = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let dice = Dice(dice.roll(u64::MAX));
                tasks.spawn(pass(client, server, dice, Arc::clone(&counted)));
                while tasks.try_join_next().is_some() {}
            }
        });
        Self { address, counts, accepting }
    }
}

async fn pass(client: TcpStream, server: SocketAddr, mut dice: Dice, counts: Arc<Counts>) {
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = upstream.into_split();
    // Every other connection is cut, in one direction, somewhere in a request or its answer.
    let cut = (dice.roll(2) == 0).then(|| (dice.roll(2), dice.roll(1_000)));
    let limit = |way: u64| cut.filter(|cut| cut.0 == way).map_or(u64::MAX, |cut| cut.1);
    let sent = Mutex::new(Vec::new());
    {
        let keep = |bytes: &[u8]| sent.lock().unwrap().extend_from_slice(bytes);
        let way = Way { limit: limit(0), dice: Dice(dice.roll(u64::MAX)), counts: &counts };
        let there = way.copy(client_read, server_write, keep);
        let way = Way { limit: limit(1), dice: Dice(dice.roll(u64::MAX)), counts: &counts };
        let back = way.copy(server_read, client_write, |_| {});
        let mut there = std::pin::pin!(there);
        let mut back = std::pin::pin!(back);
        // When the server is done, or either way is cut, both are dropped.
        tokio::select! {
            end = &mut there => if end == End::Closed { back.await; },
            _ = &mut back => {}
        }
    }
    if dice.roll(4) == 0 {
        let again = sent.into_inner().unwrap();
        counts.duplicated.fetch_add(1, Ordering::Relaxed);
        send_again(server, &again).await;
    }
}

/// Sends what a client sent once more; nobody reads the answer.
async fn send_again(server: SocketAddr, request: &[u8]) {
    let Ok(mut upstream) = TcpStream::connect(server).await else { return };
    let _ = upstream.write_all(request).await;
    let _ = upstream.shutdown().await;
    // A stream would go on for ever.
    let answer = upstream.read_u8();
    let _ = tokio::time::timeout(Duration::from_secs(5), answer).await;
}

/// How one direction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Cut,
}

/// One direction of a connection.
struct Way<'a> {
    limit: u64,
    dice: Dice,
    counts: &'a Counts,
}

impl Way<'_> {
    async fn copy(
        mut self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        keep: impl Fn(&[u8]),
    ) -> End {
        let mut buffer = vec![0; 4_096];
        loop {
            let Ok(count @ 1..) = from.read(&mut buffer).await else {
                let _ = to.shutdown().await;
                return End::Closed;
            };
            if self.dice.roll(5) == 0 {
                self.counts.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(self.dice.roll(20))).await;
            }
            let passed = usize::try_from(self.limit).unwrap_or(usize::MAX).min(count);
            keep(&buffer[..passed]);
            self.limit -= passed as u64;
            if to.write_all(&buffer[..passed]).await.is_err() {
                return End::Closed;
            }
            if passed < count || self.limit == 0 {
                self.counts.cut.fetch_add(1, Ordering::Relaxed);
                return End::Cut;
            }
        }
    }
}
