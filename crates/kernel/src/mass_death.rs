//! Mass death: when most runners fall silent together, the fault is probably ours.
//!
//! Deaths are counted by runner. When more than half of at least four runners fall silent within
//! one heartbeat timeout, reaping pauses for one more heartbeat timeout with an alert, then goes
//! on at a limited rate: one runner per heartbeat interval, until no silent runner is left. Stops,
//! observed exits and proven absence are never delayed: they do not rest on silence.
//!
//! A runner *falls silent* when it has missed two beats, and nothing happens before one has reached
//! the heartbeat timeout. Rejected: to count only runners that have reached the timeout. Beats are
//! spread over an interval, so the first half would be reaped before the second was counted, and
//! the rule would protect only the rest.

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::time::Timestamp;

/// On what grounds something would be reaped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grounds {
    /// Nothing was heard for too long.
    Silence,
    /// Someone asked for it.
    Stop,
    /// Its end was seen.
    ObservedExit,
    /// Whoever would know says that it is not there.
    ProvenAbsence,
}

/// How the runners stand, counted at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Runners that were not silent one heartbeat timeout ago.
    pub runners: usize,
    /// Of these, those that have fallen silent since.
    pub fell_silent: usize,
    /// Runners past the heartbeat timeout that are not reaped yet, however long they are silent.
    pub overdue: usize,
}

impl Census {
    /// The fewest runners of which “most” means anything.
    pub const LEAST: usize = 4;

    /// Counts the runners that still host something, by when each was last heard.
    ///
    /// The caller has left out of these times what it could not have heard, being unable to commit
    /// ([`crate::hold::carry`]).
    pub fn take(
        last_heard: impl IntoIterator<Item = Timestamp>,
        limits: &Limits,
        now: Timestamp,
    ) -> Self {
        let two_beats = limits.heartbeat_interval.times(2);
        let mut census = Self::default();
        for heard in last_heard {
            let silence = now.since(heard);
            if silence >= limits.heartbeat_timeout {
                census.overdue += 1;
            }
            if silence < two_beats.plus(limits.heartbeat_timeout) {
                census.runners += 1;
                if silence >= two_beats {
                    census.fell_silent += 1;
                }
            }
        }
        census
    }

    /// Whether most runners fell silent together, and one of them is due to be reaped.
    pub const fn is_mass_death(&self) -> bool {
        self.overdue > 0 && self.runners >= Self::LEAST && self.fell_silent * 2 > self.runners
    }
}

/// Something a person should hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alert {
    /// How many fell silent.
    pub silent: usize,
    /// Of how many.
    pub runners: usize,
    /// When reaping goes on.
    pub until: Timestamp,
}

/// Whether the silent may be reaped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reaping")]
pub enum Reaping {
    /// As usual.
    #[default]
    Free,
    /// Not now: most fell silent together.
    Halted {
        /// When it goes on, at a limited rate.
        until: Timestamp,
    },
    /// One runner per heartbeat interval.
    Limited {
        /// When the next runner may be reaped.
        next: Timestamp,
    },
}

impl Reaping {
    /// Looks at the runners, before anything is reaped.
    #[must_use]
    pub fn look(self, census: Census, limits: &Limits, now: Timestamp) -> (Self, Option<Alert>) {
        match self {
            Self::Free if census.is_mass_death() => {
                let until = now.after(limits.heartbeat_timeout);
                let (silent, runners) = (census.fell_silent, census.runners);
                (Self::Halted { until }, Some(Alert { silent, runners, until }))
            }
            Self::Free => (Self::Free, None),
            Self::Halted { until } if now < until => (self, None),
            // Whatever the census says now: a second halt in a row would never end.
            Self::Halted { .. } if census.overdue > 0 => (Self::Limited { next: now }, None),
            Self::Limited { .. } if census.overdue > 0 => (self, None),
            Self::Halted { .. } | Self::Limited { .. } => (Self::Free, None),
        }
    }

    /// Whether a runner's sandboxes may be reaped now on these grounds.
    pub fn permits(self, grounds: Grounds, now: Timestamp) -> bool {
        match grounds {
            Grounds::Stop | Grounds::ObservedExit | Grounds::ProvenAbsence => true,
            Grounds::Silence => match self {
                Self::Free => true,
                Self::Halted { .. } => false,
                Self::Limited { next } => now >= next,
            },
        }
    }

    /// One runner was reaped for its silence.
    #[must_use]
    pub fn reaped(self, limits: &Limits, now: Timestamp) -> Self {
        match self {
            Self::Limited { .. } => Self::Limited { next: now.after(limits.heartbeat_interval) },
            Self::Free | Self::Halted { .. } => self,
        }
    }

    /// When to look again; nothing, while nothing is held back.
    pub const fn recheck_at(self) -> Option<Timestamp> {
        match self {
            Self::Free => None,
            Self::Halted { until } => Some(until),
            Self::Limited { next } => Some(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// A census at `now` seconds of runners last heard at these seconds.
    fn census(now: i64, heard: &[i64]) -> Census {
        let heard = heard.iter().map(|seconds| at(seconds * 1_000));
        Census::take(heard, &Limits::default(), at(now * 1_000))
    }

    /// Runs `looks` of (second, last heard) through the rule: the states, and alerts as `!n/m`.
    fn check(looks: &[(i64, &[i64])], expected: &str) {
        let limits = Limits::default();
        let mut reaping = Reaping::Free;
        let trace: Vec<_> = looks
            .iter()
            .map(|(second, heard)| {
                let (next, alert) =
                    reaping.look(census(*second, heard), &limits, at(second * 1000));
                reaping = next;
                let word = match reaping {
                    Reaping::Free => "free".to_owned(),
                    Reaping::Halted { until } => format!("halted-{}", until.as_millis() / 1_000),
                    Reaping::Limited { next } => format!("limited-{}", next.as_millis() / 1_000),
                };
                let alarm = alert.map(|alert| format!("!{}/{}", alert.silent, alert.runners));
                format!("{word}{}", alarm.unwrap_or_default())
            })
            .collect();
        assert_eq!(trace.join(" "), expected);
    }

    #[test]
    fn most_of_four_silent_halts_then_limits_then_frees() {
        check(
            &[
                (89, &[0, 0, 0, 80]),
                (90, &[0, 0, 0, 90]),
                (179, &[0, 0, 0, 179]),
                (180, &[0, 0, 0, 180]),
                (200, &[0, 200]),
                (210, &[210]),
            ],
            "free halted-180!3/4 halted-180 limited-180 limited-180 free",
        );
    }

    #[test]
    fn half_is_not_most_and_three_are_too_few() {
        check(&[(90, &[0, 0, 90, 90])], "free");
        check(&[(90, &[0, 0, 0])], "free");
        check(&[(90, &[0, 0, 0, 90, 90])], "halted-180!3/5");
    }

    #[test]
    fn the_first_to_reach_the_timeout_is_not_reaped_before_the_rest_are_counted() {
        check(&[(90, &[0, 2, 4, 6, 8])], "halted-180!5/5");
    }

    #[test]
    fn missed_beats_alone_halt_nothing() {
        check(&[(89, &[0, 2, 4, 6, 8])], "free");
        assert_eq!(census(89, &[0, 2]).overdue, 0);
    }

    #[test]
    fn silence_counts_from_two_missed_beats_for_one_timeout() {
        for (heard_ms, fell, counted) in [(70_001, 0, 1), (70_000, 1, 1), (-19_999, 1, 1)] {
            let census = Census::take([at(heard_ms)], &Limits::default(), at(90_000));
            assert_eq!((census.fell_silent, census.runners), (fell, counted), "{heard_ms}");
        }
        let long_silent = Census::take([at(-20_000)], &Limits::default(), at(90_000));
        assert_eq!(long_silent, Census { runners: 0, fell_silent: 0, overdue: 1 });
    }

    #[test]
    fn runners_long_silent_do_not_make_a_lone_death_a_mass_death() {
        check(&[(1_090, &[0, 0, 0, 1_000, 1_089, 1_089, 1_089])], "free");
    }

    #[test]
    fn the_fault_that_passes_reaps_nobody() {
        check(
            &[(90, &[0; 8]), (100, &[100; 8]), (180, &[180; 8])],
            "halted-180!8/8 halted-180 free",
        );
    }

    #[test]
    fn a_fault_that_stays_does_not_halt_for_ever() {
        check(
            &[(90, &[0; 8]), (180, &[0; 8]), (181, &[0, 0, 0, 0, 91, 91, 91, 91, 91])],
            "halted-180!8/8 limited-180 limited-180",
        );
    }

    #[test]
    fn lesson_stops_exits_and_absence_are_never_delayed() {
        let (now, later) = (at(0), at(1));
        for reaping in
            [Reaping::Free, Reaping::Halted { until: later }, Reaping::Limited { next: later }]
        {
            for grounds in [Grounds::Stop, Grounds::ObservedExit, Grounds::ProvenAbsence] {
                assert!(reaping.permits(grounds, now), "{reaping:?} {grounds:?}");
            }
            assert_eq!(reaping.permits(Grounds::Silence, now), reaping == Reaping::Free);
        }
    }

    #[test]
    fn a_limited_rate_is_one_runner_per_interval() {
        let limits = Limits::default();
        let limited = Reaping::Limited { next: at(0) };
        assert!(limited.permits(Grounds::Silence, at(0)));
        let spent = limited.reaped(&limits, at(5));
        assert_eq!(spent.recheck_at(), Some(at(10_005)));
        assert!(!spent.permits(Grounds::Silence, at(10_004)));
        assert!(spent.permits(Grounds::Silence, at(10_005)));
        assert_eq!(Reaping::Free.reaped(&limits, at(5)), Reaping::Free);
        assert_eq!(Reaping::Free.recheck_at(), None);
        let halted = Reaping::Halted { until: at(7) };
        assert_eq!(halted.reaped(&limits, at(5)).recheck_at(), Some(at(7)));
    }
}
