//! What the provider and the shim say to each other: files that describe the sandbox, and one
//! request and one reply a connection, each a line of JSON. A write's bytes follow its line.

use std::path::PathBuf;

use belay_kernel::{Epoch, SandboxId, SessionId, Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::os::cgroup::Group;
use crate::os::pid::ProcessRef;
use crate::plan::{Moment, Plan};
use crate::provider::{Installation, More, Signal};

pub(crate) const IDENTITY: &str = "identity.json";
pub(crate) const LAUNCH: &str = "launch.json";
pub(crate) const HELD: &str = "held.json";
pub(crate) const END: &str = "end.json";
pub(crate) const SOCKET: &str = "control.sock";
/// The agent's standard output, where it is a regular file.
pub(crate) const STDOUT: &str = "stdout";

/// The longest request line.
pub(crate) const MAX_LINE: usize = 16 << 10;
/// The most standard input that is taken at a time and kept for an agent that does not read.
pub(crate) const MAX_STDIN: usize = 256 << 10;

/// Who the sandbox is; recorded before anything of it exists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) installation: Installation,
    pub(crate) sandbox: SandboxId,
    pub(crate) session: SessionId,
    pub(crate) task: belay_kernel::TaskId,
    pub(crate) attempt: belay_kernel::AttemptNumber,
    pub(crate) tree: PathBuf,
    pub(crate) created: Timestamp,
    /// After another boot, none of its processes can be there.
    pub(crate) boot: String,
}

/// What the shim needs to make it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) sandbox: SandboxId,
    pub(crate) plan: Plan,
    pub(crate) epoch: Epoch,
    pub(crate) until: Moment,
    /// Arguments that lead to the shim inside its program.
    pub(crate) leading: Vec<String>,
    /// The bubblewrap to use and the paths it hides; none: no namespaces.
    pub(crate) bubblewrap: Option<PathBuf>,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) group: Option<Group>,
}

/// Who is there, for whoever must end it without the shim's help.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) shim: ProcessRef,
    /// Bubblewrap's own process, outside the namespace.
    pub(crate) wrapper: Option<ProcessRef>,
    pub(crate) init: Option<ProcessRef>,
    /// The PID namespace, if it has its own.
    pub(crate) namespace: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Status,
    Start { epoch: Epoch, until: Moment },
    Renew { epoch: Epoch, until: Moment },
    Write { epoch: Epoch, offset: u64, length: usize, more: More },
    Signal { epoch: Epoch, signal: Signal },
    Pause { epoch: Epoch },
    Resume { epoch: Epoch, until: Moment },
    Stop { epoch: Epoch, grace: Span },
    Watch { offset: u64, wait: Span },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Status { started: bool, paused: bool },
    Written { next: u64 },
    Refused(Refusal),
    Failed { message: String },
    StillAlive { count: usize },
}

/// What the shim prints when the sandbox is ready, or cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ready {
    Ready,
    Failed { message: String },
}
