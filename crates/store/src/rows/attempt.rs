//! Attempts, with the lease that lives beside them.

use belay_kernel::attempt::{Attempt, Outcome, Phase, Proof};
use belay_kernel::publish::{CommitId, Publish, Push};
use belay_kernel::termination::{Kept, Step, Storage, Termination};
use belay_kernel::{
    AttemptNumber, Cause, Epoch, Money, Reading, RunnerId, SandboxId, SessionId, TaskId, Timestamp,
    Usage, WorkerId,
};

use crate::cell::{
    Cell, Cells, Column, Document, Field, Kind, List, Name, Note, SHORT, Unreadable, column,
};
use crate::lease::{Holder, LeaseAct, LeaseWrite};
use crate::row::record;

record! {
    /// One execution of a task.
    pub struct AttemptRow in "attempts" {
        id: (TaskId, AttemptNumber), key: 2, rank: 8, newest: "claimed_at", timer: Due,
        view: "attempts_with_lease", lease: AttemptRow::lease_write;
        /// Of which task.
        task: TaskId,
        /// Its life. The lease end is the committed one, whoever committed it.
        attempt: Attempt,
        /// In which session.
        session: SessionId,
        /// Who claimed it.
        worker: Option<WorkerId>,
        /// Where it runs.
        runner: Option<RunnerId>,
        /// In which sandbox.
        sandbox: Option<SandboxId>,
        /// The hash of the token with which it speaks.
        token_hash: Option<Name>,
        /// Why it ended.
        cause: Option<Cause>,
        /// What it has used.
        usage: Usage,
        /// The bytes of transcript that are durable.
        transcript_length: u64,
        /// The ref under which its tree is kept.
        kept_ref: Option<Name>,
        /// How far its termination is.
        termination: Option<Termination>,
        /// When it is to be looked at again.
        due_at: Option<Timestamp>,
        /// When its task moved on.
        ending_at: Option<Timestamp>,
        /// When its processes were proven gone.
        proven_at: Option<Timestamp>,
        /// How many processes were there when it was ended.
        processes: u32,
        /// The hash of its transcript, once it is sealed.
        transcript_hash: Option<Name>,
        /// `from-to` of the bytes of transcript that could not be had.
        transcript_missing: List,
        /// The commit that holds its tree.
        kept_commit: Option<CommitId>,
        /// What the agent, or whoever ended it, said about its end.
        message: Option<Note>,
        /// The clock that ended it, with what it measured and what was allowed.
        fired: Option<Document<Reading>>,
        ; live: Option<TaskId> = |row| row.attempt.may_act().then_some(row.task),
    }
}

impl AttemptRow {
    /// An attempt of which nothing is known but that it was made.
    pub fn new(task: TaskId, attempt: Attempt, session: SessionId) -> Self {
        Self {
            task,
            attempt,
            session,
            worker: None,
            runner: None,
            sandbox: None,
            token_hash: None,
            cause: None,
            usage: Usage::default(),
            transcript_length: 0,
            kept_ref: None,
            termination: None,
            due_at: None,
            ending_at: None,
            proven_at: None,
            processes: 0,
            transcript_hash: None,
            transcript_missing: List::default(),
            kept_commit: None,
            message: None,
            fired: None,
        }
    }

    /// How long after the commit that ended it its processes were proven gone.
    pub fn proven_after(&self) -> belay_kernel::Span {
        let both = self.proven_at.zip(self.ending_at);
        both.map_or(belay_kernel::Span::ZERO, |(proven, ending)| proven.since(ending))
    }

    fn lease_write(&self) -> LeaseWrite {
        let holder = Holder::Attempt(self.task, self.attempt.number);
        let act = match self.attempt.phase {
            Phase::Claimed | Phase::Running | Phase::Publishing { .. } => LeaseAct::Open {
                fence: self.attempt.epoch.to_string(),
                mode: "live",
                until: self.attempt.lease_end,
            },
            Phase::Ending(_) => LeaseAct::Close,
            Phase::Ended(..) => LeaseAct::Drop,
        };
        LeaseWrite { holder, act }
    }
}

impl Field for Attempt {
    fn columns(_: &str, out: &mut Vec<Column>) {
        AttemptNumber::columns("number", out);
        Epoch::columns("epoch", out);
        column("phase", Kind::Text(SHORT), out);
        column("publish_due", Kind::Int, out);
        column("outcome", Kind::Text(SHORT), out);
        column("proof", Kind::Text(SHORT), out);
        column("publish", Kind::Text(SHORT), out);
        column("push_commit", Kind::Text(SHORT), out);
        column("push_expected", Kind::Text(SHORT), out);
        let times = ["lease_end", "claimed_at", "prepared_at", "started_at"];
        for name in times.into_iter().chain(["deadline", "held_since"]) {
            column(name, Kind::Int, out);
        }
        column("frozen", Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.number.put(out);
        self.epoch.put(out);
        put_phase(self.phase, out);
        put_publish(self.publish, out);
        self.lease_end.put(out);
        self.claimed_at.put(out);
        self.prepared_at.put(out);
        self.started_at.put(out);
        self.deadline.put(out);
        self.held_since.put(out);
        self.frozen.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            number: Field::get(cells)?,
            epoch: Field::get(cells)?,
            phase: take_phase(cells)?,
            publish: take_publish(cells)?,
            lease_end: Field::get(cells)?,
            claimed_at: Field::get(cells)?,
            prepared_at: Field::get(cells)?,
            started_at: Field::get(cells)?,
            deadline: Field::get(cells)?,
            held_since: Field::get(cells)?,
            frozen: Field::get(cells)?,
        })
    }
}

fn put_phase(phase: Phase, out: &mut Vec<Cell>) {
    let (name, due, outcome, proof) = match phase {
        Phase::Claimed => ("CLAIMED", None, None, None),
        Phase::Running => ("RUNNING", None, None, None),
        Phase::Publishing { due } => ("PUBLISHING", Some(due), None, None),
        Phase::Ending(outcome) => ("ENDING", None, Some(outcome), None),
        Phase::Ended(outcome, proof) => ("ENDED", None, Some(outcome), Some(proof)),
    };
    out.push(Cell::Text(name.to_owned()));
    due.put(out);
    outcome.put(out);
    proof.put(out);
}

fn take_phase(cells: &mut Cells<'_>) -> Result<Phase, Unreadable> {
    let name = cells.cell()?.as_text().unwrap_or_default();
    let due = Option::<Timestamp>::get(cells)?;
    let outcome = Option::<Outcome>::get(cells)?;
    let proof = Option::<Proof>::get(cells)?;
    let phase = match name {
        "CLAIMED" => Some(Phase::Claimed),
        "RUNNING" => Some(Phase::Running),
        "PUBLISHING" => due.map(|due| Phase::Publishing { due }),
        "ENDING" => outcome.map(Phase::Ending),
        "ENDED" => outcome.zip(proof).map(|(outcome, proof)| Phase::Ended(outcome, proof)),
        _ => None,
    };
    phase.ok_or_else(|| cells.unreadable(name))
}

fn put_publish(publish: Publish, out: &mut Vec<Cell>) {
    let (name, push) = match publish {
        Publish::None => ("none", None),
        Publish::Open(push) => ("open", Some(push)),
        Publish::Pushed(push) => ("pushed", Some(push)),
        Publish::NotPushed(push) => ("not_pushed", Some(push)),
    };
    out.push(Cell::Text(name.to_owned()));
    push.map(|push| push.commit).put(out);
    push.and_then(|push| push.expected).put(out);
}

fn take_publish(cells: &mut Cells<'_>) -> Result<Publish, Unreadable> {
    let name = cells.cell()?.as_text().unwrap_or_default();
    let commit = Option::<CommitId>::get(cells)?;
    let expected = Option::<CommitId>::get(cells)?;
    let push = commit.map(|commit| Push { commit, expected });
    let publish = match name {
        "none" => Some(Publish::None),
        "open" => push.map(Publish::Open),
        "pushed" => push.map(Publish::Pushed),
        "not_pushed" => push.map(Publish::NotPushed),
        _ => None,
    };
    publish.ok_or_else(|| cells.unreadable(name))
}

impl Field for Usage {
    fn columns(_: &str, out: &mut Vec<Column>) {
        let tokens = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
        for name in tokens.into_iter().chain(["cost"]) {
            column(name, Kind::Int, out);
        }
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.input_tokens.put(out);
        self.output_tokens.put(out);
        self.cache_read_tokens.put(out);
        self.cache_write_tokens.put(out);
        self.cost.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            input_tokens: Field::get(cells)?,
            output_tokens: Field::get(cells)?,
            cache_read_tokens: Field::get(cells)?,
            cache_write_tokens: Field::get(cells)?,
            cost: Option::<Money>::get(cells)?,
        })
    }
}

impl Field for Termination {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("end_step", Kind::Text(SHORT), out);
        column("end_storage", Kind::Text(SHORT), out);
        column("end_transcript_kept", Kind::Int, out);
        column("end_tree_kept", Kind::Int, out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        self.step.put(out);
        self.storage.put(out);
        self.kept.transcript.put(out);
        self.kept.tree.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let step = Step::get(cells)?;
        let storage = Storage::get(cells)?;
        let kept = Kept { transcript: bool::get(cells)?, tree: bool::get(cells)? };
        Ok(Self { storage, step, kept })
    }
}
