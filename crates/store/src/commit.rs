//! One decision, as the store takes it: everything it read, everything it changes.
//!
//! All or nothing. The revision of *every* row that the decision read is expected, changed or not:
//! otherwise a dependency that completes while its dependant is being created leaves a counter that
//! never falls, and a role that was stopped is claimed for.

use std::collections::BTreeSet;

use belay_kernel::{Revision, TaskId, Timestamp};

use crate::cell::{Cell, Field};
use crate::effect::NewEffect;
use crate::event::NewEvent;
use crate::lease::LeaseWrite;
use crate::refusal::Refusal;
use crate::row::{Key, Record, Row, Stored};
use crate::rows::TaskRow;
use crate::table::check_text;

/// The revision of a row that is not there.
pub const ABSENT: Revision = Revision(0);

/// What a commit does to one row.
#[derive(Clone, Debug)]
pub enum Change {
    /// Writes it; a row that is not there is expected at revision 0.
    Put(Row),
    /// Removes it, and what hangs on it.
    Delete(Key),
}

impl Change {
    /// The row's key.
    pub fn key(&self) -> Key {
        match self {
            Self::Put(row) => row.key(),
            Self::Delete(key) => key.clone(),
        }
    }
}

/// A request by its idempotency key, and the answer that it is given, now and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who asks; keys are per principal.
    pub principal: String,
    /// The key.
    pub key: String,
    /// The hash of what is asked.
    pub body_hash: String,
    /// The answer.
    pub answer: String,
    /// When.
    pub at: Timestamp,
}

impl Request {
    fn check(&self) -> Result<(), Refusal> {
        let short = crate::cell::SHORT;
        check_text("requests", "principal", &self.principal, short)?;
        check_text("requests", "key", &self.key, short)?;
        check_text("requests", "body_hash", &self.body_hash, short)?;
        check_text("requests", "answer", &self.answer, crate::event::MAX_BODY)
    }
}

/// An answer that was given before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The hash of what was asked.
    pub body_hash: String,
    /// The answer.
    pub answer: String,
    /// When.
    pub at: Timestamp,
}

/// One decision.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    pub(crate) expect: Vec<(Key, Revision)>,
    pub(crate) changes: Vec<(Change, Revision)>,
    pub(crate) leases: Vec<LeaseWrite>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) effects: Vec<NewEffect>,
    pub(crate) request: Option<Request>,
}

impl Commit {
    /// A decision that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The decision read this row.
    #[must_use]
    pub fn read<R: Record>(mut self, stored: &Stored<R>) -> Self {
        self.expect.push((stored.row.key(), stored.revision));
        self
    }

    /// The decision read that there is no such row.
    #[must_use]
    pub fn read_absent<R: Record>(mut self, id: &R::Id) -> Self {
        self.expect.push((Key::of::<R>(id), ABSENT));
        self
    }

    /// A new row.
    #[must_use]
    pub fn insert<R: Record>(mut self, row: &R) -> Self {
        self.changes.push((Change::Put(Row::of(row)), ABSENT));
        self
    }

    /// A row that was read at this revision is to be `row`.
    #[must_use]
    pub fn update<R: Record>(mut self, revision: Revision, row: &R) -> Self {
        self.changes.push((Change::Put(Row::of(row)), revision));
        self
    }

    /// A row that was read is to be removed, with what hangs on it.
    #[must_use]
    pub fn delete<R: Record>(mut self, stored: &Stored<R>) -> Self {
        self.changes.push((Change::Delete(stored.row.key()), stored.revision));
        self
    }

    /// A lease that hangs on no row: the presence of a node or runner.
    #[must_use]
    pub fn lease(mut self, write: LeaseWrite) -> Self {
        self.leases.push(write);
        self
    }

    /// An event, in order.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// Something to perform after the commit.
    #[must_use]
    pub fn effect(mut self, effect: NewEffect) -> Self {
        self.effects.push(effect);
        self
    }

    /// The request that this answers.
    #[must_use]
    pub fn request(mut self, request: Request) -> Self {
        self.request = Some(request);
        self
    }

    /// Every row that the decision read or changes.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let changed = self.changes.iter().map(|(change, _)| change.key());
        changed.chain(self.expect.iter().map(|(key, _)| key.clone()))
    }

    /// Checks everything that can be checked without a database.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        for (change, _) in &self.changes {
            if let Change::Put(row) = change {
                row.table.check(&row.cells)?;
            }
            let key = change.key();
            if seen.contains(&key) {
                return Err(Refusal::Twice(key));
            }
            seen.insert(key);
        }
        self.events.iter().try_for_each(NewEvent::check)?;
        self.effects.iter().try_for_each(NewEffect::check)?;
        self.request.as_ref().map_or(Ok(()), Request::check)
    }

    /// The revision that `task` has after this commit, as far as the commit knows.
    pub(crate) fn revision_of(&self, task: Option<TaskId>) -> Revision {
        let Some(task) = task else { return ABSENT };
        let mut cells: Vec<Cell> = Vec::with_capacity(1);
        task.put(&mut cells);
        let names = |key: &Key| std::ptr::eq(key.table, TaskRow::table()) && key.cells == cells;
        let changed = self.changes.iter().find(|(change, _)| match change {
            Change::Put(row) => {
                std::ptr::eq(row.table, TaskRow::table()) && row.cells[..1] == cells[..]
            }
            Change::Delete(key) => names(key),
        });
        let read = || self.expect.iter().find(|(key, _)| names(key)).map(|(_, revision)| *revision);
        changed.map(|(_, revision)| revision.next()).or_else(read).unwrap_or(ABSENT)
    }
}

/// What became of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Committed {
    /// It is durable. Every changed row is at the revision after the expected one.
    Done,
    /// These rows are not at the expected revision: look again and decide again.
    Overtaken(Vec<Key>),
    /// The same request was answered before; nothing was changed.
    Replayed(Answered),
    /// It is refused; nothing was changed.
    Refused(Refusal),
}

impl Committed {
    /// Whether it is durable.
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// What an earlier use of an idempotency key means for `request`.
pub(crate) fn replay(request: &Request, before: Answered) -> Committed {
    if before.body_hash == request.body_hash {
        Committed::Replayed(before)
    } else {
        Committed::Refused(Refusal::KeyReused)
    }
}
