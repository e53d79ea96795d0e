//! What an agent says with its attempt's own token, and what it is told.

use belay_kernel::{AttemptNumber, QuestionId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A question to the person.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewQuestion {
    /// What is asked.
    pub text: String,
    /// What may be chosen.
    pub options: Vec<String>,
}

/// How a question stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Asking {
    /// The question; nothing as long as it waits for another one of the same attempt.
    pub question: Option<QuestionId>,
    /// The answer, once there is one.
    pub answer: Option<String>,
}

/// How far an agent is, in its own words.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// What it does, or did.
    pub text: String,
    /// How much of the task is done, of 100.
    pub percent: Option<u8>,
}

/// What came of an agent's work.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Submission {
    /// The result, as Markdown.
    pub text: String,
}

/// The longest result, in bytes.
pub const RESULT_LIMIT: usize = 100_000;
/// The longest report of progress, in bytes.
pub const PROGRESS_LIMIT: usize = 4_000;

/// What an agent last said of its progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProgressView {
    /// In which attempt.
    pub attempt: AttemptNumber,
    /// What it said.
    pub text: String,
    /// When.
    pub at: Timestamp,
}
