//! What is counted: totals since the installation was made, and what happened lately.
//!
//! Everything is counted from committed events, each once, in the commit that moves the counter's
//! own cursor; so restarts, several nodes and repeated reads change no figure. What happened lately
//! is kept in slices of a twelfth of the alert window, of which the oldest are forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attempt::{Outcome, Proof};
use crate::cause::Cause;
use crate::clock::Clock;
use crate::id::RunnerId;
use crate::limits::Limits;
use crate::time::{Span, Timestamp};

/// How many slices a window has.
const SLICES: u64 = 12;
/// The most joins of one runner that are remembered.
const JOINS: usize = 16;

/// What went as it should, and what did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Split {
    /// As it should.
    pub good: u64,
    /// Not so.
    pub bad: u64,
}

impl Split {
    fn add(&mut self, good: bool) {
        if good { self.good += 1 } else { self.bad += 1 }
    }

    /// All of them.
    pub const fn all(self) -> u64 {
        self.good + self.bad
    }

    /// How many in a hundred did not, rounded down; none of none.
    pub const fn bad_percent(self) -> u64 {
        percent(self.bad, self.all())
    }
}

/// How many in a hundred `part` is of `whole`, rounded down; none of none.
pub const fn percent(part: u64, whole: u64) -> u64 {
    match part.saturating_mul(100).checked_div(whole) {
        Some(percent) => percent,
        None => 0,
    }
}

/// Lengths of time, counted by how long they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lengths {
    /// How many there are, by the first bound that they do not exceed; the last exceed all.
    pub counts: [u64; Lengths::BOUNDS.len() + 1],
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
}

impl Lengths {
    /// The bounds, in milliseconds.
    pub const BOUNDS: [u64; 10] =
        [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 600_000];

    /// Counts one.
    pub fn add(&mut self, length: Span) {
        let ms = length.as_millis();
        let place = Self::BOUNDS.iter().position(|bound| ms <= *bound);
        self.counts[place.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// An end of an attempt: everything of it is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where that is known.
    pub cause: Option<Cause>,
    /// How it is known that its processes are gone.
    pub proof: Proof,
    /// From the commit that ended it to that proof.
    pub proven_after: Span,
    /// Whether its transcript is whole.
    pub whole: bool,
}

/// Something that is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A task was made.
    Created,
    /// A task moved to the state with this name.
    Moved(String),
    /// An attempt passed this deadline.
    TimedOut(Clock),
    /// Everything of an attempt is safe.
    Ended(Ended),
    /// A sandbox was probed, and answered or not.
    Probed {
        /// Whether it answered.
        healthy: bool,
    },
    /// A runner joined, for the first time or again.
    Joined(RunnerId),
}

/// A slice of what happened lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recent {
    /// Stops, and those that failed.
    pub stops: Split,
    /// Attempts that ended.
    pub ended: u64,
    /// Those of them that the inactivity limit ended.
    pub inactivity: u64,
}

/// Everything that is counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Tasks that were made.
    pub created: u64,
    /// Moves of tasks, by the state that they came to.
    pub moves: BTreeMap<String, u64>,
    /// Ends of attempts, by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Ends of attempts, by cause.
    pub causes: BTreeMap<String, u64>,
    /// Attempts that the inactivity limit ended.
    pub inactivity: u64,
    /// Attempts that the absolute limit ended.
    pub absolute: u64,
    /// Stops: proven in time, or not.
    pub stops: Split,
    /// From a stop to its proof.
    pub stop_latency: Lengths,
    /// Clean-ups after a timeout: proven in time with a whole transcript, or not.
    pub cleanups: Split,
    /// Probes of sandboxes: answered, or not.
    pub probes: Split,
    /// Joins of runners.
    pub joins: u64,
    slices: BTreeMap<i64, Recent>,
    joined: BTreeMap<RunnerId, Vec<Timestamp>>,
}

impl Totals {
    /// Counts what happened at `at`.
    pub fn note(&mut self, seen: &Seen, at: Timestamp, limits: &Limits) {
        match seen {
            Seen::Created => self.created += 1,
            Seen::Moved(state) => *self.moves.entry(state.clone()).or_default() += 1,
            Seen::TimedOut(Clock::Inactivity) => {
                self.inactivity += 1;
                self.slice(at, limits).inactivity += 1;
            }
            Seen::TimedOut(Clock::Absolute) => self.absolute += 1,
            Seen::TimedOut(_) => {}
            Seen::Ended(ended) => self.note_end(ended, at, limits),
            Seen::Probed { healthy } => self.probes.add(*healthy),
            Seen::Joined(runner) => {
                self.joins += 1;
                self.joined.retain(|_, times| {
                    times.last().is_some_and(|last| at.since(*last) <= limits.breaker_window)
                });
                let times = self.joined.entry(*runner).or_default();
                times.push(at);
                let extra = times.len().saturating_sub(JOINS);
                times.drain(..extra);
            }
        }
    }

    fn note_end(&mut self, ended: &Ended, at: Timestamp, limits: &Limits) {
        let seen = matches!(ended.proof, Proof::Observed | Proof::NotOurs);
        let in_time = seen && ended.proven_after <= limits.stop_proof;
        *self.outcomes.entry(ended.outcome.code().to_owned()).or_default() += 1;
        if let Some(cause) = ended.cause {
            *self.causes.entry(cause.code().to_owned()).or_default() += 1;
        }
        self.slice(at, limits).ended += 1;
        match ended.outcome {
            Outcome::Cancelled => {
                self.stops.add(in_time);
                self.stop_latency.add(ended.proven_after);
                self.slice(at, limits).stops.add(in_time);
            }
            Outcome::TimedOut => self.cleanups.add(in_time && ended.whole),
            Outcome::Succeeded
            | Outcome::Question
            | Outcome::Failed
            | Outcome::BudgetExceeded
            | Outcome::Lost => {}
        }
    }

    fn slice(&mut self, at: Timestamp, limits: &Limits) -> &mut Recent {
        let length = slice_ms(limits);
        let number = at.as_millis().div_euclid(length);
        let kept = number.saturating_sub(SLICES as i64);
        self.slices.retain(|slice, _| *slice > kept);
        self.slices.entry(number).or_default()
    }

    /// What happened within the alert window before `now`.
    pub fn lately(&self, now: Timestamp, limits: &Limits) -> Recent {
        let from = now.as_millis().div_euclid(slice_ms(limits)).saturating_sub(SLICES as i64);
        let mut all = Recent::default();
        for recent in self.slices.range(from + 1..).map(|(_, recent)| recent) {
            all.stops.good += recent.stops.good;
            all.stops.bad += recent.stops.bad;
            all.ended += recent.ended;
            all.inactivity += recent.inactivity;
        }
        all
    }

    /// How often each runner joined within the breaker's window before `now`.
    pub fn joins_lately(&self, now: Timestamp, limits: &Limits) -> Vec<(RunnerId, usize)> {
        let lately = |at: &&Timestamp| now.since(**at) <= limits.breaker_window;
        let counted =
            self.joined.iter().map(|(id, times)| (*id, times.iter().filter(lately).count()));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

fn slice_ms(limits: &Limits) -> i64 {
    i64::try_from(limits.alert_window.as_millis() / SLICES).unwrap_or(i64::MAX).max(1)
}

impl Outcome {
    /// Its stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Question => "question",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Lost => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn stop(proof: Proof, seconds: u64) -> Seen {
        let proven_after = Span::from_secs(seconds);
        let (outcome, cause) = (Outcome::Cancelled, Some(Cause::Cancelled));
        Seen::Ended(Ended { outcome, cause, proof, proven_after, whole: true })
    }

    fn counted(seen: &[(i64, Seen)]) -> Totals {
        let mut totals = Totals::default();
        for (minute, seen) in seen {
            totals.note(seen, at(*minute), &Limits::default());
        }
        totals
    }

    #[test]
    fn a_stop_is_good_if_its_end_was_seen_in_time() {
        let totals = counted(&[
            (0, stop(Proof::Observed, 2)),
            (1, stop(Proof::Observed, 60)),
            (2, stop(Proof::Observed, 61)),
            (3, stop(Proof::LeaseExpired, 2)),
            (4, stop(Proof::NotOurs, 0)),
        ]);
        assert_eq!(totals.stops, Split { good: 3, bad: 2 });
        assert_eq!(totals.stops.bad_percent(), 40);
        assert_eq!(totals.stop_latency.counts, [1, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0]);
        assert_eq!(totals.stop_latency.sum_ms, 125_000);
        assert_eq!(totals.outcomes["cancelled"], 5);
    }

    #[test]
    fn a_clean_up_is_good_only_with_a_whole_transcript() {
        let end = |whole| {
            let (outcome, cause) = (Outcome::TimedOut, Some(Cause::Inactivity));
            let proof = Proof::Observed;
            Seen::Ended(Ended { outcome, cause, proof, proven_after: Span::ZERO, whole })
        };
        let totals = counted(&[(0, end(true)), (0, end(false))]);
        assert_eq!(totals.cleanups, Split { good: 1, bad: 1 });
        assert_eq!(totals.stops.all(), 0);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let clock = Seen::TimedOut(Clock::Inactivity);
        let mut totals =
            counted(&[(0, clock.clone()), (30, clock.clone()), (31, stop(Proof::Observed, 1))]);
        let limits = Limits::default();
        let lately = |totals: &Totals, minute| {
            let recent = totals.lately(at(minute), &limits);
            (recent.inactivity, recent.ended)
        };
        assert_eq!(lately(&totals, 59), (2, 1));
        assert_eq!(lately(&totals, 60), (1, 1));
        assert_eq!(lately(&totals, 200), (0, 0));
        for minute in 100..10_000 {
            totals.note(&clock, at(minute), &limits);
        }
        assert!(totals.slices.len() <= 13, "{}", totals.slices.len());
        assert_eq!(totals.inactivity, 9_902);
    }

    #[test]
    fn joins_are_remembered_for_a_while_and_within_bounds() {
        let (one, other) = (RunnerId::from_bits(1), RunnerId::from_bits(2));
        let mut seen: Vec<_> = (0..4).map(|minute| (minute, Seen::Joined(one))).collect();
        seen.push((4, Seen::Joined(other)));
        let totals = counted(&seen);
        let limits = Limits::default();
        assert_eq!(totals.joins_lately(at(4), &limits), [(one, 4), (other, 1)]);
        assert_eq!(totals.joins_lately(at(7), &limits), [(one, 2), (other, 1)]);
        assert_eq!(totals.joins_lately(at(60), &limits), []);
        let many = counted(&vec![(0, Seen::Joined(one)); 1_000]);
        assert_eq!(many.joins_lately(at(0), &limits), [(one, JOINS)]);
        assert_eq!(many.joins, 1_000);
    }

    #[test]
    fn totals_survive_being_written_and_read() {
        let totals = counted(&[
            (0, Seen::Moved("READY".to_owned())),
            (1, Seen::TimedOut(Clock::Absolute)),
            (2, Seen::Joined(RunnerId::from_bits(5))),
            (3, stop(Proof::Observed, 3)),
        ]);
        let text = serde_json::to_string(&totals).unwrap();
        assert_eq!(serde_json::from_str::<Totals>(&text).unwrap(), totals);
        assert_eq!(serde_json::from_str::<Totals>("{}").unwrap(), Totals::default());
    }
}
