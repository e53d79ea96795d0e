//! The statements on many rows of a table at once, made once.

use super::args::array_of;
use crate::cell::Column;
use crate::table::Table;

/// The statements on many rows at once, as PostgreSQL takes them.
#[derive(Debug, Default)]
pub(crate) struct Many {
    /// A condition on the key's columns, by arrays.
    pub(crate) matches: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) lock_to_read: String,
    pub(crate) lock_to_change: String,
    pub(crate) lock_to_remove: String,
}

impl Many {
    pub(crate) fn of(table: &Table) -> Self {
        let (list, matches) = (table.key_list(), key_matches(table));
        let lock = |strength: &str| {
            let name = table.name;
            format!(
                "SELECT {list}, revision FROM {name} WHERE {matches} ORDER BY {list} {strength}"
            )
        };
        Self {
            insert: insert(table),
            update: update(table),
            lock_to_read: lock("FOR SHARE"),
            lock_to_change: lock("FOR NO KEY UPDATE"),
            lock_to_remove: lock("FOR UPDATE"),
            matches,
        }
    }
}

/// A key of one column is compared with the array itself, which is an index scan whatever the
/// planner thinks of the table.
fn key_matches(table: &Table) -> String {
    let place =
        |(index, column): (usize, &Column)| format!("${}::{}", index + 1, array_of(column.kind));
    let places: Vec<_> = table.columns[..table.key].iter().enumerate().map(place).collect();
    let list = table.key_list();
    match places.as_slice() {
        [place] => format!("{list} = ANY({place})"),
        places => format!("({list}) IN (SELECT * FROM unnest({}))", places.join(", ")),
    }
}

/// The arrays of all columns and the revision.
fn places(table: &Table) -> String {
    let kinds = table.columns.iter().map(|column| array_of(column.kind)).chain(["bigint[]"]);
    let places: Vec<_> =
        kinds.enumerate().map(|(index, array)| format!("${}::{array}", index + 1)).collect();
    places.join(", ")
}

fn insert(table: &Table) -> String {
    let (columns, places) = (table.column_list(), places(table));
    format!("INSERT INTO {} ({columns}, revision) SELECT * FROM unnest({places})", table.name)
}

fn update(table: &Table) -> String {
    let (keys, others) = table.columns.split_at(table.key);
    let sets: Vec<_> = others.iter().map(|column| format!("{0} = v.{0}, ", column.name)).collect();
    let keys: Vec<_> = keys.iter().map(|column| format!("t.{0} = v.{0}", column.name)).collect();
    format!(
        "UPDATE {} t SET {}revision = v.revision FROM unnest({}) AS v({}, revision) WHERE {}",
        table.name,
        sets.concat(),
        places(table),
        table.column_list(),
        keys.join(" AND ")
    )
}
