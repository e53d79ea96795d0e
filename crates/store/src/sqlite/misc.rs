//! Timers, leases, events, effects, pruning.

use belay_kernel::{AttemptNumber, Revision, Span, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use super::desk::Desk;
use super::failure;
use crate::cell::{Cell, Kind};
use crate::effect::{Effect, NewEffect, Settle, Settled};
use crate::event::{Cursor, Event, EventFilter, Events, NewEvent, check_cursor};
use crate::lease::{Beat, Beaten, Holder, Lease, LeaseKind};
use crate::refusal::Failure;
use crate::row::Key;
use crate::rows::TABLES;
use crate::store::{Due, Prune, Pruned};
use crate::table::{Table, Timer};

/// At most so many rows are forgotten in one go, so that nobody waits long behind it.
const PRUNE: i64 = 5_000;

fn timed() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().map(|table| table()).filter(|table| table.timer == Timer::Due)
}

/// Whether anything is due.
pub(super) fn any_due(connection: &Connection, now: Timestamp) -> Result<bool, Failure> {
    for table in timed() {
        let sql = format!("SELECT 1 FROM {} WHERE due_at <= ?1 LIMIT 1", table.name);
        let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
        if statement.exists(params![now.as_millis()]).map_err(failure)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes what is due, table by table, the earliest first.
pub(super) fn take_due(
    desk: &mut Desk<'_>,
    now: Timestamp,
    hold: Span,
    limit: usize,
) -> Result<Vec<Due>, Failure> {
    let connection = desk.connection;
    let mut found = Vec::new();
    for table in timed() {
        let sql = format!(
            "SELECT {}, due_at FROM {} WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
            table.key_list(),
            table.name
        );
        let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![now.as_millis(), limit]).map_err(failure)?;
        while let Some(row) = rows.next().map_err(failure)? {
            let key = key(table, row).map_err(failure)?;
            let at = Timestamp::from_millis(row.get(table.key).map_err(failure)?);
            found.push(Due { at, key });
        }
    }
    found.sort();
    found.truncate(limit);
    for due in &found {
        desk.forget(&due.key);
        let table = due.key.table;
        let sql = format!(
            "UPDATE {} SET due_at = ?{} WHERE {}",
            table.name,
            table.key + 1,
            table.key_equals(1)
        );
        let until = Cell::Int(now.after(hold).as_millis());
        let values = due.key.cells.iter().chain(std::iter::once(&until));
        let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
        statement.execute(params_from_iter(values)).map_err(failure)?;
    }
    Ok(found)
}

fn key(table: &'static Table, row: &Row<'_>) -> rusqlite::Result<Key> {
    let cell = |index: usize| match table.columns[index].kind {
        Kind::Int => row.get(index).map(Cell::Int),
        Kind::Text(_) => row.get(index).map(Cell::Text),
    };
    let cells: rusqlite::Result<Vec<Cell>> = (0..table.key).map(cell).collect();
    Ok(Key { table, cells: cells? })
}

/// Sets when a row is due.
pub(super) fn rearm(
    desk: &mut Desk<'_>,
    key: &Key,
    revision: Revision,
    due_at: Option<Timestamp>,
) -> Result<(), Failure> {
    let table = key.table;
    if table.timer == Timer::None {
        return Ok(());
    }
    let sql = format!(
        "UPDATE {} SET due_at = ?{} WHERE {} AND revision = ?{}",
        table.name,
        table.key + 1,
        table.key_equals(1),
        table.key + 2
    );
    let due = due_at.map_or(Cell::Null, |at| Cell::Int(at.as_millis()));
    let revision = Cell::Int(i64::try_from(revision.0).unwrap_or(i64::MAX));
    let values = key.cells.iter().chain([&due, &revision]);
    desk.forget(key);
    let mut statement = desk.connection.prepare_cached(&sql).map_err(failure)?;
    statement.execute(params_from_iter(values)).map(drop).map_err(failure)
}

/// Renews leases.
pub(super) fn beat(
    connection: &Connection,
    beats: &[Beat],
    now: Timestamp,
) -> Result<Vec<Beaten>, Failure> {
    let renew = "UPDATE leases SET until = max(until, ?5), beaten_at = max(beaten_at, ?6)
        WHERE kind = ?1 AND subject = ?2 AND number = ?3 AND fence = ?4 AND open = 1
        RETURNING until";
    let there = "SELECT 1 FROM leases WHERE kind = ?1 AND subject = ?2 AND number = ?3";
    let mut renew = connection.prepare_cached(renew).map_err(failure)?;
    let mut there = connection.prepare_cached(there).map_err(failure)?;
    let mut answers = Vec::with_capacity(beats.len());
    for beat in beats {
        let (kind, subject, number) = beat.holder.columns();
        let values =
            params![kind, subject, number, beat.fence, beat.until.as_millis(), now.as_millis()];
        let until = renew.query_row(values, |row| row.get(0)).optional().map_err(failure)?;
        answers.push(match until {
            Some(until) => Beaten::Current { until: Timestamp::from_millis(until) },
            None if there.exists(params![kind, subject, number]).map_err(failure)? => {
                Beaten::Fenced
            }
            None => Beaten::Gone,
        });
    }
    Ok(answers)
}

/// Lists leases.
pub(super) fn leases(connection: &Connection, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
    let sql = "SELECT kind, subject, number, fence, mode, until, beaten_at, open FROM leases
        WHERE kind = ?1 ORDER BY subject, number";
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    let rows = statement.query_map(params![kind.name()], |row| {
        let (kind, subject): (String, String) = (row.get(0)?, row.get(1)?);
        let holder = Holder::from_columns(&kind, &subject, row.get(2)?);
        Ok(holder.map(|holder| {
            Ok::<_, rusqlite::Error>(Lease {
                holder,
                fence: row.get(3)?,
                mode: row.get(4)?,
                until: Timestamp::from_millis(row.get(5)?),
                beaten_at: Timestamp::from_millis(row.get(6)?),
                open: row.get(7)?,
            })
        }))
    });
    let mut leases = Vec::new();
    for lease in rows.map_err(failure)? {
        if let Some(lease) = lease.map_err(failure)? {
            leases.push(lease.map_err(failure)?);
        }
    }
    Ok(leases)
}

/// Extends leases.
pub(super) fn extend_leases(
    connection: &Connection,
    kind: LeaseKind,
    by: Span,
) -> Result<u64, Failure> {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX / 2);
    let sql = "UPDATE leases SET until = until + ?2 WHERE kind = ?1 AND open = 1";
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    let count = statement.execute(params![kind.name(), by]).map_err(failure)?;
    Ok(count as u64)
}

/// The number of the newest event that there ever was.
pub(super) fn newest_event(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'events'";
    let mut statement = connection.prepare_cached(sql)?;
    let newest = statement.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    Ok(newest.unwrap_or(0).unsigned_abs())
}

/// The newest moment among the newest events.
pub(super) fn newest_moment(connection: &Connection) -> rusqlite::Result<Timestamp> {
    let sql = "SELECT coalesce(max(at), 0)
        FROM (SELECT at FROM events ORDER BY number DESC LIMIT 1000)";
    Ok(Timestamp::from_millis(connection.query_row(sql, [], |row| row.get(0))?))
}

/// The numbers of the oldest and of the newest event.
pub(super) fn event_range(connection: &Connection) -> Result<(u64, u64), Failure> {
    let newest = newest_event(connection).map_err(failure)?;
    let mut statement =
        connection.prepare_cached("SELECT min(number) FROM events").map_err(failure)?;
    let oldest: Option<i64> = statement.query_row([], |row| row.get(0)).map_err(failure)?;
    Ok((oldest.map_or(newest + 1, i64::unsigned_abs), newest))
}

/// Events after a cursor.
pub(super) fn events(
    connection: &Connection,
    cursor: Cursor,
    filter: EventFilter,
    limit: usize,
) -> Result<Events, Failure> {
    let (oldest, newest) = event_range(connection)?;
    check_cursor(cursor, cursor.epoch, oldest, newest)?;
    let mut sql = "SELECT number, task, revision, attempt, session, workflow, kind, body, at
        FROM events WHERE number > ?1"
        .to_owned();
    let after = i64::try_from(cursor.number).unwrap_or(i64::MAX);
    let mut values = vec![Cell::Int(after)];
    let wanted = [
        ("task", filter.task.map(|id| id.to_string())),
        ("session", filter.session.map(|id| id.to_string())),
        ("workflow", filter.workflow.map(|id| id.to_string())),
    ];
    for (column, id) in wanted {
        if let Some(id) = id {
            values.push(Cell::Text(id));
            sql += &format!(" AND {column} = ?{}", values.len());
        }
    }
    values.push(Cell::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
    sql += &format!(" ORDER BY number LIMIT ?{}", values.len());
    let mut statement = connection.prepare_cached(&sql).map_err(failure)?;
    let rows = statement.query_map(params_from_iter(values), event).map_err(failure)?;
    let events: Vec<Event> = rows.collect::<rusqlite::Result<_>>().map_err(failure)?;
    // A filtered reader that has everything up to now goes on from now.
    let full = events.len() == limit;
    let number =
        if full { events.last().map_or(cursor.number, |last| last.number) } else { newest };
    Ok(Events { events, cursor: Cursor { number, ..cursor } })
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event {
        number: row.get::<_, i64>(0)?.unsigned_abs(),
        revision: Revision(row.get::<_, i64>(2)?.unsigned_abs()),
        event: NewEvent {
            task: parsed(row, 1)?,
            attempt: row.get::<_, Option<u32>>(3)?.map(AttemptNumber),
            session: parsed(row, 4)?,
            workflow: parsed(row, 5)?,
            kind: row.get(6)?,
            body: row.get(7)?,
            at: Timestamp::from_millis(row.get(8)?),
        },
    })
}

fn parsed<T>(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<T>>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: Option<String> = row.get(index)?;
    let parse = |text: String| {
        text.parse().map_err(|error| {
            let kind = rusqlite::types::Type::Text;
            rusqlite::Error::FromSqlConversionFailure(index, kind, Box::new(error))
        })
    };
    text.map(parse).transpose()
}

/// Takes effects that are due.
pub(super) fn take_effects(
    connection: &Connection,
    now: Timestamp,
    hold: Span,
    limit: usize,
) -> Result<Vec<Effect>, Failure> {
    let sql = "UPDATE effects SET due_at = ?2, tries = tries + 1
        WHERE id IN (SELECT id FROM effects WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?3)
        RETURNING id, tries, task, attempt, kind, body, due_at";
    let mut statement = connection.prepare_cached(sql).map_err(failure)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = params![now.as_millis(), now.after(hold).as_millis(), limit];
    let rows = statement.query_map(values, |row| {
        Ok(Effect {
            id: row.get(0)?,
            tries: row.get(1)?,
            effect: NewEffect {
                task: parsed(row, 2)?,
                attempt: row.get::<_, Option<u32>>(3)?.map(AttemptNumber),
                kind: row.get(4)?,
                body: row.get(5)?,
                due_at: Timestamp::from_millis(row.get(6)?),
            },
        })
    });
    let effects: rusqlite::Result<Vec<Effect>> = rows.map_err(failure)?.collect();
    let mut effects = effects.map_err(failure)?;
    effects.sort_by_key(|effect| effect.id);
    Ok(effects)
}

/// Settles effects that are still held with these tries.
pub(super) fn settle_effects(
    connection: &Connection,
    settled: &[Settled],
) -> Result<Vec<bool>, Failure> {
    let done = "DELETE FROM effects WHERE id = ?1 AND tries = ?2";
    let again = "UPDATE effects SET due_at = ?3 WHERE id = ?1 AND tries = ?2";
    settled
        .iter()
        .map(|settled| {
            let changed = match settled.what {
                Settle::Done => connection
                    .prepare_cached(done)
                    .and_then(|mut one| one.execute(params![settled.id, settled.tries])),
                Settle::Again(at) => connection.prepare_cached(again).and_then(|mut one| {
                    one.execute(params![settled.id, settled.tries, at.as_millis()])
                }),
            };
            changed.map(|count| count == 1).map_err(failure)
        })
        .collect()
}

/// Forgets old events and answers.
pub(super) fn prune(desk: &mut Desk<'_>, prune: Prune) -> Result<Pruned, Failure> {
    desk.write_events()?;
    let connection = desk.connection;
    let kept = "SELECT number FROM events WHERE at >= ?1 ORDER BY number LIMIT 1";
    let mut statement = connection.prepare_cached(kept).map_err(failure)?;
    let kept = statement.query_row(params![prune.events_before.as_millis()], |row| row.get(0));
    let kept: i64 = kept.optional().map_err(failure)?.unwrap_or(i64::MAX);
    let events = "DELETE FROM events WHERE number IN
        (SELECT number FROM events WHERE number < ?1 ORDER BY number LIMIT ?2)";
    let events = connection.execute(events, params![kept, PRUNE]).map_err(failure)?;
    let requests = "DELETE FROM requests WHERE (principal, key) IN
        (SELECT principal, key FROM requests WHERE at < ?1 ORDER BY at LIMIT ?2)";
    let before = prune.requests_before.as_millis();
    let requests = connection.execute(requests, params![before, PRUNE]).map_err(failure)?;
    Ok(Pruned { events: events as u64, requests: requests as u64 })
}
