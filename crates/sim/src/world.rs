//! A world: put together from a seed, lived through trouble, healed, and asked what is still owed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_api::Chance;
use belay_control::{Control, MemoryVault, Parts, Settings};
use belay_kernel::{InstallationId, Limits, RunnerId};
use belay_runner::{Runner, RunnerConfig};
use belay_store::Memory;
use belay_store::blob::{BlobLimits, Blobs};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::haste::Haste;
use crate::machine::Machine;
use crate::net::{Line, Net, Node, SimPort};
use crate::oracle::{Oracle, Up};
use crate::people::Person;
use crate::provider::SimProvider;
use crate::remote::{Remote, SimWorkspace};
use crate::rng::{Drawn, Rng};
use crate::sim::{Gate, Part, Sim};
use crate::store::SimStore;
use crate::{Coverage, Options, Report};

/// The first runner; the ids of the others follow.
pub(crate) const FIRST: RunnerId = RunnerId::from_bits(7);
/// How long a healed world may take to come to rest.
const REST_WITHIN_MS: u64 = 6 * 3_600_000;

/// The place of a node.
pub(crate) struct NodePlace {
    pub(crate) gate: Arc<Gate>,
    pub(crate) up_since: u64,
    /// When it is up again, if it is not.
    pub(crate) back_at: Option<u64>,
    /// Until when it does not reach the store.
    pub(crate) cut_until: Arc<AtomicU64>,
}

/// A machine and its runner.
pub(crate) struct RunnerPlace {
    pub(crate) machine: Arc<Machine>,
    pub(crate) gate: Arc<Gate>,
    /// Its own directory.
    root: TempDir,
    pub(crate) runner: Option<JoinHandle<()>>,
    /// When it is up again, if it is not.
    pub(crate) back_at: Option<u64>,
}

/// Everything, and who is up.
pub(crate) struct World {
    pub(crate) sim: Arc<Sim>,
    memory: Memory,
    blobs: Blobs,
    vault: Arc<MemoryVault>,
    chance: Arc<dyn Chance>,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) net: Arc<Net>,
    observer: Control<Memory>,
    pub(crate) nodes: Vec<NodePlace>,
    pub(crate) runners: Vec<RunnerPlace>,
    /// Nodes that stood still while another one took their place.
    pub(crate) zombies: Vec<Arc<Node>>,
    /// When the store's clock was last set.
    pub(crate) jumped_at: u64,
    next_strike: u64,
}

/// Lives through the world of a seed.
pub(crate) async fn live(options: &Options) -> Report {
    let mut world = World::new(options).await;
    world.trouble().await;
    if world.sim.found().is_none() {
        world.heal();
    }
    let rested = world.sim.found().is_none() && world.rest().await;
    let found = world.sim.found();
    let simulated_ms = world.sim.ms();
    if found.is_none() && rested {
        world.sim.note("the world is at rest");
    }
    let tasks = world.oracle.tasks().len();
    let (trace, hash) = world.sim.trace();
    let coverage = Coverage { counts: world.sim.counts(), ..world.oracle.coverage() };
    let (steps, options) = (world.sim.steps(), options.clone());
    Report { options, simulated_ms, steps, tasks, hash, found, coverage, trace }
}

fn settings() -> Settings {
    Settings { agent: "claude".into(), ..Settings::default() }
}

impl World {
    async fn new(options: &Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let chance: Arc<dyn Chance> = Arc::new(Drawn::new(rng.fork()));
        let sim = Arc::new(Sim::new(rng, options));
        sim.note(format_args!("world   {:?}", sim.knobs));
        let memory = Memory::new(InstallationId::from_bits(1), 1);
        memory.set_now(sim.now());
        let oracle = Arc::new(Oracle::new(Arc::clone(&sim), memory.clone()));
        let remote = Arc::new(Remote::new(Arc::clone(&sim)));
        let net = Arc::new(Net::new(Arc::clone(&sim)));
        let runners = runners(&sim, &remote, &net);
        let machines = runners.iter().map(|place| Arc::clone(&place.machine)).collect();
        let _ = oracle.machines.set(machines);
        let _ = remote.oracle.set(Arc::downgrade(&oracle));
        let _ = net.oracle.set(Arc::downgrade(&oracle));
        let blobs = Blobs::in_memory(BlobLimits::default());
        let vault = Arc::new(MemoryVault::default());
        let observer = Control::open(Parts {
            store: memory.clone(),
            blobs: blobs.clone(),
            vault: vault.clone(),
            chance: Arc::new(Drawn::new(Rng::new(1))),
            settings: settings(),
            embedded: None,
            back_up: None,
            courier: None,
        });
        let observer = observer.await.expect("the in-memory store opens");
        let next_strike = sim.rng().below(sim.knobs.crash_every_ms * 2);
        let nodes = (0..sim.knobs.nodes).zip(0..).map(|(_, number)| NodePlace {
            gate: Gate::new(&sim, Part::Node(number)),
            up_since: 0,
            back_at: Some(0),
            cut_until: Arc::default(),
        });
        Self {
            memory,
            nodes: nodes.collect(),
            runners,
            zombies: Vec::new(),
            jumped_at: 0,
            sim,
            blobs,
            vault,
            chance,
            oracle,
            remote,
            net,
            observer,
            next_strike,
        }
    }

    /// Whether the runner of this number is in the first node's process.
    pub(crate) fn is_embedded(&self, number: usize) -> bool {
        self.sim.knobs.embedded && number == 0
    }

    async fn open_node(&mut self, number: usize) {
        let Some(place) = self.nodes.get_mut(number) else { return };
        place.gate = Gate::new(&self.sim, Part::Node(number));
        place.up_since = self.sim.ms();
        let store = SimStore {
            sim: Arc::clone(&self.sim),
            memory: self.memory.clone(),
            oracle: Arc::clone(&self.oracle),
            gate: Arc::clone(&place.gate),
            cut_until: Arc::clone(&place.cut_until),
        };
        let parts = Parts {
            store,
            blobs: self.blobs.clone(),
            vault: self.vault.clone(),
            chance: Arc::clone(&self.chance),
            settings: settings(),
            embedded: self.sim.knobs.embedded.then_some(FIRST),
            back_up: None,
            courier: None,
        };
        let control = Control::open(parts).await.expect("the in-memory store opens");
        let node = Arc::new(Node::new(control.clone()));
        node.spawn(async move { control.tend().await });
        self.net.set(number, Some(node));
        self.sim.note(format_args!("node {number} is up"));
    }

    fn open_runner(&mut self, number: usize) {
        let embedded = self.is_embedded(number);
        let Some(place) = self.runners.get_mut(number) else { return };
        let config = RunnerConfig {
            runner: RunnerId::from_bits(FIRST.as_bits() + number as u128),
            name: format!("machine-{number}"),
            version: "1".into(),
            root: place.root.path().to_owned(),
            workers: BTreeMap::from([("default".to_owned(), self.sim.knobs.slots)]),
            url: "http://belay.invalid".into(),
            belay: None,
            containers: BTreeMap::new(),
            path: String::new(),
            hidden: Vec::new(),
            sandbox: belay_sandbox::Limits::default(),
            limits: Limits::default(),
            publish_without_isolation: false,
        };
        let line = if embedded { Line::Inside } else { Line::Network };
        let gate = Gate::new(&self.sim, Part::Runner(number));
        place.gate = Arc::clone(&gate);
        let provider = SimProvider(Arc::clone(&place.machine), Arc::clone(&gate));
        let port = SimPort { net: Arc::clone(&self.net), number, line, gate: Arc::clone(&gate) };
        let workspace = SimWorkspace { remote: Arc::clone(&self.remote), machine: number, gate };
        let runner = Runner::new(
            config,
            port,
            BTreeMap::from([("process".to_owned(), provider)]),
            workspace,
            Arc::clone(&self.chance),
        );
        place.runner = Some(tokio::spawn(runner.run(std::future::pending())));
        self.sim.note(format_args!("runner {number} is up"));
    }

    /// A process falls, and whatever is in the same process.
    pub(crate) async fn fall(&mut self, part: Part, down: u64) {
        let (node, runner) = match part {
            Part::Node(number) => (Some(number), self.is_embedded(number).then_some(number)),
            Part::Runner(number) => (self.is_embedded(number).then_some(number), Some(number)),
        };
        let back_at = self.sim.ms() + down;
        if let Some(place) = node.and_then(|number| self.nodes.get_mut(number)) {
            place.back_at = Some(back_at);
            let number = node.unwrap_or_default();
            if let Some(node) = self.net.set(number, None) {
                node.fall();
            }
            self.sim.note(format_args!("node {number} falls for {down} ms"));
        }
        if let Some(place) = runner.and_then(|number| self.runners.get_mut(number)) {
            place.back_at = Some(back_at).filter(|_| !place.machine.is_lost());
            if let Some(runner) = place.runner.take() {
                runner.abort();
                let _ = runner.await;
            }
            let number = runner.unwrap_or_default();
            self.sim.note(format_args!("runner {number} falls for {down} ms"));
        }
    }

    /// Lets what is due happen: falls, and returns from them.
    async fn turn(&mut self) {
        for part in self.sim.blown() {
            let down = self.downtime();
            self.fall(part, down).await;
        }
        let now = self.sim.ms();
        for number in 0..self.nodes.len() {
            if self.nodes[number].back_at.take_if(|at| *at <= now).is_some() {
                self.open_node(number).await;
            }
        }
        for number in 0..self.runners.len() {
            if self.runners[number].back_at.take_if(|at| *at <= now).is_some() {
                self.open_runner(number);
            }
        }
        if !self.sim.is_calm() && now >= self.next_strike {
            let every = self.sim.knobs.crash_every_ms;
            self.next_strike = now + self.sim.rng().below(every * 2);
            self.strike().await;
        }
        self.oracle.look(&self.observer, self.up()).await;
    }

    /// For how long nodes have been up without a break, with their store and by its clock.
    fn up(&self) -> Up {
        let now = self.sim.ms();
        let up = self.nodes.iter().map(|place| {
            let cut_until = place.cut_until.load(Ordering::SeqCst);
            let cut = if self.sim.is_calm() { cut_until.min(now) } else { cut_until };
            match place.back_at {
                None => now.saturating_sub(place.up_since.max(cut).max(self.jumped_at)),
                Some(_) => 0,
            }
        });
        let (some, all) = (up.clone().max(), up.min());
        Up { some_ms: some.unwrap_or(0), all_ms: all.unwrap_or(0) }
    }

    /// Waits for a moment, or until something happens.
    async fn pause(&self, most: u64) {
        let nodes = self.nodes.iter().filter_map(|place| place.back_at);
        let back = nodes.chain(self.runners.iter().filter_map(|place| place.back_at)).min();
        let left = back.map_or(most, |at| at.saturating_sub(self.sim.ms()).max(1));
        let pause = Duration::from_millis(left.min(most));
        let _ = tokio::time::timeout(pause, self.sim.alarm.notified()).await;
    }

    fn person(&self) -> Person {
        Person { net: Arc::clone(&self.net), oracle: Arc::clone(&self.oracle) }
    }

    async fn trouble(&mut self) {
        let end = self.sim.knobs.trouble_ms;
        let person = self.person();
        let sim = Arc::clone(&self.sim);
        let people = tokio::spawn(async move {
            let tasks = sim.knobs.tasks;
            for made in 0.. {
                if made < tasks {
                    person.make().await;
                    sim.wait(0, 20_000).await;
                } else {
                    sim.wait(500, 40_000).await;
                }
                let meddles = sim.rng().below(3);
                for _ in 0..meddles {
                    person.meddle().await;
                }
            }
        });
        let haste = Haste { person: self.person(), remote: Arc::clone(&self.remote) };
        let haste = tokio::spawn(haste.seize());
        while self.sim.ms() < end && self.sim.found().is_none() {
            self.turn().await;
            self.pause(1_000).await;
        }
        people.abort();
        haste.abort();
    }

    /// From now on nothing goes wrong; what is lost stays lost.
    fn heal(&mut self) {
        self.sim.heal();
        self.zombies.drain(..).for_each(|node| node.fall());
        self.sim.note("world   is healed");
        let soon = Some(self.sim.ms());
        self.nodes.iter_mut().for_each(|place| place.back_at = place.back_at.and(soon));
        self.runners.iter_mut().for_each(|place| place.back_at = place.back_at.and(soon));
    }

    /// Waits until nothing is owed any more, or it has been for too long.
    async fn rest(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            self.turn().await;
            self.person().attend().await;
            if self.sim.found().is_some() {
                return false;
            }
            let mut owed = self.oracle.owed();
            owed.extend(self.oracle.left_behind(&self.blobs).await);
            if owed.is_empty() {
                return true;
            }
            if begun.elapsed() > Duration::from_millis(REST_WITHIN_MS) {
                let owed = owed.join("; ");
                self.sim.violate(7, format!("the healed world does not come to rest: {owed}"));
                return false;
            }
            self.pause(5_000).await;
        }
    }
}

/// The machines, each with a place for its runner.
fn runners(sim: &Arc<Sim>, remote: &Arc<Remote>, net: &Arc<Net>) -> Vec<RunnerPlace> {
    let place = |(_, number): (u64, usize)| RunnerPlace {
        machine: Arc::new(Machine::new(sim, remote, net, number)),
        gate: Gate::new(sim, Part::Runner(number)),
        root: private_directory(),
        runner: None,
        back_at: Some(0),
    };
    (0..sim.knobs.runners).zip(0..).map(place).collect()
}

/// A directory for a runner's own files, in memory where there is such a place.
fn private_directory() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("belay-sim-");
    let shared = std::path::Path::new("/dev/shm");
    let made = match shared.is_dir() {
        true => builder.tempdir_in(shared).or_else(|_| builder.tempdir()),
        false => builder.tempdir(),
    };
    made.expect("a temporary directory can be made")
}
