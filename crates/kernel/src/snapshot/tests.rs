//! The snapshot saga: capability order, step order, fences, the failure cap, end of life.

use super::*;
use crate::id::{NodeId, Revision};
use crate::idle::{ClientKind, Unmet};
use crate::lock;
use crate::session::{State, Tree};
use crate::time::Span;

const ALL: Capabilities = Capabilities { memory: true, pause: true, files: true };
const SANDBOX: SandboxId = SandboxId::from_bits(1);
const SNAPSHOT: SnapshotId = SnapshotId::from_bits(7);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn node(n: u128) -> NodeId {
    NodeId::from_bits(n)
}

/// A running session, locked with number 1 at 400 s; idle since 0.
fn locked() -> Session {
    let running = Session {
        state: State::Running { sandbox: SANDBOX },
        tree: Tree::Unsaved,
        ..Session::new()
    };
    lock::take(running, node(1), &Limits::default(), at(400_000)).unwrap()
}

fn quiet() -> Presence {
    Presence::new(ClientKind::Interactive, at(0))
}

fn begun(session: &Session, capabilities: Capabilities) -> Saga {
    let presence = quiet();
    let ground = Ground::Idle { presence: &presence, owner: mine() };
    begin(session, Epoch(1), ground, capabilities, &Limits::default(), at(400_000)).unwrap()
}

/// The lock's holder owns the session.
fn mine() -> Owner {
    Owner { node: node(1), lease_until: at(1_000_000) }
}

fn describe(stage: Stage) -> String {
    match stage {
        Stage::Detach => "detach".into(),
        Stage::RemoveSecrets => "secrets".into(),
        Stage::Capture(Method::Memory) => "memory".into(),
        Stage::Capture(Method::Pause) => "pause".into(),
        Stage::Capture(Method::Files) => "files".into(),
        Stage::Commit(_) => "commit".into(),
        Stage::Terminate => "terminate".into(),
        Stage::Over(Outcome::Done) => "done".into(),
        Stage::Over(Outcome::LeftBehind) => "left behind".into(),
        Stage::Over(Outcome::Stale(None)) => "stale".into(),
        Stage::Over(Outcome::Stale(Some(_))) => "stale, discard".into(),
        Stage::Over(Outcome::Failed) => "failed".into(),
    }
}

/// The steps of a saga whose reports are `script`: `ok`, `snap`, `fail`, `lost`.
fn check(capabilities: Capabilities, script: &str, expected: &str) {
    let mut saga = begun(&locked(), capabilities);
    let mut trace = vec![describe(saga.stage)];
    for word in script.split_whitespace() {
        saga = saga.after(match word {
            "ok" => Report::Done,
            "snap" => Report::Captured(SNAPSHOT),
            "fail" => Report::Failed,
            "lost" => Report::Overtaken,
            _ => panic!("{word}"),
        });
        trace.push(describe(saga.stage));
    }
    assert_eq!(trace.join(" "), expected, "{script}");
    assert_eq!(saga.epoch(), Epoch(1));
}

#[test]
fn capability_order_is_memory_then_pause_then_files() {
    check(ALL, "ok ok", "detach secrets memory");
    check(Capabilities { memory: false, ..ALL }, "ok ok", "detach secrets pause");
    check(Capabilities { files: true, ..Default::default() }, "ok ok", "detach secrets files");
}

#[test]
fn a_failure_falls_back_to_the_next_method() {
    check(ALL, "ok ok fail fail fail", "detach secrets memory pause files failed");
    check(
        Capabilities { pause: false, ..ALL },
        "ok ok fail snap ok ok",
        "detach secrets memory files commit terminate done",
    );
    check(ALL, "ok ok fail ok ok", "detach secrets memory pause commit done");
    check(ALL, "ok ok ok", "detach secrets memory pause");
}

#[test]
fn the_commit_comes_before_the_terminate() {
    check(ALL, "ok ok snap ok ok", "detach secrets memory commit terminate done");
}

#[test]
fn a_frozen_sandbox_is_not_terminated() {
    let pause = Capabilities { pause: true, ..Default::default() };
    check(pause, "ok ok ok ok", "detach secrets pause commit done");
}

#[test]
fn lesson_secrets_are_removed_before_any_snapshot_or_there_is_none() {
    for capabilities in [
        ALL,
        Capabilities { memory: false, ..ALL },
        Capabilities { files: true, ..Default::default() },
    ] {
        check(capabilities, "ok fail", "detach secrets failed");
    }
    check(ALL, "fail ok", "detach secrets memory");
}

#[test]
fn a_lost_compare_and_set_is_benign() {
    check(ALL, "ok ok snap lost ok", "detach secrets memory commit stale, discard stale, discard");
    check(ALL, "lost", "detach stale");
    check(ALL, "ok lost", "detach secrets stale");
    check(ALL, "ok ok lost", "detach secrets memory stale");
    check(ALL, "ok ok snap ok lost", "detach secrets memory commit terminate stale");
    check(ALL, "ok ok fail ok lost", "detach secrets memory pause commit stale");
}

#[test]
fn a_terminate_that_fails_leaves_the_id_behind() {
    check(ALL, "ok ok snap ok fail", "detach secrets memory commit terminate left behind");
    check(ALL, "ok ok snap fail", "detach secrets memory commit failed");
}

fn refused(session: &Session, ground: Ground<'_>, capabilities: Capabilities) -> Refused {
    begin(session, Epoch(1), ground, capabilities, &Limits::default(), at(400_000)).unwrap_err()
}

#[test]
fn everything_is_judged_again_inside_the_lock() {
    let (session, idle) = (locked(), quiet());
    let ground = Ground::Idle { presence: &idle, owner: mine() };
    let unlocked = Session { lock: None, ..session };
    assert_eq!(refused(&unlocked, ground, ALL), Refused::LockLost);
    let busy = Session { attempt: Attempt::Live, ..session };
    assert_eq!(refused(&busy, ground, ALL), Refused::AttemptLive);
    let stopped = Session { state: State::New, ..session };
    assert_eq!(refused(&stopped, ground, ALL), Refused::NoSandbox);
    assert_eq!(refused(&session, ground, Capabilities::default()), Refused::NoMethod);
    let attached = Presence { clients: 1, ..quiet() };
    let ground = Ground::Idle { presence: &attached, owner: mine() };
    let Refused::Busy(Idle::Busy { unmet, .. }) = refused(&session, ground, ALL) else {
        panic!("an attached client is not idle")
    };
    assert_eq!(unmet, [Unmet::Client(1)]);
}

#[test]
fn the_reason_follows_from_the_ground() {
    let (session, idle) = (locked(), quiet());
    let reason = |ground| {
        begin(&session, Epoch(1), ground, ALL, &Limits::default(), at(400_000)).map(|s| s.reason)
    };
    let ground = |owner| Ground::Idle { presence: &idle, owner };
    assert_eq!(reason(ground(mine())), Ok(PauseReason::Inactivity));
    let elsewhere = Owner { node: node(2), ..mine() };
    assert_eq!(reason(ground(elsewhere)), Err(Refused::NotOwner), "who is there is seen there");
    let owner = |ms| Owner { node: node(2), lease_until: at(ms) };
    assert_eq!(reason(Ground::Orphan(owner(399_999))), Ok(PauseReason::Orphaned));
    assert_eq!(reason(Ground::Orphan(owner(400_000))), Err(Refused::Owned));
    assert_eq!(reason(Ground::Resting(PauseReason::Ready)), Ok(PauseReason::Ready));
}

fn written(commit: Commit) -> (Session, Vec<Effect>) {
    match commit {
        Commit::Write(session, effects) => (session, effects),
        Commit::Overtaken => panic!("overtaken"),
    }
}

#[test]
fn a_commit_writes_the_snapshot_before_it_asks_for_the_terminate() {
    let session = Session { snapshot_failures: 2, ..locked() };
    let saga = begun(&session, ALL);
    let (after, effects) = written(commit(session, &saga, Kept::Memory(SNAPSHOT)));
    let pausing = State::Pausing {
        sandbox: SANDBOX,
        reason: PauseReason::Inactivity,
        kept: Kept::Memory(SNAPSHOT),
    };
    assert_eq!((after.state, after.snapshot_failures), (pausing, 0), "a success clears the count");
    assert_eq!(effects, [Effect::Terminate(SANDBOX)]);
    let (settled, _) = written(settle(after, SANDBOX, Termination::Failed));
    assert!(settled.state.names(SANDBOX), "the id is kept");
    assert_eq!(settle(settled, SandboxId::from_bits(9), Termination::Done), Commit::Overtaken);
}

#[test]
fn lesson_a_stale_actor_changes_nothing() {
    let session = locked();
    let saga = begun(&session, ALL);
    let later = at(400_000).after(Span::from_millis(300_001));
    let retaken = lock::take(session, node(2), &Limits::default(), later).unwrap();
    let resumed = Session { revision: Revision(1), ..session };
    let replaced =
        Session { state: State::Running { sandbox: SandboxId::from_bits(2) }, ..session };
    for moved_on in [retaken, resumed, replaced] {
        assert_eq!(commit(moved_on, &saga, Kept::Memory(SNAPSHOT)), Commit::Overtaken);
        assert_eq!(failed(moved_on, &saga, &Caps::default()), Commit::Overtaken);
    }
    let claimed = Session { attempt: Attempt::Live, ..session };
    assert_eq!(commit(claimed, &saga, Kept::Memory(SNAPSHOT)), Commit::Overtaken);
}

#[test]
fn lesson_failures_are_counted_in_the_row_and_the_third_stops_the_session() {
    let mut session = locked();
    for count in 1..=2 {
        let saga = begun(&session, ALL);
        let (after, effects) = written(failed(session, &saga, &Caps::default()));
        assert_eq!((after.snapshot_failures, after.state), (count, session.state));
        assert_eq!((effects, after.revision), (vec![], session.revision.next()));
        session = after;
    }
    let saga = begun(&session, ALL);
    let (after, effects) = written(failed(session, &saga, &Caps::default()));
    let reason = StopReason::SnapshotFailed;
    let kept = Kept::Disk(SANDBOX);
    assert_eq!(after.state, State::Stopped { reason, kept, leftover: None });
    assert_eq!(effects, [Effect::KillKeepDisk(SANDBOX), Effect::AlertSnapshotFailed]);
    let saved = Session { tree: Tree::Saved, ..session };
    let (after, effects) = written(failed(saved, &saga, &Caps::default()));
    let stopped = State::Stopped { reason, kept: Kept::Tree, leftover: Some(SANDBOX) };
    assert_eq!(after.state, stopped, "not said to be gone before it is");
    assert_eq!(effects, [Effect::Terminate(SANDBOX), Effect::AlertSnapshotFailed]);
}

#[test]
fn five_minutes_before_its_end_of_life_a_sandbox_is_saved() {
    let decide = |session: &Session, presence: &Presence, ms| {
        expiry(at(1_000_000), session, presence, &Limits::default(), at(ms))
    };
    let (session, idle) = (locked(), quiet());
    assert_eq!(decide(&session, &idle, 699_999), Expiry::At(at(700_000)));
    assert_eq!(decide(&session, &idle, 700_000), Expiry::Snapshot);
    let end = Expiry::SaveTreeAndEnd(Cause::SandboxExpired);
    assert_eq!(decide(&session, &Presence { clients: 1, ..idle }, 700_000), end);
    let busy = Session { attempt: Attempt::Live, ..session };
    assert_eq!(decide(&busy, &idle, 700_000), end);
}
