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
