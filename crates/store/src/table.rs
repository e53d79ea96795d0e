//! Tables as data: from one description follow the statements of both databases, the checks of
//! every commit, and the in-memory twin.

use std::fmt::Write as _;

use crate::cell::{Cell, Column, Kind, TOO_LARGE};
use crate::postgres::Many;
use crate::refusal::Refusal;

/// Whether a row's time to be looked at again is kept with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// It has an indexed `due_at`.
    Due,
    /// It does not expire.
    None,
}

/// A table: its name, its columns with the key first, and what hangs on it.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What is read: the table, or a view of it with its lease.
    pub view: &'static str,
    /// Its columns, without `revision`, which every table has.
    pub columns: Vec<Column>,
    /// How many columns from the first on are the key.
    pub key: usize,
    /// Whether it has a `due_at`.
    pub timer: Timer,
    /// The column by which lists are ordered, newest first.
    pub newest_by: &'static str,
    /// The tables that this one refers to come before it.
    pub rank: usize,
    /// The columns on which the lease beside a row depends, as bits.
    pub(crate) lease_bits: u64,
    /// Its statements, made once.
    pub(crate) sql: Statements,
    /// Its statements on many rows.
    pub(crate) many: Many,
}

/// The statements on single rows, with parameters `?1`, as SQLite takes them.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    /// The row with a key, its revision last.
    pub(crate) select: String,
    /// The revision of the row with a key.
    pub(crate) revision: String,
    /// A new row: the columns in order, then the revision.
    pub(crate) insert: String,
    /// The row with a key as it is stored, without its lease: its revision, and its place in the
    /// file, last.
    pub(crate) stored: String,
    /// The row with a key and the revision after it.
    pub(crate) delete: String,
}

impl Table {
    /// The index of the column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The names of its columns, with commas.
    pub fn column_list(&self) -> String {
        names(&self.columns)
    }

    /// The names of its key's columns, with commas.
    pub fn key_list(&self) -> String {
        names(&self.columns[..self.key])
    }

    /// `a = ?1 AND b = ?2`, counted from `first`.
    pub fn key_equals(&self, first: usize) -> String {
        let parts: Vec<_> = self.columns[..self.key]
            .iter()
            .enumerate()
            .map(|(index, column)| format!("{} = ?{}", column.name, first + index))
            .collect();
        parts.join(" AND ")
    }

    /// Checks a row before anything is written.
    pub fn check(&self, cells: &[Cell]) -> Result<(), Refusal> {
        debug_assert_eq!(cells.len(), self.columns.len(), "{}", self.name);
        self.columns.iter().zip(cells).try_for_each(|(column, cell)| match (column.kind, cell) {
            (Kind::Text(max), Cell::Text(text)) => check_text(self.name, &column.name, text, max),
            (Kind::Int, Cell::Int(TOO_LARGE)) => Err(Refusal::OutOfRange {
                table: self.name.to_owned(),
                column: column.name.clone(),
            }),
            (Kind::Int | Kind::Text(_), _) => Ok(()),
        })
    }

    /// The table with its statements.
    pub(crate) fn prepared(mut self) -> Self {
        let (name, view) = (self.name, self.view);
        let (columns, key) = (self.column_list(), self.key_equals(1));
        let count = self.columns.len();
        let places: Vec<_> = (1..=count + 1).map(|index| format!("?{index}")).collect();
        let places = places.join(", ");
        self.sql = Statements {
            select: format!("SELECT {columns}, revision FROM {view} WHERE {key}"),
            revision: format!("SELECT revision FROM {name} WHERE {key}"),
            insert: format!("INSERT INTO {name} ({columns}, revision) VALUES ({places})"),
            stored: format!("SELECT {columns}, revision, rowid FROM {name} WHERE {key}"),
            delete: format!("DELETE FROM {name} WHERE {key} AND revision = ?{}", self.key + 1),
        };
        self.lease_bits = self.find_lease_bits();
        self.many = Many::of(&self);
        // Columns are told apart by the bits of a number.
        assert!(count < 64, "{name} has too many columns");
        self
    }

    /// How many rows have each value of a column.
    pub(crate) fn tally_sql(&self, column: &str) -> String {
        let name = self.name;
        format!(
            "SELECT {column}, count(*) FROM {name} WHERE {column} IS NOT NULL \
             GROUP BY {column} ORDER BY {column}"
        )
    }

    /// An update of these columns, as bits, guarded by the revision: their values in order, then
    /// the new revision, then the place of the row in its file, then the expected revision. An
    /// index whose columns are not named is left alone, so only what changed is named.
    pub(crate) fn update_sql(&self, changed: u64) -> String {
        let mut sql = format!("UPDATE {} SET ", self.name);
        let named =
            self.columns.iter().enumerate().filter(|(index, _)| changed & (1 << index) != 0);
        let mut count = 0;
        for (_, column) in named {
            count += 1;
            let _ = write!(sql, "{} = ?{count}, ", column.name);
        }
        let _ = write!(
            sql,
            "revision = ?{} WHERE rowid = ?{} AND revision = ?{}",
            count + 1,
            count + 2,
            count + 3
        );
        sql
    }

    /// The columns that say what becomes of the lease beside a row, as bits. While none of them
    /// changes, the lease is as the row's last commit left it, or was renewed since.
    fn find_lease_bits(&self) -> u64 {
        let names: &[&str] = match self.name {
            "attempts" => &["epoch", "phase", "lease_end"],
            "workers" => &["state", "connection", "lease_end"],
            _ => &[],
        };
        names.iter().filter_map(|name| self.column(name)).fold(0, |bits, index| bits | 1 << index)
    }

    /// The kind of the leases that hang on its rows, and go with them.
    pub(crate) fn lease_kind(&self) -> Option<&'static str> {
        match self.name {
            "tasks" => Some("attempt"),
            "workers" => Some("worker"),
            _ => None,
        }
    }
}

fn names(columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    names.join(", ")
}

/// Checks a text before it is stored: its length, and that both databases can hold it.
pub(crate) fn check_text(table: &str, column: &str, text: &str, max: usize) -> Result<(), Refusal> {
    let (table, column) = (|| table.to_owned(), || column.to_owned());
    if text.len() > max {
        return Err(Refusal::TooLarge { table: table(), column: column(), bytes: text.len(), max });
    }
    if text.contains('\0') {
        return Err(Refusal::NotText { table: table(), column: column() });
    }
    Ok(())
}
