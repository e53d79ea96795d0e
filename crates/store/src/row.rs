//! Rows: what is stored under a key, with a revision that grows by one with every change.

use std::fmt;
use std::sync::Arc;

use belay_kernel::Revision;

use crate::cell::{Cell, Cells, Field, Unreadable};
use crate::lease::LeaseWrite;
use crate::refusal::Failure;
use crate::table::Table;

/// A type of row. Writing one and reading it back loses nothing.
pub trait Record: Sized + Clone + fmt::Debug + Send + Sync + 'static {
    /// What names one of them.
    type Id: Field + Clone + Send + Sync;

    /// Its table.
    fn table() -> &'static Table;
    /// Its cells, as many as the table has columns.
    fn encode(&self) -> Vec<Cell>;
    /// Reads them back.
    fn decode(cells: &[Cell]) -> Result<Self, Unreadable>;
    /// The lease that is opened, closed or dropped with it.
    fn lease(&self) -> Option<LeaseWrite> {
        None
    }

    /// Its key.
    fn key(&self) -> Key {
        let table = Self::table();
        let mut cells = self.encode();
        cells.truncate(table.key);
        Key { table, cells }
    }
}

/// The name of one row in one table.
#[derive(Clone)]
pub struct Key {
    pub(crate) table: &'static Table,
    pub(crate) cells: Vec<Cell>,
}

impl Key {
    /// The key of the row of type `R` that `id` names.
    pub fn of<R: Record>(id: &R::Id) -> Self {
        let mut cells = Vec::new();
        id.put(&mut cells);
        Self { table: R::table(), cells }
    }

    /// The table's name.
    pub const fn table(&self) -> &'static str {
        self.table.name
    }

    /// What the key names, if it is a row of type `R`.
    pub fn id<R: Record>(&self) -> Option<R::Id> {
        let same = std::ptr::eq(self.table, R::table());
        same.then(|| R::Id::get(&mut Cells::new(&self.cells)).ok()).flatten()
    }

    fn order(&self) -> (usize, &[Cell]) {
        (self.table.rank, &self.cells)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Tables that are referred to come first, so that rows are locked and written in one order.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table.name)?;
        self.cells.iter().try_for_each(|cell| match cell {
            Cell::Null => write!(f, "/-"),
            Cell::Int(number) => write!(f, "/{number}"),
            Cell::Text(text) => write!(f, "/{text}"),
        })
    }
}

/// A row that is to be written.
#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) table: &'static Table,
    /// Shared, because a store may remember what it wrote.
    pub(crate) cells: Arc<Vec<Cell>>,
    pub(crate) lease: Option<LeaseWrite>,
}

impl Row {
    /// The cells of `record`.
    pub fn of<R: Record>(record: &R) -> Self {
        Self { table: R::table(), cells: Arc::new(record.encode()), lease: record.lease() }
    }

    /// Its key.
    pub fn key(&self) -> Key {
        Key { table: self.table, cells: self.cells[..self.table.key].to_vec() }
    }
}

/// A row as it was read, with its revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored<R> {
    /// How often it was written.
    pub revision: Revision,
    /// What it says.
    pub row: R,
}

impl<R: Record> Stored<R> {
    pub(crate) fn read(raw: &RawRow) -> Result<Self, Failure> {
        let row = R::decode(&raw.cells)
            .map_err(|source| Failure::Unreadable { table: R::table().name.to_owned(), source })?;
        Ok(Self { revision: raw.revision, row })
    }
}

/// A row as a database gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawRow {
    /// Its revision.
    pub revision: Revision,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// Declares a row type with its table: the fields in order, the key first.
macro_rules! record {
    (
        $(#[$doc:meta])*
        pub struct $name:ident in $table:literal {
            id: $id:ty, key: $key:literal, rank: $rank:literal, newest: $newest:literal,
            timer: $timer:ident $(, view: $view:literal)? $(, lease: $lease:expr)?;
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
            $(; $($derived:ident: $derived_type:ty = $derive:expr,)*)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::row::Record for $name {
            type Id = $id;

            fn table() -> &'static $crate::table::Table {
                static TABLE: std::sync::LazyLock<$crate::table::Table> =
                    std::sync::LazyLock::new(|| {
                        let mut columns = Vec::new();
                        $(<$type as $crate::cell::Field>::columns(
                            stringify!($field), &mut columns);)*
                        $($(<$derived_type as $crate::cell::Field>::columns(
                            stringify!($derived), &mut columns);)*)?
                        let view = [$table $(, $view)?];
                        $crate::table::Table {
                            name: $table,
                            view: view[view.len() - 1],
                            columns,
                            key: $key,
                            timer: $crate::table::Timer::$timer,
                            newest_by: $newest,
                            rank: $rank,
                            lease_bits: 0,
                            sql: Default::default(),
                            many: Default::default(),
                        }
                        .prepared()
                    });
                &TABLE
            }

            fn encode(&self) -> Vec<$crate::cell::Cell> {
                let mut cells = Vec::with_capacity(Self::table().columns.len());
                $($crate::cell::Field::put(&self.$field, &mut cells);)*
                $($({
                    let derive: fn(&Self) -> $derived_type = $derive;
                    $crate::cell::Field::put(&derive(self), &mut cells);
                })*)?
                cells
            }

            fn decode(
                cells: &[$crate::cell::Cell],
            ) -> Result<Self, $crate::cell::Unreadable> {
                let mut cells = $crate::cell::Cells::new(cells);
                $(let $field = <$type as $crate::cell::Field>::get(&mut cells)?;)*
                Ok(Self { $($field),* })
            }

            $(fn lease(&self) -> Option<$crate::lease::LeaseWrite> {
                let lease: fn(&Self) -> $crate::lease::LeaseWrite = $lease;
                Some(lease(self))
            })?
        }
    };
}
pub(crate) use record;
