//! The deadlines of one attempt: claim, start, inactivity, absolute, publish, and how long a held
//! question keeps its compute.
//!
//! Deadlines are rows, not timers: [`due`] is asked with `now` by any node at any time, and says
//! which deadline has passed, what that means, or when to ask again. Which clocks run follows from
//! the phase alone:
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

use crate::cause::Cause;
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

/// The anchors of a running attempt's clocks. Held time is left out of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Run {
    started_at: Timestamp,
    alive: bool,
    quiet_from: Timestamp,
    asked_at: Option<Timestamp>,
    pace: Pace,
    tools: OpenTools,
}

/// Where an attempt is, as far as its deadlines are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its sandbox is being prepared.
    Claimed {
        /// When it was claimed.
        claimed_at: Timestamp,
        /// When preparation last reported; at first, when it was claimed.
        reported_at: Timestamp,
    },
    /// Its agent may act.
    Running(Run),
    /// Its work is being published.
    Publishing {
        /// When the publish gate opened.
        opened_at: Timestamp,
    },
    /// It is ending or ended.
    Over,
}

/// Whether the runner has been heard since we could last commit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// It has: what it has not reported has not happened.
    Heard,
    /// We were down and it has not reported since: it may know better until its lease is over.
    Awaited {
        /// The committed end of the attempt's lease, extended by our downtime.
        lease_end: Timestamp,
    },
}

/// What a passed deadline means for the attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The attempt times out.
    TimedOut(Cause),
    /// The agent never started: the attempt failed.
    Failed(Cause),
    /// The claim lapses: the task is queued again while its start cap lasts.
    ClaimLapsed,
    /// The held question lets its compute go: the attempt ends `question`.
    QuestionReleased,
    /// The publish must be settled, and is not waited for any more.
    PublishOverdue,
}

/// The answer to “is anything due?”.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// This clock has passed.
    Passed {
        /// What it shows.
        reading: Reading,
        /// What follows.
        means: Means,
    },
    /// Nothing yet; ask again then.
    At(Timestamp),
    /// Nothing, however long it takes.
    Never,
}

impl Phase {
    /// A claim was made.
    pub const fn claimed(now: Timestamp) -> Self {
        Self::Claimed { claimed_at: now, reported_at: now }
    }

    /// Preparation reported that it goes on.
    pub fn prepared(&mut self, now: Timestamp) {
        if let Self::Claimed { reported_at, .. } = self {
            *reported_at = now.max(*reported_at);
        }
    }
}

impl Run {
    /// The agent may act from now on.
    pub fn started(now: Timestamp, pace: Pace) -> Self {
        let tools = OpenTools::default();
        Self { started_at: now, alive: false, quiet_from: now, asked_at: None, pace, tools }
    }

    /// The agent was seen alive, by whatever sign.
    pub const fn seen(&mut self) {
        self.alive = true;
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

    /// A question is held from now on: the clocks stop.
    pub fn asked(&mut self, now: Timestamp) {
        self.asked_at = self.asked_at.or(Some(now));
    }

    /// The held question was answered: the clocks go on from where they stood.
    pub fn answered(&mut self, now: Timestamp) {
        if let Some(since) = self.asked_at.take() {
            self.started_at = carry(self.started_at, since, now);
            self.quiet_from = carry(self.quiet_from, since, now);
            self.tools.carry(since, now);
        }
    }
}

/// One clock of an attempt: when it passes, what it would show, what that means.
#[derive(Clone, Copy)]
struct Line {
    clock: Clock,
    from: Timestamp,
    allowed: Span,
    passes_at: Timestamp,
    means: Means,
}

impl Line {
    const fn new(clock: Clock, from: Timestamp, allowed: Span, means: Means) -> Self {
        let passes_at = Reading::passes_at(clock, from, allowed);
        Self { clock, from, allowed, passes_at, means }
    }
}

/// Which deadline of an attempt has passed, or when to ask again.
pub fn due(
    phase: &Phase,
    reach: Reach,
    limits: &Limits,
    switches: &Switches,
    now: Timestamp,
) -> Due {
    let lines = match phase {
        Phase::Over => return Due::Never,
        Phase::Claimed { claimed_at, reported_at } => [
            Some(Line::new(Clock::Claim, *reported_at, limits.claim, Means::ClaimLapsed)),
            Some(Line::new(Clock::ClaimTotal, *claimed_at, limits.claim_total, Means::ClaimLapsed)),
        ],
        Phase::Publishing { opened_at } => [
            Some(Line::new(Clock::Publish, *opened_at, limits.publish, Means::PublishOverdue)),
            None,
        ],
        Phase::Running(run) => running(run, limits, switches),
    };
    let Some(first) = lines.into_iter().flatten().min_by_key(|line| line.passes_at) else {
        return Due::Never;
    };
    let fires_at = match reach {
        Reach::Heard => first.passes_at,
        Reach::Awaited { lease_end } => first.passes_at.max(lease_end.after(Span::from_millis(1))),
    };
    if now < fires_at {
        return Due::At(fires_at);
    }
    let reading = Reading::since(first.clock, first.from, now, first.allowed);
    Due::Passed { reading, means: first.means }
}

fn running(run: &Run, limits: &Limits, switches: &Switches) -> [Option<Line>; 2] {
    if let Some(asked_at) = run.asked_at {
        let linger = Line::new(Clock::Linger, asked_at, limits.linger, Means::QuestionReleased);
        return [Some(linger), None];
    }
    let absolute = Line::new(
        Clock::Absolute,
        run.started_at,
        limits.absolute,
        Means::TimedOut(Cause::MaxDuration),
    );
    let start =
        Line::new(Clock::Start, run.started_at, limits.start, Means::Failed(Cause::NeverStarted));
    // Until the first sign of life the start limit speaks, and inactivity would only hide it.
    let second = match run.alive {
        true => switches.inactivity.then(|| inactivity(run, limits)),
        false => Some(start),
    };
    [second, Some(absolute)]
}

/// An open tool call holds off inactivity within its own limit, and no longer.
fn inactivity(run: &Run, limits: &Limits) -> Line {
    let allowed = match run.pace {
        Pace::Partial => limits.inactivity,
        Pace::Quiet => limits.inactivity_quiet,
    };
    let means = Means::TimedOut(Cause::Inactivity);
    let line = Line::new(Clock::Inactivity, run.quiet_from, allowed, means);
    match run.tools.holds_until(limits.tool_call) {
        Some(until) => Line { passes_at: line.passes_at.max(until), ..line },
        None => line,
    }
}

#[cfg(test)]
mod tests;
