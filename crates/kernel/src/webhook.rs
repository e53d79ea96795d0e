//! Webhooks: which events a receiver is told, in which order, when a delivery is tried again, and
//! when it is given up.
//!
//! ```text
//!  event ─► letter: waiting ──2xx──► gone
//!                     ▲  │ anything else
//!              due ───┘  ├─► waiting, due later        (for a day)
//!                        └─► dead ──replay──► waiting
//! ```
//!
//! Letters of one task form a *lane*, and only the first of a lane is sent: what comes later waits
//! until it is delivered or dead. Lanes do not wait for each other. Rejected: one queue for a hook,
//! in which one task's letter that a receiver cannot digest holds up all others for a day.

mod target;

pub use target::{Network, NetworkError, Place, may_reach};

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::id::TaskId;
use crate::limits::Limits;
use crate::retry::Jitter;
use crate::time::{Span, Timestamp};

/// The most letters of a hook that wait in rows; further events wait in their own table.
pub const MOST_WAITING: usize = 1_000;

/// A kind of event that a hook wants: its name, or how its name begins.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pattern {
    /// This kind alone.
    Exactly(String),
    /// All kinds that begin so.
    Begins(String),
}

/// Why a text is no pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no kind of event: write `task.ready`, `task.*` or `*`")]
pub struct PatternError(String);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (name, open) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
        let whole = name.is_empty() || name.ends_with('.');
        if text.is_empty() || text.len() > 100 || !name.chars().all(plain) || (open && !whole) {
            return Err(PatternError(text.chars().take(40).collect()));
        }
        Ok(if open { Self::Begins(name.to_owned()) } else { Self::Exactly(name.to_owned()) })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => f.write_str(name),
            Self::Begins(name) => write!(f, "{name}*"),
        }
    }
}

/// What a hook is told that names nothing: states of tasks, and alerts; not every word of an agent.
pub fn usual() -> [Pattern; 2] {
    ["task.", "alert."].map(|name| Pattern::Begins(name.to_owned()))
}

/// Whether a hook with these patterns is told of an event of this kind.
pub fn wants(patterns: &[Pattern], kind: &str) -> bool {
    patterns.iter().any(|pattern| match pattern {
        Pattern::Exactly(name) => name == kind,
        Pattern::Begins(name) => kind.starts_with(name.as_str()),
    })
}

/// A letter that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    /// The number of its event: its place in its lane.
    pub number: u64,
    /// Its lane: the task that it tells of. What tells of none is a lane of its own.
    pub task: Option<TaskId>,
    /// Not before then.
    pub due_at: Timestamp,
}

/// What can be sent now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sendable {
    /// The numbers of these letters, the longest due first.
    pub now: Vec<u64>,
    /// When the next one will be due, if nothing else happens.
    pub next: Option<Timestamp>,
}

/// The letters that may be sent: the first of each lane that has none under way, if it is due.
pub fn sendable(
    letters: &[Letter],
    under_way: &BTreeSet<u64>,
    room: usize,
    now: Timestamp,
) -> Sendable {
    let mut order: Vec<_> = letters.iter().collect();
    order.sort_unstable_by_key(|letter| letter.number);
    let mut lanes = BTreeSet::new();
    let (mut due, mut next) = (Vec::new(), None::<Timestamp>);
    for letter in order {
        if !lanes.insert(letter.task) || under_way.contains(&letter.number) {
            continue;
        }
        if letter.due_at <= now {
            due.push(letter);
        } else {
            next = Some(next.map_or(letter.due_at, |at| at.min(letter.due_at)));
        }
    }
    due.sort_by_key(|letter| (letter.due_at, letter.number));
    due.truncate(room);
    Sendable { now: due.into_iter().map(|letter| letter.number).collect(), next }
}

/// A try that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// How often it was tried, this time included.
    pub tries: u32,
    /// Since when it is tried: when it was made, or last replayed.
    pub since: Timestamp,
    /// How long the receiver asks us to wait.
    pub retry_after: Option<Span>,
    /// Drawn by the caller.
    pub jitter: Jitter,
}

/// What becomes of a letter that was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It is tried again, not before then.
    Again(Timestamp),
    /// It is dead, until a person replays it.
    Dead,
}

/// Decides what becomes of a letter whose delivery failed. Each is tried at least once, and for as
/// long as the limit says from when it was made; so the letters behind a receiver that is down for
/// long do not wait a day each.
pub fn after_failure(failed: &Failed, now: Timestamp, limits: &Limits) -> Next {
    let doubled = 1u64.checked_shl(failed.tries.saturating_sub(1)).unwrap_or(u64::MAX);
    let full = limits.webhook_first.times(doubled).min(limits.webhook_longest);
    let wait = failed.jitter.of(full);
    let asked = failed.retry_after.unwrap_or(Span::ZERO).min(limits.webhook_longest);
    let again = now.after(wait.max(asked));
    let gives_up = failed.since.after(limits.webhook_give_up);
    if now >= gives_up { Next::Dead } else { Next::Again(again.min(gives_up)) }
}

#[cfg(test)]
mod tests;
