//! What a state means to others: its name, its group, what a person can do from it.
//!
//! Groups are computed from the machine's own states, with no `_` arm, and a test holds them
//! against what [`step`](crate::task::step) accepts. A new status that was missing from
//! hand-written lists once made runaway spawning.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::task::{Blocked, State, Verb};

/// What a state means to whoever waits for the task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Group {
    /// Not asked to run yet.
    Parked,
    /// Under way: queued, claimed, running, or waiting for its subtasks.
    Active,
    /// Waits for a person's answer or review.
    WaitingForPerson,
    /// At rest; a person may set it going again.
    Resting,
    /// At rest, for good.
    Final,
}

impl Group {
    /// Whether the task goes nowhere without a person.
    pub const fn is_at_rest(self) -> bool {
        match self {
            Self::Resting | Self::Final => true,
            Self::Parked | Self::Active | Self::WaitingForPerson => false,
        }
    }
}

impl State {
    /// The state's name, as it is stored and shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "PENDING",
            Self::Queued { .. } => "QUEUED",
            Self::Claimed { .. } => "CLAIMED",
            Self::Running { .. } => "RUNNING",
            Self::Blocked(_) => "BLOCKED",
            Self::Ready { .. } => "READY",
            Self::Completed => "COMPLETED",
            Self::Failed(_) => "FAILED",
            Self::TimedOut { .. } => "TIMED_OUT",
            Self::Cancelled => "CANCELLED",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
        }
    }

    /// The names of the states in which a task may still use something: not parked, not reviewed,
    /// not at rest.
    pub const AFOOT: [&str; 4] = ["QUEUED", "CLAIMED", "RUNNING", "BLOCKED"];

    /// What the state means to whoever waits for the task.
    pub const fn group(&self) -> Group {
        match self {
            Self::Pending { .. } => Group::Parked,
            Self::Queued { .. } | Self::Claimed { .. } | Self::Running { .. } => Group::Active,
            Self::Blocked(Blocked::Subtasks { .. }) => Group::Active,
            Self::Blocked(Blocked::Held { .. } | Blocked::Question { .. }) | Self::Ready { .. } => {
                Group::WaitingForPerson
            }
            Self::Failed(_) | Self::TimedOut { .. } => Group::Resting,
            Self::Completed | Self::Cancelled | Self::BudgetExceeded => Group::Final,
        }
    }

    /// What a person can do from this state.
    pub const fn verbs(&self) -> &'static [Verb] {
        match self {
            Self::Pending { .. } => &[Verb::Run, Verb::Cancel],
            Self::Queued { .. } | Self::Claimed { .. } | Self::Running { .. } => &[Verb::Cancel],
            Self::Blocked(Blocked::Held { .. } | Blocked::Question { .. }) => {
                &[Verb::Answer, Verb::Cancel]
            }
            Self::Blocked(Blocked::Subtasks { .. }) => &[Verb::Cancel],
            Self::Ready { .. } => &[Verb::Accept, Verb::Reject, Verb::Cancel],
            Self::Failed(_) | Self::TimedOut { .. } => &[Verb::Retry, Verb::Resume, Verb::Cancel],
            Self::Completed => &[Verb::Continue],
            Self::Cancelled | Self::BudgetExceeded => &[Verb::Resume, Verb::Continue],
        }
    }

    /// Whether a delete would take something away from whoever works on it.
    pub const fn refuses_delete(&self) -> bool {
        matches!(self, Self::Queued { .. } | Self::Claimed { .. } | Self::Running { .. })
    }
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 8] = [
        Self::Run,
        Self::Cancel,
        Self::Accept,
        Self::Reject,
        Self::Answer,
        Self::Retry,
        Self::Resume,
        Self::Continue,
    ];

    /// The verb's name in commands, routes and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Cancel => "cancel",
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Answer => "answer",
            Self::Retry => "retry",
            Self::Resume => "resume",
            Self::Continue => "continue",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a task cannot be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteDenial {
    /// It is under way.
    Active,
    /// A subtask at some depth is under way.
    DescendantActive,
    /// Another task waits for it.
    DependantWaits,
}

/// Whether a task may be deleted: not while it or a descendant is under way, or a dependant waits.
/// Lingering and paused sandboxes are ended first.
pub fn may_delete<'a>(
    state: &State,
    descendants: impl IntoIterator<Item = &'a State>,
    dependants: impl IntoIterator<Item = &'a State>,
) -> Result<(), DeleteDenial> {
    if state.refuses_delete() {
        return Err(DeleteDenial::Active);
    }
    if descendants.into_iter().any(State::refuses_delete) {
        return Err(DeleteDenial::DescendantActive);
    }
    let waits = |state: &State| matches!(state, State::Pending { .. } | State::Queued { .. });
    if dependants.into_iter().any(waits) {
        return Err(DeleteDenial::DependantWaits);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AttemptNumber;
    use crate::task::Plan;

    const ONE: AttemptNumber = AttemptNumber(1);
    const QUEUED: State = State::Queued { plan: Plan::Fresh, not_before: None };
    const CLAIMED: State = State::Claimed { attempt: ONE, plan: Plan::Fresh };
    const RUNNING: State = State::Running { attempt: ONE, plan: Plan::Fresh };
    const PENDING: State = State::Pending { plan: Plan::Fresh };
    const READY: State = State::Ready { attempt: ONE };

    #[test]
    fn delete_is_refused_while_the_task_or_a_descendant_is_under_way() {
        for state in [QUEUED, CLAIMED, RUNNING] {
            assert_eq!(may_delete(&state, [], []), Err(DeleteDenial::Active));
            let below = [State::Completed, state];
            assert_eq!(may_delete(&READY, &below, []), Err(DeleteDenial::DescendantActive));
        }
        for state in [PENDING, READY, State::Completed, State::Cancelled] {
            assert_eq!(may_delete(&state, &[READY], []), Ok(()));
        }
    }

    #[test]
    fn what_is_afoot_is_neither_parked_nor_reviewed_nor_at_rest() {
        let blocked = State::Blocked(Blocked::Subtasks { attempt: ONE });
        for state in [QUEUED, CLAIMED, RUNNING, blocked] {
            assert!(State::AFOOT.contains(&state.name()) && !state.group().is_at_rest());
        }
        for state in [PENDING, READY, State::Completed, State::Cancelled, State::BudgetExceeded] {
            assert!(!State::AFOOT.contains(&state.name()));
        }
    }

    #[test]
    fn delete_is_refused_while_a_dependant_waits() {
        for waits in [PENDING, QUEUED] {
            let denied = Err(DeleteDenial::DependantWaits);
            assert_eq!(may_delete(&State::Completed, [], &[waits]), denied);
        }
        assert_eq!(may_delete(&State::Completed, [], &[RUNNING, State::Completed]), Ok(()));
    }
}
