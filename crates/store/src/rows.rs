//! The rows, each typed by the kernel's own types, and the tables that they live in.

mod attempt;
mod codes;
mod fleet;
mod ledger;
mod session;
mod task;

pub use attempt::AttemptRow;
pub use fleet::RoleRow;
pub use ledger::{
    AccountRow, DependencyRow, LedgerRow, QuestionRow, RemarkRow, Speaker,
};
pub use session::SessionRow;
pub use task::{SpecRow, TaskRow};

use crate::row::Record;
use crate::table::Table;

/// Every table, those that are referred to before those that refer to them.
pub const TABLES: &[fn() -> &'static Table] = &[
    RoleRow::table,
    AccountRow::table,
    SessionRow::table,
    TaskRow::table,
    SpecRow::table,
    LedgerRow::table,
    AttemptRow::table,
    DependencyRow::table,
    QuestionRow::table,
    RemarkRow::table,
];

/// What happens to a row when the row that it refers to is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDelete {
    /// It is removed too.
    Cascade,
    /// The removal is refused.
    Refuse,
}

/// A column that refers to a row of another table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The table that refers.
    pub table: &'static str,
    /// By which column.
    pub column: &'static str,
    /// To which table.
    pub to: &'static str,
    /// What happens when that row goes.
    pub on_delete: OnDelete,
}

const fn refers(
    table: &'static str,
    column: &'static str,
    to: &'static str,
    on_delete: OnDelete,
) -> Reference {
    Reference { table, column, to, on_delete }
}

/// Every reference, as the schema has it: the in-memory twin holds the same ones, and a test
/// compares them with what the databases say.
pub const REFERENCES: &[Reference] = &[
    refers("tasks", "parent", "tasks", OnDelete::Refuse),
    refers("tasks", "session", "sessions", OnDelete::Refuse),
    refers("specs", "task", "tasks", OnDelete::Cascade),
    refers("ledgers", "root", "tasks", OnDelete::Cascade),
    refers("attempts", "task", "tasks", OnDelete::Cascade),
    refers("attempts", "session", "sessions", OnDelete::Refuse),
    refers("dependencies", "task", "tasks", OnDelete::Cascade),
    refers("dependencies", "depends_on", "tasks", OnDelete::Cascade),
    refers("questions", "task", "tasks", OnDelete::Cascade),
    refers("remarks", "task", "tasks", OnDelete::Cascade),
];

/// A rule that at most one row of a table may hold for a subject, as the partial unique indexes
/// have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnlyOne {
    /// In which table.
    pub table: &'static str,
    /// The column that names the subject.
    pub subject: &'static str,
    /// The column that says whether a row counts.
    pub state: &'static str,
    /// The values with which it counts.
    pub live: &'static [&'static str],
}

/// Every such rule.
pub const ONLY_ONE: &[OnlyOne] = &[OnlyOne {
    table: "attempts",
    subject: "task",
    state: "phase",
    live: &["CLAIMED", "RUNNING", "PUBLISHING"],
}];
