//! Applying one decision: guarded writes between two savepoint marks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_kernel::Revision;
use rusqlite::{Connection, params, params_from_iter};

use super::reader::Found;
use super::threads::{Care, Stopped, run};
use super::{failure, reader};
use crate::cell::Cell;
use crate::commit::{ABSENT, Change, Commit, Committed, replay};
use crate::lease::{LeaseAct, LeaseWrite};
use crate::refusal::{Failure, Refusal, Rule};
use crate::row::{Key, Row};
use crate::table::Table;

/// What stopped a decision half-way.
enum Stop {
    /// A row is not at its expected revision.
    Overtaken,
    /// Something else than `Done` is the answer.
    Answer(Committed),
    /// The database failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(why: Failure) -> Self {
        Self::Failed(why)
    }
}

/// Commits one decision, as part of a group: all of it, or nothing of it.
pub(super) fn commit(
    connection: &Connection,
    commit: &Commit,
    care: Care,
) -> Result<Committed, Stopped> {
    let before = connection.total_changes();
    if care == Care::Careful {
        run(connection, "SAVEPOINT decision")?;
    }
    let stopped = match write(connection, commit) {
        Ok(()) => {
            if care == Care::Careful {
                run(connection, "RELEASE decision")?;
            }
            return Ok(Committed::Done);
        }
        Err(stopped) => stopped,
    };
    if let Stop::Failed(why) = stopped {
        return Err(why.into());
    }
    match care {
        Care::Bold if connection.total_changes() != before => return Err(Stopped::Again),
        Care::Bold => {}
        Care::Careful => {
            run(connection, "ROLLBACK TO decision")?;
            run(connection, "RELEASE decision")?;
        }
    }
    match stopped {
        Stop::Overtaken => Ok(Committed::Overtaken(stale(connection, commit)?)),
        Stop::Answer(answer) => Ok(answer),
        Stop::Failed(why) => Err(why.into()),
    }
}

/// The rows that are not at the revision which the decision expected.
fn stale(connection: &Connection, commit: &Commit) -> Result<Vec<Key>, Failure> {
    let read = commit.expect.iter().map(|(key, expected)| (key.clone(), *expected));
    let changed = commit.changes.iter().map(|(change, expected)| (change.key(), *expected));
    let mut stale = Vec::new();
    for (key, expected) in read.chain(changed) {
        if reader::revision(connection, key.table, &key.cells)? != expected {
            stale.push(key);
        }
    }
    Ok(stale)
}

fn write(connection: &Connection, commit: &Commit) -> Result<(), Stop> {
    if let Some(request) = &commit.request {
        let before = reader::answered(connection, &request.principal, &request.key)?;
        if let Some(before) = before {
            return Err(Stop::Answer(replay(request, before)));
        }
    }
    for (key, expected) in &commit.expect {
        if reader::revision(connection, key.table, &key.cells)? != *expected {
            return Err(Stop::Overtaken);
        }
    }
    write_rows(connection, commit)?;
    for lease in &commit.leases {
        write_lease(connection, lease)?;
    }
    append(connection, commit).map_err(Stop::Failed)
}

/// A row to be written, and the one in whose place it comes; none if it is new.
struct Put<'a> {
    row: &'a Row,
    found: Option<Found>,
}

/// Rows that are referred to are written first and removed last. What is stale is found before
/// anything is written.
fn write_rows(connection: &Connection, commit: &Commit) -> Result<(), Stop> {
    let mut puts: Vec<Put<'_>> = Vec::with_capacity(commit.changes.len());
    let mut deletes: Vec<(&Key, Revision)> = Vec::new();
    for (change, expected) in &commit.changes {
        let expected = *expected;
        match change {
            Change::Put(row) if expected == ABSENT => puts.push(Put { row, found: None }),
            Change::Put(row) => {
                let found = reader::compare(connection, row.table, &row.cells)?;
                let found = found.filter(|found| found.revision == expected);
                let found = Some(found.ok_or(Stop::Overtaken)?);
                puts.push(Put { row, found });
            }
            Change::Delete(key) => deletes.push((key, expected)),
        }
    }
    puts.sort_by_key(|put| put.row.table.rank);
    deletes.sort_by_key(|(key, _)| std::cmp::Reverse(key.table.rank));
    for one in puts {
        put(connection, &one)?;
        if let Some(lease) = &one.row.lease {
            write_lease(connection, lease)?;
        }
    }
    for (key, expected) in deletes {
        delete(connection, key, expected)?;
    }
    Ok(())
}

fn put(connection: &Connection, put: &Put<'_>) -> Result<(), Stop> {
    let Put { row, found } = put;
    let table = row.table;
    let int = |revision: Revision| Cell::Int(i64::try_from(revision.0).unwrap_or(i64::MAX));
    let written = match found {
        None => {
            let first = int(ABSENT.next());
            let values = row.cells.iter().chain(std::iter::once(&first));
            let statement = connection.prepare_cached(&table.sql.insert);
            statement.and_then(|mut statement| statement.execute(params_from_iter(values)))
        }
        Some(Found { revision, changed, place }) => {
            let guard = [int(revision.next()), Cell::Int(*place), int(*revision)];
            let values = row.cells.iter().enumerate().filter(|(at, _)| changed & (1 << at) != 0);
            let values = values.map(|(_, cell)| cell).chain(&guard);
            let statement = connection.prepare_cached(&update_sql(table, *changed));
            statement.and_then(|mut statement| statement.execute(params_from_iter(values)))
        }
    };
    match written {
        Ok(1) => Ok(()),
        Ok(_) => Err(Stop::Overtaken),
        Err(error) => {
            // A row that is there already may break another rule too; that it is there comes first.
            let key = &row.cells[..table.key];
            let taken = found.is_none() && reader::revision(connection, table, key)? != ABSENT;
            if taken { Err(Stop::Overtaken) } else { Err(refused(table, error)) }
        }
    }
}

/// The text of an update by the table and the columns that change; a task's life has a handful.
fn update_sql(table: &Table, changed: u64) -> Arc<str> {
    static MADE: Mutex<BTreeMap<(usize, u64), Arc<str>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let text =
        made.entry((table.rank, changed)).or_insert_with(|| table.update_sql(changed).into());
    Arc::clone(text)
}

fn delete(connection: &Connection, key: &Key, expected: Revision) -> Result<(), Stop> {
    let table = key.table;
    let revision = Cell::Int(i64::try_from(expected.0).unwrap_or(i64::MAX));
    let values = key.cells.iter().chain(std::iter::once(&revision));
    let statement = connection.prepare_cached(&table.sql.delete);
    let deleted = statement.and_then(|mut one| one.execute(params_from_iter(values)));
    match deleted {
        Ok(1) => Ok(drop_leases(connection, key)?),
        Ok(_) => Err(Stop::Overtaken),
        Err(error) => Err(refused(table, error)),
    }
}

/// Leases that hang on a removed row go with it.
fn drop_leases(connection: &Connection, key: &Key) -> Result<(), Failure> {
    let Some(kind) = key.table.lease_kind() else { return Ok(()) };
    let sql = "DELETE FROM leases WHERE kind = ?1 AND subject = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    statement.execute(params![kind, key.cells[0]]).map(drop).map_err(failure)
}

/// Which rule a write broke, by SQLite's codes. A key that is taken means that someone was faster.
fn refused(table: &Table, error: rusqlite::Error) -> Stop {
    use rusqlite::ffi;
    let rule = match error.sqlite_error().map(|error| error.extended_code) {
        Some(ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => return Stop::Overtaken,
        Some(ffi::SQLITE_CONSTRAINT_UNIQUE) => Rule::unique_in(table.name),
        Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => Rule::Reference,
        Some(
            ffi::SQLITE_CONSTRAINT_CHECK
            | ffi::SQLITE_CONSTRAINT_NOTNULL
            | ffi::SQLITE_CONSTRAINT_DATATYPE,
        ) => Rule::Sense,
        _ => return Stop::Failed(failure(error)),
    };
    let table = table.name.to_owned();
    Stop::Answer(Committed::Refused(Refusal::Rule { table, rule }))
}

fn write_lease(connection: &Connection, write: &LeaseWrite) -> Result<(), Failure> {
    let (kind, subject, number) = write.holder.columns();
    let key = "kind = ?1 AND subject = ?2 AND number = ?3";
    match &write.act {
        LeaseAct::Open { fence, mode, until } => {
            let sql = "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 1)
                ON CONFLICT DO UPDATE SET
                    until = CASE WHEN fence = excluded.fence AND mode = excluded.mode
                        THEN max(until, excluded.until) ELSE excluded.until END,
                    fence = excluded.fence, mode = excluded.mode, open = 1
                WHERE open = 0 OR fence <> excluded.fence OR mode <> excluded.mode
                    OR until < excluded.until";
            let mut statement = connection.prepare_cached(sql).map_err(failure)?;
            let values = params![kind, subject, number, fence, mode, until.as_millis()];
            statement.execute(values).map_err(failure)?;
        }
        LeaseAct::Close => {
            let sql = format!("UPDATE leases SET open = 0 WHERE {key} AND open = 1");
            let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
            statement.execute(params![kind, subject, number]).map_err(failure)?;
        }
        LeaseAct::Drop => {
            let sql = format!("DELETE FROM leases WHERE {key}");
            let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
            statement.execute(params![kind, subject, number]).map_err(failure)?;
        }
    }
    Ok(())
}

/// Events, effects and the answer to the request.
fn append(connection: &Connection, commit: &Commit) -> Result<(), Failure> {
    let prepare = |sql| connection.prepare_cached(sql).map_err(failure);
    let text = |id: &dyn std::fmt::Display| id.to_string();
    for event in &commit.events {
        let revision = i64::try_from(commit.revision_of(event.task).0).unwrap_or(i64::MAX);
        let values = params![
            event.task.as_ref().map(|id| text(id)),
            revision,
            event.attempt.map(|attempt| attempt.0),
            event.session.as_ref().map(|id| text(id)),
            event.workflow.as_ref().map(|id| text(id)),
            event.kind,
            event.body,
            event.at.as_millis(),
        ];
        let sql = "INSERT INTO events (task, revision, attempt, session, workflow, kind, body, at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        prepare(sql)?.execute(values).map_err(failure)?;
    }
    for effect in &commit.effects {
        let values = params![
            effect.task.as_ref().map(|id| text(id)),
            effect.attempt.map(|attempt| attempt.0),
            effect.kind,
            effect.body,
            effect.due_at.as_millis(),
        ];
        let sql = "INSERT INTO effects (task, attempt, kind, body, due_at)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        prepare(sql)?.execute(values).map_err(failure)?;
    }
    if let Some(request) = &commit.request {
        let (principal, key) = (&request.principal, &request.key);
        let (hash, answer, at) = (&request.body_hash, &request.answer, request.at.as_millis());
        let sql = "INSERT INTO requests VALUES (?1, ?2, ?3, ?4, ?5)";
        let values = params![principal, key, hash, answer, at];
        prepare(sql)?.execute(values).map_err(failure)?;
    }
    Ok(())
}
