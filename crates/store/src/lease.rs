//! Leases and beats: a narrow table beside the rows, outside their revisions.
//!
//! A beat renews a right; it decides nothing. So it touches no revision, and it can never overtake
//! a person's stop. It is answered after its batch is committed, with the lease end that was
//! committed and whether the holder is still current. A committed end is never shortened while the
//! same holder goes on in the same way, whatever the order in which beats and commits arrive and
//! whichever way a clock was set.

use belay_kernel::{AttemptNumber, NodeId, RunnerId, TaskId, Timestamp, WorkerId};

/// Who holds a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Holder {
    /// An attempt; its fence is its epoch.
    Attempt(TaskId, AttemptNumber),
    /// A worker; its fence is its connection.
    Worker(WorkerId),
    /// A runner; its fence is its connection.
    Runner(RunnerId),
    /// A node; its fence is its connection.
    Node(NodeId),
}

impl Holder {
    /// The columns `kind`, `subject`, `number`.
    pub(crate) fn columns(self) -> (&'static str, String, i64) {
        match self {
            Self::Attempt(task, number) => ("attempt", task.to_string(), i64::from(number.0)),
            Self::Worker(id) => ("worker", id.to_string(), 0),
            Self::Runner(id) => ("runner", id.to_string(), 0),
            Self::Node(id) => ("node", id.to_string(), 0),
        }
    }

    /// The holder that these columns name.
    pub(crate) fn from_columns(kind: &str, subject: &str, number: i64) -> Option<Self> {
        match kind {
            "attempt" => {
                let number = u32::try_from(number).ok()?;
                Some(Self::Attempt(subject.parse().ok()?, AttemptNumber(number)))
            }
            "worker" => subject.parse().ok().map(Self::Worker),
            "runner" => subject.parse().ok().map(Self::Runner),
            "node" => subject.parse().ok().map(Self::Node),
            _ => None,
        }
    }
}

/// What a commit does to a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseWrite {
    /// Whose.
    pub holder: Holder,
    /// What.
    pub act: LeaseAct,
}

/// What is done to a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseAct {
    /// It may be renewed by whoever knows the fence. An open lease with the same fence and mode is
    /// never shortened; another fence or mode begins anew.
    Open {
        /// What a beat must carry.
        fence: String,
        /// The way in which it is held, such as waiting or active.
        mode: &'static str,
        /// Its end.
        until: Timestamp,
    },
    /// It keeps its end and is renewed no more.
    Close,
    /// It is over and forgotten.
    Drop,
}

/// A renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Whose lease.
    pub holder: Holder,
    /// What it was opened with.
    pub fence: String,
    /// The end that is asked for.
    pub until: Timestamp,
}

/// The answer to a beat, after it was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beaten {
    /// Still current; the lease is committed to end then.
    Current {
        /// The committed end.
        until: Timestamp,
    },
    /// The lease is there, but it may not be renewed by this holder any more.
    Fenced,
    /// There is no such lease.
    Gone,
}

/// A lease as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Whose.
    pub holder: Holder,
    /// What a beat must carry.
    pub fence: String,
    /// The way in which it is held.
    pub mode: String,
    /// Its committed end.
    pub until: Timestamp,
    /// When it was last renewed or opened.
    pub beaten_at: Timestamp,
    /// Whether it may be renewed.
    pub open: bool,
}

/// Which leases are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseKind {
    /// Those of attempts.
    Attempt,
    /// Those of workers.
    Worker,
    /// Those of runners: which of them are present.
    Runner,
    /// Those of nodes: which of them are present.
    Node,
}

impl LeaseKind {
    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Worker => "worker",
            Self::Runner => "runner",
            Self::Node => "node",
        }
    }
}
