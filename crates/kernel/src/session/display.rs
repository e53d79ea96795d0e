//! What people see of a session: derived from its row, never stored.

use serde::{Deserialize, Serialize};

use super::{Attempt, PauseReason, Session, State, StopReason};

/// What people see of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Display {
    /// Nothing ran in it yet.
    New,
    /// An attempt lives in it.
    Working,
    /// It has a sandbox, and nothing runs in it.
    Waiting,
    /// It is being paused.
    Pausing,
    /// It is paused.
    Paused {
        /// Why.
        reason: PauseReason,
    },
    /// It waits for a person's answer.
    NeedsAnswer,
    /// It waits for a person's review.
    NeedsReview,
    /// It is stopped.
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

/// The status that people see, derived from the row.
pub const fn display(session: &Session) -> Display {
    match session.state {
        State::New => Display::New,
        State::Running { .. } => match session.attempt {
            Attempt::Live => Display::Working,
            Attempt::None => Display::Waiting,
        },
        State::Pausing { .. } => Display::Pausing,
        State::Paused { reason, .. } => match reason {
            PauseReason::Blocked => Display::NeedsAnswer,
            PauseReason::Ready => Display::NeedsReview,
            PauseReason::Inactivity | PauseReason::Orphaned => Display::Paused { reason },
        },
        State::Stopped { reason, .. } => Display::Stopped { reason },
    }
}
