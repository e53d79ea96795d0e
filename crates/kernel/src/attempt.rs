//! The life of an attempt, with its two ends, and its lease.
//!
//! ```text
//!  CLAIMED ──► RUNNING ──► PUBLISHING ──┐
//!     └───────────┴─────────────────────┴──► ENDING(outcome) ──► ENDED(outcome)
//! ```
//!
//! The task moves in the commit that enters ENDING; from then on the attempt may only append.
//! ENDED needs proof that the processes are gone, or the passing of the committed lease end; what
//! may be frozen has no lease that could end it, and is seen to be gone or not proven at all. A
//! session is *free* when its last attempt is ENDED and its publish is settled: only then can the
//! next attempt be claimed, so at most one attempt of a session can act.

use serde::{Deserialize, Serialize};

use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::id::{AttemptNumber, Epoch};
use crate::limits::Limits;
use crate::planted::{self, Bug};
use crate::publish::{Publish, Push, PushOutcome};
use crate::time::Timestamp;

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Outcome {
    /// The agent succeeded.
    Succeeded,
    /// It asked a question and was not held until the answer.
    Question,
    /// It failed.
    Failed,
    /// A deadline passed.
    TimedOut,
    /// A person, or a stopped role, ended it.
    Cancelled,
    /// Its budget was used up.
    BudgetExceeded,
    /// Nobody could see it any more.
    Lost,
}

/// Why it is certain that an attempt's processes are gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Proof {
    /// They were seen to be gone.
    Observed,
    /// The shim kills its sandbox before this lease end, which has passed.
    LeaseExpired,
    /// The agent is a person's own: it is fenced, never killed.
    NotOurs,
}

/// Where an attempt is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AttemptPhase))]
pub enum Phase {
    /// Made in the commit of the claim; the sandbox is being prepared.
    Claimed,
    /// The agent may act.
    Running,
    /// The agent is gone; its work is being pushed, until `due`.
    Publishing {
        /// The publish deadline, the only one that runs now.
        due: Timestamp,
    },
    /// The task has moved on; only appends are taken.
    Ending(Outcome),
    /// The processes are gone.
    Ended(Outcome, Proof),
}

/// Whether an attempt's sandbox may be frozen. What is frozen outlasts every lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Frozen {
    /// It is not.
    No,
    /// It was when the attempt was claimed for it, and is until it is known to go on.
    Before,
    /// The attempt's runner has said that it freezes it.
    Now,
}

/// The part of an attempt's row that decisions read and write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// Its number within its task.
    pub number: AttemptNumber,
    /// Its fencing number within its session.
    pub epoch: Epoch,
    /// Where it is in its life.
    pub phase: Phase,
    /// What was published of it.
    pub publish: Publish,
    /// The committed end of its lease.
    pub lease_end: Timestamp,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When it last reported that it is being prepared.
    pub prepared_at: Timestamp,
    /// When the agent was allowed to start.
    pub started_at: Option<Timestamp>,
    /// The absolute deadline, moved on by the time a question was held.
    pub deadline: Option<Timestamp>,
    /// Since when a question of it is held; its clocks stand still.
    pub held_since: Option<Timestamp>,
    /// Whether its sandbox may be frozen.
    pub frozen: Frozen,
}

/// What happens to an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The runner is still preparing the sandbox.
    Prepared,
    /// A beat was committed: the lease now ends then.
    Renewed {
        /// The new end of the lease.
        lease_end: Timestamp,
    },
    /// The agent may be executed.
    Start,
    /// A question is held open.
    Hold,
    /// The held question was answered.
    Release,
    /// The sandbox is about to be frozen.
    Freeze,
    /// The sandbox that it was claimed for goes on, under its lease.
    Thawed,
    /// Its machine is taken for lost, after it was waited for until then: nobody will see again
    /// what is frozen on it.
    GivenUp {
        /// The last moment at which it was waited for.
        waited_until: Timestamp,
    },
    /// The work is to be pushed.
    OpenPublish(Push),
    /// It is known what became of the push.
    Settled(PushOutcome),
    /// The attempt is over.
    End(Outcome),
    /// The processes are gone, or must be.
    Proven(Proof),
}

/// Why an attempt does not take an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// The attempt is not in a phase that takes it.
    Phase(Phase),
    /// The absolute deadline passed before the gate was opened.
    DeadlinePassed {
        /// When.
        deadline: Timestamp,
    },
    /// The lease would end before the publish deadline: renew first.
    LeaseTooShort {
        /// The committed end of the lease.
        lease_end: Timestamp,
        /// What it has to outlast.
        due: Timestamp,
    },
    /// The lease has not ended yet, so it proves nothing.
    LeaseStillHeld {
        /// The committed end of the lease.
        lease_end: Timestamp,
    },
    /// The sandbox may be frozen, so that the end of the lease proves nothing.
    MayBeFrozen,
    /// The machine that has what is frozen is still waited for.
    StillWaitedFor {
        /// The last moment at which it is.
        until: Timestamp,
    },
    /// Another push of this attempt was recorded.
    OtherPush,
}

impl Attempt {
    /// A new attempt, made in the commit of its claim.
    pub const fn claimed(
        number: AttemptNumber,
        epoch: Epoch,
        lease_end: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self {
            number,
            epoch,
            phase: Phase::Claimed,
            publish: Publish::None,
            lease_end,
            claimed_at: now,
            prepared_at: now,
            started_at: None,
            deadline: None,
            held_since: None,
            frozen: Frozen::No,
        }
    }

    /// Whether it may still act: claim, run, publish.
    pub const fn may_act(&self) -> bool {
        match self.phase {
            Phase::Claimed | Phase::Running | Phase::Publishing { .. } => true,
            Phase::Ending(_) | Phase::Ended(..) => false,
        }
    }

    /// Whether its session may go on with another attempt.
    pub fn leaves_session_free(&self) -> bool {
        let settled = self.publish.is_settled() || planted::is(Bug::SessionFreedEarly);
        matches!(self.phase, Phase::Ended(..)) && settled
    }

    /// The attempt after `event`.
    pub fn step(&self, event: Event, now: Timestamp, limits: &Limits) -> Disposition<Self, Denial> {
        use Phase::{Claimed, Ended, Ending, Publishing, Running};
        match (self.phase, event) {
            (Claimed, Event::Prepared) => Accept(Self { prepared_at: now, ..*self }),
            (Claimed | Running | Publishing { .. }, Event::Renewed { lease_end }) => {
                // A reordered answer must not shorten what was promised before.
                Accept(Self { lease_end: self.lease_end.max(lease_end), ..*self })
            }
            (Claimed, Event::Start) => Accept(Self {
                phase: Running,
                started_at: Some(now),
                deadline: Some(now.after(limits.absolute)),
                ..*self
            }),
            (Running, Event::Hold) => match self.held_since {
                None => Accept(Self { held_since: Some(now), ..*self }),
                Some(_) => Ignore,
            },
            (Running, Event::Release) => self.release(now),
            (Running, Event::OpenPublish(push)) => self.open_publish(push, now, limits),
            (Publishing { .. }, Event::OpenPublish(push)) => {
                match self.publish.push() == Some(push) {
                    true => Ignore,
                    false => Deny(Denial::OtherPush),
                }
            }
            (Claimed | Running | Publishing { .. }, Event::End(outcome)) => {
                Accept(Self { phase: Ending(outcome), held_since: None, ..*self })
            }
            (Running | Publishing { .. } | Ending(_), Event::Freeze) => match self.frozen {
                Frozen::No | Frozen::Before => Accept(Self { frozen: Frozen::Now, ..*self }),
                Frozen::Now => Ignore,
            },
            (Running | Publishing { .. } | Ending(_), Event::Thawed) => match self.frozen {
                Frozen::Before => Accept(Self { frozen: Frozen::No, ..*self }),
                // Told late: it was frozen again since.
                Frozen::No | Frozen::Now => Ignore,
            },
            (Ending(_), Event::GivenUp { waited_until }) => self.give_up(waited_until, now),
            (Ending(outcome), Event::Proven(proof)) => self.prove(outcome, proof, now),
            (Publishing { .. } | Ending(_) | Ended(..), Event::Settled(outcome)) => {
                self.settle(outcome)
            }
            // Said again, because the answer was lost.
            (Running | Publishing { .. }, Event::Start | Event::Prepared)
            | (Ended(..), Event::Proven(_)) => Ignore,
            (Ending(_) | Ended(..), Event::End(_)) => Ignore,
            (
                Claimed,
                Event::Hold
                | Event::Release
                | Event::Freeze
                | Event::Thawed
                | Event::OpenPublish(_)
                | Event::Settled(_)
                | Event::Proven(_),
            )
            | (Running, Event::Settled(_) | Event::Proven(_))
            | (Publishing { .. }, Event::Hold | Event::Release | Event::Proven(_))
            | (Ended(..), Event::Freeze | Event::Thawed)
            | (Claimed | Running | Publishing { .. } | Ended(..), Event::GivenUp { .. })
            | (
                Ending(_) | Ended(..),
                Event::Prepared
                | Event::Renewed { .. }
                | Event::Start
                | Event::Hold
                | Event::Release
                | Event::OpenPublish(_),
            ) => Deny(Denial::Phase(self.phase)),
        }
    }

    /// Nobody will see again what is frozen on a machine that was waited for long enough.
    fn give_up(&self, waited_until: Timestamp, now: Timestamp) -> Disposition<Self, Denial> {
        match now > waited_until {
            true => Accept(Self { frozen: Frozen::No, ..*self }),
            false => Deny(Denial::StillWaitedFor { until: waited_until }),
        }
    }

    /// The clocks go on: the deadline moves by as long as the question was held.
    fn release(&self, now: Timestamp) -> Disposition<Self, Denial> {
        let Some(since) = self.held_since else { return Ignore };
        let held = now.since(since);
        let deadline = self.deadline.map(|deadline| deadline.after(held));
        Accept(Self { held_since: None, deadline, ..*self })
    }

    /// The gate: a push may begin only before the deadline, and only if it ends within the lease.
    fn open_publish(
        &self,
        push: Push,
        now: Timestamp,
        limits: &Limits,
    ) -> Disposition<Self, Denial> {
        let due = now.after(limits.publish);
        if self.held_since.is_some() {
            return Deny(Denial::Phase(self.phase)); // questions never publish
        }
        match self.deadline {
            Some(deadline) if now > deadline && !planted::is(Bug::GateAfterDeadline) => {
                Deny(Denial::DeadlinePassed { deadline })
            }
            _ if self.lease_end <= due => {
                Deny(Denial::LeaseTooShort { lease_end: self.lease_end, due })
            }
            _ => Accept(Self {
                phase: Phase::Publishing { due },
                publish: Publish::Open(push),
                ..*self
            }),
        }
    }

    fn settle(&self, outcome: PushOutcome) -> Disposition<Self, Denial> {
        match self.publish {
            Publish::Open(push) => Accept(Self { publish: push.settled(outcome), ..*self }),
            // What is settled stays settled, whoever settles again.
            Publish::Pushed(_) | Publish::NotPushed(_) => Ignore,
            Publish::None => Deny(Denial::Phase(self.phase)),
        }
    }

    fn prove(&self, outcome: Outcome, proof: Proof, now: Timestamp) -> Disposition<Self, Denial> {
        match proof {
            Proof::LeaseExpired if now < self.lease_end && !planted::is(Bug::LeaseProofEarly) => {
                Deny(Denial::LeaseStillHeld { lease_end: self.lease_end })
            }
            Proof::LeaseExpired if self.frozen != Frozen::No => Deny(Denial::MayBeFrozen),
            Proof::LeaseExpired | Proof::Observed | Proof::NotOurs => {
                Accept(Self { phase: Phase::Ended(outcome, proof), ..*self })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::CommitId;
    use crate::time::Span;

    const W: CommitId = CommitId::from_sha1([7; 20]);
    const OTHER: CommitId = CommitId::from_sha1([8; 20]);
    const PUSH: Push = Push { commit: W, expected: None };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn claimed() -> Attempt {
        Attempt::claimed(AttemptNumber(1), Epoch(1), at(600), at(0))
    }

    /// Plays the events, each at its second, and tells how each was taken.
    fn play(events: &[(i64, Event)]) -> (Attempt, Vec<&'static str>) {
        let mut attempt = claimed();
        let mut taken = Vec::new();
        for (second, event) in events {
            taken.push(match attempt.step(*event, at(*second), &Limits::default()) {
                Accept(next) => {
                    attempt = next;
                    "accept"
                }
                Ignore => "ignore",
                Deny(_) => "deny",
            });
        }
        (attempt, taken)
    }

    #[test]
    fn a_published_success_ends_in_two_steps() {
        let (attempt, taken) = play(&[
            (1, Event::Prepared),
            (2, Event::Start),
            (9, Event::OpenPublish(PUSH)),
            (10, Event::Settled(PushOutcome::Pushed)),
            (10, Event::End(Outcome::Succeeded)),
        ]);
        assert_eq!(taken, ["accept"; 5]);
        assert!(!attempt.may_act() && !attempt.leaves_session_free());
        let proven = attempt.step(Event::Proven(Proof::Observed), at(11), &Limits::default());
        assert!(proven.accepted().unwrap().leaves_session_free());
    }

    #[test]
    fn the_row_keeps_when_it_was_prepared_and_started() {
        let (attempt, _) = play(&[(3, Event::Prepared), (5, Event::Start)]);
        assert_eq!((attempt.claimed_at, attempt.prepared_at), (at(0), at(3)));
        assert_eq!((attempt.started_at, attempt.deadline), (Some(at(5)), Some(at(3_605))));
    }

    #[test]
    fn a_held_attempt_does_not_publish_and_is_not_held_once_it_ends() {
        let (attempt, taken) = play(&[
            (1, Event::Start),
            (2, Event::Hold),
            (3, Event::OpenPublish(PUSH)),
            (4, Event::End(Outcome::Question)),
        ]);
        assert_eq!(taken, ["accept", "accept", "deny", "accept"]);
        assert_eq!((attempt.held_since, attempt.publish), (None, Publish::None));
    }

    #[test]
    fn a_session_is_free_only_when_ended_and_settled() {
        let (attempt, taken) = play(&[
            (1, Event::Start),
            (2, Event::OpenPublish(PUSH)),
            (3, Event::End(Outcome::Cancelled)),
            (4, Event::Proven(Proof::Observed)),
        ]);
        assert_eq!(taken, ["accept"; 4]);
        assert!(!attempt.leaves_session_free(), "the publish is not settled");
        let settled =
            attempt.step(Event::Settled(PushOutcome::NotPushed), at(9), &Limits::default());
        assert!(settled.accepted().unwrap().leaves_session_free());
    }

    #[test]
    fn the_gate_stays_shut_after_the_deadline_and_near_the_lease_end() {
        let gate = |lease: i64, now_ms: i64| {
            let limits = Limits::default();
            let attempt = Attempt { lease_end: at(lease), ..claimed() };
            let running = attempt.step(Event::Start, at(0), &limits).accepted().unwrap();
            running.step(Event::OpenPublish(PUSH), Timestamp::from_millis(now_ms), &limits)
        };
        assert!(gate(9_999, 3_600_000).accepted().is_some(), "at the deadline");
        assert_eq!(
            gate(9_999, 3_600_001).denied(),
            Some(Denial::DeadlinePassed { deadline: at(3_600) })
        );
        assert!(gate(31, 0).accepted().is_some());
        assert!(matches!(gate(30, 0).denied(), Some(Denial::LeaseTooShort { .. })));
    }

    #[test]
    fn time_held_is_not_counted() {
        let (attempt, taken) = play(&[
            (0, Event::Start),
            (100, Event::Hold),
            (150, Event::Hold),
            (400, Event::Release),
            (500, Event::Release),
        ]);
        assert_eq!(taken, ["accept", "accept", "ignore", "accept", "ignore"]);
        assert_eq!(attempt.deadline, Some(at(3_600 + 300)));
        assert_eq!(attempt.held_since, None);
    }

    #[test]
    fn a_lease_proves_death_only_when_it_is_over() {
        let proven = |ms: i64| {
            let (attempt, _) = play(&[(1, Event::End(Outcome::Lost))]);
            let now = Timestamp::from_millis(ms);
            attempt.step(Event::Proven(Proof::LeaseExpired), now, &Limits::default())
        };
        assert_eq!(proven(599_999).denied(), Some(Denial::LeaseStillHeld { lease_end: at(600) }));
        assert!(proven(600_000).accepted().is_some());
    }

    #[test]
    fn what_may_be_frozen_is_not_proven_by_its_lease() {
        let proven = |frozen: Frozen, events: &[Event]| {
            let limits = Limits::default();
            let mut attempt = Attempt { frozen, ..claimed() };
            for event in events.iter().chain(&[Event::End(Outcome::Cancelled)]) {
                attempt = attempt.step(*event, at(1), &limits).accepted().unwrap_or(attempt);
            }
            let observed = attempt.step(Event::Proven(Proof::Observed), at(2), &limits);
            assert!(observed.accepted().is_some(), "who sees it gone may say so: {attempt:?}");
            attempt.step(Event::Proven(Proof::LeaseExpired), at(601), &limits)
        };
        let (start, freeze, thawed) = (Event::Start, Event::Freeze, Event::Thawed);
        let frozen = Some(Denial::MayBeFrozen);
        assert_eq!(proven(Frozen::No, &[start, freeze]).denied(), frozen);
        assert_eq!(proven(Frozen::Before, &[]).denied(), frozen);
        assert_eq!(proven(Frozen::Before, &[start]).denied(), frozen, "it may not go on yet");
        assert!(proven(Frozen::Before, &[start, thawed]).accepted().is_some());
        let late = &[start, thawed, freeze, thawed];
        assert_eq!(proven(Frozen::Before, late).denied(), frozen, "told late");
        let ending =
            Attempt { frozen: Frozen::Now, phase: Phase::Ending(Outcome::Lost), ..claimed() };
        let give_up = |now| {
            let event = Event::GivenUp { waited_until: at(700) };
            ending.step(event, at(now), &Limits::default())
        };
        let until = at(700);
        assert_eq!(give_up(700).denied(), Some(Denial::StillWaitedFor { until }));
        let given_up = give_up(701).accepted().unwrap();
        assert_eq!(given_up.frozen, Frozen::No);
        let (over, taken) =
            play(&[(1, start), (2, freeze), (3, freeze), (4, Event::OpenPublish(PUSH))]);
        assert_eq!(taken, ["accept", "accept", "ignore", "accept"]);
        assert_eq!(over.frozen, Frozen::Now);
        let (_, taken) = play(&[
            (1, freeze),
            (2, thawed),
            (3, Event::End(Outcome::Lost)),
            (4, Event::Proven(Proof::Observed)),
            (5, freeze),
            (6, thawed),
        ]);
        assert_eq!(taken, ["deny", "deny", "accept", "accept", "deny", "deny"]);
    }

    #[test]
    fn beats_never_shorten_a_lease_and_never_reach_an_ended_attempt() {
        let beat = Event::Renewed { lease_end: at(700) };
        let (attempt, taken) = play(&[
            (1, beat),
            (2, Event::Renewed { lease_end: at(650) }),
            (3, Event::End(Outcome::Cancelled)),
            (4, Event::Renewed { lease_end: at(900) }),
        ]);
        assert_eq!(taken, ["accept", "accept", "accept", "deny"]);
        assert_eq!(attempt.lease_end, at(700));
    }

    #[test]
    fn what_is_said_twice_is_ignored_and_another_push_is_denied() {
        let (attempt, taken) = play(&[
            (1, Event::Start),
            (1, Event::Start),
            (2, Event::OpenPublish(PUSH)),
            (2, Event::OpenPublish(PUSH)),
            (2, Event::OpenPublish(Push { commit: OTHER, expected: None })),
            (3, Event::Settled(PushOutcome::Pushed)),
            (3, Event::Settled(PushOutcome::NotPushed)),
            (4, Event::End(Outcome::Succeeded)),
            (4, Event::End(Outcome::Failed)),
            (5, Event::Proven(Proof::Observed)),
            (5, Event::Proven(Proof::LeaseExpired)),
        ]);
        assert_eq!(
            taken.join(" "),
            "accept ignore accept ignore deny accept ignore accept ignore accept ignore"
        );
        assert_eq!(attempt.publish, Publish::Pushed(PUSH));
        assert_eq!(attempt.phase, Phase::Ended(Outcome::Succeeded, Proof::Observed));
    }

    #[test]
    fn every_phase_takes_every_event_without_going_back() {
        let events = [
            Event::Prepared,
            Event::Renewed { lease_end: at(700) },
            Event::Start,
            Event::Hold,
            Event::Release,
            Event::OpenPublish(PUSH),
            Event::Settled(PushOutcome::Pushed),
            Event::End(Outcome::Failed),
            Event::Proven(Proof::Observed),
        ];
        let phases = [
            Phase::Claimed,
            Phase::Running,
            Phase::Publishing { due: at(30) },
            Phase::Ending(Outcome::Succeeded),
            Phase::Ended(Outcome::Succeeded, Proof::Observed),
        ];
        let taken = phases.map(|phase| {
            let publish = match phase {
                Phase::Claimed | Phase::Running => Publish::None,
                _ => Publish::Open(PUSH),
            };
            let attempt = Attempt { phase, publish, ..claimed() };
            let row = events.map(|event| match attempt.step(event, at(1), &Limits::default()) {
                Accept(next) => {
                    assert!(phases_in_order(phase) <= phases_in_order(next.phase));
                    'a'
                }
                Ignore => 'i',
                Deny(_) => 'd',
            });
            row.into_iter().collect::<String>()
        });
        //               prepared renewed start hold release open settled end proven
        assert_eq!(taken, ["aaaddddad", "iaiaiadad", "iaiddiaad", "ddddddaia", "ddddddaii"]);
    }

    fn phases_in_order(phase: Phase) -> u8 {
        match phase {
            Phase::Claimed => 0,
            Phase::Running => 1,
            Phase::Publishing { .. } => 2,
            Phase::Ending(_) => 3,
            Phase::Ended(..) => 4,
        }
    }

    #[test]
    fn an_agent_of_a_persons_own_is_never_proven_dead_by_us() {
        let (attempt, taken) =
            play(&[(1, Event::End(Outcome::Cancelled)), (1, Event::Proven(Proof::NotOurs))]);
        assert_eq!(taken, ["accept"; 2]);
        assert_eq!(attempt.phase, Phase::Ended(Outcome::Cancelled, Proof::NotOurs));
        assert_eq!(attempt.lease_end.since(at(0)), Span::from_secs(600));
    }
}
