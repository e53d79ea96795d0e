//! What the tools take. The comments are what assistants and agents read.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

/// Who decides about a success.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Review {
    /// A person accepts or rejects it.
    Manual,
    /// It is accepted as it comes.
    Auto,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTask {
    /// What the agent is to do, with everything that it needs to know.
    pub(super) prompt: String,
    /// The task in a few words.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The agent: claude, codex, gemini, opencode, copilot or cursor. Leave it out for the usual
    /// one.
    #[serde(default)]
    pub(super) agent: Option<String>,
    /// The model, in the agent's own words.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// The git repository to work on: an absolute path, or a URL.
    #[serde(default)]
    pub(super) repository: Option<String>,
    /// The branch, tag or commit to begin with.
    #[serde(default)]
    pub(super) base: Option<String>,
    /// The branch that the work is pushed to; `belay/<task>` if it is left out.
    #[serde(default)]
    pub(super) branch: Option<String>,
    /// Who decides about a success: manual (the default) or auto.
    #[serde(default)]
    pub(super) review: Option<Review>,
    /// At most so much money, in US dollars.
    #[serde(default)]
    pub(super) budget_usd: Option<f64>,
    /// At most so many tokens.
    #[serde(default)]
    pub(super) max_tokens: Option<u64>,
    /// How long one attempt may take, such as 30m.
    #[serde(default)]
    pub(super) timeout: Option<String>,
    /// How many attempts are made without a person.
    #[serde(default)]
    pub(super) max_attempts: Option<u32>,
    /// Ids of tasks that must complete first.
    #[serde(default)]
    pub(super) after: Vec<String>,
    /// Higher is run first.
    #[serde(default)]
    pub(super) priority: i64,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTasks {
    /// Only tasks in these states, such as RUNNING, BLOCKED, READY or FAILED.
    #[serde(default)]
    pub(super) states: Vec<String>,
    /// At most so many; 20 if it is left out.
    #[serde(default)]
    pub(super) limit: Option<u32>,
    /// Where the last page ended, as that page said.
    #[serde(default)]
    pub(super) after: Option<String>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The task's id, or as much of it as is unique.
    pub(super) task: String,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ContinueTask {
    /// The task's id, or as much of it as is unique.
    pub(super) task: String,
    /// What the agent is to do next.
    pub(super) message: String,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerQuestion {
    /// The task's id, or as much of it as is unique.
    pub(super) task: String,
    /// The answer, or the number of an option.
    pub(super) answer: String,
    /// The question's id, as get_task shows it; the open one if it is left out.
    #[serde(default)]
    pub(super) question: Option<String>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptTask {
    /// The task's id, or as much of it as is unique.
    pub(super) task: String,
    /// The attempt whose work was looked at; the one under review if it is left out.
    #[serde(default)]
    pub(super) attempt: Option<u32>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectTask {
    /// The task's id, or as much of it as is unique.
    pub(super) task: String,
    /// What is wrong with the work; the next attempt is told.
    #[serde(default)]
    pub(super) comment: Option<String>,
    /// Whether it is run again at once.
    #[serde(default)]
    pub(super) run: bool,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct AskUser {
    /// What you want to know, in one question, with what the person needs to answer it.
    #[serde(alias = "text")]
    pub(super) question: String,
    /// Answers to choose from, if there are some. The person may also answer otherwise.
    #[serde(default)]
    pub(super) options: Vec<String>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportProgress {
    /// What you have done, or do now, in a sentence.
    #[serde(alias = "text")]
    pub(super) message: String,
    /// How much of the task is done, of 100.
    #[serde(default)]
    pub(super) percent: Option<u8>,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitResult {
    /// What came of your work, as Markdown of at most 100,000 bytes: what you did, how you know
    /// that it works, what is left.
    #[serde(alias = "text")]
    pub(super) result: String,
}

#[derive(Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct AddSubtask {
    /// What the agent of the subtask is to do. It sees your last commit, and nothing of this
    /// conversation.
    pub(super) prompt: String,
    /// The subtask in a few words.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The agent, if not the same as yours.
    #[serde(default)]
    pub(super) agent: Option<String>,
    /// The model, in that agent's own words.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// Ids of tasks that must complete first.
    #[serde(default)]
    pub(super) after: Vec<String>,
}
