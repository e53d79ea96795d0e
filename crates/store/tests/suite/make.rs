//! Rows for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use belay_kernel::attempt::{Attempt, Outcome, Phase, Proof};
use belay_kernel::budget::{Budget, Ledger, Uncounted};
use belay_kernel::publish::Publish;
use belay_kernel::retry::Effort;
use belay_kernel::task::{Plan, Reason, Review, State, Task};
use belay_kernel::{AttemptNumber, Caps, Epoch, Limits, Revision, SessionId, TaskId, Timestamp};
use belay_store::rows::{AttemptRow, LedgerRow, SessionRow, SpecRow, TaskRow};
use belay_store::{
    Candidate, ClaimAsk, Commit, Committed, Decide, List, NewEvent, Record, Store, Stored,
};

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Ids that no other test of this process has.
pub(crate) fn fresh() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    (u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 16) | u128::from(number & 0xffff)
}

pub(crate) fn task_id() -> TaskId {
    TaskId::from_bits(fresh())
}

pub(crate) const QUEUED: State = State::Queued { plan: Plan::Fresh, not_before: None };

pub(crate) fn task(role: &str) -> TaskRow {
    let id = task_id();
    TaskRow {
        task: Task {
            id,
            parent: None,
            review: Review::Manual,
            max_attempts: 3,
            state: QUEUED,
            reason: Reason::Created,
            since: at(1_000),
            attempts: AttemptNumber(0),
            effort: Effort::default(),
        },
        root: id,
        role: role.parse().unwrap(),
        session: None,
        workflow: None,
        account: None,
        priority: 0,
        unfinished: 0,
        disregarded: false,
        created_at: at(1_000),
        due_at: None,
    }
}

pub(crate) fn spec(task: TaskId) -> SpecRow {
    SpecRow {
        task,
        title: "Mend the fence".into(),
        prompt: "The fence — by the gate — is broken. Mend it. 🛠".into(),
        repository: Some("https://example.org/farm.git".into()),
        base: Some("main".into()),
        branch: Some(format!("belay/{task}").into()),
        agent: None,
        model: None,
        provider: None,
        continues: None,
        limits: List(vec!["absolute=30m".to_owned()]),
        environment: List(vec!["LANG".to_owned()]),
        created_by: "ada".into(),
        budget: Budget { max_cost: None, max_tokens: Some(1_000_000) },
        uncounted: Uncounted::Refuse,
        command: Default::default(),
        publishing: Default::default(),
        uncommitted: Default::default(),
        image: None,
        keep_alive: false,
        trace: None,
    }
}

pub(crate) fn ledger(root: TaskId) -> LedgerRow {
    LedgerRow { root, ledger: Ledger::default() }
}

pub(crate) fn session() -> SessionRow {
    super::rows::session_row(SessionId::from_bits(fresh()))
}

pub(crate) fn attempt(task: TaskId, number: u32, session: SessionId) -> AttemptRow {
    let number = AttemptNumber(number);
    let attempt = Attempt::claimed(number, Epoch(1), at(60_000), at(2_000));
    AttemptRow::new(task, attempt, session)
}

pub(crate) fn ended(row: &AttemptRow) -> AttemptRow {
    let phase = Phase::Ended(Outcome::Succeeded, Proof::Observed);
    let attempt = Attempt { phase, publish: Publish::None, ..row.attempt };
    AttemptRow { attempt, ..row.clone() }
}

pub(crate) fn event(task: TaskId, kind: &str) -> NewEvent {
    NewEvent::task(task, kind, "{}".to_owned(), at(5_000))
}

/// A new task with everything that belongs to it.
pub(crate) fn creation(row: &TaskRow) -> Commit {
    Commit::new()
        .insert(row)
        .insert(&spec(row.task.id))
        .insert(&ledger(row.task.id))
        .event(event(row.task.id, "task.created"))
}

pub(crate) async fn done<S: Store>(store: &S, commit: Commit) {
    let committed = store.commit(commit).await.unwrap();
    assert_eq!(committed, Committed::Done);
}

pub(crate) async fn load<S: Store, R: Record>(store: &S, id: R::Id) -> Option<Stored<R>> {
    store.load::<R>(&[id]).await.unwrap().pop().unwrap()
}

pub(crate) async fn task_of<S: Store>(store: &S, id: TaskId) -> Stored<TaskRow> {
    load::<S, TaskRow>(store, id).await.expect("the task is there")
}

/// A decision that claims: the task, its session and its attempt in one commit.
pub(crate) fn claimer() -> Decide {
    Arc::new(|candidate: &Candidate| Some(claim_of(candidate, at(60_000))))
}

pub(crate) fn claim_of(candidate: &Candidate, lease_end: Timestamp) -> Commit {
    let task = &candidate.task.row;
    let number = task.task.attempts.next();
    let session = session();
    let mut attempt = attempt(task.task.id, number.0, session.id);
    attempt.attempt.lease_end = lease_end;
    let claimed = TaskRow {
        task: Task {
            state: State::Claimed { attempt: number, plan: Plan::Fresh },
            reason: Reason::Claimed,
            attempts: number,
            ..task.task
        },
        session: Some(session.id),
        ..task.clone()
    };
    let commit = Commit::new()
        .insert(&session)
        .update(candidate.task.revision, &claimed)
        .insert(&attempt)
        .event(event(task.task.id, "task.claimed"));
    let commit = match &candidate.role {
        Some(role) => commit.read(role),
        None => commit.read_absent::<belay_store::rows::RoleRow>(&task.role),
    };
    match &candidate.ledger {
        Some(ledger) => commit.read(ledger),
        None => commit,
    }
}

pub(crate) fn ask(role: &str, limit: usize) -> ClaimAsk {
    ClaimAsk {
        role: role.to_owned(),
        now: at(10_000),
        limit,
        limits: Limits::default(),
        caps: Caps::default(),
    }
}

pub(crate) const FIRST: Revision = Revision(1);
