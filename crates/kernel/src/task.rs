//! The task: its states, what can happen to it, and what a transition carries.
//!
//! The machine itself is [`step()`], one match over (state, event). This file holds its words.

mod step;
pub mod table;
#[cfg(test)]
mod tests;
mod turn;

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt};
use crate::budget::Standing;
use crate::cause::Cause;
use crate::claim::{Blocker, ClaimFacts};
use crate::clock::{Clock, Reading};
use crate::id::{AttemptNumber, Epoch, QuestionId, TaskId};
use crate::limits::{Caps, Limits};
use crate::publish::{Push, PushOutcome};
use crate::retry::{Effort, Failure as FailedAttempt, Jitter, Progress};
use crate::time::Timestamp;

pub use step::step;

/// Who decides about a success.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Review {
    /// A person accepts or rejects it.
    #[default]
    Manual,
    /// It is accepted as it comes.
    Auto,
}

/// What the next attempt begins with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Plan {
    /// A new session, with a tree from the base.
    Fresh,
    /// The same session: the same tree and, where it can be resumed, the same conversation.
    Same,
    /// The commit that was not published, without running the agent.
    Republish,
}

/// What a blocked task waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TaskBlocked))]
pub enum Blocked {
    /// A question, for which the attempt is held.
    Held {
        /// The attempt that asked.
        attempt: AttemptNumber,
        /// What it asked.
        question: QuestionId,
    },
    /// A question; compute is released, the session and tree are kept.
    Question {
        /// What was asked.
        question: QuestionId,
    },
    /// Unfinished subtasks of a success.
    Subtasks {
        /// The attempt that succeeded.
        attempt: AttemptNumber,
    },
}

/// Why a task failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TaskFailure))]
pub enum Failure {
    /// For this cause.
    Cause(Cause),
    /// A dependency came to rest without completing.
    Dependency {
        /// Which.
        by: TaskId,
        /// What to go on with if it is queued again.
        plan: Plan,
    },
    /// A subtask came to rest without completing.
    Subtask {
        /// Which.
        by: TaskId,
        /// The attempt that had succeeded.
        attempt: AttemptNumber,
    },
    /// Its work was not published; `resume` publishes it without running the agent.
    Publish,
}

impl Failure {
    /// The cause in the taxonomy.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Cause(cause) => cause,
            Self::Dependency { .. } => Cause::DependencyFailed,
            Self::Subtask { .. } => Cause::SubtaskFailed,
            Self::Publish => Cause::PublishFailed,
        }
    }
}

/// The state of a task; each variant carries exactly its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TaskState))]
pub enum State {
    /// Waits for `run`.
    Pending {
        /// What to begin with.
        plan: Plan,
    },
    /// Waits to be claimed.
    Queued {
        /// What to begin with.
        plan: Plan,
        /// Not before then.
        not_before: Option<Timestamp>,
    },
    /// A worker prepares its sandbox.
    Claimed {
        /// The attempt made by the claim.
        attempt: AttemptNumber,
        /// What it begins with.
        plan: Plan,
    },
    /// The agent runs, or its work is being published.
    Running {
        /// The attempt that may act.
        attempt: AttemptNumber,
        /// What it began with.
        plan: Plan,
    },
    /// Waits for an answer or for subtasks.
    Blocked(Blocked),
    /// Waits for a person's review.
    Ready {
        /// The attempt to review.
        attempt: AttemptNumber,
    },
    /// Done.
    Completed,
    /// Failed; a person may retry or resume it.
    Failed(Failure),
    /// A deadline passed; a person may retry or resume it.
    TimedOut {
        /// The clock that fired.
        clock: Clock,
    },
    /// A person ended it.
    Cancelled,
    /// Its budget is used up.
    BudgetExceeded,
}

impl State {
    /// Whether the next attempt goes on with what the task's session has.
    pub const fn goes_on(&self) -> bool {
        matches!(self, Self::Queued { plan: Plan::Same | Plan::Republish, .. })
    }

    /// The attempt that may act in this state.
    pub const fn attempt(&self) -> Option<AttemptNumber> {
        match self {
            Self::Claimed { attempt, .. }
            | Self::Running { attempt, .. }
            | Self::Blocked(Blocked::Held { attempt, .. }) => Some(*attempt),
            Self::Pending { .. }
            | Self::Queued { .. }
            | Self::Blocked(Blocked::Question { .. } | Blocked::Subtasks { .. })
            | Self::Ready { .. }
            | Self::Completed
            | Self::Failed(_)
            | Self::TimedOut { .. }
            | Self::Cancelled
            | Self::BudgetExceeded => None,
        }
    }
}

/// Why a task is in its state: a stable code; the sentence is made from it and the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TaskReason))]
pub enum Reason {
    /// It was made so.
    Created,
    /// A person asked for it.
    Asked(Verb),
    /// A worker took it.
    Claimed,
    /// The agent may start.
    Started,
    /// The agent asked.
    Question,
    /// The agent succeeded.
    Succeeded,
    /// Its subtasks came to rest.
    SubtasksRested,
    /// A dependency or subtask that had failed was queued again.
    Requeued(TaskId),
    /// It is tried again after this.
    Retrying(Cause),
    /// Its role was stopped at once.
    RoleStopped,
    /// It ended for this cause.
    Ended(Cause),
}

/// What a person can ask of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Verb {
    /// Queue it.
    Run,
    /// End it, for good. `stop` is this, and waits for the receipt.
    Cancel,
    /// Take the work.
    Accept,
    /// Send it back.
    Reject,
    /// Answer its question.
    Answer,
    /// Begin again, from the base.
    Retry,
    /// Go on where it was.
    Resume,
    /// Go on with a new task in the same session.
    Continue,
}

/// The part of a task's row that decisions read and write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The task that it is a subtask of.
    pub parent: Option<TaskId>,
    /// Who decides about a success.
    pub review: Review,
    /// How many attempts are made without a person.
    pub max_attempts: u32,
    /// Where it is in its life.
    pub state: State,
    /// Why it is there.
    pub reason: Reason,
    /// Since when.
    pub since: Timestamp,
    /// The number of its last attempt; numbers only grow.
    pub attempts: AttemptNumber,
    /// What its effort is bounded by.
    pub effort: Effort,
}

/// A task's subtasks, without those that a `retry` disregards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Children {
    /// How many are not at rest.
    pub active: u32,
    /// One that rests without having completed.
    pub failed: Option<TaskId>,
}

/// What is read when a person queues a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueFacts {
    /// A dependency that rests without having completed.
    pub failed_dependency: Option<TaskId>,
    /// The ledger at the root.
    pub budget: Standing,
}

/// What is read when an agent has succeeded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SuccessFacts {
    /// What the attempt left behind.
    pub progress: Progress,
    /// The subtasks.
    pub children: Children,
    /// The ledger at the root, with the attempt's final usage.
    pub budget: Standing,
}

/// Whether an attempt that asks stays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hold {
    /// It is held until the answer or the end of the linger time.
    Held,
    /// It has exited.
    Released,
}

/// What happens to a task. Those with an attempt are fenced by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A person: queue it.
    Run(QueueFacts),
    /// A person: end it.
    Cancel,
    /// A person: the work of this attempt is taken.
    Accept {
        /// The attempt that was seen.
        seen: AttemptNumber,
    },
    /// A person: the work is sent back.
    Reject,
    /// A person: this question is answered.
    Answer {
        /// Which question.
        question: QuestionId,
    },
    /// A person: begin again.
    Retry(QueueFacts),
    /// A person: go on.
    Resume(QueueFacts),
    /// A worker takes it; the attempt is made in the same commit.
    Claim {
        /// What else was read.
        facts: ClaimFacts,
        /// The session's next epoch.
        epoch: Epoch,
        /// The end of the attempt's lease.
        lease_end: Timestamp,
    },
    /// A dependency came to rest without completing.
    DependencyRested {
        /// Which.
        by: TaskId,
    },
    /// A dependency that had come to rest was queued again.
    DependencyRequeued {
        /// Which.
        by: TaskId,
        /// Another one that still rests without having completed.
        still: Option<TaskId>,
    },
    /// A subtask came to rest.
    SubtaskRested(Children),
    /// A subtask that had come to rest was queued again.
    SubtaskRequeued {
        /// Which.
        by: TaskId,
    },
    /// The ledger at the root has nothing left.
    BudgetUsedUp,
    /// The runner asks whether the agent may be executed.
    Start {
        /// For this attempt.
        attempt: AttemptNumber,
    },
    /// The agent asked a question.
    Ask {
        /// In this attempt.
        attempt: AttemptNumber,
        /// The question.
        question: QuestionId,
        /// Whether it stays.
        hold: Hold,
    },
    /// The agent succeeded and is gone; its work is to be pushed.
    OpenPublish {
        /// In this attempt.
        attempt: AttemptNumber,
        /// What is pushed, and where it must land.
        push: Push,
        /// The ledger at the root, with the attempt's final usage.
        budget: Standing,
    },
    /// It is known what became of the push.
    Settled {
        /// Of this attempt.
        attempt: AttemptNumber,
        /// What became of it.
        outcome: PushOutcome,
        /// What a success reads.
        facts: SuccessFacts,
    },
    /// The agent succeeded, and there is nothing to push.
    Succeed {
        /// In this attempt.
        attempt: AttemptNumber,
        /// What a success reads.
        facts: SuccessFacts,
    },
    /// The attempt failed, was lost or was condemned.
    Fail {
        /// This attempt.
        attempt: AttemptNumber,
        /// How.
        failure: FailedAttempt,
    },
    /// A deadline of the attempt passed.
    Expire {
        /// This attempt.
        attempt: AttemptNumber,
        /// The clock, with what it measured and what is allowed.
        reading: Reading,
        /// What the attempt left behind.
        progress: Progress,
        /// The chance in a backoff.
        jitter: Jitter,
    },
    /// Its role was stopped at once; it is queued again without using a try.
    Withdraw {
        /// This attempt.
        attempt: AttemptNumber,
    },
}

impl Event {
    /// The attempt that the event speaks for.
    pub const fn attempt(&self) -> Option<AttemptNumber> {
        match self {
            Self::Start { attempt }
            | Self::Ask { attempt, .. }
            | Self::OpenPublish { attempt, .. }
            | Self::Settled { attempt, .. }
            | Self::Succeed { attempt, .. }
            | Self::Fail { attempt, .. }
            | Self::Expire { attempt, .. }
            | Self::Withdraw { attempt } => Some(*attempt),
            Self::Run(_)
            | Self::Cancel
            | Self::Accept { .. }
            | Self::Reject
            | Self::Answer { .. }
            | Self::Retry(_)
            | Self::Resume(_)
            | Self::Claim { .. }
            | Self::DependencyRested { .. }
            | Self::DependencyRequeued { .. }
            | Self::SubtaskRested(_)
            | Self::SubtaskRequeued { .. }
            | Self::BudgetUsedUp => None,
        }
    }
}

/// What the outside world is to see of a transition: stored in its commit, performed after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Let a worker of the role know, or have one started.
    Offer,
    /// Prepare the attempt's sandbox.
    Prepare(AttemptNumber),
    /// Execute the attempt's agent.
    Execute(AttemptNumber),
    /// Hand the answer to the attempt that is held for it.
    DeliverAnswer(AttemptNumber),
    /// Push the attempt's work.
    Push(AttemptNumber),
    /// Find out what became of the attempt's push.
    SettlePublish(AttemptNumber),
    /// Run the attempt's termination sequence.
    Terminate(AttemptNumber),
    /// Cancel what is unfinished below this task.
    CancelDescendants,
    /// Cancel what is unfinished below this task, and disregard it from now on.
    DisregardSubtasks,
    /// Tell a person that an answer is wanted.
    AnnounceQuestion(QuestionId),
    /// Tell a person that a review is wanted.
    AnnounceReady,
    /// Tell parent, dependants and people that the task came to rest.
    AnnounceRest,
    /// Tell parent and dependants that the task is on its way again.
    AnnounceRequeue,
}

/// What to commit: both rows as they are to be, and the effects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Transition {
    /// The task.
    pub task: Task,
    /// The attempt, if the event made or changed one.
    pub attempt: Option<Attempt>,
    /// What to perform after the commit.
    pub effects: Vec<Effect>,
}

/// Why an event is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial {
    /// It speaks for an attempt that may not act: whoever sent it kills its agent at once.
    Fenced,
    /// It is not a move from this state; these are.
    Illegal {
        /// The state.
        state: State,
        /// What a person can do from here.
        legal: &'static [Verb],
    },
    /// The task is not claimable, for all of these.
    Blocked(Vec<Blocker>),
    /// A dependency rests without having completed: retry that one first.
    DependencyFailed(TaskId),
    /// Nothing is left of the budget.
    BudgetUsedUp,
    /// Another question is open.
    OtherQuestion(QuestionId),
    /// The work to review is another attempt's.
    OtherAttempt(AttemptNumber),
    /// The attempt does not take it.
    Attempt(attempt::Denial),
}

/// The numbers that decisions are made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Limits on time, for this task.
    pub limits: Limits,
    /// Counts that bound effort.
    pub caps: Caps,
}
