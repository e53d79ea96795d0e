//! The life of a worker: whoever claims tasks of a role, and who can prove that it is alive.
//!
//! ```text
//!            join                    claim
//!   GONE ───────────► WAITING ◄──────────────► ACTIVE ──┐
//!    ▲                   │          release             │
//!    └───────────────────┴──────────────────────────────┘
//!          leave, or the lease is over          leave, or the lease is over: recover the task
//! ```
//!
//! A worker holds a lease and renews it by beats. A beat from a connection that is no longer the
//! worker's is answered `superseded`: that process exits. A beat to a worker that is gone is
//! answered `rejoin_required`.
//!
//! Only a commit ends a lease. A beat that comes late, but before any sweep has taken the worker,
//! is fresh proof of life, so it renews. The lease of an ACTIVE slot is as long as its attempt's,
//! because its agent outlives a restart of the runner by as much; a worker that fell earlier than
//! its attempt would take a living agent's task away.
//!
//! Rejected: a heartbeat in the command that *waits* for work. It exits when work starts, so every
//! claimed task was taken for lost. The ACTIVE lease is renewed by whoever sees the agent's
//! process: the runner, or a keeper bound to that process by PID *and* start time.

use serde::{Deserialize, Serialize};

use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::id::{AttemptNumber, ConnectionId, RunnerId, TaskId};
use crate::limits::Limits;
use crate::time::{Span, Timestamp};

/// One process of one boot of one machine. A PID alone soon names a stranger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawIdentity")]
pub struct ProcessIdentity {
    pid: i32,
    start_time: u64,
    boot: u128,
}

#[derive(Deserialize)]
struct RawIdentity {
    pid: i32,
    start_time: u64,
    boot: u128,
}

/// Why a process cannot be an agent's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("process id {0} is never an agent's: ids of 1 and below are not signalled")]
pub struct PidError(i32);

impl TryFrom<RawIdentity> for ProcessIdentity {
    type Error = PidError;

    fn try_from(raw: RawIdentity) -> Result<Self, PidError> {
        Self::new(raw.pid, raw.start_time, raw.boot)
    }
}

/// What a look at a process id showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sighting {
    /// No process has this id.
    NoProcess,
    /// There is one, but it may not be looked at.
    PermissionDenied,
    /// Looking failed for another reason.
    Unreadable,
    /// There is one, which began then.
    Process {
        /// In the machine's own ticks since its boot.
        start_time: u64,
        /// Which boot.
        boot: u128,
        /// Whether it still runs.
        run: Run,
    },
}

/// Whether a process that is listed still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// It runs, sleeps or is stopped.
    Alive,
    /// It has ended and waits to be reaped.
    Zombie,
}

/// What a sighting means for one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is there.
    Alive,
    /// It has ended.
    Gone,
    /// It cannot be told. Never taken for gone.
    Unknown,
}

impl ProcessIdentity {
    /// The process `pid` that began at `start_time` (ticks since boot) of the boot `boot`.
    pub const fn new(pid: i32, start_time: u64, boot: u128) -> Result<Self, PidError> {
        if pid <= 1 { Err(PidError(pid)) } else { Ok(Self { pid, start_time, boot }) }
    }

    /// The process id, to be used only together with a fresh sighting.
    pub const fn pid(self) -> i32 {
        self.pid
    }

    /// When it started, in the machine's own ticks.
    pub const fn start_time(self) -> u64 {
        self.start_time
    }

    /// Since which boot of the machine.
    pub const fn boot(self) -> u128 {
        self.boot
    }

    /// What `sighting` of its process id means for this process.
    pub fn fate(self, sighting: Sighting) -> Fate {
        match sighting {
            Sighting::NoProcess => Fate::Gone,
            Sighting::PermissionDenied | Sighting::Unreadable => Fate::Unknown,
            Sighting::Process { start_time, boot, run } => {
                let same = start_time == self.start_time && boot == self.boot;
                match run {
                    Run::Alive if same => Fate::Alive,
                    Run::Alive | Run::Zombie => Fate::Gone,
                }
            }
        }
    }
}

/// What kind of worker it is: who sees its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A slot of a runner, which starts the agents and sees them.
    Slot {
        /// The runner.
        runner: RunnerId,
        /// Where that runner is.
        place: Place,
    },
    /// An agent that pulls its own work, started by Belay; its keeper sees it.
    Pulling {
        /// The agent's process.
        agent: ProcessIdentity,
    },
    /// An agent that a person started, such as their editor; its keeper sees it.
    External {
        /// The agent's process.
        agent: ProcessIdentity,
    },
}

/// Where a runner is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the process of the control plane.
    Embedded,
    /// On a machine of its own.
    Remote,
}

/// How a worker's agent is stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopMeans {
    /// Fenced, then killed, with proof.
    Kill,
    /// Fenced only: it is a person's own. The receipt says so.
    FenceOnly,
}

impl Kind {
    /// How this worker's agent may be stopped.
    pub const fn stop_means(self) -> StopMeans {
        match self {
            Self::Slot { .. } | Self::Pulling { .. } => StopMeans::Kill,
            Self::External { .. } => StopMeans::FenceOnly,
        }
    }

    /// How long it may be silent while it holds a task.
    const fn active_lease(self, limits: &Limits) -> Span {
        match self {
            Self::Slot { place: Place::Embedded, .. } => limits.attempt_lease_embedded,
            Self::Slot { place: Place::Remote, .. } => limits.attempt_lease_remote,
            Self::Pulling { .. } | Self::External { .. } => limits.worker_lease,
        }
    }

    /// Whether `other` is the same agent or the same runner, so that what it held it still holds.
    fn continues(self, other: Self) -> bool {
        match (self, other) {
            (Self::Slot { runner: a, .. }, Self::Slot { runner: b, .. }) => a == b,
            (Self::Pulling { agent: a }, Self::Pulling { agent: b })
            | (Self::External { agent: a }, Self::External { agent: b }) => a == b,
            (Self::Slot { .. }, Self::Pulling { .. } | Self::External { .. })
            | (Self::Pulling { .. }, Self::Slot { .. } | Self::External { .. })
            | (Self::External { .. }, Self::Slot { .. } | Self::Pulling { .. }) => false,
        }
    }
}

/// The task that an ACTIVE worker holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt: AttemptNumber,
}

/// Where a worker is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It never joined, left, or its lease is over.
    Gone,
    /// It can take a task.
    Waiting {
        /// The connection whose beats count.
        connection: ConnectionId,
        /// What it is.
        kind: Kind,
        /// The end of its lease.
        ready_until: Timestamp,
    },
    /// It has one.
    Active {
        /// The connection whose beats count.
        connection: ConnectionId,
        /// What it is.
        kind: Kind,
        /// The end of its lease.
        active_until: Timestamp,
        /// The task it has.
        held: Held,
    },
}

/// What happens to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection says that it is this worker. The start command it names was checked before.
    Join(ConnectionId, Kind),
    /// It says that it, and the agent it watches, is alive.
    Beat(ConnectionId),
    /// It takes a task; committed together with the task's own move.
    Claim(ConnectionId, Held),
    /// Its task's attempt is over.
    Release(Held),
    /// It goes. Every exit path says so.
    Leave(ConnectionId),
    /// A sweep proposes that its lease is over.
    ExpireLease,
}

/// What becomes of the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The state to store.
    pub state: State,
    /// How it is stored.
    pub change: Change,
    /// What has to be done about it, in the same commit.
    pub effect: Option<Effect>,
}

/// How much of the row changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The end of the lease only: its own column, batched, without a new revision and without an
    /// event, so that a beat neither overtakes a person nor makes a storm of updates.
    LeaseOnly,
    /// The state itself.
    Moved,
}

/// What a worker's move asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The agent that held this is gone: see [`crate::recovery`].
    Recover(Held, Kind),
    /// Its role may need a new worker: see [`crate::restart`].
    ReviewRole,
}

/// Why a worker's request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// A newer connection of the same worker exists: exit.
    Superseded,
    /// The worker is gone: join again first.
    RejoinRequired,
    /// It already has a task: go on with that one.
    Holds(Held),
}

impl Denial {
    /// The refusal's stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::RejoinRequired => "rejoin_required",
            Self::Holds(_) => "already_holds_task",
        }
    }
}

/// The answer to a beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeatAnswer {
    /// Go on.
    Ok,
    /// You are gone here: join again.
    RejoinRequired,
    /// Another process is this worker now: exit.
    Superseded,
}

impl State {
    /// Whether the worker has recently proven that it is alive.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.lease_end().is_some_and(|end| now <= end)
    }

    /// When its lease ends; a sweep has nothing to ask before that.
    pub const fn lease_end(&self) -> Option<Timestamp> {
        match self {
            Self::Gone => None,
            Self::Waiting { ready_until: end, .. } | Self::Active { active_until: end, .. } => {
                Some(*end)
            }
        }
    }

    /// The task it has, which a second `wait-for-task` returns.
    pub const fn held(&self) -> Option<Held> {
        match self {
            Self::Gone | Self::Waiting { .. } => None,
            Self::Active { held, .. } => Some(*held),
        }
    }

    /// The worker after `event`.
    pub fn step(
        &self,
        event: Event,
        now: Timestamp,
        limits: &Limits,
    ) -> Disposition<Transition, Denial> {
        use State::{Active, Gone, Waiting};
        let ready_until = now.after(limits.worker_lease);
        match (*self, event) {
            (Gone | Waiting { .. }, Event::Join(connection, kind)) => {
                moved(Waiting { connection, kind, ready_until }, None)
            }
            (Active { kind: old, held, .. }, Event::Join(connection, kind)) => {
                if old.continues(kind) {
                    let active_until = now.after(kind.active_lease(limits));
                    moved(Active { connection, kind, active_until, held }, None)
                } else {
                    // The process that held the task is not the one that joins.
                    let effect = Effect::Recover(held, old);
                    moved(Waiting { connection, kind, ready_until }, Some(effect))
                }
            }
            (Waiting { connection, kind, ready_until: end }, Event::Beat(from)) => {
                let ready_until = end.max(ready_until);
                current(connection, from, || {
                    renewed(Waiting { connection, kind, ready_until })
                })
            }
            (Active { connection, kind, active_until: end, held }, Event::Beat(from)) => {
                let active_until = end.max(now.after(kind.active_lease(limits)));
                current(connection, from, || {
                    renewed(Active { connection, kind, active_until, held })
                })
            }
            (Waiting { connection, kind, .. }, Event::Claim(from, held)) => {
                let active_until = now.after(kind.active_lease(limits));
                current(connection, from, || {
                    moved(Active { connection, kind, active_until, held }, None)
                })
            }
            (Active { connection, held, .. }, Event::Claim(from, _)) => {
                current(connection, from, || Deny(Denial::Holds(held)))
            }
            (Active { connection, kind, held, .. }, Event::Release(over)) => {
                if held == over {
                    moved(Waiting { connection, kind, ready_until }, None)
                } else {
                    Ignore
                }
            }
            (Waiting { connection, .. }, Event::Leave(from)) => {
                current(connection, from, || moved(Gone, Some(Effect::ReviewRole)))
            }
            (Active { connection, kind, held, .. }, Event::Leave(from)) => {
                current(connection, from, || moved(Gone, Some(Effect::Recover(held, kind))))
            }
            (Waiting { ready_until: end, .. }, Event::ExpireLease) if now > end => {
                moved(Gone, Some(Effect::ReviewRole))
            }
            (Active { active_until: end, kind, held, .. }, Event::ExpireLease) if now > end => {
                moved(Gone, Some(Effect::Recover(held, kind)))
            }
            // The sweep looked before the last beat was committed.
            (Waiting { .. } | Active { .. }, Event::ExpireLease)
            // Said again, or by two parties.
            | (Gone, Event::Leave(_) | Event::ExpireLease | Event::Release(_))
            | (Waiting { .. }, Event::Release(_)) => Ignore,
            (Gone, Event::Beat(_) | Event::Claim(..)) => Deny(Denial::RejoinRequired),
        }
    }
}

impl BeatAnswer {
    /// What a beat is answered, given what the machine said to it.
    pub const fn of(taken: &Disposition<Transition, Denial>) -> Self {
        match taken {
            Accept(_) | Ignore | Deny(Denial::Holds(_)) => Self::Ok,
            Deny(Denial::RejoinRequired) => Self::RejoinRequired,
            Deny(Denial::Superseded) => Self::Superseded,
        }
    }
}

/// The fence: only the worker's newest connection speaks for it.
fn current(
    known: ConnectionId,
    from: ConnectionId,
    then: impl FnOnce() -> Disposition<Transition, Denial>,
) -> Disposition<Transition, Denial> {
    if known == from { then() } else { Deny(Denial::Superseded) }
}

const fn moved(state: State, effect: Option<Effect>) -> Disposition<Transition, Denial> {
    Accept(Transition { state, change: Change::Moved, effect })
}

const fn renewed(state: State) -> Disposition<Transition, Denial> {
    Accept(Transition { state, change: Change::LeaseOnly, effect: None })
}

#[cfg(test)]
mod tests;
