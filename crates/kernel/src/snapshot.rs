//! Taking an idle session out of compute, under the session's lock.
//!
//! ```text
//! begin (inside the lock: predicate again, sandbox id again)
//!   → detach the stream → remove secrets → capture: memory, else pause, else files
//!   → commit by compare-and-set → terminate, where the method does not keep the sandbox → over
//! ```
//!
//! The order is the point. Secrets go before anything is captured: they were once baked into
//! snapshots. The commit comes before the terminate: a crash in between leaves a sandbox too many,
//! never a tree too few. A lost compare-and-set is a benign stale actor: someone moved on, and that
//! someone's state stands.
//!
//! Failures are counted in the row, not in memory; at the cap the processes are killed under the
//! same lock, and the disk is kept if the tree is not saved.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::disposition::Disposition;
use crate::id::{Epoch, SandboxId, SnapshotId};
use crate::idle::{self, Idle, Presence};
use crate::limits::{Caps, Limits};
use crate::lock::Key;
use crate::orphan::{self, Owner};
use crate::session::{self, Attempt, Effect, Kept, PauseReason, Session, StopReason, Termination};
use crate::time::Timestamp;

/// What a provider can do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// Memory snapshots.
    pub memory: bool,
    /// Freezing a sandbox in place.
    pub pause: bool,
    /// File-system snapshots.
    pub files: bool,
}

/// A way to take a session out of compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Memory snapshot: processes and files.
    Memory,
    /// Freeze in place.
    Pause,
    /// File-system snapshot.
    Files,
}

impl Method {
    /// Best first.
    pub const ORDER: [Self; 3] = [Self::Memory, Self::Pause, Self::Files];

    /// The best method that the provider offers, leaving out `failed` and those before it.
    pub fn next(capabilities: Capabilities, failed: Option<Self>) -> Option<Self> {
        let tried = failed.map_or(0, |method| method as usize + 1);
        Self::ORDER[tried..].iter().copied().find(|method| match method {
            Self::Memory => capabilities.memory,
            Self::Pause => capabilities.pause,
            Self::Files => capabilities.files,
        })
    }
}

/// Why a session would leave compute; checked again inside the lock.
#[derive(Clone, Copy, Debug)]
pub enum Ground<'a> {
    /// Nobody uses it. Only its owner can know: who is attached is known where they are attached.
    Idle {
        /// Who and what is at work, as the holder of the lock sees it.
        presence: &'a Presence,
        /// The owner, read inside the lock.
        owner: Owner,
    },
    /// Its owner's lease is over.
    Orphan(Owner),
    /// Its task rests in BLOCKED or READY, and the linger time is over.
    Resting(PauseReason),
}

/// Why a snapshot does not begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The lock is not, or no longer, held.
    LockLost,
    /// There is no sandbox.
    NoSandbox,
    /// An attempt is CLAIMED, RUNNING or PUBLISHING.
    AttemptLive,
    /// The provider offers no method: the session could not be resumed, so it does not pause.
    NoMethod,
    /// The idle predicate does not hold.
    Busy(Idle),
    /// The owner's lease is live again.
    Owned,
    /// Whoever holds the lock does not own the session, so its view of who uses it proves nothing.
    NotOwner,
}

/// One snapshot under way: its fence, and the step that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Saga {
    /// What its commits compare.
    pub key: Key,
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Why.
    pub reason: PauseReason,
    /// What the provider can do.
    pub capabilities: Capabilities,
    /// The step to perform next.
    pub stage: Stage,
}

/// A step of a snapshot. Each is idempotent and carries the lock's number to the provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Disconnect the event stream.
    Detach,
    /// Remove secrets from the sandbox.
    RemoveSecrets,
    /// Snapshot or freeze.
    Capture(Method),
    /// Commit what was kept.
    Commit(Kept),
    /// Terminate the old sandbox.
    Terminate,
    /// Nothing is left to do but to give the lock back.
    Over(Outcome),
}

/// How a snapshot ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The session is paused, or pausing with its sandbox gone.
    Done,
    /// The old sandbox could not be terminated; its id is kept.
    LeftBehind,
    /// Someone moved on: change nothing. A snapshot that was taken is discarded.
    Stale(Option<SnapshotId>),
    /// No method worked: count it ([`failed`]).
    Failed,
}

/// How a step went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Report {
    /// Well.
    Done,
    /// Well, and this snapshot was stored.
    Captured(SnapshotId),
    /// Not well.
    Failed,
    /// The compare-and-set was lost, or the runner refused the epoch.
    Overtaken,
}

/// Begins a snapshot inside the lock `number`: everything is read and judged again.
pub fn begin(
    session: &Session,
    number: Epoch,
    ground: Ground<'_>,
    capabilities: Capabilities,
    limits: &Limits,
    now: Timestamp,
) -> Result<Saga, Refused> {
    let key = Key::read(session, number, now).ok_or(Refused::LockLost)?;
    let sandbox = key.sandbox.ok_or(Refused::NoSandbox)?;
    if session.attempt == Attempt::Live {
        return Err(Refused::AttemptLive);
    }
    let reason = match ground {
        Ground::Idle { presence, owner } => {
            if session.lock.map(|lock| lock.holder) != Some(owner.node) {
                return Err(Refused::NotOwner);
            }
            match idle::judge(presence, &session.state, limits, now) {
                Idle::Eligible { .. } => PauseReason::Inactivity,
                busy @ Idle::Busy { .. } => return Err(Refused::Busy(busy)),
            }
        }
        Ground::Orphan(owner) => match orphan::is_over(owner, now) {
            true => PauseReason::Orphaned,
            false => return Err(Refused::Owned),
        },
        Ground::Resting(reason) => reason,
    };
    Method::next(capabilities, None).ok_or(Refused::NoMethod)?;
    Ok(Saga { key, sandbox, reason, capabilities, stage: Stage::Detach })
}

impl Saga {
    /// What comes next, after the current step went like `report`.
    #[must_use]
    pub fn after(self, report: Report) -> Self {
        Self { stage: self.stage_after(report), ..self }
    }

    fn stage_after(&self, report: Report) -> Stage {
        let over = |outcome| Stage::Over(outcome);
        match (self.stage, report) {
            (Stage::Over(outcome), _) => Stage::Over(outcome),
            (Stage::Commit(kept), Report::Overtaken) => over(Outcome::Stale(kept.snapshot())),
            (
                Stage::Detach | Stage::RemoveSecrets | Stage::Capture(_) | Stage::Terminate,
                Report::Overtaken,
            ) => over(Outcome::Stale(None)),
            // The stream may be down already: whether it was detached changes nothing.
            (Stage::Detach, Report::Done | Report::Failed | Report::Captured(_)) => {
                Stage::RemoveSecrets
            }
            // With secrets inside there is no snapshot.
            (Stage::RemoveSecrets, Report::Failed) => over(Outcome::Failed),
            (Stage::RemoveSecrets, Report::Done | Report::Captured(_)) => self.capture(None),
            (Stage::Capture(Method::Memory), Report::Captured(id)) => {
                Stage::Commit(Kept::Memory(id))
            }
            (Stage::Capture(Method::Files), Report::Captured(id)) => Stage::Commit(Kept::Files(id)),
            (Stage::Capture(Method::Pause), Report::Done | Report::Captured(_)) => {
                Stage::Commit(Kept::Frozen(self.sandbox))
            }
            (
                Stage::Capture(method @ (Method::Memory | Method::Files)),
                Report::Done | Report::Failed,
            )
            | (Stage::Capture(method @ Method::Pause), Report::Failed) => {
                self.capture(Some(method))
            }
            (Stage::Commit(Kept::Frozen(_)), Report::Done | Report::Captured(_)) => {
                over(Outcome::Done)
            }
            (
                Stage::Commit(Kept::Memory(_) | Kept::Files(_) | Kept::Disk(_) | Kept::Tree),
                Report::Done | Report::Captured(_),
            ) => Stage::Terminate,
            (Stage::Commit(_), Report::Failed) => over(Outcome::Failed),
            (Stage::Terminate, Report::Done | Report::Captured(_)) => over(Outcome::Done),
            (Stage::Terminate, Report::Failed) => over(Outcome::LeftBehind),
        }
    }

    fn capture(&self, failed: Option<Method>) -> Stage {
        Method::next(self.capabilities, failed).map_or(Stage::Over(Outcome::Failed), Stage::Capture)
    }

    /// The epoch that every provider operation of this saga carries.
    pub const fn epoch(&self) -> Epoch {
        self.key.lock
    }
}

/// A commit under the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Commit {
    /// Store this row and these effects.
    Write(Session, Vec<Effect>),
    /// The compare-and-set is lost, or the row no longer allows it: a benign stale actor.
    Overtaken,
}

impl Commit {
    fn of(session: Session, event: session::Event) -> Self {
        match session::step(&session, event) {
            Disposition::Accept(transition) => {
                Self::Write(session.after(&transition), transition.effects)
            }
            Disposition::Ignore | Disposition::Deny(_) => Self::Overtaken,
        }
    }
}

/// Commits what was kept: compares the key, then sets the next state. A success clears the count of
/// failures.
pub fn commit(session: Session, saga: &Saga, kept: Kept) -> Commit {
    if !saga.key.matches(&session) {
        return Commit::Overtaken;
    }
    let (sandbox, reason) = (saga.sandbox, saga.reason);
    let cleared = Session { snapshot_failures: 0, ..session };
    Commit::of(cleared, session::Event::Snapshotted { sandbox, reason, kept })
}

/// Commits how the termination of a sandbox ended. It needs no key: it speaks of one sandbox, and
/// what no longer names that sandbox ignores it.
pub fn settle(session: Session, sandbox: SandboxId, how: Termination) -> Commit {
    Commit::of(session, session::Event::Terminated { sandbox, how })
}

/// Counts a failed snapshot. At the cap the session stops: its processes are killed, its disk is
/// kept if its tree is not saved, and an alert is raised.
pub fn failed(session: Session, saga: &Saga, caps: &Caps) -> Commit {
    if !saga.key.matches(&session) {
        return Commit::Overtaken;
    }
    let snapshot_failures = session.snapshot_failures.saturating_add(1);
    let counted = Session { snapshot_failures, ..session };
    if snapshot_failures < caps.snapshot_failures {
        return Commit::Write(Session { revision: session.revision.next(), ..counted }, vec![]);
    }
    Commit::of(counted, session::Event::Stopped { reason: StopReason::SnapshotFailed })
}

/// What is done about a provider's own end of life for a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expiry {
    /// Nothing yet; look again then.
    At(Timestamp),
    /// Snapshot it: nobody uses it.
    Snapshot,
    /// Save the tree, then end the attempt as lost, with this cause.
    SaveTreeAndEnd(Cause),
}

/// Decides what is done about a sandbox that its provider ends at `expires_at`.
pub fn expiry(
    expires_at: Timestamp,
    session: &Session,
    presence: &Presence,
    limits: &Limits,
    now: Timestamp,
) -> Expiry {
    let notice = expires_at.before(limits.expiry_notice);
    if now < notice {
        return Expiry::At(notice);
    }
    match (session.attempt, idle::judge(presence, &session.state, limits, now)) {
        (Attempt::None, Idle::Eligible { .. }) => Expiry::Snapshot,
        (Attempt::None, Idle::Busy { .. }) | (Attempt::Live, _) => {
            Expiry::SaveTreeAndEnd(Cause::SandboxExpired)
        }
    }
}

#[cfg(test)]
mod tests;
