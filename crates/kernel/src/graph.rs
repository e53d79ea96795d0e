//! Tasks among tasks: subtasks, dependencies, follow-ups.
//!
//! A task *waits for* its dependencies, and a parent waits for its subtasks. A ring of waiting is
//! refused when it would be made, because nothing could ever break it: a subtask that depends on
//! its own parent is one.

use std::collections::BTreeSet;

use crate::id::TaskId;
use crate::limits::Caps;
use crate::planted::{self, Bug};
use crate::status::Group;
use crate::task::{Children, Plan, State, Verb};

/// Why a subtask cannot be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubtaskDenial {
    /// The parent is being reviewed or is at rest.
    ParentDone(State),
    /// It would be nested too deeply.
    TooDeep {
        /// How deep it would be.
        depth: u32,
        /// How deep it may be.
        allowed: u32,
    },
    /// The parent has too many, finished ones included.
    TooMany {
        /// How many it has.
        count: u32,
        /// How many it may have.
        allowed: u32,
    },
}

/// Whether a task in `parent` state, itself `depth` levels below the top, may get one more subtask
/// beside the `count` it has.
pub fn may_add_subtask(
    parent: &State,
    depth: u32,
    count: u32,
    caps: &Caps,
) -> Result<(), SubtaskDenial> {
    match parent {
        State::Pending { .. }
        | State::Queued { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Blocked(_) => {}
        _ if planted::is(Bug::SubtaskAfterStop) => {}
        State::Ready { .. }
        | State::Completed
        | State::Failed(_)
        | State::TimedOut { .. }
        | State::Cancelled
        | State::BudgetExceeded => return Err(SubtaskDenial::ParentDone(*parent)),
    }
    let depth = depth.saturating_add(1);
    if depth > caps.subtask_depth {
        return Err(SubtaskDenial::TooDeep { depth, allowed: caps.subtask_depth });
    }
    if count >= caps.subtasks {
        return Err(SubtaskDenial::TooMany { count, allowed: caps.subtasks });
    }
    Ok(())
}

/// A ring of waiting: each waits for the next, the last for the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle(pub Vec<TaskId>);

/// Looks for a ring that `task` would close by waiting for `dependencies`.
///
/// `waits_for` tells what an existing task waits for: its dependencies and its subtasks. The search
/// is bounded by what can be reached; each task is looked at once.
pub fn find_cycle<I: IntoIterator<Item = TaskId>>(
    task: TaskId,
    dependencies: impl IntoIterator<Item = TaskId>,
    mut waits_for: impl FnMut(TaskId) -> I,
) -> Option<Cycle> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<Vec<TaskId>> =
        dependencies.into_iter().map(|next| vec![task, next]).collect();
    while let Some(path) = open.pop() {
        let last = *path.last()?;
        if last == task {
            return Some(Cycle(path[..path.len() - 1].to_vec()));
        }
        if !seen.insert(last) {
            continue;
        }
        for next in waits_for(last) {
            let mut longer = path.clone();
            longer.push(next);
            open.push(longer);
        }
    }
    None
}

/// What a task's subtasks amount to, without those that a `retry` disregards.
pub fn children<'a>(subtasks: impl IntoIterator<Item = (TaskId, &'a State)>) -> Children {
    let mut children = Children::default();
    for (id, state) in subtasks {
        match (state.group().is_at_rest(), state) {
            (false, _) => children.active += 1,
            (true, State::Completed) => {}
            (true, _) => children.failed = children.failed.or(Some(id)),
        }
    }
    children
}

/// What a dependency's state means to whoever waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependencyState {
    /// It has completed.
    Met,
    /// It is not at rest.
    Waiting,
    /// It rests without having completed.
    Failed,
}

impl DependencyState {
    /// What `state` means to a dependant.
    pub const fn of(state: &State) -> Self {
        match (state.group(), state) {
            (_, State::Completed) => Self::Met,
            (Group::Resting | Group::Final, _) => Self::Failed,
            (Group::Parked | Group::Active | Group::WaitingForPerson, _) => Self::Waiting,
        }
    }
}

/// What a new task made by `continue` or by `resume` of a final one starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowUp {
    /// The same session and branch.
    pub plan: Plan,
}

/// Whether `verb` makes a follow-up of a task in `state`: final states stay final, and before one
/// `continue` is refused.
pub fn follow_up(state: &State, verb: Verb) -> Option<FollowUp> {
    let makes = match (verb, state) {
        (Verb::Continue, State::Completed | State::Cancelled | State::BudgetExceeded)
        | (Verb::Resume, State::Cancelled | State::BudgetExceeded) => true,
        (Verb::Continue | Verb::Resume, _)
        | (
            Verb::Run | Verb::Cancel | Verb::Accept | Verb::Reject | Verb::Answer | Verb::Retry,
            _,
        ) => false,
    };
    makes.then_some(FollowUp { plan: Plan::Same })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cause::Cause;
    use crate::id::AttemptNumber;
    use crate::task::{Blocked, Failure};

    const RUNNING: State = State::Running { attempt: AttemptNumber(1), plan: Plan::Fresh };
    const READY: State = State::Ready { attempt: AttemptNumber(1) };
    const FAILED: State = State::Failed(Failure::Cause(Cause::Crash));

    fn id(n: u128) -> TaskId {
        TaskId::from_bits(n)
    }

    fn cycle(task: u128, dependencies: &[u128], edges: &[(u128, u128)]) -> Option<Vec<u128>> {
        let waits_for = |from: TaskId| {
            let to = edges.iter().filter(move |(a, _)| id(*a) == from).map(|(_, b)| id(*b));
            to.collect::<Vec<_>>()
        };
        let found = find_cycle(id(task), dependencies.iter().map(|n| id(*n)), waits_for);
        found.map(|Cycle(ring)| ring.iter().map(|id| id.as_bits()).collect())
    }

    #[test]
    fn subtasks_are_never_added_from_ready_on() {
        let add = |state| may_add_subtask(&state, 0, 0, &Caps::default());
        let blocked = State::Blocked(Blocked::Subtasks { attempt: AttemptNumber(1) });
        for state in [State::Pending { plan: Plan::Fresh }, RUNNING, blocked] {
            assert_eq!(add(state), Ok(()));
        }
        for state in [READY, State::Completed, FAILED, State::Cancelled, State::BudgetExceeded] {
            assert_eq!(add(state), Err(SubtaskDenial::ParentDone(state)));
        }
    }

    #[test]
    fn subtasks_nest_three_deep_and_fifty_wide() {
        let add = |depth, count| may_add_subtask(&RUNNING, depth, count, &Caps::default());
        assert_eq!(add(2, 49), Ok(()));
        assert_eq!(add(3, 0), Err(SubtaskDenial::TooDeep { depth: 4, allowed: 3 }));
        assert_eq!(add(0, 50), Err(SubtaskDenial::TooMany { count: 50, allowed: 50 }));
    }

    #[test]
    fn rings_of_waiting_are_refused() {
        assert_eq!(cycle(1, &[1], &[]), Some(vec![1]), "itself");
        assert_eq!(cycle(3, &[2], &[(2, 1)]), None, "a chain");
        assert_eq!(cycle(1, &[2], &[(2, 3), (3, 1)]), Some(vec![1, 2, 3]));
        assert_eq!(cycle(9, &[2], &[(2, 3), (3, 2)]), None, "somebody else's");
        // 1 is the parent of 4, so 1 waits for 4; 4 may not wait for 1, nor for who waits for 1.
        assert_eq!(cycle(4, &[1], &[(1, 4)]), Some(vec![4, 1]));
        assert_eq!(cycle(4, &[7], &[(1, 4), (7, 1)]), Some(vec![4, 7, 1]));
    }

    #[test]
    fn children_are_counted_by_the_groups_of_the_machine() {
        let states = [(id(1), &RUNNING), (id(2), &State::Completed), (id(3), &FAILED)];
        assert_eq!(children(states), Children { active: 1, failed: Some(id(3)) });
        assert_eq!(children([(id(2), &State::Completed)]), Children::default());
        assert_eq!(children([(id(8), &READY)]).active, 1);
        let cancelled = [(id(4), &State::Cancelled), (id(5), &FAILED)];
        assert_eq!(children(cancelled).failed, Some(id(4)));
    }

    #[test]
    fn dependencies_are_met_only_by_completion() {
        assert_eq!(DependencyState::of(&State::Completed), DependencyState::Met);
        for state in [RUNNING, READY, State::Pending { plan: Plan::Fresh }] {
            assert_eq!(DependencyState::of(&state), DependencyState::Waiting);
        }
        for state in [FAILED, State::Cancelled, State::BudgetExceeded] {
            assert_eq!(DependencyState::of(&state), DependencyState::Failed);
        }
    }

    #[test]
    fn final_states_are_followed_up_by_a_new_task() {
        let follow = |state: State, verb| follow_up(&state, verb).is_some();
        for state in [State::Completed, State::Cancelled, State::BudgetExceeded] {
            assert!(follow(state, Verb::Continue));
            assert_eq!(follow(state, Verb::Resume), state != State::Completed);
            assert!(!follow(state, Verb::Retry));
        }
        for state in [RUNNING, READY, FAILED] {
            assert!(!follow(state, Verb::Continue) && !follow(state, Verb::Resume));
        }
        let plan = follow_up(&State::Cancelled, Verb::Resume).map(|follow| follow.plan);
        assert_eq!(plan, Some(Plan::Same));
    }

    proptest! {
        #[test]
        fn whatever_is_admitted_can_be_put_in_an_order(
            wishes in prop::collection::vec((0u128..12, 0u128..12), 0..60)
        ) {
            let mut edges: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
            for (from, to) in wishes {
                let waits_for = |task| edges.get(&task).cloned().unwrap_or_default();
                if find_cycle(id(from), [id(to)], waits_for).is_none() {
                    edges.entry(id(from)).or_default().push(id(to));
                }
            }
            let mut left: BTreeSet<TaskId> = (0..12).map(id).collect();
            while !left.is_empty() {
                let free = left.iter().copied().find(|task| {
                    edges.get(task).is_none_or(|next| next.iter().all(|n| !left.contains(n)))
                });
                prop_assert!(free.is_some(), "a ring was admitted: {edges:?}");
                left.remove(&free.unwrap());
            }
        }
    }
}
