//! The lock around moving a session between compute and storage.
//!
//! It has a number, which is the session's next epoch, and an end, which its holder moves on while
//! it works. Its end frees it without anyone's help, so nobody waits for a dead holder; its number
//! makes a holder that wakes up too late harmless, because every compare-and-set and every provider
//! operation carries it. The end is for progress, the number is for safety.

use serde::{Deserialize, Serialize};

use crate::id::{Epoch, NodeId, Revision, SandboxId};
use crate::limits::Limits;
use crate::session::Session;
use crate::time::{Span, Timestamp};

/// A lock that is held, or was until its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// Its number: the epoch it took.
    pub number: Epoch,
    /// Who holds it.
    pub holder: NodeId,
    /// The last moment at which it is held.
    pub until: Timestamp,
}

impl Lock {
    /// Whether it is still held.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now <= self.until
    }
}

/// Why the lock was not had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// Someone holds it until then.
    Busy {
        /// The end of the other's lock, as it stands.
        until: Timestamp,
    },
    /// It is not, or no longer, the caller's.
    Lost,
}

/// Takes the lock of a session that is free, with the next epoch as its number.
pub fn take(
    session: Session,
    holder: NodeId,
    limits: &Limits,
    now: Timestamp,
) -> Result<Session, Refused> {
    match session.lock {
        Some(lock) if lock.is_live(now) => Err(Refused::Busy { until: lock.until }),
        Some(_) | None => {
            let epoch = session.epoch.next();
            let until = now.after(limits.snapshot_lock);
            Ok(Session { epoch, lock: Some(Lock { number: epoch, holder, until }), ..session })
        }
    }
}

/// Moves the end of a lock on. A lock whose end has passed is lost, even if nobody took it.
pub fn renew(
    session: Session,
    number: Epoch,
    limits: &Limits,
    now: Timestamp,
) -> Result<Session, Refused> {
    match session.lock {
        Some(lock) if lock.number == number && lock.is_live(now) => {
            let until = lock.until.max(now.after(limits.snapshot_lock));
            Ok(Session { lock: Some(Lock { until, ..lock }), ..session })
        }
        Some(_) | None => Err(Refused::Lost),
    }
}

/// Gives a lock back. Whoever no longer has it gives nothing back.
#[must_use]
pub fn release(session: Session, number: Epoch) -> Session {
    match session.lock {
        Some(lock) if lock.number == number => Session { lock: None, ..session },
        Some(_) | None => session,
    }
}

/// What a commit under the lock compares before it sets: whoever finds any of it changed has been
/// overtaken, which is an outcome and not an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    /// The sandbox that the session had.
    pub sandbox: Option<SandboxId>,
    /// The session's revision.
    pub revision: Revision,
    /// The lock's number.
    pub lock: Epoch,
}

impl Key {
    /// Reads the key inside the lock; nothing, if the lock `number` is not, or no longer, held.
    pub fn read(session: &Session, number: Epoch, now: Timestamp) -> Option<Self> {
        let lock = session.lock.filter(|lock| lock.number == number && lock.is_live(now))?;
        let (sandbox, revision) = (session.state.sandbox(), session.revision);
        Some(Self { sandbox, revision, lock: lock.number })
    }

    /// Whether nothing of it has changed.
    pub fn matches(&self, session: &Session) -> bool {
        session.state.sandbox() == self.sandbox
            && session.revision == self.revision
            && session.lock.map(|lock| lock.number) == Some(self.lock)
    }
}

/// What a caller that needs the lock does while another has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    /// It is free: take it.
    Take,
    /// Look again then, or when it is released.
    Until(Timestamp),
    /// The caller's own deadline has passed.
    GiveUp,
}

/// How a caller that may wait until `deadline` waits for the lock: never without an end.
pub fn wait(session: &Session, deadline: Timestamp, now: Timestamp) -> Wait {
    match session.lock {
        Some(lock) if lock.is_live(now) => match now > deadline {
            true => Wait::GiveUp,
            false => Wait::Until(lock.until.min(deadline).after(Span::from_millis(1))),
        },
        Some(_) | None => Wait::Take,
    }
}

#[cfg(test)]
mod tests;
