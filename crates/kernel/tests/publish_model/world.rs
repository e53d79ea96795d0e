//! What there is: rows, nodes with decisions under way, hosts with agents, and the remote.

use std::collections::BTreeSet;

use belay_kernel::attempt::{Attempt, Proof};
use belay_kernel::fence::Seen;
use belay_kernel::publish::{CommitId, Push, Remote};
use belay_kernel::task::{Reason, State, Task};
use belay_kernel::{AttemptNumber, Clock, Timestamp};

use crate::ATTEMPTS;

/// What a runner and its shim know of the attempt that they host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Host {
    /// The agent's processes live.
    pub(crate) alive: bool,
    /// The agent has finished its work; its processes are gone.
    pub(crate) finished: bool,
    /// The shim kills at this moment, unless it hears of a renewal.
    pub(crate) kill_at: Option<Timestamp>,
    /// A renewal is under way since then; its reply has not come yet. One is sent in all.
    pub(crate) beat_sent_at: Option<Timestamp>,
    pub(crate) beat_spent: bool,
    /// The beat was committed; the reply is under way.
    pub(crate) beat_replied: bool,
    /// The start was committed; the runner may or may not have heard.
    pub(crate) start_replied: bool,
    /// Epochs and tombstones that the provider keeps.
    pub(crate) seen: Seen,
    /// The processes were seen to be gone.
    pub(crate) observed_gone: bool,
    /// The push that the runner was allowed, and which may land at any time.
    pub(crate) granted: Option<Push>,
}

/// A decision that a node has made and not committed yet.
///
/// Where commits compare what they read, a decision that was overtaken has no effect, and neither
/// has the look that led to it: whatever two nodes can bring about together, one that may forget
/// and look again can too. So only the twin without the comparison keeps two decisions at a time;
/// the others visit far fewer states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Decision {
    pub(crate) task: Task,
    pub(crate) attempt: Option<Attempt>,
}

/// Whether the first runner and the nodes hear each other; it is cut off once, and healed once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Link {
    Whole,
    Cut,
    Healed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) task: Task,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) nodes: [Option<Decision>; 2],
    pub(crate) hosts: [Host; ATTEMPTS],
    pub(crate) link: Link,
    /// The remote's ref: 0 is where it began, n a commit of attempt n, 10 + n the fence of n.
    pub(crate) remote: u8,
    /// Everything that the ref ever was.
    pub(crate) landed: BTreeSet<u8>,
    /// The stop was asked for.
    pub(crate) stop_asked: bool,
    /// The stop was acknowledged, and this was the commit it said was pushed.
    pub(crate) acknowledged: Option<Option<CommitId>>,
    /// The first final state that was seen.
    pub(crate) first_final: Option<State>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    Tick,
    CutOff,
    Heal,
    /// A node reads the rows and decides on this.
    Look(usize, Input),
    /// A node commits what it decided.
    Commit(usize),
    /// The runner hears that its start was committed, and executes the agent.
    Execute(usize),
    /// The agent does its work and exits.
    Finish(usize),
    /// A runner sends a beat; the lease is renewed when it is committed.
    SendBeat(usize),
    CommitBeat(usize),
    HearBeat(usize),
    /// The processes of an ending attempt are killed, and seen to be gone.
    Kill(usize),
    /// The runner hears that the gate is open.
    HearGrant(usize),
    /// A push that was allowed lands.
    Land(usize),
    /// Somebody moves the ref away from what the push expects.
    FencePush(usize),
    /// The stop is acknowledged.
    Acknowledge,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    Claim,
    Start(usize),
    OpenPublish(usize),
    Settle(usize),
    Cancel,
    Expire(Clock),
    Proven(usize, Proof),
}

/// The task without what no decision reads, so that fewer states differ.
pub(crate) const fn timeless(task: Task) -> Task {
    Task { since: Timestamp::EPOCH, reason: Reason::Created, ..task }
}

/// The attempt without what no decision of this model reads.
pub(crate) const fn timeless_attempt(attempt: Attempt) -> Attempt {
    let then = Timestamp::EPOCH;
    Attempt { claimed_at: then, prepared_at: then, started_at: None, ..attempt }
}

pub(crate) fn number(index: usize) -> AttemptNumber {
    AttemptNumber(index as u32 + 1)
}

pub(crate) fn commit_of(mark: u8) -> CommitId {
    CommitId::from_sha1([mark; 20])
}

/// What the push of attempt `index` would leave in the ref.
pub(crate) fn mark_of(index: usize) -> u8 {
    index as u8 + 1
}

pub(crate) const fn fence_of(index: usize) -> u8 {
    index as u8 + 11
}

impl World {
    pub(crate) fn row(&self, index: usize) -> Option<&Attempt> {
        self.attempts.get(index)
    }

    /// Whether runner `index` and the nodes hear each other.
    pub(crate) fn reachable(&self, index: usize) -> bool {
        index != 0 || self.link != Link::Cut
    }

    pub(crate) fn acting(&self) -> Option<&Attempt> {
        let number = self.task.state.attempt()?;
        self.attempts.iter().find(|row| row.number == number)
    }

    pub(crate) fn remote_for(&self, push: Push) -> Remote {
        if push.commit == commit_of(self.remote) {
            Remote::HasCommit
        } else if push.expected == Some(commit_of(self.remote)) {
            Remote::AsExpected
        } else {
            Remote::MovedOn
        }
    }
}
