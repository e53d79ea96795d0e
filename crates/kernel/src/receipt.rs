//! The stop receipt: what is certain about a stopped attempt, and when a stop is acknowledged.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, Phase, Proof};
use crate::id::AttemptNumber;
use crate::planted::{self, Bug};
use crate::publish::{CommitId, Publish};
use crate::task::State;
use crate::time::Timestamp;

/// The end of a missing range whose end nobody knows: the machine that had it is gone.
pub const UNKNOWN_END: u64 = i64::MAX as u64;

/// What is kept of an attempt's transcript.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TranscriptSeal {
    /// Its length in bytes.
    pub length: u64,
    /// The hash of its bytes, in hexadecimal.
    pub hash: String,
    /// The ranges of bytes that could not be had; none, if it is complete.
    pub missing: Vec<(u64, u64)>,
}

impl TranscriptSeal {
    /// Whether every byte is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// What the stopper is given when everything is certain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The attempt that was stopped; none, if none was made or the last one had ended before.
    pub attempt: Option<AttemptNumber>,
    /// When the stop was committed.
    pub stopped_at: Timestamp,
    /// When it was proven.
    pub proven_at: Timestamp,
    /// The last effect that was accepted from the attempt before the stop.
    pub last_effect: Option<String>,
    /// The commit that was pushed before the stop came, if one was.
    pub pushed: Option<CommitId>,
    /// How many processes were seen and killed.
    pub processes: u32,
    /// Why it is certain that they are gone.
    pub proof: Option<Proof>,
    /// What is kept of the transcript.
    pub transcript: Option<TranscriptSeal>,
}

/// What a stop still waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = StopPending))]
pub enum Pending {
    /// The proof that the processes are gone; at the latest when the lease ends.
    Proof {
        /// The committed end of the lease.
        lease_end: Timestamp,
    },
    /// It is not known yet whether the push landed.
    Publish,
}

/// How a stop of a task stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody stopped it.
    NotStopped,
    /// The intent is committed; this is waited for.
    Stopping(Vec<Pending>),
    /// It can be acknowledged.
    Stopped,
}

/// Tells whether a stop can be acknowledged: the task is cancelled, the processes of all its
/// attempts are proven gone, and it is known what became of their pushes. All, not the last alone:
/// a `retry` has a new session, which does not wait for what is left of the old one.
pub fn standing<'a>(state: &State, attempts: impl IntoIterator<Item = &'a Attempt>) -> Standing {
    if !matches!(state, State::Cancelled) {
        return Standing::NotStopped;
    }
    let pending: Vec<_> = attempts.into_iter().flat_map(pending).collect();
    if pending.is_empty() { Standing::Stopped } else { Standing::Stopping(pending) }
}

/// What is not certain about one attempt.
fn pending(attempt: &Attempt) -> impl Iterator<Item = Pending> {
    let proof = match attempt.phase {
        Phase::Ended(..) => None,
        Phase::Ending(_) if planted::is(Bug::ReceiptWithoutProof) => None,
        Phase::Claimed | Phase::Running | Phase::Publishing { .. } | Phase::Ending(_) => {
            Some(Pending::Proof { lease_end: attempt.lease_end })
        }
    };
    let publish = match attempt.publish {
        Publish::Open(_) if planted::is(Bug::ReceiptBeforeSettled) => None,
        Publish::Open(_) => Some(Pending::Publish),
        Publish::None | Publish::Pushed(_) | Publish::NotPushed(_) => None,
    };
    [proof, publish].into_iter().flatten()
}

/// The commit that a stopped attempt had pushed.
pub const fn pushed(attempt: &Attempt) -> Option<CommitId> {
    match attempt.publish {
        Publish::Pushed(push) => Some(push.commit),
        Publish::None | Publish::Open(_) | Publish::NotPushed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Outcome;
    use crate::id::Epoch;
    use crate::publish::{Push, PushOutcome};
    use crate::task::Plan;

    const LEASE_END: Timestamp = Timestamp::from_millis(60_000);
    const PUSH: Push = Push { commit: CommitId::from_sha1([3; 20]), expected: None };

    fn attempt(phase: Phase, publish: Publish) -> Attempt {
        let claimed = Attempt::claimed(AttemptNumber(1), Epoch(1), LEASE_END, Timestamp::EPOCH);
        Attempt { phase, publish, ..claimed }
    }

    #[test]
    fn a_stop_is_acknowledged_only_with_proof_and_a_settled_publish() {
        let ending = Phase::Ending(Outcome::Cancelled);
        let ended = Phase::Ended(Outcome::Cancelled, Proof::Observed);
        let proof = Pending::Proof { lease_end: LEASE_END };
        let open = Publish::Open(PUSH);
        for (phase, publish, expected) in [
            (ending, Publish::None, Standing::Stopping(vec![proof])),
            (ending, open, Standing::Stopping(vec![proof, Pending::Publish])),
            (ended, open, Standing::Stopping(vec![Pending::Publish])),
            (ended, Publish::Pushed(PUSH), Standing::Stopped),
            (ended, Publish::NotPushed(PUSH), Standing::Stopped),
            (ended, Publish::None, Standing::Stopped),
        ] {
            let row = attempt(phase, publish);
            assert_eq!(standing(&State::Cancelled, Some(&row)), expected);
            let last = attempt(ended, Publish::None);
            assert_eq!(standing(&State::Cancelled, [&row, &last]), expected, "not the last alone");
        }
        assert_eq!(standing(&State::Cancelled, None), Standing::Stopped, "it never ran");
    }

    #[test]
    fn what_nobody_stopped_has_no_receipt() {
        for state in [State::Completed, State::Pending { plan: Plan::Fresh }] {
            assert_eq!(standing(&state, None), Standing::NotStopped);
        }
    }

    #[test]
    fn the_receipt_says_what_was_pushed_before_the_stop_came() {
        let ended = Phase::Ended(Outcome::Cancelled, Proof::Observed);
        let pushed_by = |publish| pushed(&attempt(ended, publish));
        assert_eq!(pushed_by(PUSH.settled(PushOutcome::Pushed)), Some(PUSH.commit));
        assert_eq!(pushed_by(PUSH.settled(PushOutcome::NotPushed)), None);
        assert_eq!(pushed_by(Publish::None), None);
    }

    #[test]
    fn a_transcript_is_complete_when_nothing_is_missing() {
        let seal = |missing| TranscriptSeal { length: 9, hash: "00".into(), missing };
        assert!(seal(vec![]).is_complete());
        assert!(!seal(vec![(3, 5)]).is_complete());
    }
}
