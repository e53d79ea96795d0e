//! A model of restarts: every interleaving of two nodes that trigger a start, two runners that
//! answer late or never, crashes, deadlines, and a person who stops the role and starts it again.
//!
//! The model's database, network and processes are its own; every decision is the kernel's. Each
//! *broken twin* removes one safeguard, and a test asserts that the checker finds the harm: a model
//! that cannot fail proves nothing.

use std::collections::BTreeSet;

use belay_kernel::breaker::{self, Breaker, Gate};
use belay_kernel::restart::{
    Acknowledgement, Decision, Effect, End, Event, Fitness, Generation, Host, Look, Performed,
    Phase, Plan, Start, decide,
};
use belay_kernel::role::{self, Desired, Role, Stop};
use belay_kernel::{
    Caps, Cause, CommandId, Disposition, Limits, RunnerId, Span, Switches, Timestamp, WorkerId,
};
use stateright::{Checker, HasDiscoveries, Model, Property, StateRecorder};

/// Which safeguard is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    /// None: the real thing.
    Sound,
    /// The database has neither key.
    NoKeys,
    /// The database has only the key for what is pending.
    NoGenerationKey,
    /// A node does not look whether a start is pending, and numbers it when it commits.
    NoDedup,
    /// What a person wants is neither looked at nor part of the read set.
    DesiredIgnored,
    /// The role is looked at, but is not part of the read set.
    RoleNotInReadSet,
    /// The breaker is not looked at.
    BreakerIgnored,
    /// Whoever names a command may join.
    SupersededJoinAccepted,
    /// A runner starts again whatever is delivered.
    RunnerForgets,
    /// A start that was answered is no longer pending, though nobody has joined.
    PendingUntilAnswer,
}

/// How far the model goes.
struct Restarts {
    twin: Twin,
    /// How often a worker may crash.
    crashes: u8,
    /// How often a while may pass, longer than a command's deadline and a first cool-down.
    whiles: u8,
    /// How often a person acts: stop, start, stop, …
    acts: u8,
    limits: Limits,
    caps: Caps,
}

/// A worker's process on a runner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Process {
    generation: Generation,
    joined: bool,
}

/// A start that a node has decided on, with the revisions of role and breaker that it read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Decided {
    start: Start,
    role_revision: u8,
    breaker_revision: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    now: Timestamp,
    // The database.
    role: Role,
    role_revision: u8,
    breaker: Breaker,
    breaker_revision: u8,
    starts: Vec<Start>,
    // The nodes.
    decided: [Option<Decided>; 2],
    // The runners.
    performed: [Performed; 2],
    processes: [Option<Process>; 2],
    /// Answers on their way, by the position of their command.
    answers: BTreeSet<usize>,
    // What has happened, for the properties and for the bounds.
    crashes: u8,
    whiles: u8,
    acts: u8,
    harm: Option<Harm>,
}

/// What must never happen, noticed at the moment it does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Harm {
    StartedWhileStopped,
    StartedWhileBreakerShut,
    StartedBesideLiveWorker,
    JoinedWhileStopped,
    JoinedUnderSupersededCommand,
    LiveWorkerStoppedByRestart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Look(usize),
    Commit(usize),
    Deliver(usize),
    Answer(usize),
    Join(usize),
    Crash(usize),
    Expire(usize),
    /// Time passes.
    Wait,
    Person,
    /// A process is told that its role is stopped, and goes.
    Obey(usize),
}

impl World {
    fn pending(&self) -> usize {
        self.starts.iter().filter(|start| start.pending_key().is_some()).count()
    }

    fn joined(&self) -> usize {
        self.processes.iter().flatten().filter(|process| process.joined).count()
    }

    fn newest(&self) -> Generation {
        self.starts.iter().map(|start| start.generation).max().unwrap_or_default()
    }

    fn is_stopped(&self) -> bool {
        self.role.desired != Desired::Running
    }

    fn note(&mut self, harm: Harm, happened: bool) {
        if happened {
            self.harm.get_or_insert(harm);
        }
    }
}

fn runner(index: usize) -> RunnerId {
    RunnerId::from_bits(index as u128)
}

fn index(runner: RunnerId) -> usize {
    usize::from(runner.as_bits() == 1)
}

impl Restarts {
    fn new(twin: Twin, [crashes, whiles, acts]: [u8; 3]) -> Self {
        let (limits, caps) = (Limits::default(), Caps { breaker_exits: 2, ..Caps::default() });
        Self { twin, crashes, whiles, acts, limits, caps }
    }

    fn look(&self, world: &World) -> Option<Start> {
        let twin = self.twin;
        let mut role = world.role.clone();
        if twin == Twin::DesiredIgnored {
            role.desired = Desired::Running;
        }
        let closed = Breaker::default();
        let breaker = if twin == Twin::BreakerIgnored { &closed } else { &world.breaker };
        let newest = world.starts.last().filter(|start| match twin {
            Twin::NoDedup => false,
            Twin::PendingUntilAnswer => start.phase != Phase::Started,
            _ => true,
        });
        // The runner that hosts nothing is the freer one.
        let hosts = [0, 1].map(|at| {
            let free = 2 - u32::from(world.processes[at].is_some());
            Host { runner: runner(at), fitness: Fitness::Fit { free } }
        });
        let live = u32::try_from(world.joined()).unwrap();
        let look = Look { role: &role, breaker, claimable: 1, live, newest, hosts: &hosts };
        let id = CommandId::from_bits(world.starts.len() as u128);
        match decide(&look, id, world.now, &self.limits, &Switches::default()) {
            Decision::Start(start) => Some(start),
            Decision::Hold(_) => None,
        }
    }

    /// The database: the read set first, then the keys.
    fn commit(&self, world: &mut World, node: usize) {
        let Some(decided) = world.decided[node].take() else { return };
        let (twin, mut start) = (self.twin, decided.start);
        let role_checked = !matches!(twin, Twin::DesiredIgnored | Twin::RoleNotInReadSet);
        let breaker_checked = twin != Twin::BreakerIgnored;
        if (role_checked && decided.role_revision != world.role_revision)
            || (breaker_checked && decided.breaker_revision != world.breaker_revision)
        {
            return;
        }
        let numbered_late = matches!(twin, Twin::NoDedup | Twin::PendingUntilAnswer);
        if numbered_late {
            start.generation = world.newest().next();
        }
        let pending_key = !matches!(twin, Twin::NoKeys | Twin::NoDedup | Twin::PendingUntilAnswer);
        let generation_key =
            !matches!(twin, Twin::NoKeys | Twin::NoGenerationKey) && !numbered_late;
        let taken = world.starts.iter().any(|row| {
            (generation_key && row.generation_key() == start.generation_key())
                || (pending_key && row.pending_key() == start.pending_key())
        });
        if taken {
            return;
        }
        let decided_at = start.deadline.before(self.limits.start_command);
        world.note(Harm::StartedWhileStopped, world.is_stopped());
        let shut = world.breaker.gate(decided_at) != Gate::Open;
        world.note(Harm::StartedWhileBreakerShut, shut);
        world.note(Harm::StartedBesideLiveWorker, world.joined() > 0);
        start.id = CommandId::from_bits(world.starts.len() as u128);
        world.starts.push(start);
    }

    /// A command reaches its runner; again and again, if it likes.
    fn deliver(&self, world: &mut World, at: usize) {
        let start = world.starts[at].clone();
        let runner = index(start.runner);
        let known = match self.twin {
            Twin::RunnerForgets => Performed::default(),
            _ => world.performed[runner],
        };
        match known.plan(start.generation) {
            Plan::StopThenStart(noted) => {
                let stopped = world.processes[runner].is_some_and(|process| process.joined);
                world.note(Harm::LiveWorkerStoppedByRestart, stopped);
                let process = Process { generation: start.generation, joined: false };
                world.processes[runner] = Some(process);
                let answer = Some(Acknowledgement::Started);
                world.performed[runner] = Performed { answer, ..noted };
                world.answers.insert(at);
            }
            Plan::Repeat(_) => {
                world.answers.insert(at);
            }
            Plan::Refuse => {}
        }
    }

    /// One event of a command, with its effects. Whoever is refused ends what it started.
    fn step(&self, world: &mut World, at: usize, event: Event) {
        match world.starts[at].step(event, world.now) {
            Disposition::Accept(transition) => {
                world.starts[at] = transition.start;
                for effect in transition.effects {
                    match effect {
                        Effect::CountExit(cause) => self.count(world, cause),
                        // These are messages; that they are late or lost must do no harm.
                        Effect::ReviewRole | Effect::StopWorker(_) => {}
                    }
                }
            }
            Disposition::Ignore => {}
            Disposition::Deny(_) => {
                let (runner, generation) =
                    (index(world.starts[at].runner), world.starts[at].generation);
                if world.processes[runner].is_some_and(|p| p.generation == generation) {
                    world.processes[runner] = None;
                }
            }
        }
    }

    fn join(&self, world: &mut World, runner: usize) {
        let Some(process) = world.processes[runner] else { return };
        let generation = process.generation;
        let Some(at) = world
            .starts
            .iter()
            .rposition(|start| start.generation == generation && index(start.runner) == runner)
        else {
            return;
        };
        let worker = WorkerId::from_bits(runner as u128);
        let taken = world.starts[at].admit(worker, &world.role, world.now);
        let admitted = match taken {
            Disposition::Accept(transition) => {
                world.starts[at] = transition.start;
                true
            }
            Disposition::Ignore => true,
            Disposition::Deny(_) => self.twin == Twin::SupersededJoinAccepted,
        };
        if !admitted {
            world.processes[runner] = None;
            return;
        }
        world.note(Harm::JoinedWhileStopped, world.is_stopped());
        let superseded = generation < world.newest();
        world.note(Harm::JoinedUnderSupersededCommand, superseded);
        world.processes[runner] = Some(Process { joined: true, ..process });
    }

    fn count(&self, world: &mut World, cause: Cause) {
        let event = breaker::Event::Exited(cause);
        let next = world.breaker.clone().step(event, world.now, &self.limits, &self.caps);
        if next != world.breaker {
            world.breaker = next;
            world.breaker_revision += 1;
        }
    }

    fn person(&self, world: &mut World) {
        let event = match world.role.desired {
            Desired::Running => role::Event::Stop(Stop::Drain),
            Desired::Stopped(_) => role::Event::Start,
        };
        let Disposition::Accept(transition) = world.role.step(event) else { return };
        world.role = transition.role;
        world.role_revision += 1;
        for effect in transition.effects {
            match effect {
                role::Effect::WithdrawStart => {
                    for at in 0..world.starts.len() {
                        self.step(world, at, Event::Withdraw);
                    }
                }
                role::Effect::ResetBreaker => {
                    world.breaker = Breaker::default();
                    world.breaker_revision += 1;
                }
                role::Effect::RequeueHeld | role::Effect::ReviewRole => {}
            }
        }
    }
}

impl Model for Restarts {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let name = "builder".parse().unwrap();
        vec![World {
            now: Timestamp::from_millis(1_000_000),
            role: Role { name, desired: Desired::Running, workers: 1 },
            role_revision: 0,
            breaker: Breaker::default(),
            breaker_revision: 0,
            starts: Vec::new(),
            decided: [None, None],
            performed: [Performed::default(); 2],
            processes: [None, None],
            answers: BTreeSet::new(),
            crashes: 0,
            whiles: 0,
            acts: 0,
            harm: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.harm.is_some() {
            return;
        }
        for node in [0, 1] {
            match &world.decided[node] {
                Some(_) => actions.push(Action::Commit(node)),
                None if self.look(world).is_some() => actions.push(Action::Look(node)),
                None => {}
            }
        }
        for (at, start) in world.starts.iter().enumerate() {
            if !world.answers.contains(&at) {
                actions.push(Action::Deliver(at));
            }
            if start.pending_key().is_some() && world.now > start.deadline {
                actions.push(Action::Expire(at));
            }
        }
        actions.extend(world.answers.iter().copied().map(Action::Answer));
        for at in [0, 1] {
            match world.processes[at] {
                Some(process) if process.joined => {
                    if world.crashes < self.crashes {
                        actions.push(Action::Crash(at));
                    }
                    if world.is_stopped() {
                        actions.push(Action::Obey(at));
                    }
                }
                Some(_) => actions.push(Action::Join(at)),
                None => {}
            }
        }
        if world.whiles < self.whiles {
            actions.push(Action::Wait);
        }
        if world.acts < self.acts {
            actions.push(Action::Person);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Look(node) => {
                next.decided[node] = self.look(world).map(|start| Decided {
                    start,
                    role_revision: world.role_revision,
                    breaker_revision: world.breaker_revision,
                });
            }
            Action::Commit(node) => self.commit(&mut next, node),
            Action::Deliver(at) => self.deliver(&mut next, at),
            Action::Answer(at) => {
                next.answers.remove(&at);
                self.step(&mut next, at, Event::Acknowledge(Acknowledgement::Started));
            }
            Action::Join(at) => self.join(&mut next, at),
            Action::Crash(at) => {
                next.processes[at] = None;
                next.crashes += 1;
                self.count(&mut next, Cause::Crash);
            }
            Action::Expire(at) => self.step(&mut next, at, Event::ExpireDeadline),
            Action::Wait => {
                next.now = world.now.after(Span::from_millis(120_001));
                next.whiles += 1;
            }
            Action::Person => {
                next.acts += 1;
                self.person(&mut next);
            }
            Action::Obey(at) => next.processes[at] = None,
        }
        // The nodes are alike: which of them decided what makes no difference.
        next.decided.sort();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one start is pending", |_, world: &World| {
                world.pending() <= 1
            }),
            Property::always("at most one started worker is live", |_, world: &World| {
                world.joined() <= 1
            }),
            Property::always("no start while the role is stopped", |_, world: &World| {
                world.harm != Some(Harm::StartedWhileStopped)
            }),
            Property::always("no start while the breaker is shut", |_, world: &World| {
                world.harm != Some(Harm::StartedWhileBreakerShut)
            }),
            Property::always("no start beside a live worker", |_, world: &World| {
                world.harm != Some(Harm::StartedBesideLiveWorker)
            }),
            Property::always("no join while the role is stopped", |_, world: &World| {
                world.harm != Some(Harm::JoinedWhileStopped)
            }),
            Property::always("no join under a superseded command", |_, world: &World| {
                world.harm != Some(Harm::JoinedUnderSupersededCommand)
            }),
            Property::always("no restart stops a live worker", |_, world: &World| {
                world.harm != Some(Harm::LiveWorkerStoppedByRestart)
            }),
            Property::always("effort is bounded", |_, world: &World| {
                // Each start beyond the first follows a crash, a missed deadline or a person.
                let causes = world.crashes + world.whiles + world.acts;
                world.starts.len() <= 1 + usize::from(causes)
            }),
        ]
    }
}

/// What has to be reachable in a model that goes this far, or its silence proves nothing.
fn reachable(world: &World) -> [(&'static str, bool); 5] {
    let shut = world.breaker.gate(world.now) != Gate::Open;
    let withdrawn = world.starts.iter().any(|start| start.phase == Phase::Over(End::Withdrawn));
    [
        ("joined", world.joined() == 1),
        ("joined after a crash", world.joined() == 1 && world.crashes > 0),
        ("breaker shut", shut),
        ("start expired", world.starts.iter().any(|s| s.phase == Phase::Over(End::Expired))),
        ("start withdrawn, role started again", withdrawn && world.joined() == 1),
    ]
}

/// No interleaving of that many crashes, waits and acts does harm, and what should be reachable is.
fn sound(bounds: [u8; 3], reached: &[&str]) {
    let model = Restarts::new(Twin::Sound, bounds);
    let (recorder, states) = StateRecorder::new_with_accessor();
    let checker = model.checker().threads(2).visitor(recorder).spawn_bfs().join();
    checker.assert_properties();
    let states = states();
    for name in reached {
        let there = states.iter().any(|world| reachable(world).contains(&(name, true)));
        assert!(there, "{name} is not reached in {} states", states.len());
    }
}

#[test]
fn crashes_and_deadlines_do_no_harm() {
    sound([2, 2, 0], &["joined", "joined after a crash", "breaker shut", "start expired"]);
}

#[test]
fn a_persons_stops_and_starts_do_no_harm() {
    sound([0, 1, 2], &["joined", "start withdrawn, role started again"]);
}

#[test]
fn crashes_beside_a_persons_stop_do_no_harm() {
    sound([2, 1, 1], &["joined", "joined after a crash", "breaker shut"]);
}

/// The checker finds that this twin violates `property`.
fn caught(twin: Twin, property: &'static str) {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let model = Restarts::new(twin, [2, 2, 2]);
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{twin:?} is not caught");
}

macro_rules! twins {
    ($($name:ident: $twin:ident violates $property:literal;)*) => {$(
        #[test]
        fn $name() {
            caught(Twin::$twin, $property);
        }
    )*};
}

twins! {
    without_keys_two_starts_are_pending: NoKeys violates "at most one start is pending";
    without_the_generation_key_a_late_commit_starts_beside_a_live_worker:
        NoGenerationKey violates "no start beside a live worker";
    without_dedup_two_starts_are_pending: NoDedup violates "at most one start is pending";
    ignoring_the_desired_state_starts_a_stopped_role:
        DesiredIgnored violates "no start while the role is stopped";
    leaving_the_role_out_of_the_read_set_starts_a_stopped_role:
        RoleNotInReadSet violates "no start while the role is stopped";
    ignoring_the_breaker_starts_a_broken_role:
        BreakerIgnored violates "no start while the breaker is shut";
    accepting_a_superseded_join_lets_an_old_worker_in:
        SupersededJoinAccepted violates "no join under a superseded command";
    accepting_any_join_lets_a_worker_into_a_stopped_role:
        SupersededJoinAccepted violates "no join while the role is stopped";
    a_forgetful_runner_stops_its_live_worker:
        RunnerForgets violates "no restart stops a live worker";
    a_start_that_ends_at_its_answer_is_made_twice:
        PendingUntilAnswer violates "at most one start is pending";
}
