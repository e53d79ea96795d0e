//! What a sweep proposes: for sessions whose owner is gone, for sandboxes that nobody wants, for
//! rows whose sandbox is gone.
//!
//! A sweep only proposes; the owner of the state decides again inside its commit. It asks each
//! provider what it runs, *then* reads the rows: an identity is stored before its sandbox is made,
//! so whatever is listed and wanted has its row by then. The other way round it would kill what was
//! made in between. A listing that failed proves nothing, and nothing is done on its word.

use serde::{Deserialize, Serialize};

use crate::id::{Epoch, InstallationId, NodeId, SandboxId};
use crate::session::{Attempt, PauseReason, Session, State};
use crate::time::Timestamp;

/// Who owns a session: a node, as long as its lease is live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// The node.
    pub node: NodeId,
    /// The last moment of its lease.
    pub lease_until: Timestamp,
}

/// Whether an owner's lease is over.
pub fn is_over(owner: Owner, now: Timestamp) -> bool {
    now > owner.lease_until
}

/// What is proposed for a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proposal {
    /// Leave it alone.
    Leave,
    /// Own it from now on: its attempt lives.
    Adopt,
    /// Snapshot it, with this reason: nothing lives in it.
    Snapshot(PauseReason),
    /// Its pause was left half done: terminate this sandbox again.
    FinishPausing(SandboxId),
    /// It still names a sandbox that could not be terminated: try again.
    Terminate(SandboxId),
}

/// What is proposed for a session, given its owner's lease.
pub fn owner_lost(session: &Session, owner: Owner, now: Timestamp) -> Proposal {
    if !is_over(owner, now) || session.lock.is_some_and(|lock| lock.is_live(now)) {
        return Proposal::Leave;
    }
    match session.state {
        State::Running { .. } => match session.attempt {
            Attempt::Live => Proposal::Adopt,
            Attempt::None => Proposal::Snapshot(PauseReason::Orphaned),
        },
        State::Pausing { sandbox, .. } => Proposal::FinishPausing(sandbox),
        State::Paused { leftover: Some(sandbox), .. }
        | State::Stopped { leftover: Some(sandbox), .. } => Proposal::Terminate(sandbox),
        State::New
        | State::Paused { leftover: None, .. }
        | State::Stopped { leftover: None, .. } => Proposal::Leave,
    }
}

/// The label that every sandbox of ours carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Label {
    /// The installation that made it.
    pub installation: InstallationId,
    /// That installation's epoch, which grows when a backup is restored.
    pub epoch: Epoch,
}

/// What the rows say of a sandbox that a provider listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wanted {
    /// A row wants it.
    Yes,
    /// Its creation was asked for, and not answered yet.
    CreateUnanswered {
        /// When the answer is no longer waited for.
        deadline: Timestamp,
    },
    /// No row wants it.
    No,
}

/// What is proposed for a sandbox that a provider listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Listed {
    /// Keep it.
    Keep,
    /// It is not ours at all.
    NotOurs,
    /// Wait for the answer to its creation; look again then.
    AwaitCreate(Timestamp),
    /// Leave a tombstone, then run the termination sequence, which saves what is not saved yet.
    TombstoneAndKill,
    /// Set it aside for a person: it belongs to another life of this installation.
    Quarantine,
}

/// What is proposed for a sandbox that a provider listed before the rows were read.
pub fn listed(label: Label, ours: Label, wanted: Wanted, now: Timestamp) -> Listed {
    if label.installation != ours.installation {
        return Listed::NotOurs;
    }
    if label.epoch != ours.epoch {
        return Listed::Quarantine;
    }
    match wanted {
        Wanted::Yes => Listed::Keep,
        Wanted::CreateUnanswered { deadline } if now <= deadline => Listed::AwaitCreate(deadline),
        Wanted::CreateUnanswered { .. } | Wanted::No => Listed::TombstoneAndKill,
    }
}

/// A provider's answer to “what do you run?”.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Listing {
    /// The list is whole; it was asked for at this time.
    Whole {
        /// When it was asked for.
        asked_at: Timestamp,
    },
    /// The answer is missing or partial.
    Failed,
}

/// How the creation of a row's sandbox stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Creation {
    /// It was answered with success.
    Answered {
        /// When.
        at: Timestamp,
    },
    /// It was not answered yet.
    Unanswered {
        /// When the answer is no longer waited for.
        deadline: Timestamp,
    },
}

/// What is proposed for a row whose sandbox its provider did not list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Missing {
    /// The listing proves nothing about it.
    Leave,
    /// Wait for the answer to its creation; look again then.
    AwaitCreate(Timestamp),
    /// It is gone: settle the row.
    Settle,
}

/// What is proposed for a row whose sandbox is not in the listing.
pub fn missing(creation: Creation, listing: Listing, now: Timestamp) -> Missing {
    match (listing, creation) {
        (Listing::Failed, _) => Missing::Leave,
        (Listing::Whole { asked_at }, Creation::Answered { at }) => match at < asked_at {
            true => Missing::Settle,
            // It may have been made after the provider looked.
            false => Missing::Leave,
        },
        (Listing::Whole { asked_at }, Creation::Unanswered { deadline }) => {
            match now <= deadline || asked_at <= deadline {
                true => Missing::AwaitCreate(deadline),
                false => Missing::Settle,
            }
        }
    }
}

#[cfg(test)]
mod tests;
