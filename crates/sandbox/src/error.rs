//! What goes wrong, by kind: a [`Refusal`] is an answer with a stable code, everything else in
//! [`Error`] is a failure of one named operation. Nothing is ever decided on the text of either.

use std::io;
use std::path::{Path, PathBuf};

use belay_kernel::{Epoch, SandboxId, SnapshotId, Span};
use serde::{Deserialize, Serialize};

/// What every operation of a provider returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a provider will not do what it was asked; asking again changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Refusal {
    /// A higher epoch of the session was seen.
    #[error("epoch {asked} is fenced: the session has seen epoch {seen}")]
    Fenced {
        /// The epoch that the operation carried.
        asked: Epoch,
        /// The highest epoch that the session has seen.
        seen: Epoch,
    },
    /// The sandbox was stopped, perhaps before it existed; it never starts again.
    #[error("sandbox {sandbox} was stopped and has a tombstone")]
    Tombstoned {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// No sandbox has this id here.
    #[error("no sandbox {sandbox} here")]
    NotFound {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The sandbox has ended.
    #[error("sandbox {sandbox} has ended")]
    Ended {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The sandbox belongs to another session.
    #[error("sandbox {sandbox} belongs to another session")]
    WrongSession {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The operation needs a started agent, and none was started.
    #[error("the agent of sandbox {sandbox} has not been started")]
    NotStarted {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// The lease is over, or so near its end that the sandbox would be killed at once.
    #[error("the lease is over")]
    LeaseOver,
    /// The working tree is not a directory that exists.
    #[error("the tree {} does not exist or is not a directory", path.display())]
    TreeMissing {
        /// The tree.
        path: PathBuf,
    },
    /// A restore would overwrite a tree, which might be the only copy.
    #[error("the tree {} exists already; a restore never overwrites one", path.display())]
    TreeExists {
        /// The tree.
        path: PathBuf,
    },
    /// A path to be shown inside the sandbox does not exist.
    #[error("{} is to be shown inside the sandbox and does not exist", path.display())]
    BindMissing {
        /// The path.
        path: PathBuf,
    },
    /// The program is not there.
    #[error("the program `{program}` was not found")]
    ProgramMissing {
        /// The program.
        program: String,
    },
    /// The program is there and cannot be executed.
    #[error("the program `{program}` is not executable")]
    ProgramNotExecutable {
        /// The program.
        program: String,
    },
    /// An environment variable cannot be passed on.
    #[error("the environment variable `{name}` {problem}")]
    BadEnvironment {
        /// The variable.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An argument, a path or another part of the plan cannot be used.
    #[error("{what} {problem}")]
    BadPlan {
        /// The part of the plan.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The image is not on this machine.
    #[error("the image `{image}` is not here; get it with `{command}`")]
    ImageMissing {
        /// The image.
        image: String,
        /// The command that gets it.
        command: String,
    },
    /// No snapshot has this id here.
    #[error("no snapshot {snapshot} here")]
    SnapshotMissing {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// The snapshot cannot be read back.
    #[error("snapshot {snapshot} is broken: {problem}")]
    SnapshotBroken {
        /// The snapshot.
        snapshot: SnapshotId,
        /// What is wrong with it.
        problem: String,
    },
    /// Bytes before this offset of the agent's standard input are missing.
    #[error("standard input has {expected} bytes; a write at {asked} would leave a gap")]
    StdinGap {
        /// Where the next byte goes.
        expected: u64,
        /// Where the caller wanted to write.
        asked: u64,
    },
    /// The agent's standard input is closed.
    #[error("the agent's standard input is closed")]
    StdinClosed,
    /// The provider, or this machine, cannot do that; the capabilities say so.
    #[error("{operation} is not possible here: {why}")]
    Unsupported {
        /// The operation.
        operation: String,
        /// What is missing.
        why: String,
    },
}

impl Refusal {
    /// What the error number of a failed execution means.
    pub(crate) fn of_exec(number: i32, argv: &[String]) -> Self {
        let program = argv.first().cloned().unwrap_or_default();
        match rustix::io::Errno::from_raw_os_error(number) {
            rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => {
                Self::ProgramMissing { program }
            }
            _ => Self::ProgramNotExecutable { program },
        }
    }

    /// The refusal's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "fenced",
            Self::Tombstoned { .. } => "tombstoned",
            Self::NotFound { .. } => "not_found",
            Self::Ended { .. } => "ended",
            Self::WrongSession { .. } => "wrong_session",
            Self::NotStarted { .. } => "not_started",
            Self::LeaseOver => "lease_over",
            Self::TreeMissing { .. } => "tree_missing",
            Self::TreeExists { .. } => "tree_exists",
            Self::BindMissing { .. } => "bind_missing",
            Self::ProgramMissing { .. } => "program_missing",
            Self::ProgramNotExecutable { .. } => "program_not_executable",
            Self::BadEnvironment { .. } => "bad_environment",
            Self::BadPlan { .. } => "bad_plan",
            Self::ImageMissing { .. } => "image_missing",
            Self::SnapshotMissing { .. } => "snapshot_missing",
            Self::SnapshotBroken { .. } => "snapshot_broken",
            Self::StdinGap { .. } => "stdin_gap",
            Self::StdinClosed => "stdin_closed",
            Self::Unsupported { .. } => "unsupported",
        }
    }
}

/// What an operation of a provider can end with, other than success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The provider will not do it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file or directory could not be used.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The shim could not be started, or ended before it was ready.
    #[error("the shim failed: {message}")]
    Shim {
        /// What it said.
        message: String,
    },
    /// The operation took longer than its bound; its outcome is unknown.
    #[error("{operation} did not finish within {after}")]
    TimedOut {
        /// The operation.
        operation: &'static str,
        /// The bound.
        after: Span,
    },
    /// Processes were still there after the kill; it is being retried, and the fence holds.
    #[error("{count} processes are still there after the kill")]
    StillAlive {
        /// How many.
        count: usize,
    },
    /// The container engine does not answer.
    #[error("the container engine at {address} does not answer; is it running?")]
    EngineDown {
        /// Where it was looked for.
        address: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The container engine answered with an error.
    #[error("the container engine could not {operation}")]
    Engine {
        /// What was tried.
        operation: &'static str,
        /// What it answered.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// A stable code for events, logs and callers.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Io { .. } => "io",
            Self::Shim { .. } => "shim",
            Self::TimedOut { .. } => "timed_out",
            Self::StillAlive { .. } => "still_alive",
            Self::EngineDown { .. } => "engine_down",
            Self::Engine { .. } => "engine",
        }
    }

    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Names the operation and the path of a failed file operation.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }
}
