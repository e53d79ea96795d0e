//! Time that does not count: a pause, a question that waits for a person, our own downtime.
//!
//! A clock is an anchor and `now`. Instead of remembering beside every anchor how much to subtract,
//! the anchors themselves are carried forward over the time that does not count, once, when it
//! ends. What a clock showed when the hold began is exactly what it shows when the hold is over.
//!
//! Rejected: one counter of held time per sandbox. It is wrong for every anchor that was set while
//! the hold lasted (a heartbeat during a question), and wrong again at the second hold.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The anchor of a clock, carried over the time from `from` to `until`, which does not count.
///
/// An anchor set inside that time comes out as `until`: its clock has not run yet.
#[must_use]
pub fn carry(anchor: Timestamp, from: Timestamp, until: Timestamp) -> Timestamp {
    anchor.after(until.since(anchor.max(from)))
}

/// Whether, since when and by what the clocks are held.
///
/// A session may be paused while its question waits, and each of the two ends alone; the clocks
/// stand still until both are over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Hold {
    /// The clocks run.
    #[default]
    Nothing,
    /// A question waits for a person.
    Person {
        /// Since when the clocks stand still.
        since: Timestamp,
    },
    /// The sandbox is paused.
    Pause {
        /// Since when the clocks stand still.
        since: Timestamp,
    },
    /// The sandbox is paused, and a question waits.
    Both {
        /// Since when the clocks stand still.
        since: Timestamp,
    },
}

impl Hold {
    /// Since when the clocks stand still, if they do.
    pub const fn since(self) -> Option<Timestamp> {
        match self {
            Self::Nothing => None,
            Self::Person { since } | Self::Pause { since } | Self::Both { since } => Some(since),
        }
    }

    /// Whether the sandbox is paused.
    pub const fn paused(self) -> bool {
        matches!(self, Self::Pause { .. } | Self::Both { .. })
    }

    /// A question was asked.
    #[must_use]
    pub const fn asked(self, now: Timestamp) -> Self {
        match self {
            Self::Nothing => Self::Person { since: now },
            Self::Pause { since } => Self::Both { since },
            Self::Person { .. } | Self::Both { .. } => self,
        }
    }

    /// The last open question was answered.
    #[must_use]
    pub const fn answered(self) -> Self {
        match self {
            Self::Person { .. } => Self::Nothing,
            Self::Both { since } => Self::Pause { since },
            Self::Nothing | Self::Pause { .. } => self,
        }
    }

    /// The sandbox was paused.
    #[must_use]
    pub const fn pause(self, now: Timestamp) -> Self {
        match self {
            Self::Nothing => Self::Pause { since: now },
            Self::Person { since } => Self::Both { since },
            Self::Pause { .. } | Self::Both { .. } => self,
        }
    }

    /// The sandbox was resumed.
    #[must_use]
    pub const fn resume(self) -> Self {
        match self {
            Self::Pause { .. } => Self::Nothing,
            Self::Both { since } => Self::Person { since },
            Self::Nothing | Self::Person { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_clock_shows_after_the_hold_what_it_showed_before() {
        // Set at 10, held from 30 to 100: it showed 20 when the hold began.
        assert_eq!(at(100).since(carry(at(10), at(30), at(100))).as_millis(), 20);
        // Set inside the hold: it has not run yet.
        assert_eq!(carry(at(50), at(30), at(100)), at(100));
        // Set after the hold, or a hold of no length: nothing to carry.
        assert_eq!(carry(at(120), at(30), at(100)), at(120));
        assert_eq!(carry(at(10), at(30), at(30)), at(10));
        assert_eq!(carry(at(10), at(30), at(20)), at(10), "a clock set back carries nothing");
    }

    #[test]
    fn two_holds_overlap_and_each_ends_alone() {
        let both = Hold::Nothing.asked(at(5)).pause(at(9));
        assert_eq!(both, Hold::Both { since: at(5) });
        assert_eq!(both.answered(), Hold::Pause { since: at(5) });
        assert_eq!(both.resume(), Hold::Person { since: at(5) });
        assert_eq!(both.resume().answered(), Hold::Nothing);
        assert_eq!(Hold::Nothing.pause(at(5)).asked(at(9)), both);
        for hold in [Hold::Nothing, Hold::Person { since: at(5) }, Hold::Pause { since: at(5) }] {
            assert_eq!(hold.since().is_some(), hold != Hold::Nothing);
        }
        assert_eq!(Hold::Nothing.answered().resume(), Hold::Nothing);
        assert_eq!(both.asked(at(20)).pause(at(20)), both, "the first moment counts");
        assert_eq!(Hold::Person { since: at(5) }.asked(at(9)), Hold::Person { since: at(5) });
        assert_eq!(Hold::Pause { since: at(5) }.pause(at(9)), Hold::Pause { since: at(5) });
        assert_eq!(Hold::Pause { since: at(5) }.answered(), Hold::Pause { since: at(5) });
        assert_eq!(Hold::Person { since: at(5) }.resume(), Hold::Person { since: at(5) });
        assert!(both.paused() && Hold::Pause { since: at(5) }.paused());
        assert!(!Hold::Nothing.paused() && !Hold::Person { since: at(5) }.paused());
    }
}
