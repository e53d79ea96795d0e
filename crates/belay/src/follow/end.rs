//! The end of a followed task: how it ended, in whose words, and what can be done next.

use belay_api::{AttemptView, TaskView};
use belay_kernel::publish::Publish;
use belay_kernel::task::Failure;
use belay_kernel::{Cause, TaskId};

use crate::screen::{Palette, clean, say};
use crate::show::used;
use crate::verbs::{open_question, question_lines};

/// Says how it ended, and what can be done next.
pub(super) fn tell(task: &TaskView) {
    for line in lines(task, Palette::stdout()) {
        say(&line);
    }
}

fn lines(task: &TaskView, palette: Palette) -> Vec<String> {
    let summary = &task.summary;
    let sentence = clean(&task.sentence);
    let mut lines = vec![format!("{}  {}  {sentence}", palette.state(&summary.state), summary.id)];
    let mut field = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<9}{value}"));
        }
    };
    field("why", said_of_the_end(task).unwrap_or_default());
    let said = task.summary_text.as_deref().map(str::trim).filter(|said| !said.is_empty());
    field("summary", said.map(clean).unwrap_or_default());
    field("used", used(task));
    let pushed = |view: &AttemptView| matches!(view.attempt.publish, Publish::Pushed(_));
    let branch = task.branch.as_deref().filter(|_| task.attempt_list.iter().any(pushed));
    field("branch", branch.map(clean).unwrap_or_default());
    if let Some(question) = open_question(task).filter(|_| summary.state == "BLOCKED") {
        field("question", question_lines(question));
    }
    field("next", next(&summary.state, task.failure, last_cause(task), summary.id));
    lines
}

/// What was said about the end of the last attempt, where the task did not end well.
fn said_of_the_end(task: &TaskView) -> Option<String> {
    let ended_badly = matches!(
        task.summary.state.as_str(),
        "FAILED" | "TIMED_OUT" | "BUDGET_EXCEEDED" | "QUEUED"
    );
    let message = task.attempt_list.first()?.message.as_deref().map(str::trim)?;
    (ended_badly && !message.is_empty()).then(|| clean(message))
}

fn last_cause(task: &TaskView) -> Option<Cause> {
    let of_attempt = task.attempt_list.first().and_then(|attempt| attempt.cause);
    match task.failure.map(Failure::cause) {
        // What kept the agent from starting is with the attempts.
        Some(Cause::StartFailed) => of_attempt.or(Some(Cause::StartFailed)),
        Some(cause) => Some(cause),
        None => of_attempt,
    }
}

/// What a person can do next, as commands that can be typed.
fn next(state: &str, failure: Option<Failure>, cause: Option<Cause>, id: TaskId) -> String {
    match (state, failure, cause) {
        ("READY", ..) => format!("belay diff {id}; belay accept {id}; belay reject {id} \"…\""),
        ("BLOCKED", ..) => format!("belay answer {id} \"…\""),
        ("FAILED", Some(Failure::Dependency { by, .. } | Failure::Subtask { by, .. }), _) => {
            format!("belay why {by}; belay retry {by} also puts this task on its way again")
        }
        ("FAILED", _, Some(cause)) => after(cause, id),
        ("TIMED_OUT", ..) => format!(
            "belay resume {id} goes on where it was; belay retry {id} begins again; a longer limit \
             is --timeout or --inactivity of a new run"
        ),
        ("BUDGET_EXCEEDED", ..) => {
            format!("belay diff {id} shows what it did; belay continue {id} \"…\" goes on")
        }
        ("CANCELLED", ..) => format!("belay resume {id} goes on in a new task"),
        _ => String::new(),
    }
}

/// What helps after a failure for this cause.
fn after(cause: Cause, id: TaskId) -> String {
    match cause {
        Cause::Configuration => format!("set that right, then belay retry {id}"),
        Cause::Auth => format!(
            "belay doctor names the variable that holds the credentials; set it, then run the task \
             again, or belay retry {id} where the agent logs in by itself"
        ),
        Cause::PublishFailed => {
            format!("belay resume {id} publishes the same work again, without running the agent")
        }
        Cause::ContextOverflow => {
            format!("belay retry {id} begins a new conversation; a smaller task may fit")
        }
        Cause::Refusal => format!("say it differently: belay run \"…\"; belay logs {id}"),
        Cause::IdleTimeout | Cause::Inactivity | Cause::MaxDuration | Cause::StuckRunning => {
            format!("belay resume {id} goes on where it was; belay why {id} names the clock")
        }
        Cause::NoProgress => format!("belay logs {id} shows what it did; belay retry {id}"),
        Cause::Crash
        | Cause::Lost
        | Cause::Infrastructure
        | Cause::Network
        | Cause::HeartbeatTimeout
        | Cause::NeverStarted
        | Cause::RateLimit
        | Cause::SandboxExpired
        | Cause::UsageLimit
        | Cause::AgentFailed
        | Cause::DependencyFailed
        | Cause::SubtaskFailed
        | Cause::StartFailed
        | Cause::Budget
        | Cause::Cancelled => {
            format!("belay logs {id}; belay resume {id} goes on; belay retry {id} begins again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_kernel::task::Plan;

    #[test]
    fn every_end_that_is_not_done_says_what_to_do_next() {
        let id = TaskId::from_bits(7);
        for cause in Cause::ALL {
            let text = next("FAILED", Some(Failure::Cause(*cause)), Some(*cause), id);
            assert!(
                text.contains(&format!("belay logs {id}")) || text.contains("belay"),
                "{cause}"
            );
            assert!(text.contains(&id.to_string()), "{cause}: {text}");
        }
        for state in ["READY", "BLOCKED", "TIMED_OUT", "BUDGET_EXCEEDED", "CANCELLED"] {
            assert!(next(state, None, None, id).contains(&id.to_string()), "{state}");
        }
        assert_eq!(next("COMPLETED", None, None, id), "");
    }

    #[test]
    fn a_failed_dependency_is_named_because_it_is_what_has_to_be_mended() {
        let (id, by) = (TaskId::from_bits(7), TaskId::from_bits(8));
        let failure = Failure::Dependency { by, plan: Plan::Fresh };
        let text = next("FAILED", Some(failure), Some(Cause::DependencyFailed), id);
        assert!(text.contains(&format!("belay retry {by}")), "{text}");
    }
}
