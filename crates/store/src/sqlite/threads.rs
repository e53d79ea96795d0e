//! The writer thread with its groups, and the readers.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::{failure, file, misc};
use crate::open::OpenError;
use crate::refusal::Failure;

/// At most so many jobs in one group: what a group does is undone if its commit fails.
const GROUP: usize = 512;
const READERS: usize = 2;

/// Gives the answer, when it is known whether the group is durable.
type Deliver = Box<dyn FnOnce(Result<(), Failure>) + Send>;
/// What a job leaves: how its answer is given, and why the whole group must be undone, if it must.
type Left = (Deliver, Option<Failure>);
type Job = Box<dyn FnOnce(&Connection) -> Left + Send>;

/// The thread that writes.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, newest: watch::Sender<u64>) -> Self {
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("belay-store-writer".into());
        let thread = thread.spawn(move || write_groups(&connection, &queue, &newest));
        let thread = thread.expect("a thread can be started while the store is opened");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs `work` in a group and answers when the group is durable.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.hand_in(move |connection| (alone(connection, work), None)).await
    }

    /// Runs `work`, which undoes its own decisions one by one where it must. If it fails all the
    /// same, the group is undone: a mark around the whole would make every page that a decision
    /// touches be copied, again and again, until the end of the job.
    pub(super) async fn run_decisions<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.hand_in(move |connection| {
            let done = work(connection);
            let broken = done.as_ref().err().cloned();
            (done, broken)
        })
        .await
    }

    async fn hand_in<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> (Result<T, Failure>, Option<Failure>) + Send + 'static,
    ) -> Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let (done, broken) = work(connection);
            let deliver: Deliver = Box::new(move |durable| {
                let _ = tell.send(durable.and(done));
            });
            (deliver, broken)
        });
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
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    run("SAVEPOINT job").map_err(failure)?;
    let done = work(connection);
    if done.is_err() && !connection.is_autocommit() {
        run("ROLLBACK TO job").map_err(failure)?;
    }
    if !connection.is_autocommit() {
        run("RELEASE job").map_err(failure)?;
    }
    done
}

fn write_groups(connection: &Connection, queue: &Receiver<Job>, newest: &watch::Sender<u64>) {
    while let Ok(first) = queue.recv() {
        let mut waiting = Vec::with_capacity(GROUP);
        let durable = write_group(connection, first, queue, &mut waiting);
        if durable.is_ok()
            && let Ok(number) = misc::newest_event(connection)
        {
            newest.send_if_modified(|known| std::mem::replace(known, number) != number);
        }
        for deliver in waiting {
            deliver(durable.clone());
        }
    }
}

/// One transaction: the first job and whatever else is waiting.
fn write_group(
    connection: &Connection,
    first: Job,
    queue: &Receiver<Job>,
    waiting: &mut Vec<Deliver>,
) -> Result<(), Failure> {
    let run = |sql: &str| {
        let statement = connection.prepare_cached(sql);
        statement.and_then(|mut statement| statement.execute([])).map(drop).map_err(failure)
    };
    let begun = run("BEGIN IMMEDIATE");
    if let Err(why) = begun {
        // The job is run all the same, outside a transaction it cannot succeed, so that its caller
        // is told; a connection that cannot begin cannot write either.
        waiting.push(first(connection).0);
        return Err(why);
    }
    let mut next = Some(first);
    while let Some(job) = next {
        let (deliver, broken) = job(connection);
        waiting.push(deliver);
        if let Some(why) = broken {
            if !connection.is_autocommit() {
                let _ = run("ROLLBACK");
            }
            return Err(why);
        }
        if connection.is_autocommit() {
            // SQLite gave the whole transaction up, as it does when the disk is full.
            return Err(Failure::Full);
        }
        next = if waiting.len() < GROUP { queue.try_recv().ok() } else { None };
    }
    let committed = run("COMMIT");
    if committed.is_err() && !connection.is_autocommit() {
        let _ = run("ROLLBACK");
    }
    committed
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
    let run = |sql: &str| {
        let statement = connection.prepare_cached(sql);
        statement.and_then(|mut statement| statement.execute([])).map(drop).map_err(failure)
    };
    run("BEGIN DEFERRED")?;
    let found = work(connection);
    run("COMMIT")?;
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
