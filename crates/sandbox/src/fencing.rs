//! The fence: the highest epoch of each session, and the tombstones of stopped sandboxes.
//!
//! ```text
//! ROOT/sessions/SESSION/lock      flock: one change of this session's sandboxes at a time
//! ROOT/sessions/SESSION/epoch     the highest epoch seen, durable
//! ROOT/tombstones/SANDBOX         stopped, perhaps before it existed; durable
//! ```
//!
//! Three verbs: [`admit`](Fencing::admit) takes the lock and checks the epoch,
//! [`bury`](Admission::bury) writes the tombstone, [`refuse_buried`](Admission::refuse_buried)
//! looks for it, both under that lock. So a stop and a late create or start cannot pass each other:
//! either the create came first and the stop finds the sandbox, or the create finds the tombstone.
//!
//! The lock is a file lock rather than one in memory: a runner that was believed dead and its
//! successor may both be there for a while.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belay_kernel::{Epoch, SandboxId, SessionId, Span, Timestamp};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Refusal, Result};
use crate::files::{self, Durability};
use crate::plan::Fence;

/// How long a change may wait for another of the same session.
const LOCK_LIMIT: Span = Span::from_secs(20);

/// The fence of one provider, in its directory.
#[derive(Clone, Debug)]
pub(crate) struct Fencing {
    root: PathBuf,
}

/// The right to change one session's sandboxes until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    root: PathBuf,
    sandbox: SandboxId,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Tombstone {
    sandbox: SandboxId,
    at: Timestamp,
}

impl Fencing {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        files::private_directory(&root.join("sessions"))?;
        files::private_directory(&root.join("tombstones"))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Waits for the session's lock, refuses a lower epoch, remembers a higher one. Blocks.
    pub(crate) fn admit(&self, fence: &Fence) -> Result<Admission> {
        let directory = self.session(fence.session);
        files::private_directory(&directory)?;
        let lock = lock(&directory.join("lock"))?;
        let seen = self.highest(fence.session)?;
        if fence.epoch < seen {
            return Err(Refusal::Fenced { asked: fence.epoch, seen }.into());
        }
        if fence.epoch > seen {
            files::put(&directory.join("epoch"), &fence.epoch.0, Durability::PowerCut)?;
        }
        Ok(Admission { root: self.root.clone(), sandbox: fence.sandbox, _lock: lock })
    }

    /// The highest epoch that the session has seen.
    pub(crate) fn highest(&self, session: SessionId) -> Result<Epoch> {
        let path = self.session(session).join("epoch");
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Epoch).map_err(|_| {
                let broken = io::Error::new(io::ErrorKind::InvalidData, "not a number");
                Error::io("understand", &path)(broken)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Epoch::default()),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    fn session(&self, session: SessionId) -> PathBuf {
        self.root.join("sessions").join(session.to_string())
    }

    /// Removes tombstones that are older than any request that could still be under way.
    pub(crate) fn prune(&self, now: Timestamp, age: Span) {
        let entries = std::fs::read_dir(self.root.join("tombstones")).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Ok(Some(tombstone)) = files::get::<Tombstone>(&path)
                && now.since(tombstone.at) > age
            {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

impl Admission {
    fn tombstone(&self) -> PathBuf {
        self.root.join("tombstones").join(self.sandbox.to_string())
    }

    /// Marks the sandbox as stopped for good.
    pub(crate) fn bury(&self, now: Timestamp) -> Result<()> {
        let path = self.tombstone();
        if path.exists() {
            return Ok(());
        }
        files::put(&path, &Tombstone { sandbox: self.sandbox, at: now }, Durability::PowerCut)
    }

    /// Refuses what was stopped.
    pub(crate) fn refuse_buried(&self) -> Result<()> {
        match self.tombstone().exists() {
            true => Err(Refusal::Tombstoned { sandbox: self.sandbox }.into()),
            false => Ok(()),
        }
    }
}

fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("open", path))?;
    let deadline = Instant::now() + Duration::from_millis(LOCK_LIMIT.as_millis());
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io("lock", path)(error.into())),
        }
        if Instant::now() >= deadline {
            let operation = "waiting for another change of the session";
            return Err(Error::TimedOut { operation, after: LOCK_LIMIT });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Whoever falls in the middle of this must leave a number behind, or none: a session whose
    /// epoch cannot be read could not be stopped any more.
    #[test]
    fn an_epoch_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let fencing = Fencing::open(directory.path()).unwrap();
        for number in 1..100 {
            let session = SessionId::from_bits(number);
            let sandbox = SandboxId::from_bits(number);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for epoch in 1..4 {
                        let fence = Fence { session, sandbox, epoch: Epoch(epoch) };
                        fencing.admit(&fence).unwrap();
                    }
                    over.store(true, Ordering::SeqCst);
                });
                while !over.load(Ordering::SeqCst) {
                    fencing.highest(session).unwrap();
                }
            });
            assert_eq!(fencing.highest(session).unwrap(), Epoch(3));
        }
    }
}
