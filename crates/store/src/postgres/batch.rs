//! Many decisions in one transaction: lock what they read, judge each, write what is left of all.
//!
//! Rows are locked in one order over all tables, so that transactions wait for each other and do
//! not deadlock. A row that two decisions of the batch change is written once, with its last value.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use belay_kernel::Revision;
use futures_util::future::join_all;
use tokio_postgres::error::SqlState;

use super::args::{Arg, cell};
use super::bold::{self, Begun};
use super::link::{Link, Ready, Session, Trouble};
use crate::commit::{ABSENT, Answered, Change, Commit, Committed, replay};
use crate::lease::{LeaseAct, LeaseWrite};
use crate::open::draw;
use crate::refusal::{Refusal, Rule};
use crate::row::{Key, Row};
use crate::table::Table;

/// Marks a batch as committed. Fails if the batch was declared void, and the batch with it.
const MARK: &str = "INSERT INTO batches VALUES ($1, \
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// Declares a batch void, unless it is marked: its moment is below zero then. If the batch is still
/// under way this waits for its end, and after this it can never be committed. Doing it again
/// changes nothing.
pub(super) const VOID: &str = "INSERT INTO batches VALUES ($1, \
    -(extract(epoch FROM clock_timestamp()) * 1000)::bigint) ON CONFLICT DO NOTHING";

/// Why a batch was not committed.
#[derive(Debug)]
pub(super) enum Broken {
    /// A decision breaks a rule of the database; nothing of the batch was done.
    Rule(Refusal),
    /// A row is not as it was taken to be; nothing of the batch was done.
    Raced,
    /// Something else; nothing of the batch was done.
    Trouble(Trouble),
    /// The connection was lost at COMMIT: the batch's own row tells what became of it, and these
    /// are the answers if it was committed.
    Unknown(String, Vec<Committed>),
}

impl From<Trouble> for Broken {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// A statement with its parameters.
pub(super) struct Statement {
    sql: Cow<'static, str>,
    args: Vec<Arg>,
}

/// Commits decisions in one transaction: in one go, or with care if something stands against it.
pub(super) async fn commit(link: &Link, commits: &[&Commit]) -> Result<Vec<Committed>, Broken> {
    let client = link.client().await?;
    if bold::can(commits)
        && let Some(answers) = bold::commit(link, &client, commits, Begun::No).await?
    {
        return Ok(answers);
    }
    let (begun, known) =
        tokio::join!(client.batch_execute(link.begin_to_write()), lock(&client, commits));
    begun.map_err(Trouble::from)?;
    match known {
        Ok(known) => finish(link, &client, commits, known).await,
        Err(trouble) => Link::close(&client, Err(trouble)).await.map_err(Broken::from),
    }
}

/// Commits decisions in a transaction that is begun already.
pub(super) async fn commit_begun(
    link: &Link,
    client: &Session,
    commits: &[&Commit],
) -> Result<Vec<Committed>, Broken> {
    if bold::can(commits) {
        let answers = bold::commit(link, client, commits, Begun::Yes).await?;
        return answers.ok_or(Broken::Raced);
    }
    match lock(client, commits).await {
        Ok(known) => finish(link, client, commits, known).await,
        Err(trouble) => Link::close(client, Err(trouble)).await.map_err(Broken::from),
    }
}

/// What the database said about everything that the decisions read.
pub(super) struct Known {
    pub(super) revisions: HashMap<Key, Revision>,
    pub(super) requests: HashMap<(String, String), Answered>,
}

/// Locks every row that a decision read or changes, table by table in order.
pub(super) async fn lock(client: &Session, commits: &[&Commit]) -> Result<Known, Trouble> {
    let mut tables: BTreeMap<usize, (&'static Table, BTreeSet<Key>, bool)> = BTreeMap::new();
    for commit in commits {
        let read = commit.expect.iter().map(|(key, _)| (key.clone(), false));
        let changed = commit.changes.iter().map(|(change, _)| (change.key(), true));
        for (key, writes) in read.chain(changed) {
            let entry =
                tables.entry(key.table.rank).or_insert_with(|| (key.table, BTreeSet::new(), false));
            entry.2 |= writes;
            entry.1.insert(key);
        }
    }
    let deletes = commits
        .iter()
        .any(|commit| commit.changes.iter().any(|(change, _)| matches!(change, Change::Delete(_))));
    let looks: Vec<(&'static Table, Statement)> = tables
        .into_values()
        .map(|(table, keys, writes)| {
            let sql = match (deletes, writes) {
                (true, _) => &table.many.lock_to_remove,
                (false, true) => &table.many.lock_to_change,
                (false, false) => &table.many.lock_to_read,
            };
            (table, Statement::new(sql, key_args(table, keys.iter())))
        })
        .collect();
    let requests = requests(commits);
    let statements: Vec<&Statement> = looks.iter().map(|(_, one)| one).chain(&requests).collect();
    let mut found = ask_all(client, &statements).await?.into_iter();
    let mut revisions = HashMap::new();
    for ((table, _), rows) in looks.iter().zip(&mut found) {
        for row in rows {
            let cells: Result<Vec<_>, _> =
                (0..table.key).map(|index| cell(&row, index, table.columns[index].kind)).collect();
            let revision: i64 = row.try_get(table.key)?;
            revisions.insert(Key { table, cells: cells? }, Revision(revision.unsigned_abs()));
        }
    }
    let requests = found.next().map_or_else(|| Ok(HashMap::new()), answers)?;
    Ok(Known { revisions, requests })
}

/// Sends statements one after the other without waiting, and gives the rows of each.
async fn ask_all(
    client: &Session,
    statements: &[&Statement],
) -> Result<Vec<Vec<tokio_postgres::Row>>, Trouble> {
    let ready = ready_all(client, statements).await?;
    let asked = statements.iter().zip(&ready).map(|(one, ready)| async move {
        client.query_ready(ready, &one.sql, &one.args).await.map_err(Trouble::from)
    });
    join_all(asked).await.into_iter().collect()
}

async fn ready_all(client: &Session, statements: &[&Statement]) -> Result<Vec<Ready>, Trouble> {
    let ready = join_all(statements.iter().map(|one| client.ready(&one.sql, &one.args))).await;
    ready.into_iter().map(|ready| ready.map_err(Trouble::from)).collect()
}

/// A condition on the key columns, and its arrays.
pub(super) fn key_arrays<'a>(
    table: &Table,
    keys: impl Iterator<Item = &'a Key> + Clone,
) -> (String, Vec<Arg>) {
    (table.many.matches.clone(), key_args(table, keys))
}

pub(super) fn key_args<'a>(table: &Table, keys: impl Iterator<Item = &'a Key> + Clone) -> Vec<Arg> {
    let column = |index: usize| {
        Arg::column(table.columns[index].kind, keys.clone().map(|key| &key.cells[index]))
    };
    (0..table.key).map(column).collect()
}

fn requests(commits: &[&Commit]) -> Option<Statement> {
    let asked: Vec<_> = commits.iter().filter_map(|commit| commit.request.as_ref()).collect();
    if asked.is_empty() {
        return None;
    }
    let principals = asked.iter().map(|one| Some(one.principal.clone())).collect();
    let keys = asked.iter().map(|one| Some(one.key.clone())).collect();
    let args = vec![Arg::Texts(principals), Arg::Texts(keys)];
    let sql = "SELECT principal, key, body_hash, answer, at FROM requests
        WHERE (principal, key) IN (SELECT * FROM unnest($1::text[], $2::text[]))";
    Some(Statement::new(sql, args))
}

fn answers(rows: Vec<tokio_postgres::Row>) -> Result<HashMap<(String, String), Answered>, Trouble> {
    let mut found = HashMap::new();
    for row in rows {
        let at = belay_kernel::Timestamp::from_millis(row.try_get(4)?);
        let answered = Answered { body_hash: row.try_get(2)?, answer: row.try_get(3)?, at };
        found.insert((row.try_get(0)?, row.try_get(1)?), answered);
    }
    Ok(found)
}

/// What is left to write of all decisions that are done.
#[derive(Default)]
pub(super) struct Left<'a> {
    /// The first revision, and the last value with its revision.
    pub(super) rows: BTreeMap<Key, (Revision, Option<&'a Row>, Revision)>,
    leases: Vec<&'a LeaseWrite>,
    done: Vec<&'a Commit>,
}

/// Judges each decision by what is known, as if they had come one after the other.
pub(super) fn judge<'a>(commits: &[&'a Commit], known: &mut Known) -> (Vec<Committed>, Left<'a>) {
    let mut left = Left::default();
    let mut answers = Vec::with_capacity(commits.len());
    for commit in commits {
        if let Some(request) = &commit.request {
            let key = (request.principal.clone(), request.key.clone());
            if let Some(before) = known.requests.get(&key) {
                answers.push(replay(request, before.clone()));
                continue;
            }
        }
        let read = commit.expect.iter().map(|(key, at)| (key.clone(), *at));
        let changed = commit.changes.iter().map(|(change, at)| (change.key(), *at));
        let now = |key: &Key| known.revisions.get(key).copied().unwrap_or(ABSENT);
        let stale: Vec<Key> =
            read.chain(changed).filter(|(key, at)| now(key) != *at).map(|(key, _)| key).collect();
        if !stale.is_empty() {
            answers.push(Committed::Overtaken(stale));
            continue;
        }
        left.take(commit, known);
        answers.push(Committed::Done);
    }
    (answers, left)
}

impl<'a> Left<'a> {
    fn take(&mut self, commit: &'a Commit, known: &mut Known) {
        for (change, expected) in &commit.changes {
            let key = change.key();
            let (row, next) = match change {
                Change::Put(row) => (Some(row), expected.next()),
                Change::Delete(_) => (None, ABSENT),
            };
            known.revisions.insert(key.clone(), next);
            let entry = self.rows.entry(key).or_insert((*expected, None, ABSENT));
            entry.1 = row;
            entry.2 = next;
            self.leases.extend(row.and_then(|row| row.lease.as_ref()));
        }
        self.leases.extend(&commit.leases);
        if let Some(request) = &commit.request {
            let key = (request.principal.clone(), request.key.clone());
            let (body_hash, answer) = (request.body_hash.clone(), request.answer.clone());
            let answered = Answered { body_hash, answer, at: request.at };
            known.requests.insert(key, answered);
        }
        self.done.push(commit);
    }
}

/// Judges, writes and commits; the transaction is begun and everything that was read is locked.
async fn finish(
    link: &Link,
    client: &Session,
    commits: &[&Commit],
    mut known: Known,
) -> Result<Vec<Committed>, Broken> {
    let (answers, left) = judge(commits, &mut known);
    if left.done.is_empty() {
        client.batch_execute("ROLLBACK").await.map_err(Trouble::from)?;
        return Ok(answers);
    }
    match write(link, client, BTreeMap::new(), &left, Begun::Yes).await? {
        Written::Durable => Ok(answers),
        Written::Unknown(batch) => Err(Broken::Unknown(batch, answers)),
    }
}

/// What became of a transaction whose statements were all accepted.
pub(super) enum Written {
    Durable,
    /// The connection was lost at COMMIT; this is the batch's own row.
    Unknown(String),
}

/// Writes what is left of all decisions and commits. All of it goes out at once, table by table,
/// what makes sure of a table's rows first.
pub(super) async fn write(
    link: &Link,
    client: &Session,
    guards: BTreeMap<usize, Statement>,
    left: &Left<'_>,
    begun: Begun,
) -> Result<Written, Broken> {
    let batch = format!("{:032x}", draw());
    let mut statements = rows(left, guards);
    statements.extend(super::group::appended(&left.done));
    statements.push(Statement::new(MARK, vec![Arg::text(&batch)]));
    statements.extend(leases(left));
    let statements: Vec<&Statement> = statements.iter().collect();
    let ready = match (ready_all(client, &statements).await, begun) {
        (Ok(ready), _) => ready,
        (Err(trouble), Begun::No) => return Err(trouble.into()),
        (Err(trouble), Begun::Yes) => {
            return Link::close(client, Err(trouble)).await.map_err(Broken::from);
        }
    };
    let begin = async {
        match begun {
            Begun::Yes => Ok(()),
            Begun::No => client.batch_execute(link.begin_to_write()).await,
        }
    };
    let written =
        join_all(statements.iter().zip(&ready).map(|(one, ready)| async move {
            client.execute_ready(ready, &one.sql, &one.args).await
        }));
    // COMMIT of a transaction that failed is a rollback.
    let (begun, written, committed) = tokio::join!(begin, written, client.batch_execute("COMMIT"));
    if let Err(error) = begun
        && error.as_db_error().is_some()
    {
        return Err(Trouble::from(error).into());
    }
    let failed = written.into_iter().find_map(Result::err);
    if let Some(error) = failed.filter(|error| error.as_db_error().is_some()) {
        return Err(broken(error, &left.done));
    }
    // Where an answer stopped coming, be it the first one, COMMIT was sent all the same.
    match committed.map_err(Trouble::from) {
        Ok(()) => Ok(Written::Durable),
        Err(Trouble::Lost(_)) => Ok(Written::Unknown(batch)),
        Err(trouble) => Err(trouble.into()),
    }
}

/// Which rule a statement broke, by PostgreSQL's codes.
fn broken(error: tokio_postgres::Error, commits: &[&Commit]) -> Broken {
    let Some(why) = error.as_db_error() else { return Trouble::from(error).into() };
    let state = why.code();
    let named = why.constraint().unwrap_or_default();
    let table = why.table().unwrap_or_default().to_owned();
    if *state == SqlState::DIVISION_BY_ZERO {
        return Broken::Raced;
    }
    let sense = [
        SqlState::CHECK_VIOLATION,
        SqlState::NOT_NULL_VIOLATION,
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
    ];
    let rule = if *state == SqlState::UNIQUE_VIOLATION {
        if named.ends_with("_pkey") {
            return Broken::Raced;
        }
        Rule::unique_in(&table)
    } else if *state == SqlState::FOREIGN_KEY_VIOLATION {
        let deleted =
            commits.iter().flat_map(|commit| &commit.changes).find_map(
                |(change, _)| match change {
                    Change::Delete(key) => Some(key.table().to_owned()),
                    Change::Put(_) => None,
                },
            );
        let (table, rule) = (deleted.unwrap_or(table), Rule::Reference);
        return Broken::Rule(Refusal::Rule { table, rule });
    } else if sense.contains(state) {
        Rule::Sense
    } else {
        return Trouble::from(error).into();
    };
    Broken::Rule(Refusal::Rule { table, rule })
}

/// Rows that are referred to are written first and removed last; rows that give way to new ones,
/// such as an attempt that ends, are written before those.
fn rows(left: &Left<'_>, mut guards: BTreeMap<usize, Statement>) -> Vec<Statement> {
    let mut updates: BTreeMap<usize, Vec<Put<'_>>> = BTreeMap::new();
    let mut inserts: BTreeMap<usize, Vec<Put<'_>>> = BTreeMap::new();
    let mut deletes: BTreeMap<usize, Vec<&Key>> = BTreeMap::new();
    for (key, (first, row, last)) in &left.rows {
        let rank = key.table.rank;
        match (row, *first == ABSENT) {
            (Some(row), true) => inserts.entry(rank).or_default().push((row, *first, *last)),
            (Some(row), false) => updates.entry(rank).or_default().push((row, *first, *last)),
            (None, false) => deletes.entry(rank).or_default().push(key),
            (None, true) => {}
        }
    }
    let mut statements = Vec::new();
    let ranks = updates.keys().chain(inserts.keys()).chain(guards.keys());
    let ranks: BTreeSet<usize> = ranks.copied().collect();
    for rank in ranks {
        statements.extend(guards.remove(&rank));
        statements.extend(updates.get(&rank).map(|rows| write_many(rows, Write::Update)));
        statements.extend(inserts.get(&rank).map(|rows| write_many(rows, Write::Insert)));
    }
    for keys in deletes.into_values().rev() {
        let table = keys[0].table;
        let (matches, args) = key_arrays(table, keys.iter().copied());
        let sql = format!("DELETE FROM {} WHERE {matches}", table.name);
        statements.push(Statement { sql: sql.into(), args });
        if let Some(kind) = table.lease_kind() {
            let subjects = Arg::column(table.columns[0].kind, keys.iter().map(|key| &key.cells[0]));
            statements.push(Statement {
                sql: "DELETE FROM leases WHERE kind = $1 AND subject = ANY($2)".into(),
                args: vec![Arg::text(kind), subjects],
            });
        }
    }
    statements
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Insert,
    Update,
}

/// A row to be written: the revision that it comes in the place of, and its own.
type Put<'a> = (&'a Row, Revision, Revision);

fn write_many(rows: &[Put<'_>], write: Write) -> Statement {
    let table = rows[0].0.table;
    let mut args = Vec::with_capacity(table.columns.len() + 3);
    for (index, column) in table.columns.iter().enumerate() {
        args.push(Arg::column(column.kind, rows.iter().map(|(row, ..)| &row.cells[index])));
    }
    args.push(Arg::Ints(rows.iter().map(|(_, _, last)| Some(int(*last))).collect()));
    if write == Write::Insert {
        return Statement::new(&table.many.insert, args);
    }
    args.push(Arg::Ints(rows.iter().map(|(_, first, _)| Some(int(*first))).collect()));
    args.push(Arg::int(i64::try_from(rows.len()).unwrap_or(i64::MAX)));
    Statement::new(&table.many.update, args)
}

/// A revision as a column.
pub(super) fn int(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// What stops keeping plans for the rest of a transaction.
const PLAN_ANEW: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

/// Leases in rounds, so that no round names a holder twice. They come last: those that end are
/// named by the second column of their key, and a plan from when there were few goes through all.
fn leases(left: &Left<'_>) -> Vec<Statement> {
    let mut rounds: Vec<Vec<&LeaseWrite>> = Vec::new();
    let mut seen: HashMap<crate::lease::Holder, usize> = HashMap::new();
    for write in &left.leases {
        let round = seen.entry(write.holder).or_insert(0);
        if rounds.len() <= *round {
            rounds.push(Vec::new());
        }
        rounds[*round].push(write);
        *round += 1;
    }
    let ends = |write: &&&LeaseWrite| write.act == LeaseAct::Close || write.act == LeaseAct::Drop;
    let anew = left.leases.iter().find(ends).map(|_| Statement::new(PLAN_ANEW, Vec::new()));
    anew.into_iter().chain(rounds.iter().flat_map(|round| lease_round(round))).collect()
}

/// A lease that is opened, column by column.
struct Opened {
    kind: &'static str,
    subject: String,
    number: i64,
    fence: String,
    mode: &'static str,
    until: i64,
}

impl Opened {
    fn of(write: &LeaseWrite) -> Option<Self> {
        match &write.act {
            LeaseAct::Open { fence, mode, until } => {
                let (kind, subject, number) = write.holder.columns();
                let (fence, until) = (fence.clone(), until.as_millis());
                Some(Self { kind, subject, number, fence, mode, until })
            }
            LeaseAct::Close | LeaseAct::Drop => None,
        }
    }
}

fn lease_round(round: &[&LeaseWrite]) -> Vec<Statement> {
    let mut statements = Vec::new();
    let opened: Vec<Opened> = round.iter().filter_map(|write| Opened::of(write)).collect();
    if !opened.is_empty() {
        let texts = |get: fn(&Opened) -> &str| {
            Arg::Texts(opened.iter().map(|one| Some(get(one).to_owned())).collect())
        };
        let args = vec![
            texts(|one| one.kind),
            texts(|one| &one.subject),
            Arg::Ints(opened.iter().map(|one| Some(one.number)).collect()),
            texts(|one| &one.fence),
            texts(|one| one.mode),
            Arg::Ints(opened.iter().map(|one| Some(one.until)).collect()),
        ];
        let sql = "INSERT INTO leases AS l
            SELECT v.*, v.until, 1 FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[],
                $5::text[], $6::bigint[]) AS v(kind, subject, number, fence, mode, until)
            WHERE (SELECT l.open = 1 AND l.fence = v.fence AND l.mode = v.mode
                    AND l.until >= v.until FROM leases l
                WHERE l.kind = v.kind AND l.subject = v.subject AND l.number = v.number)
                IS NOT TRUE
            ON CONFLICT (kind, subject, number) DO UPDATE SET
                until = CASE WHEN l.fence = excluded.fence AND l.mode = excluded.mode
                    THEN greatest(l.until, excluded.until) ELSE excluded.until END,
                fence = excluded.fence, mode = excluded.mode, open = 1
            WHERE l.open = 0 OR l.fence <> excluded.fence OR l.mode <> excluded.mode
                OR l.until < excluded.until";
        statements.push(Statement::new(sql, args));
    }
    let closes = "UPDATE leases SET open = 0
        WHERE open = 1 AND kind = ANY($1::text[]) AND subject = ANY($2::text[])
            AND (kind, subject, number) IN
            (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))";
    let drops = "DELETE FROM leases
        WHERE kind = ANY($1::text[]) AND subject = ANY($2::text[])
            AND (kind, subject, number) IN
            (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))";
    for (act, sql) in [(LeaseAct::Close, closes), (LeaseAct::Drop, drops)] {
        let holders: Vec<_> =
            round.iter().filter(|write| write.act == act).map(|one| one.holder.columns()).collect();
        if !holders.is_empty() {
            let args = vec![
                Arg::Texts(holders.iter().map(|one| Some(one.0.to_owned())).collect()),
                Arg::Texts(holders.iter().map(|one| Some(one.1.clone())).collect()),
                Arg::Ints(holders.iter().map(|one| Some(one.2)).collect()),
            ];
            statements.push(Statement::new(sql, args));
        }
    }
    statements
}

impl Statement {
    pub(super) const fn new(sql: &'static str, args: Vec<Arg>) -> Self {
        Self { sql: Cow::Borrowed(sql), args }
    }
}
