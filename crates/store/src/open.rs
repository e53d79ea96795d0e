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

/// A clock that never goes back, whatever is done to the one behind it, and does not stand still
/// meanwhile either: a timer that was set before the jump fires when its time has passed. While the
/// clock behind it is in the past, time goes on by the one that counts since boot.
#[derive(Debug)]
pub(crate) struct Steady(std::sync::Mutex<Shown>);

/// How far the clock behind may be ahead and still be believed at once, in milliseconds: further,
/// it was set.
const BELIEVED_MS: i64 = 1_000;
/// A clock that was set forward is caught up with by one part in so many: no limit that is waited
/// for is noticeably shorter by it.
const CATCH_UP: i64 = 100;

/// What was shown, and when, in milliseconds since boot.
#[derive(Clone, Copy, Debug)]
struct Shown {
    ms: i64,
    since_boot: i64,
    /// Whether anything was shown yet.
    shows: bool,
}

impl Steady {
    /// Begins no earlier than `floor`: the newest moment that the store remembers. A clock that was
    /// set back while nobody was running must not leave what is due in a far future.
    pub(crate) fn after(floor: belay_kernel::Timestamp) -> Self {
        let shown = Shown { ms: floor.as_millis(), since_boot: since_boot(), shows: false };
        Self(std::sync::Mutex::new(shown))
    }

    /// The later of `now` and everything that was ever shown, with the time that passed since.
    pub(crate) fn show(&self, now: belay_kernel::Timestamp) -> belay_kernel::Timestamp {
        let mut shown = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        belay_kernel::Timestamp::from_millis(shown.show(now.as_millis(), since_boot()))
    }

    /// The same, for a clock that nobody else goes by: being set forward does not hurry it either.
    /// A jump forward would pass every deadline and end every lease of agents that are well.
    pub(crate) fn show_alone(&self, now: belay_kernel::Timestamp) -> belay_kernel::Timestamp {
        let mut shown = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        belay_kernel::Timestamp::from_millis(shown.show_alone(now.as_millis(), since_boot()))
    }
}

impl Shown {
    fn show(&mut self, now: i64, since_boot: i64) -> i64 {
        let passed = since_boot.saturating_sub(self.since_boot).max(0);
        let gone_on = self.ms.saturating_add(passed);
        if now < gone_on {
            return gone_on;
        }
        *self = Self { ms: now, since_boot, shows: true };
        now
    }

    fn show_alone(&mut self, now: i64, since_boot: i64) -> i64 {
        let passed = since_boot.saturating_sub(self.since_boot).max(0);
        let gone_on = self.ms.saturating_add(passed);
        let ahead = now.saturating_sub(gone_on);
        if !self.shows || ahead <= BELIEVED_MS {
            return self.show(now, since_boot);
        }
        let caught_up = (passed / CATCH_UP).min(ahead);
        if caught_up > 0 {
            *self = Self { ms: gone_on + caught_up, since_boot, shows: true };
        }
        gone_on + caught_up
    }
}

/// Milliseconds since boot, suspended ones included; nobody can set them.
fn since_boot() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_neither_goes_back_nor_stands_still() {
        let mut shown = Shown { ms: 5, since_boot: 100, shows: false };
        let told = [(7, 101), (3, 101), (4, 104), (5, 105), (30, 106), (20, 107), (40, 107)]
            .map(|(now, since_boot)| shown.show(now, since_boot));
        assert_eq!(told, [7, 7, 10, 11, 30, 31, 40]);
    }

    #[test]
    fn a_clock_that_is_set_forward_does_not_hurry_and_is_caught_up_with() {
        let mut shown = Shown { ms: 5, since_boot: 100, shows: false };
        assert_eq!(shown.show_alone(50_000, 200), 50_000, "what was before nobody knows");
        assert_eq!(shown.show_alone(50_600, 700), 50_600, "a little ahead is no jump");
        let hour = 3_600_000;
        assert_eq!(shown.show_alone(50_610 + hour, 710), 50_610, "an hour");
        assert_eq!(shown.show_alone(51_600 + hour, 1_700), 51_610, "a hundredth faster");
        let mut at = 1_700;
        while shown.show_alone(50_000 + hour + at, at) < 50_000 + hour + at {
            at += 1_000;
        }
        assert!(at > 300_000_000, "it took a hundred times as long: {at}");
        assert_eq!(shown.show_alone(0, at + 5), 50_000 + hour + at + 5, "and it does not go back");
    }
}
