//! Lists: filters and a cursor, the same on every database.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use belay_kernel::role::RoleName;
use belay_kernel::{NodeId, RunnerId, SandboxId, SessionId, TaskId, WebhookId, WorkflowId};

use crate::cell::{Cell, Field, Kind, Name};
use crate::refusal::{Failure, Refusal};
use crate::row::{RawRow, Record, Stored};
use crate::rows::{
    AlertRow, AttemptRow, DependencyRow, DiagnosticRow, LetterRow, LetterState, QuestionRow,
    RemarkRow, ResultRow, SandboxRow, SessionRow, StartRow, TaskRow, TokenRow, WebhookRow,
    WorkerRow,
};
use crate::table::Table;

/// One condition on one column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// It is one of these.
    OneOf(Vec<Cell>),
    /// It is a text that begins so.
    Prefix(String),
    /// It is empty.
    Empty,
}

impl Test {
    pub(crate) fn holds(&self, cell: &Cell) -> bool {
        match self {
            Self::OneOf(cells) => cells.contains(cell),
            Self::Prefix(prefix) => {
                cell.as_text().is_some_and(|text| text.starts_with(prefix.as_str()))
            }
            Self::Empty => *cell == Cell::Null,
        }
    }
}

/// What a database is asked for: rows of one table that pass all tests, in order.
#[derive(Clone, Debug)]
pub struct Scan {
    pub(crate) table: &'static Table,
    pub(crate) tests: Vec<(usize, Test)>,
    pub(crate) after: Option<After>,
    pub(crate) limit: usize,
}

impl Scan {
    /// The index of the column by which rows are ordered, newest first.
    pub(crate) fn newest_by(&self) -> usize {
        self.table.column(self.table.newest_by).unwrap_or(0)
    }
}

/// Where a page ended. Opaque to whoever hands it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    pub(crate) newest: Cell,
    pub(crate) key: Vec<Cell>,
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = std::iter::once(&self.newest).chain(&self.key);
        let values: Vec<serde_json::Value> = cells
            .map(|cell| match cell {
                Cell::Null => serde_json::Value::Null,
                Cell::Int(number) => (*number).into(),
                Cell::Text(text) => text.as_str().into(),
            })
            .collect();
        write!(f, "{}", serde_json::Value::from(values))
    }
}

impl FromStr for After {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let values: Vec<serde_json::Value> =
            serde_json::from_str(text).map_err(|_| Refusal::BadCursor)?;
        let cells: Option<Vec<Cell>> = values
            .into_iter()
            .map(|value| match value {
                serde_json::Value::Number(number) => number.as_i64().map(Cell::Int),
                serde_json::Value::String(text) => Some(Cell::Text(text)),
                _ => None,
            })
            .collect();
        let mut cells = cells.filter(|cells| cells.len() > 1).ok_or(Refusal::BadCursor)?;
        let newest = cells.remove(0);
        Ok(Self { newest, key: cells })
    }
}

impl After {
    /// A cursor of another list must not reach the database.
    fn fits(&self, table: &Table) -> bool {
        let fits = |index: usize, cell: &Cell| {
            matches!(
                (table.columns[index].kind, cell),
                (Kind::Int, Cell::Int(_)) | (Kind::Text(_), Cell::Text(_))
            ) && cell.as_text().is_none_or(|text| !text.contains('\0'))
        };
        self.key.len() == table.key
            && table.column(table.newest_by).is_some_and(|newest| fits(newest, &self.newest))
            && self.key.iter().enumerate().all(|(index, cell)| fits(index, cell))
    }
}

/// What is listed.
#[derive(Clone, Debug)]
pub struct Query<R> {
    tests: Vec<(&'static str, Test)>,
    after: Option<After>,
    pub(crate) limit: usize,
    record: PhantomData<R>,
}

impl<R: Record> Query<R> {
    /// The first `limit` rows.
    pub const fn first(limit: usize) -> Self {
        Self { tests: Vec::new(), after: None, limit, record: PhantomData }
    }

    /// Goes on where a page ended.
    #[must_use]
    pub fn after(mut self, after: Option<After>) -> Self {
        self.after = after;
        self
    }

    fn one_of<F: Field>(mut self, column: &'static str, values: &[F]) -> Self {
        let mut cells = Vec::new();
        values.iter().for_each(|value| value.put(&mut cells));
        self.tests.push((column, Test::OneOf(cells)));
        self
    }

    fn test(mut self, column: &'static str, test: Test) -> Self {
        self.tests.push((column, test));
        self
    }

    pub(crate) fn scan(&self) -> Result<Scan, Refusal> {
        let table = R::table();
        if self.after.as_ref().is_some_and(|after| !after.fits(table)) {
            return Err(Refusal::BadCursor);
        }
        for (_, test) in &self.tests {
            let texts: Vec<&str> = match test {
                Test::OneOf(cells) => cells.iter().filter_map(Cell::as_text).collect(),
                Test::Prefix(prefix) => vec![prefix],
                Test::Empty => vec![],
            };
            if texts.iter().any(|text| text.contains('\0')) {
                let (table, column) = (table.name.to_owned(), "filter".to_owned());
                return Err(Refusal::NotText { table, column });
            }
        }
        let index = |name| table.column(name).expect("filters name columns of their own table");
        let tests = self.tests.iter().map(|(name, test)| (index(name), test.clone())).collect();
        Ok(Scan { table, tests, after: self.after.clone(), limit: self.limit })
    }
}

macro_rules! filters {
    ($($record:ty { $($(#[$doc:meta])* $method:ident: $column:literal $type:ty,)* })*) => {$(
        impl Query<$record> {
            $($(#[$doc])*
            #[must_use]
            pub fn $method(self, values: &[$type]) -> Self {
                self.one_of($column, values)
            })*
        }
    )*};
}

filters! {
    TaskRow {
        /// Only tasks of these roles.
        role: "role" RoleName,
        /// Only subtasks of these.
        parent: "parent" TaskId,
        /// Only tasks in the trees of these.
        root: "root" TaskId,
        /// Only tasks of these sessions.
        session: "session" SessionId,
        /// Only tasks of these workflows.
        workflow: "workflow" WorkflowId,
        /// Only tasks in states with these names.
        state: "state" Name,
    }
    AttemptRow {
        /// Only attempts of these tasks.
        task: "task" TaskId,
        /// Only attempts in these sessions.
        session: "session" SessionId,
        /// Only attempts in these sandboxes.
        sandbox: "sandbox" SandboxId,
        /// Only attempts in phases with these names.
        phase: "phase" Name,
    }
    DependencyRow {
        /// What these tasks wait for.
        task: "task" TaskId,
        /// Who waits for these tasks.
        depends_on: "depends_on" TaskId,
    }
    QuestionRow {
        /// Only questions of these tasks.
        task: "task" TaskId,
    }
    SessionRow {
        /// Only sessions in states with these names.
        state: "state" Name,
        /// Only sessions of these owners.
        owner: "owner" NodeId,
    }
    SandboxRow {
        /// Only sandboxes of these sessions.
        session: "session" SessionId,
        /// Only sandboxes of these runners.
        runner: "runner" RunnerId,
        /// Only sandboxes in states with these names.
        state: "state" Name,
    }
    WorkerRow {
        /// Only workers of these roles.
        role: "role" RoleName,
        /// Only workers in states with these names.
        state: "state" Name,
    }
    StartRow {
        /// Only starts of these roles.
        role: "role" RoleName,
    }
    ResultRow {
        /// Only results of these workflows.
        workflow: "workflow" WorkflowId,
    }
    DiagnosticRow {
        /// Only diagnostics of these workflows.
        workflow: "workflow" WorkflowId,
    }
    TokenRow {
        /// Only those with these names that are not revoked.
        live: "live" Name,
    }
    RemarkRow {
        /// Only remarks in the threads of these tasks.
        task: "task" TaskId,
    }
    WebhookRow {
        /// Only webhooks with these names.
        name: "name" Name,
    }
    LetterRow {
        /// Only letters to these webhooks.
        webhook: "webhook" WebhookId,
        /// Only letters in these states.
        state: "state" LetterState,
    }
    AlertRow {
        /// Only alerts in states with these names.
        state: "state" Name,
    }
}

impl Query<TaskRow> {
    /// Only tasks whose ids begin so: people type the first letters.
    #[must_use]
    pub fn id_begins(self, letters: &str) -> Self {
        self.test("id", Test::Prefix(letters.to_owned()))
    }

    /// Only tasks without a parent.
    #[must_use]
    pub fn top_level(self) -> Self {
        self.test("parent", Test::Empty)
    }
}

impl Query<QuestionRow> {
    /// Only questions without an answer.
    #[must_use]
    pub fn open(self) -> Self {
        self.test("answered_at", Test::Empty)
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<R> {
    /// The rows, newest first.
    pub rows: Vec<Stored<R>>,
    /// Where to go on, if the page is full.
    pub after: Option<After>,
}

impl<R: Record> Page<R> {
    pub(crate) fn read(raw: &[RawRow], limit: usize) -> Result<Self, Failure> {
        let rows: Vec<_> = raw.iter().map(Stored::read).collect::<Result<_, _>>()?;
        let table = R::table();
        let newest = table.column(table.newest_by).unwrap_or(0);
        let after = raw.last().filter(|_| raw.len() == limit).map(|row| After {
            newest: row.cells[newest].clone(),
            key: row.cells[..table.key].to_vec(),
        });
        Ok(Self { rows, after })
    }
}
