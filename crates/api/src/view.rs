//! What people and programs are shown. Moments are milliseconds since 1970.

use belay_kernel::attempt::{Attempt, Proof};
use belay_kernel::claim::Blocker;
use belay_kernel::publish::{CommitId, Publish};
use belay_kernel::receipt::{Pending, Receipt};
use belay_kernel::status::Group;
use belay_kernel::task::{Failure, Review, State, Verb};
use belay_kernel::why::Why;
use belay_kernel::{
    AttemptNumber, Cause, Money, QuestionId, Reading, SandboxId, SessionId, TaskId, Timestamp,
    Usage, WorkflowId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attempt::ProgressView;

/// A task, in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskSummary {
    /// Its id.
    pub id: TaskId,
    /// In a few words.
    pub title: String,
    /// The name of its state, such as `RUNNING`.
    pub state: String,
    /// What the state means to whoever waits.
    pub group: Group,
    /// Why it is in that state: a stable code.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its role.
    pub role: String,
    /// Its agent.
    pub agent: String,
    /// The task that it is a subtask of.
    pub parent: Option<TaskId>,
    /// Its last attempt; zero, if there was none.
    pub attempts: AttemptNumber,
    /// Its priority.
    pub priority: i64,
    /// How many dependencies have not completed.
    pub waits_for: u32,
    /// What it has cost so far, as far as it is known, with everything below it.
    pub cost: Money,
    /// The tokens it has used, with everything below it.
    pub tokens: u64,
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    /// The tasks, newest first.
    pub tasks: Vec<TaskSummary>,
    /// Where to go on, if there may be more.
    pub after: Option<String>,
}

/// A subtask, or a task that is waited for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChildView {
    /// Its id.
    pub id: TaskId,
    /// In a few words.
    pub title: String,
    /// The name of its state.
    pub state: String,
    /// Whether its parent disregards it, since a `retry`.
    pub disregarded: bool,
}

/// A question, and its answer when there is one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuestionView {
    /// Its id.
    pub id: QuestionId,
    /// In which attempt it was asked.
    pub attempt: AttemptNumber,
    /// What was asked.
    pub text: String,
    /// What may be chosen.
    pub options: Vec<String>,
    /// When.
    pub asked_at: Timestamp,
    /// The answer.
    pub answer: Option<String>,
    /// When it was answered.
    pub answered_at: Option<Timestamp>,
}

/// An attempt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Its life.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// Its sandbox.
    pub sandbox: Option<SandboxId>,
    /// Why it ended.
    pub cause: Option<Cause>,
    /// What was said about its end.
    pub message: Option<String>,
    /// The clock that ended it.
    pub fired: Option<Reading>,
    /// What it has used.
    pub usage: Usage,
    /// The bytes of its transcript that are durable.
    pub transcript_length: u64,
    /// The ref under which its tree is kept.
    pub kept_ref: Option<String>,
    /// The commit that holds it.
    pub kept_commit: Option<CommitId>,
    /// When its task moved on.
    pub ending_at: Option<Timestamp>,
    /// When its processes were proven gone.
    pub proven_at: Option<Timestamp>,
}

/// A task, whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// What a list shows.
    #[serde(flatten)]
    pub summary: TaskSummary,
    /// Its state, with its data.
    pub detail: State,
    /// How it failed, if it did.
    pub failure: Option<Failure>,
    /// Why it is in its state, in a sentence.
    pub sentence: String,
    /// What a person can do now.
    pub verbs: Vec<Verb>,
    /// What the agent was told.
    pub prompt: String,
    /// Who decides about a success.
    pub review: Review,
    /// Its session, once it has one.
    pub session: Option<SessionId>,
    /// The repository.
    pub repository: Option<String>,
    /// What the tree began with.
    pub base: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The plain command.
    pub command: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The task that this one continues.
    pub continues: Option<TaskId>,
    /// At most so much money.
    pub max_cost: Option<Money>,
    /// At most so many tokens.
    pub max_tokens: Option<u64>,
    /// Its attempts, newest first.
    pub attempt_list: Vec<AttemptView>,
    /// Its subtasks.
    pub subtasks: Vec<ChildView>,
    /// What it waits for.
    pub after: Vec<ChildView>,
    /// What was asked and answered, oldest first.
    pub questions: Vec<QuestionView>,
    /// What the last attempt said it did.
    pub summary_text: Option<String>,
    /// What the last attempt that said so said of its progress.
    #[serde(default)]
    pub progress: Option<ProgressView>,
    /// The row's revision, for `If-Match`.
    pub revision: u64,
}

/// Why a task is where it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// The task.
    pub task: TaskId,
    /// The structure.
    #[serde(flatten)]
    pub why: Why,
    /// The same in sentences, one a line: the state, the rule, what it waits for, what comes next.
    pub sentences: Vec<String>,
    /// What keeps it queued.
    pub blockers: Vec<Blocker>,
    /// What the sandbox's evidence means now, if it has one.
    pub verdict: Option<String>,
    /// The clocks that run against it, with measured and allowed values.
    pub clocks: Vec<Reading>,
}

/// A stop that is acknowledged, or is not yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "standing")]
pub enum Stopping {
    /// The intent is committed; this is waited for.
    Stopping {
        /// What for.
        pending: Vec<Pending>,
    },
    /// It is acknowledged.
    Stopped {
        /// The receipt.
        receipt: Box<ReceiptView>,
    },
}

/// A stop receipt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReceiptView {
    /// The task.
    pub task: TaskId,
    /// What is certain.
    #[serde(flatten)]
    pub receipt: Receipt,
    /// What became of a push: `pushed SHA`, `not pushed`.
    pub publish: Publish,
    /// The kind of proof, in a word, if there was anything to prove.
    pub proof_kind: Option<Proof>,
    /// The ref under which unfinished work is kept.
    pub kept_ref: Option<String>,
    /// The commit that holds it.
    pub kept_commit: Option<CommitId>,
}

/// An event, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Its cursor: events after it are read with this.
    pub cursor: String,
    /// The task it tells of.
    pub task: Option<TaskId>,
    /// The attempt it tells of.
    pub attempt: Option<AttemptNumber>,
    /// The workflow it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowId>,
    /// What happened, such as `task.running` or `agent.tool_use`.
    pub kind: String,
    /// What it announces to whoever waits for the task, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announces: Option<Announcement>,
    /// The particulars.
    pub body: serde_json::Value,
    /// When.
    pub at: Timestamp,
}

/// What people and programs wait for, by name.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Announcement {
    /// The task came to rest, or its work waits for review: nothing happens without a person.
    TaskCompleted,
    /// The agent asks a person.
    TaskQuestion,
}

impl Announcement {
    /// The name, in streams, filters and webhooks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TaskCompleted => "task_completed",
            Self::TaskQuestion => "task_question",
        }
    }

    /// What an event of this kind, with this JSON body, announces. This is the only place that
    /// says so.
    pub fn of(kind: &str, body: &str) -> Option<Self> {
        /// What the event of a transition says of it.
        #[derive(Deserialize)]
        struct Moved<'a> {
            from: &'a str,
            state: &'a str,
            group: Group,
        }
        if kind == "task.question" {
            return Some(Self::TaskQuestion);
        }
        if !kind.starts_with("task.") {
            return None;
        }
        let moved: Moved<'_> = serde_json::from_str(body).ok()?;
        let over = moved.group.is_at_rest() || moved.state == READY;
        (over && moved.from != moved.state).then_some(Self::TaskCompleted)
    }
}

/// The state in which work waits for a person's review.
const READY: &str = "READY";

/// Events in order, and where to go on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// The events.
    pub events: Vec<EventView>,
    /// Where to go on.
    pub cursor: String,
}

/// A piece of a transcript.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TranscriptPiece {
    /// The attempt.
    pub attempt: AttemptNumber,
    /// Where the bytes begin; more than was asked for, if bytes before are missing.
    pub from: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether nothing will follow them.
    pub ended: bool,
}

/// Whether the server is well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or what is wrong.
    pub status: String,
    /// The version of the server.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// The database behind it.
    pub store: String,
    /// How many attempts are under way.
    pub attempts: u32,
}

/// Whether work can be taken: the database answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// `ready`.
    pub status: String,
}

/// What speaks here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version of the server.
    pub version: String,
    /// The version of what is said: the part of the path after `/api/`.
    pub api: String,
}

/// A backup that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Backup {
    /// Where it is, on the server's machine.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_rest_or_asks_is_announced() {
        let moved = |from: &str, state: &str, group: &str| {
            let kind = format!("task.{}", state.to_lowercase());
            let body = serde_json::json!({ "from": from, "state": state, "group": group });
            Announcement::of(&kind, &body.to_string())
        };
        for (state, group) in [
            ("COMPLETED", "final"),
            ("CANCELLED", "final"),
            ("BUDGET_EXCEEDED", "final"),
            ("FAILED", "resting"),
            ("TIMED_OUT", "resting"),
            ("READY", "waiting_for_person"),
        ] {
            let announced = moved("RUNNING", state, group);
            assert_eq!(announced, Some(Announcement::TaskCompleted), "{state}");
            assert_eq!(moved(state, state, group), None, "it rested before");
        }
        assert_eq!(moved("RUNNING", "BLOCKED", "waiting_for_person"), None);
        assert_eq!(moved("CLAIMED", "RUNNING", "active"), None);
        assert_eq!(Announcement::of("task.question", "{}"), Some(Announcement::TaskQuestion));
        assert_eq!(Announcement::of("agent.completed", "{\"group\":\"final\"}"), None);
        assert_eq!(Announcement::of("task.claimed", "no JSON"), None);
    }
}
