//! A world: put together from a seed, lived through trouble, healed, and asked what is still owed.

use std::collections::BTreeMap;
use std::sync::Arc;
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

use crate::machine::Machine;
use crate::net::{Line, Net, Node, SimPort};
use crate::oracle::Oracle;
use crate::people::Person;
use crate::provider::SimProvider;
use crate::remote::{Remote, SimWorkspace};
use crate::rng::{Drawn, Rng};
use crate::sim::{Gate, Part, Sim};
use crate::store::SimStore;
use crate::{Options, Report};

const RUNNER: RunnerId = RunnerId::from_bits(7);
/// How long a healed world may take to come to rest.
const REST_WITHIN_MS: u64 = 6 * 3_600_000;

/// Everything, and who is up.
struct World {
    sim: Arc<Sim>,
    memory: Memory,
    blobs: Blobs,
    vault: Arc<MemoryVault>,
    chance: Arc<dyn Chance>,
    oracle: Arc<Oracle>,
    machine: Arc<Machine>,
    remote: Arc<Remote>,
    net: Arc<Net>,
    observer: Control<Memory>,
    root: TempDir,
    node_gate: Arc<Gate>,
    runner_gate: Arc<Gate>,
    /// Nodes that stood still while another one took their place.
    zombies: Vec<Arc<Node>>,
    runner: Option<JoinHandle<()>>,
    node_up_since: u64,
    node_back_at: Option<u64>,
    runner_back_at: Option<u64>,
    next_crash: u64,
}

/// Lives through the world of a seed.
pub(crate) async fn live(options: &Options) -> Report {
    let mut world = World::new(options).await;
    world.trouble().await;
    if world.sim.found().is_none() {
        world.heal().await;
    }
    let rested = world.sim.found().is_none() && world.rest().await;
    let found = world.sim.found();
    let simulated_ms = world.sim.ms();
    if found.is_none() && rested {
        world.sim.note("the world is at rest");
    }
    let tasks = world.oracle.tasks().len();
    let (trace, hash) = world.sim.trace();
    Report { seed: options.seed, simulated_ms, tasks, hash, found, trace }
}

fn settings() -> Settings {
    Settings { agent: "claude".into(), ..Settings::default() }
}

impl World {
    async fn new(options: &Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let chance: Arc<dyn Chance> = Arc::new(Drawn::new(rng.fork()));
        let sim = Arc::new(Sim::new(rng, options.planted));
        sim.note(format_args!("world   {:?}", sim.knobs));
        let memory = Memory::new(InstallationId::from_bits(1), 1);
        memory.set_now(sim.now());
        let oracle = Arc::new(Oracle::new(Arc::clone(&sim), memory.clone()));
        let remote = Arc::new(Remote::new(Arc::clone(&sim)));
        let machine = Arc::new(Machine::new(Arc::clone(&sim), Arc::clone(&remote)));
        let _ = oracle.machine.set(Arc::clone(&machine));
        let _ = remote.oracle.set(Arc::clone(&oracle));
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
        });
        let observer = observer.await.expect("the in-memory store opens");
        let next_crash = sim.rng().below(sim.knobs.crash_every_ms * 2);
        let root = private_directory();
        Self {
            memory,
            node_gate: Gate::new(&sim, Part::Node),
            runner_gate: Gate::new(&sim, Part::Runner),
            zombies: Vec::new(),
            net: Arc::new(Net::new(Arc::clone(&sim))),
            sim,
            blobs,
            vault,
            chance,
            oracle,
            machine,
            remote,
            observer,
            root,
            runner: None,
            node_up_since: 0,
            node_back_at: Some(0),
            runner_back_at: Some(0),
            next_crash,
        }
    }

    async fn open_node(&mut self) {
        self.node_gate = Gate::new(&self.sim, Part::Node);
        let store = SimStore {
            sim: Arc::clone(&self.sim),
            memory: self.memory.clone(),
            oracle: Arc::clone(&self.oracle),
            gate: Arc::clone(&self.node_gate),
        };
        let parts = Parts {
            store,
            blobs: self.blobs.clone(),
            vault: self.vault.clone(),
            chance: Arc::clone(&self.chance),
            settings: settings(),
            embedded: self.sim.knobs.embedded.then_some(RUNNER),
            back_up: None,
        };
        let control = Control::open(parts).await.expect("the in-memory store opens");
        let node = Arc::new(Node::new(control.clone()));
        node.spawn(async move { control.tend().await });
        self.net.set(Some(node));
        self.node_up_since = self.sim.ms();
        self.sim.note("node    is up");
    }

    fn open_runner(&mut self) {
        let config = RunnerConfig {
            runner: RUNNER,
            name: "here".into(),
            version: "1".into(),
            root: self.root.path().to_owned(),
            workers: BTreeMap::from([("default".to_owned(), self.sim.knobs.slots)]),
            url: "http://belay.invalid".into(),
            path: String::new(),
            hidden: Vec::new(),
            sandbox: belay_sandbox::Limits::default(),
            limits: Limits::default(),
            publish_without_isolation: false,
        };
        let line = if self.sim.knobs.embedded { Line::Inside } else { Line::Network };
        let gate = Gate::new(&self.sim, Part::Runner);
        self.runner_gate = Arc::clone(&gate);
        let provider = SimProvider(Arc::clone(&self.machine), Arc::clone(&gate));
        let runner = Runner::new(
            config,
            SimPort { net: Arc::clone(&self.net), line, gate: Arc::clone(&gate) },
            BTreeMap::from([("process".to_owned(), provider)]),
            SimWorkspace(Arc::clone(&self.remote), gate),
            Arc::clone(&self.chance),
        );
        self.runner = Some(tokio::spawn(runner.run(std::future::pending())));
        self.sim.note("runner  is up");
    }

    /// How long something that fell stays down.
    fn downtime(&self) -> u64 {
        let mut rng = self.sim.rng();
        match rng.below(10) {
            0 => rng.between(60_000, 700_000),
            1..4 => rng.between(3_000, 50_000),
            _ => rng.between(10, 2_000),
        }
    }

    async fn fall(&mut self, part: Part) {
        let both = self.sim.knobs.embedded;
        let down = self.downtime();
        let back_at = self.sim.ms() + down;
        if part == Part::Node || both {
            if let Some(node) = self.net.set(None) {
                node.fall();
            }
            self.node_back_at = Some(back_at);
            self.sim.note(format_args!("node    falls for {down} ms"));
        }
        if part == Part::Runner || both {
            if let Some(runner) = self.runner.take() {
                runner.abort();
                let _ = runner.await;
            }
            self.runner_back_at = Some(back_at);
            self.sim.note(format_args!("runner  falls for {down} ms"));
        }
    }

    /// Lets what is due happen: falls, and returns from them.
    async fn turn(&mut self) {
        for part in self.sim.blown() {
            self.fall(part).await;
        }
        let now = self.sim.ms();
        if self.node_back_at.is_some_and(|at| at <= now) {
            self.node_back_at = None;
            self.open_node().await;
        }
        if self.runner_back_at.is_some_and(|at| at <= now) {
            self.runner_back_at = None;
            self.open_runner();
        }
        if !self.sim.is_calm() && now >= self.next_crash {
            let every = self.sim.knobs.crash_every_ms;
            self.next_crash = now + self.sim.rng().below(every * 2);
            self.strike();
        }
        let up = match self.node_back_at {
            None => now.saturating_sub(self.node_up_since),
            Some(_) => 0,
        };
        self.oracle.look(&self.observer, up).await;
    }

    /// Something is to fall at one of its next steps, or stands still from now on.
    fn strike(&mut self) {
        let (part, steps, falls) = {
            let mut rng = self.sim.rng();
            let part = if rng.permille(500) { Part::Node } else { Part::Runner };
            (part, rng.below(60), rng.permille(700))
        };
        let gate = match part {
            Part::Node => &self.node_gate,
            Part::Runner => &self.runner_gate,
        };
        if falls {
            return gate.light(steps);
        }
        let down = self.downtime();
        let until = self.sim.ms() + down;
        gate.pause_until(until);
        self.sim.note(format_args!("{part:?} stands still for {down} ms"));
        if self.sim.knobs.embedded {
            // One process.
            self.node_gate.pause_until(until);
            self.runner_gate.pause_until(until);
            self.node_up_since = until;
        } else if part == Part::Node {
            self.node_up_since = until;
            if self.sim.rng().permille(600)
                && let Some(node) = self.net.set(None)
            {
                self.zombies.push(node);
                let soon = self.sim.rng().between(10, 20_000);
                self.node_back_at = Some(self.sim.ms() + soon);
                self.sim.note(format_args!("another node takes its place in {soon} ms"));
            }
        }
    }

    /// Waits for a moment, or until something happens.
    async fn pause(&self, most: u64) {
        let back = [self.node_back_at, self.runner_back_at].into_iter().flatten().min();
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
        while self.sim.ms() < end && self.sim.found().is_none() {
            self.turn().await;
            self.pause(1_000).await;
        }
        people.abort();
    }

    async fn heal(&mut self) {
        self.sim.heal();
        self.zombies.drain(..).for_each(|node| node.fall());
        self.sim.note("world   is healed");
        let soon = Some(self.sim.ms());
        self.node_back_at = self.node_back_at.and(soon);
        self.runner_back_at = self.runner_back_at.and(soon);
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
            let owed = self.oracle.owed();
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

/// A directory for the runner's own files, in memory where there is such a place.
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
