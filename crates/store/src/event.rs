//! Events, and the cursor by which they are read.
//!
//! An event is appended by the commit that it tells of. Its number says where it stands among all
//! events; within a task, numbers follow revisions. A cursor is such a number together with the
//! installation's epoch, which a restore draws anew: a number from before a restore names another
//! event now, so it is refused instead of being believed.

use std::fmt;
use std::str::FromStr;

use belay_kernel::{AttemptNumber, Revision, SessionId, TaskId, Timestamp, WorkflowId};

use crate::refusal::Refusal;
use crate::table::check_text;

/// The longest body of an event or effect, in bytes.
pub const MAX_BODY: usize = 262_144;
const MAX_KIND: usize = 100;

/// An event that a commit appends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// The task it tells of; within it, events are in order.
    pub task: Option<TaskId>,
    /// The attempt it tells of.
    pub attempt: Option<AttemptNumber>,
    /// The session it tells of.
    pub session: Option<SessionId>,
    /// The workflow it tells of.
    pub workflow: Option<WorkflowId>,
    /// What happened, such as `task.claimed`.
    pub kind: String,
    /// The particulars, as a JSON document.
    pub body: String,
    /// When.
    pub at: Timestamp,
}

impl NewEvent {
    /// An event about a task.
    pub fn task(task: TaskId, kind: &str, body: String, at: Timestamp) -> Self {
        let kind = kind.to_owned();
        Self { task: Some(task), attempt: None, session: None, workflow: None, kind, body, at }
    }

    /// An event that is about no task.
    pub fn general(kind: &str, body: String, at: Timestamp) -> Self {
        let kind = kind.to_owned();
        Self { task: None, attempt: None, session: None, workflow: None, kind, body, at }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_text("events", "kind", &self.kind, MAX_KIND)?;
        check_text("events", "body", &self.body, MAX_BODY)
    }
}

/// An event with its place among all events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number; numbers have no gaps.
    pub number: u64,
    /// The revision of its task that it belongs to; 0 without a task.
    pub revision: Revision,
    /// What it says.
    pub event: NewEvent,
}

/// Where a consumer stands: it has seen everything up to and including this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cursor {
    /// The installation's epoch.
    pub epoch: u64,
    /// The number of the last event that was seen; 0 is before the first.
    pub number: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.number)
    }
}

impl FromStr for Cursor {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (epoch, number) = text.split_once('-').ok_or(Refusal::BadCursor)?;
        let signed = |text: &str| text.starts_with('+');
        if signed(epoch) || signed(number) {
            return Err(Refusal::BadCursor);
        }
        Ok(Self {
            epoch: u64::from_str_radix(epoch, 16).map_err(|_| Refusal::BadCursor)?,
            number: number.parse().map_err(|_| Refusal::BadCursor)?,
        })
    }
}

/// Which events are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Only those of this task.
    pub task: Option<TaskId>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of this workflow.
    pub workflow: Option<WorkflowId>,
}

/// Events in order, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// The cursor after the last of them; after everything that was looked at.
    pub cursor: Cursor,
}

/// Checks a cursor against the installation and what it holds.
pub(crate) fn check_cursor(
    cursor: Cursor,
    epoch: u64,
    oldest: u64,
    newest: u64,
) -> Result<(), Refusal> {
    if cursor.epoch != epoch {
        return Err(Refusal::ForeignCursor);
    }
    if cursor.number > newest {
        return Err(Refusal::FutureCursor);
    }
    if cursor.number + 1 < oldest {
        return Err(Refusal::Pruned { oldest });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_being_written_and_read() {
        for cursor in [Cursor { epoch: 0, number: 0 }, Cursor { epoch: u64::MAX, number: 77 }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "-", "1", "1-", "-1", "g-1", "1--1", "1-1-1", "+1-1", "1-+1", "1-1\0"] {
            assert_eq!(text.parse::<Cursor>(), Err(Refusal::BadCursor), "{text}");
        }
    }

    #[test]
    fn a_cursor_is_believed_only_where_it_was_given() {
        let check = |epoch, number| check_cursor(Cursor { epoch, number }, 5, 10, 20);
        assert_eq!(check(5, 15), Ok(()));
        assert_eq!(check(5, 9), Ok(()), "the oldest is next");
        assert_eq!(check(5, 8), Err(Refusal::Pruned { oldest: 10 }));
        assert_eq!(check(5, 21), Err(Refusal::FutureCursor));
        assert_eq!(check(4, 15), Err(Refusal::ForeignCursor));
    }
}
