//! The receipt of a stop: what was there, what was killed, and how it is known to be gone.

use std::path::PathBuf;

use belay_kernel::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

/// One process, named so that it can be told from a later one with the same number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Its process id, as the machine sees it.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub started: u64,
    /// Its name.
    pub name: String,
}

/// How it is known that nothing of a sandbox is left. All kinds are observations; which one was
/// possible depends on the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Proof {
    /// Its cgroup was empty and could be removed, which the kernel refuses otherwise.
    CgroupRemoved {
        /// The cgroup.
        path: PathBuf,
    },
    /// The first process of its PID namespace ended, which the kernel lets happen last.
    NamespaceGone {
        /// The namespace's number.
        namespace: u64,
    },
    /// No process with its marker or below its shim was found, twice in a row. Weaker: a process
    /// that hides its environment and its parents would not be seen.
    NoneFound,
    /// The engine says that the container is not running, and its first process is gone.
    ContainerGone {
        /// The container.
        container: String,
    },
    /// The machine was booted since; no process survives that.
    Rebooted,
    /// It never existed here, and a tombstone keeps it so.
    NeverExisted,
}

/// What a stop did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// When the stop began.
    pub began: Timestamp,
    /// When the proof was had.
    pub proven: Timestamp,
    /// What was there when the kill came, at most [`Receipt::MAX_LISTED`] of them.
    pub killed: Vec<Seen>,
    /// How many there were in all.
    pub killed_count: u64,
    /// How it is known that nothing is left.
    pub proof: Proof,
}

impl Receipt {
    /// How many processes a receipt lists by name; all are counted.
    pub const MAX_LISTED: usize = 1_000;

    /// A receipt without processes.
    pub const fn empty(sandbox: SandboxId, now: Timestamp, proof: Proof) -> Self {
        Self { sandbox, began: now, proven: now, killed: Vec::new(), killed_count: 0, proof }
    }

    /// Adds what was seen, each process once.
    pub(crate) fn add(&mut self, seen: impl IntoIterator<Item = Seen>) {
        for one in seen {
            if self.killed.iter().any(|old| old.pid == one.pid && old.started == one.started) {
                continue;
            }
            self.killed_count += 1;
            if self.killed.len() < Self::MAX_LISTED {
                self.killed.push(one);
            }
        }
    }
}
