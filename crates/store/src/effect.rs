//! Effects: what the outside world is to see of a decision, stored in its commit.
//!
//! They are handed out at least once. Whoever takes one holds it for a while; if it is neither
//! settled nor put off until then, it is handed out again. Its number of tries is its fence: a
//! performer that held it too long settles nothing.

use belay_kernel::{AttemptNumber, TaskId, Timestamp};

use crate::event::MAX_BODY;
use crate::refusal::Refusal;
use crate::table::check_text;

/// An effect that a commit stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEffect {
    /// The task that it belongs to.
    pub task: Option<TaskId>,
    /// The attempt that fences it.
    pub attempt: Option<AttemptNumber>,
    /// What is to be done, such as `terminate`.
    pub kind: String,
    /// The particulars, as a JSON document.
    pub body: String,
    /// Not before then.
    pub due_at: Timestamp,
}

impl NewEffect {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_text("effects", "kind", &self.kind, 100)?;
        check_text("effects", "body", &self.body, MAX_BODY)
    }
}

/// An effect that was handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Its number.
    pub id: i64,
    /// How often it was handed out, this time included.
    pub tries: u32,
    /// What it says; `due_at` is the moment at which it is handed out again.
    pub effect: NewEffect,
}

/// What became of an effect that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settle {
    /// It is done: it is forgotten.
    Done,
    /// It is to be handed out again, not before then.
    Again(Timestamp),
}

/// A settling of one effect, as its holder knew it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Which.
    pub id: i64,
    /// The number of tries with which it was handed out.
    pub tries: u32,
    /// What became of it.
    pub what: Settle,
}
