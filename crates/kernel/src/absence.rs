//! What a machine that says nothing still holds: how long its lease counts, and how long one waits
//! for what only it has.
//!
//! Every node judges by what it saw itself. Of the time before it was there, or before its clock
//! was set, it knows nothing: leases may have been renewed by words that it never got.

use crate::clock::{Clock, Reading};
use crate::limits::Limits;
use crate::time::{Span, Timestamp};

/// An attempt's lease, as one node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its committed end.
    pub end: Timestamp,
    /// How long it is after each renewal.
    pub length: Span,
    /// Since when the node could commit, without a break and without a jump of its clock.
    pub watched_since: Timestamp,
}

impl Lease {
    /// The last moment at which it may be held: its committed end, and not before the node has seen
    /// a whole length of it go by.
    pub fn held_until(self) -> Timestamp {
        self.end.max(self.watched_since.after(self.length))
    }

    /// When it was last renewed.
    pub const fn renewed_at(self) -> Timestamp {
        self.end.before(self.length)
    }

    /// What its clock shows.
    pub const fn reading(self, now: Timestamp) -> Reading {
        Reading::since(Clock::AttemptLease, self.renewed_at(), now, self.length)
    }

    /// When to look again at a lease that may be held: at its committed end, and from then on
    /// `soon`, because another node may have watched it for longer.
    pub fn look_again(self, now: Timestamp, soon: Span) -> Timestamp {
        match now > self.end {
            true => self.held_until().min(now.after(soon)),
            false => self.end,
        }
    }
}

/// What a node knows of a machine that has something which nobody else has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// Until when the machine was known to be there.
    pub heard_until: Timestamp,
    /// Since when something is wanted of it.
    pub wanted_since: Timestamp,
    /// Since when the node could commit.
    pub watched_since: Timestamp,
}

impl Silence {
    /// The last moment at which the machine is waited for, if nothing is heard of it until then.
    pub fn waited_until(self, limits: &Limits) -> Timestamp {
        let since = self.heard_until.max(self.wanted_since).max(self.watched_since);
        since.after(limits.tree_affinity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_lease_is_over_after_its_end_and_after_a_length_that_was_watched() {
        let lease = |watched: i64| {
            let watched_since = at(watched);
            Lease { end: at(100), length: Span::from_secs(60), watched_since }
        };
        assert_eq!(lease(0).held_until(), at(100));
        assert_eq!(lease(40).held_until(), at(100));
        assert_eq!(lease(41).held_until(), at(101));
        assert_eq!(lease(500).held_until(), at(560));
        let reading = lease(500).reading(at(130));
        assert_eq!(reading.to_string(), "attempt_lease 1m30s of 1m allowed");
    }

    #[test]
    fn a_lease_that_another_node_may_call_over_is_looked_at_again_soon() {
        let lease = Lease { end: at(100), length: Span::from_secs(60), watched_since: at(90) };
        let again = |now| lease.look_again(at(now), Span::from_secs(2));
        assert_eq!(again(50), at(100), "it is renewed until then");
        assert_eq!(again(100), at(100));
        assert_eq!(again(101), at(103));
        assert_eq!(again(149), at(150), "from when on this node can");
    }

    #[test]
    fn a_machine_is_waited_for_ten_minutes_after_whatever_came_last() {
        let waited = |heard, wanted, watched| {
            let (heard_until, wanted_since) = (at(heard), at(wanted));
            Silence { heard_until, wanted_since, watched_since: at(watched) }
                .waited_until(&Limits::default())
        };
        assert_eq!(waited(3, 1, 2), at(603));
        assert_eq!(waited(1, 3, 2), at(603));
        assert_eq!(waited(1, 2, 3), at(603));
    }
}
