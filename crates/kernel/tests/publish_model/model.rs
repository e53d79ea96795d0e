//! What can happen, what comes of it, and what must hold whatever happens.

use std::collections::BTreeSet;

use belay_kernel::attempt::{self, Attempt, Outcome, Phase, Proof};
use belay_kernel::fence;
use belay_kernel::publish::Publish;
use belay_kernel::receipt;
use belay_kernel::retry::Effort;
use belay_kernel::task::{Plan, Reason, Review, State, Task};
use belay_kernel::{AttemptNumber, Clock, Span, TaskId, Timestamp};
use stateright::{Model, Property};

use crate::world::{Action, Host, Input, Link, World, commit_of, fence_of, mark_of};
use crate::{ATTEMPTS, Belay, END, FINAL, GATE, LEASE, ONE_AGENT, RECORD, STOPPED, Twin};

impl Belay {
    /// What can happen to attempt `index` and the processes and pushes that belong to it.
    fn of_attempt(&self, world: &World, index: usize) -> impl Iterator<Item = Action> + use<> {
        let host = &world.hosts[index];
        let row = &world.attempts[index];
        let reachable = world.reachable(index);
        let open = |wanted: bool, action| wanted.then_some(action);
        let publishing = matches!(row.publish, Publish::Open(_));
        let landable =
            host.granted.is_some_and(|push| push.expected == Some(commit_of(world.remote)));
        let unsure = matches!(row.publish, Publish::Open(push)
            if push.expected == Some(commit_of(world.remote)));
        let killable = reachable || self.twin == Twin::ProofAssumed;
        let ending = matches!(row.phase, Phase::Ending(_));
        [
            open(host.start_replied, Action::Execute(index)),
            open(host.alive, Action::Finish(index)),
            open(host.alive && !host.beat_spent, Action::SendBeat(index)),
            open(
                host.beat_sent_at.is_some() && !host.beat_replied && reachable,
                Action::CommitBeat(index),
            ),
            open(host.beat_replied && reachable, Action::HearBeat(index)),
            open(ending && !host.observed_gone && killable, Action::Kill(index)),
            open(publishing && host.granted.is_none() && reachable, Action::HearGrant(index)),
            open(landable, Action::Land(index)),
            open(unsure, Action::FencePush(index)),
        ]
        .into_iter()
        .flatten()
    }

    /// Time goes on; whoever is past its lease is dead by then.
    fn tick(&self, world: &mut World) {
        world.now = world.now.after(Span::from_millis(1));
        for host in &mut world.hosts {
            let dead_at = host.kill_at.map(|at| at.after(self.policy.limits.kill_bound));
            if dead_at.is_some_and(|at| at <= world.now) {
                host.alive = false;
            }
        }
    }

    fn execute(&self, world: &mut World, index: usize) {
        let Some(row) = world.row(index).copied() else { return };
        let now = world.now;
        let host = &mut world.hosts[index];
        let admitted = match self.twin {
            Twin::NoTombstone => Ok(host.seen),
            _ => host.seen.admit(row.epoch),
        };
        if let Ok(seen) = admitted
            && host.kill_at.is_some_and(|at| now < at)
        {
            host.seen = seen;
            host.alive = true;
        }
        host.start_replied = false;
    }

    fn hear_beat(&self, world: &mut World, index: usize) {
        let now = world.now;
        let host = &mut world.hosts[index];
        let Some(sent_at) = host.beat_sent_at.take() else { return };
        host.beat_replied = false;
        let counted_from = match self.twin {
            Twin::LeaseFromReply => now,
            _ => sent_at,
        };
        let held_until = fence::held_until(counted_from, LEASE);
        let kill_at = fence::kill_at(held_until, &self.policy.limits);
        host.kill_at = host.kill_at.max(Some(kill_at));
    }
}

impl Model for Belay {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let task = Task {
            id: TaskId::from_bits(1),
            parent: None,
            review: Review::Auto,
            max_attempts: 2,
            state: State::Queued { plan: Plan::Fresh, not_before: None },
            reason: Reason::Created,
            since: Timestamp::EPOCH,
            attempts: AttemptNumber(0),
            effort: Effort::default(),
        };
        vec![World {
            now: Timestamp::EPOCH,
            task,
            attempts: vec![],
            nodes: [None; 2],
            hosts: [Host::default(); ATTEMPTS],
            link: Link::Whole,
            remote: 0,
            landed: BTreeSet::new(),
            stop_asked: false,
            acknowledged: None,
            first_final: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < Timestamp::from_millis(END) {
            actions.push(Action::Tick);
        }
        match world.link {
            Link::Whole => actions.push(Action::CutOff),
            Link::Cut => actions.push(Action::Heal),
            Link::Healed => {}
        }
        if let Some(node) = self.free_node(world)
            && !world.stop_asked
        {
            actions.push(Action::Look(node, Input::Cancel));
        }
        let inputs = [Input::Claim, Input::Cancel]
            .into_iter()
            .chain([Input::Expire(Clock::Absolute), Input::Expire(Clock::AttemptLease)])
            .chain((0..world.attempts.len()).flat_map(|index| {
                [
                    Input::Start(index),
                    Input::OpenPublish(index),
                    Input::Settle(index),
                    Input::Proven(index, Proof::Observed),
                    Input::Proven(index, Proof::LeaseExpired),
                ]
            }));
        for input in inputs {
            if let Some(node) = self.free_node(world)
                && self.decide(world, input).is_some()
            {
                actions.push(Action::Look(node, input));
            }
        }
        for node in 0..2 {
            if world.nodes[node].is_some() {
                actions.push(Action::Commit(node));
            }
        }
        for index in 0..world.attempts.len() {
            actions.extend(self.of_attempt(world, index));
        }
        if world.acknowledged.is_none()
            && receipt::standing(&world.task.state, world.attempts.last())
                == receipt::Standing::Stopped
        {
            actions.push(Action::Acknowledge);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Tick => self.tick(&mut next),
            Action::CutOff => next.link = Link::Cut,
            Action::Heal => next.link = Link::Healed,
            Action::Look(node, input) => {
                next.stop_asked |= input == Input::Cancel;
                next.nodes[node] = self.decide(&next, input);
                if let Input::OpenPublish(index) = input
                    && self.twin == Twin::PushBeforeCommit
                {
                    let decided = next.nodes[node].and_then(|decision| decision.attempt);
                    next.hosts[index].granted = decided.and_then(|row| row.publish.push());
                }
            }
            Action::Commit(node) => {
                let decision = next.nodes[node].take()?;
                self.commit(&mut next, decision);
            }
            Action::Execute(index) => self.execute(&mut next, index),
            Action::Finish(index) => {
                next.hosts[index].alive = false;
                next.hosts[index].finished = true;
            }
            Action::SendBeat(index) => {
                next.hosts[index].beat_sent_at = Some(next.now);
                next.hosts[index].beat_spent = true;
            }
            Action::CommitBeat(index) => {
                let renewed = attempt::Event::Renewed { lease_end: next.now.after(LEASE) };
                let row = next.attempts[index];
                match row.step(renewed, next.now, &self.policy.limits).accepted() {
                    Some(row) => {
                        next.attempts[index] = row;
                        next.hosts[index].beat_replied = true;
                    }
                    // Not current any more: the runner kills its agent at once.
                    None => {
                        next.hosts[index].alive = false;
                        next.hosts[index].beat_sent_at = None;
                    }
                }
            }
            Action::HearBeat(index) => self.hear_beat(&mut next, index),
            Action::Kill(index) => {
                let epoch = next.attempts[index].epoch;
                let reachable = next.reachable(index);
                let host = &mut next.hosts[index];
                if reachable {
                    host.seen = host.seen.bury(epoch);
                    host.alive = false;
                }
                host.observed_gone = true;
            }
            Action::HearGrant(index) => {
                next.hosts[index].granted = next.attempts[index].publish.push();
            }
            Action::Land(index) => {
                let push = next.hosts[index].granted?;
                next.remote = (0..ATTEMPTS).map(mark_of).find(|m| commit_of(*m) == push.commit)?;
                next.landed.insert(next.remote);
            }
            Action::FencePush(index) => next.remote = fence_of(index),
            Action::Acknowledge => {
                let pushed = next.attempts.last().and_then(receipt::pushed);
                next.acknowledged = Some(pushed);
            }
        }
        next.nodes.sort(); // which node is which makes no difference
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FINAL, |_, world: &World| {
                world.first_final.is_none_or(|state| world.task.state == state)
            }),
            Property::always(ONE_AGENT, |_, world: &World| {
                world.hosts.iter().filter(|host| host.alive).count() <= 1
            }),
            Property::always(GATE, |_, world: &World| {
                let shut = |row: &Attempt| row.publish == Publish::None;
                let gained = |row: &Attempt| world.landed.contains(&(row.number.0 as u8));
                !world.attempts.iter().any(|row| shut(row) && gained(row))
            }),
            Property::always(RECORD, |_, world: &World| {
                world.attempts.iter().all(|row| {
                    let landed = world.landed.contains(&(row.number.0 as u8));
                    match row.publish {
                        Publish::Pushed(_) => landed,
                        Publish::NotPushed(_) => !landed,
                        Publish::None | Publish::Open(_) => true,
                    }
                })
            }),
            Property::always(STOPPED, |_, world: &World| {
                let Some(pushed) = world.acknowledged else { return true };
                let last = world.attempts.len();
                let landed = last > 0 && world.landed.contains(&mark_of(last - 1));
                let lives = world.hosts.iter().any(|host| host.alive);
                !lives && landed == pushed.is_some()
            }),
            Property::sometimes("a task completes", |_, world: &World| {
                world.task.state == State::Completed
            }),
            Property::sometimes("a stopped task had been pushed", |_, world: &World| {
                matches!(world.acknowledged, Some(Some(_)))
            }),
            Property::sometimes("a stopped task was fenced off the remote", |_, world: &World| {
                world.acknowledged == Some(None)
                    && matches!(world.attempts.last(), Some(row)
                        if matches!(row.publish, Publish::NotPushed(_)))
            }),
            Property::sometimes("a task times out", |_, world: &World| {
                matches!(world.task.state, State::TimedOut { .. })
            }),
            Property::sometimes("a lost attempt is followed by another", |_, world: &World| {
                matches!(world.attempts[..], [lost, next]
                    if matches!(lost.phase, Phase::Ended(Outcome::Lost, Proof::LeaseExpired))
                        && next.phase == Phase::Running)
            }),
        ]
    }
}
