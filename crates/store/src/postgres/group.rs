//! Group commit: decisions that wait at the same time share a transaction, and its fsync.
//!
//! A few committers take what is queued, so that while one transaction is being synced the next one
//! is being written. If a batch breaks a rule, its decisions are tried one by one: the one that
//! breaks it is refused, the others are done.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::args::Arg;
use super::batch::{self, Broken, Statement};
use super::link::{Link, Trouble, patiently, transact};
use crate::commit::{Change, Commit, Committed};
use crate::refusal::Failure;

/// At most so many decisions in one transaction.
const BATCH: usize = 512;
/// So many transactions at once. What a transaction costs is mostly its statements, not its rows:
/// few large ones are better than many small ones. The second one works while the first is synced.
const COMMITTERS: usize = 2;
/// Whoever finds another transaction under way waits for company: until that one is done, but no
/// longer than this, because while it is synced there is time to work. A caller alone never waits.
const LINGER: Duration = Duration::from_millis(4);
/// A decision that finds a row where there was none looks again, at most so often.
const RACES: usize = 5;

/// Which transactions of one kind are under way.
#[derive(Default)]
pub(super) struct Company {
    busy: AtomicUsize,
    over: Notify,
}

impl Company {
    /// Waits for company if there is something under way.
    pub(super) async fn gather(&self) {
        let over = self.over.notified();
        if self.busy.load(Ordering::SeqCst) > 0 {
            let _ = tokio::time::timeout(LINGER, over).await;
        }
    }

    /// A transaction is under way until `work` is done.
    pub(super) async fn under_way(&self, work: impl Future<Output = ()>) {
        self.busy.fetch_add(1, Ordering::SeqCst);
        work.await;
        self.busy.fetch_sub(1, Ordering::SeqCst);
        self.over.notify_waiters();
    }
}

struct Job {
    commits: Vec<Commit>,
    tell: oneshot::Sender<Result<Vec<Committed>, Failure>>,
}

/// The committers of one node.
pub(super) struct Committers {
    queue: mpsc::Sender<Job>,
    _tasks: JoinSet<()>,
}

impl Committers {
    pub(super) fn start(link: Arc<Link>, bell: Arc<Notify>) -> Self {
        let (queue, jobs) = mpsc::channel(4_096);
        let jobs = Arc::new(Mutex::new(jobs));
        let company = Arc::new(Company::default());
        let mut tasks = JoinSet::new();
        for _ in 0..COMMITTERS {
            let (link, jobs, bell) = (Arc::clone(&link), Arc::clone(&jobs), Arc::clone(&bell));
            let company = Arc::clone(&company);
            tasks.spawn(async move {
                while let Some(group) = gather(&jobs, &company).await {
                    company.under_way(serve(&link, group)).await;
                    bell.notify_one();
                }
            });
        }
        Self { queue, _tasks: tasks }
    }

    pub(super) async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        let (tell, told) = oneshot::channel();
        self.queue.send(Job { commits, tell }).await.map_err(|_| Failure::Closed)?;
        told.await.map_err(|_| Failure::Closed)?
    }
}

/// The first job that waits, and whatever else does.
async fn gather(jobs: &Mutex<mpsc::Receiver<Job>>, company: &Company) -> Option<Vec<Job>> {
    let mut jobs = jobs.lock().await;
    let first = jobs.recv().await?;
    company.gather().await;
    let mut count = first.commits.len();
    let mut group = vec![first];
    while count < BATCH {
        let Ok(job) = jobs.try_recv() else { break };
        count += job.commits.len();
        group.push(job);
    }
    Some(group)
}

async fn serve(link: &Link, group: Vec<Job>) {
    let commits: Vec<&Commit> = group.iter().flat_map(|job| &job.commits).collect();
    let outcome = commit_all(link, &commits).await;
    match outcome {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for job in group {
                let own: Vec<_> = answers.by_ref().take(job.commits.len()).collect();
                let _ = job.tell.send(Ok(own));
            }
        }
        Err(failure) => {
            for job in group {
                let _ = job.tell.send(Err(failure.clone()));
            }
        }
    }
}

/// Commits decisions in order: in large batches, those that remove something each by itself,
/// because what hangs on a removed row goes with it and the rest of a batch would not know.
pub(super) async fn commit_all(
    link: &Link,
    commits: &[&Commit],
) -> Result<Vec<Committed>, Failure> {
    let removes = |commit: &Commit| {
        commit.changes.iter().any(|(change, _)| matches!(change, Change::Delete(_)))
    };
    let mut answers = Vec::with_capacity(commits.len());
    let mut rest = commits;
    while !rest.is_empty() {
        let plain = rest.iter().take(BATCH).take_while(|commit| !removes(commit)).count();
        let (batch, others) = rest.split_at(plain.max(1));
        answers.extend(commit_batch(link, batch).await?);
        rest = others;
    }
    Ok(answers)
}

async fn commit_batch(link: &Link, commits: &[&Commit]) -> Result<Vec<Committed>, Failure> {
    match attempt(link, commits).await? {
        Ok(answers) => Ok(answers),
        Err(broken) => settle(link, commits, broken).await,
    }
}

/// Finds out one by one what a broken batch did not do; a lost one is asked for first.
pub(super) async fn settle(
    link: &Link,
    commits: &[&Commit],
    broken: Broken,
) -> Result<Vec<Committed>, Failure> {
    let first = match broken {
        Broken::Unknown(id, answers) => {
            let found = patiently!(link, was_committed(link, &id).await)?;
            if found {
                return Ok(answers);
            }
            None
        }
        broken => Some(broken).filter(|_| commits.len() == 1),
    };
    one_by_one(link, commits, first).await
}

async fn one_by_one(
    link: &Link,
    commits: &[&Commit],
    mut first: Option<Broken>,
) -> Result<Vec<Committed>, Failure> {
    let mut answers = Vec::with_capacity(commits.len());
    for commit in commits {
        let mut races = 0;
        let answer = loop {
            let outcome = match first.take() {
                Some(broken) => Err(broken),
                None => attempt(link, &[commit]).await?,
            };
            match outcome {
                Ok(mut answers) => break answers.pop(),
                Err(Broken::Rule(refusal)) => break Some(Committed::Refused(refusal)),
                Err(_) if races < RACES => races += 1,
                Err(_) => return Err(Failure::Unreachable("a row keeps coming and going".into())),
            }
        };
        answers.extend(answer);
    }
    Ok(answers)
}

/// One transaction, again and again while the database is away. If the connection was lost at
/// COMMIT, what became of it is found out before anything else is tried.
async fn attempt(
    link: &Link,
    commits: &[&Commit],
) -> Result<Result<Vec<Committed>, Broken>, Failure> {
    patiently!(
        link,
        match batch::commit(link, commits).await {
            Ok(answers) => Ok(Ok(answers)),
            Err(Broken::Trouble(trouble)) => Err(trouble),
            Err(Broken::Unknown(id, answers)) => match was_committed(link, &id).await? {
                true => Ok(Ok(answers)),
                false => Err(Trouble::Lost("the connection was lost at COMMIT".into())),
            },
            Err(broken) => Ok(Err(broken)),
        }
    )
}

/// Whether the batch was committed; after this it is so for ever. A reply that is lost here can be
/// asked for again.
async fn was_committed(link: &Link, batch: &str) -> Result<bool, Trouble> {
    let args = [Arg::text(batch)];
    let found: Result<bool, Failure> = transact!(link, close, |client| async {
        client.execute(batch::VOID, &args).await?;
        let rows = client.query("SELECT at > 0 FROM batches WHERE id = $1", &args).await?;
        Ok::<_, Trouble>(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
    });
    found.map_err(|_| Trouble::Failed(Failure::Unknown))
}

/// Events, effects and answers of decisions that are done.
pub(super) fn appended(commits: &[&Commit]) -> Vec<Statement> {
    [events(commits), effects(commits), requests(commits)].into_iter().flatten().collect()
}

fn texts<'a, T: 'a>(items: impl Iterator<Item = &'a T>, get: impl Fn(&T) -> Option<String>) -> Arg {
    Arg::Texts(items.map(get).collect())
}

fn events(commits: &[&Commit]) -> Option<Statement> {
    let all: Vec<_> = commits
        .iter()
        .flat_map(|commit| commit.events.iter().map(|event| (*commit, event)))
        .collect();
    if all.is_empty() {
        return None;
    }
    let revision = |commit: &Commit, event: &crate::event::NewEvent| {
        i64::try_from(commit.revision_of(event.task).0).unwrap_or(i64::MAX)
    };
    let args = vec![
        texts(all.iter(), |(_, event)| event.task.map(|id| id.to_string())),
        Arg::Ints(all.iter().map(|(commit, event)| Some(revision(commit, event))).collect()),
        Arg::Ints(all.iter().map(|(_, event)| event.attempt.map(|n| i64::from(n.0))).collect()),
        texts(all.iter(), |(_, event)| event.session.map(|id| id.to_string())),
        texts(all.iter(), |(_, event)| event.workflow.map(|id| id.to_string())),
        texts(all.iter(), |(_, event)| Some(event.kind.clone())),
        texts(all.iter(), |(_, event)| Some(event.body.clone())),
        Arg::Ints(all.iter().map(|(_, event)| Some(event.at.as_millis())).collect()),
    ];
    let sql = "INSERT INTO event_inbox
            (task, revision, attempt, session, workflow, kind, body, at)
        SELECT task, revision, attempt, session, workflow, kind, body, at
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[],
            $7::text[], $8::bigint[]) WITH ORDINALITY
            AS v(task, revision, attempt, session, workflow, kind, body, at, place)
        ORDER BY place";
    Some(Statement::new(sql, args))
}

fn effects(commits: &[&Commit]) -> Option<Statement> {
    let all: Vec<_> = commits.iter().flat_map(|commit| &commit.effects).collect();
    if all.is_empty() {
        return None;
    }
    let args = vec![
        texts(all.iter(), |effect| effect.task.map(|id| id.to_string())),
        Arg::Ints(all.iter().map(|effect| effect.attempt.map(|n| i64::from(n.0))).collect()),
        texts(all.iter(), |effect| Some(effect.kind.clone())),
        texts(all.iter(), |effect| Some(effect.body.clone())),
        Arg::Ints(all.iter().map(|effect| Some(effect.due_at.as_millis())).collect()),
    ];
    let sql = "INSERT INTO effects (task, attempt, kind, body, due_at)
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])";
    Some(Statement::new(sql, args))
}

fn requests(commits: &[&Commit]) -> Option<Statement> {
    let all: Vec<_> = commits.iter().filter_map(|commit| commit.request.as_ref()).collect();
    if all.is_empty() {
        return None;
    }
    let args = vec![
        texts(all.iter(), |one| Some(one.principal.clone())),
        texts(all.iter(), |one| Some(one.key.clone())),
        texts(all.iter(), |one| Some(one.body_hash.clone())),
        texts(all.iter(), |one| Some(one.answer.clone())),
        Arg::Ints(all.iter().map(|one| Some(one.at.as_millis())).collect()),
    ];
    let sql = "INSERT INTO requests
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])";
    Some(Statement::new(sql, args))
}
