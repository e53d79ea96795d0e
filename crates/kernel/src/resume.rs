//! Bringing a session back: the same sandbox if it is healthy, a new one if the old one is proven
//! gone, and patience if nobody knows.
//!
//! *Unknown* is not *gone*. A transient probe error was once treated like “410 Gone”: a new sandbox
//! was made, the conversation dropped, and the old one, with the only tree, left running. So while
//! the old sandbox may hold the only tree it is never replaced; a person can insist (`--fresh`).

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Reading};
use crate::disposition::Disposition;
use crate::id::SandboxId;
use crate::limits::Limits;
use crate::lock::Key;
use crate::session::{self, Deny, Effect, Kept, Session, State, Tree, Wake};
use crate::time::Timestamp;

/// What a probe of a sandbox showed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It answered within the limit.
    Healthy,
    /// Whoever would know says that it is not there (404, 410).
    Gone,
    /// The probe failed: neither.
    Unknown,
}

/// Whether the old sandbox may be given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Insist {
    /// Keep it as long as it may hold the only tree.
    No,
    /// `--fresh`: a person does not want to wait for it.
    Fresh,
}

/// The agent's own conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    /// Its files are there: it goes on.
    Kept,
    /// Its files are lost: a new one, with the prompt and the thread so far.
    Lost,
}

/// A wish to have a session back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// On whose wish.
    pub wake: Wake,
    /// Whether the old sandbox may be given up.
    pub insist: Insist,
    /// When the wish was made.
    pub asked_at: Timestamp,
    /// Whether the files of the agent's conversation exist outside the sandbox.
    pub conversation: Conversation,
}

/// What has to be looked at before a resume can be decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// Thaw this sandbox if it is frozen, then probe it.
    Probe(SandboxId),
    /// Nothing: there is no sandbox that could still be used.
    Nothing,
}

/// What is done about the wish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// Same sandbox, same conversation.
    Reuse(SandboxId),
    /// A new sandbox.
    Create {
        /// What it is made from.
        from: Kept,
        /// The old one, which is refused from now on.
        fence: Option<SandboxId>,
        /// Whether the agent's conversation goes on.
        conversation: Conversation,
    },
    /// The old sandbox is being terminated: finish that first.
    FinishPausing(SandboxId),
    /// Nobody knows: probe again, at the latest until then.
    Retry {
        /// The end of patience.
        until: Timestamp,
    },
    /// Nobody knew for too long, and the old sandbox may hold the only tree. Nothing changes.
    Unreachable(Reading),
    /// The wish is refused.
    Refused(Deny),
}

/// What has to be looked at. Asked inside the lock, of a session read inside the lock.
pub const fn look(session: &Session) -> Look {
    match session.state {
        State::Running { sandbox } => Look::Probe(sandbox),
        State::Paused { kept, .. } | State::Stopped { kept, .. } => match kept.sandbox() {
            Some(sandbox) => Look::Probe(sandbox),
            None => Look::Nothing,
        },
        State::New | State::Pausing { .. } => Look::Nothing,
    }
}

/// Decides a resume inside the lock; `probe` is what [`look`] asked for.
pub fn decide(
    session: &Session,
    request: &Request,
    probe: Probe,
    limits: &Limits,
    now: Timestamp,
) -> Decision {
    match (session.state, request.wake) {
        (State::Paused { .. } | State::Stopped { .. }, Wake::Reconnect) => {
            return Decision::Refused(Deny::NotAsked);
        }
        (State::Stopped { .. }, Wake::Attempt | Wake::Use) => {
            return Decision::Refused(Deny::Illegal);
        }
        (State::Pausing { .. }, Wake::Reconnect) => return Decision::Refused(Deny::NotAsked),
        (State::Pausing { sandbox, .. }, _) => return Decision::FinishPausing(sandbox),
        (
            State::New | State::Running { .. } | State::Paused { .. } | State::Stopped { .. },
            Wake::Continue
            | Wake::Resume
            | Wake::Answer
            | Wake::Attempt
            | Wake::Use
            | Wake::Reconnect,
        ) => {}
    }
    let create = |from: Kept, fence: Option<SandboxId>| Decision::Create {
        from,
        fence,
        conversation: match from {
            Kept::Memory(_) | Kept::Files(_) => Conversation::Kept,
            Kept::Frozen(_) | Kept::Disk(_) | Kept::Tree => request.conversation,
        },
    };
    let (kept, leftover) = match session.state {
        State::Paused { kept, leftover, .. } | State::Stopped { kept, leftover, .. } => {
            (kept, leftover)
        }
        State::New | State::Running { .. } | State::Pausing { .. } => (Kept::Tree, None),
    };
    let Look::Probe(sandbox) = look(session) else {
        return create(kept, leftover);
    };
    match (probe, request.insist) {
        (Probe::Healthy, _) => Decision::Reuse(sandbox),
        (Probe::Gone, _) | (Probe::Unknown, Insist::Fresh) => create(Kept::Tree, Some(sandbox)),
        (Probe::Unknown, Insist::No) => {
            let patience = Reading::since(Clock::Claim, request.asked_at, now, limits.claim);
            match (patience.passed(), session.tree) {
                (false, _) => Decision::Retry {
                    until: Reading::passes_at(Clock::Claim, request.asked_at, limits.claim),
                },
                (true, Tree::Saved) => create(Kept::Tree, Some(sandbox)),
                (true, Tree::Unsaved) => Decision::Unreachable(patience),
            }
        }
    }
}

/// What the commit of a resume came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Commit {
    /// Store this row and these effects.
    Write(Session, Vec<Effect>),
    /// It runs in this sandbox already: nothing to store.
    Unchanged,
    /// The compare-and-set is lost: look again.
    Overtaken,
    /// The wish is refused by what the session has become.
    Refused(Deny),
}

/// Commits that the session runs in `sandbox`, by compare-and-set.
pub fn commit(session: Session, key: &Key, sandbox: SandboxId, wake: Wake) -> Commit {
    if !key.matches(&session) {
        return Commit::Overtaken;
    }
    let event = match session.state {
        State::New => session::Event::Opened { sandbox },
        State::Running { .. }
        | State::Pausing { .. }
        | State::Paused { .. }
        | State::Stopped { .. } => session::Event::Resumed { sandbox, wake },
    };
    match session::step(&session, event) {
        Disposition::Accept(transition) => {
            Commit::Write(session.after(&transition), transition.effects)
        }
        Disposition::Ignore => Commit::Unchanged,
        Disposition::Deny(deny) => Commit::Refused(deny),
    }
}

#[cfg(test)]
mod tests;
