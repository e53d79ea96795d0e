//! Claiming: which tasks of a role, in which order, and what a claim reads.
//!
//! The order is the kernel's: effective priority, then age. Effective priority changes with time,
//! an index does not. But among tasks of *equal* priority the older one always has the higher
//! effective priority, so each priority is a queue of its own, ordered by `claim_at`, and the order
//! of all is the merge of the heads. The index is (role, priority, claim_at) over claimable tasks
//! alone; a claim looks at the oldest few of each priority that is in use, and no row is ever
//! rewritten because time passed.
//!
//! Rejected: one key `priority · ageing − queued_at`, which needs no merge but ignores the cap and
//! the steps of ageing, so that a task that has waited for a week overtakes everything for ever.

use std::cmp::Reverse;
use std::sync::Arc;

use belay_kernel::claim::effective_priority;
use belay_kernel::{Caps, Limits, SessionId, TaskId, Timestamp};

use crate::cell::Name;
use crate::commit::{Commit, Committed};
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Stored};
use crate::rows::{AccountRow, LedgerRow, RoleRow, SessionRow, TaskRow};

/// How many tasks a claim looks at beyond what it wants, when some are not claimed. A decision that
/// declines a task for longer puts it off with a `not_before`, so that it leaves the queue's head.
pub(crate) const SLACK: usize = 64;

/// What a worker, or a runner for its workers, asks for.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    /// Of this role.
    pub role: String,
    /// At this time.
    pub now: Timestamp,
    /// At most so many.
    pub limit: usize,
    /// How priority ages.
    pub limits: Limits,
    /// How far priority ages.
    pub caps: Caps,
}

impl ClaimAsk {
    /// How many tasks are looked at.
    pub(crate) const fn look(&self) -> usize {
        self.limit.saturating_add(SLACK)
    }
}

/// A task that might be claimed, with what a claim reads.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The task.
    pub task: Stored<TaskRow>,
    /// Its session, if it has one.
    pub session: Option<Stored<SessionRow>>,
    /// Its role, if it is known.
    pub role: Option<Stored<RoleRow>>,
    /// The ledger at its root.
    pub ledger: Option<Stored<LedgerRow>>,
    /// Its account, if it shares one.
    pub account: Option<Stored<AccountRow>>,
}

/// Judges a candidate: a pure function, because a database may ask it more than once. Nothing, if
/// it is to be left as it is.
pub type Decide = Arc<dyn Fn(&Candidate) -> Option<Commit> + Send + Sync>;

/// What became of a candidate for which something was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// What became of the commit.
    pub committed: Committed,
}

/// One claimable task, as the index shows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    pub(crate) priority: i64,
    pub(crate) claim_at: Timestamp,
    pub(crate) id: String,
}

/// Merges the heads of all priorities into the kernel's order.
pub(crate) fn merge(mut heads: Vec<Entry>, ask: &ClaimAsk) -> Vec<Entry> {
    let rank = |entry: &Entry| {
        let effective =
            effective_priority(entry.priority, entry.claim_at, ask.now, &ask.limits, &ask.caps);
        (Reverse(effective), entry.claim_at, entry.id.clone())
    };
    heads.sort_by_cached_key(rank);
    heads.truncate(ask.look());
    heads
}

/// The keys that a claim of `task` reads besides the task.
pub(crate) struct Related {
    pub(crate) session: Option<Key>,
    pub(crate) role: Key,
    pub(crate) ledger: Key,
    pub(crate) account: Option<Key>,
}

impl Related {
    pub(crate) fn of(task: &TaskRow) -> Self {
        Self {
            session: task.session.map(|id: SessionId| Key::of::<SessionRow>(&id)),
            role: Key::of::<RoleRow>(&task.role),
            ledger: Key::of::<LedgerRow>(&task.root),
            account: task.account.as_ref().map(|name: &Name| Key::of::<AccountRow>(name)),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let always = [Some(self.role.clone()), Some(self.ledger.clone())];
        let maybe = [self.session.clone(), self.account.clone()];
        always.into_iter().chain(maybe).flatten().collect()
    }

    /// The candidate, with what `find` finds.
    pub(crate) fn candidate(
        &self,
        task: Stored<TaskRow>,
        find: &dyn Fn(&Key) -> Option<RawRow>,
    ) -> Result<Candidate, Failure> {
        fn read<R: crate::row::Record>(
            key: Option<&Key>,
            find: &dyn Fn(&Key) -> Option<RawRow>,
        ) -> Result<Option<Stored<R>>, Failure> {
            key.and_then(find).as_ref().map(Stored::read).transpose()
        }
        Ok(Candidate {
            task,
            session: read(self.session.as_ref(), find)?,
            role: read(Some(&self.role), find)?,
            ledger: read(Some(&self.ledger), find)?,
            account: read(self.account.as_ref(), find)?,
        })
    }
}

/// What was decided about some candidates.
pub(crate) struct Judged {
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) commits: Vec<Commit>,
    pub(crate) refused: Vec<Claim>,
}

impl Judged {
    /// Lets `decide` judge candidates until enough is decided.
    pub(crate) fn of(
        candidates: impl IntoIterator<Item = Result<Candidate, Failure>>,
        limit: usize,
        decide: &Decide,
    ) -> Result<Self, Failure> {
        let mut judged = Self { tasks: Vec::new(), commits: Vec::new(), refused: Vec::new() };
        for candidate in candidates {
            if judged.tasks.len() + judged.refused.len() >= limit {
                break;
            }
            let candidate = candidate?;
            let task = candidate.task.row.task.id;
            let Some(commit) = decide(&candidate) else { continue };
            match commit.check() {
                Ok(()) => {
                    judged.tasks.push(task);
                    judged.commits.push(commit);
                }
                Err(refusal) => {
                    judged.refused.push(Claim { task, committed: Committed::Refused(refusal) });
                }
            }
        }
        Ok(judged)
    }

    /// The answers, beside the tasks they are about.
    pub(crate) fn answer(self, committed: Vec<Committed>) -> Vec<Claim> {
        let both = self.tasks.into_iter().zip(committed);
        let claims = both.map(|(task, committed)| Claim { task, committed });
        claims.chain(self.refused).collect()
    }
}
