//! What the writer has at hand: its statements, the rows it saw last, the events of its group.
//!
//! Only the writer writes, so a row that it wrote or read is still as it was then, and what comes
//! in its place is compared with that instead of with the file. Three things make a row
//! forgotten: a group that is undone, a change beside the revisions (timers), and another process
//! that wrote, which SQLite tells. Updates are guarded by the revision in any case.
//!
//! Statements are found by their place here, not by their text: looking a text up costs as much
//! as running it. Events have no rule to break and nobody reads them before the commit, so those
//! of many decisions are written by one statement.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, LazyLock};

use belay_kernel::Revision;
use rusqlite::types::ToSql;
use rusqlite::{Connection, Statement, params_from_iter};

use super::{failure, reader};
use crate::cell::Cell;
use crate::event::NewEvent;
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Row};
use crate::table::Table;

/// So many rows are remembered at most, twice: those seen lately, and those seen before them.
const ROWS: usize = 4_096;
/// A row with more text than this is not worth its memory.
const WIDE: usize = 4_096;
/// So many statements are kept; updates of different columns are different statements.
const STATEMENTS: usize = 512;
/// So many events are written by one statement, as long as there are so many.
const TOGETHER: [usize; 3] = [64, 8, 1];

/// Which statement of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Which {
    Select,
    Stored,
    Revision,
    Insert,
    /// Of these columns, as bits.
    Update(u64),
    Delete,
}

/// Where a statement is kept: by table, or by where its text stands in the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Table(usize, Which),
    Text(usize, usize),
}

/// A row as it is stored, without its lease.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) revision: Revision,
    /// Where it is in the file.
    pub(super) place: i64,
    pub(super) cells: Arc<Vec<Cell>>,
}

/// What the writer has at hand.
pub(super) struct Desk<'c> {
    pub(super) connection: &'c Connection,
    statements: BTreeMap<Place, Statement<'c>>,
    lately: HashMap<Key, Seen>,
    before: HashMap<Key, Seen>,
    /// Changes when another process wrote.
    version: i64,
    events: Vec<(NewEvent, Revision)>,
}

impl<'c> Desk<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let (lately, before) = (HashMap::new(), HashMap::new());
        let (statements, events) = (BTreeMap::new(), Vec::new());
        Self { connection, statements, lately, before, version: 0, events }
    }

    /// A group begins; its transaction is open.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        self.events.clear();
        let version = self.text("PRAGMA data_version")?.query_row([], |row| row.get(0));
        let version = version.map_err(failure)?;
        if mem::replace(&mut self.version, version) != version {
            self.forget_all();
        }
        Ok(())
    }

    /// A statement by its text.
    pub(super) fn text(&mut self, sql: &'static str) -> Result<&mut Statement<'c>, Failure> {
        self.statement(Place::Text(sql.as_ptr() as usize, sql.len()), || sql.to_owned())
    }

    /// A statement of a table.
    pub(super) fn of(
        &mut self,
        table: &'static Table,
        which: Which,
    ) -> Result<&mut Statement<'c>, Failure> {
        self.statement(Place::Table(table.rank, which), || match which {
            Which::Select => table.sql.select.clone(),
            Which::Stored => table.sql.stored.clone(),
            Which::Revision => table.sql.revision.clone(),
            Which::Insert => table.sql.insert.clone(),
            Which::Update(changed) => table.update_sql(changed),
            Which::Delete => table.sql.delete.clone(),
        })
    }

    fn statement(
        &mut self,
        place: Place,
        sql: impl FnOnce() -> String,
    ) -> Result<&mut Statement<'c>, Failure> {
        use std::collections::btree_map::Entry;
        if self.statements.len() >= STATEMENTS && !self.statements.contains_key(&place) {
            self.statements.clear();
        }
        match self.statements.entry(place) {
            Entry::Occupied(kept) => Ok(kept.into_mut()),
            Entry::Vacant(free) => {
                Ok(free.insert(self.connection.prepare(&sql()).map_err(failure)?))
            }
        }
    }

    /// Runs a statement without parameters.
    pub(super) fn run(&mut self, sql: &'static str) -> Result<(), Failure> {
        self.text(sql)?.execute([]).map(drop).map_err(failure)
    }

    /// The row with this key, as decisions read it.
    pub(super) fn row(&mut self, key: &Key) -> Result<Option<RawRow>, Failure> {
        let table = key.table;
        if table.view == table.name {
            let seen = self.stored(key)?;
            return Ok(seen.map(|seen| RawRow {
                revision: seen.revision,
                cells: seen.cells.as_ref().clone(),
            }));
        }
        let statement = self.of(table, Which::Select)?;
        let mut rows = statement.query(params_from_iter(&key.cells)).map_err(failure)?;
        let found = rows.next().map_err(failure)?;
        found.map(|row| reader::raw(table, row)).transpose()
    }

    /// The revision of the row with this key; 0 if there is none.
    pub(super) fn revision(&mut self, key: &Key) -> Result<Revision, Failure> {
        if let Some(seen) = self.seen(key) {
            return Ok(seen.revision);
        }
        let statement = self.of(key.table, Which::Revision)?;
        let mut rows = statement.query(params_from_iter(&key.cells)).map_err(failure)?;
        let found = rows.next().map_err(failure)?;
        let found: Option<i64> = found.map(|row| row.get(0)).transpose().map_err(failure)?;
        Ok(Revision(found.unwrap_or(0).unsigned_abs()))
    }

    /// The row with this key as it is stored, without its lease.
    pub(super) fn stored(&mut self, key: &Key) -> Result<Option<Seen>, Failure> {
        if let Some(seen) = self.seen(key) {
            return Ok(Some(seen.clone()));
        }
        let table = key.table;
        let statement = self.of(table, Which::Stored)?;
        let mut rows = statement.query(params_from_iter(&key.cells)).map_err(failure)?;
        let Some(row) = rows.next().map_err(failure)? else { return Ok(None) };
        let RawRow { revision, cells } = reader::raw(table, row)?;
        let place = row.get(table.columns.len() + 1).map_err(failure)?;
        drop(rows);
        let seen = Seen { revision, place, cells: Arc::new(cells) };
        self.remember(key.clone(), seen.clone());
        Ok(Some(seen))
    }

    fn seen(&self, key: &Key) -> Option<&Seen> {
        self.lately.get(key).or_else(|| self.before.get(key))
    }

    /// The row is there now, at this revision and place.
    pub(super) fn wrote(&mut self, row: &Row, revision: Revision, place: i64) {
        self.remember(row.key(), Seen { revision, place, cells: Arc::clone(&row.cells) });
    }

    fn remember(&mut self, key: Key, seen: Seen) {
        let width: usize = seen.cells.iter().filter_map(Cell::as_text).map(str::len).sum();
        if width > WIDE {
            return self.forget(&key);
        }
        if self.lately.len() >= ROWS {
            self.before = mem::take(&mut self.lately);
        }
        self.lately.insert(key, seen);
    }

    /// The row was changed beside its revision, or removed.
    pub(super) fn forget(&mut self, key: &Key) {
        self.lately.remove(key);
        self.before.remove(key);
    }

    /// What was written is undone, or was written by someone else.
    pub(super) fn forget_all(&mut self) {
        self.lately.clear();
        self.before.clear();
    }

    /// Appends an event; it is written with others, before the group is committed.
    pub(super) fn event(&mut self, event: &NewEvent, revision: Revision) -> Result<(), Failure> {
        self.events.push((event.clone(), revision));
        if self.events.len() < TOGETHER[0] { Ok(()) } else { self.write_events() }
    }

    /// Writes the events that wait, in order.
    pub(super) fn write_events(&mut self) -> Result<(), Failure> {
        let events = mem::take(&mut self.events);
        let mut rest = events.as_slice();
        for (count, sql) in TOGETHER.into_iter().zip(EVENTS.iter()) {
            while rest.len() >= count {
                let (some, others) = rest.split_at(count);
                write(self.text(sql)?, some).map_err(failure)?;
                rest = others;
            }
        }
        Ok(())
    }
}

/// The insert of so many events at once.
static EVENTS: LazyLock<[String; 3]> = LazyLock::new(|| {
    TOGETHER.map(|count| {
        let places = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; count].join(", ");
        format!(
            "INSERT INTO events (task, revision, attempt, session, workflow, kind, body, at)
            VALUES {places}"
        )
    })
});

fn write(
    statement: &mut Statement<'_>,
    events: &[(NewEvent, Revision)],
) -> rusqlite::Result<usize> {
    let mut place = 0;
    let mut bind = |value: &dyn ToSql| {
        place += 1;
        statement.raw_bind_parameter(place, value)
    };
    for (event, revision) in events {
        bind(&event.task.map(|id| id.to_string()))?;
        bind(&i64::try_from(revision.0).unwrap_or(i64::MAX))?;
        bind(&event.attempt.map(|attempt| attempt.0))?;
        bind(&event.session.map(|id| id.to_string()))?;
        bind(&event.workflow.map(|id| id.to_string()))?;
        bind(&event.kind)?;
        bind(&event.body)?;
        bind(&event.at.as_millis())?;
    }
    statement.raw_execute()
}
