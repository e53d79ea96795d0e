//! The rows, each typed by the kernel's own types, and the tables that they live in.

mod attempt;
mod codes;
mod fleet;
mod ledger;
mod session;
mod task;
mod token;
mod watch;
mod workflow;

pub use attempt::AttemptRow;
pub use fleet::{RoleRow, RunnerRow, StartRow, WorkerRow};
pub use ledger::{AccountRow, DependencyRow, LedgerRow, QuestionRow, RemarkRow, Speaker};
pub use session::{SandboxRow, SessionRow};
pub use task::{Publishing, SpecRow, TaskRow, Uncommitted};
pub use token::TokenRow;
pub use watch::{
    AlertRow, HookOrigin, LetterRow, LetterState, MeterRow, Secret, Shape, WebhookRow,
};
pub use workflow::{DiagnosticRow, ResultRow, WorkflowRow};

use crate::row::Record;
use crate::table::Table;

/// Every table, those that are referred to before those that refer to them.
pub const TABLES: &[fn() -> &'static Table] = &[
    RoleRow::table,
    AccountRow::table,
    WorkflowRow::table,
    SessionRow::table,
    SandboxRow::table,
    TaskRow::table,
    SpecRow::table,
    LedgerRow::table,
    AttemptRow::table,
    DependencyRow::table,
    QuestionRow::table,
    RemarkRow::table,
    RunnerRow::table,
    WorkerRow::table,
    StartRow::table,
    ResultRow::table,
    DiagnosticRow::table,
    TokenRow::table,
    WebhookRow::table,
    LetterRow::table,
    MeterRow::table,
    AlertRow::table,
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
    refers("tasks", "workflow", "workflows", OnDelete::Refuse),
    refers("sandboxes", "session", "sessions", OnDelete::Refuse),
    refers("specs", "task", "tasks", OnDelete::Cascade),
    refers("ledgers", "root", "tasks", OnDelete::Cascade),
    refers("attempts", "task", "tasks", OnDelete::Cascade),
    refers("attempts", "session", "sessions", OnDelete::Refuse),
    refers("dependencies", "task", "tasks", OnDelete::Cascade),
    refers("dependencies", "depends_on", "tasks", OnDelete::Cascade),
    refers("questions", "task", "tasks", OnDelete::Cascade),
    refers("remarks", "task", "tasks", OnDelete::Cascade),
    refers("results", "workflow", "workflows", OnDelete::Cascade),
    refers("diagnostics", "workflow", "workflows", OnDelete::Cascade),
    refers("letters", "webhook", "webhooks", OnDelete::Cascade),
];

/// The columns of which no two rows of a table may have the same value, empty ones excepted. A row
/// fills such a column only while it counts: a live attempt with its task, a live sandbox with its
/// session, a pending start with its role, a token that is not revoked with its name.
pub const ONLY_ONE: &[(&str, &str)] = &[
    ("attempts", "live"),
    ("sandboxes", "live"),
    ("starts", "pending"),
    ("tokens", "live"),
    ("webhooks", "name"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are told apart by the rank of their table, so two tables must not have the same.
    #[test]
    fn the_rank_of_a_table_is_its_place() {
        for (place, table) in TABLES.iter().enumerate() {
            assert_eq!(table().rank, place, "{}", table().name);
        }
    }
}
