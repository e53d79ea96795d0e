//! What people and programs ask for.

use std::collections::BTreeMap;

use belay_kernel::task::Review;
use belay_kernel::{AttemptNumber, Limit, QuestionId, Scope, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Object, ObjectBuilder};
use utoipa::{IntoParams, ToSchema};

/// A whole number: any that is not negative is taken, and more than makes sense means that.
pub(crate) fn whole_number() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build()
}

/// Limits of a task: by key, a length of time.
fn task_limits() -> Object {
    let ours = Limit::ALL.iter().filter(|limit| limit.scope() == Scope::Task);
    let keys = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(ours.map(|limit| limit.key())));
    let span = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(keys))
        .additional_properties(Some(span))
        .build()
}

/// Variables, by name.
fn variables() -> Object {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(text().pattern(Some("^[A-Za-z_][A-Za-z0-9_]*$"))))
        .additional_properties(Some(text()))
        .build()
}

/// What becomes of a task's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Publishing {
    /// It is kept, and nothing is pushed.
    None,
    /// It is pushed to the task's own branch.
    #[default]
    Branch,
}

/// What becomes of changes in a local base that are not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dirty {
    /// The task is refused.
    #[default]
    Refuse,
    /// The tree begins with them.
    Include,
}

/// A task to be made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewTask {
    /// What the agent is to do.
    #[schema(example = "make the tests pass")]
    pub prompt: String,
    /// In a few words; the prompt's first line, if it is not said.
    pub title: Option<String>,
    /// The agent, if not the role's.
    #[schema(pattern = "^(claude|codex|gemini|opencode|copilot|cursor|acp|command)$")]
    pub agent: Option<String>,
    /// The program and its arguments, if the agent is a plain command.
    pub command: Vec<String>,
    /// The model, if not the role's.
    pub model: Option<String>,
    /// A path or URL of a git repository.
    pub repository: Option<String>,
    /// The branch, tag or commit that the tree begins with.
    pub base: Option<String>,
    /// The branch that the work is pushed to; `belay/<task>`, if it is not said.
    pub branch: Option<String>,
    /// What becomes of the work.
    pub publish: Publishing,
    /// What becomes of changes in a local base that are not committed.
    pub dirty: Dirty,
    /// Who decides about a success.
    pub review: Review,
    /// Limits on time that are not the role's, by key, such as `absolute` = `30m`.
    #[schema(schema_with = task_limits)]
    pub limits: BTreeMap<String, String>,
    /// At most so much money, in US dollars, subtasks included.
    #[schema(exclusive_minimum = 0)]
    pub budget_usd: Option<f64>,
    /// At most so many tokens, subtasks included.
    #[schema(minimum = 1)]
    pub max_tokens: Option<u64>,
    /// Whether an agent whose usage cannot be counted is accepted although there is a budget.
    pub allow_uncounted: bool,
    /// How many attempts are made without a person; 1, if it is not said.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_attempts: Option<u32>,
    /// Higher is claimed first; may be negative.
    pub priority: i64,
    /// Tasks that must complete first.
    pub after: Vec<TaskId>,
    /// The task that this one is a subtask of.
    pub parent: Option<TaskId>,
    /// The role whose workers may claim it; `default`, if it is not said.
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,39}$")]
    pub role: Option<String>,
    /// Variables that the agent gets.
    #[schema(schema_with = variables)]
    pub environment: BTreeMap<String, String>,
    /// The provider, if not the role's.
    pub provider: Option<String>,
    /// The image, if the provider needs one.
    pub image: Option<String>,
    /// Whether its session pauses instead of being terminated when it is idle.
    pub keep_alive: bool,
    /// Whether it waits for `run` instead of being queued at once.
    pub hold: bool,
}

/// Which tasks are listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListTasks {
    /// Only those in these states, separated by commas; all, if it is empty.
    pub state: String,
    /// Only those of this role.
    pub role: Option<String>,
    /// Only subtasks of this task.
    pub parent: Option<TaskId>,
    /// Only those whose id begins so.
    pub id: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub after: Option<String>,
}

/// A stop or a cancel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// Wait so many milliseconds for the receipt; zero for a cancel, which does not wait.
    #[schema(schema_with = whole_number)]
    pub wait_ms: u64,
}

/// What is done with a task, said in the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// What.
    pub action: Action,
    /// Wait so many milliseconds for the receipt; ten seconds, if it is not said.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

/// What can be done so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// End it, for good.
    Stop,
}

/// An accept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Accept {
    /// The attempt whose work was seen; the one under review, if it is not said.
    pub attempt: Option<AttemptNumber>,
}

/// A reject, with an optional comment for the next attempt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Comment {
    /// What is wrong with the work.
    pub comment: Option<String>,
    /// Whether it runs again at once.
    pub run: bool,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// The question; the open one, if it is not said.
    pub question: Option<QuestionId>,
    /// The answer, or the number of an option.
    pub text: String,
}

/// A resume, or a retry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resume {
    /// What to tell the agent.
    pub message: Option<String>,
}

/// A follow-up of a task that is over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Continue {
    /// What the agent is to do next.
    pub message: String,
}

/// A backup to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBackup {
    /// Where it goes: an absolute path on the server's machine, where nothing is yet.
    pub path: String,
}

/// Which events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AfterCursor {
    /// Those after this cursor; all that are kept, if it is not said.
    pub after: Option<String>,
    /// Wait so many milliseconds for one, if there is none; at most a minute.
    #[param(schema_with = whole_number)]
    pub wait_ms: u64,
}

/// Which events are listened to, and after which.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Listen {
    /// Those after this cursor; `oldest` for all that are kept, nothing for those from now on.
    pub after: Option<String>,
    /// Only those of these tasks, with commas between their ids.
    pub task: String,
    /// Only those of these workflows, with commas between their ids.
    pub workflow: String,
    /// Only those of these kinds, with commas between: `task.failed`, `agent.*`, `task_completed`,
    /// `task_question`. It may be called `type` too.
    #[serde(alias = "type")]
    pub kind: String,
    /// A ticket instead of a token, for pages; it is used once.
    pub ticket: Option<String>,
}

/// Which bytes of which attempt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TranscriptRange {
    /// The attempt; the last one, if it is not said.
    pub attempt: Option<u32>,
    /// From this byte on.
    #[param(schema_with = whole_number)]
    pub from: u64,
    /// Wait so many milliseconds for more, if there is none; at most a minute.
    #[param(schema_with = whole_number)]
    pub wait_ms: u64,
}

/// Which attempt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WhichAttempt {
    /// The attempt; the last one, if it is not said.
    pub attempt: Option<u32>,
}
