//! Tasks: the narrow row that changes all its life, and the wide one that is written once.
//!
//! The state enum carries data, so it becomes its name and one column for each kind of datum; the
//! table checks that each state has exactly its own.

use belay_kernel::budget::{Budget, Uncounted};
use belay_kernel::planted::{self, Bug};
use belay_kernel::retry::Effort;
use belay_kernel::role::RoleName;
use belay_kernel::task::{Blocked, Failure, Plan, Reason, Review, State, Task, Verb};
use belay_kernel::{
    AttemptNumber, Cause, Clock, QuestionId, SessionId, TaskId, Timestamp, WorkflowId,
};

use crate::cell::{
    Cell, Cells, Column, Field, Kind, List, Name, Prose, SHORT, Unreadable, codes, column,
};
use crate::row::record;

record! {
    /// A task, as decisions read and write it.
    pub struct TaskRow in "tasks" {
        id: TaskId, key: 1, rank: 5, newest: "created_at", timer: Due;
        /// Its life.
        task: Task,
        /// The task at the root of its tree; itself, if it has no parent. Its ledger is charged.
        root: TaskId,
        /// The role whose workers may claim it.
        role: RoleName,
        /// Its session, once it has one.
        session: Option<SessionId>,
        /// The workflow that it belongs to.
        workflow: Option<WorkflowId>,
        /// The account whose usage limit it shares.
        account: Option<Name>,
        /// Higher is claimed first; may be negative.
        priority: i64,
        /// How many of its dependencies are not COMPLETED.
        unfinished: u32,
        /// Whether its parent disregards it, since a `retry`.
        disregarded: bool,
        /// When it was made.
        created_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
        ; claim_at: Option<Timestamp> = TaskRow::claim_at,
    }
}

impl TaskRow {
    /// Since when it can be claimed, as far as the row itself tells. It is in the claim index only
    /// while it can: a task that waits for its time stands at that time, beyond the end of every
    /// claim's range, and a task that waits for others is not in the index at all.
    pub fn claim_at(&self) -> Option<Timestamp> {
        match self.task.state {
            State::Queued { not_before, .. }
                if self.unfinished == 0 || planted::is(Bug::DependencyNotAwaited) =>
            {
                Some(not_before.map_or(self.task.since, |at| at.max(self.task.since)))
            }
            _ => None,
        }
    }
}

record! {
    /// What a task was asked for: written once, and wide.
    pub struct SpecRow in "specs" {
        id: TaskId, key: 1, rank: 6, newest: "task", timer: None;
        /// Whose.
        task: TaskId,
        /// In a few words.
        title: Name,
        /// What the agent is told.
        prompt: Prose,
        /// A path or URL, if the task works on a repository.
        repository: Option<Name>,
        /// The branch or commit that the tree begins with.
        base: Option<Name>,
        /// The branch that its work is pushed to.
        branch: Option<Name>,
        /// The agent, if not the role's.
        agent: Option<Name>,
        /// The model, if not the role's.
        model: Option<Name>,
        /// The provider, if not the role's.
        provider: Option<Name>,
        /// The task that this one continues.
        continues: Option<TaskId>,
        /// `key=value` of the limits that are not the role's.
        limits: List,
        /// The names of the variables that are passed on to the agent.
        environment: List,
        /// Who asked.
        created_by: Name,
        /// What it and everything below it may use.
        budget: Budget,
        /// Whether an agent whose usage cannot be counted is accepted.
        uncounted: Uncounted,
        /// The program and its arguments, if the agent is a plain command.
        command: List,
        /// What becomes of its work.
        publishing: Publishing,
        /// What becomes of changes in a local base that are not committed.
        uncommitted: Uncommitted,
        /// The image, if the provider needs one.
        image: Option<Name>,
        /// Whether its session pauses instead of being terminated when it is idle.
        keep_alive: bool,
        /// The trace that its making belongs to, as `traceparent` says it.
        trace: Option<Name>,
    }
}

/// What becomes of a task's work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Publishing {
    /// It is kept, and nothing is pushed.
    None,
    /// It is pushed to the task's own branch.
    #[default]
    Branch,
}

/// What becomes of changes in a local base that are not committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Uncommitted {
    /// The task is refused.
    #[default]
    Refuse,
    /// The tree begins with them.
    Include,
}

codes! {
    Publishing { None "none", Branch "branch" }
    Uncommitted { Refuse "refuse", Include "include" }
}

impl Field for Budget {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("max_cost", Kind::Int, out);
        column("max_tokens", Kind::Int, out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.max_cost.put(out);
        self.max_tokens.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self { max_cost: Field::get(cells)?, max_tokens: Field::get(cells)? })
    }
}

impl Field for Task {
    fn columns(_: &str, out: &mut Vec<Column>) {
        TaskId::columns("id", out);
        TaskId::columns("parent", out);
        Review::columns("review", out);
        u32::columns("max_attempts", out);
        State::columns("", out);
        Reason::columns("", out);
        Timestamp::columns("since", out);
        AttemptNumber::columns("attempts", out);
        for name in ["tries", "failed_starts", "parks", "fruitless"] {
            u32::columns(name, out);
        }
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.id.put(out);
        self.parent.put(out);
        self.review.put(out);
        self.max_attempts.put(out);
        self.state.put(out);
        self.reason.put(out);
        self.since.put(out);
        self.attempts.put(out);
        let Effort { tries, failed_starts, parks, fruitless } = self.effort;
        for count in [tries, failed_starts, parks, fruitless] {
            count.put(out);
        }
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            id: Field::get(cells)?,
            parent: Field::get(cells)?,
            review: Field::get(cells)?,
            max_attempts: Field::get(cells)?,
            state: Field::get(cells)?,
            reason: Field::get(cells)?,
            since: Field::get(cells)?,
            attempts: Field::get(cells)?,
            effort: Effort {
                tries: Field::get(cells)?,
                failed_starts: Field::get(cells)?,
                parks: Field::get(cells)?,
                fruitless: Field::get(cells)?,
            },
        })
    }
}

/// The data of all states, each at most once.
#[derive(Default)]
struct StateCells {
    plan: Option<Plan>,
    not_before: Option<Timestamp>,
    attempt: Option<AttemptNumber>,
    question: Option<QuestionId>,
    /// What a blocked task waits for, or how a failed one failed.
    variant: Option<&'static str>,
    cause: Option<Cause>,
    by: Option<TaskId>,
    clock: Option<Clock>,
}

impl StateCells {
    fn of(state: &State) -> Self {
        let none = Self::default();
        match *state {
            State::Pending { plan } => Self { plan: Some(plan), ..none },
            State::Queued { plan, not_before } => Self { plan: Some(plan), not_before, ..none },
            State::Claimed { attempt, plan } | State::Running { attempt, plan } => {
                Self { plan: Some(plan), attempt: Some(attempt), ..none }
            }
            State::Blocked(Blocked::Held { attempt, question }) => Self {
                attempt: Some(attempt),
                question: Some(question),
                variant: Some("held"),
                ..none
            },
            State::Blocked(Blocked::Question { question }) => {
                Self { question: Some(question), variant: Some("question"), ..none }
            }
            State::Blocked(Blocked::Subtasks { attempt }) => {
                Self { attempt: Some(attempt), variant: Some("subtasks"), ..none }
            }
            State::Ready { attempt } => Self { attempt: Some(attempt), ..none },
            State::Failed(Failure::Cause(cause)) => {
                Self { cause: Some(cause), variant: Some("cause"), ..none }
            }
            State::Failed(Failure::Dependency { by, plan }) => {
                Self { by: Some(by), plan: Some(plan), variant: Some("dependency"), ..none }
            }
            State::Failed(Failure::Subtask { by, attempt }) => {
                Self { by: Some(by), attempt: Some(attempt), variant: Some("subtask"), ..none }
            }
            State::Failed(Failure::Publish) => Self { variant: Some("publish"), ..none },
            State::TimedOut { clock } => Self { clock: Some(clock), ..none },
            State::Completed | State::Cancelled | State::BudgetExceeded => none,
        }
    }
}

impl Field for State {
    fn columns(_: &str, out: &mut Vec<Column>) {
        for name in ["state", "plan"] {
            column(name, Kind::Text(SHORT), out);
        }
        for name in ["not_before", "attempt"] {
            column(name, Kind::Int, out);
        }
        for name in ["question", "variant", "cause", "failed_by", "clock"] {
            column(name, Kind::Text(SHORT), out);
        }
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.name().to_owned()));
        let cells = StateCells::of(self);
        cells.plan.put(out);
        cells.not_before.put(out);
        cells.attempt.put(out);
        cells.question.put(out);
        out.push(cells.variant.map_or(Cell::Null, |variant| Cell::Text(variant.to_owned())));
        cells.cause.put(out);
        cells.by.put(out);
        cells.clock.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let plan = Option::<Plan>::get(cells)?;
        let not_before = Option::<Timestamp>::get(cells)?;
        let attempt = Option::<AttemptNumber>::get(cells)?;
        let question = Option::<QuestionId>::get(cells)?;
        let variant = cells.cell()?.as_text().unwrap_or_default();
        let cause = Option::<Cause>::get(cells)?;
        let by = Option::<TaskId>::get(cells)?;
        let clock = Option::<Clock>::get(cells)?;
        let state = match (name, variant) {
            ("PENDING", "") => plan.map(|plan| Self::Pending { plan }),
            ("QUEUED", "") => plan.map(|plan| Self::Queued { plan, not_before }),
            ("CLAIMED", "") => {
                plan.zip(attempt).map(|(plan, attempt)| Self::Claimed { attempt, plan })
            }
            ("RUNNING", "") => {
                plan.zip(attempt).map(|(plan, attempt)| Self::Running { attempt, plan })
            }
            ("BLOCKED", "held") => attempt
                .zip(question)
                .map(|(attempt, question)| Self::Blocked(Blocked::Held { attempt, question })),
            ("BLOCKED", "question") => {
                question.map(|question| Self::Blocked(Blocked::Question { question }))
            }
            ("BLOCKED", "subtasks") => {
                attempt.map(|attempt| Self::Blocked(Blocked::Subtasks { attempt }))
            }
            ("READY", "") => attempt.map(|attempt| Self::Ready { attempt }),
            ("COMPLETED", "") => Some(Self::Completed),
            ("CANCELLED", "") => Some(Self::Cancelled),
            ("BUDGET_EXCEEDED", "") => Some(Self::BudgetExceeded),
            ("TIMED_OUT", "") => clock.map(|clock| Self::TimedOut { clock }),
            ("FAILED", variant) => failure(variant, cause, by, plan, attempt).map(Self::Failed),
            _ => None,
        };
        state.ok_or_else(|| cells.unreadable(format!("{name} {variant}")))
    }
}

fn failure(
    variant: &str,
    cause: Option<Cause>,
    by: Option<TaskId>,
    plan: Option<Plan>,
    attempt: Option<AttemptNumber>,
) -> Option<Failure> {
    match variant {
        "cause" => cause.map(Failure::Cause),
        "dependency" => by.zip(plan).map(|(by, plan)| Failure::Dependency { by, plan }),
        "subtask" => by.zip(attempt).map(|(by, attempt)| Failure::Subtask { by, attempt }),
        "publish" => Some(Failure::Publish),
        _ => None,
    }
}

/// A reason is its name, and what it names: a verb, a cause or a task.
impl Field for Reason {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("reason", Kind::Text(SHORT), out);
        column("reason_detail", Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let name = match self {
            Self::Created => "created",
            Self::Asked(_) => "asked",
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::Question => "question",
            Self::Succeeded => "succeeded",
            Self::SubtasksRested => "subtasks_rested",
            Self::Requeued(_) => "requeued",
            Self::Retrying(_) => "retrying",
            Self::RoleStopped => "role_stopped",
            Self::Ended(_) => "ended",
        };
        out.push(Cell::Text(name.to_owned()));
        match self {
            Self::Asked(verb) => verb.put(out),
            Self::Requeued(task) => task.put(out),
            Self::Retrying(cause) | Self::Ended(cause) => cause.put(out),
            Self::Created
            | Self::Claimed
            | Self::Started
            | Self::Question
            | Self::Succeeded
            | Self::SubtasksRested
            | Self::RoleStopped => out.push(Cell::Null),
        }
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        match name {
            "asked" => return Verb::get(cells).map(Self::Asked),
            "requeued" => return TaskId::get(cells).map(Self::Requeued),
            "retrying" => return Cause::get(cells).map(Self::Retrying),
            "ended" => return Cause::get(cells).map(Self::Ended),
            _ => {}
        }
        cells.cell()?;
        match name {
            "created" => Ok(Self::Created),
            "claimed" => Ok(Self::Claimed),
            "started" => Ok(Self::Started),
            "question" => Ok(Self::Question),
            "succeeded" => Ok(Self::Succeeded),
            "subtasks_rested" => Ok(Self::SubtasksRested),
            "role_stopped" => Ok(Self::RoleStopped),
            other => Err(cells.unreadable(other)),
        }
    }
}
