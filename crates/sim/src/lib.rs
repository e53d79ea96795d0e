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
mod coverage;
mod ghost;
mod haste;
mod knobs;
mod less;
mod machine;
mod net;
mod oracle;
mod people;
mod planted;
mod provider;
mod remote;
mod rng;
mod shrink;
mod sim;
mod store;
mod strike;
mod world;

pub use coverage::{Coverage, Unseen};
pub use less::Less;
pub use planted::Planted;
pub use shrink::{Shrunk, shrink};
pub use sim::Violation;

/// Which world is to be lived through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What everything is drawn from.
    pub seed: u64,
    /// What of it is left out.
    pub less: Less,
    /// A bug that is put in.
    pub planted: Option<Planted>,
}

impl Options {
    /// The world of this seed, as it is.
    pub fn seed(seed: u64) -> Self {
        Self { seed, less: Less::default(), planted: None }
    }

    /// What to run to see this world again, line by line, up to the step at which it ended. A bug
    /// in the real code is in no program but the simulator's own.
    pub fn replay(&self) -> String {
        let (seed, less) = (self.seed, &self.less);
        match self.planted {
            None => format!("belay sim --seed {seed}{less} --trace"),
            Some(Planted::Code(bug)) => {
                let run = "cargo run -p belay-sim --features planted --example plant --";
                format!("{run} {bug:?} --seed {seed}{less}")
            }
            Some(world) => {
                format!("belay sim --planted {} --seed {seed}{less} --trace", world.name())
            }
        }
    }
}

/// What became of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Which it was.
    pub options: Options,
    /// How long it lived, in its own time.
    pub simulated_ms: u64,
    /// How many steps its processes took.
    pub steps: u64,
    /// How many tasks there were.
    pub tasks: usize,
    /// The hash of its trace.
    pub hash: u64,
    /// The first thing that was wrong.
    pub found: Option<Violation>,
    /// What happened in it, counted.
    pub coverage: Coverage,
    /// What happened, line by line.
    pub trace: Vec<String>,
}

impl Report {
    /// What to run to see this world again.
    pub fn replay(&self) -> String {
        self.options.replay()
    }
}

/// Lives through one world.
pub fn run(options: &Options) -> Report {
    let _planting = options.planted.map(planted::plant);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    runtime.block_on(world::live(options))
}
