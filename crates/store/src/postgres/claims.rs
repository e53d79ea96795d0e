//! Claiming from the queues: `SKIP LOCKED`, so that claimers do not wait for each other.

use std::collections::{BTreeMap, HashMap};

use belay_kernel::Timestamp;

use super::args::{Arg, raw};
use super::batch::{self, Broken};
use super::link::{Link, Session, Trouble, patiently};
use super::{group, misc};
use crate::claim::{Claim, ClaimAsk, Decide, Entry, Judged, Related, merge};
use crate::commit::{Commit, Committed};
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Record as _, Stored};
use crate::rows::TaskRow;

/// Looks at the heads of the role's queues, judges, commits, in one transaction.
pub(super) async fn claim(
    link: &Link,
    ask: &ClaimAsk,
    decide: &Decide,
) -> Result<Vec<Claim>, Failure> {
    let turn: Result<_, Failure> = patiently!(link, turn(link, ask, decide).await);
    let (judged, outcome) = turn?;
    let commits: Vec<&Commit> = judged.commits.iter().collect();
    let answers = match outcome {
        Ok(answers) => answers,
        // What broke the batch is found one by one; revisions guard what others did meanwhile.
        Err(broken) => group::settle(link, &commits, broken).await?,
    };
    Ok(judged.answer(answers))
}

/// One transaction; what broke it, if a rule did.
async fn turn(
    link: &Link,
    ask: &ClaimAsk,
    decide: &Decide,
) -> Result<(Judged, Result<Vec<Committed>, Broken>), Trouble> {
    let client = link.client().await?;
    let (begun, heads) = tokio::join!(client.batch_execute(link.begin()), heads(&client, ask));
    begun?;
    let judged = match heads {
        Ok(rows) => judge(&client, rows, ask, decide).await,
        Err(trouble) => Err(trouble),
    };
    let judged = match judged {
        Ok(judged) if !judged.commits.is_empty() => judged,
        other => {
            let _ = client.batch_execute("ROLLBACK").await;
            return other.map(|judged| (judged, Ok(Vec::new())));
        }
    };
    let commits: Vec<&Commit> = judged.commits.iter().collect();
    let known = match batch::lock(&client, &commits).await {
        Ok(known) => known,
        Err(trouble) => return Link::close(&client, Err(trouble)).await,
    };
    match batch::finish(&client, &commits, known).await {
        Ok(answers) => Ok((judged, Ok(answers))),
        Err(Broken::Trouble(trouble)) => Err(trouble),
        Err(broken) => Ok((judged, Err(broken))),
    }
}

/// The oldest claimable tasks of each priority that is in use, locked.
async fn heads(client: &Session, ask: &ClaimAsk) -> Result<Vec<RawRow>, Trouble> {
    let table = TaskRow::table();
    let columns: Vec<_> = table.columns.iter().map(|column| format!("t.{}", column.name)).collect();
    let sql = format!(
        "WITH RECURSIVE levels(priority) AS (
            (SELECT priority FROM tasks WHERE role = $1 AND claim_at IS NOT NULL
                ORDER BY priority DESC LIMIT 1)
            UNION ALL
            SELECT (SELECT t.priority FROM tasks t WHERE t.role = $1 AND t.claim_at IS NOT NULL
                AND t.priority < l.priority ORDER BY t.priority DESC LIMIT 1)
            FROM levels l WHERE l.priority IS NOT NULL)
        SELECT {}, t.revision FROM levels l CROSS JOIN LATERAL (
            SELECT * FROM tasks q WHERE q.role = $1 AND q.priority = l.priority
                AND q.claim_at IS NOT NULL AND q.claim_at <= $2
            ORDER BY q.claim_at, q.id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) t
        WHERE l.priority IS NOT NULL",
        columns.join(", ")
    );
    let look = i64::try_from(ask.look()).unwrap_or(i64::MAX);
    let args = [Arg::text(&ask.role), Arg::int(ask.now.as_millis()), Arg::int(look)];
    let rows = client.query(&sql, &args).await?;
    rows.iter().map(|row| raw(table, row).map_err(Trouble::from)).collect()
}

async fn judge(
    client: &Session,
    rows: Vec<RawRow>,
    ask: &ClaimAsk,
    decide: &Decide,
) -> Result<Judged, Trouble> {
    let mut tasks: HashMap<String, Stored<TaskRow>> = HashMap::new();
    let mut heads = Vec::with_capacity(rows.len());
    for row in &rows {
        let task = Stored::<TaskRow>::read(row)?;
        let id = task.row.task.id.to_string();
        // What was claimed while this statement waited is not claimable any more.
        if let Some(claim_at) = task.row.claim_at() {
            heads.push(Entry { priority: task.row.priority, claim_at, id: id.clone() });
            tasks.insert(id, task);
        }
    }
    let order = merge(heads, ask);
    let mut wanted: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
    for entry in &order {
        for key in Related::of(&tasks[&entry.id].row).keys() {
            wanted.entry(key.table.rank).or_default().push(key);
        }
    }
    let mut related: HashMap<Key, RawRow> = HashMap::new();
    for mut keys in wanted.into_values() {
        keys.sort();
        keys.dedup();
        let found = misc::rows(client, keys[0].table, &keys).await?;
        let both = keys.into_iter().zip(found);
        related.extend(both.filter_map(|(key, row)| row.map(|row| (key, row))));
    }
    let find = |key: &Key| related.get(key).cloned();
    let candidates = order.into_iter().filter_map(|entry| {
        let task = tasks.remove(&entry.id)?;
        Some(Related::of(&task.row).candidate(task, &find))
    });
    Ok(Judged::of(candidates, ask.limit, decide)?)
}

/// The roles at the heads of whose queues something can be claimed.
pub(super) async fn waiting_roles(
    client: &Session,
    now: Timestamp,
) -> Result<Vec<String>, Trouble> {
    let sql = "WITH RECURSIVE roles(role) AS (
            (SELECT role FROM tasks WHERE claim_at IS NOT NULL ORDER BY role LIMIT 1)
            UNION ALL
            SELECT (SELECT t.role FROM tasks t WHERE t.claim_at IS NOT NULL AND t.role > r.role
                ORDER BY t.role LIMIT 1)
            FROM roles r WHERE r.role IS NOT NULL)
        SELECT role FROM roles r WHERE role IS NOT NULL AND EXISTS (
            SELECT 1 FROM tasks t WHERE t.role = r.role AND t.claim_at <= $1)
        ORDER BY role";
    let rows = client.query(sql, &[Arg::int(now.as_millis())]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
