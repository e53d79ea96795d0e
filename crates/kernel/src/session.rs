//! The life of a session: the durable conversation and working tree behind tasks.
//!
//! ```text
//! new ─first sandbox─► running ─snapshot committed─► pausing ─terminate settled─► paused
//!                        ▲  │ └────── the sandbox itself is kept ───────────────────▲ │
//!                        │  └─ over ─► stopped ◄─────────── over ───────────────────┘ │
//!                        └── continue, resume, answer ─┴───────────── resume ─────────┘
//! ```
//!
//! *Pausing* is the stored middle of the row “running → paused”: the snapshot is durable, the old
//! sandbox may still be there. Whoever finds it later finishes it; nobody has to remember.
//!
//! What a state does not carry cannot be stale: a running session has no pause reason to forget to
//! clear. What people see ([`Display`]) is derived, never stored: columns that nobody wrote once
//! showed every session as working.
//!
//! Every event names the sandbox it speaks of, and one that the session no longer has is ignored.

use serde::{Deserialize, Serialize};

mod display;

pub use display::{Display, display};

use crate::disposition::Disposition;
use crate::id::{Epoch, Revision, SandboxId, SnapshotId};
use crate::lock::Lock;
use crate::task;

/// Why a session is paused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// Nobody used it for the grace time.
    Inactivity,
    /// Its owner is gone and no attempt lives in it.
    Orphaned,
    /// Its task waits for an answer or for subtasks.
    Blocked,
    /// Its task waits for a review.
    Ready,
}

/// Why a session is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its tasks are done.
    Done,
    /// A person stopped it.
    Cancelled,
    /// Its task failed, or its sandbox is gone and nothing else was kept.
    Failed,
    /// It could not be snapshotted, as often as allowed.
    SnapshotFailed,
}

/// What becomes of a session when an attempt of it is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rest {
    /// It waits for its task's next attempt.
    Pause(PauseReason),
    /// It is over with its task.
    Stop(StopReason),
}

impl Rest {
    /// What a task in this state makes of its session.
    pub const fn of(state: &task::State) -> Self {
        use task::State as T;
        match state {
            T::Ready { .. } => Self::Pause(PauseReason::Ready),
            T::Blocked(_) => Self::Pause(PauseReason::Blocked),
            T::Pending { .. } | T::Queued { .. } | T::Claimed { .. } | T::Running { .. } => {
                Self::Pause(PauseReason::Inactivity)
            }
            T::Completed => Self::Stop(StopReason::Done),
            T::Cancelled => Self::Stop(StopReason::Cancelled),
            T::Failed(_) | T::TimedOut { .. } | T::BudgetExceeded => Self::Stop(StopReason::Failed),
        }
    }
}

impl Rest {
    /// What a task in this state makes of a session whose sandbox is frozen: it stays for whatever
    /// may follow, until a person says that nothing will.
    pub const fn of_frozen(state: &task::State) -> Self {
        use task::State as T;
        match (state, Self::of(state)) {
            (T::Cancelled | T::BudgetExceeded, rest) | (_, rest @ Self::Pause(_)) => rest,
            (_, Self::Stop(_)) => Self::Pause(PauseReason::Inactivity),
        }
    }
}

/// What a session without a running sandbox starts again from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// A memory snapshot: processes and files.
    Memory(SnapshotId),
    /// A file-system snapshot.
    Files(SnapshotId),
    /// The sandbox itself, frozen.
    Frozen(SandboxId),
    /// The disk of a sandbox whose processes were killed.
    Disk(SandboxId),
    /// The last kept tree, or the base if none was ever kept.
    Tree,
}

impl Kept {
    /// The sandbox that must outlive the pause.
    pub const fn sandbox(self) -> Option<SandboxId> {
        match self {
            Self::Frozen(sandbox) | Self::Disk(sandbox) => Some(sandbox),
            Self::Memory(_) | Self::Files(_) | Self::Tree => None,
        }
    }

    /// The snapshot that it restores.
    pub const fn snapshot(self) -> Option<SnapshotId> {
        match self {
            Self::Memory(snapshot) | Self::Files(snapshot) => Some(snapshot),
            Self::Frozen(_) | Self::Disk(_) | Self::Tree => None,
        }
    }
}

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// Nothing ran in it yet.
    New,
    /// It has a sandbox.
    Running {
        /// Its sandbox.
        sandbox: SandboxId,
    },
    /// What it resumes from is durable; its old sandbox is being terminated.
    Pausing {
        /// The old sandbox.
        sandbox: SandboxId,
        /// Why.
        reason: PauseReason,
        /// What it resumes from.
        kept: Kept,
    },
    /// It uses no compute and can be resumed.
    Paused {
        /// Why.
        reason: PauseReason,
        /// What it resumes from.
        kept: Kept,
        /// A sandbox that could not be terminated; cleaned up later, by its id.
        leftover: Option<SandboxId>,
    },
    /// It is over until a person continues it.
    Stopped {
        /// Why.
        reason: StopReason,
        /// What it would resume from.
        kept: Kept,
        /// A sandbox that could not be terminated; cleaned up later, by its id.
        leftover: Option<SandboxId>,
    },
}

impl State {
    /// The sandbox that the agent runs in, if any.
    pub const fn sandbox(&self) -> Option<SandboxId> {
        match self {
            Self::Running { sandbox } => Some(*sandbox),
            Self::New | Self::Pausing { .. } | Self::Paused { .. } | Self::Stopped { .. } => None,
        }
    }

    /// Whether the session still answers for this sandbox in any way.
    pub fn names(&self, id: SandboxId) -> bool {
        match self {
            Self::New => false,
            Self::Running { sandbox } => *sandbox == id,
            Self::Pausing { sandbox, kept, .. } => *sandbox == id || kept.sandbox() == Some(id),
            Self::Paused { kept, leftover, .. } | Self::Stopped { kept, leftover, .. } => {
                *leftover == Some(id) || kept.sandbox() == Some(id)
            }
        }
    }
}

/// Whether the working tree exists anywhere but in the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    /// The sandbox may hold the only copy.
    Unsaved,
    /// Its last state is kept elsewhere.
    Saved,
}

/// Whether an attempt of the session is CLAIMED, RUNNING or PUBLISHING.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// There is none.
    None,
    /// There is one.
    Live,
}

/// The row of a session, as far as decisions read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Where it is in its life.
    pub state: State,
    /// Grows with every commit that changes the row; the lock is not part of it.
    pub revision: Revision,
    /// The highest fencing number taken.
    pub epoch: Epoch,
    /// Who may move it between compute and storage.
    pub lock: Option<Lock>,
    /// Snapshots that failed since the last that succeeded.
    pub snapshot_failures: u32,
    /// Whether the tree exists anywhere but in the sandbox.
    pub tree: Tree,
    /// Whether an attempt lives in it.
    pub attempt: Attempt,
}

impl Session {
    /// A session in which nothing ran yet.
    pub const fn new() -> Self {
        Self {
            state: State::New,
            revision: Revision(0),
            epoch: Epoch(0),
            lock: None,
            snapshot_failures: 0,
            tree: Tree::Saved,
            attempt: Attempt::None,
        }
    }

    /// The row after an accepted transition: the one writer of `state`. Whatever runs may change
    /// the tree at once, so entering a sandbox makes it unsaved.
    #[must_use]
    pub fn after(self, transition: &Transition) -> Self {
        let tree = match transition.next {
            State::Running { .. } => Tree::Unsaved,
            State::New | State::Pausing { .. } | State::Paused { .. } | State::Stopped { .. } => {
                self.tree
            }
        };
        Self { state: transition.next, revision: self.revision.next(), tree, ..self }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

/// Who or what wakes a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// `continue`: a follow-up task.
    Continue,
    /// `resume` by a person.
    Resume,
    /// `answer` to a question.
    Answer,
    /// The next attempt of a task that goes on by itself: parked, retried, rejected.
    Attempt,
    /// A client or a tool wants to use the running session.
    Use,
    /// A connection that broke, and that nobody asked to have back.
    Reconnect,
}

/// Whether a sandbox could be terminated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// It is gone, and seen to be.
    Done,
    /// It may still be there.
    Failed,
}

/// What happened to a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Its first sandbox was made.
    Opened {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// What it resumes from is durable.
    Snapshotted {
        /// The sandbox that was snapshotted or frozen.
        sandbox: SandboxId,
        /// Why.
        reason: PauseReason,
        /// What it resumes from.
        kept: Kept,
    },
    /// The termination of a sandbox came to an end.
    Terminated {
        /// The sandbox.
        sandbox: SandboxId,
        /// How.
        how: Termination,
    },
    /// A sandbox runs for it again.
    Resumed {
        /// The sandbox.
        sandbox: SandboxId,
        /// On whose wish.
        wake: Wake,
    },
    /// A sandbox is proven gone.
    Vanished {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// A snapshot could not be restored.
    RestoreFailed {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// It is over.
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

/// What must follow a transition. Each is idempotent and fenced by the session's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Terminate this sandbox; its tree is safe.
    Terminate(SandboxId),
    /// Kill the processes of this sandbox and keep its disk: it may hold the only tree.
    KillKeepDisk(SandboxId),
    /// Refuse whatever this sandbox still says or is asked.
    Fence(SandboxId),
    /// Tell people that this snapshot could not be restored. It is kept, not deleted.
    SayRestoreFailed(SnapshotId),
    /// Raise the alert `snapshot_failed`.
    AlertSnapshotFailed,
}

/// A change of a session: its next state, and what must follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The next state.
    pub next: State,
    /// What must follow.
    pub effects: Vec<Effect>,
}

/// Why an event is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Deny {
    /// There is no such move from here.
    Illegal,
    /// An attempt is CLAIMED, RUNNING or PUBLISHING.
    AttemptLive,
    /// Nobody asked for it: it was paused or stopped meanwhile.
    NotAsked,
}

impl Deny {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Illegal => "illegal_move",
            Self::AttemptLive => "attempt_live",
            Self::NotAsked => "not_asked",
        }
    }
}

/// The events that can change a session from here, by name: what a refusal lists.
pub const fn legal(state: &State) -> &'static [&'static str] {
    match state {
        State::New => &["opened"],
        State::Running { .. } => &["snapshotted", "resumed", "vanished", "stopped"],
        State::Pausing { .. } => &["terminated", "vanished", "stopped"],
        State::Paused { .. } => &["resumed", "terminated", "vanished", "restore_failed", "stopped"],
        State::Stopped { .. } => &["resumed", "terminated", "vanished", "restore_failed"],
    }
}

/// What the session machine says to one event.
pub type Answer = Disposition<Transition, Deny>;

use Event as E;
use State as S;

/// Decides what an event does to a session.
pub fn step(session: &Session, event: Event) -> Answer {
    match (&session.state, event) {
        (S::New, E::Opened { sandbox }) => accept(S::Running { sandbox }, []),
        (S::Running { sandbox }, E::Snapshotted { sandbox: of, reason, kept }) => {
            if *sandbox == of {
                snapshotted(session, of, reason, kept)
            } else {
                Disposition::Ignore
            }
        }
        (S::Running { sandbox: old }, E::Resumed { sandbox, .. }) => match *old == sandbox {
            true => Disposition::Ignore,
            false => accept(S::Running { sandbox }, [Effect::Fence(*old)]),
        },
        (S::Running { sandbox }, E::Vanished { sandbox: of }) => {
            if *sandbox == of {
                vanished(session)
            } else {
                Disposition::Ignore
            }
        }
        (S::Pausing { sandbox, reason, kept }, E::Terminated { sandbox: of, how }) => {
            if *sandbox == of { paused(*reason, *kept, of, how) } else { Disposition::Ignore }
        }
        (S::Pausing { .. }, E::Vanished { sandbox }) => {
            step(session, E::Terminated { sandbox, how: Termination::Done })
        }
        (S::Paused { .. } | S::Stopped { .. }, E::Resumed { wake: Wake::Reconnect, .. }) => {
            Disposition::Deny(Deny::NotAsked)
        }
        (
            S::Paused { kept, leftover, .. },
            E::Resumed {
                sandbox,
                wake: Wake::Continue | Wake::Resume | Wake::Answer | Wake::Attempt | Wake::Use,
            },
        )
        | (
            S::Stopped { kept, leftover, .. },
            E::Resumed { sandbox, wake: Wake::Continue | Wake::Resume | Wake::Answer },
        ) => resumed(sandbox, *kept, *leftover),
        (
            S::Paused { .. } | S::Stopped { .. },
            E::Terminated { sandbox, how: Termination::Done } | E::Vanished { sandbox },
        ) => forget(&session.state, sandbox),
        (S::Paused { .. } | S::Stopped { .. }, E::RestoreFailed { snapshot }) => {
            restore_failed(&session.state, snapshot)
        }
        (S::Running { .. } | S::Pausing { .. } | S::Paused { .. }, E::Stopped { reason }) => {
            stopped(session, reason)
        }
        // True, and nothing new.
        (S::Stopped { .. }, E::Stopped { .. })
        | (S::Paused { .. } | S::Stopped { .. }, E::Terminated { how: Termination::Failed, .. })
        | (S::Pausing { .. } | S::Paused { .. } | S::Stopped { .. }, E::Snapshotted { .. })
        | (S::Running { .. }, E::Terminated { .. } | E::RestoreFailed { .. }) => {
            Disposition::Ignore
        }
        (S::New, E::Snapshotted { .. } | E::Terminated { .. } | E::Resumed { .. })
        | (S::New, E::Vanished { .. } | E::RestoreFailed { .. } | E::Stopped { .. })
        | (S::Pausing { .. }, E::Resumed { .. } | E::RestoreFailed { .. })
        | (S::Stopped { .. }, E::Resumed { wake: Wake::Attempt | Wake::Use, .. })
        | (
            S::Running { .. } | S::Pausing { .. } | S::Paused { .. } | S::Stopped { .. },
            E::Opened { .. },
        ) => Disposition::Deny(Deny::Illegal),
    }
}

fn accept<const N: usize>(next: State, effects: [Effect; N]) -> Answer {
    Disposition::Accept(Transition { next, effects: effects.into() })
}

fn snapshotted(session: &Session, sandbox: SandboxId, reason: PauseReason, kept: Kept) -> Answer {
    if session.attempt == Attempt::Live {
        return Disposition::Deny(Deny::AttemptLive);
    }
    match kept {
        Kept::Frozen(_) => accept(State::Paused { reason, kept, leftover: None }, []),
        // A pause must be possible to resume from: the bare tree only if it is the latest.
        Kept::Tree if session.tree == Tree::Unsaved => Disposition::Deny(Deny::Illegal),
        Kept::Disk(_) => Disposition::Deny(Deny::Illegal),
        Kept::Memory(_) | Kept::Files(_) | Kept::Tree => {
            accept(State::Pausing { sandbox, reason, kept }, [Effect::Terminate(sandbox)])
        }
    }
}

/// If the terminate failed the id is kept, so that later clean-up is still fenced.
fn paused(reason: PauseReason, kept: Kept, old: SandboxId, how: Termination) -> Answer {
    let leftover = match how {
        Termination::Done => None,
        Termination::Failed => Some(old),
    };
    accept(State::Paused { reason, kept, leftover }, [])
}

/// Every other sandbox that the session named is refused from now on. A leftover is terminated:
/// what it held is in the snapshot. One that was kept for its tree is not: only a sweep may end
/// it, and that saves what is unsaved first.
fn resumed(sandbox: SandboxId, kept: Kept, leftover: Option<SandboxId>) -> Answer {
    let other = |id: &SandboxId| *id != sandbox;
    let mut effects = Vec::new();
    effects.extend(kept.sandbox().filter(other).map(Effect::Fence));
    if let Some(old) = leftover.filter(other) {
        effects.extend([Effect::Fence(old), Effect::Terminate(old)]);
    }
    Disposition::Accept(Transition { next: State::Running { sandbox }, effects })
}

/// A session pauses only if it could be resumed.
fn vanished(session: &Session) -> Answer {
    let kept = Kept::Tree;
    match (session.attempt, session.tree) {
        // The attempt ends first, as lost; then the sweep comes again.
        (Attempt::Live, _) => Disposition::Deny(Deny::AttemptLive),
        (Attempt::None, Tree::Saved) => {
            accept(State::Paused { reason: PauseReason::Orphaned, kept, leftover: None }, [])
        }
        (Attempt::None, Tree::Unsaved) => {
            accept(State::Stopped { reason: StopReason::Failed, kept, leftover: None }, [])
        }
    }
}

/// A sandbox that a paused or stopped session still named is gone.
fn forget(state: &State, gone: SandboxId) -> Answer {
    let left = |leftover: Option<SandboxId>| leftover.filter(|id| *id != gone);
    let keep = |kept: Kept| if kept.sandbox() == Some(gone) { Kept::Tree } else { kept };
    let next = match *state {
        State::Paused { reason, kept, leftover } => {
            State::Paused { reason, kept: keep(kept), leftover: left(leftover) }
        }
        State::Stopped { reason, kept, leftover } => {
            State::Stopped { reason, kept: keep(kept), leftover: left(leftover) }
        }
        unchanged @ (State::New | State::Running { .. } | State::Pausing { .. }) => unchanged,
    };
    if next == *state { Disposition::Ignore } else { accept(next, []) }
}

fn restore_failed(state: &State, snapshot: SnapshotId) -> Answer {
    let next = match *state {
        State::Paused { reason, kept, leftover } if kept.snapshot() == Some(snapshot) => {
            State::Paused { reason, kept: Kept::Tree, leftover }
        }
        State::Stopped { reason, kept, leftover } if kept.snapshot() == Some(snapshot) => {
            State::Stopped { reason, kept: Kept::Tree, leftover }
        }
        State::New
        | State::Running { .. }
        | State::Pausing { .. }
        | State::Paused { .. }
        | State::Stopped { .. } => return Disposition::Ignore,
    };
    accept(next, [Effect::SayRestoreFailed(snapshot)])
}

/// Stopping never destroys the only tree: where it is not saved, the disk stays.
fn stopped(session: &Session, reason: StopReason) -> Answer {
    if session.attempt == Attempt::Live {
        return Disposition::Deny(Deny::AttemptLive);
    }
    let (kept, leftover, mut effects) = match (session.state, session.tree) {
        (State::Running { sandbox }, Tree::Unsaved) => {
            (Kept::Disk(sandbox), None, vec![Effect::KillKeepDisk(sandbox)])
        }
        (State::Running { sandbox }, Tree::Saved) => {
            (Kept::Tree, Some(sandbox), vec![Effect::Terminate(sandbox)])
        }
        (State::Pausing { sandbox, kept, .. }, _) => {
            (kept, Some(sandbox), vec![Effect::Terminate(sandbox)])
        }
        // What is frozen is there for a session that goes on.
        (State::Paused { kept: Kept::Frozen(sandbox), .. }, Tree::Saved) => {
            (Kept::Tree, Some(sandbox), vec![Effect::Terminate(sandbox)])
        }
        (State::Paused { kept: Kept::Frozen(sandbox), leftover, .. }, Tree::Unsaved) => {
            (Kept::Disk(sandbox), leftover, vec![Effect::KillKeepDisk(sandbox)])
        }
        (State::Paused { kept, leftover, .. } | State::Stopped { kept, leftover, .. }, _) => {
            (kept, leftover, vec![])
        }
        (State::New, _) => return Disposition::Deny(Deny::Illegal),
    };
    if reason == StopReason::SnapshotFailed {
        effects.push(Effect::AlertSnapshotFailed);
    }
    Disposition::Accept(Transition { next: State::Stopped { reason, kept, leftover }, effects })
}

#[cfg(test)]
mod tests;
