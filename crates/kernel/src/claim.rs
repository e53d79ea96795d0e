//! Whether a queued task may be claimed now, and in which order.
//!
//! The answer lists *every* blocker, because a person who removes one wants to know of the next.

use serde::{Deserialize, Serialize};

use crate::budget::Standing;
use crate::id::{AttemptNumber, RunnerId, TaskId};
use crate::limits::{Caps, Limits};
use crate::planted::{self, Bug};
use crate::role;
use crate::time::Timestamp;

/// Why a queued task is not claimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Blocker {
    /// It waits for its time: a backoff, a park or a person's wish.
    NotBefore(Timestamp),
    /// Dependencies have not completed.
    Dependencies(u32),
    /// An earlier attempt of its session may still act, or its publish is not settled.
    SessionBusy(AttemptNumber),
    /// A person stopped its role.
    RoleStopped,
    /// Money or tokens are used up.
    BudgetUsedUp,
    /// Another task tries the account first after its usage limit.
    AccountProbed(TaskId),
    /// Another machine holds the tree that it goes on with.
    TreeElsewhere(TreeHolder),
}

/// The machine that a task waits for, because it holds the tree of the task's session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TreeHolder {
    /// Its runner.
    pub runner: RunnerId,
    /// From then on any other machine may take the task.
    pub until: Timestamp,
}

impl TreeHolder {
    /// Whom a task waits for that is queued since then.
    pub const fn awaited(runner: RunnerId, queued_at: Timestamp, limits: &Limits) -> Self {
        Self { runner, until: queued_at.after(limits.tree_affinity) }
    }
}

/// Whether the task's session can take another attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SessionSlot {
    /// It has none, or the last one is ENDED and its publish settled.
    Free,
    /// This one stands in the way.
    Busy(AttemptNumber),
}

/// What the claim reads besides the task: each of these rows is in the commit's expected revisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClaimFacts {
    /// How many dependencies are not COMPLETED.
    pub unfinished_dependencies: u32,
    /// The session.
    pub session: SessionSlot,
    /// What keeps its role's tasks from being claimed, if anything does.
    pub role: Option<role::Hold>,
    /// The ledger at the root.
    pub budget: Standing,
    /// The task that tries the account first after a usage limit, if it is another one.
    pub account_probe: Option<TaskId>,
    /// The machine that holds its tree, if it is another than would take it.
    pub tree: Option<TreeHolder>,
}

/// Everything that keeps a task queued with this `not_before` from being claimed.
pub fn blockers(
    not_before: Option<Timestamp>,
    facts: &ClaimFacts,
    now: Timestamp,
) -> impl Iterator<Item = Blocker> {
    let time = not_before.filter(|at| now < *at).map(Blocker::NotBefore);
    let awaited = |count: &u32| *count > 0 && !planted::is(Bug::DependencyNotAwaited);
    let dependencies =
        Some(facts.unfinished_dependencies).filter(awaited).map(Blocker::Dependencies);
    let session = match facts.session {
        SessionSlot::Free => None,
        SessionSlot::Busy(attempt) => Some(Blocker::SessionBusy(attempt)),
    };
    let role = facts.role.map(|_| Blocker::RoleStopped);
    let budget = facts.budget.is_used_up().then_some(Blocker::BudgetUsedUp);
    let account = facts.account_probe.map(Blocker::AccountProbed);
    let tree = facts.tree.filter(|holder| now < holder.until).map(Blocker::TreeElsewhere);
    [time, dependencies, session, role, budget, account, tree].into_iter().flatten()
}

/// The priority a task has after waiting since `queued_at`: one more per ten minutes, at most ten.
pub fn effective_priority(
    priority: i64,
    queued_at: Timestamp,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
) -> i64 {
    let steps = now.since(queued_at).as_millis() / limits.ageing.as_millis().max(1);
    let aged = i64::try_from(steps).unwrap_or(i64::MAX).min(caps.ageing);
    priority.saturating_add(aged)
}

/// An account's usage limit, as the tasks parked behind it see it: when it resets, one of them goes
/// first, and the others follow its success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// No limit is known.
    Open,
    /// Limited until then.
    Limited {
        /// When it resets.
        until: Timestamp,
    },
    /// One task tries it.
    Probed {
        /// Which.
        by: TaskId,
    },
}

impl Account {
    /// The task that goes first, if another one does.
    pub fn probe_before(self, task: TaskId) -> Option<TaskId> {
        match self {
            Self::Open | Self::Limited { .. } => None,
            Self::Probed { by } => Some(by).filter(|by| *by != task),
        }
    }

    /// `task` was claimed: if the account was limited, it is the one that tries it.
    #[must_use]
    pub const fn claimed(self, task: TaskId) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Limited { .. } => Self::Probed { by: task },
            Self::Probed { by } => Self::Probed { by },
        }
    }

    /// A task met the limit.
    #[must_use]
    pub const fn limited(self, until: Timestamp) -> Self {
        Self::Limited { until }
    }

    /// `task` showed that the account works, or came to its end in another way: the rest may go.
    #[must_use]
    pub fn passed(self, task: TaskId) -> Self {
        match self {
            Self::Probed { by } if by == task => Self::Open,
            Self::Open | Self::Limited { .. } | Self::Probed { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    const FREE: ClaimFacts = ClaimFacts {
        unfinished_dependencies: 0,
        session: SessionSlot::Free,
        role: None,
        budget: Standing::Left,
        account_probe: None,
        tree: None,
    };
    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[test]
    fn every_blocker_is_listed() {
        let other = TaskId::from_bits(9);
        let holder = TreeHolder::awaited(RunnerId::from_bits(7), NOW, &Limits::default());
        let facts = ClaimFacts {
            unfinished_dependencies: 2,
            session: SessionSlot::Busy(AttemptNumber(3)),
            role: Some(role::Hold::RoleStopped),
            budget: Standing::UsedUp,
            account_probe: Some(other),
            tree: Some(holder),
        };
        let later = NOW.after(Span::from_millis(1));
        assert_eq!(
            blockers(Some(later), &facts, NOW).collect::<Vec<_>>(),
            [
                Blocker::NotBefore(later),
                Blocker::Dependencies(2),
                Blocker::SessionBusy(AttemptNumber(3)),
                Blocker::RoleStopped,
                Blocker::BudgetUsedUp,
                Blocker::AccountProbed(other),
                Blocker::TreeElsewhere(holder),
            ]
        );
        assert_eq!(blockers(None, &FREE, NOW).count(), 0);
        let no_workers = ClaimFacts { role: Some(role::Hold::NoWorkers), ..FREE };
        assert_eq!(blockers(None, &no_workers, NOW).collect::<Vec<_>>(), [Blocker::RoleStopped]);
        assert_eq!(blockers(Some(NOW), &FREE, NOW).count(), 0, "its time has come");
    }

    #[test]
    fn the_machine_with_the_tree_is_waited_for_ten_minutes() {
        let holder = TreeHolder::awaited(RunnerId::from_bits(7), NOW, &Limits::default());
        let elsewhere = ClaimFacts { tree: Some(holder), ..FREE };
        let waits = |ms| blockers(None, &elsewhere, NOW.after(Span::from_millis(ms))).count();
        assert_eq!([0, 599_999, 600_000].map(waits), [1, 1, 0]);
    }

    #[test]
    fn waiting_adds_one_per_ten_minutes_up_to_ten() {
        let aged = |priority, minutes| {
            let now = NOW.after(Span::from_mins(minutes));
            effective_priority(priority, NOW, now, &Limits::default(), &Caps::default())
        };
        assert_eq!([0, 9, 10, 19, 20, 100, 9_999].map(|m| aged(0, m)), [0, 0, 1, 1, 2, 10, 10]);
        assert_eq!(aged(-5, 20), -3, "priorities may be negative");
        assert_eq!(aged(i64::MAX, 20), i64::MAX);
    }

    #[test]
    fn after_a_usage_limit_one_task_goes_first_and_the_others_follow_its_success() {
        let (first, second) = (TaskId::from_bits(1), TaskId::from_bits(2));
        let probed = Account::Open.limited(NOW).claimed(first);
        assert_eq!(probed, Account::Probed { by: first });
        assert_eq!(probed.claimed(second), probed);
        assert_eq!((probed.probe_before(first), probed.probe_before(second)), (None, Some(first)));
        assert_eq!(probed.passed(second), probed);
        assert_eq!(probed.passed(first), Account::Open);
        assert_eq!(Account::Open.claimed(first), Account::Open);
        assert_eq!(probed.limited(NOW), Account::Limited { until: NOW });
        assert_eq!(Account::Open.probe_before(first), None);
    }
}
