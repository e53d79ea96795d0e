//! Decisions written in one go: everything from BEGIN to COMMIT is sent at once, and the database
//! itself checks what the decisions read.
//!
//! Hardly any decision is overtaken. So every row is taken to be at the revision that the first
//! decision of the batch expects; the decisions are judged by that, and each statement that writes
//! or looks fails unless it is so. Then nothing of the batch was done, and it is done again with
//! care: what is read is locked and compared first, and each decision gets its own answer. One way
//! to the database instead of two, and rows that change are found once instead of twice.
//!
//! Rows are taken in one order over all tables here too. A table of which some rows are read and
//! others are changed would be gone through twice, so its batch is done with care.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use belay_kernel::Revision;

use super::args::Arg;
use super::batch::{self, Broken, Known, Left, Statement, Written, judge};
use super::link::{Link, Session};
use crate::commit::{ABSENT, Change, Commit, Committed};
use crate::row::Key;
use crate::table::Table;

/// How the transaction stands in which decisions are to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    No,
}

/// Whether a batch can be written in one go.
pub(super) fn can(commits: &[&Commit]) -> bool {
    let mut updated: BTreeMap<usize, BTreeSet<Key>> = BTreeMap::new();
    for (change, expected) in commits.iter().flat_map(|commit| &commit.changes) {
        match change {
            Change::Put(_) if *expected == ABSENT => {}
            Change::Put(row) => {
                updated.entry(row.table.rank).or_default().insert(row.key());
            }
            Change::Delete(_) => return false,
        }
    }
    let mut read = commits.iter().flat_map(|commit| &commit.expect);
    read.all(|(key, _)| updated.get(&key.table.rank).is_none_or(|keys| keys.contains(key)))
}

/// Writes decisions that can be written in one go. Nothing, if something that they read has
/// changed, or a rule was broken: then nothing was done.
pub(super) async fn commit(
    link: &Link,
    client: &Session,
    commits: &[&Commit],
    begun: Begun,
) -> Result<Option<Vec<Committed>>, Broken> {
    let mut known = assumed(commits);
    let (answers, left) = judge(commits, &mut known);
    match batch::write(link, client, guards(&known, &left), &left, begun).await {
        Ok(Written::Durable) => Ok(Some(answers)),
        Ok(Written::Unknown(batch)) => Err(Broken::Unknown(batch, answers)),
        Err(Broken::Rule(_) | Broken::Raced) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Every row at the revision that the first decision which names it expects.
fn assumed(commits: &[&Commit]) -> Known {
    let mut revisions: HashMap<Key, Revision> = HashMap::new();
    for commit in commits {
        for (key, expected) in &commit.expect {
            revisions.entry(key.clone()).or_insert(*expected);
        }
        for (change, expected) in &commit.changes {
            revisions.entry(change.key()).or_insert(*expected);
        }
    }
    Known { revisions, requests: HashMap::new() }
}

/// What makes sure of the rows that are not written.
fn guards(known: &Known, left: &Left<'_>) -> BTreeMap<usize, Statement> {
    let mut tables: BTreeMap<usize, (&'static Table, BTreeMap<&Key, Revision>)> = BTreeMap::new();
    for (key, revision) in known.revisions.iter().filter(|(key, _)| !left.rows.contains_key(*key)) {
        let (_, rows) = tables.entry(key.table.rank).or_insert((key.table, BTreeMap::new()));
        rows.insert(key, *revision);
    }
    let guard = |(rank, (table, rows)): (usize, (&'static Table, BTreeMap<&Key, Revision>))| {
        let mut args = batch::key_args(table, rows.keys().copied());
        let there = rows.values().filter(|revision| **revision != ABSENT);
        args.push(Arg::Ints(there.map(|revision| Some(batch::int(*revision))).collect()));
        (rank, Statement::new(&table.many.guard, args))
    };
    tables.into_iter().map(guard).collect()
}
