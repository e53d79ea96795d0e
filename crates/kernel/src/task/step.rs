//! The task machine: every transition of a task is decided here and nowhere else.
//!
//! ```text
//!  PENDING ─run─► QUEUED ─claim─► CLAIMED ─start─► RUNNING ─success─► READY ─accept─► COMPLETED
//!     ▲             ▲ ▲              │               │ │ ▲                │
//!     │             │ └─retryable────┴───────────────┘ │ └─answer─┐      │
//!     │             ├─answer, not held──── BLOCKED ◄───┴─ask──────┘      │
//!     │             └─retry, resume──── FAILED, TIMED_OUT                │
//!     └───────────────────────────────────────reject─────────────────────┘
//!  any but final ─cancel─► CANCELLED      QUEUED … BLOCKED ─budget─► BUDGET_EXCEEDED
//! ```
//!
//! The match has no `_` arm: a new state or event does not compile until it is placed. The fence is
//! checked once, before it; what each move does is in [`Turn`].

use super::turn::{Step, Turn};
use super::{Blocked as B, Denial, Effect, Event as E, Failure, Plan, Policy, State as S, Task};
use super::{Reason, Verb};
use crate::attempt::{Attempt, Outcome};
use crate::disposition::Disposition::{Deny, Ignore};
use crate::planted::{self, Bug};
use crate::time::Timestamp;

/// States in which an attempt acts.
macro_rules! acting {
    () => {
        S::Claimed { .. } | S::Running { .. } | S::Blocked(B::Held { .. })
    };
}

/// States in which no attempt acts, and yet the task is not at rest.
macro_rules! waiting {
    () => {
        S::Pending { .. } | S::Queued { .. } | S::Ready { .. } | released!()
    };
}

/// States blocked by something else than a held attempt.
macro_rules! released {
    () => {
        S::Blocked(B::Question { .. } | B::Subtasks { .. })
    };
}

/// States that a person can set going again.
macro_rules! resting {
    () => {
        S::Failed(_) | S::TimedOut { .. }
    };
}

/// States without a way out.
macro_rules! ended {
    () => {
        S::Completed | S::Cancelled | S::BudgetExceeded
    };
}

/// Decides what `event` does to `task`, whose acting attempt, if it has one, is `attempt`.
#[expect(clippy::too_many_lines, reason = "the whole machine is one table, to be read as one")]
pub fn step(
    task: &Task,
    attempt: Option<&Attempt>,
    event: &E,
    now: Timestamp,
    policy: &Policy,
) -> Step {
    let acting = attempt.filter(|a| task.state.attempt() == Some(a.number) && a.may_act());
    let stale = event.attempt().is_some() && event.attempt() != acting.map(|a| a.number);
    if stale && !planted::is(Bug::FenceDropped) {
        return Deny(Denial::Fenced); // the fence first, once
    }
    let turn = Turn { task, acting, now, policy };
    match (task.state, *event) {
        // A person's moves.
        (S::Pending { plan }, E::Run(facts)) => turn.queue(Verb::Run, plan, facts, []),
        (S::Ready { attempt }, E::Accept { seen }) => turn.accept(attempt, seen),
        (S::Ready { .. }, E::Reject) => turn.reject(),
        (S::Blocked(B::Held { attempt, question }), E::Answer { question: named }) => {
            turn.answer_held(attempt, question, named)
        }
        (S::Blocked(B::Question { question }), E::Answer { question: named }) => {
            turn.answer(question, named)
        }
        (resting!(), E::Retry(facts)) => {
            turn.queue(Verb::Retry, Plan::Fresh, facts, [Effect::DisregardSubtasks])
        }
        (S::Failed(Failure::Publish), E::Resume(facts)) => {
            turn.queue(Verb::Resume, Plan::Republish, facts, [])
        }
        (resting!(), E::Resume(facts)) => turn.queue(Verb::Resume, Plan::Same, facts, []),
        (waiting!() | acting!() | resting!(), E::Cancel) => turn.cancel(),
        (S::Completed, E::Cancel) if planted::is(Bug::CompletionOverwritten) => turn.cancel(),
        (S::Cancelled, E::Cancel) => Ignore, // the same receipt again

        // The queue's moves, and what other tasks' ends do.
        (S::Queued { plan, not_before }, E::Claim { facts, epoch, lease_end }) => {
            turn.claim(plan, not_before, &facts, epoch, lease_end)
        }
        (S::Queued { plan, .. }, E::DependencyRested { by }) => {
            turn.rest(Failure::Dependency { by, plan })
        }
        (
            S::Failed(Failure::Dependency { by, plan }),
            E::DependencyRequeued { by: named, still },
        ) if by == named => turn.dependency_requeued(by, plan, still),
        (S::Blocked(B::Subtasks { attempt }), E::SubtaskRested(children)) => {
            turn.subtask_rested(attempt, children)
        }
        (S::Failed(Failure::Subtask { by, attempt }), E::SubtaskRequeued { by: named })
            if by == named =>
        {
            let state = S::Blocked(B::Subtasks { attempt });
            turn.to(state, Reason::Requeued(by), None, [])
        }
        (S::Running { .. }, E::BudgetUsedUp) if turn.is_publishing() => Ignore,
        (S::Queued { .. } | acting!() | released!(), E::BudgetUsedUp) => turn.over_budget(),

        // The attempt's moves.
        (S::Claimed { attempt, plan }, E::Start { .. }) => turn.start(attempt, plan),
        (S::Claimed { plan, .. }, E::Fail { failure, .. }) => turn.fail_start(plan, failure),
        (S::Claimed { plan, .. }, E::Expire { reading, progress, jitter, .. }) => {
            turn.expire_claim(plan, reading, progress, jitter)
        }
        (S::Claimed { plan, .. }, E::Withdraw { .. }) => turn.withdraw(plan),
        (S::Running { attempt, .. }, E::Ask { question, hold, .. }) => {
            turn.ask(attempt, question, hold)
        }
        (S::Running { attempt, .. }, E::OpenPublish { push, budget, .. }) => {
            turn.open_publish(attempt, push, budget)
        }
        (S::Running { .. }, E::Settled { outcome, facts, .. }) => turn.settled(outcome, facts),
        (S::Running { .. }, E::Succeed { facts, .. }) => turn.succeed(facts),
        (S::Running { plan, .. }, E::Fail { failure, .. }) => turn.fail(plan, failure),
        (S::Running { plan, .. }, E::Expire { reading, progress, jitter, .. }) => {
            turn.expire(plan, reading, progress, jitter)
        }
        (S::Running { .. }, E::Withdraw { .. }) if turn.is_publishing() => Ignore,
        (S::Running { plan, .. }, E::Withdraw { .. }) => turn.withdraw(plan.again()),
        // The answer was lost, or a runner that was restarted takes its agent up again.
        (S::Running { .. } | S::Blocked(B::Held { .. }), E::Start { .. }) => Ignore,

        // Whatever ends a held attempt, its question stays open for ever.
        (S::Blocked(B::Held { question, .. }), E::Ask { question: asked, hold, .. }) => {
            turn.ask_again(question, asked, hold)
        }
        (S::Blocked(B::Held { question, .. }), E::Succeed { .. } | E::Withdraw { .. }) => {
            turn.release(question, Outcome::Question)
        }
        (S::Blocked(B::Held { .. }), E::Fail { failure, .. }) if planted::is(Bug::QuestionLost) => {
            turn.fail(Plan::Same, failure)
        }
        (S::Blocked(B::Held { question, .. }), E::Fail { failure, .. }) => {
            turn.release(question, failure.cause.outcome())
        }
        (S::Blocked(B::Held { question, .. }), E::Expire { reading, .. }) => {
            turn.expire_hold(question, reading)
        }

        // Of no consequence here.
        (S::Pending { .. } | S::Ready { .. } | resting!() | ended!(), E::BudgetUsedUp)
        | (S::Pending { .. } | S::Ready { .. } | released!(), E::DependencyRested { .. })
        | (acting!() | resting!() | ended!(), E::DependencyRested { .. })
        | (S::Pending { .. } | S::Queued { .. } | S::Ready { .. }, E::SubtaskRested(_))
        | (S::Blocked(B::Question { .. }) | acting!(), E::SubtaskRested(_))
        | (resting!() | ended!(), E::SubtaskRested(_))
        | (waiting!() | acting!() | resting!() | ended!(), E::DependencyRequeued { .. })
        | (waiting!() | acting!() | resting!() | ended!(), E::SubtaskRequeued { .. }) => Ignore,

        // Not a move from here.
        (S::Queued { .. } | S::Ready { .. } | released!(), E::Run(_))
        | (acting!() | resting!() | ended!(), E::Run(_) | E::Accept { .. } | E::Reject)
        | (S::Pending { .. } | S::Queued { .. } | released!(), E::Accept { .. } | E::Reject)
        | (S::Pending { .. } | S::Queued { .. } | S::Ready { .. }, E::Answer { .. })
        | (S::Claimed { .. } | S::Running { .. } | resting!() | ended!(), E::Answer { .. })
        | (S::Blocked(B::Subtasks { .. }), E::Answer { .. })
        | (waiting!() | acting!() | ended!(), E::Retry(_) | E::Resume(_))
        | (S::Completed | S::BudgetExceeded, E::Cancel)
        | (S::Pending { .. } | S::Ready { .. } | released!(), E::Claim { .. })
        | (acting!() | resting!() | ended!(), E::Claim { .. })
        | (S::Claimed { .. }, E::Ask { .. } | E::Succeed { .. })
        | (S::Claimed { .. }, E::OpenPublish { .. } | E::Settled { .. })
        | (S::Blocked(B::Held { .. }), E::OpenPublish { .. } | E::Settled { .. }) => turn.illegal(),

        // No attempt acts here, so the fence has answered already.
        (waiting!() | resting!() | ended!(), E::Start { .. } | E::Ask { .. })
        | (waiting!() | resting!() | ended!(), E::OpenPublish { .. } | E::Settled { .. })
        | (waiting!() | resting!() | ended!(), E::Succeed { .. } | E::Fail { .. })
        | (waiting!() | resting!() | ended!(), E::Expire { .. } | E::Withdraw { .. }) => {
            Deny(Denial::Fenced)
        }
    }
}
