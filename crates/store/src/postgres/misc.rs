//! Rows, timers, leases, events, effects, pruning.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use belay_kernel::{AttemptNumber, Revision, Span, Timestamp};
use tokio_postgres::Row;

use super::args::{Arg, array_of, cell, raw};
use super::batch::key_arrays;
use super::link::{Session, Trouble};
use crate::commit::Answered;
use crate::effect::{Effect, NewEffect, Settle, Settled};
use crate::event::{Cursor, Event, EventFilter, Events, NewEvent, check_cursor};
use crate::lease::{Beat, Beaten, Holder, Lease, LeaseKind};
use crate::query::{Scan, Test};
use crate::refusal::Failure;
use crate::row::{Key, RawRow};
use crate::rows::TABLES;
use crate::store::{Due, Prune, Pruned};
use crate::table::{Table, Timer};

/// At most so many rows are forgotten in one go.
const PRUNE: i64 = 5_000;
/// Marks of batches are needed for as long as a lost connection may be asked for.
const KEEP_BATCHES_MS: i64 = 3_600_000;

type Answer<T> = Result<T, Trouble>;

/// Rows by key, in order.
pub(super) async fn rows(
    client: &Session,
    table: &'static Table,
    keys: &[Key],
) -> Answer<Vec<Option<RawRow>>> {
    let (matches, args) = key_arrays(table, keys.iter());
    let sql =
        format!("SELECT {}, revision FROM {} WHERE {matches}", table.column_list(), table.view);
    let mut found: HashMap<Vec<crate::Cell>, RawRow> = HashMap::new();
    for row in client.query(&sql, &args).await? {
        let row = raw(table, &row)?;
        found.insert(row.cells[..table.key].to_vec(), row);
    }
    Ok(keys.iter().map(|key| found.get(&key.cells).cloned()).collect())
}

/// Rows by conditions, newest first.
pub(super) async fn scan(client: &Session, scan: &Scan) -> Answer<Vec<RawRow>> {
    let table = scan.table;
    let mut args: Vec<Arg> = Vec::new();
    let mut sql =
        format!("SELECT {}, revision FROM {} WHERE true", table.column_list(), table.view);
    for (index, test) in &scan.tests {
        let (name, kind) = (&table.columns[*index].name, table.columns[*index].kind);
        let next = args.len() + 1;
        let _ = match test {
            Test::OneOf(cells) => {
                args.push(Arg::column(kind, cells.iter()));
                write!(sql, " AND {name} = ANY(${next}::{})", array_of(kind))
            }
            Test::Prefix(prefix) => {
                args.push(Arg::text(prefix));
                args.push(Arg::text(format!("{prefix}\u{10ffff}")));
                write!(sql, " AND {name} >= ${next} AND {name} < ${}", next + 1)
            }
            Test::Empty => write!(sql, " AND {name} IS NULL"),
        };
    }
    let newest = table.newest_by;
    if let Some(after) = &scan.after {
        let at = args.len() + 1;
        args.push(Arg::of(&after.newest, table.columns[scan.newest_by()].kind));
        let mut places = Vec::new();
        for (index, cell) in after.key.iter().enumerate() {
            args.push(Arg::of(cell, table.columns[index].kind));
            places.push(format!("${}", args.len()));
        }
        let (list, places) = (table.key_list(), places.join(", "));
        let _ =
            write!(sql, " AND {newest} <= ${at} AND ({newest} < ${at} OR ({list}) > ({places}))");
    }
    args.push(Arg::int(i64::try_from(scan.limit).unwrap_or(i64::MAX)));
    let _ = write!(sql, " ORDER BY {newest} DESC, {} LIMIT ${}", table.key_list(), args.len());
    let rows = client.query(&sql, &args).await?;
    rows.iter().map(|row| raw(table, row).map_err(Trouble::from)).collect()
}

/// How many rows have each value of a column, in the order of the values.
pub(super) async fn tally(
    client: &Session,
    table: &Table,
    column: &str,
) -> Answer<Vec<(String, u64)>> {
    let rows = client.query(&table.tally_sql(column), &[]).await?;
    let counted = |row: &Row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs()));
    rows.iter().map(counted).collect()
}

/// The database's clock.
pub(super) async fn clock(client: &Session) -> Answer<Timestamp> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let rows = client.query(sql, &[]).await?;
    let row = rows.first().ok_or(Failure::Closed)?;
    Ok(Timestamp::from_millis(row.try_get(0)?))
}

/// What is due in each table that has timers.
static DUE: LazyLock<Vec<(&'static Table, String)>> = LazyLock::new(|| {
    let timed = TABLES.iter().map(|table| table()).filter(|table| table.timer == Timer::Due);
    let look = |table: &'static Table| {
        let sql = format!(
            "SELECT {}, due_at FROM {} WHERE due_at <= $1 ORDER BY due_at LIMIT $2 \
             FOR NO KEY UPDATE SKIP LOCKED",
            table.key_list(),
            table.name
        );
        (table, sql)
    };
    timed.map(look).collect()
});

/// Takes what is due, and shares it with other nodes by skipping what they hold.
pub(super) async fn take_due(
    client: &Session,
    now: Timestamp,
    hold: Span,
    limit: usize,
) -> Answer<Vec<Due>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let args = [Arg::int(now.as_millis()), Arg::int(limit)];
    let looks = DUE.iter().map(|(table, sql)| {
        let args = &args;
        async move { (*table, client.query(sql, args).await) }
    });
    let mut found: Vec<Due> = Vec::new();
    for (table, rows) in futures_util::future::join_all(looks).await {
        for row in rows? {
            let cells: Result<Vec<_>, _> =
                (0..table.key).map(|index| cell(&row, index, table.columns[index].kind)).collect();
            let at = Timestamp::from_millis(row.try_get(table.key)?);
            found.push(Due { at, key: Key { table, cells: cells? } });
        }
    }
    found.sort();
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    for table in TABLES.iter().map(|table| table()) {
        let keys: Vec<&Key> =
            found.iter().map(|due| &due.key).filter(|key| key.table.rank == table.rank).collect();
        if keys.is_empty() {
            continue;
        }
        let (matches, mut args) = key_arrays(table, keys.into_iter());
        args.push(Arg::int(now.after(hold).as_millis()));
        let sql = format!("UPDATE {} SET due_at = ${} WHERE {matches}", table.name, args.len());
        client.execute(&sql, &args).await?;
    }
    Ok(found)
}

/// Sets when a row is due.
pub(super) async fn rearm(
    client: &Session,
    key: &Key,
    revision: Revision,
    due_at: Option<Timestamp>,
) -> Answer<()> {
    let table = key.table;
    if table.timer == Timer::None {
        return Ok(());
    }
    let (matches, mut args) = key_arrays(table, std::iter::once(key));
    args.push(Arg::Int(due_at.map(Timestamp::as_millis)));
    args.push(Arg::int(i64::try_from(revision.0).unwrap_or(i64::MAX)));
    let sql = format!(
        "UPDATE {} SET due_at = ${} WHERE {matches} AND revision = ${}",
        table.name,
        args.len() - 1,
        args.len()
    );
    client.execute(&sql, &args).await?;
    Ok(())
}

/// Renews leases. The same holder twice in a batch is renewed to the later end.
pub(super) async fn beat(client: &Session, beats: &[Beat], now: Timestamp) -> Answer<Vec<Beaten>> {
    let mut asked: HashMap<(Holder, &str), i64> = HashMap::with_capacity(beats.len());
    for beat in beats {
        let until = asked.entry((beat.holder, &beat.fence)).or_insert(i64::MIN);
        *until = (*until).max(beat.until.as_millis());
    }
    let mut columns: [Vec<Option<String>>; 3] = Default::default();
    let (mut numbers, mut untils) = (Vec::new(), Vec::new());
    // Locked in one order, so that two batches never wait for each other in a ring.
    let mut ordered: Vec<_> = asked.iter().collect();
    ordered.sort();
    for ((holder, fence), until) in ordered {
        let (kind, subject, number) = holder.columns();
        columns[0].push(Some(kind.to_owned()));
        columns[1].push(Some(subject));
        columns[2].push(Some((*fence).to_owned()));
        numbers.push(Some(number));
        untils.push(Some(*until));
    }
    let [kinds, subjects, fences] = columns.map(Arg::Texts);
    let args =
        [kinds, subjects, Arg::Ints(numbers), fences, Arg::Ints(untils), Arg::int(now.as_millis())];
    let sql = "WITH v AS MATERIALIZED (
            SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
                AS v(kind, subject, number, fence, until)),
        held AS MATERIALIZED (
            SELECT l.kind, l.subject, l.number FROM leases l
            JOIN v USING (kind, subject, number, fence) WHERE l.open = 1
            ORDER BY l.kind, l.subject, l.number FOR NO KEY UPDATE OF l),
        renewed AS (
            UPDATE leases l SET until = greatest(l.until, v.until),
                beaten_at = greatest(l.beaten_at, $6)
            FROM v JOIN held h USING (kind, subject, number)
            WHERE l.kind = v.kind AND l.subject = v.subject AND l.number = v.number
                AND l.fence = v.fence AND l.open = 1
            RETURNING l.kind, l.subject, l.number, l.fence, l.until)
        SELECT kind, subject, number, fence, until FROM renewed";
    let mut renewed: HashMap<(Holder, String), i64> = HashMap::with_capacity(beats.len());
    for row in client.query(sql, &args).await? {
        if let Some(holder) = holder(&row)? {
            renewed.insert((holder, row.try_get(3)?), row.try_get(4)?);
        }
    }
    let missing: Vec<&Beat> = beats
        .iter()
        .filter(|beat| !renewed.contains_key(&(beat.holder, beat.fence.clone())))
        .collect();
    let there = present(client, &missing).await?;
    let answer = |beat: &Beat| match renewed.get(&(beat.holder, beat.fence.clone())) {
        Some(until) => Beaten::Current { until: Timestamp::from_millis(*until) },
        None if there.contains(&beat.holder) => Beaten::Fenced,
        None => Beaten::Gone,
    };
    Ok(beats.iter().map(answer).collect())
}

fn holder(row: &Row) -> Answer<Option<Holder>> {
    let (kind, subject): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Holder::from_columns(&kind, &subject, row.try_get(2)?))
}

async fn present(client: &Session, beats: &[&Beat]) -> Answer<Vec<Holder>> {
    if beats.is_empty() {
        return Ok(Vec::new());
    }
    let columns: Vec<_> = beats.iter().map(|beat| beat.holder.columns()).collect();
    let args = [
        Arg::Texts(columns.iter().map(|one| Some(one.0.to_owned())).collect()),
        Arg::Texts(columns.iter().map(|one| Some(one.1.clone())).collect()),
        Arg::Ints(columns.iter().map(|one| Some(one.2)).collect()),
    ];
    let sql = "SELECT kind, subject, number FROM leases WHERE (kind, subject, number) IN
        (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))";
    let rows = client.query(sql, &args).await?;
    let holders: Result<Vec<_>, _> = rows.iter().map(holder).collect();
    Ok(holders?.into_iter().flatten().collect())
}

/// Lists leases.
pub(super) async fn leases(client: &Session, kind: LeaseKind) -> Answer<Vec<Lease>> {
    let sql = "SELECT kind, subject, number, fence, mode, until, beaten_at, open FROM leases
        WHERE kind = $1 ORDER BY subject, number";
    let rows = client.query(sql, &[Arg::text(kind.name())]).await?;
    let mut leases = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some(holder) = holder(row)? else { continue };
        leases.push(Lease {
            holder,
            fence: row.try_get(3)?,
            mode: row.try_get(4)?,
            until: Timestamp::from_millis(row.try_get(5)?),
            beaten_at: Timestamp::from_millis(row.try_get(6)?),
            open: row.try_get::<_, i64>(7)? == 1,
        });
    }
    Ok(leases)
}

/// Extends leases.
pub(super) async fn extend_leases(client: &Session, kind: LeaseKind, by: Span) -> Answer<u64> {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX / 2);
    let sql = "UPDATE leases SET until = until + $2 WHERE kind = $1 AND open = 1";
    Ok(client.execute(sql, &[Arg::text(kind.name()), Arg::int(by)]).await?)
}

/// The numbers of the oldest and of the newest event.
pub(super) async fn event_range(client: &Session) -> Answer<(u64, u64)> {
    let rows = client.query("SELECT oldest_number, last_number FROM sequencer", &[]).await?;
    let row = rows.first().ok_or(Failure::Closed)?;
    Ok((row.try_get::<_, i64>(0)?.unsigned_abs(), row.try_get::<_, i64>(1)?.unsigned_abs()))
}

/// Events after a cursor. The newest number is read first: everything up to it is there.
pub(super) async fn events(
    client: &Session,
    cursor: Cursor,
    filter: EventFilter,
    limit: usize,
) -> Answer<Events> {
    let (oldest, newest) = event_range(client).await?;
    check_cursor(cursor, cursor.epoch, oldest, newest).map_err(Failure::from)?;
    let mut args = vec![Arg::int(i64::try_from(cursor.number).unwrap_or(i64::MAX))];
    let mut sql = "SELECT number, task, revision, attempt, session, workflow, kind, body, at \
        FROM events WHERE number > $1"
        .to_owned();
    let wanted = [
        ("task", filter.task.map(|id| id.to_string())),
        ("session", filter.session.map(|id| id.to_string())),
        ("workflow", filter.workflow.map(|id| id.to_string())),
    ];
    for (column, id) in wanted {
        if let Some(id) = id {
            args.push(Arg::text(id));
            let _ = write!(sql, " AND {column} = ${}", args.len());
        }
    }
    args.push(Arg::int(i64::try_from(limit).unwrap_or(i64::MAX)));
    let _ = write!(sql, " ORDER BY number LIMIT ${}", args.len());
    let rows = client.query(&sql, &args).await?;
    let events: Vec<Event> = rows.iter().map(event).collect::<Answer<_>>()?;
    let last = events.last().map_or(cursor.number, |last| last.number);
    let number = if events.len() == limit { last } else { last.max(newest) };
    Ok(Events { events, cursor: Cursor { number, ..cursor } })
}

fn parsed<T: std::str::FromStr>(row: &Row, index: usize, table: &str) -> Answer<Option<T>> {
    let text: Option<String> = row.try_get(index)?;
    let parse = |text: String| {
        let source = crate::cell::Unreadable { column: index + 1, found: text.clone() };
        text.parse().map_err(|_| Failure::Unreadable { table: table.to_owned(), source })
    };
    Ok(text.map(parse).transpose()?)
}

fn attempt(row: &Row, index: usize) -> Answer<Option<AttemptNumber>> {
    let number: Option<i64> = row.try_get(index)?;
    Ok(number.and_then(|number| u32::try_from(number).ok()).map(AttemptNumber))
}

fn event(row: &Row) -> Answer<Event> {
    Ok(Event {
        number: row.try_get::<_, i64>(0)?.unsigned_abs(),
        revision: Revision(row.try_get::<_, i64>(2)?.unsigned_abs()),
        event: NewEvent {
            task: parsed(row, 1, "events")?,
            attempt: attempt(row, 3)?,
            session: parsed(row, 4, "events")?,
            workflow: parsed(row, 5, "events")?,
            kind: row.try_get(6)?,
            body: row.try_get(7)?,
            at: Timestamp::from_millis(row.try_get(8)?),
        },
    })
}

/// Takes effects that are due.
pub(super) async fn take_effects(
    client: &Session,
    now: Timestamp,
    hold: Span,
    limit: usize,
) -> Answer<Vec<Effect>> {
    let sql = "UPDATE effects SET due_at = $2, tries = tries + 1
        WHERE id = ANY(ARRAY(SELECT id FROM effects WHERE due_at <= $1 ORDER BY due_at, id LIMIT $3
            FOR UPDATE SKIP LOCKED))
        RETURNING id, tries, task, attempt, kind, body, due_at";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let args = [Arg::int(now.as_millis()), Arg::int(now.after(hold).as_millis()), Arg::int(limit)];
    let mut effects = Vec::new();
    for row in client.query(sql, &args).await? {
        let tries: i64 = row.try_get(1)?;
        effects.push(Effect {
            id: row.try_get(0)?,
            tries: u32::try_from(tries).unwrap_or(u32::MAX),
            effect: NewEffect {
                task: parsed(&row, 2, "effects")?,
                attempt: attempt(&row, 3)?,
                kind: row.try_get(4)?,
                body: row.try_get(5)?,
                due_at: Timestamp::from_millis(row.try_get(6)?),
            },
        });
    }
    effects.sort_by_key(|effect| effect.id);
    Ok(effects)
}

/// Settles effects that are still held with these tries.
pub(super) async fn settle_effects(client: &Session, settled: &[Settled]) -> Answer<Vec<bool>> {
    let done = "DELETE FROM effects WHERE id = $1 AND tries = $2";
    let again = "UPDATE effects SET due_at = $3 WHERE id = $1 AND tries = $2";
    let settle = settled.iter().map(|one| async {
        let mut args = vec![Arg::int(one.id), Arg::int(i64::from(one.tries))];
        let sql = match one.what {
            Settle::Done => done,
            Settle::Again(at) => {
                args.push(Arg::int(at.as_millis()));
                again
            }
        };
        client.execute(sql, &args).await
    });
    let counts = futures_util::future::join_all(settle).await;
    counts.into_iter().map(|count| Ok(count? == 1)).collect()
}

/// The answer to a request.
pub(super) async fn answered(
    client: &Session,
    principal: &str,
    key: &str,
) -> Answer<Option<Answered>> {
    let sql = "SELECT body_hash, answer, at FROM requests WHERE principal = $1 AND key = $2";
    let rows = client.query(sql, &[Arg::text(principal), Arg::text(key)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let at = Timestamp::from_millis(row.try_get(2)?);
    Ok(Some(Answered { body_hash: row.try_get(0)?, answer: row.try_get(1)?, at }))
}

/// Forgets old events, answers and marks of batches.
pub(super) async fn prune(client: &Session, prune: Prune) -> Answer<Pruned> {
    let events = "WITH kept AS (
            SELECT coalesce((SELECT number FROM events WHERE at >= $1 ORDER BY number LIMIT 1),
                (SELECT last_number + 1 FROM sequencer)) AS number),
        gone AS (
            DELETE FROM events WHERE number IN (SELECT e.number FROM events e, kept
                WHERE e.number < kept.number ORDER BY e.number LIMIT $2) RETURNING number),
        told AS (
            UPDATE sequencer SET oldest_number =
                greatest(oldest_number, (SELECT max(number) + 1 FROM gone))
            WHERE EXISTS (SELECT 1 FROM gone))
        SELECT count(*) FROM gone";
    let args = [Arg::int(prune.events_before.as_millis()), Arg::int(PRUNE)];
    let rows = client.query(events, &args).await?;
    let events: i64 = rows.first().ok_or(Failure::Closed)?.try_get(0)?;
    let requests = "DELETE FROM requests WHERE (principal, key) IN
        (SELECT principal, key FROM requests WHERE at < $1 ORDER BY at LIMIT $2)";
    let args = [Arg::int(prune.requests_before.as_millis()), Arg::int(PRUNE)];
    let requests = client.execute(requests, &args).await?;
    // The moment of a void one is below zero.
    let batches = "DELETE FROM batches WHERE id IN (SELECT id FROM batches
        WHERE at BETWEEN -$1 AND $1 ORDER BY at LIMIT $2)";
    let old = clock(client).await?.as_millis().saturating_sub(KEEP_BATCHES_MS);
    let args = [Arg::int(old), Arg::int(PRUNE)];
    client.execute(batches, &args).await?;
    Ok(Pruned { events: events.unsigned_abs(), requests })
}
