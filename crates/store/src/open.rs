//! Why a store does not open, with what to do about it.

use std::path::PathBuf;

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the data directory.
    #[error(
        "{directory} is in use by process {pid}; stop it with `belay down`, or use another data \
         directory"
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Who has it, as far as it said so.
        pid: String,
    },
    /// The database file is damaged.
    #[error(
        "{file} is damaged ({finding}); nothing was changed. Keep a copy of it, then restore the \
         last backup with `belay backup restore`"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        finding: String,
    },
    /// A newer program wrote it.
    #[error(
        "the database is at schema {found}, this program knows up to {known}; run the newer \
         program that wrote it, or restore a backup from before the upgrade"
    )]
    Newer {
        /// What the database is at.
        found: u32,
        /// What this program knows.
        known: u32,
    },
    /// A backup is not put over something.
    #[error("{0} exists already; a backup is restored into an empty data directory")]
    Exists(PathBuf),
    /// A file or directory could not be read or written.
    #[error("{path} cannot be used")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite failed.
    #[error("the embedded database did not open")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL failed.
    #[error("PostgreSQL refused")]
    Postgres(#[from] tokio_postgres::Error),
    /// The address of the database cannot be used.
    #[error("the database's address cannot be used: {0}")]
    Address(String),
    /// PostgreSQL could not be reached in time.
    #[error("PostgreSQL was not reached within {0:?}: {1}")]
    Unreachable(std::time::Duration, String),
    /// The PostgreSQL is too old.
    #[error("PostgreSQL {0} is too old; 13 or newer is needed")]
    TooOld(String),
}

/// `count` random bytes' worth of number; ids and epochs are drawn here.
pub(crate) fn draw() -> u128 {
    let mut bytes = [0u8; 16];
    // The kernel's source of randomness does not fail once it is up; without it there are no ids.
    getrandom::fill(&mut bytes).expect("the system has a source of randomness");
    u128::from_le_bytes(bytes)
}

/// A new installation epoch; it fits a signed column.
pub(crate) fn draw_epoch() -> u64 {
    (draw() as u64) >> 1
}

/// The system's clock. Before 1970 it is 1970.
pub(crate) fn wall_clock() -> belay_kernel::Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    belay_kernel::Timestamp::from_millis(ms)
}

/// A clock that never goes back within this process, whatever is done to the one behind it.
#[derive(Debug, Default)]
pub(crate) struct Steady(std::sync::atomic::AtomicI64);

impl Steady {
    /// The later of `now` and everything that was ever shown.
    pub(crate) fn show(&self, now: belay_kernel::Timestamp) -> belay_kernel::Timestamp {
        let order = std::sync::atomic::Ordering::SeqCst;
        let before = self.0.fetch_max(now.as_millis(), order);
        belay_kernel::Timestamp::from_millis(before.max(now.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_kernel::Timestamp;

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let steady = Steady::default();
        let shown = [5, 9, 3, 9, 10].map(|ms| steady.show(Timestamp::from_millis(ms)).as_millis());
        assert_eq!(shown, [5, 9, 9, 9, 10]);
    }
}
