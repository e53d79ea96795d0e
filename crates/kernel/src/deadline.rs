//! The deadlines of one attempt: claim, start, inactivity, absolute, publish, and how long a held
//! question keeps its compute.
//!
//! Deadlines are rows, not timers: [`due`] is asked with `now` by any node at any time, and says
//! which clock has passed, or when to ask again. What a passed clock means is the task machine's to
//! say ([`Event::Expire`](crate::task::Event::Expire)). Which clocks run follows from the attempt:
//!
//! ```text
//! CLAIMED      claim (since the last preparation report), claim in all
//! RUNNING      start (until the first sign of life), inactivity, absolute
//!              while a question is held: linger, and nothing else
//! PUBLISHING   publish, and nothing else
//! over         nothing: what finished before its deadline is never timed out afterwards
//! ```
//!
//! If several have passed, the one that passed first is named: it is the one that would have fired
//! had anyone looked in time.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, Phase};
use crate::clock::{Clock, Reading};
use crate::hold::carry;
use crate::limits::{Limits, Switches};
use crate::time::{Span, Timestamp};
use crate::tool::{OpenTools, ToolKey};

/// What an adapter lets through while its agent thinks; decides which inactivity limit applies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Partial output arrives while the agent thinks.
    Partial,
    /// Nothing arrives until a message is whole.
    Quiet,
}

/// What was seen of a running attempt's output. It is evidence: it grows outside the attempt's
/// revision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Stream {
    alive: bool,
    quiet_from: Timestamp,
    pace: Pace,
    tools: OpenTools,
}

impl Stream {
    /// The agent may act from now on.
    pub fn started(now: Timestamp, pace: Pace) -> Self {
        Self { alive: false, quiet_from: now, pace, tools: OpenTools::default() }
    }

    /// The agent was seen alive, by whatever sign.
    pub const fn seen(&mut self) {
        self.alive = true;
    }

    /// Whether it was ever seen alive.
    pub const fn is_alive(&self) -> bool {
        self.alive
    }

    /// Output arrived.
    pub fn output(&mut self, now: Timestamp) {
        self.alive = true;
        self.quiet_from = self.quiet_from.max(now);
    }

    /// A tool call was opened; its report is output.
    pub fn tool_opened(&mut self, key: ToolKey, now: Timestamp) {
        self.output(now);
        self.tools.open(key, now);
    }

    /// A tool call was closed; its report is output.
    pub fn tool_closed(&mut self, key: ToolKey, now: Timestamp) {
        self.output(now);
        self.tools.close(key);
    }

    /// A question that was held since then is answered: the clocks go on from where they stood.
    pub fn released(&mut self, held_since: Timestamp, now: Timestamp) {
        self.quiet_from = carry(self.quiet_from, held_since, now);
        self.tools.carry(held_since, now);
    }
}

/// Whether the runner has been heard since we could last commit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// It has: what it has not reported has not happened.
    Heard,
    /// We were down and it has not reported since: it may know better until its lease is over,
    /// which our downtime has extended.
    Awaited,
}

impl Reach {
    /// How an attempt's runner stands with a node that could commit since `watched_since`, which it
    /// has or has not told everything since. That it beats is not enough: after our own downtime a
    /// beat comes before the output that was printed meanwhile. What was begun since then has
    /// nothing else to tell.
    pub fn of(attempt: &Attempt, watched_since: Timestamp, told: bool) -> Self {
        let begun_at = attempt.started_at.max(Some(attempt.prepared_at));
        match told || begun_at >= Some(watched_since) {
            true => Self::Heard,
            false => Self::Awaited,
        }
    }
}

/// The answer to “is anything due?”.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// This clock has passed.
    Passed(Reading),
    /// Nothing yet; ask again then.
    At(Timestamp),
    /// Nothing, however long it takes.
    Never,
}

/// One clock that runs against an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// Which.
    pub clock: Clock,
    /// Since when.
    pub from: Timestamp,
    /// How long it may.
    pub allowed: Span,
    /// The first moment at which it is passed.
    pub passes_at: Timestamp,
}

impl Running {
    const fn new(clock: Clock, from: Timestamp, allowed: Span) -> Self {
        let passes_at = Reading::passes_at(clock, from, allowed);
        Self { clock, from, allowed, passes_at }
    }

    /// A clock that is stored as its end.
    const fn until(clock: Clock, end: Timestamp, allowed: Span) -> Self {
        Self::new(clock, end.before(allowed), allowed)
    }
}

/// The clocks that run against an attempt.
pub fn clocks(
    attempt: &Attempt,
    stream: &Stream,
    limits: &Limits,
    switches: &Switches,
) -> impl Iterator<Item = Running> + use<> {
    let pair = match (attempt.phase, attempt.held_since) {
        (Phase::Claimed, _) => [
            Some(Running::new(Clock::Claim, attempt.prepared_at, limits.claim)),
            Some(Running::new(Clock::ClaimTotal, attempt.claimed_at, limits.claim_total)),
        ],
        (Phase::Running, Some(since)) => {
            [Some(Running::new(Clock::Linger, since, limits.linger)), None]
        }
        (Phase::Running, None) => {
            let until = |end| Running::until(Clock::Absolute, end, limits.absolute);
            [talking(attempt, stream, limits, switches), attempt.deadline.map(until)]
        }
        (Phase::Publishing { due }, _) => {
            [Some(Running::until(Clock::Publish, due, limits.publish)), None]
        }
        (Phase::Ending(_) | Phase::Ended(..), _) => [None, None],
    };
    pair.into_iter().flatten()
}

/// Until the first sign of life the start limit speaks, and inactivity would only hide it. An open
/// tool call holds inactivity off within its own limit, and no longer.
fn talking(
    attempt: &Attempt,
    stream: &Stream,
    limits: &Limits,
    switches: &Switches,
) -> Option<Running> {
    if !stream.alive {
        let started_at = attempt.started_at?;
        return Some(Running::new(Clock::Start, started_at, limits.start));
    }
    let allowed = match stream.pace {
        Pace::Partial => limits.inactivity,
        Pace::Quiet => limits.inactivity_quiet,
    };
    let silence = Running::new(Clock::Inactivity, stream.quiet_from, allowed);
    let held_off = stream.tools.holds_until(limits.tool_call).unwrap_or(silence.passes_at);
    let passes_at = silence.passes_at.max(held_off);
    switches.inactivity.then_some(Running { passes_at, ..silence })
}

/// Which deadline of an attempt has passed, or when to ask again.
pub fn due(
    attempt: &Attempt,
    stream: &Stream,
    reach: Reach,
    limits: &Limits,
    switches: &Switches,
    now: Timestamp,
) -> Due {
    let first = clocks(attempt, stream, limits, switches).min_by_key(|clock| clock.passes_at);
    let Some(first) = first else { return Due::Never };
    let fires_at = match reach {
        Reach::Heard => first.passes_at,
        Reach::Awaited => first.passes_at.max(attempt.lease_end.after(Span::from_millis(1))),
    };
    if now < fires_at {
        return Due::At(fires_at);
    }
    Due::Passed(Reading::since(first.clock, first.from, now, first.allowed))
}

#[cfg(test)]
mod tests;
