//! What broke in earlier designs.

use super::super::*;
use super::script::{World, check_from, every_event, every_state};
use crate::status::Group;

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
