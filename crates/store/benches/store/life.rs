//! A task on its way through its life, as its decider makes it: the decisions that are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use belay_kernel::attempt::{Attempt, Outcome, Phase, Proof};
use belay_kernel::budget::{Budget, Ledger, Uncounted};
use belay_kernel::retry::Effort;
use belay_kernel::session::Session;
use belay_kernel::task::{Plan, Reason, Review, State, Task};
use belay_kernel::{AttemptNumber, Caps, Epoch, Limits, Revision, SessionId, TaskId, Timestamp};
use belay_store::rows::{AttemptRow, LedgerRow, RoleRow, SessionRow, SpecRow, TaskRow};
use belay_store::{Candidate, ClaimAsk, Commit, Committed, NewEvent, Store};

/// The decisions of one life: create, claim, start, three reports, finish.
pub(crate) const DECISIONS: f64 = 7.0;
/// The rows that are written in one life: four made with the task, five by its claim, three by its
/// start, two by each report, four by its end.
pub(crate) const ROWS: f64 = 22.0;

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn id() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 16 | u128::from(number & 0xffff)
}

pub(crate) fn task(role: &str, state: State) -> TaskRow {
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

pub(crate) fn event(task: TaskId, kind: &str) -> NewEvent {
    NewEvent::task(task, kind, r#"{"measured":"12s","allowed":"90s"}"#.to_owned(), at(5_000))
}

pub(crate) const QUEUED: State = State::Queued { plan: Plan::Fresh, not_before: None };

pub(crate) fn create(row: &TaskRow) -> Commit {
    let ledger = LedgerRow { root: row.task.id, ledger: Ledger::default() };
    let commit = Commit::new().insert(row).insert(&spec(row.task.id)).insert(&ledger);
    commit.event(event(row.task.id, "task.created"))
}

/// One task on its way through its life, as its decider knows it.
#[derive(Clone)]
pub(crate) struct Life {
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
    let claimed = Attempt::claimed(number, Epoch(1), at(60_000), at(2_000));
    let attempt = AttemptRow {
        due_at: Some(at(i64::MAX)),
        ..AttemptRow::new(task.task.id, claimed, session.id)
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
    pub(crate) fn id(&self) -> TaskId {
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

    pub(crate) fn start(&mut self) -> Commit {
        let attempt = AttemptNumber(1);
        self.task.task.state = State::Running { attempt, plan: Plan::Fresh };
        self.task.task.reason = Reason::Started;
        self.attempt.attempt.phase = Phase::Running;
        self.attempt.attempt.started_at = Some(at(3_000));
        self.both("task.started")
    }

    pub(crate) fn report(&mut self) -> Commit {
        self.attempt.usage.output_tokens += 100;
        self.attempt.transcript_length += 4_000;
        let commit = Commit::new()
            .update(Revision(self.attempt_revision), &self.attempt)
            .event(event(self.id(), "attempt.reported"));
        self.attempt_revision += 1;
        commit
    }

    pub(crate) fn finish(&mut self) -> Commit {
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

pub(crate) async fn claim<S: Store>(store: &S, role: &str, limit: usize) -> Vec<Life> {
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

pub(crate) async fn done<S: Store>(store: &S, commit: Commit) {
    let committed = store.commit(commit).await.expect("a commit");
    assert_eq!(committed, Committed::Done);
}
