//! Idle snapshot × resume × orphan sweep on two nodes, checked exhaustively.
//!
//! The model is a world around the kernel's own functions: a session row, a runner that keeps the
//! highest epoch it has seen, sandboxes, snapshots, a user who comes, works and goes, and two nodes
//! with three actors that each can stop between any two steps for any time: on one node a
//! background that snapshots and a door that lets the user in, on the other one that does both.
//! Locks end, nodes lose their leases and get them back, probes fail, terminations fail, actors
//! crash.
//!
//! Each *twin* leaves out one precaution; the checker must find what it is there for.

use belay_kernel::fence::Seen;
use belay_kernel::idle::{self, ClientKind, Idle, Presence};
use belay_kernel::lock::{self, Key};
use belay_kernel::orphan::{self, Owner, Proposal};
use belay_kernel::resume::{self, Conversation, Decision, Insist, Look, Probe, Request};
use belay_kernel::session::{
    Effect, Event, Kept, PauseReason, Session, State, Termination, Wake, step,
};
use belay_kernel::snapshot::{self, Capabilities, Ground, Outcome, Report, Saga, Stage};
use belay_kernel::{Caps, Epoch, Limits, NodeId, SandboxId, SnapshotId, Span, Timestamp};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// The precaution that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    /// None: the real thing.
    Sound,
    /// The predicate is believed as it was before the lock was taken.
    NoPredicateInLock,
    /// Whoever has the lock trusts its own view of who is attached, owner or not.
    NoOwnerInLock,
    /// Commits set without comparing.
    NoCompareAndSet,
    /// The runner does not refuse lower epochs.
    NoEpochAtRunner,
    /// The sandbox is terminated as soon as it is captured.
    TerminateBeforeCommit,
    /// A failed probe is taken for “gone”.
    UnknownIsGone,
    /// A failed termination is reported as done.
    TerminateAssumed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Compute {
    Runs,
    Frozen,
    Destroyed,
}

/// A sandbox: how it is, which version of the tree it holds, whether the row ever named it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sandbox {
    compute: Compute,
    tree: u8,
    committed: bool,
}

/// Someone at work in a sandbox, with the epoch of the lock under which they came in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct User {
    node: usize,
    sandbox: SandboxId,
    epoch: Epoch,
}

/// Why a node wants to snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Why {
    Idle,
    Orphan,
}

/// What an actor is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Doing {
    Nothing,
    Proposed(Why),
    Locked(Why, Epoch),
    Snapshotting(Saga),
    /// Wants to bring its user in; waits for the lock.
    Knocking,
    /// Has the lock and the key that its commit compares.
    Resuming(Key),
    /// Made a sandbox from what was kept; the row does not know it yet.
    Created(Key, SandboxId),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    session: Session,
    owner: usize,
    leases: [bool; 2],
    ticks: u8,
    seen: Seen,
    sandboxes: Vec<Sandbox>,
    snapshots: Vec<u8>,
    latest: u8,
    user: Option<User>,
    actors: [Doing; ACTORS],
    /// Terminations that were stored with a commit and are not performed yet.
    stored: Vec<SandboxId>,
    faults: u8,
    /// A snapshot for inactivity was taken while someone was at work.
    interrupted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Tick,
    LeaseLost(usize),
    LeaseBack(usize),
    Crash(usize),
    Propose(usize),
    TakeLock(usize),
    Begin(usize),
    Perform(usize, Report),
    Knock(usize),
    Resume(usize, Probe),
    EnterCreated(usize),
    Work,
    Leave,
    PerformStored,
}

struct Protocol {
    twin: Twin,
    capabilities: Capabilities,
    limits: Limits,
}

const TICK: Span = Span::from_secs(301);
const FAULTS: u8 = 1;
const ACTORS: usize = 3;

/// The node on which an actor runs.
const fn host(actor: usize) -> usize {
    actor % 2
}

fn node(index: usize) -> NodeId {
    NodeId::from_bits(index as u128 + 1)
}

fn sandbox_id(index: usize) -> SandboxId {
    SandboxId::from_bits(index as u128)
}

fn index(id: SandboxId) -> usize {
    id.as_bits() as usize
}

impl World {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH.after(TICK.times(4 + u64::from(self.ticks)))
    }

    fn owner(&self) -> Owner {
        let lease_until = match self.leases[self.owner] {
            true => Timestamp::MAX,
            false => Timestamp::EPOCH,
        };
        Owner { node: node(self.owner), lease_until }
    }

    /// Who is attached, as `here` sees it: only those who came in here.
    fn presence(&self, here: usize) -> Presence {
        let mut presence = Presence::new(ClientKind::Interactive, Timestamp::EPOCH);
        presence.clients = u32::from(self.user.is_some_and(|user| user.node == host(here)));
        presence
    }

    fn restored(&self, kept: Kept) -> u8 {
        kept.snapshot().map_or(0, |snapshot| self.snapshots[snapshot.as_bits() as usize])
    }

    /// Whether the latest work is where the row says that it is.
    fn latest_is_safe(&self) -> bool {
        let held = |id: SandboxId| {
            let sandbox = self.sandboxes[index(id)];
            sandbox.compute != Compute::Destroyed && sandbox.tree == self.latest
        };
        match self.session.state {
            State::New => self.latest == 0,
            State::Running { sandbox } => held(sandbox),
            State::Pausing { kept, .. }
            | State::Paused { kept, .. }
            | State::Stopped { kept, .. } => {
                kept.sandbox().map_or(self.restored(kept) == self.latest, held)
            }
        }
    }

    /// Whether whoever is admitted by the runner still has what they came for.
    fn user_is_served(&self) -> bool {
        self.user.is_none_or(|user| {
            let fenced = self.seen.admit(user.epoch).is_err();
            let runs = self.sandboxes[index(user.sandbox)].compute == Compute::Runs;
            fenced || (runs && self.session.state == State::Running { sandbox: user.sandbox })
        })
    }

    /// Whether every sandbox that the row ever named is gone, named, or about to be terminated.
    fn none_forgotten(&self) -> bool {
        self.sandboxes.iter().enumerate().all(|(number, sandbox)| {
            let id = sandbox_id(number);
            !sandbox.committed
                || sandbox.compute == Compute::Destroyed
                || self.session.state.names(id)
                || self.stored.contains(&id)
        })
    }

    fn store(&mut self, session: Session, effects: &[Effect]) {
        self.session = session;
        if let Some(sandbox) = session.state.sandbox() {
            self.sandboxes[index(sandbox)].committed = true;
        }
        for effect in effects {
            match effect {
                // A pausing session performs its own terminate, and its row names the sandbox.
                Effect::Terminate(_) if matches!(session.state, State::Pausing { .. }) => {}
                Effect::Terminate(id) => self.stored.push(*id),
                Effect::KillKeepDisk(id) => self.sandboxes[index(*id)].compute = Compute::Frozen,
                Effect::Fence(_) | Effect::SayRestoreFailed(_) | Effect::AlertSnapshotFailed => {}
            }
        }
    }
}

impl Protocol {
    /// The runner's fence in front of every provider operation.
    fn admit(&self, world: &mut World, epoch: Epoch) -> bool {
        match world.seen.admit(epoch) {
            Ok(seen) => {
                world.seen = seen;
                true
            }
            Err(_) => self.twin == Twin::NoEpochAtRunner,
        }
    }

    fn begin(&self, world: &World, here: usize, why: Why, number: Epoch) -> Option<Saga> {
        let mut presence = world.presence(here);
        if self.twin == Twin::NoPredicateInLock {
            presence.clients = 0;
        }
        let owner = match self.twin {
            Twin::NoOwnerInLock => Owner { node: node(host(here)), ..world.owner() },
            _ => world.owner(),
        };
        let ground = match why {
            Why::Idle => Ground::Idle { presence: &presence, owner },
            Why::Orphan => Ground::Orphan(owner),
        };
        let (session, now) = (&world.session, world.now());
        let saga = snapshot::begin(session, number, ground, self.capabilities, &self.limits, now);
        // Detaching and removing secrets touch nothing that the model sees.
        saga.ok().map(|saga| saga.after(Report::Done).after(Report::Done))
    }

    /// Performs the saga's next step; `wish` is how the outside world would answer it.
    fn perform(&self, world: &mut World, here: usize, saga: Saga, wish: Report) {
        let at = index(saga.sandbox);
        let report = match saga.stage {
            Stage::Detach | Stage::RemoveSecrets => Report::Done,
            Stage::Capture(_) | Stage::Terminate if !self.admit(world, saga.epoch()) => {
                Report::Overtaken
            }
            Stage::Capture(_) => self.capture(world, saga),
            Stage::Commit(kept) => self.commit(world, saga, kept),
            Stage::Terminate => terminate(world, at, saga.sandbox, wish, self.twin),
            Stage::Over(_) => Report::Done,
        };
        let next = saga.after(report);
        world.actors[here] = Doing::Snapshotting(next);
        if let Stage::Over(outcome) = next.stage {
            if outcome == Outcome::Failed
                && let snapshot::Commit::Write(session, effects) =
                    snapshot::failed(world.session, &saga, &Caps::default())
            {
                world.store(session, &effects);
            }
            world.session = lock::release(world.session, saga.epoch());
            world.actors[here] = Doing::Nothing;
        }
    }

    fn capture(&self, world: &mut World, saga: Saga) -> Report {
        let at = index(saga.sandbox);
        if world.sandboxes[at].compute == Compute::Destroyed {
            return Report::Failed;
        }
        world.interrupted |= saga.reason == PauseReason::Inactivity
            && world.user.is_some_and(|user| user.sandbox == saga.sandbox);
        if saga.stage == Stage::Capture(snapshot::Method::Pause) {
            world.sandboxes[at].compute = Compute::Frozen;
            return Report::Done;
        }
        world.snapshots.push(world.sandboxes[at].tree);
        if self.twin == Twin::TerminateBeforeCommit {
            world.sandboxes[at].compute = Compute::Destroyed;
        }
        Report::Captured(SnapshotId::from_bits(world.snapshots.len() as u128 - 1))
    }

    fn commit(&self, world: &mut World, saga: Saga, kept: Kept) -> Report {
        let mut row = world.session;
        let mut saga = saga;
        if self.twin == Twin::NoCompareAndSet {
            row.lock = Some(lock::Lock {
                number: saga.key.lock,
                holder: node(0),
                until: Timestamp::EPOCH,
            });
            saga.key.revision = row.revision;
            saga.key.sandbox = row.state.sandbox();
        }
        match snapshot::commit(row, &saga, kept) {
            snapshot::Commit::Write(session, effects) => {
                world.store(session, &effects);
                Report::Done
            }
            snapshot::Commit::Overtaken => Report::Overtaken,
        }
    }

    /// One step of a resume inside the lock.
    fn resume(&self, world: &mut World, here: usize, key: Key, probe: Probe) {
        if !self.admit(world, key.lock) {
            return give_up(world, here, key);
        }
        let mut seen = Probe::Unknown;
        if let Look::Probe(sandbox) = resume::look(&world.session) {
            let compute = &mut world.sandboxes[index(sandbox)].compute;
            seen = match (*compute, probe) {
                (_, Probe::Unknown) if self.twin == Twin::UnknownIsGone => Probe::Gone,
                (_, Probe::Unknown) => Probe::Unknown,
                (Compute::Destroyed, _) => Probe::Gone,
                (Compute::Runs | Compute::Frozen, _) => {
                    *compute = Compute::Runs;
                    Probe::Healthy
                }
            };
        }
        let request = Request {
            wake: Wake::Use,
            insist: Insist::No,
            asked_at: world.now(),
            conversation: Conversation::Kept,
        };
        match resume::decide(&world.session, &request, seen, &self.limits, world.now()) {
            Decision::Reuse(sandbox) => self.enter(world, here, key, sandbox),
            Decision::Create { from, .. } => {
                let tree = world.restored(from);
                let made = Sandbox { compute: Compute::Runs, tree, committed: false };
                world.sandboxes.push(made);
                let sandbox = sandbox_id(world.sandboxes.len() - 1);
                world.actors[here] = Doing::Created(key, sandbox);
            }
            Decision::FinishPausing(sandbox) => {
                world.sandboxes[index(sandbox)].compute = Compute::Destroyed;
                let settled = snapshot::settle(world.session, sandbox, Termination::Done);
                if let snapshot::Commit::Write(session, effects) = settled {
                    world.store(session, &effects);
                }
                let again = Key::read(&world.session, key.lock, world.now());
                match again {
                    Some(key) => world.actors[here] = Doing::Resuming(key),
                    None => give_up(world, here, key),
                }
            }
            Decision::Retry { .. } => {}
            Decision::Unreachable(_) | Decision::Refused(_) => give_up(world, here, key),
        }
    }

    fn enter(&self, world: &mut World, here: usize, key: Key, sandbox: SandboxId) {
        match resume::commit(world.session, &key, sandbox, Wake::Use) {
            resume::Commit::Write(session, effects) => world.store(session, &effects),
            resume::Commit::Unchanged => {}
            resume::Commit::Overtaken | resume::Commit::Refused(_) => {
                return give_up(world, here, key);
            }
        }
        world.owner = host(here);
        world.user = Some(User { node: host(here), sandbox, epoch: key.lock });
        give_up(world, here, key);
    }
}

fn give_up(world: &mut World, here: usize, key: Key) {
    world.session = lock::release(world.session, key.lock);
    world.actors[here] = Doing::Nothing;
}

fn terminate(world: &mut World, at: usize, id: SandboxId, wish: Report, twin: Twin) -> Report {
    let how = match wish {
        Report::Failed => Termination::Failed,
        Report::Done | Report::Captured(_) | Report::Overtaken => Termination::Done,
    };
    if how == Termination::Done {
        world.sandboxes[at].compute = Compute::Destroyed;
    }
    let said = if twin == Twin::TerminateAssumed { Termination::Done } else { how };
    if let snapshot::Commit::Write(session, effects) = snapshot::settle(world.session, id, said) {
        world.store(session, &effects);
    }
    wish
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let opened = Event::Opened { sandbox: sandbox_id(0) };
        let session = Session::new();
        let transition = step(&session, opened).accepted().expect("a new session can be opened");
        vec![World {
            session: session.after(&transition),
            owner: 0,
            leases: [true, true],
            ticks: 0,
            seen: Seen::default(),
            sandboxes: vec![Sandbox { compute: Compute::Runs, tree: 0, committed: true }],
            snapshots: vec![],
            latest: 0,
            user: None,
            actors: [Doing::Nothing; ACTORS],
            stored: vec![],
            faults: 0,
            interrupted: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for here in 0..ACTORS {
            match world.actors[here] {
                Doing::Nothing => {
                    if here < 2 {
                        actions.push(Action::Propose(here));
                    }
                    if here > 0 && world.user.is_none() {
                        actions.push(Action::Knock(here));
                    }
                }
                Doing::Proposed(_) | Doing::Knocking => actions.push(Action::TakeLock(here)),
                Doing::Locked(..) => actions.push(Action::Begin(here)),
                Doing::Snapshotting(saga) => {
                    actions.push(Action::Perform(here, Report::Done));
                    if saga.stage == Stage::Terminate && world.faults < FAULTS {
                        actions.push(Action::Perform(here, Report::Failed));
                    }
                }
                Doing::Resuming(_) => {
                    actions.push(Action::Resume(here, Probe::Healthy));
                    if world.faults < FAULTS {
                        actions.push(Action::Resume(here, Probe::Unknown));
                    }
                }
                Doing::Created(..) => actions.push(Action::EnterCreated(here)),
            }
            if world.faults < FAULTS && world.actors[here] != Doing::Nothing {
                actions.push(Action::Crash(here));
            }
        }
        for node in 0..2 {
            if world.faults < FAULTS {
                actions.push(Action::LeaseLost(node));
            }
            actions.push(Action::LeaseBack(node));
        }
        actions.extend([Action::Tick, Action::Work, Action::Leave, Action::PerformStored]);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.ticks += 1,
            Action::LeaseLost(here) => {
                world.leases[here] = false;
                world.faults += 1;
            }
            Action::LeaseBack(here) => world.leases[here] = true,
            Action::Crash(here) => {
                world.actors[here] = Doing::Nothing;
                world.user = world.user.filter(|user| user.node != host(here));
                world.faults += 1;
            }
            Action::Propose(here) => world.actors[here] = self.propose(last, here)?,
            Action::TakeLock(here) => self.take_lock(&mut world, here)?,
            Action::Begin(here) => self.begin_step(&mut world, here)?,
            Action::Perform(here, wish) => {
                let Doing::Snapshotting(saga) = last.actors[here] else { return None };
                world.faults += u8::from(wish == Report::Failed);
                self.perform(&mut world, here, saga, wish);
            }
            Action::Knock(here) => world.actors[here] = Doing::Knocking,
            Action::Resume(here, probe) => {
                let Doing::Resuming(key) = last.actors[here] else { return None };
                world.faults += u8::from(probe == Probe::Unknown);
                self.resume(&mut world, here, key, probe);
            }
            Action::EnterCreated(here) => {
                let Doing::Created(key, sandbox) = last.actors[here] else { return None };
                self.enter(&mut world, here, key, sandbox);
            }
            Action::Work => self.work(&mut world)?,
            Action::Leave => world.user = None,
            Action::PerformStored => {
                let id = world.stored.pop()?;
                world.sandboxes[index(id)].compute = Compute::Destroyed;
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_LOST, |_, world: &World| world.latest_is_safe()),
            Property::always(USER_SERVED, |_, world: &World| world.user_is_served()),
            Property::always(NOT_INTERRUPTED, |_, world: &World| !world.interrupted),
            Property::always(NONE_FORGOTTEN, |_, world: &World| world.none_forgotten()),
            Property::sometimes("a session pauses for inactivity", |_, world: &World| {
                paused_for(world, PauseReason::Inactivity)
            }),
            Property::sometimes("an orphan is paused", |_, world: &World| {
                paused_for(world, PauseReason::Orphaned)
            }),
            Property::sometimes("a paused session is used again", |_, world: &World| {
                world.user.is_some() && world.session.revision.0 >= 3 && world.latest == 2
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.ticks <= 2 && world.session.epoch <= Epoch(4)
    }
}

const NOTHING_LOST: &str = "the latest work is where the row says that it is";
const USER_SERVED: &str = "whoever is admitted has a running sandbox";
const NOT_INTERRUPTED: &str = "nobody is snapshotted for inactivity while at work";
const NONE_FORGOTTEN: &str = "no sandbox is forgotten";

fn paused_for(world: &World, wanted: PauseReason) -> bool {
    matches!(world.session.state, State::Paused { reason, .. } if reason == wanted)
}

impl Protocol {
    /// What a node would do by itself, judged without the lock.
    fn propose(&self, world: &World, here: usize) -> Option<Doing> {
        let (session, now) = (&world.session, world.now());
        if world.owner == host(here) && world.leases[host(here)] {
            let judged = idle::judge(&world.presence(here), &session.state, &self.limits, now);
            return matches!(judged, Idle::Eligible { .. }).then_some(Doing::Proposed(Why::Idle));
        }
        match orphan::owner_lost(session, world.owner(), now) {
            Proposal::Snapshot(_) => Some(Doing::Proposed(Why::Orphan)),
            Proposal::Leave
            | Proposal::Adopt
            | Proposal::FinishPausing(_)
            | Proposal::Terminate(_) => None,
        }
    }

    fn take_lock(&self, world: &mut World, here: usize) -> Option<()> {
        let taken = lock::take(world.session, node(host(here)), &self.limits, world.now());
        let doing = world.actors[here];
        match (taken, doing) {
            (Err(_), Doing::Proposed(_)) => world.actors[here] = Doing::Nothing,
            (Ok(session), Doing::Proposed(why)) => {
                world.session = session;
                world.actors[here] = Doing::Locked(why, session.epoch);
            }
            (Ok(session), Doing::Knocking) => {
                world.session = session;
                let key = Key::read(&session, session.epoch, world.now())?;
                world.actors[here] = Doing::Resuming(key);
            }
            _ => return None,
        }
        Some(())
    }

    fn begin_step(&self, world: &mut World, here: usize) -> Option<()> {
        let Doing::Locked(why, number) = world.actors[here] else { return None };
        match self.begin(world, here, why, number) {
            Some(saga) => world.actors[here] = Doing::Snapshotting(saga),
            None => {
                world.session = lock::release(world.session, number);
                world.actors[here] = Doing::Nothing;
            }
        }
        Some(())
    }

    /// The user changes the tree, if the runner admits them; else they are sent away.
    fn work(&self, world: &mut World) -> Option<()> {
        let user = world.user?;
        let admitted = world.seen.admit(user.epoch).is_ok();
        let sandbox = &mut world.sandboxes[index(user.sandbox)];
        if !admitted || sandbox.compute != Compute::Runs {
            world.user = None;
            return Some(());
        }
        if world.latest == 2 {
            return None;
        }
        world.latest += 1;
        sandbox.tree = world.latest;
        Some(())
    }
}

const MEMORY: Capabilities = Capabilities { memory: true, pause: false, files: false };
const PAUSE: Capabilities = Capabilities { memory: false, pause: true, files: false };

/// The properties that the checker finds violated or, for *sometimes*, exemplified.
fn discoveries(twin: Twin, capabilities: Capabilities, until: HasDiscoveries) -> Vec<&'static str> {
    let protocol = Protocol { twin, capabilities, limits: Limits::default() };
    let checker = protocol.checker().finish_when(until).spawn_bfs().join();
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    found
}

fn check_sound(capabilities: Capabilities) {
    assert_eq!(
        discoveries(Twin::Sound, capabilities, HasDiscoveries::AnyFailures),
        [
            "a paused session is used again",
            "a session pauses for inactivity",
            "an orphan is paused",
        ],
        "nothing violated, everything reached"
    );
}

fn check_twin(twin: Twin, capabilities: Capabilities, violated: &'static str) {
    let until = HasDiscoveries::AllOf([violated].into());
    let found = discoveries(twin, capabilities, until);
    assert!(found.contains(&violated), "{twin:?} was not caught: {found:?}");
}

#[test]
fn the_protocol_is_sound_with_memory_snapshots() {
    check_sound(MEMORY);
}

#[test]
fn the_protocol_is_sound_with_pause() {
    check_sound(PAUSE);
}

#[test]
fn twin_without_the_predicate_in_the_lock_is_caught() {
    check_twin(Twin::NoPredicateInLock, MEMORY, NOT_INTERRUPTED);
    check_twin(Twin::NoPredicateInLock, PAUSE, NOT_INTERRUPTED);
}

#[test]
fn twin_that_judges_idle_without_owning_is_caught() {
    check_twin(Twin::NoOwnerInLock, MEMORY, NOT_INTERRUPTED);
}

#[test]
fn twin_without_compare_and_set_is_caught() {
    check_twin(Twin::NoCompareAndSet, MEMORY, NOTHING_LOST);
}

#[test]
fn twin_without_the_epoch_at_the_runner_is_caught() {
    check_twin(Twin::NoEpochAtRunner, PAUSE, USER_SERVED);
}

#[test]
fn twin_that_terminates_before_it_commits_is_caught() {
    check_twin(Twin::TerminateBeforeCommit, MEMORY, NOTHING_LOST);
}

#[test]
fn twin_that_takes_unknown_for_gone_is_caught() {
    check_twin(Twin::UnknownIsGone, MEMORY, NOTHING_LOST);
}

#[test]
fn twin_that_assumes_a_termination_is_caught() {
    check_twin(Twin::TerminateAssumed, MEMORY, NONE_FORGOTTEN);
}
