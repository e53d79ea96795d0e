//! Reading rows.

use belay_kernel::{Revision, Timestamp};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use super::failure;
use crate::cell::{Cell, Unreadable};
use crate::commit::Answered;
use crate::query::{Scan, Test};
use crate::refusal::Failure;
use crate::row::RawRow;
use crate::table::Table;

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

/// The cells of one row, the revision last.
pub(super) fn raw(table: &Table, row: &rusqlite::Row<'_>) -> Result<RawRow, Failure> {
    let count = table.columns.len();
    let mut cells = Vec::with_capacity(count);
    for index in 0..count {
        let unreadable = |found: String| Failure::Unreadable {
            table: table.name.to_owned(),
            source: Unreadable { column: index + 1, found },
        };
        cells.push(match row.get_ref(index).map_err(failure)? {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Int(number),
            ValueRef::Text(bytes) => {
                let text = std::str::from_utf8(bytes);
                Cell::Text(text.map_err(|_| unreadable("not UTF-8".to_owned()))?.to_owned())
            }
            other => return Err(unreadable(format!("{:?}", other.data_type()))),
        });
    }
    let revision: i64 = row.get(count).map_err(failure)?;
    Ok(RawRow { revision: Revision(revision.unsigned_abs()), cells })
}

/// The row with this key.
pub(super) fn row(
    connection: &Connection,
    table: &Table,
    key: &[Cell],
) -> Result<Option<RawRow>, Failure> {
    let mut statement = connection.prepare_cached(&table.sql.select).map_err(failure)?;
    let mut rows = statement.query(params_from_iter(key)).map_err(failure)?;
    let found = rows.next().map_err(failure)?;
    found.map(|row| raw(table, row)).transpose()
}

/// Rows by conditions, newest first.
pub(super) fn scan(connection: &Connection, scan: &Scan) -> Result<Vec<RawRow>, Failure> {
    let (sql, values) = scan_sql(scan);
    let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
    let mut rows = statement.query(params_from_iter(values)).map_err(failure)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failure)? {
        found.push(raw(scan.table, row)?);
    }
    Ok(found)
}

/// How many rows have each value of a column, in the order of the values.
pub(super) fn tally(
    connection: &Connection,
    table: &Table,
    column: &str,
) -> Result<Vec<(String, u64)>, Failure> {
    let mut statement = connection.prepare_cached(&table.tally_sql(column)).map_err(failure)?;
    let mut rows = statement.query([]).map_err(failure)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failure)? {
        let count: i64 = row.get(1).map_err(failure)?;
        found.push((row.get(0).map_err(failure)?, count.unsigned_abs()));
    }
    Ok(found)
}

fn scan_sql(scan: &Scan) -> (String, Vec<Cell>) {
    let table = scan.table;
    let mut values = Vec::new();
    let mut conditions = vec!["1 = 1".to_owned()];
    let place = |values: &mut Vec<Cell>, cell: Cell| {
        values.push(cell);
        format!("?{}", values.len())
    };
    for (index, test) in &scan.tests {
        let name = &table.columns[*index].name;
        conditions.push(match test {
            Test::OneOf(cells) => {
                let places: Vec<_> =
                    cells.iter().map(|cell| place(&mut values, cell.clone())).collect();
                format!("{name} IN ({})", places.join(", "))
            }
            Test::Prefix(prefix) => {
                let from = place(&mut values, Cell::Text(prefix.clone()));
                let to = place(&mut values, Cell::Text(format!("{prefix}\u{10ffff}")));
                format!("{name} >= {from} AND {name} < {to}")
            }
            Test::Empty => format!("{name} IS NULL"),
        });
    }
    let newest = table.newest_by;
    if let Some(after) = &scan.after {
        let at = place(&mut values, after.newest.clone());
        let keys: Vec<_> = after.key.iter().map(|cell| place(&mut values, cell.clone())).collect();
        conditions.push(format!(
            "{newest} <= {at} AND ({newest} < {at} OR ({}) > ({}))",
            table.key_list(),
            keys.join(", ")
        ));
    }
    let limit = place(&mut values, Cell::Int(i64::try_from(scan.limit).unwrap_or(i64::MAX)));
    let sql = format!(
        "SELECT {}, revision FROM {} WHERE {} ORDER BY {newest} DESC, {} LIMIT {limit}",
        table.column_list(),
        table.view,
        conditions.join(" AND "),
        table.key_list()
    );
    (sql, values)
}

/// The answer to a request.
pub(super) fn answered(
    connection: &Connection,
    principal: &str,
    key: &str,
) -> Result<Option<Answered>, Failure> {
    let sql = "SELECT body_hash, answer, at FROM requests WHERE principal = ?1 AND key = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    let found = statement.query_row(params![principal, key], |row| {
        Ok(Answered {
            body_hash: row.get(0)?,
            answer: row.get(1)?,
            at: Timestamp::from_millis(row.get(2)?),
        })
    });
    found.optional().map_err(failure)
}
