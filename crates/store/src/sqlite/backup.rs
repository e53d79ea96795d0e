//! Backup while the store runs, and restore.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, params};

use super::{DATABASE, Sqlite, failure, file};
use crate::open::{OpenError, draw_epoch};
use crate::refusal::Failure;

/// So many pages are copied at a time; in between, others write.
const PAGES: i32 = 2_048;

/// Backs a database up while its store goes on, whoever holds the store.
#[derive(Clone, Debug)]
pub struct Backups {
    path: PathBuf,
}

impl Sqlite {
    /// What backs this database up.
    pub fn backups(&self) -> Backups {
        Backups { path: self.path.clone() }
    }

    /// Writes a consistent copy of the database: see [`Backups::write`].
    pub async fn backup(&self, target: &Path) -> Result<(), Failure> {
        self.backups().write(target).await
    }
}

impl Backups {
    /// Writes a consistent copy of the database to `target`, which must not exist, while the store
    /// goes on. The copy appears under its name only when it is complete and on disk.
    pub async fn write(&self, target: &Path) -> Result<(), Failure> {
        let target = target.to_owned();
        self.look_outside(move |source| {
            let partial = target.with_extension("partial");
            let _ = std::fs::remove_file(&partial);
            let copied = copy(source, &partial);
            let io = |error| Failure::Sqlite(std::sync::Arc::new(io_error(error)));
            let named = copied.and_then(|()| {
                if target.exists() {
                    return Err(io(std::io::ErrorKind::AlreadyExists.into()));
                }
                std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(io)?;
                std::fs::rename(&partial, &target).map_err(io)?;
                let parent = target.parent().unwrap_or_else(|| Path::new("."));
                std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)
            });
            if named.is_err() {
                let _ = std::fs::remove_file(&partial);
            }
            named
        })
        .await
    }

    /// Looks with a connection of its own, so that a long look holds up no reader.
    async fn look_outside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let path = self.path.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
            let connection = Connection::open_with_flags(&path, flags).map_err(failure)?;
            connection.busy_timeout(Duration::from_secs(10)).map_err(failure)?;
            work(&connection)
        });
        looked.await.map_err(|_| Failure::Closed)?
    }
}

fn io_error(error: std::io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

/// One read transaction over the whole copy: it is of one moment, however much is written
/// meanwhile.
fn copy(source: &Connection, target: &Path) -> Result<(), Failure> {
    source.execute_batch("BEGIN; SELECT count(*) FROM installation;").map_err(failure)?;
    let mut copy = Connection::open(target).map_err(failure)?;
    Backup::new(source, &mut copy)
        .and_then(|backup| backup.run_to_completion(PAGES, Duration::ZERO, None))
        .map_err(failure)?;
    source.execute_batch("COMMIT").map_err(failure)?;
    // A backup is one file: it has no log beside it.
    copy.execute_batch("PRAGMA journal_mode = DELETE").map_err(failure)?;
    copy.close().map_err(|(_, error)| failure(error))
}

/// Makes a data directory from a backup. The restored installation has a new epoch: cursors from
/// before are refused, and sandboxes from before are not its own.
pub fn restore(backup: &Path, directory: &Path) -> Result<(), OpenError> {
    let _lock = file::DirectoryLock::take(directory)?;
    let target = directory.join(DATABASE);
    if target.exists() {
        return Err(OpenError::Exists(target));
    }
    let partial = directory.join(format!("{DATABASE}.partial"));
    let restored = restore_to(backup, &partial);
    if let Err(why) = restored {
        let _ = std::fs::remove_file(&partial);
        return Err(why);
    }
    let fail = |source| OpenError::File { path: target.clone(), source };
    std::fs::rename(&partial, &target).map_err(fail)?;
    std::fs::File::open(directory).and_then(|dir| dir.sync_all()).map_err(fail)
}

fn restore_to(backup: &Path, partial: &Path) -> Result<(), OpenError> {
    let fail = |source| OpenError::File { path: backup.to_owned(), source };
    std::fs::copy(backup, partial).map_err(fail)?;
    let connection = Connection::open(partial)?;
    file::check(&connection, backup)?;
    let epoch = i64::try_from(draw_epoch()).unwrap_or(i64::MAX);
    connection.execute("UPDATE installation SET epoch = ?1", params![epoch])?;
    connection.close().map_err(|(_, error)| error)?;
    std::fs::File::open(partial).and_then(|file| file.sync_all()).map_err(fail)
}
