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
    /// Rows that are at an expected revision; it fails unless there are as many as expected.
    pub(crate) update: String,
    /// Fails unless the rows that are there have these revisions, in the order of their keys.
    pub(crate) guard: String,
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
            guard: guard(table),
            lock_to_read: lock("FOR SHARE"),
            lock_to_change: lock("FOR NO KEY UPDATE"),
            lock_to_remove: lock("FOR UPDATE"),
            matches,
        }
    }
}

/// The key's first column is compared with the array itself, which is an index scan whatever the
/// planner thinks of the table.
fn key_matches(table: &Table) -> String {
    let place =
        |(index, column): (usize, &Column)| format!("${}::{}", index + 1, array_of(column.kind));
    let places: Vec<_> = table.columns[..table.key].iter().enumerate().map(place).collect();
    let list = table.key_list();
    match places.as_slice() {
        [place] => format!("{list} = ANY({place})"),
        places => format!(
            "{} = ANY({}) AND ({list}) IN (SELECT * FROM unnest({}))",
            table.columns[0].name,
            places[0],
            places.join(", ")
        ),
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

/// Both the condition on the key's columns and the comparison with the row of the array: whatever
/// the planner makes of it, nothing but the rows with these keys is ever looked at.
fn update(table: &Table) -> String {
    let (keys, others) = table.columns.split_at(table.key);
    let sets: Vec<_> = others.iter().map(|column| format!("{0} = v.{0}, ", column.name)).collect();
    let count = table.columns.len();
    format!(
        "WITH written AS (UPDATE {} t SET {}revision = v.revision
            FROM unnest({}, ${}::bigint[]) AS v({}, revision, expected)
            WHERE {} AND {} AND t.revision = v.expected RETURNING 1)
        SELECT 1 / (count(*) = ${})::int FROM written",
        table.name,
        sets.concat(),
        places(table),
        count + 2,
        table.column_list(),
        bounded(table),
        same(keys),
        count + 3,
    )
}

/// Rows are compared in the order of their keys, which is the same here and there: text is ordered
/// by its bytes. A join would be the planner's to choose.
fn guard(table: &Table) -> String {
    let (list, matches) = (table.key_list(), key_matches(table));
    format!(
        "SELECT 1 / (coalesce(array_agg(revision), '{{}}') = ${}::bigint[])::int FROM (
            SELECT revision FROM {} WHERE {matches} ORDER BY {list} FOR SHARE) found",
        table.key + 1,
        table.name,
    )
}

fn same(keys: &[Column]) -> String {
    let keys: Vec<_> = keys.iter().map(|column| format!("t.{0} = v.{0}", column.name)).collect();
    keys.join(" AND ")
}

/// The first column of the key is one of the first array.
fn bounded(table: &Table) -> String {
    let first = &table.columns[0];
    format!("t.{} = ANY($1::{})", first.name, array_of(first.kind))
}
