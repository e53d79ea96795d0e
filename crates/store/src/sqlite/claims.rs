//! Claiming from the queues.

use belay_kernel::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::desk::Desk;
use super::threads::{Care, Stopped};
use super::{apply, failure};
use crate::cell::Cell;
use crate::claim::{Candidate, Claim, ClaimAsk, Decide, Entry, Judged, Related, merge};
use crate::refusal::Failure;
use crate::row::{Key, Record as _, Stored};
use crate::rows::TaskRow;

/// Looks at the heads of the role's queues, judges, commits.
pub(super) fn claim(
    desk: &mut Desk<'_>,
    ask: &ClaimAsk,
    decide: &Decide,
    care: Care,
) -> Result<Vec<Claim>, Stopped> {
    let entries = merge(heads(desk, ask)?, ask);
    let candidates = entries.into_iter().map(|entry| candidate(desk, entry));
    let judged = Judged::of(candidates.filter_map(Result::transpose), ask.limit, decide)?;
    let committed: Result<Vec<_>, _> =
        judged.commits.iter().map(|commit| apply::commit(desk, commit, care)).collect();
    Ok(judged.answer(committed?))
}

/// A task with what its claim reads.
fn candidate(desk: &mut Desk<'_>, entry: Entry) -> Result<Option<Candidate>, Failure> {
    let key = Key { table: TaskRow::table(), cells: vec![Cell::Text(entry.id)] };
    let Some(raw) = desk.row(&key)? else { return Ok(None) };
    let task = Stored::<TaskRow>::read(&raw)?;
    let related = Related::of(&task.row);
    let mut found = Vec::with_capacity(4);
    for key in related.keys() {
        let row = desk.row(&key)?;
        found.push((key, row));
    }
    let find =
        |key: &Key| found.iter().find(|(known, _)| known == key).and_then(|(_, row)| row.clone());
    related.candidate(task, &find).map(Some)
}

/// The oldest claimable tasks of each priority that is in use.
fn heads(desk: &mut Desk<'_>, ask: &ClaimAsk) -> Result<Vec<Entry>, Failure> {
    let next = "SELECT max(priority) FROM tasks
        WHERE role = ?1 AND claim_at IS NOT NULL AND priority < ?2";
    let first = "SELECT max(priority) FROM tasks WHERE role = ?1 AND claim_at IS NOT NULL";
    let oldest = "SELECT claim_at, id FROM tasks
        WHERE role = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at <= ?3
        ORDER BY claim_at, id LIMIT ?4";
    let look = i64::try_from(ask.look()).unwrap_or(i64::MAX);
    let mut heads = Vec::new();
    let mut level = level(desk, first, params![ask.role])?;
    while let Some(priority) = level {
        let statement = desk.text(oldest)?;
        let values = params![ask.role, priority, ask.now.as_millis(), look];
        let rows = statement.query_map(values, |row| {
            let claim_at = Timestamp::from_millis(row.get(0)?);
            Ok(Entry { priority, claim_at, id: row.get(1)? })
        });
        for entry in rows.map_err(failure)? {
            heads.push(entry.map_err(failure)?);
        }
        level = self::level(desk, next, params![ask.role, priority])?;
    }
    Ok(heads)
}

fn level(
    desk: &mut Desk<'_>,
    sql: &'static str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Option<i64>, Failure> {
    desk.text(sql)?.query_row(values, |row| row.get(0)).map_err(failure)
}

/// The roles at the heads of whose queues something can be claimed.
pub(super) fn waiting_roles(
    connection: &Connection,
    now: Timestamp,
) -> Result<Vec<String>, Failure> {
    let next = "SELECT role FROM tasks WHERE claim_at IS NOT NULL AND role > ?1
        ORDER BY role LIMIT 1";
    let any = "SELECT 1 FROM tasks WHERE claim_at IS NOT NULL AND role = ?1 AND claim_at <= ?2
        LIMIT 1";
    let mut roles = Vec::new();
    let mut last = String::new();
    loop {
        let mut statement = connection.prepare_cached(next).map_err(failure)?;
        let found = statement.query_row(params![last], |row| row.get::<_, String>(0));
        let Some(role) = found.optional().map_err(failure)? else { return Ok(roles) };
        let mut statement = connection.prepare_cached(any).map_err(failure)?;
        if statement.exists(params![role, now.as_millis()]).map_err(failure)? {
            roles.push(role.clone());
        }
        last = role;
    }
}
