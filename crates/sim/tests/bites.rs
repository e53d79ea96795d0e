//! Bugs in the real code, put in on purpose: the simulator finds each of them.
//!
//! Run with `cargo nextest run --workspace --features belay-sim/planted --test bites`. The search
//! stops at the first world that shows the bug, and says which it was and what it showed.

#![allow(clippy::print_stderr, reason = "a test tells which world has found its bug")]

use std::collections::BTreeSet;

use belay_kernel::planted::Bug;
use belay_sim::{Options, Planted, run};

/// Within how many worlds a bug must be found.
const WITHIN: u64 = 2_000;

/// Looks for the bug in one world after the other.
#[track_caller]
fn check(bug: Bug) {
    let found = (0..WITHIN).find_map(|seed| {
        let options = Options { planted: Some(Planted::Code(bug)), ..Options::seed(seed) };
        run(&options).found.map(|found| (seed, found))
    });
    let Some((seed, found)) = found else { panic!("{bug:?} was not found in {WITHIN} worlds") };
    eprintln!("{bug:?} is found by world {seed}: {found}");
}

/// Planted, and not known to be found within so many worlds: they need a moment that is rare, or
/// something that the oracle does not look at yet. `examples/plant.rs` looks for them.
const RARE: &[Bug] = &[
    Bug::FenceDropped,
    Bug::CompletionOverwritten,
    Bug::ReceiptBeforeSettled,
    Bug::SessionFreedEarly,
    Bug::GateAfterDeadline,
    Bug::ReadSetWithoutOthers,
    Bug::SubtaskUnseen,
    Bug::OvertakenTakenForDone,
    Bug::BeatAnsweredUncommitted,
    Bug::NotPushedWithoutFence,
    Bug::LeaseFromReply,
    Bug::AnsweredTwice,
];

macro_rules! bugs {
    ($($test:ident: $bug:ident;)*) => {
        $(#[test]
        fn $test() {
            check(Bug::$bug);
        })*

        #[test]
        fn every_bug_has_a_test_or_is_rare() {
            let tested = BTreeSet::from([$(Bug::$bug),*]);
            let rare = RARE.iter().copied().collect();
            assert!(tested.is_disjoint(&rare));
            assert_eq!(&tested | &rare, Bug::ALL.iter().copied().collect());
        }
    };
}

bugs! {
    retries_without_a_cap: RetryUncapped;
    failed_starts_without_a_cap: StartsUncapped;
    a_receipt_without_proof: ReceiptWithoutProof;
    a_question_that_is_lost_with_its_attempt: QuestionLost;
    usage_that_is_counted_twice: UsageCountedTwice;
    a_subtask_after_the_stop: SubtaskAfterStop;
    a_dependency_that_is_not_awaited: DependencyNotAwaited;
    a_lease_that_proves_too_early: LeaseProofEarly;
    a_sweep_that_does_not_decide_again: SweepWithoutRedecision;
    a_timer_in_memory: TimerInMemory;
    a_stop_from_memory: StopFromMemory;
    a_report_that_is_taken_twice: ReportTakenTwice;
    an_effect_that_is_settled_first: EffectSettledFirst;
    a_push_before_the_gate: PushBeforeGate;
    an_agent_that_is_executed_before_the_commit: ExecutedBeforeCommit;
    a_transcript_that_is_sealed_too_early: TranscriptSealedEarly;
    a_kept_tree_that_is_dropped: KeptTreeDropped;
    a_sandbox_that_is_destroyed_too_early: DestroyedBeforeSaved;
    a_lease_that_is_written_back: LeaseWrittenBack;
    a_cursor_by_plain_sequence: CursorByPlainSequence;
}
