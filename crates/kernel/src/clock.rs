//! The named clocks that can end something, and what they read.
//!
//! Clocks are separate and named; every kill names the clock that fired, with its measured and its
//! allowed value. A limit is passed when measured > allowed; the heartbeat alone is passed at ≥,
//! because alive means *less than* 90 s.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp};

/// A clock that runs against an attempt, a sandbox, a worker or a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Clock {
    /// Created, but no sign of life yet.
    Start,
    /// Since the last sign of life.
    Heartbeat,
    /// Status `running`, but no work.
    StuckRunning,
    /// No work.
    Idle,
    /// Since the agent completed, or since its question was asked.
    Linger,
    /// No output while no tool call is open.
    Inactivity,
    /// Since the attempt started.
    Absolute,
    /// An open tool call.
    ToolCall,
    /// Claimed, since the last preparation report.
    Claim,
    /// Claimed, in all.
    ClaimTotal,
    /// Since the publish gate opened.
    Publish,
    /// An attempt's lease.
    AttemptLease,
    /// A worker's lease.
    WorkerLease,
    /// Since a session's last activity.
    Grace,
}

impl Clock {
    /// Every clock.
    pub const ALL: [Self; 14] = [
        Self::Start,
        Self::Heartbeat,
        Self::StuckRunning,
        Self::Idle,
        Self::Linger,
        Self::Inactivity,
        Self::Absolute,
        Self::ToolCall,
        Self::Claim,
        Self::ClaimTotal,
        Self::Publish,
        Self::AttemptLease,
        Self::WorkerLease,
        Self::Grace,
    ];

    /// The clock's name in events, `why` and receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Heartbeat => "heartbeat",
            Self::StuckRunning => "stuck_running",
            Self::Idle => "idle",
            Self::Linger => "linger",
            Self::Inactivity => "inactivity",
            Self::Absolute => "absolute",
            Self::ToolCall => "tool_call",
            Self::Claim => "claim",
            Self::ClaimTotal => "claim_total",
            Self::Publish => "publish",
            Self::AttemptLease => "attempt_lease",
            Self::WorkerLease => "worker_lease",
            Self::Grace => "grace",
        }
    }

    /// Whether a measured value equal to the allowed one has passed.
    const fn passes_at_equal(self) -> bool {
        matches!(self, Self::Heartbeat)
    }

    /// Whether it runs since something was last heard, and not since something was begun.
    pub const fn counts_silence(self) -> bool {
        match self {
            Self::Start
            | Self::Heartbeat
            | Self::StuckRunning
            | Self::Idle
            | Self::Inactivity
            | Self::ToolCall
            | Self::Claim => true,
            Self::Linger
            | Self::Absolute
            | Self::ClaimTotal
            | Self::Publish
            | Self::AttemptLease
            | Self::WorkerLease
            | Self::Grace => false,
        }
    }
}

/// How far whoever reads a clock can trust it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Since when it was there, without a break.
    pub since: Timestamp,
    /// What the clock showed when it was last seen to have jumped ahead.
    pub jumped_at: Option<Timestamp>,
}

/// What one clock shows: how much was measured, how much is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reading {
    /// Which clock.
    pub clock: Clock,
    /// What it shows.
    pub measured: Span,
    /// What it may show.
    pub allowed: Span,
}

impl Reading {
    /// Reads `clock`, which has run since `from`, at `now`.
    pub const fn since(clock: Clock, from: Timestamp, now: Timestamp, allowed: Span) -> Self {
        Self { clock, measured: now.since(from), allowed }
    }

    /// Whether the limit is passed.
    pub const fn passed(&self) -> bool {
        let (measured, allowed) = (self.measured.as_millis(), self.allowed.as_millis());
        measured > allowed || (measured == allowed && self.clock.passes_at_equal())
    }

    /// Until when the reading says nothing to whoever has watched so: it counts silence, and was
    /// not watched for as long as it allows; or the clock jumped while it ran.
    ///
    /// Silence is judged so at any time, and not only after a jump that was seen: of one that
    /// happened while nobody watched, nobody knows.
    pub const fn doubted_until(&self, watched: Watched, now: Timestamp) -> Option<Timestamp> {
        let since = match (self.clock.counts_silence(), watched.jumped_at) {
            (true, _) => watched.since,
            (false, Some(jumped_at)) => jumped_at,
            (false, None) => return None,
        };
        let until = since.after(self.allowed);
        if now.as_millis() > until.as_millis() {
            return None;
        }
        Some(until.after(Span::from_millis(1)))
    }

    /// The first moment at which a clock that has run since `from` is passed.
    pub const fn passes_at(clock: Clock, from: Timestamp, allowed: Span) -> Timestamp {
        let at = from.after(allowed);
        if clock.passes_at_equal() { at } else { at.after(Span::from_millis(1)) }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {} allowed", self.clock.name(), self.measured, self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured against 90 s allowed: just below, exactly, just above.
    fn passed(clock: Clock) -> [bool; 3] {
        [89_999, 90_000, 90_001].map(|ms| {
            let now = Timestamp::from_millis(ms);
            let allowed = Span::from_secs(90);
            let reading = Reading::since(clock, Timestamp::EPOCH, now, allowed);
            let due = Reading::passes_at(clock, Timestamp::EPOCH, allowed);
            assert_eq!(reading.passed(), now >= due, "passed() and passes_at() agree");
            reading.passed()
        })
    }

    #[test]
    fn a_limit_is_passed_above_it_and_the_heartbeat_at_it() {
        assert_eq!(passed(Clock::Heartbeat), [false, true, true]);
        for clock in [Clock::Start, Clock::Idle, Clock::StuckRunning, Clock::Linger, Clock::Claim] {
            assert_eq!(passed(clock), [false, false, true], "{}", clock.name());
        }
    }

    #[test]
    fn a_clock_counts_silence_or_runs_from_a_beginning() {
        use Clock::*;
        let silent = Clock::ALL.into_iter().filter(|clock| clock.counts_silence());
        let expected = [Start, Heartbeat, StuckRunning, Idle, Inactivity, ToolCall, Claim];
        assert_eq!(silent.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_reading_is_doubted_until_its_whole_length_was_watched() {
        let at = |seconds: i64| Timestamp::from_millis(1_000 * seconds);
        let first_doubtless = |seconds| at(seconds).after(Span::from_millis(1));
        for clock in Clock::ALL {
            let reading = Reading::since(clock, at(0), at(1_000), Span::from_secs(90));
            let doubted = |watched, now| reading.doubted_until(watched, now);
            let watched = Watched { since: at(500), jumped_at: None };
            let since_then = clock.counts_silence().then_some(first_doubtless(590));
            assert_eq!(doubted(watched, at(590)), since_then, "{}", clock.name());
            assert_eq!(doubted(watched, first_doubtless(590)), None, "{}", clock.name());
            // A jump is also the end of having watched, so whoever saw it knows both moments.
            let jumped = Watched { since: at(700), jumped_at: Some(at(700)) };
            assert_eq!(doubted(jumped, at(790)), Some(first_doubtless(790)), "{}", clock.name());
            assert_eq!(doubted(jumped, first_doubtless(790)), None, "{}", clock.name());
            // After another break, what began before is doubted no longer than the jump makes it.
            let later = Watched { since: at(900), jumped_at: Some(at(700)) };
            let until = if clock.counts_silence() { 990 } else { 790 };
            assert_eq!(doubted(later, at(750)), Some(first_doubtless(until)), "{}", clock.name());
        }
    }

    #[test]
    fn a_reading_says_clock_measured_and_allowed() {
        let reading = Reading::since(
            Clock::Idle,
            Timestamp::EPOCH,
            Timestamp::from_millis(181_000),
            Span::from_mins(3),
        );
        assert_eq!(reading.to_string(), "idle 3m1s of 3m allowed");
    }
}
