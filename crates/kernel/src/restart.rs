//! Starting a role's worker when tasks wait and nobody is there to take them: once, not twice.
//!
//! ```text
//!   decide ──► SENT ──ack started──► STARTED ──join──► OVER(joined)
//!                └──────────┬───────────┘
//!                           ▼ ack failed · deadline · role stopped
//!                         OVER(failed · expired · withdrawn)
//! ```
//!
//! A start is *pending* until its worker has joined, not merely until the runner has answered:
//! in between there is neither a worker nor a command to be seen, and a second trigger would stop
//! what the first one started.
//!
//! Two keys let the database refuse the second of two concurrent starts. [`Start::pending_key`] is
//! unique, so one is pending. [`Start::generation_key`] is unique, so a decision that was made
//! before another start was made, joined and done with cannot be committed after it; the pending
//! key alone would let it stop a worker that has just begun. Both belong to the kernel's contract
//! with the store.
//!
//! Rejected: a lock around look and commit, which a paused node holds or outlives; and a check for
//! an existing command without a key, which two nodes pass at the same time.

use serde::{Deserialize, Serialize};

use crate::breaker::{Breaker, Gate};
use crate::cause::Cause;
use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::id::{CommandId, RunnerId, WorkerId};
use crate::limits::{Limits, Switches};
use crate::role::{Desired, Role, RoleName};
use crate::time::Timestamp;

/// The number of a start within its role; numbers only grow, and lower ones are refused.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A command to a runner to start a role's worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Its id, which the worker names when it joins.
    pub id: CommandId,
    /// The role.
    pub role: RoleName,
    /// Its number within the role.
    pub generation: Generation,
    /// Who is to start it.
    pub runner: RunnerId,
    /// Until when the worker has to have joined.
    pub deadline: Timestamp,
    /// Where it is in its life.
    pub phase: Phase,
}

/// Where a start command is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The runner has not answered.
    Sent,
    /// The runner has started the worker, which has not joined.
    Started,
    /// Nothing more will come of it.
    Over(End),
}

/// What came of a start command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A worker.
    Joined(WorkerId),
    /// The runner could not start one.
    Failed(Cause),
    /// No worker within the deadline.
    Expired,
    /// The role was stopped before.
    Withdrawn,
}

/// What a runner answers to a start command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledgement {
    /// The worker's process is up.
    Started,
    /// It is not.
    Failed(Cause),
}

/// What happens to a start command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The runner answers.
    Acknowledge(Acknowledgement),
    /// A worker joins and names this command.
    Join(WorkerId),
    /// A sweep proposes that its deadline has passed.
    ExpireDeadline,
    /// A person stopped the role.
    Withdraw,
}

/// A command's change, with what it asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The command to store.
    pub start: Start,
    /// What has to be done about it, in the same commit.
    pub effects: Vec<Effect>,
}

/// What a command's change asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Tell the role's breaker: see [`crate::breaker::Event::Exited`].
    CountExit(Cause),
    /// Another start may be due.
    ReviewRole,
    /// End whatever the runner has started for it.
    StopWorker(RunnerId),
}

/// Why a command does not take an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// The command is over: end what was started for it.
    Superseded,
    /// A person stopped the role.
    RoleStopped,
}

impl Denial {
    /// The refusal's stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::RoleStopped => "role_stopped",
        }
    }
}

impl Start {
    /// While the command is pending: a value that no other row may have. Checked by the database.
    pub const fn pending_key(&self) -> Option<&RoleName> {
        match self.phase {
            Phase::Sent | Phase::Started => Some(&self.role),
            Phase::Over(_) => None,
        }
    }

    /// A value that no other row may ever have. Checked by the database.
    pub const fn generation_key(&self) -> (&RoleName, Generation) {
        (&self.role, self.generation)
    }

    /// Whether `worker`, which names this command, may join the role.
    pub fn admit(
        &self,
        worker: WorkerId,
        role: &Role,
        now: Timestamp,
    ) -> Disposition<Transition, Denial> {
        match role.desired {
            Desired::Stopped(_) => Deny(Denial::RoleStopped),
            Desired::Running => self.step(Event::Join(worker), now),
        }
    }

    /// The command after `event`.
    pub fn step(&self, event: Event, now: Timestamp) -> Disposition<Transition, Denial> {
        use Acknowledgement::{Failed, Started};
        use Event::{Acknowledge, ExpireDeadline, Join, Withdraw};
        let late = now > self.deadline;
        match (self.phase, event) {
            // After the deadline another start may be on its way, even if no sweep has said so.
            (Phase::Sent | Phase::Started, Acknowledge(Started) | Join(_)) if late => {
                Deny(Denial::Superseded)
            }
            (Phase::Sent, Acknowledge(Started)) => self.to(Phase::Started, &[]),
            (Phase::Sent | Phase::Started, Acknowledge(Failed(cause))) => self.to(
                Phase::Over(End::Failed(cause)),
                &[Effect::CountExit(cause), Effect::ReviewRole],
            ),
            (Phase::Sent | Phase::Started, Join(worker)) => {
                self.to(Phase::Over(End::Joined(worker)), &[])
            }
            (Phase::Sent | Phase::Started, ExpireDeadline) if late => self.to(
                Phase::Over(End::Expired),
                &[
                    Effect::CountExit(Cause::NeverStarted),
                    Effect::StopWorker(self.runner),
                    Effect::ReviewRole,
                ],
            ),
            (Phase::Sent | Phase::Started, Withdraw) => {
                self.to(Phase::Over(End::Withdrawn), &[Effect::StopWorker(self.runner)])
            }
            // The worker connects again, or the runner's answer comes after it.
            (Phase::Over(End::Joined(known)), Join(worker)) if known == worker => Ignore,
            (Phase::Started | Phase::Over(End::Joined(_)), Acknowledge(Started)) => Ignore,
            (
                Phase::Over(End::Failed(_) | End::Expired | End::Withdrawn),
                Acknowledge(Started) | Join(_),
            )
            | (Phase::Over(End::Joined(_)), Join(_)) => Deny(Denial::Superseded),
            (Phase::Sent | Phase::Started, ExpireDeadline)
            | (Phase::Over(_), Acknowledge(Failed(_)) | ExpireDeadline | Withdraw) => Ignore,
        }
    }

    fn to(&self, phase: Phase, effects: &[Effect]) -> Disposition<Transition, Denial> {
        let start = Self { phase, ..self.clone() };
        Accept(Transition { start, effects: effects.to_vec() })
    }
}

/// What a runner remembers of a role's start commands, stored on its own disk.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Performed {
    /// The highest generation it has been told.
    pub generation: Generation,
    /// What it answered, once it had carried that one out.
    pub answer: Option<Acknowledgement>,
}

/// What a runner does about a start command, under the role's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Store this; stop every worker of the role that it hosts; start one; store the answer, and
    /// answer.
    StopThenStart(Performed),
    /// It was carried out: answer the same again.
    Repeat(Acknowledgement),
    /// A newer one was seen: do nothing.
    Refuse,
}

impl Performed {
    /// What to do about a command of this generation, however often it is delivered.
    pub fn plan(&self, generation: Generation) -> Plan {
        match (generation.cmp(&self.generation), self.answer) {
            (std::cmp::Ordering::Less, _) => Plan::Refuse,
            (std::cmp::Ordering::Equal, Some(answer)) => Plan::Repeat(answer),
            // Told before, but the runner fell before it had answered.
            (std::cmp::Ordering::Equal, None) | (std::cmp::Ordering::Greater, _) => {
                Plan::StopThenStart(Self { generation, answer: None })
            }
        }
    }
}

/// A runner, as a place for a role's worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// The runner.
    pub runner: RunnerId,
    /// Whether it could host the worker.
    pub fitness: Fitness,
}

/// Whether a runner could host a role's worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fitness {
    /// It has not the agent, the provider or the isolation that the role asks for.
    Unfit,
    /// It has not recently proven that it is alive.
    Silent,
    /// It has this many free places.
    Fit {
        /// How many.
        free: u32,
    },
}

/// Everything that the decision reads. All of it belongs to the commit's read set.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The role, with what a person wants of it.
    pub role: &'a Role,
    /// Its breaker.
    pub breaker: &'a Breaker,
    /// How many of its tasks could be claimed now.
    pub claimable: u32,
    /// How many of its workers are live.
    pub live: u32,
    /// Its newest start command, over or not.
    pub newest: Option<&'a Start>,
    /// The runners that are known.
    pub hosts: &'a [Host],
}

/// What is to be done about a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Commit this command; its two keys say whether it was overtaken.
    Start(Start),
    /// Nothing, for all these reasons.
    Hold(Vec<Refusal>),
}

/// Why no worker is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Refusal {
    /// Automatic restarts are switched off.
    SwitchedOff,
    /// A person stopped the role.
    RoleStopped,
    /// The role has zero workers, by configuration.
    NoWorkersWanted,
    /// None of its tasks could be claimed.
    NoClaimableTask,
    /// There is a worker.
    LiveWorkerPresent {
        /// How many.
        live: u32,
    },
    /// A start is on its way.
    CommandPending {
        /// Which.
        command: CommandId,
        /// Until when.
        deadline: Timestamp,
    },
    /// Workers fell too often.
    BreakerOpenUntil {
        /// The end of the cool-down.
        until: Timestamp,
    },
    /// Workers cannot work until a person acts.
    BreakerHeld {
        /// Why.
        cause: Cause,
    },
    /// No runner is live, fit and has a free place.
    NoRunnerCanHost {
        /// How many runners are known.
        known: u32,
    },
}

impl Refusal {
    /// The reason's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SwitchedOff => "switched_off",
            Self::RoleStopped => "role_stopped",
            Self::NoWorkersWanted => "no_workers_wanted",
            Self::NoClaimableTask => "no_claimable_task",
            Self::LiveWorkerPresent { .. } => "live_worker_present",
            Self::CommandPending { .. } => "command_pending",
            Self::BreakerOpenUntil { .. } => "breaker_open_until",
            Self::BreakerHeld { .. } => "breaker_held",
            Self::NoRunnerCanHost { .. } => "no_runner_can_host",
        }
    }
}

/// Whether a worker of the role is to be started now, under the new id `id`.
pub fn decide(
    look: &Look<'_>,
    id: CommandId,
    now: Timestamp,
    limits: &Limits,
    switches: &Switches,
) -> Decision {
    let host = best_host(look.hosts);
    let refusals = refusals(look, host, now, switches);
    match host {
        Some(runner) if refusals.is_empty() => Decision::Start(Start {
            id,
            role: look.role.name.clone(),
            generation: look.newest.map(|start| start.generation).unwrap_or_default().next(),
            runner,
            deadline: now.after(limits.start_command),
            phase: Phase::Sent,
        }),
        Some(_) | None => Decision::Hold(refusals),
    }
}

fn refusals(
    look: &Look<'_>,
    host: Option<RunnerId>,
    now: Timestamp,
    switches: &Switches,
) -> Vec<Refusal> {
    let switched_off = (!switches.auto_restart).then_some(Refusal::SwitchedOff);
    let unwanted = match look.role.desired {
        Desired::Stopped(_) => Some(Refusal::RoleStopped),
        Desired::Running => (look.role.wanted() == 0).then_some(Refusal::NoWorkersWanted),
    };
    let no_task = (look.claimable == 0).then_some(Refusal::NoClaimableTask);
    let live = (look.live > 0).then_some(Refusal::LiveWorkerPresent { live: look.live });
    // A command past its deadline is still in the way until a sweep has counted it.
    let pending = look
        .newest
        .filter(|start| start.pending_key().is_some())
        .map(|start| Refusal::CommandPending { command: start.id, deadline: start.deadline });
    let breaker = match look.breaker.gate(now) {
        Gate::Open => None,
        Gate::ShutUntil(until) => Some(Refusal::BreakerOpenUntil { until }),
        Gate::ShutFor(cause) => Some(Refusal::BreakerHeld { cause }),
    };
    let known = u32::try_from(look.hosts.len()).unwrap_or(u32::MAX);
    let no_host = host.is_none().then_some(Refusal::NoRunnerCanHost { known });
    [switched_off, unwanted, no_task, live, pending, breaker, no_host]
        .into_iter()
        .flatten()
        .collect()
}

/// The runner with the most free places; of equals, the one with the smallest id.
fn best_host(hosts: &[Host]) -> Option<RunnerId> {
    hosts
        .iter()
        .filter_map(|host| match host.fitness {
            Fitness::Fit { free } if free > 0 => Some((free, host.runner)),
            Fitness::Fit { .. } | Fitness::Silent | Fitness::Unfit => None,
        })
        .max_by_key(|(free, runner)| (*free, std::cmp::Reverse(*runner)))
        .map(|(_, runner)| runner)
}

#[cfg(test)]
mod tests;
