//! Every row of the table of states, by name.

use super::super::*;
use super::script::{World, check, check_from, every_state};

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
fn a_queued_task_goes_on_with_its_session_unless_it_begins_anew() {
    let queued = |plan| State::Queued { plan, not_before: None };
    let goes_on = [Plan::Fresh, Plan::Same, Plan::Republish].map(|plan| queued(plan).goes_on());
    assert_eq!(goes_on, [false, true, true]);
    assert!(!State::Pending { plan: Plan::Same }.goes_on(), "nobody may claim it");
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
