//! What a sweep proposes, and what it never does.

use super::*;
use crate::lock::Lock;
use crate::session::{Kept, StopReason};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const SANDBOX: SandboxId = SandboxId::from_bits(1);

fn owner() -> Owner {
    Owner { node: NodeId::from_bits(1), lease_until: at(15_000) }
}

fn session(state: State) -> Session {
    Session { state, ..Session::new() }
}

fn proposed(session: &Session) -> Proposal {
    owner_lost(session, owner(), at(15_001))
}

#[test]
fn an_orphan_with_a_live_attempt_is_adopted_and_without_one_is_snapshotted() {
    let running = session(State::Running { sandbox: SANDBOX });
    assert_eq!(proposed(&running), Proposal::Snapshot(PauseReason::Orphaned));
    let busy = Session { attempt: Attempt::Live, ..running };
    assert_eq!(proposed(&busy), Proposal::Adopt);
}

#[test]
fn a_live_owner_or_a_live_lock_is_left_alone() {
    let running = session(State::Running { sandbox: SANDBOX });
    for (ms, over) in [(14_999, false), (15_000, false), (15_001, true)] {
        assert_eq!(is_over(owner(), at(ms)), over, "{ms}");
        let proposal = owner_lost(&running, owner(), at(ms));
        assert_eq!(proposal != Proposal::Leave, over, "{ms}");
    }
    let lock = Lock { number: Epoch(1), holder: NodeId::from_bits(2), until: at(15_001) };
    let locked = Session { lock: Some(lock), ..running };
    assert_eq!(owner_lost(&locked, owner(), at(15_001)), Proposal::Leave);
    assert_ne!(owner_lost(&locked, owner(), at(15_002)), Proposal::Leave);
}

#[test]
fn what_was_left_half_done_is_finished() {
    let (reason, kept) = (PauseReason::Inactivity, Kept::Tree);
    let pausing = session(State::Pausing { sandbox: SANDBOX, reason, kept });
    assert_eq!(proposed(&pausing), Proposal::FinishPausing(SANDBOX));
    for (leftover, proposal) in
        [(Some(SANDBOX), Proposal::Terminate(SANDBOX)), (None, Proposal::Leave)]
    {
        let paused = session(State::Paused { reason, kept, leftover });
        assert_eq!(proposed(&paused), proposal);
        let reason = StopReason::Done;
        assert_eq!(proposed(&session(State::Stopped { reason, kept, leftover })), proposal);
    }
    assert_eq!(proposed(&session(State::New)), Proposal::Leave);
}

fn label(installation: u128, epoch: u64) -> Label {
    Label { installation: InstallationId::from_bits(installation), epoch: Epoch(epoch) }
}

#[test]
fn a_listed_sandbox_that_no_row_wants_gets_a_tombstone_and_is_killed() {
    let ours = label(1, 1);
    assert_eq!(listed(ours, ours, Wanted::No, at(0)), Listed::TombstoneAndKill);
    assert_eq!(listed(ours, ours, Wanted::Yes, at(0)), Listed::Keep);
}

#[test]
fn an_unanswered_create_waits_for_its_deadline() {
    let (ours, deadline) = (label(1, 1), at(100));
    let wanted = Wanted::CreateUnanswered { deadline };
    for ms in [99, 100] {
        assert_eq!(listed(ours, ours, wanted, at(ms)), Listed::AwaitCreate(deadline));
    }
    assert_eq!(listed(ours, ours, wanted, at(101)), Listed::TombstoneAndKill);
    let unanswered = Creation::Unanswered { deadline };
    let whole = |asked_at| Listing::Whole { asked_at: at(asked_at) };
    assert_eq!(missing(unanswered, whole(50), at(100)), Missing::AwaitCreate(deadline));
    assert_eq!(
        missing(unanswered, whole(100), at(101)),
        Missing::AwaitCreate(deadline),
        "it may have been made after the provider looked"
    );
    assert_eq!(missing(unanswered, whole(101), at(102)), Missing::Settle);
}

#[test]
fn another_epoch_is_quarantined_and_another_installation_is_not_ours() {
    for wanted in [Wanted::Yes, Wanted::No, Wanted::CreateUnanswered { deadline: at(0) }] {
        assert_eq!(listed(label(1, 2), label(1, 1), wanted, at(5)), Listed::Quarantine);
        assert_eq!(listed(label(2, 1), label(1, 1), wanted, at(5)), Listed::NotOurs);
    }
}

#[test]
fn a_row_whose_sandbox_is_gone_is_settled() {
    let whole = Listing::Whole { asked_at: at(100) };
    assert_eq!(missing(Creation::Answered { at: at(99) }, whole, at(200)), Missing::Settle);
    for ms in [100, 101] {
        let made_meanwhile = Creation::Answered { at: at(ms) };
        assert_eq!(missing(made_meanwhile, whole, at(200)), Missing::Leave, "{ms}");
    }
}

#[test]
fn lesson_a_failed_read_never_reaps() {
    for creation in [Creation::Answered { at: at(0) }, Creation::Unanswered { deadline: at(0) }] {
        assert_eq!(missing(creation, Listing::Failed, at(1_000_000)), Missing::Leave);
    }
}
