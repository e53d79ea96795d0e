//! The barest thing of each kind, for comparison in the same run.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::{Server, cpu_seconds};

/// How long things took: the middle one, and the one that one in a hundred exceeds.
pub(crate) struct Spans {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Spans {
    pub(crate) fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort();
        let percent = |percent: usize| spans[(spans.len() * percent / 100).min(spans.len() - 1)];
        Self { p50: percent(50), p99: percent(99) }
    }
}

/// What a database does at its barest.
pub(crate) struct Bare {
    /// A commit of one row, synced.
    pub(crate) commit: Spans,
    /// The processor time for one of many rows that are inserted together, with one index beside
    /// the key.
    pub(crate) row_us: f64,
}

const TABLE: &str =
    "CREATE TABLE bare (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, at BIGINT)";
const INDEX: &str = "CREATE INDEX bare_at ON bare (at)";
const COMMITS: usize = 500;
const BATCHES: usize = 100;
const BATCH: usize = 500;

impl Bare {
    fn told(commit: Spans, row_us: f64) -> Self {
        println!(
            "  baseline, commits of one row: p50 {:.2?}, p99 {:.2?}; rows by the {BATCH}: \
             {row_us:.1} µs of CPU each",
            commit.p50, commit.p99
        );
        Self { commit, row_us }
    }
}

/// A key as random as those of tasks.
fn key(number: usize) -> String {
    format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The disk's own: one page appended and synced, again and again.
pub(crate) fn disk(directory: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(directory.join("baseline")).expect("a file");
    let began = Instant::now();
    let mut spans = Vec::new();
    while began.elapsed() < Duration::from_secs(2) {
        let one = Instant::now();
        file.write_all(&[7; 4_096]).expect("a page");
        file.sync_data().expect("a sync");
        spans.push(one.elapsed());
    }
    let rate = spans.len() as f64 / began.elapsed().as_secs_f64();
    let Spans { p50, p99 } = Spans::of(spans);
    println!("  baseline, synced appends of a page: {rate:.0}/s, p50 {p50:.2?}, p99 {p99:.2?}");
}

/// SQLite with the store's settings and a table of three columns.
pub(crate) fn sqlite(directory: &Path) -> Bare {
    let bare = rusqlite::Connection::open(directory.join("bare.db")).expect("a file");
    bare.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").expect("settings");
    bare.execute_batch(&format!("{TABLE}; {INDEX}")).expect("a table");
    let mut insert = bare.prepare("INSERT INTO bare VALUES (?1, 'body', ?2)").expect("a statement");
    let mut put = |number: usize| {
        insert.execute(rusqlite::params![key(number), number as i64]).expect("a row");
    };
    let commit = |number: usize| {
        let began = Instant::now();
        put(number);
        began.elapsed()
    };
    let commit = Spans::of((0..COMMITS).map(commit).collect());
    let before = cpu_seconds(std::process::id());
    for batch in 0..BATCHES {
        bare.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        (0..BATCH).for_each(|number| put(COMMITS + batch * BATCH + number));
        bare.execute_batch("COMMIT").expect("a commit");
    }
    let spent = cpu_seconds(std::process::id()) - before;
    Bare::told(commit, spent / (BATCHES * BATCH) as f64 * 1e6)
}

/// PostgreSQL through one connection, its statements parsed once.
pub(crate) async fn postgres(url: &str, server: &Server) -> Bare {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("{TABLE}; {INDEX}")).await.expect("a table");
    let insert = client.prepare("INSERT INTO bare VALUES ($1, 'body', $2)").await.expect("one");
    let mut spans = Vec::with_capacity(COMMITS);
    for number in 0..COMMITS {
        let began = Instant::now();
        client.execute(&insert, &[&key(number), &(number as i64)]).await.expect("a row");
        spans.push(began.elapsed());
    }
    let many = "INSERT INTO bare SELECT id, 'body', at FROM unnest($1::text[], $2::bigint[])
        AS v(id, at)";
    let many = client.prepare(many).await.expect("a statement");
    let spent = || cpu_seconds(std::process::id()) + server.cpu_seconds();
    let before = spent();
    for batch in 0..BATCHES {
        let numbers = (0..BATCH).map(|number| COMMITS + batch * BATCH + number);
        let keys: Vec<String> = numbers.clone().map(key).collect();
        let numbers: Vec<i64> = numbers.map(|number| number as i64).collect();
        client.execute(&many, &[&keys, &numbers]).await.expect("rows");
    }
    let spent = spent() - before;
    drop(client);
    let _ = connection.await;
    Bare::told(Spans::of(spans), spent / (BATCHES * BATCH) as f64 * 1e6)
}
