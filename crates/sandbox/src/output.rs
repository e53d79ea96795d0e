//! What an agent printed, in order, with the offset and the time of each piece; and how it ended.

use belay_kernel::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::receipt::Receipt;

/// Which of the agent's two output streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output. The offset counts the bytes of both streams together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Where its first byte stands among all bytes of the sandbox's output.
    pub offset: u64,
    /// When it was read from the agent, by the machine's clock.
    pub at: Timestamp,
    /// The stream.
    pub stream: Stream,
    /// The bytes, exactly as printed.
    pub bytes: Vec<u8>,
}

/// What [`attach`](crate::Provider::attach) returns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// The pieces from the wanted offset on, without gaps; perhaps none.
    pub chunks: Vec<Chunk>,
    /// The offset to ask for next.
    pub next: u64,
    /// How the sandbox ended, once `next` is the end of its output.
    pub end: Option<End>,
}

/// How the agent's process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was never started.
    NotStarted,
    /// Nobody was left who could see it.
    Unknown,
}

/// Why a sandbox ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The agent ended by itself.
    Exited,
    /// It was stopped.
    Stopped,
    /// Its lease was not renewed in time.
    LeaseOver,
    /// The shim beside it died, and it was ended with it.
    ShimLost,
    /// The agent could not be executed.
    StartFailed,
}

/// How a sandbox ended: written once, and what is written first stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// How the agent's process ended.
    pub exit: Exit,
    /// Why the sandbox ended.
    pub reason: EndReason,
    /// Whether the kernel killed something of it for want of memory.
    pub out_of_memory: bool,
    /// When.
    pub at: Timestamp,
    /// How many bytes it had printed.
    pub output_bytes: u64,
    /// What was killed, and the proof that nothing is left.
    pub receipt: Receipt,
}
