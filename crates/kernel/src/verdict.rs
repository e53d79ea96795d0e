//! What the evidence of one sandbox means now: a pure function of evidence, limits and `now`.
//!
//! The eight rules are judged in this order, and the first that applies decides:
//!
//! ```text
//! 1 held             paused, or a question waits         → no clock runs
//! 2 never alive      older than the start limit          → dead (never_started), else starting
//! 3 silent           last sign of life 90 s ago or more  → dead, or gone if it had completed
//! 4 completed        no work since                       → lingering, after 5 min expired
//! 5 says failed                                          → failed
//! 6 says running     no work for more than 10 min, and
//!                    no tool call open within its limit  → stuck
//! 7 says otherwise   no work for more than 3 min         → idle
//! 8 else                                                 → working
//! ```
//!
//! A verdict never acts. It names the rule that decided, every clock that is passed with measured
//! and allowed value, and the next moment at which it can change by the passing of time alone
//! (`recheck_at`), so that nothing polls. It allocates nothing: a pass over a million sandboxes is
//! one loop over memory.
//!
//! Rejected: a score of suspicion. A number that crosses a threshold cannot say which clock fired.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::clock::{Clock, Reading, Watched};
use crate::deadline::Reach;
use crate::event::HeartbeatStatus;
use crate::evidence::{Evidence, Life};
use crate::hold::Hold;
use crate::limits::Limits;
use crate::time::{Span, Timestamp};

/// Why a sandbox is dead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// No first sign of life within the start limit.
    NeverStarted,
    /// No sign of life for the heartbeat timeout.
    HeartbeatTimeout,
}

/// What the evidence means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It is paused: no clock runs.
    Paused,
    /// A question waits for a person: no clock runs, and it is not at fault.
    AwaitingPerson,
    /// No sign of life yet, and there is still time.
    Starting,
    /// It is dead.
    Dead(Death),
    /// It fell silent after it had completed: clean up, its task keeps its outcome.
    Gone,
    /// It completed and waits for more, within the linger time.
    Lingering,
    /// It completed and the linger time is over: clean up, its task keeps its outcome.
    Expired,
    /// The agent says that it has failed.
    Failed,
    /// It says `running` and does nothing.
    Stuck,
    /// It does nothing.
    Idle,
    /// It works.
    Working,
}

impl Ruling {
    /// The number of the rule that decided, 1 to 8.
    pub const fn rule(self) -> u8 {
        match self {
            Self::Paused | Self::AwaitingPerson => 1,
            Self::Starting | Self::Dead(Death::NeverStarted) => 2,
            Self::Dead(Death::HeartbeatTimeout) | Self::Gone => 3,
            Self::Lingering | Self::Expired => 4,
            Self::Failed => 5,
            Self::Stuck => 6,
            Self::Idle => 7,
            Self::Working => 8,
        }
    }

    /// Whether nothing was heard for the heartbeat timeout: rule 3.
    const fn is_silence(self) -> bool {
        self.rule() == 3
    }

    /// Whether the agent said that it is done, and nothing will come of it any more.
    pub const fn is_past_completion(self) -> bool {
        match self {
            Self::Gone | Self::Expired => true,
            Self::Paused
            | Self::AwaitingPerson
            | Self::Starting
            | Self::Dead(_)
            | Self::Lingering
            | Self::Failed
            | Self::Stuck
            | Self::Idle
            | Self::Working => false,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::AwaitingPerson => "awaiting_person",
            Self::Starting => "starting",
            Self::Dead(_) => "dead",
            Self::Gone => "gone",
            Self::Lingering => "lingering",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Stuck => "stuck",
            Self::Idle => "idle",
            Self::Working => "working",
        }
    }

    /// The cause with which the attempt in this sandbox ends; nothing, if it does not end by this.
    ///
    /// *Gone* and *expired* have none: clean-up never turns a finished task into a failed one.
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Dead(Death::NeverStarted) => Some(Cause::NeverStarted),
            Self::Dead(Death::HeartbeatTimeout) => Some(Cause::HeartbeatTimeout),
            Self::Failed => Some(Cause::AgentFailed),
            Self::Stuck => Some(Cause::StuckRunning),
            Self::Idle => Some(Cause::IdleTimeout),
            Self::Paused
            | Self::AwaitingPerson
            | Self::Starting
            | Self::Gone
            | Self::Lingering
            | Self::Expired
            | Self::Working => None,
        }
    }
}

/// A few readings, held in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readings {
    all: [Reading; Self::MOST],
    len: u8,
}

impl Readings {
    const MOST: usize = 4;
    const NONE: Self = Self {
        all: [Reading { clock: Clock::Start, measured: Span::ZERO, allowed: Span::ZERO };
            Self::MOST],
        len: 0,
    };

    fn push(&mut self, reading: Reading) {
        if let Some(slot) = self.all.get_mut(usize::from(self.len)) {
            *slot = reading;
            self.len += 1;
        }
    }

    /// The readings.
    pub fn as_slice(&self) -> &[Reading] {
        &self.all[..usize::from(self.len)]
    }
}

/// A ruling, and when it can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What the evidence means.
    pub ruling: Ruling,
    /// The first moment at which the ruling changes if nothing more is observed; nothing, if only a
    /// new observation can change it.
    pub recheck_at: Option<Timestamp>,
    /// Every clock that is passed, the one that decided first.
    pub reasons: Readings,
}

/// Whether a verdict may be acted upon by whoever reached it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belief {
    /// It may.
    Stands,
    /// Not before then: silence while we could not commit is not evidence against the agent.
    NotBefore(Timestamp),
    /// Whoever has heard and seen more may act upon it already; this one by then, if at all.
    AskAgain {
        /// When its own doubt is over, if that is known.
        by: Option<Timestamp>,
    },
}

impl Verdict {
    /// Whether it may be acted upon by a node that has watched the clock so, and that has or has
    /// not heard the runner since it could last commit.
    pub fn believed(
        &self,
        watched: Watched,
        reach: Reach,
        limits: &Limits,
        now: Timestamp,
    ) -> Belief {
        let ends = self.ruling.cause().is_some();
        if self.ruling.is_silence() {
            let from = watched.since.after(limits.heartbeat_timeout);
            if now < from {
                return Belief::NotBefore(from);
            }
        } else if ends && reach == Reach::Awaited {
            return Belief::AskAgain { by: None };
        }
        let decided = self.reasons.as_slice().first().filter(|_| ends);
        match decided.and_then(|reading| reading.doubted_until(watched, now)) {
            Some(until) => Belief::AskAgain { by: Some(until) },
            None => Belief::Stands,
        }
    }
}

/// Judges one sandbox.
pub fn judge(evidence: &Evidence, limits: &Limits, now: Timestamp) -> Verdict {
    let (ruling, recheck_at) = rule(evidence, limits, now);
    let reasons = match ruling {
        Ruling::Working
        | Ruling::Starting
        | Ruling::Lingering
        | Ruling::Paused
        | Ruling::AwaitingPerson => Readings::NONE,
        Ruling::Dead(_)
        | Ruling::Gone
        | Ruling::Expired
        | Ruling::Failed
        | Ruling::Stuck
        | Ruling::Idle => passed(evidence, limits, now),
    };
    Verdict { ruling, recheck_at, reasons }
}

/// Every clock that runs against a sandbox now, passed or not, in the order of the rules.
pub fn clocks(evidence: &Evidence, limits: &Limits, now: Timestamp) -> Readings {
    let mut readings = Readings::NONE;
    if evidence.hold() != Hold::Nothing {
        return readings;
    }
    let Some(life) = evidence.life() else {
        let start = Reading::since(Clock::Start, evidence.created_at(), now, limits.start);
        readings.push(start);
        return readings;
    };
    readings.push(Reading::since(Clock::Heartbeat, life.last, now, limits.heartbeat_timeout));
    if let Some(completed_at) = evidence.completed_at() {
        readings.push(Reading::since(Clock::Linger, completed_at, now, limits.linger));
        return readings;
    }
    let quiet_from = evidence.last_work().unwrap_or(life.first);
    match evidence.status() {
        Some(HeartbeatStatus::Running) => {
            let stuck = Clock::StuckRunning;
            readings.push(Reading::since(stuck, quiet_from, now, limits.stuck_running));
            if let Some(reading) = evidence.tools().reading(limits.tool_call, now) {
                readings.push(reading);
            }
        }
        None | Some(HeartbeatStatus::Idle | HeartbeatStatus::Degraded) => {
            readings.push(Reading::since(Clock::Idle, quiet_from, now, limits.idle));
        }
        Some(HeartbeatStatus::Failed) => {}
    }
    readings
}

fn passed(evidence: &Evidence, limits: &Limits, now: Timestamp) -> Readings {
    let mut readings = Readings::NONE;
    for reading in clocks(evidence, limits, now).as_slice() {
        if reading.passed() {
            readings.push(*reading);
        }
    }
    readings
}

/// Rules 1 to 3; what is alive goes on to [`rule_alive`].
fn rule(evidence: &Evidence, limits: &Limits, now: Timestamp) -> (Ruling, Option<Timestamp>) {
    match evidence.hold() {
        Hold::Nothing => {}
        Hold::Person { .. } => return (Ruling::AwaitingPerson, None),
        Hold::Pause { .. } | Hold::Both { .. } => return (Ruling::Paused, None),
    }
    let Some(life) = evidence.life() else {
        let start_by = Reading::passes_at(Clock::Start, evidence.created_at(), limits.start);
        return match now < start_by {
            true => (Ruling::Starting, Some(start_by)),
            false => (Ruling::Dead(Death::NeverStarted), None),
        };
    };
    let silent_at = Reading::passes_at(Clock::Heartbeat, life.last, limits.heartbeat_timeout);
    if now >= silent_at {
        return match evidence.completed_at() {
            Some(_) => (Ruling::Gone, None),
            None => (Ruling::Dead(Death::HeartbeatTimeout), None),
        };
    }
    let (ruling, changes_at) = rule_alive(evidence, limits, life, now);
    (ruling, Some(changes_at.map_or(silent_at, |at| at.min(silent_at))))
}

/// Rules 4 to 8, and the moment at which their answer changes while the sandbox stays alive.
fn rule_alive(
    evidence: &Evidence,
    limits: &Limits,
    life: Life,
    now: Timestamp,
) -> (Ruling, Option<Timestamp>) {
    let until = |at: Timestamp, before: Ruling, after: Ruling| match now < at {
        true => (before, Some(at)),
        false => (after, None),
    };
    if let Some(completed_at) = evidence.completed_at() {
        let linger_end = Reading::passes_at(Clock::Linger, completed_at, limits.linger);
        return until(linger_end, Ruling::Lingering, Ruling::Expired);
    }
    let quiet_from = evidence.last_work().unwrap_or(life.first);
    match evidence.status() {
        Some(HeartbeatStatus::Failed) => (Ruling::Failed, None),
        Some(HeartbeatStatus::Running) => {
            let quiet = Reading::passes_at(Clock::StuckRunning, quiet_from, limits.stuck_running);
            let tools = evidence.tools().holds_until(limits.tool_call);
            until(tools.map_or(quiet, |at| at.max(quiet)), Ruling::Working, Ruling::Stuck)
        }
        None | Some(HeartbeatStatus::Idle | HeartbeatStatus::Degraded) => {
            let quiet = Reading::passes_at(Clock::Idle, quiet_from, limits.idle);
            until(quiet, Ruling::Working, Ruling::Idle)
        }
    }
}

#[cfg(test)]
mod tests;
