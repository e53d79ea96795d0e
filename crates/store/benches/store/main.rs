//! `cargo bench -p belay-store --bench store`: what the store does in a second, every answer
//! durable.
//!
//! A lifecycle is a task created, claimed, started, reported on three times and finished, with its
//! rows, lease and events, each step a decision of its own. Arguments choose databases and parts
//! (`sqlite`, `postgres`; `growth`, `latency`, `lives`, `beats`), all of them unless told. Before
//! anything is measured, so many finished tasks are there (`BELAY_BENCH_ROWS`, a million unless
//! told). `BELAY_BENCH_LIVES` runs so many lifecycles instead of some seconds of them, for tools
//! that count instructions.
//!
//! A machine is rarely quiet. So every figure stands beside the barest thing of its kind, measured
//! in the same minute: synced appends of a page, commits of one row, rows by the hundred.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod baseline;
mod life;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belay_kernel::task::State;
use belay_kernel::{AttemptNumber, Span};
use belay_store::{Beat, Beaten, Commit, Committed, Holder, Postgres, PostgresOptions, Sqlite};
use belay_store::{Store, rows::TaskRow};

use baseline::Bare;
use life::{QUEUED, at, claim, create, done, event, task};

#[allow(dead_code, reason = "the tests' server can do more than a bench needs")]
#[path = "../../tests/server/mod.rs"]
mod server;

const CALLERS: usize = 64;

/// What is asked for.
struct Asked {
    words: Vec<String>,
    rows: usize,
    lives: Option<i64>,
}

impl Asked {
    fn read() -> Self {
        let words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let rows = number("BELAY_BENCH_ROWS").and_then(|rows: i64| usize::try_from(rows).ok());
        Self { words, rows: rows.unwrap_or(1_000_000), lives: number("BELAY_BENCH_LIVES") }
    }

    /// Whether one of `group` was asked for, or none of it was named at all.
    fn chosen(&self, name: &str, group: &[&str]) -> bool {
        let named = |name: &str| self.words.iter().any(|word| word == name);
        named(name) || !group.iter().any(|name| named(name))
    }

    fn database(&self, name: &str) -> bool {
        self.chosen(name, &["sqlite", "postgres"])
    }

    fn part(&self, name: &str) -> bool {
        self.chosen(name, &["growth", "latency", "lives", "beats"])
    }

    /// When to end a measurement.
    fn end(&self) -> End {
        match self.lives {
            Some(lives) => End::After(AtomicI64::new(lives)),
            None => End::At(Instant::now() + Duration::from_secs(6)),
        }
    }
}

/// When a measurement ends.
enum End {
    At(Instant),
    After(AtomicI64),
}

impl End {
    /// Whether so many more are to be begun.
    fn goes_on(&self, more: usize) -> bool {
        match self {
            Self::At(end) => Instant::now() < *end,
            Self::After(left) => {
                let more = i64::try_from(more).unwrap_or(i64::MAX);
                left.fetch_sub(more, Ordering::Relaxed) > 0
            }
        }
    }
}

/// Fills the store with finished tasks.
async fn fill<S: Store>(store: &S, rows: usize) {
    let began = Instant::now();
    for _ in 0..rows.div_ceil(5_000) {
        let finished = (0..5_000).map(|_| {
            let row: TaskRow = task("old", State::Completed);
            Commit::new().insert(&row).event(event(row.task.id, "task.completed"))
        });
        store.commit_all(finished.collect()).await.expect("rows");
    }
    println!("  {rows} finished tasks put there in {:.0?}", began.elapsed());
}

/// Each caller takes tasks through their lives, one decision at a time.
async fn one_by_one<S: Store>(store: &Arc<S>, asked: &Asked, spent: &Spent<'_>, bare: &Bare) {
    let (before, end) = (spent.seconds(), Arc::new(asked.end()));
    let (began, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers = (0..CALLERS).map(|index| {
        let (store, count, end) = (Arc::clone(store), Arc::clone(&count), Arc::clone(&end));
        tokio::spawn(async move {
            let role = format!("caller-{index}");
            while end.goes_on(1) {
                done(&*store, create(&task(&role, QUEUED))).await;
                for mut life in claim(&*store, &role, 1).await {
                    done(&*store, life.start()).await;
                    for _ in 0..3 {
                        done(&*store, life.report()).await;
                    }
                    done(&*store, life.finish()).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller");
    }
    let all = count.load(Ordering::Relaxed) as f64;
    let name = format!("lifecycles, one by one, {CALLERS} callers");
    tell(&name, all, began, before, spent, bare);
}

/// Each caller takes many tasks through their lives together.
async fn batched<S: Store>(store: &Arc<S>, asked: &Asked, spent: &Spent<'_>, bare: &Bare) {
    const TOGETHER: usize = 500;
    let (before, end) = (spent.seconds(), Arc::new(asked.end()));
    let (began, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers = (0..2).map(|index| {
        let (store, count, end) = (Arc::clone(store), Arc::clone(&count), Arc::clone(&end));
        tokio::spawn(async move {
            let role = format!("batch-{index}");
            while end.goes_on(TOGETHER) {
                let new = (0..TOGETHER).map(|_| create(&task(&role, QUEUED))).collect();
                store.commit_all(new).await.expect("tasks");
                let mut lives = claim(&*store, &role, TOGETHER).await;
                for step in 0..5 {
                    let commits = lives.iter_mut().map(|life| match step {
                        0 => life.start(),
                        1..=3 => life.report(),
                        _ => life.finish(),
                    });
                    let all = store.commit_all(commits.collect()).await.expect("a batch");
                    assert!(all.iter().all(Committed::is_done));
                }
                count.fetch_add(lives.len() as u64, Ordering::Relaxed);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller");
    }
    let all = count.load(Ordering::Relaxed) as f64;
    let name = format!("lifecycles, batches of {TOGETHER}");
    tell(&name, all, began, before, spent, bare);
}

/// So many in a second, what each of them cost, and what as many bare rows would have.
fn tell(
    name: &str,
    count: f64,
    began: Instant,
    before: (f64, f64),
    spent: &Spent<'_>,
    bare: &Bare,
) {
    let rate = count / began.elapsed().as_secs_f64();
    let after = spent.seconds();
    let [ours, theirs] =
        [after.0 - before.0, after.1 - before.1].map(|seconds| seconds / count * 1e6);
    let decisions = rate * life::DECISIONS;
    println!("  {name}: {rate:.0}/s, {decisions:.0} decisions/s");
    let rows = bare.row_us * life::ROWS;
    let ratio = (ours + theirs) / rows;
    println!("    CPU each: {ours:.0} µs here, {theirs:.0} µs in the server");
    println!("    baseline: {:.0} rows written barely: {rows:.0} µs; {ratio:.1} ×", life::ROWS);
}

/// The time that processors worked for a measurement: in this process, and in a server.
struct Spent<'a>(Option<&'a server::Server>);

impl Spent<'_> {
    fn seconds(&self) -> (f64, f64) {
        let ours = server::cpu_seconds(std::process::id());
        (ours, self.0.map_or(0.0, server::Server::cpu_seconds))
    }
}

/// From the call that queues a task until the answer that it is claimed.
async fn latency<S: Store>(store: &S, times: usize, bare: &Bare) {
    let mut spans = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        done(store, create(&task("quick", QUEUED))).await;
        let lives = claim(store, "quick", 1).await;
        spans.push(began.elapsed());
        assert_eq!(lives.len(), 1);
    }
    let found = baseline::Spans::of(spans);
    let (p50, p99) = (bare.commit.p50 * 2, bare.commit.p99 * 2);
    println!("  queued → claimed (two commits): p50 {:.2?}, p99 {:.2?}", found.p50, found.p99);
    println!(
        "    baseline: two commits of one row: p50 {p50:.2?}, p99 {p99:.2?}; {:.1} × and {:.1} ×",
        found.p50.as_secs_f64() / p50.as_secs_f64(),
        found.p99.as_secs_f64() / p99.as_secs_f64()
    );
}

async fn beats<S: Store>(store: &Arc<S>) {
    const HELD: usize = 1_000;
    let new = (0..HELD).map(|_| create(&task("beating", QUEUED))).collect();
    store.commit_all(new).await.expect("tasks");
    let holders: Vec<_> = claim(&**store, "beating", HELD)
        .await
        .iter()
        .map(|life| Holder::Attempt(life.id(), AttemptNumber(1)))
        .collect();
    let (began, mut count) = (Instant::now(), 0usize);
    while began.elapsed() < Duration::from_secs(4) {
        let until = at(60_000).after(Span::from_millis(count as u64));
        let fence = || "1".to_owned();
        let beats = holders.iter().map(|holder| Beat { holder: *holder, fence: fence(), until });
        let answers = store.beat(beats.collect(), at(9)).await.expect("beats");
        assert!(answers.iter().all(|one| matches!(one, Beaten::Current { .. })));
        count += answers.len();
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("  beats, batches of {}: {rate:.0}/s", holders.len());
}

/// What a claim and a sweep that find nothing cost, and a claim that finds one, with all those
/// finished tasks there: the middle one of many, because other work disturbs some.
async fn idle<S: Store>(store: &S, finished: usize) {
    const TIMES: usize = 400;
    let [mut nothing, mut sweeps, mut one] = [(); 3].map(|()| Vec::with_capacity(TIMES));
    for _ in 0..TIMES {
        let began = Instant::now();
        assert!(claim(store, "nobody", 10).await.is_empty());
        nothing.push(began.elapsed());
        let began = Instant::now();
        assert!(store.take_due(at(0), Span::ZERO, 100).await.expect("a sweep").is_empty());
        sweeps.push(began.elapsed());
        done(store, create(&task("some", QUEUED))).await;
        let began = Instant::now();
        assert_eq!(claim(store, "some", 1).await.len(), 1);
        one.push(began.elapsed());
    }
    let [nothing, sweeps, one] = [nothing, sweeps, one].map(|all| baseline::Spans::of(all).p50);
    println!(
        "  beside {finished} finished: nothing to claim {nothing:.2?}, nothing due {sweeps:.2?}, \
         one claimed and synced {one:.2?}"
    );
}

async fn measure<S: Store>(store: Arc<S>, asked: &Asked, spent: &Spent<'_>, bare: &Bare) {
    let few = asked.rows / 10;
    for (more, all) in [(0, 0), (few, few), (asked.rows - few, asked.rows)] {
        fill(&*store, more).await;
        if asked.part("growth") {
            idle(&*store, all).await;
        }
    }
    if asked.part("latency") {
        latency(&*store, 1_000, bare).await;
    }
    if asked.part("lives") {
        one_by_one(&store, asked, spent, bare).await;
        batched(&store, asked, spent, bare).await;
    }
    if asked.part("beats") {
        beats(&store).await;
    }
}

fn main() {
    let asked = Asked::read();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    if asked.database("sqlite") {
        println!("SQLite");
        baseline::disk(directory.path());
        let bare = baseline::sqlite(directory.path());
        let store = Sqlite::open(&directory.path().join("data")).expect("a store");
        runtime.block_on(measure(Arc::new(store), &asked, &Spent(None), &bare));
    }
    if asked.database("postgres") {
        println!("PostgreSQL");
        baseline::disk(directory.path());
        let server = server::Server::start();
        let (_, url) = server.database();
        runtime.block_on(async {
            let bare = baseline::postgres(&url, &server).await;
            let store = Postgres::open(PostgresOptions::new(&url)).await.expect("a store");
            measure(Arc::new(store), &asked, &Spent(Some(&server)), &bare).await;
        });
    }
}
