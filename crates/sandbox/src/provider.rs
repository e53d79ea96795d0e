//! The one trait through which sandboxes are made, watched and ended.
//!
//! ```text
//! prepare ──► start ──► (agent runs) ──► end ──► destroy
//!    │          │  renew · write · signal · pause · resume · snapshot
//!    └── stop ──┴── stop, at any time, also before prepare: a tombstone stays
//! ```
//!
//! Rules for every implementation, held by the conformance suite:
//!
//! - The caller draws the [`SandboxId`] and records it *before* it calls `prepare`, so that a stop
//!   always has something to name.
//! - Every call may be repeated: the second one finds what the first one did. Every call is bounded
//!   in time.
//! - What changes something carries a [`Fence`]; a lower epoch is refused with
//!   [`Refusal::Fenced`](crate::Refusal::Fenced). Reading changes nothing and carries none.
//! - `stop` succeeds if there is nothing to stop. It leaves a tombstone that `prepare`, `restore`
//!   and `start` check under the lock under which it was written.
//! - A sandbox lives as long as its agent: when the agent ends, what it left behind is ended too.

use std::future::Future;

use belay_kernel::{AttemptNumber, Epoch, InstallationId, SandboxId, SessionId, SnapshotId};
use belay_kernel::{Span, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::output::{End, Output};
use crate::plan::{Fence, Moment, Plan};
use crate::receipt::Receipt;

/// What a provider can do on this machine, as data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// The provider's name.
    pub provider: String,
    /// Whether a running sandbox can be frozen and go on later.
    pub pause: bool,
    /// Whether a snapshot can hold the memory of running processes.
    pub memory_snapshot: bool,
    /// Whether a snapshot can hold the files.
    pub file_snapshot: bool,
    /// Whether the home directory, other trees and Belay's data are hidden from the agent.
    pub isolation: bool,
    /// Whether the network can be cut.
    pub network_cut: bool,
    /// Whether memory is limited for the sandbox as a whole.
    pub memory_limit: bool,
    /// Whether the number of processes is limited.
    pub process_limit: bool,
    /// Whether CPU is limited.
    pub cpu_limit: bool,
    /// Whether a kill reaches every process whatever it does.
    pub complete_kill: bool,
    /// What is weaker here than it could be, in sentences.
    pub weaker: Vec<String>,
}

/// Which part of a sandbox a snapshot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// Files and the memory of running processes.
    Memory,
    /// Files only.
    Files,
}

/// A stored snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id, which the caller drew.
    pub id: SnapshotId,
    /// What it holds.
    pub kind: SnapshotKind,
    /// The sandbox it was taken of.
    pub sandbox: SandboxId,
    /// When it was taken.
    pub at: Timestamp,
    /// How many bytes it takes.
    pub bytes: u64,
}

/// What a probe found. Only `Gone` says that the sandbox is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It answers.
    Healthy,
    /// It is proven not to exist.
    Gone,
    /// Neither could be found out.
    Unknown {
        /// Why not.
        why: String,
    },
}

/// How far a sandbox has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Recorded or being made; the agent has not been executed.
    Prepared,
    /// The agent was executed.
    Running,
    /// Frozen.
    Paused,
    /// Over, and proven so.
    Ended,
}

/// One process inside a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its process id, as the machine sees it.
    pub pid: u32,
    /// The process above it.
    pub parent: u32,
    /// Its start time, in clock ticks since boot.
    pub started: u64,
    /// Its name.
    pub name: String,
    /// Its state, as the kernel writes it (`R`, `S`, `D`, `T`, `Z`, …).
    pub state: char,
    /// CPU time it has used.
    pub cpu: Span,
    /// Memory it holds.
    pub memory_bytes: u64,
}

/// What a sandbox is doing now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inspection {
    /// How far it has come.
    pub phase: Phase,
    /// Its processes, parents before children.
    pub processes: Vec<ProcessInfo>,
    /// CPU time of everything that ever ran in it, as far as can be known.
    pub cpu: Span,
    /// Memory of all of it.
    pub memory_bytes: u64,
}

/// One sandbox in a provider's list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its session.
    pub session: SessionId,
    /// Its task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt: AttemptNumber,
    /// The highest epoch that its session has seen here.
    pub epoch: Epoch,
    /// The installation's own epoch when it was made; another one means a restored backup.
    pub installation_epoch: u64,
    /// When it was made.
    pub created: Timestamp,
    /// How far it has come.
    pub phase: Phase,
}

/// Whose sandboxes these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Installation {
    /// The installation.
    pub id: InstallationId,
    /// Its epoch, which a restored backup raises.
    pub epoch: u64,
}

/// Signals that can be sent to an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Interrupt, as from a terminal.
    Interrupt,
    /// Hang-up.
    Hangup,
    /// Please end.
    Terminate,
    /// Quit with a core dump.
    Quit,
    /// User-defined 1.
    User1,
    /// User-defined 2.
    User2,
    /// Go on after a stop signal.
    Continue,
}

impl Signal {
    /// Its number on Linux.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::User1 => 10,
            Self::User2 => 12,
            Self::Terminate => 15,
            Self::Continue => 18,
        }
    }
}

/// Whether more standard input will follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum More {
    /// More may follow.
    Follows,
    /// This was the last; standard input is closed after it.
    Ends,
}

/// Makes, watches and ends sandboxes.
pub trait Provider: Send + Sync + 'static {
    /// What this provider can do here.
    fn capabilities(&self) -> Capabilities;

    /// Now, on the clock of the machine that runs the sandboxes. A lease is counted from a reading
    /// that was taken *before* its renewal was sent.
    fn moment(&self) -> Moment;

    /// Makes the sandbox, with everything but the agent in it. It is ended if it is not started
    /// while `until` lasts.
    fn prepare(
        &self,
        fence: &Fence,
        plan: &Plan,
        until: Moment,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Executes the agent, once; to be called when the attempt is committed as RUNNING.
    fn start(&self, fence: &Fence, until: Moment) -> impl Future<Output = Result<()>> + Send;

    /// Makes the lease last until `until`; never shortens it.
    fn renew(&self, fence: &Fence, until: Moment) -> impl Future<Output = Result<()>> + Send;

    /// Reads output from `offset` on: at once if there is any, or the sandbox has ended, else after
    /// at most `wait`. At most about `max_bytes` at a time.
    fn attach(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max_bytes: usize,
        wait: Span,
    ) -> impl Future<Output = Result<Output>> + Send;

    /// Writes to the agent's standard input at `offset`; what was written there before is skipped.
    /// Returns where the next byte goes: less than asked for if the agent does not read.
    fn write(
        &self,
        fence: &Fence,
        offset: u64,
        bytes: &[u8],
        more: More,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Sends a signal to the agent's own process.
    fn signal(&self, fence: &Fence, signal: Signal) -> impl Future<Output = Result<()>> + Send;

    /// Ends the sandbox: asks politely, kills after `grace`, and proves that nothing is left.
    fn stop(&self, fence: &Fence, grace: Span) -> impl Future<Output = Result<Receipt>> + Send;

    /// Freezes every process. The lease does not run meanwhile: what is frozen cannot act.
    fn pause(&self, fence: &Fence) -> impl Future<Output = Result<()>> + Send;

    /// Lets a frozen sandbox go on, under a new lease.
    fn resume(&self, fence: &Fence, until: Moment) -> impl Future<Output = Result<()>> + Send;

    /// Takes a snapshot under an id that the caller drew.
    fn snapshot(
        &self,
        fence: &Fence,
        id: SnapshotId,
        kind: SnapshotKind,
    ) -> impl Future<Output = Result<Snapshot>> + Send;

    /// Prepares a new sandbox from a snapshot; `plan.tree` must not exist, or be empty.
    fn restore(
        &self,
        fence: &Fence,
        id: SnapshotId,
        plan: &Plan,
        until: Moment,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Removes a snapshot; one that is not there is removed.
    fn forget(&self, id: SnapshotId) -> impl Future<Output = Result<()>> + Send;

    /// Asks whether the sandbox is there, within `wait`.
    fn probe(&self, sandbox: SandboxId, wait: Span) -> impl Future<Output = Probe> + Send;

    /// What the sandbox is doing.
    fn inspect(&self, sandbox: SandboxId) -> impl Future<Output = Result<Inspection>> + Send;

    /// How the sandbox ended, if it has.
    fn end(&self, sandbox: SandboxId) -> impl Future<Output = Result<Option<End>>> + Send;

    /// Everything of this installation that this provider has here.
    fn list(&self) -> impl Future<Output = Result<Vec<Listed>>> + Send;

    /// Removes an ended sandbox and its output, never its tree. Stops it first if it has not ended.
    fn destroy(&self, fence: &Fence) -> impl Future<Output = Result<()>> + Send;
}
