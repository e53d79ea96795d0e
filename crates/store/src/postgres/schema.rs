//! The schema: migrations under a lock, and which installation this is.

use belay_kernel::Timestamp;

use super::args::Arg;
use super::link::{Link, Session, Trouble, transact};
use crate::migrate::{Migration, NEWEST, missing};
use crate::open::{OpenError, draw, draw_epoch, wall_clock};
use crate::refusal::Failure;
use crate::store::Installation;

/// PostgreSQL 13.
const OLDEST: i64 = 130_000;
/// A number that nobody else locks: “belay” in base 32.
const LOCK: i64 = 0x62_656c_6179;

/// Brings the schema up to number `upto`. The lock is the transaction's, not the session's, so it
/// holds behind a pooler too; whoever waits for it finds nothing left to do.
pub(super) async fn migrate(link: &Link, upto: u32) -> Result<(), OpenError> {
    let outcome = transact!(link, close_once, |client| migrate_in(client, upto));
    match outcome {
        Ok(Outcome::Done) => Ok(()),
        Ok(Outcome::Newer(found)) => Err(OpenError::Newer { found, known: NEWEST }),
        Ok(Outcome::TooOld(version)) => Err(OpenError::TooOld(version)),
        Err(failure) => Err(opened(link, failure)),
    }
}

enum Outcome {
    Done,
    Newer(u32),
    TooOld(String),
}

async fn migrate_in(client: &Session, upto: u32) -> Result<Outcome, Trouble> {
    let sql = "SELECT current_setting('server_version_num')::bigint,
        current_setting('server_version')";
    let rows = client.query(sql, &[]).await?;
    let row = rows.first().ok_or(Failure::Closed)?;
    if row.try_get::<_, i64>(0)? < OLDEST {
        return Ok(Outcome::TooOld(row.try_get(1)?));
    }
    client.query("SELECT pg_advisory_xact_lock($1)", &[Arg::int(LOCK)]).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS migrations (
                number BIGINT PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL)",
        )
        .await?;
    let newest = "SELECT coalesce(max(number), 0) FROM migrations";
    let rows = client.query(newest, &[]).await?;
    let applied: i64 = rows.first().ok_or(Failure::Closed)?.try_get(0)?;
    let applied = u32::try_from(applied).unwrap_or(u32::MAX);
    let missing = match missing(applied, upto) {
        Ok(missing) => missing,
        Err(newer) => return Ok(Outcome::Newer(newer.found)),
    };
    for migration in missing {
        apply(client, migration).await?;
    }
    leave_room(client).await?;
    Ok(Outcome::Done)
}

/// Rows that are rewritten many times, in columns that no index has, and how full their pages may
/// be made: with room beside a row its next version needs no entry in any index. This is how a
/// table is stored, not what it is, so it has no number and may change with any release.
const ROOM: [(&str, &str); 2] = [("attempts", "fillfactor=60"), ("ledgers", "fillfactor=80")];

async fn leave_room(client: &Session) -> Result<(), Trouble> {
    let has = "SELECT coalesce($2 = ANY(reloptions), false) FROM pg_class
        WHERE oid = to_regclass($1)";
    for (table, room) in ROOM {
        let rows = client.query(has, &[Arg::text(table), Arg::text(room)]).await?;
        let has: Option<bool> = rows.first().map(|row| row.try_get(0)).transpose()?;
        if has == Some(false) {
            client.batch_execute(&format!("ALTER TABLE {table} SET ({room})")).await?;
        }
    }
    Ok(())
}

async fn apply(client: &Session, migration: &Migration) -> Result<(), Trouble> {
    client.batch_execute(&migration.postgres()).await?;
    let args = [
        Arg::int(i64::from(migration.number)),
        Arg::text(migration.name),
        Arg::int(wall_clock().as_millis()),
    ];
    client.execute("INSERT INTO migrations VALUES ($1, $2, $3)", &args).await?;
    Ok(())
}

/// Which installation this is; a new database becomes a new one.
pub(super) async fn installation(link: &Link) -> Result<Installation, OpenError> {
    let id = belay_kernel::InstallationId::from_bits(draw()).to_string();
    let epoch = i64::try_from(draw_epoch()).unwrap_or(i64::MAX);
    let found: Result<_, Failure> = transact!(link, close, |client| draw_in(client, &id, epoch));
    let found = found.map_err(|failure| opened(link, failure))?;
    let id = found.0.parse().map_err(|_| OpenError::Address("its installation row".into()))?;
    Ok(Installation { id, epoch: found.1.unsigned_abs() })
}

async fn draw_in(client: &Session, id: &str, epoch: i64) -> Result<(String, i64), Trouble> {
    let insert = "INSERT INTO installation VALUES (1, $1, $2, $3) ON CONFLICT DO NOTHING";
    let args = [Arg::text(id), Arg::int(epoch), Arg::int(wall_clock().as_millis())];
    client.execute(insert, &args).await?;
    let rows = client.query("SELECT id, epoch FROM installation", &[]).await?;
    let row = rows.first().ok_or(Failure::Closed)?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// The newest moment among the newest events.
pub(super) async fn newest_moment(link: &Link) -> Result<Timestamp, OpenError> {
    let found: Result<_, Failure> = transact!(link, close, |client| async {
        let sql = "SELECT coalesce(max(at), 0)
            FROM (SELECT at FROM events ORDER BY number DESC LIMIT 1000) newest";
        let rows = client.query(sql, &[]).await?;
        Ok::<_, Trouble>(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
    });
    found.map(Timestamp::from_millis).map_err(|failure| opened(link, failure))
}

fn opened(link: &Link, failure: Failure) -> OpenError {
    match failure {
        Failure::Unreachable(why) => OpenError::Unreachable(link.options.patience, why),
        other => {
            let source = std::error::Error::source(&other).map(ToString::to_string);
            OpenError::Address(source.unwrap_or_else(|| other.to_string()))
        }
    }
}
