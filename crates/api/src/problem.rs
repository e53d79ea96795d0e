//! Problems, as RFC 9457 tells them, with codes that programs can rely on.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What kind of problem it is: stable, for programs.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request makes no sense: a bad value, a bad name, a bad body.
    BadRequest,
    /// No token, or one that is not known.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The shortened id stands for several.
    Ambiguous,
    /// It is not a move from the state that it is in.
    IllegalMove,
    /// It speaks for something that is not current any more.
    Fenced,
    /// What it speaks for is over.
    Gone,
    /// Something that comes before it has not come; send again from there.
    OutOfOrder,
    /// A dependency, a budget, a cap or a rule forbids it.
    Refused,
    /// The idempotency key was used for another request.
    IdempotencyKeyReused,
    /// It is larger than is taken.
    TooLarge,
    /// It was changed since it was read.
    Overtaken,
    /// Too many requests failed; ask again later.
    TooManyRequests,
    /// It cannot be done now; ask again.
    Unavailable,
    /// A fault of Belay's own.
    Internal,
}

impl Code {
    /// The code's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Ambiguous => "ambiguous",
            Self::IllegalMove => "illegal_move",
            Self::Fenced => "fenced",
            Self::Gone => "gone",
            Self::OutOfOrder => "out_of_order",
            Self::Refused => "refused",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::TooLarge => "too_large",
            Self::Overtaken => "overtaken",
            Self::TooManyRequests => "too_many_requests",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Ambiguous | Self::IllegalMove | Self::Fenced | Self::OutOfOrder => 409,
            Self::Gone => 410,
            Self::Overtaken => 412,
            Self::TooLarge => 413,
            Self::Refused | Self::IdempotencyKeyReused => 422,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

/// A problem document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[schema(as = ProblemBody)]
#[error("{detail}")]
pub struct Problem {
    /// What kind of problem it is.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// What happened, why, and what to do next: a sentence for people.
    pub detail: String,
    /// The moves that are legal instead, or the ids that were meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Ask again after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// The request that it is about, as the server's log names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            choices: Vec::new(),
            retry_after: None,
            request_id: None,
        }
    }

    /// The same, with what can be done or was meant instead.
    #[must_use]
    pub fn choices<C: ToString>(mut self, choices: impl IntoIterator<Item = C>) -> Self {
        self.choices = choices.into_iter().map(|choice| choice.to_string()).collect();
        self
    }
}
