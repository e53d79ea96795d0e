//! Healthy, gone, unknown: what a resume does from every state.

use super::*;
use crate::id::{Epoch, NodeId, Revision, SnapshotId};
use crate::lock;
use crate::session::{PauseReason, StopReason};

const OLD: SandboxId = SandboxId::from_bits(1);
const NEW: SandboxId = SandboxId::from_bits(2);
const SNAPSHOT: SnapshotId = SnapshotId::from_bits(7);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn request(wake: Wake) -> Request {
    let conversation = Conversation::Lost;
    Request { wake, insist: Insist::No, asked_at: at(0), conversation }
}

fn running(tree: Tree) -> Session {
    Session { state: State::Running { sandbox: OLD }, tree, ..Session::new() }
}

fn paused(kept: Kept, leftover: Option<SandboxId>) -> Session {
    let state = State::Paused { reason: PauseReason::Inactivity, kept, leftover };
    Session { state, tree: Tree::Unsaved, ..Session::new() }
}

fn stopped(kept: Kept) -> Session {
    let state = State::Stopped { reason: StopReason::Done, kept, leftover: None };
    Session { state, ..Session::new() }
}

fn decided(session: &Session, request: &Request, probe: Probe, ms: i64) -> Decision {
    decide(session, request, probe, &Limits::default(), at(ms))
}

fn fresh(fence: Option<SandboxId>) -> Decision {
    Decision::Create { from: Kept::Tree, fence, conversation: Conversation::Lost }
}

#[test]
fn healthy_is_the_same_sandbox() {
    for session in [
        running(Tree::Unsaved),
        paused(Kept::Frozen(OLD), None),
        paused(Kept::Disk(OLD), None),
        stopped(Kept::Disk(OLD)),
    ] {
        assert_eq!(look(&session), Look::Probe(OLD));
        let decision = decided(&session, &request(Wake::Resume), Probe::Healthy, 0);
        assert_eq!(decision, Decision::Reuse(OLD));
    }
}

#[test]
fn gone_is_a_new_sandbox_and_the_old_one_is_fenced() {
    for session in [running(Tree::Unsaved), paused(Kept::Frozen(OLD), None)] {
        let decision = decided(&session, &request(Wake::Resume), Probe::Gone, 0);
        assert_eq!(decision, fresh(Some(OLD)));
    }
}

#[test]
fn lesson_unknown_is_not_gone() {
    let (session, request) = (running(Tree::Unsaved), request(Wake::Resume));
    let retry = Decision::Retry { until: at(120_001) };
    for ms in [0, 119_999, 120_000] {
        assert_eq!(decided(&session, &request, Probe::Unknown, ms), retry, "{ms}");
    }
    let Decision::Unreachable(patience) = decided(&session, &request, Probe::Unknown, 120_001)
    else {
        panic!("the only tree was given up")
    };
    assert_eq!(patience.to_string(), "claim 2m of 2m allowed");
    let saved = running(Tree::Saved);
    assert_eq!(decided(&saved, &request, Probe::Unknown, 120_000), retry);
    assert_eq!(decided(&saved, &request, Probe::Unknown, 120_001), fresh(Some(OLD)));
}

#[test]
fn fresh_overrides_unknown() {
    let insisting = Request { insist: Insist::Fresh, ..request(Wake::Resume) };
    let session = running(Tree::Unsaved);
    assert_eq!(decided(&session, &insisting, Probe::Unknown, 0), fresh(Some(OLD)));
    assert_eq!(decided(&session, &insisting, Probe::Healthy, 0), Decision::Reuse(OLD));
}

#[test]
fn without_a_sandbox_nothing_is_probed() {
    for (session, from) in [
        (paused(Kept::Memory(SNAPSHOT), None), Kept::Memory(SNAPSHOT)),
        (paused(Kept::Files(SNAPSHOT), None), Kept::Files(SNAPSHOT)),
        (stopped(Kept::Memory(SNAPSHOT)), Kept::Memory(SNAPSHOT)),
    ] {
        assert_eq!(look(&session), Look::Nothing);
        let conversation = Conversation::Kept;
        let create = Decision::Create { from, fence: None, conversation };
        assert_eq!(decided(&session, &request(Wake::Answer), Probe::Unknown, 0), create);
    }
    for session in [paused(Kept::Tree, None), stopped(Kept::Tree), Session::new()] {
        assert_eq!(look(&session), Look::Nothing);
        assert_eq!(decided(&session, &request(Wake::Answer), Probe::Unknown, 0), fresh(None));
    }
}

#[test]
fn a_leftover_is_fenced_by_whoever_resumes() {
    let session = paused(Kept::Memory(SNAPSHOT), Some(OLD));
    let (from, conversation) = (Kept::Memory(SNAPSHOT), Conversation::Kept);
    let create = Decision::Create { from, fence: Some(OLD), conversation };
    assert_eq!(decided(&session, &request(Wake::Use), Probe::Unknown, 0), create);
}

#[test]
fn the_conversation_is_cleared_only_if_its_files_are_lost() {
    let kept = Request { conversation: Conversation::Kept, ..request(Wake::Resume) };
    let (from, conversation) = (Kept::Tree, Conversation::Kept);
    let create = Decision::Create { from, fence: Some(OLD), conversation };
    assert_eq!(decided(&running(Tree::Saved), &kept, Probe::Gone, 0), create);
}

#[test]
fn lesson_an_automatic_reconnect_aborts_if_paused_or_stopped() {
    let reconnect = request(Wake::Reconnect);
    let refused = Decision::Refused(Deny::NotAsked);
    let reason = PauseReason::Inactivity;
    let state = State::Pausing { sandbox: OLD, reason, kept: Kept::Memory(SNAPSHOT) };
    let pausing = Session { state, ..Session::new() };
    for session in [paused(Kept::Frozen(OLD), None), stopped(Kept::Tree), pausing] {
        assert_eq!(decided(&session, &reconnect, Probe::Healthy, 0), refused);
    }
    let running = running(Tree::Unsaved);
    assert_eq!(decided(&running, &reconnect, Probe::Healthy, 0), Decision::Reuse(OLD));
    let finish = Decision::FinishPausing(OLD);
    assert_eq!(decided(&pausing, &request(Wake::Use), Probe::Healthy, 0), finish);
    assert_eq!(look(&pausing), Look::Nothing);
}

#[test]
fn a_stopped_session_is_woken_only_by_a_person() {
    for wake in [Wake::Attempt, Wake::Use] {
        let decision = decided(&stopped(Kept::Tree), &request(wake), Probe::Healthy, 0);
        assert_eq!(decision, Decision::Refused(Deny::Illegal), "{wake:?}");
    }
    for wake in [Wake::Continue, Wake::Resume, Wake::Answer] {
        assert_eq!(decided(&stopped(Kept::Tree), &request(wake), Probe::Gone, 0), fresh(None));
    }
}

fn keyed(session: Session) -> (Session, Key) {
    let locked = lock::take(session, NodeId::from_bits(1), &Limits::default(), at(0)).unwrap();
    (locked, Key::read(&locked, Epoch(1), at(0)).unwrap())
}

#[test]
fn a_resume_commits_by_compare_and_set() {
    let (session, key) = keyed(paused(Kept::Memory(SNAPSHOT), Some(OLD)));
    let Commit::Write(after, effects) = commit(session, &key, NEW, Wake::Use) else {
        panic!("not written")
    };
    assert_eq!(after.state, State::Running { sandbox: NEW });
    assert_eq!(effects, [Effect::Fence(OLD), Effect::Terminate(OLD)]);
    let moved_on = Session { revision: Revision(9), ..session };
    assert_eq!(commit(moved_on, &key, NEW, Wake::Use), Commit::Overtaken);
    let refused = Commit::Refused(Deny::NotAsked);
    assert_eq!(commit(session, &key, NEW, Wake::Reconnect), refused);
    let (session, key) = keyed(running(Tree::Unsaved));
    assert_eq!(commit(session, &key, OLD, Wake::Use), Commit::Unchanged);
    let (session, key) = keyed(Session::new());
    assert!(matches!(commit(session, &key, NEW, Wake::Attempt), Commit::Write(..)));
}
