//! Bugs in the real code, put in on purpose: the simulator finds each of them, by what it breaks.
//!
//! Run with `cargo nextest run --workspace --features belay-sim/planted --test bites`. Each row of
//! the table has the first world that finds its bug, which is looked at first: as long as it still
//! does, nothing else is. When worlds are drawn otherwise, the search begins again from the start.

#![allow(clippy::print_stderr, reason = "a test tells which world has found its bug")]

use std::collections::BTreeSet;

use belay_kernel::planted::Bug;
use belay_sim::{Options, Planted, run};

/// Within how many worlds a bug must be found.
const WITHIN: u64 = 2_000;

/// Looks for the bug in the world that found it before, then in all others; `invariants` are those
/// that may be the first to show it.
#[track_caller]
fn check(bug: Bug, first: u64, invariants: &[u8]) {
    let found = std::iter::once(first).chain(0..WITHIN).find_map(|seed| {
        let options = Options { planted: Some(Planted::Code(bug)), ..Options::seed(seed) };
        run(&options).found.map(|found| (seed, found))
    });
    let Some((seed, found)) = found else { panic!("{bug:?} was not found in {WITHIN} worlds") };
    assert!(invariants.contains(&found.invariant), "{bug:?} was found as {found}");
    eprintln!("{bug:?} is found by world {seed}: {found}");
}

macro_rules! bugs {
    ($($test:ident: $bug:ident in $seed:literal by $invariants:expr;)*) => {
        $(#[test]
        fn $test() {
            check(Bug::$bug, $seed, &$invariants);
        })*

        #[test]
        fn every_bug_has_a_test() {
            let tested = BTreeSet::from([$(Bug::$bug),*]);
            assert_eq!(tested, Bug::ALL.iter().copied().collect());
        }
    };
}

bugs! {
    a_fence_that_is_dropped: FenceDropped in 0 by [1, 2, 7];
    retries_without_a_cap: RetryUncapped in 0 by [8];
    failed_starts_without_a_cap: StartsUncapped in 0 by [8];
    a_completion_that_is_overwritten: CompletionOverwritten in 0 by [12];
    a_receipt_without_proof: ReceiptWithoutProof in 0 by [3];
    a_receipt_before_the_push_is_settled: ReceiptBeforeSettled in 0 by [3];
    a_session_that_is_free_too_early: SessionFreedEarly in 0 by [2];
    a_gate_that_opens_after_the_deadline: GateAfterDeadline in 0 by [4];
    a_question_that_is_lost_with_its_attempt: QuestionLost in 27 by [7];
    usage_that_is_counted_twice: UsageCountedTwice in 0 by [8];
    a_subtask_after_the_stop: SubtaskAfterStop in 11 by [3];
    a_dependency_that_is_not_awaited: DependencyNotAwaited in 0 by [1];
    a_lease_that_proves_too_early: LeaseProofEarly in 0 by [3];
    a_sweep_that_does_not_decide_again: SweepWithoutRedecision in 0 by [6];
    a_timer_in_memory: TimerInMemory in 5 by [7];
    a_stop_from_memory: StopFromMemory in 1 by [7];
    a_read_set_without_the_others: ReadSetWithoutOthers in 0 by [1, 7];
    a_subtask_that_its_parent_does_not_notice: SubtaskUnseen in 0 by [1];
    a_report_that_is_taken_twice: ReportTakenTwice in 1 by [5];
    an_effect_that_is_settled_first: EffectSettledFirst in 0 by [7];
    an_overtaken_commit_taken_for_done: OvertakenTakenForDone in 0 by [1, 4, 5, 7];
    a_beat_that_is_answered_uncommitted: BeatAnsweredUncommitted in 0 by [3];
    a_push_before_the_gate: PushBeforeGate in 0 by [4];
    not_pushed_without_a_fence: NotPushedWithoutFence in 0 by [4];
    an_agent_that_is_executed_before_the_commit: ExecutedBeforeCommit in 0 by [1];
    a_lease_counted_from_the_reply: LeaseFromReply in 0 by [3];
    a_transcript_that_is_sealed_too_early: TranscriptSealedEarly in 1 by [5];
    a_kept_tree_that_is_dropped: KeptTreeDropped in 0 by [10];
    a_sandbox_that_is_destroyed_too_early: DestroyedBeforeSaved in 0 by [5, 7];
    an_answer_that_is_delivered_twice: AnsweredTwice in 0 by [0];
    a_lease_that_is_written_back: LeaseWrittenBack in 47 by [2];
    a_cursor_by_plain_sequence: CursorByPlainSequence in 0 by [13];
}
