//! Workflows, what they came to, and what was done when they were stuck.

use belay_kernel::diagnostic::{Check, Run, RunEnd};
use belay_kernel::workflow::{Evidence, Judge, OnValidated, ResultState};
use belay_kernel::{AttemptNumber, ResultId, TaskId, Timestamp, WorkflowId};

use crate::cell::{
    Cell, Cells, Column, Document, Field, Kind, Name, Note, Prose, SHORT, Unreadable, column,
};
use crate::row::record;

record! {
    /// A goal made of tasks. Its status is derived, never stored.
    pub struct WorkflowRow in "workflows" {
        id: WorkflowId, key: 1, rank: 2, newest: "created_at", timer: Due;
        /// Its id.
        id: WorkflowId,
        /// What people call it.
        name: Name,
        /// What is to be reached.
        goal: Prose,
        /// What follows from a validated result.
        on_validated: OnValidated,
        /// The command that validates results, if one does.
        validation: Option<Note>,
        /// The round of diagnostics, which a person's retry begins anew.
        round: u32,
        /// When it was made.
        created_at: Timestamp,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
    }
}

record! {
    /// A result that an agent submitted.
    pub struct ResultRow in "results" {
        id: ResultId, key: 1, rank: 15, newest: "submitted_at", timer: None;
        /// Its id.
        id: ResultId,
        /// Of which workflow.
        workflow: WorkflowId,
        /// The task whose agent submitted it.
        task: TaskId,
        /// In which attempt.
        attempt: AttemptNumber,
        /// What it says.
        markdown: Prose,
        /// What it rests on.
        evidence: Document<Vec<Evidence>>,
        /// What became of it.
        state: ResultState,
        /// When.
        submitted_at: Timestamp,
    }
}

impl Field for ResultState {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("state", Kind::Text(SHORT), out);
        column("judge", Kind::Text(SHORT), out);
        column("exit_code", Kind::Int, out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, judge) = match *self {
            Self::Pending => ("pending", None),
            Self::Validated(judge) => ("validated", Some(judge)),
            Self::Rejected(judge) => ("rejected", Some(judge)),
        };
        out.push(Cell::Text(name.to_owned()));
        let (judge, exit) = match judge {
            None => (None, None),
            Some(Judge::Person) => (Some("person"), None),
            Some(Judge::Command { exit }) => (Some("command"), Some(exit)),
        };
        out.push(judge.map_or(Cell::Null, |judge| Cell::Text(judge.to_owned())));
        exit.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let judge = cells.cell()?.as_text().unwrap_or_default();
        let exit = Option::<i32>::get(cells)?;
        let judge = match judge {
            "person" => Some(Judge::Person),
            "command" => exit.map(|exit| Judge::Command { exit }),
            _ => None,
        };
        let state = match name {
            "pending" => Some(Self::Pending),
            "validated" => judge.map(Self::Validated),
            "rejected" => judge.map(Self::Rejected),
            _ => None,
        };
        state.ok_or_else(|| cells.unreadable(name))
    }
}

record! {
    /// One run of a diagnostic task.
    pub struct DiagnosticRow in "diagnostics" {
        id: (WorkflowId, TaskId), key: 2, rank: 16, newest: "started_at", timer: None;
        /// Of which workflow.
        workflow: WorkflowId,
        /// What was seen, what was spawned, how it ended.
        run: Run,
    }
}

impl Field for Run {
    fn columns(_: &str, out: &mut Vec<Column>) {
        TaskId::columns("task", out);
        u32::columns("round", out);
        Timestamp::columns("started_at", out);
        Document::<Vec<Check>>::columns("seen", out);
        RunEnd::columns("ended", out);
        Timestamp::columns("ended_at", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.task.put(out);
        self.round.put(out);
        self.started_at.put(out);
        Document(self.seen.clone()).put(out);
        self.ended.map(|(end, _)| end).put(out);
        self.ended.map(|(_, at)| at).put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let (task, round) = (Field::get(cells)?, Field::get(cells)?);
        let started_at = Field::get(cells)?;
        let seen = Document::<Vec<Check>>::get(cells)?.0;
        let ended = Option::<RunEnd>::get(cells)?.zip(Option::<Timestamp>::get(cells)?);
        Ok(Self { task, round, started_at, seen, ended })
    }
}
