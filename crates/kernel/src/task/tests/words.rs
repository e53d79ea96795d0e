//! What the table says in words.

use super::super::*;
use super::script::{World, check_from};

#[test]
fn a_report_from_a_lost_attempt_is_fenced() {
    check_from(
        "RUNNING max=2",
        "+61s fail:lost; +10s claim; succeed#1; ask#1; fail:crash#1; start#1; start",
        "61s fail:lost QUEUED same @71s [terminate#1 offer]
         71s claim CLAIMED #2 same [prepare#2]
         71s succeed#1 deny fenced
         71s ask#1 deny fenced
         71s fail:crash#1 deny fenced
         71s start#1 deny fenced
         71s start RUNNING #2 [execute#2]",
    );
}

#[test]
fn a_stop_before_the_gate_means_nothing_is_ever_pushed() {
    check_from(
        "RUNNING",
        "cancel; publish; succeed; cancel",
        "0s cancel CANCELLED [descendants terminate#1 rest]
         0s publish deny fenced
         0s succeed deny fenced
         0s cancel ignore",
    );
}

#[test]
fn a_stop_after_the_gate_is_settled_before_it_is_acknowledged() {
    check_from(
        "RUNNING",
        "publish; cancel; pushed",
        "0s publish RUNNING #1 [push#1]
         0s cancel CANCELLED [descendants settle#1 terminate#1 rest]
         0s pushed deny fenced",
    );
}

#[test]
fn a_timeout_after_the_gate_waits_for_the_publish() {
    check_from(
        "RUNNING",
        "publish; +3601s expire:absolute; expire:inactivity; expire:publish; fail:lost; pushed",
        "0s publish RUNNING #1 [push#1]
         3601s expire:absolute ignore
         3601s expire:inactivity ignore
         3601s expire:publish RUNNING #1 [settle#1]
         3601s fail:lost RUNNING #1 [settle#1]
         3601s pushed READY #1 [terminate#1 ready]",
    );
}

#[test]
fn a_timeout_before_the_gate_keeps_it_shut() {
    check_from(
        "RUNNING",
        "+3601s publish; expire:absolute; publish",
        "3601s publish deny deadline passed
         3601s expire:absolute TIMED_OUT absolute [terminate#1 rest]
         3601s publish deny fenced",
    );
}

#[test]
fn a_finished_task_is_never_timed_out_afterwards() {
    check_from(
        "RUNNING",
        "succeed; +9999s expire:absolute; expire:inactivity; fail:heartbeat_timeout; accept",
        "0s succeed READY #1 [terminate#1 ready]
         9999s expire:absolute deny fenced
         9999s expire:inactivity deny fenced
         9999s fail:heartbeat_timeout deny fenced
         9999s accept COMPLETED [rest]",
    );
}

#[test]
fn what_is_published_succeeds_when_that_is_settled_and_not_before() {
    check_from(
        "RUNNING",
        "publish; publish; succeed; ask-exit; budget; withdraw; pushed",
        "0s publish RUNNING #1 [push#1]
         0s publish ignore
         0s succeed deny cancel
         0s ask-exit deny cancel
         0s budget ignore
         0s withdraw ignore
         0s pushed READY #1 [terminate#1 ready]",
    );
}

#[test]
fn resume_of_a_failed_publish_publishes_again_without_the_agent() {
    check_from(
        "RUNNING",
        "publish; not-pushed; resume; claim; start; fail:lost; retry",
        "0s publish RUNNING #1 [push#1]
         0s not-pushed FAILED publish_failed [terminate#1 rest]
         0s resume QUEUED republish [requeue offer]
         0s claim CLAIMED #2 republish [prepare#2]
         0s start RUNNING #2 [execute#2]
         0s fail:lost FAILED lost [terminate#2 rest]
         0s retry QUEUED fresh [disregard requeue offer]",
    );
}

#[test]
fn final_usage_above_the_budget_is_never_success() {
    for event in ["succeed:over-budget", "publish:over-budget"] {
        let trace = format!("0s {event} BUDGET_EXCEEDED [terminate#1 rest]");
        check_from("RUNNING", event, &trace);
    }
    check_from(
        "RUNNING",
        "publish; pushed:over-budget",
        "0s publish RUNNING #1 [push#1]
         0s pushed:over-budget BUDGET_EXCEEDED [terminate#1 rest]",
    );
}

#[test]
fn a_person_cannot_queue_what_cannot_run() {
    check_from(
        "FAILED",
        "retry-blocked; resume-broke",
        "0s retry-blocked deny dependency failed
         0s resume-broke deny budget used up",
    );
}

#[test]
fn whatever_ends_a_held_attempt_its_question_stays_open() {
    for (event, effects) in [
        ("succeed", "[terminate#1]"),
        ("fail:crash", "[terminate#1]"),
        ("fail:lost", "[terminate#1]"),
        ("withdraw", "[terminate#1]"),
        ("ask-exit", "[terminate#1]"),
        ("expire:attempt_lease", "[terminate#1]"),
    ] {
        check_from(
            "RUNNING",
            &format!("ask; {event}; answer"),
            &format!(
                "0s ask BLOCKED held#1 [question]
                 0s {event} BLOCKED question {effects}
                 0s answer QUEUED same [offer]"
            ),
        );
    }
}

#[test]
fn while_a_question_is_held_the_clocks_stand_still() {
    check_from(
        "RUNNING",
        "ask; ask; ask-other; +9999s expire:absolute; expire:inactivity; answer; publish",
        "0s ask BLOCKED held#1 [question]
         0s ask ignore
         0s ask-other deny other question
         9999s expire:absolute ignore
         9999s expire:inactivity ignore
         9999s answer RUNNING #1 [answer#1]
         9999s publish RUNNING #1 [push#1]",
    );
}

#[test]
fn an_answer_grants_new_tries() {
    check_from(
        "RUNNING max=2",
        "fail:crash; +10s claim; start; ask-exit; answer; claim; start; fail:crash",
        "0s fail:crash QUEUED same @10s [terminate#1 offer]
         10s claim CLAIMED #2 same [prepare#2]
         10s start RUNNING #2 [execute#2]
         10s ask-exit BLOCKED question [question terminate#2]
         10s answer QUEUED same [offer]
         10s claim CLAIMED #3 same [prepare#3]
         10s start RUNNING #3 [execute#3]
         10s fail:crash QUEUED same @20s [terminate#3 offer]",
    );
}

#[test]
fn a_role_stopped_at_once_requeues_without_using_a_try() {
    check_from(
        "RUNNING",
        "withdraw; claim; withdraw; claim; start; fail:lost",
        "0s withdraw QUEUED same [terminate#1 offer]
         0s claim CLAIMED #2 same [prepare#2]
         0s withdraw QUEUED same [terminate#2 offer]
         0s claim CLAIMED #3 same [prepare#3]
         0s start RUNNING #3 [execute#3]
         0s fail:lost FAILED lost [terminate#3 rest]",
    );
}

#[test]
fn three_fruitless_successes_fail_for_want_of_progress() {
    check_from(
        "RUNNING",
        "succeed:empty; reject; run; claim; start; succeed:empty; reject; run; claim; start; \
         succeed:empty; retry; claim; start; succeed:empty; retry; claim; start; succeed",
        "0s succeed:empty READY #1 [terminate#1 ready]
         0s reject PENDING same []
         0s run QUEUED same [offer]
         0s claim CLAIMED #2 same [prepare#2]
         0s start RUNNING #2 [execute#2]
         0s succeed:empty READY #2 [terminate#2 ready]
         0s reject PENDING same []
         0s run QUEUED same [offer]
         0s claim CLAIMED #3 same [prepare#3]
         0s start RUNNING #3 [execute#3]
         0s succeed:empty FAILED no_progress [terminate#3 rest]
         0s retry QUEUED fresh [disregard requeue offer]
         0s claim CLAIMED #4 fresh [prepare#4]
         0s start RUNNING #4 [execute#4]
         0s succeed:empty FAILED no_progress [terminate#4 rest]
         0s retry QUEUED fresh [disregard requeue offer]
         0s claim CLAIMED #5 fresh [prepare#5]
         0s start RUNNING #5 [execute#5]
         0s succeed READY #5 [terminate#5 ready]",
    );
}

#[test]
fn what_is_not_a_move_is_denied_with_the_legal_moves() {
    check_from(
        "COMPLETED",
        "run; retry; cancel",
        "0s run deny continue
         0s retry deny continue\n0s cancel deny continue",
    );
    check_from(
        "READY",
        "run; answer",
        "0s run deny accept reject cancel
         0s answer deny accept reject cancel",
    );
    check_from("RUNNING", "accept; reject", "0s accept deny cancel\n0s reject deny cancel");
}

#[test]
fn every_move_says_why_and_since_when() {
    let mut world = World::at("QUEUED");
    let moves = [
        ("claim", "claimed"),
        ("start", "started"),
        ("ask", "question"),
        ("answer", "answer"),
        ("succeed", "succeeded"),
        ("reject", "reject"),
        ("run", "run"),
        ("claim", "claimed"),
        ("start", "started"),
        ("succeed:1-failed", "subtask_failed"),
        ("subtask-requeued", "requeued"),
        ("subtasks", "subtasks_rested"),
        ("reject", "reject"),
        ("run", "run"),
        ("claim", "claimed"),
        ("fail:lost", "retrying"),
        ("cancel", "cancel"),
    ];
    for (second, (event, reason)) in (1..).zip(moves) {
        world.play(&format!("+1s {event}"));
        assert_eq!(world.task.reason.code(), reason, "{event}");
        assert_eq!(world.task.since, Timestamp::from_millis(second * 1_000), "{event}");
    }
    let mut world = World::at("RUNNING");
    world.task.effort.fruitless = 2;
    world.play("succeed:empty");
    assert_eq!(world.task.reason, Reason::Ended(Cause::NoProgress));
}

#[test]
fn an_attempts_outcome_says_how_it_ended() {
    use crate::attempt::{Outcome, Phase};
    for (script, outcome) in [
        ("succeed", Outcome::Succeeded),
        ("ask-exit", Outcome::Question),
        ("fail:crash", Outcome::Failed),
        ("fail:lost", Outcome::Lost),
        ("fail:sandbox_expired", Outcome::Lost),
        ("expire:attempt_lease", Outcome::Lost),
        ("expire:absolute", Outcome::TimedOut),
        ("cancel", Outcome::Cancelled),
        ("withdraw", Outcome::Cancelled),
        ("budget", Outcome::BudgetExceeded),
    ] {
        let mut world = World::at("RUNNING");
        world.play(script);
        assert_eq!(world.attempt.map(|row| row.phase), Some(Phase::Ending(outcome)), "{script}");
    }
}

#[test]
fn what_became_of_a_push_is_stored_with_the_attempt() {
    use crate::publish::Publish;
    for (script, pushed) in [("publish; pushed", true), ("publish; not-pushed", false)] {
        let mut world = World::at("RUNNING");
        world.play(script);
        let publish = world.attempt.map(|row| row.publish);
        assert_eq!(matches!(publish, Some(Publish::Pushed(_))), pushed, "{script}");
        assert_eq!(matches!(publish, Some(Publish::NotPushed(_))), !pushed, "{script}");
    }
}

#[test]
fn a_start_that_succeeds_forgets_those_that_failed() {
    let mut world = World::at("CLAIMED");
    world.play("fail:lost; +10s claim; fail:lost; +20s claim; start; withdraw; claim; fail:lost");
    assert_eq!(world.task.effort.failed_starts, 1);
    assert!(matches!(world.task.state, State::Queued { .. }));
}

#[test]
fn a_timeout_without_progress_counts_as_fruitless() {
    let mut world = World::at("RUNNING");
    world.play("expire:absolute:empty");
    assert_eq!(world.task.effort.fruitless, 1);
    let mut world = World::at("RUNNING");
    world.play("expire:absolute");
    assert_eq!(world.task.effort.fruitless, 0);
}

#[test]
fn an_attempt_acts_only_if_the_task_names_it_and_it_is_not_over() {
    let mut over = World::at("RUNNING");
    let limits = Limits::default();
    let end = attempt::Event::End(attempt::Outcome::Lost);
    over.attempt = over.attempt.and_then(|a| a.step(end, Timestamp::EPOCH, &limits).accepted());
    assert_eq!(over.play("succeed"), "0s succeed deny fenced");
    let mut other = World::at("RUNNING");
    other.attempt = other.attempt.map(|a| Attempt { number: AttemptNumber(2), ..a });
    assert_eq!(other.play("succeed#2"), "0s succeed#2 deny fenced");
}
