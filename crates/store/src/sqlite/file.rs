//! The file: its lock, its settings, whether it is sound, and its schema.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::installation_of;
use crate::migrate::{NEWEST, missing};
use crate::open::{OpenError, draw, draw_epoch, wall_clock};
use crate::store::Installation;

const LOCK: &str = "belay.lock";

/// Keeps every other process out of a data directory for as long as it lives. The kernel lets go of
/// it when the process ends, however it ends.
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn take(directory: &Path) -> Result<Self, OpenError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::File { path, source }
        };
        std::fs::create_dir_all(directory).map_err(fail(directory))?;
        let path = directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(fail(&path))?;
        let kind = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if let Err(errno) = rustix::fs::flock(&file, kind) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(OpenError::File { path, source: errno.into() });
            }
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim().to_owned();
            let pid = if pid.is_empty() { "(not said)".to_owned() } else { pid };
            return Err(OpenError::InUse { directory: directory.to_owned(), pid });
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(fail(&path))?;
        Ok(Self { _file: file })
    }
}

/// Lets statements stay prepared. Else SQLite looks at the values that are bound, a `LIMIT` among
/// them, for a better plan, and for that prepares a statement anew whenever they are bound again:
/// that was most of what a small read cost.
fn keep_prepared(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// A connection that writes.
pub(super) fn connect(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open(path).map_err(|error| damaged(path, error))?;
    connection.busy_timeout(Duration::from_secs(10))?;
    // Sixty-four megabytes of cache; the log is folded back by a thread of its own.
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
        PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; \
        PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864; \
        PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;";
    connection.execute_batch(settings).map_err(|error| damaged(path, error))?;
    connection.set_prepared_statement_cache_capacity(256);
    keep_prepared(&connection)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA cell_size_check = ON;")?;
    connection.set_prepared_statement_cache_capacity(128);
    keep_prepared(&connection)?;
    Ok(connection)
}

/// What SQLite says of a file that is not what it should be.
fn damaged(path: &Path, error: rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => {
            OpenError::Damaged { file: path.to_owned(), finding: error.to_string() }
        }
        _ => OpenError::Sqlite(error),
    }
}

/// Looks through the whole file once, before anything is decided on what it says.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let finding: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| damaged(path, error))?;
    match finding.as_str() {
        "ok" => Ok(()),
        _ => Err(OpenError::Damaged { file: path.to_owned(), finding }),
    }
}

/// Brings the schema up to number `upto`.
pub(super) fn migrate(connection: &mut Connection, upto: u32) -> Result<(), OpenError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS migrations (
            number INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL) STRICT",
    )?;
    let newest = "SELECT coalesce(max(number), 0) FROM migrations";
    let applied: u32 = transaction.query_row(newest, [], |row| row.get(0))?;
    let missing = missing(applied, upto)
        .map_err(|newer| OpenError::Newer { found: newer.found, known: NEWEST })?;
    for migration in missing {
        transaction.execute_batch(&migration.sqlite())?;
        transaction.execute(
            "INSERT INTO migrations VALUES (?1, ?2, ?3)",
            params![migration.number, migration.name, wall_clock().as_millis()],
        )?;
    }
    Ok(transaction.commit()?)
}

/// Which installation this is; a new file becomes a new one.
pub(super) fn installation(connection: &Connection) -> Result<Installation, OpenError> {
    let id = belay_kernel::InstallationId::from_bits(draw()).to_string();
    let epoch = i64::try_from(draw_epoch()).unwrap_or(i64::MAX);
    connection.execute(
        "INSERT INTO installation VALUES (1, ?1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![id, epoch, wall_clock().as_millis()],
    )?;
    let found: Option<(String, i64)> = connection
        .query_row("SELECT id, epoch FROM installation", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let found = found.and_then(|(id, epoch)| installation_of(&id, epoch));
    found.ok_or_else(|| OpenError::Damaged {
        file: PathBuf::from(connection.path().unwrap_or_default()),
        finding: "the installation's own row cannot be read".to_owned(),
    })
}
