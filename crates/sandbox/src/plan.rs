//! What a sandbox is to be: the plan that `prepare` takes, and the fence that every change carries.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belay_kernel::{AttemptNumber, Epoch, SandboxId, SessionId, Span, TaskId};
use serde::{Deserialize, Serialize};

use crate::error::Refusal;

/// Who asks, for which sandbox, with which fencing number. Every operation that changes something
/// carries one; an epoch below the highest that its session has seen is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fence {
    /// The session that owns the sandbox.
    pub session: SessionId,
    /// The sandbox, by the id that its owner recorded before it existed.
    pub sandbox: SandboxId,
    /// The session's fencing number.
    pub epoch: Epoch,
}

/// A moment on the clock of the machine that runs the sandbox: milliseconds that go on counting
/// while the machine sleeps, and that no change of the wall clock moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The moment `ms` milliseconds after the machine's boot.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the machine's boot.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_millis()))
    }

    /// The moment `span` earlier.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.as_millis()))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// How long before the end of the lease the shim must begin, so that everything is dead by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Margins {
    /// Between the polite signal and the kill.
    pub grace: Span,
    /// What a kill with its proof may take.
    pub kill_bound: Span,
    /// What two clocks may drift apart within one lease.
    pub drift: Span,
}

impl Margins {
    /// All of them together.
    pub const fn total(&self) -> Span {
        self.grace.plus(self.kill_bound).plus(self.drift)
    }
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            grace: Span::from_secs(2),
            kill_bound: Span::from_secs(1),
            drift: Span::from_millis(500),
        }
    }
}

/// What is shared of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The sandbox has the machine's network, or the engine's default one.
    #[default]
    Shared,
    /// The sandbox has none.
    Cut,
}

/// What may be done with a path that is shown inside the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It may be read.
    Read,
    /// It may be read and written.
    Write,
}

/// A path of the machine that is shown inside the sandbox, at the same place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bind {
    /// The path, on the machine and inside.
    pub path: PathBuf,
    /// What may be done with it.
    pub access: Access,
}

/// Whether the image's own files can be changed (Docker). A process sandbox never changes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// Only the tree, the writable binds and the scratch space can be written.
    #[default]
    ReadOnly,
    /// The sandbox writes to its own layer, which a snapshot keeps.
    Writable,
}

/// What the agent's standard output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdout {
    /// A pipe: the agent waits when its output cannot be kept.
    #[default]
    Pipe,
    /// A regular file that is followed while it grows, for agents that exit before they have
    /// written everything into a pipe. It does not make the agent wait, and counts as a file where
    /// the size of files is limited.
    File,
}

/// What a sandbox may use. What is not set is not limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at a time.
    pub processes: Option<u32>,
    /// Thousandths of one CPU.
    pub cpu_millis: Option<u32>,
    /// Bytes of scratch space (`/tmp`), which is private and vanishes with the sandbox.
    pub scratch_bytes: Option<u64>,
    /// Bytes of any one file.
    pub file_bytes: Option<u64>,
}

/// Everything that a provider must know to prepare a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The task, for labels and names.
    pub task: TaskId,
    /// The attempt, for labels and names.
    pub attempt: AttemptNumber,
    /// The working tree: writable, and the agent's working directory.
    pub tree: PathBuf,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment of the agent: nothing else is passed on.
    pub env: BTreeMap<String, String>,
    /// What its standard output is.
    #[serde(default)]
    pub stdout: Stdout,
    /// Further paths to show.
    pub binds: Vec<Bind>,
    /// What is shared of the network.
    pub network: Network,
    /// What it may use.
    pub limits: Limits,
    /// How early the shim kills before the end of the lease.
    pub margins: Margins,
    /// The image (Docker).
    pub image: Option<String>,
    /// Whether the image's own files can be changed (Docker).
    pub base: Base,
}

/// The environment variable by which every process of a sandbox can be told from outside.
pub const MARKER: &str = "BELAY_SANDBOX";

/// Bounds of what is accepted, so that nothing is half done past them.
const MAX_ARGS: usize = 4_096;
const MAX_PLAN_BYTES: usize = 1 << 20;

impl Plan {
    /// A plan with defaults for all but the tree and the command.
    pub fn new<A: Into<String>>(
        task: TaskId,
        attempt: AttemptNumber,
        tree: impl Into<PathBuf>,
        argv: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            task,
            attempt,
            tree: tree.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            stdout: Stdout::default(),
            binds: Vec::new(),
            network: Network::default(),
            limits: Limits::default(),
            margins: Margins::default(),
            image: None,
            base: Base::default(),
        }
    }

    /// What is wrong with the plan in itself, whatever the provider.
    pub fn check(&self) -> Result<(), Refusal> {
        let bad = |what: &str, problem: &str| {
            Err(Refusal::BadPlan { what: what.into(), problem: problem.into() })
        };
        if self.argv.first().is_none_or(String::is_empty) {
            return bad("the command", "is empty");
        }
        if self.argv.len() > MAX_ARGS {
            return bad("the command", "has more than 4096 arguments");
        }
        if let Some(index) = self.argv.iter().position(|arg| arg.contains('\0')) {
            return bad(&format!("argument {index}"), "contains a NUL byte");
        }
        for (name, value) in &self.env {
            let problem = if name.is_empty() || name.contains(['=', '\0']) {
                "has a name that is empty or contains `=` or a NUL byte"
            } else if value.contains('\0') {
                "contains a NUL byte"
            } else if name == MARKER {
                "is set by Belay itself"
            } else {
                continue;
            };
            return Err(Refusal::BadEnvironment { name: name.clone(), problem: problem.into() });
        }
        let bytes: usize = self.argv.iter().map(String::len).sum::<usize>()
            + self.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes > MAX_PLAN_BYTES {
            return bad("command and environment", "are larger than 1 MiB");
        }
        for path in std::iter::once(&self.tree).chain(self.binds.iter().map(|bind| &bind.path)) {
            if !path.is_absolute() {
                return bad(&format!("the path {}", path.display()), "is not absolute");
            }
        }
        Ok(())
    }
}
