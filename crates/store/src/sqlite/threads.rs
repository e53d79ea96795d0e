//! The writer thread with its groups, and the readers.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::desk::Desk;
use super::log::Log;
use super::{failure, file, misc};
use crate::open::OpenError;
use crate::refusal::Failure;

/// At most so many jobs in one group: what a group does is undone if its commit fails.
const GROUP: usize = 512;
const READERS: usize = 2;

/// How jobs undo what they must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Care {
    /// Without marks. A mark makes SQLite copy every page that is touched after it, and hardly any
    /// decision is undone; if one must be, the group is done again, with care.
    Bold,
    /// With a mark before each decision, to go back to.
    Careful,
}

/// Why a job did not come to its end.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Something that it did must be undone, and there is no mark: the group is done again.
    Again,
    /// The database failed; the group is undone.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(why: Failure) -> Self {
        Self::Failed(why)
    }
}

/// What is handed to the writer. It may be run more than once; the last time counts.
trait Job: Send {
    fn run(&mut self, desk: &mut Desk<'_>, care: Care) -> Result<(), Stopped>;
    /// Gives the answer, when it is known whether the group is durable.
    fn tell(self: Box<Self>, durable: Result<(), Failure>);
}

/// Work, what came of it, and who waits for that.
struct Asked<T, W> {
    work: W,
    done: Option<Result<T, Failure>>,
    tell: oneshot::Sender<Result<T, Failure>>,
}

impl<T, W> Job for Asked<T, W>
where
    T: Send,
    W: Fn(&mut Desk<'_>, Care) -> Result<Result<T, Failure>, Stopped> + Send,
{
    fn run(&mut self, desk: &mut Desk<'_>, care: Care) -> Result<(), Stopped> {
        self.done = Some((self.work)(desk, care)?);
        Ok(())
    }

    fn tell(self: Box<Self>, durable: Result<(), Failure>) {
        let done = self.done.unwrap_or(Err(Failure::Closed));
        let _ = self.tell.send(durable.and(done));
    }
}

/// The thread that writes.
pub(super) struct Writer {
    jobs: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, newest: watch::Sender<u64>, log: Log) -> Self {
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("belay-store-writer".into());
        let thread = thread.spawn(move || write_groups(&connection, &queue, &newest, log));
        let thread = thread.expect("a thread can be started while the store is opened");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs `work` in a group and answers when the group is durable. If it fails, it alone is
    /// undone.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Desk<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.hand_in(move |desk, care| alone(desk, care, &work)).await
    }

    /// Runs `work`, which undoes its own decisions one by one where it must. If it fails all the
    /// same, the group is undone.
    pub(super) async fn run_decisions<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Desk<'_>, Care) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, Failure> {
        self.hand_in(move |desk, care| work(desk, care).map(Ok)).await
    }

    async fn hand_in<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Desk<'_>, Care) -> Result<Result<T, Failure>, Stopped> + Send + 'static,
    ) -> Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let job = Box::new(Asked { work, done: None, tell });
        self.jobs.as_ref().ok_or(Failure::Closed)?.send(job).map_err(|_| Failure::Closed)?;
        told.await.map_err(|_| Failure::Closed)?
    }
}

impl Drop for Writer {
    /// What was handed in is still written and answered.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs one job so that its failure undoes its own changes and no one else's.
fn alone<T>(
    desk: &mut Desk<'_>,
    care: Care,
    work: impl Fn(&mut Desk<'_>) -> Result<T, Failure>,
) -> Result<Result<T, Failure>, Stopped> {
    let connection = desk.connection;
    if care == Care::Bold {
        let before = connection.total_changes();
        let done = work(desk);
        let dirty = done.is_err() && connection.total_changes() != before;
        return if dirty { Err(Stopped::Again) } else { Ok(done) };
    }
    desk.run("SAVEPOINT job")?;
    let done = work(desk);
    if done.is_err() && !connection.is_autocommit() {
        desk.forget_all();
        desk.run("ROLLBACK TO job")?;
    }
    if !connection.is_autocommit() {
        desk.run("RELEASE job")?;
    }
    Ok(done)
}

/// Runs a statement without parameters.
fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    let statement = connection.prepare_cached(sql);
    statement.and_then(|mut statement| statement.execute([])).map(drop).map_err(failure)
}

fn write_groups(
    connection: &Connection,
    queue: &Receiver<Box<dyn Job>>,
    newest: &watch::Sender<u64>,
    mut log: Log,
) {
    let mut desk = Desk::new(connection);
    while let Ok(first) = queue.recv() {
        let mut group = Vec::with_capacity(GROUP);
        group.push(first);
        let durable = write_group(&mut desk, queue, &mut group);
        if durable.is_ok()
            && let Ok(number) = misc::newest_event(connection)
        {
            newest.send_if_modified(|known| std::mem::replace(known, number) != number);
        }
        for job in group {
            job.tell(durable.clone());
        }
        log.grown(connection);
    }
}

/// One transaction: the first job and whatever else is waiting. Boldly first; with care if
/// something has to be undone.
fn write_group(
    desk: &mut Desk<'_>,
    queue: &Receiver<Box<dyn Job>>,
    group: &mut Vec<Box<dyn Job>>,
) -> Result<(), Failure> {
    let mut care = Care::Bold;
    loop {
        let stopped = match transaction(desk, queue, group, care) {
            Ok(()) => return Ok(()),
            Err(stopped) => stopped,
        };
        desk.forget_all();
        if !desk.connection.is_autocommit() {
            let _ = desk.run("ROLLBACK");
        }
        match (stopped, care) {
            (Stopped::Again, Care::Bold) => care = Care::Careful,
            // With care nothing has to be done again.
            (Stopped::Again, Care::Careful) => return Err(Failure::Closed),
            (Stopped::Failed(why), _) => return Err(why),
        }
    }
}

fn transaction(
    desk: &mut Desk<'_>,
    queue: &Receiver<Box<dyn Job>>,
    group: &mut Vec<Box<dyn Job>>,
    care: Care,
) -> Result<(), Stopped> {
    desk.run("BEGIN IMMEDIATE")?;
    desk.begin()?;
    let mut next = 0;
    while let Some(job) = group.get_mut(next) {
        job.run(desk, care)?;
        if desk.connection.is_autocommit() {
            // SQLite gave the whole transaction up, as it does when the disk is full.
            return Err(Failure::Full.into());
        }
        next += 1;
        if next == group.len() && next < GROUP {
            group.extend(queue.try_recv());
        }
    }
    desk.write_events()?;
    Ok(desk.run("COMMIT")?)
}

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The threads that read.
pub(super) struct Readers {
    jobs: Option<Sender<Look>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, OpenError> {
        let (jobs, queue) = channel::<Look>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for number in 0..READERS {
            let connection = file::connect_reader(path)?;
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name(format!("belay-store-reader-{number}"));
            let thread = thread.spawn(move || {
                while let Some(look) = next(&queue) {
                    look(&connection);
                }
            });
            let path = path.to_owned();
            threads.push(thread.map_err(|source| OpenError::File { path, source })?);
        }
        Ok(Self { jobs: Some(jobs), threads })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let look: Look = Box::new(move |connection| {
            let _ = tell.send(snapshot(connection, work));
        });
        self.jobs.as_ref().ok_or(Failure::Closed)?.send(look).map_err(|_| Failure::Closed)?;
        told.await.map_err(|_| Failure::Closed)?
    }
}

/// Everything one look reads is of one moment.
fn snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    run(connection, "BEGIN DEFERRED")?;
    let found = work(connection);
    run(connection, "COMMIT")?;
    found
}

fn next(queue: &Mutex<Receiver<Look>>) -> Option<Look> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
