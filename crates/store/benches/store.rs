//! `cargo bench -p belay-store`: what the store does in a second, every answer durable.
//!
//! A lifecycle is a task created, claimed, started, reported on three times and finished, with its
//! rows, lease and events, each step a decision of its own. Before anything is measured, so many
//! finished tasks are there (`BELAY_BENCH_ROWS`, a million unless told). The baseline of the same
//! run is the disk's own: synced appends of one page.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belay_kernel::attempt::{Attempt, Outcome, Phase, Proof};
use belay_kernel::budget::{Budget, Ledger, Uncounted};
use belay_kernel::retry::Effort;
use belay_kernel::session::Session;
use belay_kernel::task::{Plan, Reason, Review, State, Task};
use belay_kernel::{
    AttemptNumber, Caps, Epoch, Limits, Revision, SessionId, Span, TaskId, Timestamp, Usage,
};
use belay_store::rows::{AttemptRow, LedgerRow, RoleRow, SessionRow, SpecRow, TaskRow};
use belay_store::{
    Beat, Beaten, Candidate, ClaimAsk, Commit, Committed, Holder, NewEvent, Postgres,
    PostgresOptions, Sqlite, Store,
};

#[allow(dead_code, reason = "the tests' server can do more than a bench needs")]
#[path = "../tests/server/mod.rs"]
mod server;

const CALLERS: usize = 64;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn id() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 16 | u128::from(number & 0xffff)
}

fn task(role: &str, state: State) -> TaskRow {
    let id = TaskId::from_bits(id());
    TaskRow {
        task: Task {
            id,
            parent: None,
            review: Review::Auto,
            max_attempts: 1,
            state,
            reason: Reason::Created,
            since: at(1_000),
            attempts: AttemptNumber(0),
            effort: Effort::default(),
        },
        root: id,
        role: role.parse().expect("a role"),
        session: None,
        workflow: None,
        account: None,
        priority: 0,
        unfinished: 0,
        disregarded: false,
        created_at: at(later()),
        due_at: None,
    }
}

/// A moment after the last one: tasks are made one after the other.
fn later() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1_000);
    NEXT.fetch_add(1, Ordering::Relaxed) / 1_000
}

fn spec(task: TaskId) -> SpecRow {
    SpecRow {
        task,
        title: "Mend the fence".into(),
        prompt: "The fence by the gate is broken. Mend it.".into(),
        repository: None,
        base: None,
        branch: None,
        agent: None,
        model: None,
        provider: None,
        continues: None,
        limits: Default::default(),
        environment: Default::default(),
        created_by: "bench".into(),
        budget: Budget::default(),
        uncounted: Uncounted::Refuse,
        command: Default::default(),
        publishing: Default::default(),
        uncommitted: Default::default(),
        image: None,
        keep_alive: false,
        trace: None,
    }
}

fn event(task: TaskId, kind: &str) -> NewEvent {
    NewEvent::task(task, kind, r#"{"measured":"12s","allowed":"90s"}"#.to_owned(), at(5_000))
}

const QUEUED: State = State::Queued { plan: Plan::Fresh, not_before: None };

fn create(row: &TaskRow) -> Commit {
    let ledger = LedgerRow { root: row.task.id, ledger: Ledger::default() };
    let commit = Commit::new().insert(row).insert(&spec(row.task.id)).insert(&ledger);
    commit.event(event(row.task.id, "task.created"))
}

/// One task on its way through its life, as its decider knows it.
#[derive(Clone)]
struct Life {
    task: TaskRow,
    attempt: AttemptRow,
    task_revision: u64,
    attempt_revision: u64,
}

fn claimed(candidate: &Candidate) -> (Commit, Life) {
    let task = &candidate.task.row;
    let session = SessionRow {
        id: SessionId::from_bits(id()),
        session: Session::new(),
        runner: None,
        owner: None,
        conversation: None,
        keep_alive: false,
        created_at: at(2_000),
        due_at: None,
    };
    let number = AttemptNumber(1);
    let attempt = AttemptRow {
        task: task.task.id,
        attempt: Attempt::claimed(number, Epoch(1), at(60_000), at(2_000)),
        session: session.id,
        worker: None,
        runner: None,
        sandbox: None,
        token_hash: None,
        cause: None,
        usage: Usage::default(),
        transcript_length: 0,
        kept_ref: None,
        termination: None,
        due_at: Some(at(i64::MAX)),
        ending_at: None,
        proven_at: None,
        processes: 0,
        transcript_hash: None,
        transcript_missing: Default::default(),
        kept_commit: None,
        message: None,
        fired: None,
    };
    let state = State::Claimed { attempt: number, plan: Plan::Fresh };
    let next = TaskRow {
        task: Task { state, reason: Reason::Claimed, attempts: number, ..task.task },
        session: Some(session.id),
        ..task.clone()
    };
    let commit = Commit::new()
        .insert(&session)
        .update(candidate.task.revision, &next)
        .insert(&attempt)
        .read_absent::<RoleRow>(&task.role)
        .event(event(task.task.id, "task.claimed"));
    let commit = match &candidate.ledger {
        Some(ledger) => commit.read(ledger),
        None => commit,
    };
    let task_revision = candidate.task.revision.0 + 1;
    (commit, Life { task: next, attempt, task_revision, attempt_revision: 1 })
}

impl Life {
    fn id(&self) -> TaskId {
        self.task.task.id
    }

    fn both(&mut self, kind: &str) -> Commit {
        let commit = Commit::new()
            .update(Revision(self.task_revision), &self.task)
            .update(Revision(self.attempt_revision), &self.attempt)
            .event(event(self.id(), kind));
        self.task_revision += 1;
        self.attempt_revision += 1;
        commit
    }

    fn start(&mut self) -> Commit {
        let attempt = AttemptNumber(1);
        self.task.task.state = State::Running { attempt, plan: Plan::Fresh };
        self.task.task.reason = Reason::Started;
        self.attempt.attempt.phase = Phase::Running;
        self.attempt.attempt.started_at = Some(at(3_000));
        self.both("task.started")
    }

    fn report(&mut self) -> Commit {
        self.attempt.usage.output_tokens += 100;
        self.attempt.transcript_length += 4_000;
        let commit = Commit::new()
            .update(Revision(self.attempt_revision), &self.attempt)
            .event(event(self.id(), "attempt.reported"));
        self.attempt_revision += 1;
        commit
    }

    fn finish(&mut self) -> Commit {
        self.task.task.state = State::Completed;
        self.task.task.reason = Reason::Succeeded;
        self.attempt.attempt.phase = Phase::Ended(Outcome::Succeeded, Proof::Observed);
        self.attempt.due_at = None;
        self.both("task.completed")
    }
}

fn ask(role: &str, limit: usize) -> ClaimAsk {
    let (limits, caps) = (Limits::default(), Caps::default());
    ClaimAsk { role: role.to_owned(), now: at(10_000), limit, limits, caps }
}

async fn claim<S: Store>(store: &S, role: &str, limit: usize) -> Vec<Life> {
    let lives = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&lives);
    let claims = store
        .claim(
            ask(role, limit),
            Arc::new(move |candidate| {
                let (commit, life) = claimed(candidate);
                kept.lock().expect("no panic while it is held").push(life);
                Some(commit)
            }),
        )
        .await
        .expect("a claim");
    let mut lives = std::mem::take(&mut *lives.lock().expect("no panic while it is held"));
    // A database may ask more than once: what counts is what it says was committed, the last time.
    lives.reverse();
    let done = claims.iter().filter(|claim| claim.committed.is_done());
    done.filter_map(|claim| lives.iter().find(|life| life.id() == claim.task).cloned()).collect()
}

async fn done<S: Store>(store: &S, commit: Commit) {
    let committed = store.commit(commit).await.expect("a commit");
    assert_eq!(committed, Committed::Done);
}

/// Fills the store with finished tasks.
async fn fill<S: Store>(store: &S, rows: usize) {
    let began = Instant::now();
    for _ in 0..rows.div_ceil(5_000) {
        let finished = (0..5_000).map(|_| {
            let row = task("old", State::Completed);
            Commit::new().insert(&row).event(event(row.task.id, "task.completed"))
        });
        store.commit_all(finished.collect()).await.expect("rows");
    }
    println!("  {rows} finished tasks put there in {:.0?}", began.elapsed());
}

/// Each caller takes tasks through their lives, one decision at a time.
async fn one_by_one<S: Store>(store: &Arc<S>, patience: Duration, spent: &Spent<'_>) {
    let before = spent.seconds();
    let (began, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers = (0..CALLERS).map(|index| {
        let (store, count) = (Arc::clone(store), Arc::clone(&count));
        tokio::spawn(async move {
            let role = format!("caller-{index}");
            while began.elapsed() < patience {
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
    println!("  lifecycles, one by one, {CALLERS} callers: {}", told(all, began, before, spent));
}

/// So many in a second, and what each of them cost.
fn told(count: f64, began: Instant, before: (f64, f64), spent: &Spent<'_>) -> String {
    let rate = count / began.elapsed().as_secs_f64();
    let after = spent.seconds();
    let [ours, theirs] =
        [after.0 - before.0, after.1 - before.1].map(|seconds| seconds / count * 1e6);
    let decisions = rate * 7.0;
    let cost = format!("CPU each: {ours:.0} µs here, {theirs:.0} µs in the server");
    format!("{rate:.0}/s ({decisions:.0} decisions/s; {cost})")
}

/// The time that processors worked for a measurement: in this process, and in a server.
struct Spent<'a>(Option<&'a server::Server>);

impl Spent<'_> {
    fn seconds(&self) -> (f64, f64) {
        let ours = server::cpu_seconds(std::process::id());
        (ours, self.0.map_or(0.0, server::Server::cpu_seconds))
    }
}

/// Each caller takes many tasks through their lives together.
async fn batched<S: Store>(store: &Arc<S>, patience: Duration, spent: &Spent<'_>) {
    const TOGETHER: usize = 500;
    let before = spent.seconds();
    let (began, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers = (0..2).map(|index| {
        let (store, count) = (Arc::clone(store), Arc::clone(&count));
        tokio::spawn(async move {
            let role = format!("batch-{index}");
            while began.elapsed() < patience {
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
    println!("  lifecycles, batches of {TOGETHER}: {}", told(all, began, before, spent));
}

/// From the call that queues a task until the answer that it is claimed.
async fn latency<S: Store>(store: &S, times: usize) {
    let mut spans = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        done(store, create(&task("quick", QUEUED))).await;
        let lives = claim(store, "quick", 1).await;
        spans.push(began.elapsed());
        assert_eq!(lives.len(), 1);
    }
    spans.sort();
    let percent = |percent: usize| spans[(times * percent / 100).min(times - 1)];
    println!("  queued → claimed (two commits): p50 {:.2?}, p99 {:.2?}", percent(50), percent(99));
}

async fn beats<S: Store>(store: &Arc<S>, patience: Duration) {
    const HELD: usize = 1_000;
    let new = (0..HELD).map(|_| create(&task("beating", QUEUED))).collect();
    store.commit_all(new).await.expect("tasks");
    let holders: Vec<_> = claim(&**store, "beating", HELD)
        .await
        .iter()
        .map(|life| Holder::Attempt(life.id(), AttemptNumber(1)))
        .collect();
    let (began, mut count) = (Instant::now(), 0usize);
    while began.elapsed() < patience {
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

/// What a claim and a sweep that find nothing cost, with all those finished tasks there: the middle
/// one of many, because other work disturbs some.
async fn idle<S: Store>(store: &S) {
    let (mut claims, mut sweeps) = (Vec::new(), Vec::new());
    for _ in 0..400 {
        let began = Instant::now();
        assert!(claim(store, "nobody", 10).await.is_empty());
        claims.push(began.elapsed());
        let began = Instant::now();
        assert!(store.take_due(at(0), Span::ZERO, 100).await.expect("a sweep").is_empty());
        sweeps.push(began.elapsed());
    }
    claims.sort();
    sweeps.sort();
    println!("  nothing to claim: {:.2?}; nothing due: {:.2?}", claims[200], sweeps[200]);
}

/// The disk's own: one page appended and synced, again and again.
fn baseline(directory: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(directory.join("baseline")).expect("a file");
    let began = Instant::now();
    let mut count = 0u32;
    while began.elapsed() < Duration::from_secs(2) {
        file.write_all(&[7; 4_096]).expect("a page");
        file.sync_data().expect("a sync");
        count += 1;
    }
    println!("  baseline, synced appends of a page: {:.0}/s", f64::from(count) / 2.0);
}

async fn measure<S: Store>(store: Arc<S>, rows: usize, spent: &Spent<'_>) {
    idle(&*store).await;
    let few = rows / 10;
    fill(&*store, few).await;
    idle(&*store).await;
    fill(&*store, rows - few).await;
    idle(&*store).await;
    let patience = Duration::from_secs(6);
    latency(&*store, 1_000).await;
    one_by_one(&store, patience, spent).await;
    batched(&store, patience, spent).await;
    beats(&store, patience).await;
}

fn main() {
    let rows = std::env::var("BELAY_BENCH_ROWS").ok().and_then(|rows| rows.parse().ok());
    let rows = rows.unwrap_or(1_000_000);
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let chosen = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    if chosen("sqlite") {
        println!("SQLite");
        baseline(directory.path());
        let store = Sqlite::open(&directory.path().join("data")).expect("a store");
        runtime.block_on(measure(Arc::new(store), rows, &Spent(None)));
    }
    if chosen("postgres") {
        println!("PostgreSQL");
        baseline(directory.path());
        let server = server::Server::start();
        let (_, url) = server.database();
        runtime.block_on(async {
            let store = Postgres::open(PostgresOptions::new(&url)).await.expect("a store");
            measure(Arc::new(store), rows, &Spent(Some(&server))).await;
        });
    }
}
