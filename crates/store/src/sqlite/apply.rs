//! Applying one decision: guarded writes between two savepoint marks.

use belay_kernel::Revision;
use rusqlite::{params, params_from_iter};

use super::desk::{Desk, Seen, Which};
use super::threads::{Care, Stopped};
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
    desk: &mut Desk<'_>,
    commit: &Commit,
    care: Care,
) -> Result<Committed, Stopped> {
    let before = desk.connection.total_changes();
    if care == Care::Careful {
        desk.run("SAVEPOINT decision")?;
    }
    let stopped = match write(desk, commit) {
        Ok(()) => {
            if care == Care::Careful {
                desk.run("RELEASE decision")?;
            }
            return Ok(Committed::Done);
        }
        Err(stopped) => stopped,
    };
    if let Stop::Failed(why) = stopped {
        return Err(why.into());
    }
    match care {
        Care::Bold if desk.connection.total_changes() != before => return Err(Stopped::Again),
        Care::Bold => {}
        Care::Careful => {
            desk.forget_all();
            desk.run("ROLLBACK TO decision")?;
            desk.run("RELEASE decision")?;
        }
    }
    match stopped {
        Stop::Overtaken => Ok(Committed::Overtaken(stale(desk, commit)?)),
        Stop::Answer(answer) => Ok(answer),
        Stop::Failed(why) => Err(why.into()),
    }
}

/// The rows that are not at the revision which the decision expected.
fn stale(desk: &mut Desk<'_>, commit: &Commit) -> Result<Vec<Key>, Failure> {
    let read = commit.expect.iter().map(|(key, expected)| (key.clone(), *expected));
    let changed = commit.changes.iter().map(|(change, expected)| (change.key(), *expected));
    let mut stale = Vec::new();
    for (key, expected) in read.chain(changed) {
        if desk.revision(&key)? != expected {
            stale.push(key);
        }
    }
    Ok(stale)
}

fn write(desk: &mut Desk<'_>, commit: &Commit) -> Result<(), Stop> {
    if let Some(request) = &commit.request {
        let before = reader::answered(desk.connection, &request.principal, &request.key)?;
        if let Some(before) = before {
            return Err(Stop::Answer(replay(request, before)));
        }
    }
    for (key, expected) in &commit.expect {
        if desk.revision(key)? != *expected {
            return Err(Stop::Overtaken);
        }
    }
    write_rows(desk, commit)?;
    for lease in &commit.leases {
        write_lease(desk, lease)?;
    }
    append(desk, commit).map_err(Stop::Failed)
}

/// A row to be written, and the one in whose place it comes; none if it is new.
struct Put<'a> {
    row: &'a Row,
    found: Option<Found>,
}

/// The row in whose place another comes.
struct Found {
    revision: Revision,
    /// Which columns are different, as bits.
    changed: u64,
    /// Where it is in the file.
    place: i64,
}

impl Found {
    fn beside(row: &Row, seen: &Seen) -> Self {
        let both = row.cells.iter().zip(seen.cells.iter()).enumerate();
        let changed = both.fold(0, |bits, (at, (new, old))| bits | u64::from(new != old) << at);
        Self { revision: seen.revision, changed, place: seen.place }
    }
}

/// Rows that are referred to are written first and removed last. What is stale is found before
/// anything is written.
fn write_rows(desk: &mut Desk<'_>, commit: &Commit) -> Result<(), Stop> {
    let mut puts: Vec<Put<'_>> = Vec::with_capacity(commit.changes.len());
    let mut deletes: Vec<(&Key, Revision)> = Vec::new();
    for (change, expected) in &commit.changes {
        let expected = *expected;
        match change {
            Change::Put(row) if expected == ABSENT => puts.push(Put { row, found: None }),
            Change::Put(row) => {
                let seen = desk.stored(&row.key())?.filter(|seen| seen.revision == expected);
                let found = Some(Found::beside(row, &seen.ok_or(Stop::Overtaken)?));
                puts.push(Put { row, found });
            }
            Change::Delete(key) => deletes.push((key, expected)),
        }
    }
    puts.sort_by_key(|put| put.row.table.rank);
    deletes.sort_by_key(|(key, _)| std::cmp::Reverse(key.table.rank));
    for one in puts {
        put(desk, &one)?;
        let changed = one.found.map_or(u64::MAX, |found| found.changed);
        if let Some(lease) = &one.row.lease
            && changed & one.row.table.lease_bits != 0
        {
            write_lease(desk, lease)?;
        }
    }
    for (key, expected) in deletes {
        delete(desk, key, expected)?;
    }
    Ok(())
}

fn put(desk: &mut Desk<'_>, put: &Put<'_>) -> Result<(), Stop> {
    let Put { row, found } = put;
    let table = row.table;
    let int = |revision: Revision| Cell::Int(i64::try_from(revision.0).unwrap_or(i64::MAX));
    let written = match found {
        None => {
            let first = int(ABSENT.next());
            let values = row.cells.iter().chain(std::iter::once(&first));
            desk.of(table, Which::Insert)?.execute(params_from_iter(values))
        }
        Some(Found { revision, changed, place }) => {
            let guard = [int(revision.next()), Cell::Int(*place), int(*revision)];
            let values = row.cells.iter().enumerate().filter(|(at, _)| changed & (1 << at) != 0);
            let values = values.map(|(_, cell)| cell).chain(&guard);
            desk.of(table, Which::Update(*changed))?.execute(params_from_iter(values))
        }
    };
    match written {
        Ok(1) => {
            let (revision, place) = match found {
                None => (ABSENT, desk.connection.last_insert_rowid()),
                Some(found) => (found.revision, found.place),
            };
            desk.wrote(row, revision.next(), place);
            Ok(())
        }
        Ok(_) => {
            // The file is not as it is remembered: whoever wrote it did not keep to the revisions.
            desk.forget(&row.key());
            Err(Stop::Overtaken)
        }
        Err(error) => {
            // A row that is there already may break another rule too; that it is there comes first.
            let taken = found.is_none() && desk.revision(&row.key())? != ABSENT;
            if taken { Err(Stop::Overtaken) } else { Err(refused(table, error)) }
        }
    }
}

fn delete(desk: &mut Desk<'_>, key: &Key, expected: Revision) -> Result<(), Stop> {
    let table = key.table;
    let revision = Cell::Int(i64::try_from(expected.0).unwrap_or(i64::MAX));
    let values = key.cells.iter().chain(std::iter::once(&revision));
    let deleted = desk.of(table, Which::Delete)?.execute(params_from_iter(values));
    // What hangs on it goes with it.
    desk.forget_all();
    match deleted {
        Ok(1) => Ok(drop_leases(desk, key)?),
        Ok(_) => Err(Stop::Overtaken),
        Err(error) => Err(refused(table, error)),
    }
}

/// Leases that hang on a removed row go with it.
fn drop_leases(desk: &mut Desk<'_>, key: &Key) -> Result<(), Failure> {
    let Some(kind) = key.table.lease_kind() else { return Ok(()) };
    let sql = "DELETE FROM leases WHERE kind = ?1 AND subject = ?2";
    desk.text(sql)?.execute(params![kind, key.cells[0]]).map(drop).map_err(failure)
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

fn write_lease(desk: &mut Desk<'_>, write: &LeaseWrite) -> Result<(), Failure> {
    let (kind, subject, number) = write.holder.columns();
    let written = match &write.act {
        LeaseAct::Open { fence, mode, until } => {
            let sql = "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 1)
                ON CONFLICT DO UPDATE SET
                    until = CASE WHEN fence = excluded.fence AND mode = excluded.mode
                        THEN max(until, excluded.until) ELSE excluded.until END,
                    fence = excluded.fence, mode = excluded.mode, open = 1
                WHERE open = 0 OR fence <> excluded.fence OR mode <> excluded.mode
                    OR until < excluded.until";
            let values = params![kind, subject, number, fence, mode, until.as_millis()];
            desk.text(sql)?.execute(values)
        }
        LeaseAct::Close => {
            let sql = "UPDATE leases SET open = 0
                WHERE kind = ?1 AND subject = ?2 AND number = ?3 AND open = 1";
            desk.text(sql)?.execute(params![kind, subject, number])
        }
        LeaseAct::Drop => {
            let sql = "DELETE FROM leases WHERE kind = ?1 AND subject = ?2 AND number = ?3";
            desk.text(sql)?.execute(params![kind, subject, number])
        }
    };
    written.map(drop).map_err(failure)
}

/// Effects, the answer to the request, and events, which are written with those of others.
fn append(desk: &mut Desk<'_>, commit: &Commit) -> Result<(), Failure> {
    for effect in &commit.effects {
        let values = params![
            effect.task.map(|id| id.to_string()),
            effect.attempt.map(|attempt| attempt.0),
            effect.kind,
            effect.body,
            effect.due_at.as_millis(),
        ];
        let sql = "INSERT INTO effects (task, attempt, kind, body, due_at)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        desk.text(sql)?.execute(values).map_err(failure)?;
    }
    if let Some(request) = &commit.request {
        let (principal, key) = (&request.principal, &request.key);
        let (hash, answer, at) = (&request.body_hash, &request.answer, request.at.as_millis());
        let sql = "INSERT INTO requests VALUES (?1, ?2, ?3, ?4, ?5)";
        let values = params![principal, key, hash, answer, at];
        desk.text(sql)?.execute(values).map_err(failure)?;
    }
    commit.events.iter().try_for_each(|event| desk.event(event, commit.revision_of(event.task)))
}
