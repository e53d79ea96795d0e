//! Folding the log back into the file, beside the writer.
//!
//! SQLite would do it in the commit that makes the log long enough, and whoever waits for that
//! commit waits for thousands of pages and another sync. So a thread with a connection of its own
//! does it. If it does not keep up, because someone always writes, the writer helps: the log is
//! bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::file;
use crate::open::OpenError;

/// After so many changed rows it is worth folding.
const WORTH: u64 = 4_000;
/// A log of so many pages is folded by the writer itself.
const LONG: i64 = 40_000;

/// What the writer knows of the log.
pub(super) struct Log {
    bell: SyncSender<()>,
    long: Arc<AtomicBool>,
    folded_at: u64,
}

impl Log {
    /// A group was committed.
    pub(super) fn grown(&mut self, connection: &Connection) {
        let changes = connection.total_changes();
        if changes.saturating_sub(self.folded_at) < WORTH {
            return;
        }
        self.folded_at = changes;
        if self.long.swap(false, Ordering::SeqCst) {
            // Nobody writes meanwhile, so all of it is folded, and the log begins anew. What a
            // reader still needs is folded the next time; the log keeps it safe.
            let _ = fold(connection);
        } else {
            let _ = self.bell.try_send(());
        }
    }
}

/// The thread that folds; it ends when the writer is gone.
pub(super) struct Folder {
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Folder {
    pub(super) fn start(path: &Path) -> Result<(Self, Log), OpenError> {
        let connection = file::connect(path)?;
        let (bell, rung) = sync_channel(1);
        // What a process left that was killed: one that is killed again and again before it has
        // written enough to be worth it would make the log longer for ever.
        let _ = bell.try_send(());
        let long = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&long);
        let thread = std::thread::Builder::new().name("belay-store-folder".into());
        let thread = thread.spawn(move || fold_on(&connection, &rung, &told));
        let path = path.to_owned();
        let thread = thread.map_err(|source| OpenError::File { path: path.clone(), source })?;
        Ok((Self { thread: Some(thread), path }, Log { bell, long, folded_at: 0 }))
    }
}

/// The last connection to close folds the log into the file. Two that close at once may each take
/// the other for the last, so there is one more, alone. Without it nothing is lost, but the store
/// is two files.
impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        drop(file::connect(&self.path));
    }
}

fn fold_on(connection: &Connection, rung: &Receiver<()>, long: &AtomicBool) {
    while rung.recv().is_ok() {
        if fold(connection).is_ok_and(|pages| pages > LONG) {
            long.store(true, Ordering::SeqCst);
        }
    }
}

/// Folds what can be folded without waiting for anyone; how many pages the log has.
fn fold(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}
