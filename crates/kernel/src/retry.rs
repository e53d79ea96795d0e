//! What follows from a failed attempt without a person: another try, a park, or rest.
//!
//! Effort is bounded by counts that are stored with the task: tries since a person's last act, ends
//! before `start`, parks, ends without any change. A person's act grants new tries; nothing resets
//! the count of fruitless ends.

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Retry};
use crate::limits::{Caps, Limits};
use crate::planted::{self, Bug};
use crate::time::{Span, Timestamp};

/// Chance, drawn by the caller: a fraction of one in 2³² parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter(u32);

impl Jitter {
    /// The smallest fraction.
    pub const NONE: Self = Self(0);

    /// The fraction `bits / 2³²`.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// `full`, of which chance takes up to half away.
    pub(crate) const fn of(self, full: Span) -> Span {
        let full = full.as_millis();
        let chance = ((full / 2) as u128 * self.0 as u128) >> 32;
        Span::from_millis(full - chance as u64)
    }
}

/// The persisted counts that bound a task's effort.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Effort {
    /// Failed attempts since a person's last run, retry, resume or answer.
    pub tries: u32,
    /// Ends before `start` since then, or since the last start.
    pub failed_starts: u32,
    /// Usage-limit parks since then.
    pub parks: u32,
    /// Ends caused by the agent without any change, over the task's life.
    pub fruitless: u32,
}

impl Effort {
    /// A person acted: tries, starts and parks begin anew; fruitless ends are never forgotten.
    #[must_use]
    pub const fn renewed(self) -> Self {
        Self { tries: 0, failed_starts: 0, parks: 0, fruitless: self.fruitless }
    }
}

/// Whether an attempt left anything behind: a change of tree, a commit, a question, a subtask, a
/// summary or a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Progress {
    /// It did.
    Made,
    /// It did not.
    None,
}

/// What follows from a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Queue it again, not before then.
    Again {
        /// The earliest moment of the next claim.
        not_before: Timestamp,
        /// The counts to store.
        effort: Effort,
    },
    /// It rests, for this cause.
    Rest {
        /// Why.
        cause: Cause,
        /// The counts to store.
        effort: Effort,
    },
}

/// One failed attempt, as the policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Why it failed.
    pub cause: Cause,
    /// What it left behind.
    pub progress: Progress,
    /// When a usage limit resets, if it said so.
    pub reset_at: Option<Timestamp>,
    /// The chance in the backoff.
    pub jitter: Jitter,
}

/// Whether the agent itself, not what is around it, brought this end about.
pub const fn caused_by_agent(cause: Cause) -> bool {
    match cause {
        Cause::Crash
        | Cause::StuckRunning
        | Cause::ContextOverflow
        | Cause::Refusal
        | Cause::AgentFailed
        | Cause::IdleTimeout
        | Cause::Inactivity
        | Cause::MaxDuration => true,
        Cause::Lost
        | Cause::Infrastructure
        | Cause::Network
        | Cause::HeartbeatTimeout
        | Cause::NeverStarted
        | Cause::RateLimit
        | Cause::SandboxExpired
        | Cause::UsageLimit
        | Cause::Auth
        | Cause::Configuration
        | Cause::NoProgress
        | Cause::DependencyFailed
        | Cause::SubtaskFailed
        | Cause::PublishFailed
        | Cause::StartFailed
        | Cause::Budget
        | Cause::Cancelled => false,
    }
}

/// Counts an end of an attempt that ran: one more fruitless one, or none.
pub const fn count_fruitless(effort: Effort, by_agent: bool, progress: Progress) -> Effort {
    match progress {
        Progress::None if by_agent => {
            Effort { fruitless: effort.fruitless.saturating_add(1), ..effort }
        }
        Progress::None | Progress::Made => effort,
    }
}

/// Whether this end is one more without any change, and one too many.
pub const fn braked(before: Effort, after: Effort, caps: &Caps) -> bool {
    after.fruitless > before.fruitless && after.fruitless >= caps.no_progress
}

/// `min(first · 2^(n−1), longest)`, of which the caller's chance takes up to half away.
pub fn backoff(n: u32, jitter: Jitter, limits: &Limits) -> Span {
    let doubled = 1u64.checked_shl(n.saturating_sub(1)).unwrap_or(u64::MAX);
    jitter.of(limits.backoff_first.times(doubled).min(limits.backoff_longest))
}

/// Decides what follows from the failure of an attempt that had started.
pub fn after_failure(
    effort: Effort,
    failure: Failure,
    max_attempts: u32,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
) -> Next {
    let Failure { cause, progress, reset_at, jitter } = failure;
    let counted = count_fruitless(effort, caused_by_agent(cause), progress);
    match cause.retry() {
        Retry::Permanent => Next::Rest { cause, effort: counted },
        Retry::Park if counted.parks >= caps.parks => Next::Rest { cause, effort: counted },
        Retry::Park => Next::Again {
            not_before: reset_at.unwrap_or(now.after(limits.park)).max(now),
            effort: Effort { parks: counted.parks + 1, ..counted },
        },
        Retry::Retryable => {
            let tried = Effort { tries: counted.tries.saturating_add(1), ..counted };
            if tried.tries >= max_attempts && !planted::is(Bug::RetryUncapped) {
                Next::Rest { cause, effort: tried }
            } else if braked(effort, tried, caps) {
                Next::Rest { cause: Cause::NoProgress, effort: tried }
            } else {
                let not_before = now.after(backoff(tried.tries, jitter, limits));
                Next::Again { not_before, effort: tried }
            }
        }
    }
}

/// Decides what follows from an end before `start`, which has its own cap and uses no try.
pub fn after_failed_start(
    effort: Effort,
    failure: Failure,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
) -> Next {
    match failure.cause.retry() {
        Retry::Permanent => Next::Rest { cause: failure.cause, effort },
        Retry::Park => after_failure(effort, failure, u32::MAX, now, limits, caps),
        Retry::Retryable => {
            let failed_starts = effort.failed_starts.saturating_add(1);
            let effort = Effort { failed_starts, ..effort };
            if failed_starts >= caps.starts && !planted::is(Bug::StartsUncapped) {
                return Next::Rest { cause: Cause::StartFailed, effort };
            }
            Next::Again {
                not_before: now.after(backoff(failed_starts, failure.jitter, limits)),
                effort,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn failure(cause: Cause, progress: Progress) -> Failure {
        Failure { cause, progress, reset_at: None, jitter: Jitter::NONE }
    }

    fn next(effort: Effort, failure: Failure, max_attempts: u32) -> Next {
        after_failure(effort, failure, max_attempts, NOW, &Limits::default(), &Caps::default())
    }

    /// Fails again and again for one cause; tells how often it was queued again, and how it rested.
    fn until_rest(cause: Cause, progress: Progress, max_attempts: u32) -> (u32, Cause) {
        let mut effort = Effort::default();
        for again in 0..1_000 {
            match next(effort, failure(cause, progress), max_attempts) {
                Next::Again { effort: counted, .. } => effort = counted,
                Next::Rest { cause, .. } => return (again, cause),
            }
        }
        panic!("it never came to rest")
    }

    #[test]
    fn retryable_causes_are_retried_up_to_max_attempts() {
        for cause in Cause::ALL.iter().filter(|cause| cause.retry() == Retry::Retryable) {
            assert_eq!(until_rest(*cause, Progress::Made, 1), (0, *cause));
            assert_eq!(until_rest(*cause, Progress::Made, 4), (3, *cause));
        }
    }

    #[test]
    fn permanent_causes_are_never_retried() {
        for cause in Cause::ALL.iter().filter(|cause| cause.retry() == Retry::Permanent) {
            assert_eq!(until_rest(*cause, Progress::Made, 9), (0, *cause));
        }
    }

    #[test]
    fn a_usage_limit_parks_ten_times_and_uses_no_try() {
        assert_eq!(until_rest(Cause::UsageLimit, Progress::None, 1), (10, Cause::UsageLimit));
        let reset_at = NOW.after(Span::from_mins(7));
        let parked =
            Failure { reset_at: Some(reset_at), ..failure(Cause::UsageLimit, Progress::None) };
        let effort = Effort { parks: 1, ..Effort::default() };
        assert_eq!(
            next(Effort::default(), parked, 1),
            Next::Again { not_before: reset_at, effort }
        );
        let unsaid = failure(Cause::UsageLimit, Progress::None);
        let not_before = NOW.after(Span::from_mins(30));
        assert_eq!(next(Effort::default(), unsaid, 1), Next::Again { not_before, effort });
        let past = Failure { reset_at: Some(Timestamp::EPOCH), ..unsaid };
        assert_eq!(next(Effort::default(), past, 1), Next::Again { not_before: NOW, effort });
    }

    #[test]
    fn lesson_a_retry_stuck_item_is_braked_without_progress() {
        assert_eq!(until_rest(Cause::Crash, Progress::None, 100), (2, Cause::NoProgress));
        assert_eq!(until_rest(Cause::Crash, Progress::Made, 100), (99, Cause::Crash));
        assert_eq!(until_rest(Cause::Network, Progress::None, 5), (4, Cause::Network));
    }

    #[test]
    fn after_the_brake_each_retry_by_a_person_grants_one_attempt() {
        let braked = Effort { fruitless: 3, ..Effort::default() };
        let Next::Rest { cause, effort } =
            next(braked.renewed(), failure(Cause::Crash, Progress::None), 100)
        else {
            panic!("it was queued again");
        };
        assert_eq!((cause, effort.fruitless), (Cause::NoProgress, 4));
        let fruitful = next(braked, failure(Cause::Crash, Progress::Made), 100);
        assert!(matches!(fruitful, Next::Again { .. }), "progress is not braked");
    }

    #[test]
    fn ends_before_start_have_their_own_cap_of_three() {
        let (limits, caps) = (Limits::default(), Caps::default());
        let fail = |failed_starts, cause| {
            let effort = Effort { failed_starts, ..Effort::default() };
            after_failed_start(effort, failure(cause, Progress::None), NOW, &limits, &caps)
        };
        assert!(matches!(fail(0, Cause::Lost), Next::Again { effort, .. } if effort.tries == 0));
        assert!(matches!(fail(1, Cause::Infrastructure), Next::Again { .. }));
        assert!(matches!(fail(2, Cause::Lost), Next::Rest { cause: Cause::StartFailed, .. }));
        assert!(matches!(fail(0, Cause::Auth), Next::Rest { cause: Cause::Auth, .. }));
        assert!(
            matches!(fail(2, Cause::UsageLimit), Next::Again { effort, .. } if effort.parks == 1)
        );
    }

    #[test]
    fn backoff_doubles_to_five_minutes() {
        let limits = Limits::default();
        let seconds =
            [0, 1, 2, 3, 4, 5, 6, 7, 99].map(|n| backoff(n, Jitter::NONE, &limits).as_millis());
        assert_eq!(seconds.map(|ms| ms / 1_000), [10, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(backoff(1, Jitter::from_bits(u32::MAX), &limits).as_millis(), 5_001);
        assert_eq!(backoff(1, Jitter::from_bits(1 << 31), &limits).as_millis(), 7_500);
    }

    #[test]
    fn a_persons_act_renews_tries_but_forgets_no_fruitless_end() {
        let effort = Effort { tries: 1, failed_starts: 2, parks: 3, fruitless: 4 };
        assert_eq!(effort.renewed(), Effort { fruitless: 4, ..Effort::default() });
    }

    proptest! {
        #[test]
        fn backoff_stays_within_half_and_the_whole(n in 0u32..80, bits: u32) {
            let limits = Limits::default();
            let full = backoff(n, Jitter::NONE, &limits).as_millis();
            let some = backoff(n, Jitter::from_bits(bits), &limits).as_millis();
            prop_assert!(some <= full && some >= full / 2 && full <= 300_000);
        }

        #[test]
        fn caps_are_never_exceeded(
            causes in prop::collection::vec(prop::sample::select(Cause::ALL), 1..60),
            made in prop::collection::vec(any::<bool>(), 60),
            max_attempts in 1u32..6,
        ) {
            let caps = Caps::default();
            let mut effort = Effort::default();
            let mut started = 0;
            for (cause, made) in causes.into_iter().zip(made) {
                let progress = if made { Progress::Made } else { Progress::None };
                started += 1;
                match next(effort, failure(cause, progress), max_attempts) {
                    Next::Again { effort: counted, .. } => effort = counted,
                    Next::Rest { .. } => break,
                }
                prop_assert!(effort.tries < max_attempts && effort.parks <= caps.parks);
                prop_assert!(started <= max_attempts + caps.parks);
            }
        }
    }
}
