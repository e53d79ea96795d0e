//! Where agents run: the [`Provider`] trait, process and Docker sandboxes, and the [`shim`] that
//! holds an attempt's lease beside the agent.
//!
//! A sandbox is named before it exists, executes its agent only when it is told to, dies when its
//! lease is not renewed, and when it is stopped the receipt says what was killed and how that is
//! known. The reasoning is in `docs/sandboxes.md`.

mod archive;
mod blocking;
mod docker;
mod doctor;
mod error;
mod fencing;
mod files;
mod log;
mod os;
mod output;
mod plan;
mod process;
mod provider;
mod receipt;
pub mod shim;

pub use docker::{AGENTS, DockerConfig, DockerProvider};
pub use doctor::{Finding, Report};
pub use error::{Error, Refusal, Result};
pub use output::{Chunk, End, EndReason, Exit, Output, Stream};
pub use plan::{Access, Base, Bind, Fence, Limits, MARKER, Margins, Moment, Network, Plan, Stdout};
pub use process::{ProcessConfig, ProcessProvider, ShimProgram, Use};
pub use provider::{
    Capabilities, Inspection, Installation, Listed, More, Phase, Probe, ProcessInfo, Provider,
    Signal, Snapshot, SnapshotKind,
};
pub use receipt::{Proof, Receipt, Seen};
