//! The task machine, row by row: a script goes in, a trace comes out.

mod script;

use proptest::prelude::*;

use self::script::{World, check, check_from, every_event, every_state};
use super::*;
use crate::status::Group;
use crate::why::LivePath;

// Every row of the table of states, by name.

#[test]
fn row_pending_to_queued_on_run() {
    check("run", "0s run QUEUED fresh [offer]");
}

#[test]
fn row_queued_to_claimed_with_its_attempt() {
    check("run; claim", "0s run QUEUED fresh [offer]\n0s claim CLAIMED #1 fresh [prepare#1]");
}

#[test]
fn row_queued_to_claimed_only_if_nothing_blocks() {
    check("run; claim-blocked", "0s run QUEUED fresh [offer]\n0s claim-blocked deny 2 blockers");
}

#[test]
fn row_queued_to_failed_on_dependency() {
    check(
        "run; dependency-rested; dependency-rested",
        "0s run QUEUED fresh [offer]
         0s dependency-rested FAILED dependency_failed [rest]
         0s dependency-rested ignore",
    );
}

#[test]
fn row_claimed_to_running_on_start() {
    check_from("CLAIMED", "start; start", "0s start RUNNING #1 [execute#1]\n0s start ignore");
}

#[test]
fn row_claimed_to_queued_while_start_cap_is_left() {
    check_from(
        "CLAIMED",
        "expire:claim; +10s claim; fail:infrastructure; +20s claim; fail:lost",
        "0s expire:claim QUEUED fresh @10s [terminate#1 offer]
         10s claim CLAIMED #2 fresh [prepare#2]
         10s fail:infrastructure QUEUED fresh @30s [terminate#2 offer]
         30s claim CLAIMED #3 fresh [prepare#3]
         30s fail:lost FAILED start_failed [terminate#3 rest]",
    );
}

#[test]
fn row_claimed_to_failed_on_a_permanent_failure_to_create() {
    check_from(
        "CLAIMED",
        "fail:configuration",
        "0s fail:configuration FAILED configuration [terminate#1 rest]",
    );
}

#[test]
fn row_running_to_blocked_on_a_question() {
    check_from("RUNNING", "ask", "0s ask BLOCKED held#1 [question]");
    check_from("RUNNING", "ask-exit", "0s ask-exit BLOCKED question [question terminate#1]");
}

#[test]
fn row_running_to_blocked_on_unfinished_subtasks_of_any_review_and_depth() {
    let expected = "0s succeed:1-active BLOCKED subtasks [terminate#1]";
    check_from("RUNNING", "succeed:1-active", expected);
    check_from("RUNNING auto", "succeed:1-active", expected);
    check_from("RUNNING subtask", "succeed:1-active", expected);
}

#[test]
fn row_running_and_blocked_to_ready_when_top_level_and_manual() {
    check_from("RUNNING", "succeed", "0s succeed READY #1 [terminate#1 ready]");
    check_from(
        "RUNNING",
        "succeed:1-active; subtasks:1-active; subtasks",
        "0s succeed:1-active BLOCKED subtasks [terminate#1]
         0s subtasks:1-active ignore
         0s subtasks READY #1 [ready]",
    );
}

#[test]
fn row_running_and_blocked_to_completed_when_subtask_or_auto() {
    for kind in ["RUNNING auto", "RUNNING subtask"] {
        check_from(kind, "succeed", "0s succeed COMPLETED [terminate#1 rest]");
        check_from(
            kind,
            "succeed:1-active; subtasks",
            "0s succeed:1-active BLOCKED subtasks [terminate#1]\n0s subtasks COMPLETED [rest]",
        );
    }
}

#[test]
fn row_blocked_to_running_on_answer_while_held() {
    check_from(
        "RUNNING",
        "ask; +90s answer-other; answer; expire:linger",
        "0s ask BLOCKED held#1 [question]
         90s answer-other deny other question
         90s answer RUNNING #1 [answer#1]
         90s expire:linger ignore",
    );
}

#[test]
fn row_blocked_to_queued_on_answer_when_not_held() {
    check_from(
        "RUNNING",
        "ask; +301s expire:linger; answer-other; answer",
        "0s ask BLOCKED held#1 [question]
         301s expire:linger BLOCKED question [terminate#1]
         301s answer-other deny other question
         301s answer QUEUED same [offer]",
    );
}

#[test]
fn row_running_to_queued_on_a_retryable_cause_while_tries_are_left() {
    check_from(
        "RUNNING max=2",
        "+1s fail:lost; +10s claim; start; fail:crash",
        "1s fail:lost QUEUED same @11s [terminate#1 offer]
         11s claim CLAIMED #2 same [prepare#2]
         11s start RUNNING #2 [execute#2]
         11s fail:crash FAILED crash [terminate#2 rest]",
    );
}

#[test]
fn row_running_to_queued_on_a_usage_limit_without_using_a_try() {
    check_from(
        "RUNNING",
        "fail:usage_limit; claim; +30m claim",
        "0s fail:usage_limit QUEUED same @1800s [terminate#1 offer]
         0s claim deny 1 blockers
         1800s claim CLAIMED #2 same [prepare#2]",
    );
}

#[test]
fn row_running_to_failed_otherwise() {
    for cause in ["crash", "agent_failed", "idle_timeout", "stuck_running", "heartbeat_timeout"] {
        let script = format!("fail:{cause}");
        check_from("RUNNING", &script, &format!("0s {script} FAILED {cause} [terminate#1 rest]"));
    }
    check_from(
        "RUNNING",
        "publish; not-pushed",
        "0s publish RUNNING #1 [push#1]
         0s not-pushed FAILED publish_failed [terminate#1 rest]",
    );
}

#[test]
fn row_running_to_timed_out_on_a_deadline() {
    for clock in ["absolute", "inactivity"] {
        let script = format!("expire:{clock}");
        let trace = format!("0s {script} TIMED_OUT {clock} [terminate#1 rest]");
        check_from("RUNNING", &script, &trace);
    }
}

#[test]
fn an_agent_that_never_shows_a_sign_of_life_has_failed() {
    check_from(
        "RUNNING max=2",
        "expire:start; +10s claim; start; expire:start",
        "0s expire:start QUEUED same @10s [terminate#1 offer]
         10s claim CLAIMED #2 same [prepare#2]
         10s start RUNNING #2 [execute#2]
         10s expire:start FAILED never_started [terminate#2 rest]",
    );
}

#[test]
fn row_blocked_to_failed_on_a_failed_subtask_without_active_sibling() {
    check_from(
        "RUNNING",
        "succeed:1-active; subtasks:1-active-1-failed; subtasks:1-failed",
        "0s succeed:1-active BLOCKED subtasks [terminate#1]
         0s subtasks:1-active-1-failed ignore
         0s subtasks:1-failed FAILED subtask_failed [rest]",
    );
    check_from(
        "RUNNING",
        "ask; subtasks:1-failed",
        "0s ask BLOCKED held#1 [question]
         0s subtasks:1-failed ignore",
    );
}

#[test]
fn row_ready_to_completed_on_accept_of_the_attempt_it_saw() {
    check_from(
        "READY",
        "accept#7; accept",
        "0s accept#7 deny other attempt
         0s accept COMPLETED [rest]",
    );
}

#[test]
fn row_ready_to_pending_on_reject() {
    check_from("READY", "reject; run", "0s reject PENDING same []\n0s run QUEUED same [offer]");
}

#[test]
fn row_failed_and_timed_out_to_queued_on_retry_or_resume() {
    for state in ["FAILED", "TIMED_OUT"] {
        check_from(state, "retry", "0s retry QUEUED fresh [disregard requeue offer]");
        check_from(state, "resume", "0s resume QUEUED same [requeue offer]");
    }
}

#[test]
fn row_failed_dependency_to_queued_when_it_is_queued_again() {
    check(
        "run; dependency-rested; dependency-requeued-other; dependency-requeued",
        "0s run QUEUED fresh [offer]
         0s dependency-rested FAILED dependency_failed [rest]
         0s dependency-requeued-other ignore
         0s dependency-requeued QUEUED fresh [requeue offer]",
    );
    check(
        "run; dependency-rested; dependency-requeued-still",
        "0s run QUEUED fresh [offer]
         0s dependency-rested FAILED dependency_failed [rest]
         0s dependency-requeued-still FAILED dependency_failed [rest]",
    );
}

#[test]
fn row_failed_subtask_to_blocked_when_it_is_queued_again() {
    check_from(
        "RUNNING",
        "succeed:1-failed; subtask-requeued-other; subtask-requeued; subtasks",
        "0s succeed:1-failed FAILED subtask_failed [terminate#1 rest]
         0s subtask-requeued-other ignore
         0s subtask-requeued BLOCKED subtasks [requeue]
         0s subtasks READY #1 [ready]",
    );
}

#[test]
fn row_any_but_final_to_cancelled() {
    for (label, state, _) in every_state() {
        let expected = match (state, state.attempt()) {
            (State::Completed, _) => "0s cancel deny continue",
            (State::BudgetExceeded, _) => "0s cancel deny resume continue",
            (State::Cancelled, _) => "0s cancel ignore",
            (_, Some(_)) => "0s cancel CANCELLED [descendants terminate#1 rest]",
            (_, None) => "0s cancel CANCELLED [descendants rest]",
        };
        assert_eq!(World::at(label).play("cancel"), expected, "{label}");
    }
}

#[test]
fn row_to_budget_exceeded_from_queued_claimed_running_blocked() {
    for (label, state, _) in every_state() {
        let expected = match state {
            State::Queued { .. } => "0s budget BUDGET_EXCEEDED [rest]",
            State::Blocked(Blocked::Question { .. } | Blocked::Subtasks { .. }) => {
                "0s budget BUDGET_EXCEEDED [rest]"
            }
            State::Claimed { .. }
            | State::Running { .. }
            | State::Blocked(Blocked::Held { .. }) => {
                "0s budget BUDGET_EXCEEDED [terminate#1 rest]"
            }
            _ => "0s budget ignore",
        };
        assert_eq!(World::at(label).play("budget"), expected, "{label}");
    }
}

// What the table says in words.

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

// What broke in earlier designs.

#[test]
fn lesson_all_subtasks_done_is_not_vacuously_true_for_leaves() {
    for state in ["PENDING", "QUEUED", "CLAIMED", "RUNNING", "QUESTION"] {
        check_from(state, "subtasks", "0s subtasks ignore");
    }
}

#[test]
fn lesson_a_failed_subtask_does_not_leave_its_parent_blocked_for_ever() {
    check_from(
        "SUBTASKS",
        "subtasks:1-failed",
        "0s subtasks:1-failed FAILED subtask_failed [rest]",
    );
}

#[test]
fn lesson_blocked_can_be_cancelled() {
    check_from("HELD", "cancel", "0s cancel CANCELLED [descendants terminate#1 rest]");
    check_from("QUESTION", "cancel", "0s cancel CANCELLED [descendants rest]");
    check_from("SUBTASKS", "cancel", "0s cancel CANCELLED [descendants rest]");
}

#[test]
fn lesson_a_resumed_run_can_be_cancelled() {
    check_from(
        "FAILED",
        "resume; claim; start; cancel",
        "0s resume QUEUED same [requeue offer]
         0s claim CLAIMED #2 same [prepare#2]
         0s start RUNNING #2 [execute#2]
         0s cancel CANCELLED [descendants terminate#2 rest]",
    );
}

#[test]
fn lesson_stopped_is_not_overwritten_by_a_later_error() {
    check_from(
        "RUNNING",
        "cancel; fail:crash; expire:absolute",
        "0s cancel CANCELLED [descendants terminate#1 rest]
         0s fail:crash deny fenced
         0s expire:absolute deny fenced",
    );
}

#[test]
fn lesson_reaching_a_limit_is_never_success() {
    check_from(
        "RUNNING",
        "expire:absolute; succeed; publish",
        "0s expire:absolute TIMED_OUT absolute [terminate#1 rest]
         0s succeed deny fenced
         0s publish deny fenced",
    );
}

#[test]
fn lesson_the_attempt_and_claimed_are_one_commit() {
    let mut world = World::at("QUEUED");
    world.play("claim");
    let attempt = world.attempt.expect("the claim made it");
    assert_eq!(world.task.state.attempt(), Some(attempt.number));
    assert_eq!(world.task.attempts, attempt.number);
}

#[test]
fn lesson_max_attempts_is_enforced() {
    let mut world = World::at("RUNNING max=3");
    let trace = world.play(
        "fail:crash; +10s claim; start; fail:crash; +20s claim; start; fail:crash; +999s claim",
    );
    assert_eq!(world.task.attempts, AttemptNumber(3));
    assert!(trace.ends_with("deny retry resume cancel"), "{trace}");
}

#[test]
fn lesson_permanent_failures_do_not_restart_for_ever() {
    for cause in ["auth", "configuration"] {
        let script = format!("fail:{cause}");
        let trace = format!("0s {script} FAILED {cause} [terminate#1 rest]");
        check_from("RUNNING max=9", &script, &trace);
        check_from("CLAIMED", &script, &trace);
    }
}

#[test]
fn lesson_a_new_status_cannot_be_missing_from_a_group() {
    for (label, state, _) in every_state() {
        let moves = every_event().into_iter().filter(|(_, event)| {
            let world = World::at(label);
            matches!(world.step(event), crate::Disposition::Accept(_))
        });
        let moves: Vec<_> = moves.map(|(name, _)| name).collect();
        let group = state.group();
        assert_eq!(moves.is_empty(), group == Group::Final, "{label}: {moves:?}");
        let by_itself = moves.iter().any(|name| {
            let by_person =
                ["run", "cancel", "accept", "reject", "answer", "retry", "resume"].contains(name);
            !by_person && !name.ends_with("requeued") && *name != "budget"
        });
        let expected = match state {
            // Held: its attempt can still end. Released: only a person can go on.
            State::Blocked(Blocked::Held { .. }) => true,
            _ => group == Group::Active,
        };
        assert_eq!(by_itself, expected, "{label}: {moves:?}");
    }
}

#[test]
fn verbs_are_what_the_machine_accepts_from_a_person() {
    for (label, state, _) in every_state() {
        let accepted: Vec<_> = every_event()
            .into_iter()
            .filter(|(_, event)| World::at(label).step(event).accepted().is_some())
            .map(|(name, _)| name)
            .collect();
        for verb in Verb::ALL {
            let follow_up =
                verb == Verb::Continue || (verb == Verb::Resume && state.group() == Group::Final);
            if !follow_up {
                let listed = state.verbs().contains(&verb);
                assert_eq!(listed, accepted.contains(&verb.name()), "{label}: {verb}");
            }
        }
    }
}

#[test]
fn every_state_answers_every_event() {
    let mut table = String::new();
    for (label, _, _) in every_state() {
        for (name, event) in every_event() {
            let answer = match World::at(label).step(&event) {
                crate::Disposition::Accept(next) => script::show_state(&next.task.state),
                crate::Disposition::Ignore => "ignore".into(),
                crate::Disposition::Deny(denial) => {
                    format!("deny {}", script::show_denial(&denial))
                }
            };
            table.push_str(&format!("{label:<10} {name:<20} {answer}\n"));
        }
    }
    insta::assert_snapshot!(table);
}

// What must hold whatever happens.

proptest! {
    #[test]
    fn final_states_absorb_and_numbers_only_grow(
        choices in prop::collection::vec((0usize..every_event().len(), 0u64..200), 1..60),
        max_attempts in 1u32..4,
    ) {
        let mut world = World::at(&format!("PENDING max={max_attempts}"));
        for (choice, seconds) in choices {
            let (name, event) = every_event().swap_remove(choice);
            let event = script::for_attempt(event, world.task.attempts);
            let before = world.clone();
            world.wait(seconds);
            if let crate::Disposition::Accept(next) = world.step(&event) {
                prop_assert!(before.task.state.group() != Group::Final, "{name}");
                prop_assert!(next.task.attempts >= before.task.attempts);
                prop_assert!(next.task.effort.fruitless >= before.task.effort.fruitless);
                prop_assert!(next.task.since >= before.task.since);
                world.apply(next);
            }
            let caps = Caps::default();
            prop_assert!(world.task.effort.tries <= max_attempts);
            prop_assert!(world.task.effort.failed_starts <= caps.starts);
            prop_assert!(world.task.effort.parks <= caps.parks);
            let acting = world.attempt.filter(Attempt::may_act).map(|attempt| attempt.number);
            prop_assert_eq!(world.task.state.attempt(), acting, "one attempt may act, or none");
            prop_assert!(world.path() != LivePath::None, "nothing moves {:?}", world.task.state);
        }
    }
}
