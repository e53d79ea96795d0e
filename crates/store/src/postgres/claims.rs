//! Claiming from the queues: `SKIP LOCKED`, so that claimers do not wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use belay_kernel::Timestamp;
use futures_util::future::join_all;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::args::{Arg, raw};
use super::batch::{self, Broken};
use super::group::Company;
use super::link::{Link, Session, Trouble, patiently};
use super::{group, misc};
use crate::claim::{Claim, ClaimAsk, Decide, Entry, Judged, Related, SLACK, merge};
use crate::commit::{Commit, Committed};
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Record as _, Stored};
use crate::rows::TaskRow;

/// At most so many claims in one transaction.
const GROUP: usize = 64;
/// So many transactions at once.
const CLAIMERS: usize = 2;

/// One claim that waits.
struct Asked {
    ask: ClaimAsk,
    decide: Decide,
    tell: oneshot::Sender<Result<Vec<Claim>, Failure>>,
}

/// The claimers of one node: claims that wait at the same time share a transaction.
pub(super) struct Claimers {
    queue: mpsc::Sender<Asked>,
    _tasks: JoinSet<()>,
}

impl Claimers {
    pub(super) fn start(link: Arc<Link>, bell: Arc<Notify>) -> Self {
        let (queue, asked) = mpsc::channel(4_096);
        let asked = Arc::new(Mutex::new(asked));
        let company = Arc::new(Company::default());
        let mut tasks = JoinSet::new();
        for _ in 0..CLAIMERS {
            let (link, asked, bell) = (Arc::clone(&link), Arc::clone(&asked), Arc::clone(&bell));
            let company = Arc::clone(&company);
            tasks.spawn(async move {
                while let Some(group) = gather(&asked, &company).await {
                    company.under_way(serve(&link, group)).await;
                    bell.notify_one();
                }
            });
        }
        Self { queue, _tasks: tasks }
    }

    pub(super) async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        let (tell, told) = oneshot::channel();
        self.queue.send(Asked { ask, decide, tell }).await.map_err(|_| Failure::Closed)?;
        told.await.map_err(|_| Failure::Closed)?
    }
}

/// The first claim that waits, and whatever else does.
async fn gather(asked: &Mutex<mpsc::Receiver<Asked>>, company: &Company) -> Option<Vec<Asked>> {
    let mut asked = asked.lock().await;
    let mut group = vec![asked.recv().await?];
    company.gather().await;
    while group.len() < GROUP {
        let Ok(one) = asked.try_recv() else { break };
        group.push(one);
    }
    Some(group)
}

async fn serve(link: &Link, group: Vec<Asked>) {
    match claim_all(link, &group).await {
        Ok(claims) => {
            for (asked, claims) in group.into_iter().zip(claims) {
                let _ = asked.tell.send(Ok(claims));
            }
        }
        Err(failure) => {
            for asked in group {
                let _ = asked.tell.send(Err(failure.clone()));
            }
        }
    }
}

/// Looks at the heads of the roles' queues, judges, commits, in one transaction.
async fn claim_all(link: &Link, group: &[Asked]) -> Result<Vec<Vec<Claim>>, Failure> {
    let turn: Result<_, Failure> = patiently!(link, turn(link, group).await);
    let (judged, outcome) = turn?;
    let answers = match outcome {
        Ok(answers) => answers,
        // What broke the batch is found one by one; revisions guard what others did meanwhile.
        Err(broken) => {
            let commits: Vec<&Commit> = judged.iter().flat_map(|one| &one.commits).collect();
            group::settle(link, &commits, broken).await?
        }
    };
    let mut answers = answers.into_iter();
    let claims = judged.into_iter().map(|judged| {
        let own = answers.by_ref().take(judged.commits.len()).collect();
        judged.answer(own)
    });
    Ok(claims.collect())
}

/// One transaction; what broke it, if a rule did.
async fn turn(
    link: &Link,
    group: &[Asked],
) -> Result<(Vec<Judged>, Result<Vec<Committed>, Broken>), Trouble> {
    let client = link.client().await?;
    let (begun, heads) =
        tokio::join!(client.batch_execute(link.begin_to_write()), heads(&client, group));
    begun?;
    let judged = match heads {
        Ok(rows) => judge(&client, &rows, group).await,
        Err(trouble) => Err(trouble),
    };
    let judged = match judged {
        Ok(judged) if judged.iter().any(|one| !one.commits.is_empty()) => judged,
        other => {
            let _ = client.batch_execute("ROLLBACK").await;
            return other.map(|judged| (judged, Ok(Vec::new())));
        }
    };
    let commits: Vec<&Commit> = judged.iter().flat_map(|one| &one.commits).collect();
    // What was just read is hardly ever changed by now; if it is, revisions tell.
    match batch::commit_begun(link, &client, &commits).await {
        Ok(answers) => Ok((judged, Ok(answers))),
        Err(Broken::Trouble(trouble)) => Err(trouble),
        Err(broken) => Ok((judged, Err(broken))),
    }
}

/// The oldest claimable tasks of each role that is asked for, of each priority that is in use,
/// locked: as many as all who ask for the role look at together.
async fn heads(client: &Session, group: &[Asked]) -> Result<Vec<RawRow>, Trouble> {
    let table = TaskRow::table();
    let mut roles: BTreeMap<&str, (Timestamp, usize)> = BTreeMap::new();
    for Asked { ask, .. } in group {
        let (now, look) = roles.entry(&ask.role).or_insert((ask.now, SLACK));
        *now = ask.now.max(*now);
        *look = look.saturating_add(ask.limit);
    }
    let look = |look: usize| i64::try_from(look).unwrap_or(i64::MAX);
    let args = [
        Arg::Texts(roles.keys().map(|role| Some((*role).to_owned())).collect()),
        Arg::Ints(roles.values().map(|(now, _)| Some(now.as_millis())).collect()),
        Arg::Ints(roles.values().map(|(_, wanted)| Some(look(*wanted))).collect()),
    ];
    let rows = client.query(&HEADS, &args).await?;
    rows.iter().map(|row| raw(table, row).map_err(Trouble::from)).collect()
}

static HEADS: LazyLock<String> = LazyLock::new(|| {
    let columns = &TaskRow::table().columns;
    let columns: Vec<_> = columns.iter().map(|column| format!("t.{}", column.name)).collect();
    format!(
        "SELECT {}, t.revision
        FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS a(role, now, look)
        CROSS JOIN LATERAL (
            WITH RECURSIVE levels(priority) AS (
                (SELECT q.priority FROM tasks q WHERE q.role = a.role AND q.claim_at IS NOT NULL
                    ORDER BY q.priority DESC LIMIT 1)
                UNION ALL
                SELECT (SELECT q.priority FROM tasks q
                    WHERE q.role = a.role AND q.claim_at IS NOT NULL AND q.priority < l.priority
                    ORDER BY q.priority DESC LIMIT 1)
                FROM levels l WHERE l.priority IS NOT NULL)
            SELECT priority FROM levels WHERE priority IS NOT NULL) l
        CROSS JOIN LATERAL (
            SELECT * FROM tasks q WHERE q.role = a.role AND q.priority = l.priority
                AND q.claim_at IS NOT NULL AND q.claim_at <= a.now
            ORDER BY q.claim_at, q.id LIMIT a.look FOR NO KEY UPDATE SKIP LOCKED) t",
        columns.join(", ")
    )
});

/// Judges the claims one after the other: what one takes is not there for the next.
async fn judge(client: &Session, rows: &[RawRow], group: &[Asked]) -> Result<Vec<Judged>, Trouble> {
    let mut tasks: HashMap<String, Stored<TaskRow>> = HashMap::with_capacity(rows.len());
    let mut queues: HashMap<String, Vec<Entry>> = HashMap::new();
    for row in rows {
        let task = Stored::<TaskRow>::read(row)?;
        let id = task.row.task.id.to_string();
        // What was claimed while this statement waited is not claimable any more.
        if let Some(claim_at) = task.row.claim_at() {
            let entry = Entry { priority: task.row.priority, claim_at, id: id.clone() };
            queues.entry(task.row.role.to_string()).or_default().push(entry);
            tasks.insert(id, task);
        }
    }
    let related = related(client, tasks.values()).await?;
    let find = |key: &Key| related.get(key).cloned();
    let mut judged = Vec::with_capacity(group.len());
    for Asked { ask, decide, .. } in group {
        let queue = queues.get(&ask.role).map_or(&[][..], Vec::as_slice);
        let open =
            queue.iter().filter(|one| tasks.contains_key(&one.id) && one.claim_at <= ask.now);
        let order = merge(open.cloned().collect(), ask);
        let candidates = order.iter().filter_map(|entry| {
            let task = tasks.get(&entry.id)?.clone();
            Some(Related::of(&task.row).candidate(task, &find))
        });
        let own = Judged::of(candidates, ask.limit, decide)?;
        for task in &own.tasks {
            tasks.remove(&task.to_string());
        }
        judged.push(own);
    }
    Ok(judged)
}

/// What claims of `tasks` read besides them.
async fn related(
    client: &Session,
    tasks: impl Iterator<Item = &Stored<TaskRow>>,
) -> Result<HashMap<Key, RawRow>, Trouble> {
    let mut wanted: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
    for task in tasks {
        for key in Related::of(&task.row).keys() {
            wanted.entry(key.table.rank).or_default().push(key);
        }
    }
    for keys in wanted.values_mut() {
        keys.sort();
        keys.dedup();
    }
    let looks = wanted.values().map(|keys| misc::rows(client, keys[0].table, keys));
    let mut related = HashMap::new();
    for (keys, found) in wanted.values().zip(join_all(looks).await) {
        let both = keys.iter().zip(found?);
        related.extend(both.filter_map(|(key, row)| row.map(|row| (key.clone(), row))));
    }
    Ok(related)
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
