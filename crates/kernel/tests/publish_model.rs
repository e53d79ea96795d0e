//! Model (a): task × attempt × stop × timeout × publish.
//!
//! Two nodes look, decide and commit by compare-and-set on one task. Two runners host one attempt
//! each; the first can be cut off from the nodes. A shim beside each agent holds the lease. A push
//! that was once allowed may land at any later moment, as long as the remote's ref is what it
//! expects. Every decision is the kernel's own; the model only keeps the rows, the clock, the
//! processes and the remote, and looks from outside whether what must hold does.
//!
//! [`Twin`]s are the same model with one safeguard taken out. Each must be caught.

use std::collections::BTreeSet;

use belay_kernel::attempt::{self, Attempt, Outcome, Phase, Proof};
use belay_kernel::budget::Standing;
use belay_kernel::claim::{ClaimFacts, RoleGate, SessionSlot};
use belay_kernel::fence::{self, Seen};
use belay_kernel::publish::{self, CommitId, Publish, Push, PushOutcome, Remote, Settling};
use belay_kernel::receipt;
use belay_kernel::retry::{Effort, Jitter, Progress};
use belay_kernel::status::Group;
use belay_kernel::task::{
    self, Children, Event, Plan, Policy, Reason, Review, State, SuccessFacts, Task,
};
use belay_kernel::{
    AttemptNumber, Clock, Disposition, Epoch, Limits, Reading, Span, TaskId, Timestamp,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// The last moment of the model.
const END: i64 = 5;
/// How long a lease is.
const LEASE: Span = Span::from_millis(3);
const ATTEMPTS: usize = 2;

/// A safeguard that is taken out, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    /// Nothing is taken out.
    Sound,
    /// A report of an attempt that is not current is taken as the current one's.
    NoFence,
    /// A commit does not compare what it read.
    NoCompareAndSet,
    /// A cancel goes through in a final state.
    NoFinality,
    /// A runner pushes when it asks for the gate, not when the commit has opened it.
    PushBeforeCommit,
    /// “The remote has it not” is taken as “it was not pushed”.
    NoFencePush,
    /// The holder counts its lease from the reply instead of from before the renewal was sent.
    LeaseFromReply,
    /// A late start does not look for a tombstone.
    NoTombstone,
    /// A kill that could not be sent counts as proof.
    ProofAssumed,
    /// A commit writes back the lease end that it read.
    LeaseOverwritten,
}

/// What a runner and its shim know of the attempt that they host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Host {
    /// The agent's processes live.
    alive: bool,
    /// The agent has finished its work; its processes are gone.
    finished: bool,
    /// The shim kills at this moment, unless it hears of a renewal.
    kill_at: Option<Timestamp>,
    /// A renewal is under way since then; its reply has not come yet. One is sent in all.
    beat_sent_at: Option<Timestamp>,
    beat_spent: bool,
    /// The beat was committed; the reply is under way.
    beat_replied: bool,
    /// The start was committed; the runner may or may not have heard.
    start_replied: bool,
    /// Epochs and tombstones that the provider keeps.
    seen: Seen,
    /// The processes were seen to be gone.
    observed_gone: bool,
    /// The push that the runner was allowed, and which may land at any time.
    granted: Option<Push>,
}

/// A decision that a node has made and not committed yet.
///
/// Where commits compare what they read, a decision that was overtaken has no effect, and neither
/// has the look that led to it: whatever two nodes can bring about together, one that may forget
/// and look again can too. So only the twin without the comparison keeps two decisions at a time;
/// the others visit far fewer states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Decision {
    task: Task,
    attempt: Option<Attempt>,
}

/// Whether the first runner and the nodes hear each other; it is cut off once, and healed once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Link {
    Whole,
    Cut,
    Healed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    now: Timestamp,
    task: Task,
    attempts: Vec<Attempt>,
    nodes: [Option<Decision>; 2],
    hosts: [Host; ATTEMPTS],
    link: Link,
    /// The remote's ref: 0 is where it began, n a commit of attempt n, 10 + n the fence of n.
    remote: u8,
    /// Everything that the ref ever was.
    landed: BTreeSet<u8>,
    /// The stop was asked for.
    stop_asked: bool,
    /// The stop was acknowledged, and this was the commit it said was pushed.
    acknowledged: Option<Option<CommitId>>,
    /// The first final state that was seen.
    first_final: Option<State>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Action {
    Tick,
    CutOff,
    Heal,
    /// A node reads the rows and decides on this.
    Look(usize, Input),
    /// A node commits what it decided.
    Commit(usize),
    /// The runner hears that its start was committed, and executes the agent.
    Execute(usize),
    /// The agent does its work and exits.
    Finish(usize),
    /// A runner sends a beat; the lease is renewed when it is committed.
    SendBeat(usize),
    CommitBeat(usize),
    HearBeat(usize),
    /// The processes of an ending attempt are killed, and seen to be gone.
    Kill(usize),
    /// The runner hears that the gate is open.
    HearGrant(usize),
    /// A push that was allowed lands.
    Land(usize),
    /// Somebody moves the ref away from what the push expects.
    FencePush(usize),
    /// The stop is acknowledged.
    Acknowledge,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Input {
    Claim,
    Start(usize),
    OpenPublish(usize),
    Settle(usize),
    Cancel,
    Expire(Clock),
    Proven(usize, Proof),
}

const FINAL: &str = "final states never change";
const ONE_AGENT: &str = "at most one agent of a session lives";
const GATE: &str = "the remote gains nothing that never passed the gate";
const RECORD: &str = "what is recorded of a push is true for ever";
const STOPPED: &str = "after a stop is acknowledged nothing lives or lands";

struct Belay {
    twin: Twin,
    policy: Policy,
}

impl Belay {
    fn new(twin: Twin) -> Self {
        let limits = Limits {
            absolute: Span::from_millis(2),
            publish: Span::from_millis(1),
            stop_grace: Span::ZERO,
            kill_bound: Span::from_millis(1),
            drift: Span::ZERO,
            backoff_first: Span::ZERO,
            ..Limits::default()
        };
        Self { twin, policy: Policy { limits, ..Policy::default() } }
    }
}

/// The task without what no decision reads, so that fewer states differ.
const fn timeless(task: Task) -> Task {
    Task { since: Timestamp::EPOCH, reason: Reason::Created, ..task }
}

/// The attempt without what no decision of this model reads.
const fn timeless_attempt(attempt: Attempt) -> Attempt {
    let then = Timestamp::EPOCH;
    Attempt { claimed_at: then, prepared_at: then, started_at: None, ..attempt }
}

fn number(index: usize) -> AttemptNumber {
    AttemptNumber(index as u32 + 1)
}

fn commit_of(mark: u8) -> CommitId {
    CommitId::from_sha1([mark; 20])
}

/// What the push of attempt `index` would leave in the ref.
fn mark_of(index: usize) -> u8 {
    index as u8 + 1
}

const fn fence_of(index: usize) -> u8 {
    index as u8 + 11
}

impl World {
    fn row(&self, index: usize) -> Option<&Attempt> {
        self.attempts.get(index)
    }

    /// Whether runner `index` and the nodes hear each other.
    fn reachable(&self, index: usize) -> bool {
        index != 0 || self.link != Link::Cut
    }

    fn acting(&self) -> Option<&Attempt> {
        let number = self.task.state.attempt()?;
        self.attempts.iter().find(|row| row.number == number)
    }

    fn remote_for(&self, push: Push) -> Remote {
        if push.commit == commit_of(self.remote) {
            Remote::HasCommit
        } else if push.expected == Some(commit_of(self.remote)) {
            Remote::AsExpected
        } else {
            Remote::MovedOn
        }
    }
}

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
                    role: RoleGate::Open,
                    budget: Standing::Left,
                    account_probe: None,
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

    fn free_node(&self, world: &World) -> Option<usize> {
        match self.twin {
            Twin::NoCompareAndSet => world.nodes.iter().position(Option::is_none),
            _ => world.nodes.iter().all(Option::is_none).then_some(0),
        }
    }

    /// What a node decides on, from the rows as they are now.
    fn decide(&self, world: &World, input: Input) -> Option<Decision> {
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

    fn commit(&self, world: &mut World, decision: Decision) {
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
            Property::always(
                "the remote gains nothing that never passed the gate",
                |_, world: &World| {
                    let shut = |row: &Attempt| row.publish == Publish::None;
                    let gained = |row: &Attempt| world.landed.contains(&(row.number.0 as u8));
                    !world.attempts.iter().any(|row| shut(row) && gained(row))
                },
            ),
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
            Property::always(
                "after a stop is acknowledged nothing lives or lands",
                |_, world: &World| {
                    let Some(pushed) = world.acknowledged else { return true };
                    let last = world.attempts.len();
                    let landed = last > 0 && world.landed.contains(&mark_of(last - 1));
                    let lives = world.hosts.iter().any(|host| host.alive);
                    !lives && landed == pushed.is_some()
                },
            ),
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

#[test]
fn the_kernel_holds() {
    Belay::new(Twin::Sound).checker().threads(2).spawn_bfs().join().assert_properties();
}

/// The checker finds that `property` does not hold without the safeguard.
fn caught(twin: Twin, property: &'static str) {
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = Belay::new(twin).checker().threads(2).finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{twin:?} was not caught");
}

#[test]
fn without_the_fence_a_stale_attempt_publishes() {
    caught(Twin::NoFence, GATE);
}

#[test]
fn without_compare_and_set_a_final_state_changes() {
    caught(Twin::NoCompareAndSet, FINAL);
}

#[test]
fn without_finality_a_completed_task_is_cancelled() {
    caught(Twin::NoFinality, FINAL);
}

#[test]
fn a_push_before_the_commit_lands_after_a_stop() {
    caught(Twin::PushBeforeCommit, GATE);
}

#[test]
fn without_the_fence_push_a_late_push_lands() {
    caught(Twin::NoFencePush, RECORD);
}

#[test]
fn a_lease_counted_from_the_reply_leaves_two_agents() {
    caught(Twin::LeaseFromReply, ONE_AGENT);
}

#[test]
fn without_the_tombstone_a_late_start_outlives_its_stop() {
    caught(Twin::NoTombstone, STOPPED);
}

#[test]
fn proof_that_is_assumed_is_none() {
    caught(Twin::ProofAssumed, STOPPED);
}

#[test]
fn a_lease_end_that_is_written_back_proves_death_too_early() {
    caught(Twin::LeaseOverwritten, STOPPED);
}
