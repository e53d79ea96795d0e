//! Sessions, sandboxes, roles, workers, starts, workflows: their rows come back, and the rules that
//! the database holds for them.

use std::sync::Arc;

use belay_kernel::breaker::Breaker;
use belay_kernel::deadline::{Pace, Stream};
use belay_kernel::diagnostic::{Run, RunEnd};
use belay_kernel::evidence::Evidence;
use belay_kernel::lock::Lock;
use belay_kernel::restart::{End, Generation, Phase, Start};
use belay_kernel::role::{Desired, RoleName, Stop};
use belay_kernel::sandbox::{Fall, Quiet, State as SandboxState};
use belay_kernel::session::{Kept, PauseReason, Session, State, StopReason};
use belay_kernel::worker::{Held, Kind, Place, ProcessIdentity, State as WorkerState};
use belay_kernel::workflow::{Judge, OnValidated, ResultState};
use belay_kernel::{
    AttemptNumber, Cause, CommandId, ConnectionId, Epoch, NodeId, ResultId, Revision, RunnerId,
    SandboxId, SnapshotId, Timestamp, TokenId, WorkerId, WorkflowId,
};
use belay_store::rows::{
    DiagnosticRow, ResultRow, RoleRow, RunnerRow, SandboxRow, SessionRow, StartRow, TokenRow,
    WorkerRow, WorkflowRow,
};
use belay_store::{
    Beat, Beaten, Commit, Committed, Document, Holder, List, Query, Record, Refusal, Rule, Store,
    Stored,
};

use super::make::*;

async fn comes_back<S: Store, R: Record + PartialEq>(store: &S, id: R::Id, row: R) {
    done(store, Commit::new().insert(&row)).await;
    assert_eq!(load::<S, R>(store, id).await, Some(Stored { revision: FIRST, row }));
}

fn sandbox(session: belay_kernel::SessionId, state: SandboxState) -> SandboxRow {
    SandboxRow {
        id: SandboxId::from_bits(fresh()),
        session,
        state,
        epoch: Epoch(3),
        provider: "process".into(),
        runner: Some(RunnerId::from_bits(4)),
        reference: None,
        buried: false,
        evidence: Some(Document(Evidence::new(at(7)))),
        stream: Some(Document(Stream::started(at(8), Pace::Quiet))),
        created_at: at(8),
        due_at: None,
    }
}

pub(crate) async fn sessions_and_sandboxes_come_back<S: Store>(store: Arc<S>) {
    let (id, snapshot) = (SandboxId::from_bits(5), SnapshotId::from_bits(6));
    let lock = Lock { number: Epoch(4), holder: NodeId::from_bits(9), until: at(99) };
    let kept = [Kept::Memory(snapshot), Kept::Files(snapshot), Kept::Frozen(id), Kept::Disk(id)];
    let mut states = vec![
        State::New,
        State::Running { sandbox: id },
        State::Paused { reason: PauseReason::Orphaned, kept: Kept::Tree, leftover: Some(id) },
    ];
    for kept in kept {
        let (reason, stop) = (PauseReason::Ready, StopReason::SnapshotFailed);
        states.push(State::Pausing { sandbox: id, reason, kept });
        states.push(State::Paused { reason, kept, leftover: None });
        states.push(State::Stopped { reason: stop, kept, leftover: None });
    }
    for state in states {
        let mut row = session();
        row.session = Session {
            state,
            revision: Revision(5),
            epoch: Epoch(4),
            lock: Some(lock),
            snapshot_failures: 2,
            ..Session::new()
        };
        row.conversation = Some("abc".into());
        comes_back::<S, SessionRow>(&store, row.id, row).await;
    }
    for state in [
        SandboxState::Created,
        SandboxState::Running,
        SandboxState::Completed { at: at(3) },
        SandboxState::Resumed,
        SandboxState::Idle { why: Quiet::Stuck },
        SandboxState::Dead { why: Fall::HeartbeatTimeout },
        SandboxState::Paused,
        SandboxState::Terminated,
    ] {
        let owner = session();
        done(&*store, Commit::new().insert(&owner)).await;
        let row = sandbox(owner.id, state);
        comes_back::<S, SandboxRow>(&store, row.id, row).await;
    }
}

pub(crate) async fn a_session_has_one_live_sandbox<S: Store>(store: Arc<S>) {
    let owner = session();
    let first = sandbox(owner.id, SandboxState::Running);
    let second = sandbox(owner.id, SandboxState::Created);
    done(&*store, Commit::new().insert(&owner).insert(&first)).await;
    let refused = store.commit(Commit::new().insert(&second)).await.unwrap();
    let (table, rule) = ("sandboxes".to_owned(), Rule::OneLiveSandbox);
    assert_eq!(refused, Committed::Refused(Refusal::Rule { table, rule }));
    let buried = SandboxRow { buried: true, ..first };
    done(&*store, Commit::new().update(FIRST, &buried).insert(&second)).await;
}

fn start(role: &RoleName, generation: u64, phase: Phase) -> StartRow {
    let start = Start {
        id: CommandId::from_bits(fresh()),
        role: role.clone(),
        generation: Generation(generation),
        runner: RunnerId::from_bits(3),
        deadline: at(120_000),
        phase,
    };
    StartRow { start, due_at: Some(at(i64::MAX)) }
}

pub(crate) async fn a_role_has_one_pending_start<S: Store>(store: Arc<S>) {
    let role: RoleName = format!("role-{}", task_id()).parse().unwrap();
    let first = start(&role, 1, Phase::Sent);
    let commits = (1..9).map(|generation| {
        let store = Arc::clone(&store);
        let row = start(&role, generation, Phase::Sent);
        async move { store.commit(Commit::new().insert(&row)).await.unwrap() }
    });
    let answers = futures_util::future::join_all(commits).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_done()).count(), 1, "{answers:?}");
    let (table, rule) = ("starts".to_owned(), Rule::OnePendingStart);
    let refused = Committed::Refused(Refusal::Rule { table, rule });
    assert_eq!(answers.iter().filter(|answer| **answer == refused).count(), 7, "{answers:?}");
    let other: RoleName = format!("other-{}", task_id()).parse().unwrap();
    done(&*store, Commit::new().insert(&start(&other, 1, Phase::Started))).await;
    let again = store.commit(Commit::new().insert(&start(&other, 1, Phase::Sent))).await.unwrap();
    assert!(matches!(again, Committed::Overtaken(_)), "a generation is used once: {again:?}");
    for (generation, phase) in [
        (10, Phase::Over(End::Joined(WorkerId::from_bits(2)))),
        (11, Phase::Over(End::Failed(Cause::Auth))),
        (12, Phase::Over(End::Expired)),
        (13, Phase::Over(End::Withdrawn)),
    ] {
        let row = start(&first.start.role, generation, phase);
        comes_back(&*store, (role.clone(), Generation(generation)), row).await;
    }
}

fn worker(state: WorkerState) -> WorkerRow {
    let role = "builder".parse().unwrap();
    WorkerRow { id: WorkerId::from_bits(fresh()), role, state, joined_at: at(3), due_at: None }
}

pub(crate) async fn workers_come_back_with_their_leases<S: Store>(store: Arc<S>) {
    let connection = ConnectionId::from_bits(77);
    let agent = ProcessIdentity::new(4_242, u64::MAX, u128::MAX).unwrap();
    let held = Held { task: task_id(), attempt: AttemptNumber(2) };
    let slot = Kind::Slot { runner: RunnerId::from_bits(1), place: Place::Embedded };
    let waiting = WorkerState::Waiting { connection, kind: slot, ready_until: at(60_000) };
    for kind in [slot, Kind::Pulling { agent }, Kind::External { agent }] {
        let active = WorkerState::Active { connection, kind, active_until: at(70_000), held };
        let row = worker(active);
        comes_back(&*store, row.id, row).await;
    }
    let gone = worker(WorkerState::Gone);
    comes_back(&*store, gone.id, gone).await;
    let row = worker(waiting);
    comes_back(&*store, row.id, row.clone()).await;
    let fence = connection.to_string();
    let beat = Beat { holder: Holder::Worker(row.id), fence: fence.clone(), until: at(90_000) };
    let beaten = store.beat(vec![beat.clone()], at(5)).await.unwrap();
    assert_eq!(beaten, [Beaten::Current { until: at(90_000) }]);
    let stored = load::<S, WorkerRow>(&store, row.id).await.unwrap();
    assert_eq!(stored.row.state.lease_end(), Some(at(90_000)));
    let active_until = at(80_000);
    let active = WorkerState::Active { connection, kind: slot, active_until, held };
    done(&*store, Commit::new().update(FIRST, &WorkerRow { state: active, ..row.clone() })).await;
    let stored = load::<S, WorkerRow>(&store, row.id).await.unwrap();
    assert_eq!(
        stored.row.state.lease_end(),
        Some(at(80_000)),
        "another way of holding begins anew"
    );
    let gone = WorkerRow { state: WorkerState::Gone, ..row };
    done(&*store, Commit::new().update(FIRST.next(), &gone)).await;
    assert_eq!(store.beat(vec![beat], at(5)).await.unwrap(), [Beaten::Gone], "rejoin");
}

pub(crate) async fn roles_and_runners_come_back<S: Store>(store: Arc<S>) {
    let breakers = [
        Breaker::default(),
        Breaker::Closed { exits: vec![at(1), at(2)], openings: 3 },
        Breaker::Cooling { until: at(9), openings: 1 },
        Breaker::Held { cause: Cause::Configuration },
    ];
    let desired = [Desired::Running, Desired::Stopped(Stop::Drain), Desired::Stopped(Stop::Now)];
    for (index, breaker) in breakers.into_iter().enumerate() {
        let mut row = super::rows::role_row(&format!("role-{}", task_id()));
        row.role.desired = desired[index % 3];
        row.breaker = breaker;
        row.limits = List(vec!["idle=5m".into()]);
        comes_back::<S, RoleRow>(&store, row.role.name.clone(), row).await;
    }
    let runner = RunnerRow {
        id: RunnerId::from_bits(fresh()),
        name: "barn".into(),
        place: Place::Remote,
        slots: 4,
        roles: List(vec!["builder".into()]),
        providers: List(vec!["process".into(), "docker".into()]),
        version: "0.1.0".into(),
        joined_at: at(5),
    };
    comes_back(&*store, runner.id, runner).await;
}

pub(crate) async fn tokens_come_back_and_no_two_that_live_share_a_name<S: Store>(store: Arc<S>) {
    let name = format!("laptop-{}", task_id());
    let token = |revoked_at: Option<Timestamp>| TokenRow {
        id: TokenId::from_bits(fresh()),
        name: name.as_str().into(),
        scope: "operator".into(),
        hash: "0123".into(),
        created_by: "ada".into(),
        created_at: at(5),
        last_used_at: None,
        expires_at: Some(at(99)),
        revoked_at,
    };
    let first = token(None);
    comes_back(&*store, first.id, first.clone()).await;
    let twice = store.commit(Commit::new().insert(&token(None))).await.unwrap();
    let (table, rule) = ("tokens".to_owned(), Rule::OneTokenName);
    assert_eq!(twice, Committed::Refused(Refusal::Rule { table, rule }));
    let revoked = TokenRow { revoked_at: Some(at(7)), last_used_at: Some(at(6)), ..first };
    done(&*store, Commit::new().update(FIRST, &revoked)).await;
    let second = token(None);
    comes_back(&*store, second.id, second.clone()).await;
    let live = Query::<TokenRow>::first(10).live(&[name.as_str().into()]);
    let found: Vec<_> = store.list(live).await.unwrap().rows.into_iter().map(|r| r.row).collect();
    assert_eq!(found, [second]);
}

pub(crate) async fn workflows_results_and_diagnostics_come_back<S: Store>(store: Arc<S>) {
    let workflow = WorkflowRow {
        id: WorkflowId::from_bits(fresh()),
        name: "farm".into(),
        goal: "A farm without broken fences.".into(),
        on_validated: OnValidated::StopAll,
        validation: Some("make check".into()),
        round: 2,
        created_at: at(5),
        due_at: None,
    };
    comes_back(&*store, workflow.id, workflow.clone()).await;
    for state in [
        ResultState::Pending,
        ResultState::Validated(Judge::Person),
        ResultState::Rejected(Judge::Command { exit: -7 }),
    ] {
        let row = ResultRow {
            id: ResultId::from_bits(fresh()),
            workflow: workflow.id,
            task: task_id(),
            attempt: AttemptNumber(1),
            markdown: "# Done".into(),
            evidence: Document(vec![]),
            state,
            submitted_at: at(6),
        };
        comes_back(&*store, row.id, row).await;
    }
    for ended in [None, Some((RunEnd::InVain, at(9)))] {
        let run = Run { task: task_id(), round: 2, started_at: at(7), seen: vec![], ended };
        let row = DiagnosticRow { workflow: workflow.id, run };
        comes_back(&*store, (workflow.id, row.run.task), row).await;
    }
}
