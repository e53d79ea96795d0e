//! Values on their way to PostgreSQL and back: whole numbers and texts, one by one or as arrays.

use belay_kernel::Revision;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::cell::{Cell, Kind, Unreadable};
use crate::refusal::Failure;
use crate::row::RawRow;
use crate::table::Table;

/// One parameter of a statement.
#[derive(Debug)]
pub(super) enum Arg {
    Int(Option<i64>),
    Text(Option<String>),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
}

impl Arg {
    pub(super) fn of(cell: &Cell, kind: Kind) -> Self {
        match kind {
            Kind::Int => Self::Int(cell.as_int()),
            Kind::Text(_) => Self::Text(cell.as_text().map(str::to_owned)),
        }
    }

    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(Some(text.to_string()))
    }

    pub(super) const fn int(number: i64) -> Self {
        Self::Int(Some(number))
    }

    /// One column of many rows.
    pub(super) fn column<'a>(kind: Kind, cells: impl Iterator<Item = &'a Cell>) -> Self {
        match kind {
            Kind::Int => Self::Ints(cells.map(Cell::as_int).collect()),
            Kind::Text(_) => {
                Self::Texts(cells.map(|cell| cell.as_text().map(str::to_owned)).collect())
            }
        }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(number) => number,
            Self::Text(text) => text,
            Self::Ints(numbers) => numbers,
            Self::Texts(texts) => texts,
        }
    }

    /// Its type.
    pub(super) const fn kind(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT8,
            Self::Text(_) => Type::TEXT,
            Self::Ints(_) => Type::INT8_ARRAY,
            Self::Texts(_) => Type::TEXT_ARRAY,
        }
    }
}

/// The parameters, as a statement that was parsed before wants them.
pub(super) fn values(args: &[Arg]) -> Vec<&(dyn ToSql + Sync)> {
    args.iter().map(Arg::value).collect()
}

/// The parameters with their types, as an unnamed statement wants them.
pub(super) fn typed(args: &[Arg]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    args.iter().map(|arg| (arg.value(), arg.kind())).collect()
}

/// The SQL type of an array of a column's values.
pub(super) const fn array_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "bigint[]",
        Kind::Text(_) => "text[]",
    }
}

/// A cell that was read.
pub(super) fn cell(row: &Row, index: usize, kind: Kind) -> Result<Cell, tokio_postgres::Error> {
    Ok(match kind {
        Kind::Int => row.try_get::<_, Option<i64>>(index)?.map_or(Cell::Null, Cell::Int),
        Kind::Text(_) => row.try_get::<_, Option<String>>(index)?.map_or(Cell::Null, Cell::Text),
    })
}

/// A row of a table, its revision last.
pub(super) fn raw(table: &Table, row: &Row) -> Result<RawRow, Failure> {
    let cells: Result<Vec<_>, _> = table
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| cell(row, index, column.kind))
        .collect();
    let unreadable = |error: tokio_postgres::Error| Failure::Unreadable {
        table: table.name.to_owned(),
        source: Unreadable { column: 0, found: error.to_string() },
    };
    let revision: i64 = row.try_get(table.columns.len()).map_err(unreadable)?;
    Ok(RawRow { revision: Revision(revision.unsigned_abs()), cells: cells.map_err(unreadable)? })
}
