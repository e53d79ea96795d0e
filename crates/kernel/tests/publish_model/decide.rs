//! What nodes decide, with the kernel's own functions, and what their commits change.

use belay_kernel::attempt::{self, Phase, Proof};
use belay_kernel::budget::Standing;
use belay_kernel::claim::{ClaimFacts, SessionSlot};
use belay_kernel::fence;
use belay_kernel::publish::{self, Publish, Push, PushOutcome, Settling};
use belay_kernel::retry::{Jitter, Progress};
use belay_kernel::status::Group;
use belay_kernel::task::{self, Children, Event, State, SuccessFacts, Task};
use belay_kernel::{Clock, Disposition, Epoch, Reading, Span};

use crate::world::{
    Decision, Input, World, commit_of, mark_of, number, timeless, timeless_attempt,
};
use crate::{ATTEMPTS, Belay, LEASE, Twin};

impl Belay {
    fn success() -> SuccessFacts {
        SuccessFacts {
            progress: Progress::Made,
            children: Children::default(),
            budget: Standing::Left,
        }
    }

    /// The kernel's event for an input, if the one who would send it can.
    fn event(&self, world: &World, input: Input) -> Option<Event> {
        match input {
            Input::Claim => {
                let busy = world.attempts.iter().find(|row| !row.leaves_session_free());
                let session = busy.map_or(SessionSlot::Free, |row| SessionSlot::Busy(row.number));
                let facts = ClaimFacts {
                    unfinished_dependencies: 0,
                    session,
                    role: None,
                    budget: Standing::Left,
                    account_probe: None,
                    tree: None,
                };
                let epoch = Epoch(world.attempts.len() as u64 + 1);
                let free = world.attempts.len() < ATTEMPTS;
                free.then_some(Event::Claim { facts, epoch, lease_end: world.now.after(LEASE) })
            }
            Input::Start(index) => {
                let attempt = number(index);
                world.reachable(index).then_some(Event::Start { attempt })
            }
            Input::OpenPublish(index) => {
                let host = &world.hosts[index];
                let current = world.task.state.attempt();
                let attempt = match self.twin {
                    Twin::NoFence => current?,
                    _ => number(index),
                };
                let expected = Some(commit_of(world.remote));
                let push = Push { commit: commit_of(mark_of(index)), expected };
                let ready = host.finished && world.reachable(index) && host.granted.is_none();
                ready.then_some(Event::OpenPublish { attempt, push, budget: Standing::Left })
            }
            Input::Settle(index) => {
                let push = match world.row(index)?.publish {
                    Publish::Open(push) => push,
                    _ => return None,
                };
                let outcome = self.settle(world, push)?;
                Some(Event::Settled { attempt: number(index), outcome, facts: Self::success() })
            }
            Input::Cancel => world.stop_asked.then_some(Event::Cancel),
            Input::Expire(clock) => {
                let row = world.acting()?;
                let due = match clock {
                    Clock::Absolute => row.deadline? < world.now,
                    _ => row.lease_end <= world.now,
                };
                let reading = Reading { clock, measured: Span::MAX, allowed: Span::ZERO };
                let (progress, jitter) = (Progress::Made, Jitter::NONE);
                due.then_some(Event::Expire { attempt: row.number, reading, progress, jitter })
            }
            Input::Proven(..) => None,
        }
    }

    fn settle(&self, world: &World, push: Push) -> Option<PushOutcome> {
        match publish::settle(push, world.remote_for(push)) {
            Settling::Settled(outcome) => Some(outcome),
            Settling::FencePush { .. } if self.twin == Twin::NoFencePush => {
                Some(PushOutcome::NotPushed)
            }
            Settling::FencePush { .. } | Settling::LookAgain => None,
        }
    }

    pub(crate) fn free_node(&self, world: &World) -> Option<usize> {
        match self.twin {
            Twin::NoCompareAndSet => world.nodes.iter().position(Option::is_none),
            _ => world.nodes.iter().all(Option::is_none).then_some(0),
        }
    }

    /// What a node decides on, from the rows as they are now.
    pub(crate) fn decide(&self, world: &World, input: Input) -> Option<Decision> {
        let unchanged = |attempt| Some(Decision { task: world.task, attempt: Some(attempt) });
        if let Input::Proven(index, proof) = input {
            let gone = match proof {
                Proof::Observed => world.hosts[index].observed_gone && world.reachable(index),
                Proof::LeaseExpired | Proof::NotOurs => true,
            };
            let event = attempt::Event::Proven(proof);
            let row = world.row(index).filter(|_| gone)?;
            return unchanged(row.step(event, world.now, &self.policy.limits).accepted()?);
        }
        let event = self.event(world, input)?;
        let step = task::step(&world.task, world.acting(), &event, world.now, &self.policy);
        match (step, event) {
            (Disposition::Accept(next), _) => {
                let attempt = next.attempt.map(timeless_attempt);
                Some(Decision { task: timeless(next.task), attempt })
            }
            // The task has moved on; what became of the push is still recorded with the attempt.
            (Disposition::Deny(task::Denial::Fenced), Event::Settled { attempt, outcome, .. }) => {
                let row = world.attempts.iter().find(|row| row.number == attempt)?;
                let settled = attempt::Event::Settled(outcome);
                unchanged(row.step(settled, world.now, &self.policy.limits).accepted()?)
            }
            (Disposition::Deny(_), Event::Cancel) if self.twin == Twin::NoFinality => {
                let task = Task { state: State::Cancelled, ..world.task };
                Some(Decision { task, attempt: None })
            }
            (Disposition::Ignore | Disposition::Deny(_), _) => None,
        }
    }

    pub(crate) fn commit(&self, world: &mut World, decision: Decision) {
        world.task = decision.task;
        let Some(mut row) = decision.attempt else { return };
        let index = row.number.0 as usize - 1;
        match world.attempts.get_mut(index) {
            Some(stored) => {
                // Leases are renewed outside revisions: a commit never shortens one.
                if self.twin != Twin::LeaseOverwritten {
                    row.lease_end = stored.lease_end.max(row.lease_end);
                }
                *stored = row;
            }
            None => {
                world.attempts.push(row);
                let kill_at = fence::kill_at(row.lease_end, &self.policy.limits);
                world.hosts[index].kill_at = Some(kill_at);
            }
        }
        if row.phase == Phase::Running {
            world.hosts[index].start_replied = true;
        }
        if world.first_final.is_none() && world.task.state.group() == Group::Final {
            world.first_final = Some(world.task.state);
        }
    }
}
