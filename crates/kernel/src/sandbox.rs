//! The life of a sandbox.
//!
//! ```text
//! CREATED ─sign of life─► RUNNING ─completed, exit 0─► COMPLETED ─work─► RESUMED ─┐
//!    │                     │    ▲                        │   ▲────completed───────┤
//!    │ never started       │    └──resume── PAUSED ◄──────┤   (as RUNNING: idle,   │
//!    ▼                     ├─idle, stuck──► IDLE ─paused──┘    dead, exit)  ◄──────┘
//!   DEAD ◄──dead, failed, other exit                 any ──termination finished──► TERMINATED
//! ```
//!
//! A verdict moves the state and asks for what must follow; it never ends the sandbox itself.
//! TERMINATED is reached only by the report that the termination sequence has finished, because
//! `terminate() == false` was once ignored and reported as terminated. So the end of the linger
//! time
//! moves a completed sandbox to TERMINATED in two steps: it asks for the sequence, and the sequence
//! reports. Neither step touches the task.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::clock::{Clock, Reading};
use crate::disposition::Disposition;
use crate::event::{EventClass, EventKind};
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::verdict::{Death, Ruling};

/// Why a sandbox is IDLE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quiet {
    /// No work for the idle threshold.
    Idle,
    /// Status `running`, but no work.
    Stuck,
}

/// Why a sandbox is DEAD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fall {
    /// No first sign of life within the start limit.
    NeverStarted,
    /// No sign of life for the heartbeat timeout.
    HeartbeatTimeout,
    /// The agent said that it has failed.
    AgentFailed,
    /// The agent's process ended without success.
    Exited,
}

impl Quiet {
    /// The cause with which the attempt ends.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Idle => Cause::IdleTimeout,
            Self::Stuck => Cause::StuckRunning,
        }
    }
}

impl Fall {
    /// The cause with which the attempt ends.
    pub const fn cause(self) -> Cause {
        match self {
            Self::NeverStarted => Cause::NeverStarted,
            Self::HeartbeatTimeout => Cause::HeartbeatTimeout,
            Self::AgentFailed => Cause::AgentFailed,
            Self::Exited => Cause::Crash,
        }
    }
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", tag = "state")]
pub enum State {
    /// Made; no sign of life yet.
    Created,
    /// Its agent was seen alive.
    Running,
    /// Its agent says that it is done.
    Completed {
        /// When it last said so.
        at: Timestamp,
    },
    /// Its agent works again after it was done.
    Resumed,
    /// It does nothing; its attempt is over.
    Idle {
        /// Why.
        why: Quiet,
    },
    /// It is dead; its attempt is over.
    Dead {
        /// Why.
        why: Fall,
    },
    /// Frozen or snapshotted; no clock runs.
    Paused,
    /// Gone for good, and seen to be.
    Terminated,
}

/// A state without its data: what tables, groups and legal moves speak of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// See [`State::Created`].
    Created,
    /// See [`State::Running`].
    Running,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Resumed`].
    Resumed,
    /// See [`State::Idle`].
    Idle,
    /// See [`State::Dead`].
    Dead,
    /// See [`State::Paused`].
    Paused,
    /// See [`State::Terminated`].
    Terminated,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Running,
        Self::Completed,
        Self::Resumed,
        Self::Idle,
        Self::Dead,
        Self::Paused,
        Self::Terminated,
    ];

    /// The statuses that a sandbox can move to from this one. A test holds it to [`step`].
    pub const fn moves(self) -> &'static [Self] {
        use Status::{Completed, Dead, Idle, Paused, Resumed, Running, Terminated};
        match self {
            Self::Created => &[Running, Completed, Dead, Terminated],
            Self::Running | Self::Resumed => &[Completed, Idle, Dead, Paused, Terminated],
            Self::Completed => &[Resumed, Paused, Terminated],
            Self::Idle => &[Paused, Terminated],
            Self::Dead => &[Terminated],
            Self::Paused => &[Running, Terminated],
            Self::Terminated => &[],
        }
    }

    /// The name on the wire and on screens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Resumed => "RESUMED",
            Self::Idle => "IDLE",
            Self::Dead => "DEAD",
            Self::Paused => "PAUSED",
            Self::Terminated => "TERMINATED",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl State {
    /// The state without its data.
    pub const fn status(&self) -> Status {
        match self {
            Self::Created => Status::Created,
            Self::Running => Status::Running,
            Self::Completed { .. } => Status::Completed,
            Self::Resumed => Status::Resumed,
            Self::Idle { .. } => Status::Idle,
            Self::Dead { .. } => Status::Dead,
            Self::Paused => Status::Paused,
            Self::Terminated => Status::Terminated,
        }
    }

    /// Whether it is over: whoever speaks from it is told that it is gone.
    pub const fn is_gone(&self) -> bool {
        match self {
            Self::Dead { .. } | Self::Terminated => true,
            Self::Created
            | Self::Running
            | Self::Completed { .. }
            | Self::Resumed
            | Self::Idle { .. }
            | Self::Paused => false,
        }
    }
}

/// How the agent's process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With status 0.
    Success,
    /// With any other status, or by a signal.
    Failure,
}

/// What happened to a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// `agent.started`, output, a heartbeat or any other event that is not work.
    SignOfLife,
    /// A work event other than `agent.completed`; a kind that is not known is one.
    Worked,
    /// `agent.completed`.
    Completed,
    /// The agent's process ended.
    Exited(Exit),
    /// The verdict is idle or stuck.
    FoundQuiet(Quiet),
    /// The verdict is dead.
    FoundDead(Death),
    /// The verdict is failed: the agent says so.
    FoundFailed,
    /// The verdict is gone: silent after it had completed.
    FoundGone,
    /// The verdict is expired: completed, and the linger time is over.
    LingerOver,
    /// A snapshot or pause succeeded.
    Paused,
    /// A paused sandbox runs again.
    Resumed,
    /// The termination sequence finished.
    Terminated,
}

impl Event {
    /// What an event of the agent is to the sandbox machine.
    pub const fn from_kind(kind: &EventKind) -> Self {
        match (kind, kind.class()) {
            (EventKind::Completed, _) => Self::Completed,
            (_, EventClass::Work) => Self::Worked,
            (_, EventClass::NotWork) => Self::SignOfLife,
        }
    }

    /// What a ruling is to the sandbox machine; nothing, if it changes no state.
    pub const fn from_ruling(ruling: Ruling) -> Option<Self> {
        match ruling {
            Ruling::Dead(death) => Some(Self::FoundDead(death)),
            Ruling::Failed => Some(Self::FoundFailed),
            Ruling::Stuck => Some(Self::FoundQuiet(Quiet::Stuck)),
            Ruling::Idle => Some(Self::FoundQuiet(Quiet::Idle)),
            Ruling::Gone => Some(Self::FoundGone),
            Ruling::Expired => Some(Self::LingerOver),
            Ruling::Paused
            | Ruling::AwaitingPerson
            | Ruling::Starting
            | Ruling::Lingering
            | Ruling::Working => None,
        }
    }
}

/// What must follow a transition. Each is idempotent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// End the attempt in this sandbox with this cause, if it is not over.
    EndAttempt(Cause),
    /// Run the termination sequence. It leaves the task as it ended.
    Terminate,
}

/// A change of a sandbox: its next state, and what must follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The next state.
    pub next: State,
    /// What must follow, in this order.
    pub effects: &'static [Effect],
}

/// Why an event is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The sandbox is dead or terminated: whoever speaks for it must stop (`410`).
    Gone,
    /// There is no such move from here.
    Illegal,
    /// The linger time is not over.
    TooEarly(Reading),
}

impl Reason {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Gone => "sandbox_gone",
            Self::Illegal => "illegal_move",
            Self::TooEarly(_) => "too_early",
        }
    }
}

/// A refusal, with the moves that are legal from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deny {
    /// Where the sandbox is.
    pub from: Status,
    /// Why the event is refused.
    pub reason: Reason,
}

impl Deny {
    /// The moves that are legal from here.
    pub const fn legal(&self) -> &'static [Status] {
        self.from.moves()
    }
}

/// What the sandbox machine says to one event.
pub type Answer = Disposition<Transition, Deny>;

use Event as E;
use State as S;

/// Decides what an event does to a sandbox.
pub fn step(state: &State, event: Event, now: Timestamp, limits: &Limits) -> Answer {
    let deny = |reason| Disposition::Deny(Deny { from: state.status(), reason });
    match (state, event) {
        (S::Created, E::SignOfLife | E::Worked) => accept(S::Running),
        (S::Completed { .. }, E::Worked) => accept(S::Resumed),
        (S::Created | S::Running | S::Resumed, E::Completed | E::Exited(Exit::Success))
        | (S::Completed { .. }, E::Completed) => accept(S::Completed { at: now }),
        (S::Running | S::Resumed, E::FoundQuiet(why)) => quiet(why),
        (S::Created, E::FoundDead(Death::NeverStarted)) => fallen(Fall::NeverStarted),
        (S::Created | S::Running | S::Resumed, E::FoundDead(Death::HeartbeatTimeout)) => {
            fallen(Fall::HeartbeatTimeout)
        }
        (S::Created | S::Running | S::Resumed, E::FoundFailed) => fallen(Fall::AgentFailed),
        (S::Created | S::Running | S::Resumed, E::Exited(Exit::Failure)) => fallen(Fall::Exited),
        (S::Completed { at }, E::LingerOver) => {
            let linger = Reading::since(Clock::Linger, *at, now, limits.linger);
            if linger.passed() { clean_up(*state) } else { deny(Reason::TooEarly(linger)) }
        }
        (S::Completed { .. }, E::FoundGone) => clean_up(*state),
        (S::Running | S::Resumed | S::Completed { .. } | S::Idle { .. }, E::Paused) => {
            accept(S::Paused)
        }
        (S::Paused, E::Resumed) => accept(S::Running),
        (
            S::Created
            | S::Running
            | S::Completed { .. }
            | S::Resumed
            | S::Idle { .. }
            | S::Dead { .. }
            | S::Paused,
            E::Terminated,
        ) => accept(S::Terminated),
        // True, and nothing new.
        (S::Running | S::Resumed, E::SignOfLife | E::Worked | E::Resumed)
        | (S::Completed { .. }, E::SignOfLife | E::Exited(_))
        | (S::Idle { .. } | S::Paused, E::SignOfLife | E::Worked | E::Completed | E::Exited(_))
        | (S::Idle { .. }, E::FoundQuiet(_))
        | (S::Dead { .. }, E::Exited(_) | E::FoundDead(_) | E::FoundFailed)
        | (S::Paused, E::Paused)
        | (S::Terminated, E::Exited(_) | E::Terminated) => Disposition::Ignore,
        // A verdict that was overtaken by what happened since.
        (
            S::Running | S::Resumed,
            E::LingerOver | E::FoundGone | E::FoundDead(Death::NeverStarted),
        )
        | (
            S::Terminated,
            E::FoundQuiet(_) | E::FoundDead(_) | E::FoundFailed | E::FoundGone | E::LingerOver,
        ) => Disposition::Ignore,
        (S::Dead { .. } | S::Terminated, E::SignOfLife | E::Worked | E::Completed) => {
            deny(Reason::Gone)
        }
        (S::Created, E::FoundQuiet(_) | E::FoundGone | E::LingerOver | E::Paused | E::Resumed)
        | (S::Completed { .. }, E::FoundQuiet(_) | E::FoundDead(_) | E::FoundFailed | E::Resumed)
        | (
            S::Idle { .. },
            E::FoundDead(_) | E::FoundFailed | E::FoundGone | E::LingerOver | E::Resumed,
        )
        | (S::Dead { .. }, E::FoundQuiet(_) | E::FoundGone | E::LingerOver)
        | (S::Dead { .. } | S::Terminated, E::Paused | E::Resumed)
        | (
            S::Paused,
            E::FoundQuiet(_) | E::FoundDead(_) | E::FoundFailed | E::FoundGone | E::LingerOver,
        ) => deny(Reason::Illegal),
    }
}

fn accept(next: State) -> Answer {
    Disposition::Accept(Transition { next, effects: &[] })
}

/// The sandbox goes; its state says so only when it has gone, and its task keeps its outcome.
fn clean_up(next: State) -> Answer {
    Disposition::Accept(Transition { next, effects: &[Effect::Terminate] })
}

/// The attempt ends; whether the sandbox pauses or terminates is its session's choice.
fn quiet(why: Quiet) -> Answer {
    let effects: &[Effect] = match why {
        Quiet::Idle => &[Effect::EndAttempt(Cause::IdleTimeout)],
        Quiet::Stuck => &[Effect::EndAttempt(Cause::StuckRunning)],
    };
    Disposition::Accept(Transition { next: State::Idle { why }, effects })
}

/// The attempt ends, and so does the sandbox.
fn fallen(why: Fall) -> Answer {
    use Effect::{EndAttempt, Terminate};
    let effects: &[Effect] = match why {
        Fall::NeverStarted => &[EndAttempt(Cause::NeverStarted), Terminate],
        Fall::HeartbeatTimeout => &[EndAttempt(Cause::HeartbeatTimeout), Terminate],
        Fall::AgentFailed => &[EndAttempt(Cause::AgentFailed), Terminate],
        Fall::Exited => &[EndAttempt(Cause::Crash), Terminate],
    };
    Disposition::Accept(Transition { next: State::Dead { why }, effects })
}

#[cfg(test)]
mod tests;
