//! The simulator: the real control plane and the real runner in a world drawn from one seed.
//!
//! ```text
//!  people ──► net ──► control ──► store (in memory, faults)
//!               ▲
//!  runner ──────┘──► provider, workspace ──► machine: sandboxes, agents, trees ──► remote
//!                    the oracle watches all of it from outside
//! ```
//!
//! Time is virtual, chance comes from the seed, and there is one thread: the same seed is the same
//! world, to the last line of its trace. First there is trouble (everything falls, is lost, late or
//! said twice), then everything is healed, and then it must come to rest.

mod agent;
mod ghost;
mod knobs;
mod machine;
mod net;
mod oracle;
mod people;
mod provider;
mod remote;
mod rng;
mod sim;
mod store;
mod strike;
mod world;

pub use sim::Violation;

use belay_kernel::planted::Bug;

/// A bug that is put into the world on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The provider lets lower epochs act.
    FenceIgnored,
    /// The provider starts what was stopped before it was made.
    TombstoneIgnored,
    /// A kill does not reach processes that left the agent's group.
    KillMissesEscapees,
    /// A stop asks politely, and says that it has killed.
    StopOnlyAsks,
    /// The shim does not end its sandbox with the lease.
    ShimForgetsLease,
    /// An agent is executed again when its start is repeated.
    StartsTwice,
    /// Some output is not what was printed.
    OutputDropped,
    /// The remote moves branches whatever they are.
    PushWithoutLease,
    /// The publish gate is answered without being opened.
    GateSkipped,
    /// A stop is acknowledged as soon as it is asked for.
    StopAckedEarly,
    /// The store acknowledges what it has not written.
    StoreForgets,
    /// One in the real code, which is there if the feature `planted` is.
    Code(Bug),
}

impl Planted {
    /// Every one of the world's own.
    pub const WORLD: &[Self] = &[
        Self::FenceIgnored,
        Self::TombstoneIgnored,
        Self::KillMissesEscapees,
        Self::StopOnlyAsks,
        Self::ShimForgetsLease,
        Self::StartsTwice,
        Self::OutputDropped,
        Self::PushWithoutLease,
        Self::GateSkipped,
        Self::StopAckedEarly,
        Self::StoreForgets,
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        let code = if CODE { Bug::ALL } else { &[] };
        let all = Self::WORLD.iter().copied().chain(code.iter().copied().map(Self::Code));
        all.into_iter().find(|planted| planted.name() == name)
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Code(bug) => format!("{bug:?}"),
            world => format!("{world:?}"),
        }
    }
}

/// Whether bugs can be planted in the real code.
const CODE: bool = cfg!(feature = "planted");

/// Which world is to be lived through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What everything is drawn from.
    pub seed: u64,
    /// A bug that is put in.
    pub planted: Option<Planted>,
}

impl Options {
    /// The world of this seed, as it is.
    pub const fn seed(seed: u64) -> Self {
        Self { seed, planted: None }
    }
}

/// What became of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// How long it lived, in its own time.
    pub simulated_ms: u64,
    /// How many tasks there were.
    pub tasks: usize,
    /// The hash of its trace.
    pub hash: u64,
    /// The first thing that was wrong.
    pub found: Option<Violation>,
    /// What happened, line by line.
    pub trace: Vec<String>,
}

impl Report {
    /// What to run to see this world again, line by line.
    pub fn replay(&self) -> String {
        format!("cargo run -p belay-sim -- --seed {} --trace", self.seed)
    }
}

/// Lives through one world.
pub fn run(options: &Options) -> Report {
    #[cfg(feature = "planted")]
    let _planting = match options.planted {
        Some(Planted::Code(bug)) => Some(belay_kernel::planted::plant(bug)),
        Some(_) | None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    runtime.block_on(world::live(options))
}
