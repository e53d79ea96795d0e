//! The embedded store: one SQLite file, one writer thread with group commit, separate readers.
//!
//! ```text
//!  callers ──jobs──► writer thread: BEGIN IMMEDIATE · job · job · job · COMMIT (fsync) ──► answers
//!          ──jobs──► reader threads: each its own connection, always a committed state
//! ```
//!
//! While one group is being synced the next one gathers, so many callers share one fsync, and a
//! single caller waits for nothing but its own. WAL with `synchronous=FULL`: an answer is given
//! only after the log is on disk. Reads never wait for writes.

mod apply;
mod backup;
mod claims;
mod desk;
mod file;
mod log;
mod misc;
mod reader;
mod threads;

use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_kernel::{InstallationId, Revision, Span, Timestamp};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::claim::{Claim, ClaimAsk, Decide};
use crate::commit::{Answered, Commit, Committed};
use crate::effect::{Effect, Settled};
use crate::engine::Engine;
use crate::event::{Cursor, EventFilter, Events};
use crate::gather::Read;
use crate::lease::{Beat, Beaten, Lease, LeaseKind};
use crate::open::{OpenError, Steady, wall_clock};
use crate::query::Scan;
use crate::refusal::Failure;
use crate::row::{Key, RawRow};
use crate::store::{Due, Installation, Prune, Pruned};
use crate::table::Table;

pub use backup::{Backups, restore};
use desk::Desk;
use log::Folder;
use threads::{Readers, Writer};

/// The name of the database in its data directory.
pub const DATABASE: &str = "belay.db";

/// The embedded store.
pub struct Sqlite {
    /// Before the writer, because fields are dropped in order: the last connection to close folds
    /// the log back into the file, and a reader cannot.
    readers: Readers,
    writer: Writer,
    _folder: Folder,
    installation: Installation,
    /// The number of the newest event, as a hint for those who wait.
    newest: watch::Receiver<u64>,
    steady: Steady,
    path: PathBuf,
    _lock: file::DirectoryLock,
}

impl Sqlite {
    /// Opens the store in `directory`, which is made if it is missing. Refuses a directory that
    /// another process has, a damaged file, and a database that a newer program wrote.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let lock = file::DirectoryLock::take(directory)?;
        let path = directory.join(DATABASE);
        let mut connection = file::connect(&path)?;
        file::check(&connection, &path)?;
        file::migrate(&mut connection, crate::migrate::NEWEST)?;
        let installation = file::installation(&connection)?;
        let (tell, newest) = watch::channel(misc::newest_event(&connection)?);
        let floor = misc::newest_moment(&connection)?;
        let readers = Readers::start(&path)?;
        let (folder, log) = Folder::start(&path)?;
        let writer = Writer::start(connection, tell, log);
        let steady = Steady::after(floor);
        let (_folder, _lock) = (folder, lock);
        Ok(Self { readers, writer, _folder, installation, newest, steady, path, _lock })
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Desk<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.writer.run(work).await
    }

    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.readers.run(work).await
    }
}

/// A failure of SQLite, as the store tells it.
pub(crate) fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => Failure::Full,
        _ => Failure::Sqlite(std::sync::Arc::new(error)),
    }
}

impl Engine for Sqlite {
    async fn read(
        &self,
        table: &'static Table,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<RawRow>>, Failure> {
        self.look(move |connection| {
            keys.iter().map(|key| reader::row(connection, table, &key.cells)).collect()
        })
        .await
    }

    async fn scan(&self, scan: Scan) -> Result<Vec<RawRow>, Failure> {
        self.look(move |connection| reader::scan(connection, &scan)).await
    }

    async fn tally(
        &self,
        table: &'static Table,
        column: &'static str,
    ) -> Result<Vec<(String, u64)>, Failure> {
        self.look(move |connection| reader::tally(connection, table, column)).await
    }

    async fn gather(&self, reads: Vec<Read>) -> Result<Vec<Vec<Option<RawRow>>>, Failure> {
        self.look(move |connection| {
            let one = |read: &Read| match read {
                Read::Keys(table, keys) => {
                    keys.iter().map(|key| reader::row(connection, table, &key.cells)).collect()
                }
                Read::Scan(scan) => {
                    Ok(reader::scan(connection, scan)?.into_iter().map(Some).collect())
                }
            };
            reads.iter().map(one).collect()
        })
        .await
    }

    async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        let decide = move |desk: &mut Desk<'_>, care| {
            commits.iter().map(|commit| apply::commit(desk, commit, care)).collect()
        };
        self.writer.run_decisions(decide).await
    }

    async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        let claim = move |desk: &mut Desk<'_>, care| claims::claim(desk, &ask, &decide, care);
        self.writer.run_decisions(claim).await
    }

    async fn waiting_roles(&self, now: Timestamp) -> Result<Vec<String>, Failure> {
        self.look(move |connection| claims::waiting_roles(connection, now)).await
    }

    async fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Due>, Failure> {
        // Most sweeps find nothing, and looking must not disturb the writer.
        if !self.look(move |connection| misc::any_due(connection, now)).await? {
            return Ok(Vec::new());
        }
        self.write(move |desk| misc::take_due(desk, now, hold, limit)).await
    }

    async fn rearm(
        &self,
        key: Key,
        revision: Revision,
        due_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        self.write(move |desk| misc::rearm(desk, &key, revision, due_at)).await
    }

    async fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> Result<Vec<Beaten>, Failure> {
        self.write(move |desk| misc::beat(desk.connection, &beats, now)).await
    }

    async fn leases(&self, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
        self.look(move |connection| misc::leases(connection, kind)).await
    }

    async fn extend_leases(&self, kind: LeaseKind, by: Span) -> Result<u64, Failure> {
        self.write(move |desk| misc::extend_leases(desk.connection, kind, by)).await
    }

    async fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        self.look(move |connection| misc::events(connection, cursor, filter, limit)).await
    }

    async fn event_range(&self) -> Result<(u64, u64), Failure> {
        self.look(misc::event_range).await
    }

    async fn await_events(&self, number: u64, patience: Duration) {
        let mut newest = self.newest.clone();
        let came = newest.wait_for(|newest| *newest > number);
        let _ = tokio::time::timeout(patience, came).await;
    }

    async fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Effect>, Failure> {
        self.write(move |desk| misc::take_effects(desk.connection, now, hold, limit)).await
    }

    async fn settle_effects(&self, settled: Vec<Settled>) -> Result<Vec<bool>, Failure> {
        self.write(move |desk| misc::settle_effects(desk.connection, &settled)).await
    }

    async fn answered(&self, principal: String, key: String) -> Result<Option<Answered>, Failure> {
        self.look(move |connection| reader::answered(connection, &principal, &key)).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, Failure> {
        self.write(move |desk| misc::prune(desk, prune)).await
    }

    fn installation(&self) -> Installation {
        self.installation
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.steady.show_alone(wall_clock()))
    }
}

fn installation_of(id: &str, epoch: i64) -> Option<Installation> {
    let id: InstallationId = id.parse().ok()?;
    Some(Installation { id, epoch: u64::try_from(epoch).ok()? })
}
