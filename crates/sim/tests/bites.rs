//! Bugs in the real code, put in on purpose: the simulator finds each of them.
//!
//! Run with `cargo nextest run --workspace --features belay-sim/planted --test bites`. The search
//! stops at the first world that shows the bug, and says which it was and what it showed. The same
//! world without the bug must hold.

#![allow(clippy::print_stderr, reason = "a test tells which world has found its bug")]

use std::collections::BTreeSet;

use belay_kernel::planted::Bug;
use belay_sim::{Options, Planted, run, shrink};

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
    assert_eq!(run(&Options::seed(seed)).found, None, "world {seed} does not hold by itself");
    eprintln!("{bug:?} is found by world {seed}: {found}");
}

/// The world of a printed command, as the program of the examples reads it.
fn follow(command: &str) -> Options {
    let (_, asked) = command.split_once(" --example plant -- ").expect(command);
    let words: Vec<&str> = asked.split_whitespace().collect();
    let mut world = Options { planted: Planted::named(words[0]), ..Options::seed(0) };
    for pair in words[1..].chunks(2) {
        let [name, value] = pair else { panic!("{command}") };
        match *name {
            "--seed" => world.seed = value.parse().expect(command),
            _ => assert!(world.less.take(name, value), "{command}"),
        }
    }
    world
}

#[test]
fn the_commands_that_are_printed_show_the_bug_again() {
    let planted = Some(Planted::Code(Bug::ReceiptWithoutProof));
    let mut worlds = (0..WITHIN).map(|seed| run(&Options { planted, ..Options::seed(seed) }));
    let whole = worlds.find(|report| report.found.is_some()).expect("the bug is found");
    let least = shrink(&whole, &mut |_| ()).report;
    assert_ne!(least.options.less, whole.options.less, "something can be left out");
    for report in [whole, least] {
        let again = run(&follow(&report.replay()));
        assert_eq!((again.hash, again.found), (report.hash, report.found));
    }
}

macro_rules! bugs {
    ($($test:ident: $bug:ident;)*) => {
        $(#[test]
        fn $test() {
            check(Bug::$bug);
        })*

        #[test]
        fn every_bug_has_a_test() {
            let tested = BTreeSet::from([$(Bug::$bug),*]);
            assert_eq!(tested, Bug::ALL.iter().copied().collect());
        }
    };
}

bugs! {
    a_fence_that_is_dropped: FenceDropped;
    retries_without_a_cap: RetryUncapped;
    failed_starts_without_a_cap: StartsUncapped;
    a_completion_that_is_overwritten: CompletionOverwritten;
    a_receipt_without_proof: ReceiptWithoutProof;
    a_receipt_before_the_push_is_settled: ReceiptBeforeSettled;
    a_session_that_is_freed_too_early: SessionFreedEarly;
    a_gate_that_opens_after_the_deadline: GateAfterDeadline;
    a_question_that_is_lost_with_its_attempt: QuestionLost;
    usage_that_is_counted_twice: UsageCountedTwice;
    a_subtask_after_the_stop: SubtaskAfterStop;
    a_dependency_that_is_not_awaited: DependencyNotAwaited;
    a_lease_that_proves_too_early: LeaseProofEarly;
    a_sweep_that_does_not_decide_again: SweepWithoutRedecision;
    a_timer_in_memory: TimerInMemory;
    a_stop_from_memory: StopFromMemory;
    a_decision_that_does_not_expect_what_it_read: ReadSetWithoutOthers;
    a_subtask_that_nobody_notices: SubtaskUnseen;
    a_report_that_is_taken_twice: ReportTakenTwice;
    an_effect_that_is_settled_first: EffectSettledFirst;
    an_overtaken_commit_that_is_taken_for_done: OvertakenTakenForDone;
    a_beat_that_is_answered_uncommitted: BeatAnsweredUncommitted;
    a_push_before_the_gate: PushBeforeGate;
    a_push_that_is_given_up_without_a_fence: NotPushedWithoutFence;
    an_agent_that_is_executed_before_the_commit: ExecutedBeforeCommit;
    a_lease_that_is_counted_from_the_reply: LeaseFromReply;
    a_transcript_that_is_sealed_too_early: TranscriptSealedEarly;
    a_kept_tree_that_is_dropped: KeptTreeDropped;
    a_sandbox_that_is_destroyed_too_early: DestroyedBeforeSaved;
    an_answer_that_is_given_twice: AnsweredTwice;
    a_lease_that_is_written_back: LeaseWrittenBack;
    a_cursor_by_plain_sequence: CursorByPlainSequence;
}
