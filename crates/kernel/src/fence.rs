//! Who may act: the fence by attempt and epoch, and leases on clocks that do not agree.
//!
//! Whatever a runner, agent or tool sends names its attempt and carries its epoch. What is not
//! current is refused, except appends, because nothing an agent printed may be lost. Whoever gets
//! that answer kills its agent at once.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, Phase};
use crate::id::{AttemptNumber, Epoch};
use crate::limits::Limits;
use crate::planted::{self, Bug};
use crate::time::{Span, Timestamp};

/// What a request wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Change something that Belay gates: state, questions, subtasks, results, publishing.
    Act,
    /// Add to what is kept: transcript by offset, usage, kept tree, exit proof.
    Append,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It is not current any more (409): another attempt or epoch is, or this one is ending.
    Fenced,
    /// Its sandbox is dead (410).
    Gone,
}

/// Checks a request that names `attempt` and `epoch` against the attempt's row.
pub fn admit(
    row: &Attempt,
    attempt: AttemptNumber,
    epoch: Epoch,
    intent: Intent,
) -> Result<(), Refusal> {
    if planted::is(Bug::FenceDropped) {
        return Ok(());
    }
    if row.number != attempt || row.epoch != epoch {
        return Err(Refusal::Fenced);
    }
    match (row.phase, intent) {
        (_, Intent::Append) => Ok(()),
        (Phase::Claimed | Phase::Running | Phase::Publishing { .. }, Intent::Act) => Ok(()),
        (Phase::Ending(_), Intent::Act) => Err(Refusal::Fenced),
        (Phase::Ended(..), Intent::Act) => Err(Refusal::Gone),
    }
}

/// What a provider keeps per session, on disk, to refuse operations that were overtaken.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Seen {
    /// The highest epoch that any operation carried.
    pub highest: Epoch,
    /// Everything up to and including this epoch was killed: a late create or start is refused.
    pub tombstone: Option<Epoch>,
}

impl Seen {
    /// An operation other than a kill: takes its epoch, unless it is overtaken or killed.
    pub fn admit(self, epoch: Epoch) -> Result<Self, Refusal> {
        if self.tombstone.is_some_and(|killed| epoch <= killed) {
            return Err(Refusal::Gone);
        }
        if epoch < self.highest {
            return Err(Refusal::Fenced);
        }
        Ok(Self { highest: epoch, ..self })
    }

    /// A kill of what runs under `epoch`, whether or not it exists yet. It never fails: a kill that
    /// was overtaken kills only what was overtaken with it.
    #[must_use]
    pub fn bury(self, epoch: Epoch) -> Self {
        Self { highest: self.highest.max(epoch), tombstone: self.tombstone.max(Some(epoch)) }
    }
}

/// The holder's view of a lease: it ends `length` after the renewal was *sent*, on a clock of the
/// holder's own that counts suspend. Counting from the reply would make the holder outlive it.
pub const fn held_until(sent_at: Timestamp, length: Span) -> Timestamp {
    sent_at.after(length)
}

/// When a shim without a newer renewal kills its sandbox, so that it is dead at the lease's end.
pub const fn kill_at(held_until: Timestamp, limits: &Limits) -> Timestamp {
    held_until.before(limits.fence_margin())
}

/// A lease's end after the node could not commit for `downtime`: extended by what was measured, not
/// reset, because silence while *we* could not commit is no evidence against the agent.
pub const fn extended(lease_end: Timestamp, downtime: Span) -> Timestamp {
    lease_end.after(downtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Outcome, Proof};

    fn row(phase: Phase) -> Attempt {
        let claimed = Attempt::claimed(
            AttemptNumber(2),
            Epoch(5),
            Timestamp::from_millis(60_000),
            Timestamp::EPOCH,
        );
        Attempt { phase, ..claimed }
    }

    #[test]
    fn only_the_current_attempt_acts_and_whoever_was_current_appends() {
        let due = Timestamp::MAX;
        let ended = Phase::Ended(Outcome::Lost, Proof::LeaseExpired);
        for (phase, act) in [
            (Phase::Claimed, Ok(())),
            (Phase::Running, Ok(())),
            (Phase::Publishing { due }, Ok(())),
            (Phase::Ending(Outcome::Cancelled), Err(Refusal::Fenced)),
            (ended, Err(Refusal::Gone)),
        ] {
            let row = row(phase);
            assert_eq!(admit(&row, AttemptNumber(2), Epoch(5), Intent::Act), act, "{phase:?}");
            assert_eq!(admit(&row, AttemptNumber(2), Epoch(5), Intent::Append), Ok(()));
            for intent in [Intent::Act, Intent::Append] {
                let fenced = Err(Refusal::Fenced);
                assert_eq!(admit(&row, AttemptNumber(1), Epoch(5), intent), fenced);
                assert_eq!(admit(&row, AttemptNumber(2), Epoch(4), intent), fenced);
                assert_eq!(admit(&row, AttemptNumber(2), Epoch(6), intent), fenced, "forged");
            }
        }
    }

    #[test]
    fn lower_epochs_are_refused_and_a_kill_leaves_a_tombstone() {
        let seen = Seen::default().admit(Epoch(3)).unwrap();
        assert_eq!(seen.admit(Epoch(2)), Err(Refusal::Fenced));
        assert_eq!(seen.admit(Epoch(3)), Ok(seen), "said again");
        let buried = seen.bury(Epoch(4));
        assert_eq!(buried.admit(Epoch(4)), Err(Refusal::Gone), "a late create finds the tombstone");
        assert_eq!(buried.admit(Epoch(3)), Err(Refusal::Gone));
        assert!(buried.admit(Epoch(5)).is_ok(), "the next attempt is not its victim");
        assert_eq!(buried.bury(Epoch(2)), buried, "an old kill changes nothing");
    }

    #[test]
    fn lesson_a_stop_during_creation_finds_something_to_stop() {
        let buried = Seen::default().bury(Epoch(1));
        assert_eq!(buried.admit(Epoch(1)), Err(Refusal::Gone));
    }

    #[test]
    fn a_holder_is_dead_before_its_lease_is_over_for_others() {
        let limits = Limits::default();
        let (sent, committed) = (Timestamp::from_millis(10_000), Timestamp::from_millis(10_040));
        let length = limits.attempt_lease_remote;
        let kill = kill_at(held_until(sent, length), &limits);
        let over = committed.after(length);
        let dead = kill.after(limits.stop_grace).after(limits.kill_bound);
        assert!(dead.after(limits.drift) <= over);
        assert_eq!(kill, Timestamp::from_millis(66_000));
    }

    #[test]
    fn downtime_extends_a_lease_and_does_not_reset_it() {
        let end = Timestamp::from_millis(1_000);
        assert_eq!(extended(end, Span::from_millis(250)), Timestamp::from_millis(1_250));
        assert_eq!(extended(end, Span::ZERO), end);
    }
}
