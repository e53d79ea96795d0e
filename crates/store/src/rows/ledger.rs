//! What task trees have used, what accounts allow, what tasks wait for, what was asked and said.

use belay_kernel::budget::Ledger;
use belay_kernel::claim::Account;
use belay_kernel::{AttemptNumber, QuestionId, TaskId, Timestamp};

use crate::cell::{
    Cell, Cells, Column, Field, Kind, List, Name, Prose, SHORT, Text, Unreadable, codes, column,
};
use crate::row::record;

record! {
    /// The ledger at the root of a task tree.
    pub struct LedgerRow in "ledgers" {
        id: TaskId, key: 1, rank: 7, newest: "root", timer: None;
        /// The task at the root.
        root: TaskId,
        /// What was used and reserved.
        ledger: Ledger,
    }
}

impl Field for Ledger {
    fn columns(_: &str, out: &mut Vec<Column>) {
        for name in ["cost", "tokens", "reserved_cost", "reserved_tokens", "drift"] {
            column(name, Kind::Int, out);
        }
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.cost.put(out);
        self.tokens.put(out);
        self.reserved_cost.put(out);
        self.reserved_tokens.put(out);
        self.drift.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            cost: Field::get(cells)?,
            tokens: Field::get(cells)?,
            reserved_cost: Field::get(cells)?,
            reserved_tokens: Field::get(cells)?,
            drift: Field::get(cells)?,
        })
    }
}

record! {
    /// An account whose usage limit tasks share.
    pub struct AccountRow in "accounts" {
        id: Name, key: 1, rank: 1, newest: "name", timer: None;
        /// Its name.
        name: Name,
        /// What is known of its limit.
        account: Account,
    }
}

impl Field for Account {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("state", Kind::Text(SHORT), out);
        column("limited_until", Kind::Int, out);
        column("probed_by", Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, until, by) = match *self {
            Self::Open => ("open", None, None),
            Self::Limited { until } => ("limited", Some(until), None),
            Self::Probed { by } => ("probed", None, Some(by)),
        };
        out.push(Cell::Text(name.to_owned()));
        until.put(out);
        by.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let until = Option::<Timestamp>::get(cells)?;
        let by = Option::<TaskId>::get(cells)?;
        let account = match name {
            "open" => Some(Self::Open),
            "limited" => until.map(|until| Self::Limited { until }),
            "probed" => by.map(|by| Self::Probed { by }),
            _ => None,
        };
        account.ok_or_else(|| cells.unreadable(name))
    }
}

record! {
    /// One task waits for another.
    pub struct DependencyRow in "dependencies" {
        id: (TaskId, TaskId), key: 2, rank: 9, newest: "task", timer: None;
        /// The task that waits.
        task: TaskId,
        /// The task that it waits for.
        depends_on: TaskId,
    }
}

record! {
    /// A question, and its answer when there is one.
    pub struct QuestionRow in "questions" {
        id: QuestionId, key: 1, rank: 10, newest: "asked_at", timer: None;
        /// Its id.
        id: QuestionId,
        /// The task whose agent asked.
        task: TaskId,
        /// In which attempt.
        attempt: AttemptNumber,
        /// What was asked.
        text: Text<16_384>,
        /// What may be chosen.
        options: List,
        /// When.
        asked_at: Timestamp,
        /// The answer.
        answer: Option<Text<16_384>>,
        /// Who answered.
        answered_by: Option<Name>,
        /// When.
        answered_at: Option<Timestamp>,
    }
}

/// Who said something in a task's thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Speaker {
    /// A person.
    Person,
    /// The agent.
    Agent,
    /// Belay itself.
    Belay,
}

codes! {
    Speaker { Person "person", Agent "agent", Belay "belay" }
}

record! {
    /// A remark in a task's thread: a comment on a rejection, a summary, a note.
    pub struct RemarkRow in "remarks" {
        id: (TaskId, u64), key: 2, rank: 11, newest: "said_at", timer: None;
        /// In whose thread.
        task: TaskId,
        /// Its number there.
        number: u64,
        /// In which attempt, if in one.
        attempt: Option<AttemptNumber>,
        /// Who said it.
        speaker: Speaker,
        /// What was said.
        text: Prose,
        /// When.
        said_at: Timestamp,
    }
}
