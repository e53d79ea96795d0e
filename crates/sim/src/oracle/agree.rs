//! Rows against each other, and against what they were: what one row says, no other may deny, and
//! what only grows never falls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use belay_kernel::attempt::Phase;
use belay_kernel::publish::{CommitId, Publish};
use belay_kernel::sandbox::Status;
use belay_kernel::status::Group;
use belay_kernel::task::{Blocked, Failure, Reason, State};
use belay_kernel::termination::Step;
use belay_kernel::{
    AttemptNumber, Epoch, Limits, Money, Retry, SandboxId, SessionId, TaskId, Timestamp,
};
use belay_store::Store;
use belay_store::rows::{AttemptRow, DependencyRow, LedgerRow, QuestionRow, SandboxRow, TaskRow};

use super::{Name, Oracle, at_once, short};
use crate::Coverage;
use crate::machine::{Machine, Sandbox};

/// How often a task may fall back into the queue before an agent of it has started.
const FAILED_STARTS: u32 = 2;

/// What was seen before.
#[derive(Default)]
pub(super) struct Seen {
    states: BTreeMap<TaskId, State>,
    phases: BTreeMap<Name, Phase>,
    lease_ends: BTreeMap<Name, Timestamp>,
    lengths: BTreeMap<Name, u64>,
    failed_starts: BTreeMap<TaskId, u32>,
    /// Attempts whose tree is said to be saved.
    kept: BTreeSet<Name>,
    /// Attempts whose runner was away for too long: what only its machine has is not waited for.
    pub(super) given_up: BTreeSet<Name>,
    /// What was last kept of each session, and by whom, also if that was removed since.
    last_kept: BTreeMap<SessionId, (Epoch, Name, CommitId)>,
    places: BTreeMap<TaskId, &'static str>,
    statuses: BTreeMap<SandboxId, Status>,
    coverage: Coverage,
}

impl Seen {
    fn is_open(&self, id: SandboxId) -> bool {
        self.statuses.get(&id) != Some(&Status::Terminated)
    }

    /// What was last kept of a session, and by whom.
    pub(super) fn last_kept(
        &self,
        session: SessionId,
    ) -> Option<(TaskId, AttemptNumber, CommitId)> {
        self.last_kept.get(&session).map(|(_, (task, attempt), kept)| (*task, *attempt, *kept))
    }

    fn see_kept(&mut self, row: &AttemptRow) {
        let Some(kept) = row.kept_commit else { return };
        let seen = (row.attempt.epoch, (row.task, row.attempt.number), kept);
        let last = self.last_kept.entry(row.session).or_insert(seen);
        if last.0 < seen.0 {
            *last = seen;
        }
    }

    fn see_task(&mut self, id: TaskId, place: &'static str) {
        if let Some(before) = self.places.insert(id, place).filter(|before| *before != place) {
            *self.coverage.tasks.entry((before, place)).or_default() += 1;
        }
    }

    fn see_phase(&mut self, name: Name, phase: Phase) {
        let (before, place) = (self.phases.get(&name).map(Phase::place), phase.place());
        if let Some(before) = before.filter(|before| *before != place) {
            *self.coverage.attempts.entry((before, place)).or_default() += 1;
        }
    }

    fn see_sandbox(&mut self, id: SandboxId, status: Status) {
        if let Some(before) = self.statuses.insert(id, status).filter(|before| *before != status) {
            let made = (before.name(), status.name());
            *self.coverage.sandboxes.entry(made).or_default() += 1;
        }
    }
}

fn name(row: &AttemptRow) -> String {
    format!("{} #{}", short(row.task), row.attempt.number)
}

impl Oracle {
    /// Looks at the rows after something was committed.
    pub(super) fn check_agreement(&self, tasks: &[TaskRow], attempts: &[AttemptRow]) {
        self.see_moves(tasks, attempts);
        for task in tasks {
            let before = self.ledger().agree.states.insert(task.task.id, task.task.state);
            if before != Some(task.task.state) {
                self.check_move(before, task, tasks);
            }
        }
        self.check_acting(tasks, attempts);
        self.check_sessions(attempts);
        for row in attempts {
            self.check_growth(row);
            self.check_kept(row);
            self.check_started(row);
            let key = (row.task, row.attempt.number);
            let before = self.ledger().agree.phases.insert(key, row.attempt.phase);
            if before != Some(row.attempt.phase) {
                self.check_phase(row);
            }
        }
    }

    /// The moves that were made in this world.
    pub(crate) fn coverage(&self) -> Coverage {
        self.ledger().agree.coverage.clone()
    }

    /// Counts every move.
    fn see_moves(&self, tasks: &[TaskRow], attempts: &[AttemptRow]) {
        let open = attempts.iter().filter(|row| {
            let is_done = row.termination.is_some_and(|saga| saga.step == Step::Done);
            !is_done || row.sandbox.is_some_and(|id| self.ledger().agree.is_open(id))
        });
        let ids: Vec<_> = open.filter_map(|row| row.sandbox).collect();
        let rows = at_once(self.memory.load::<SandboxRow>(&ids)).and_then(Result::ok);
        let mut ledger = self.ledger();
        for row in rows.unwrap_or_default().into_iter().flatten() {
            ledger.agree.see_sandbox(row.row.id, row.row.state.status());
        }
        for row in attempts {
            ledger.agree.see_phase((row.task, row.attempt.number), row.attempt.phase);
            ledger.agree.see_kept(row);
        }
        for task in tasks {
            let acts = |row: &&AttemptRow| {
                row.task == task.task.id && Some(row.attempt.number) == task.task.state.attempt()
            };
            let acting = attempts.iter().find(acts).map(|row| &row.attempt);
            ledger.agree.see_task(task.task.id, task.task.state.place(acting));
        }
    }

    /// A task that moved was allowed to by the others.
    fn check_move(&self, before: Option<State>, row: &TaskRow, tasks: &[TaskRow]) {
        let id = row.task.id;
        match row.task.state {
            State::Claimed { .. } => {
                let waits_for = |edge: &DependencyRow| {
                    let is_done = |other: &TaskRow| {
                        other.task.id == edge.depends_on && other.task.state == State::Completed
                    };
                    edge.task == id && !tasks.iter().any(is_done)
                };
                if self.rows::<DependencyRow>().iter().any(waits_for) {
                    self.sim.violate(1, format!("{} is claimed before its time", short(id)));
                }
            }
            State::Ready { .. } | State::Completed => {
                let unfinished = |below: &&TaskRow| {
                    below.task.parent == Some(id)
                        && !below.disregarded
                        && !below.task.state.group().is_at_rest()
                };
                let done = row.task.state.name();
                let by_itself =
                    matches!(row.task.reason, Reason::Succeeded | Reason::SubtasksRested);
                if let Some(below) = tasks.iter().find(unfinished).filter(|_| by_itself) {
                    let below = short(below.task.id);
                    self.sim.violate(1, format!("{} is {done} before its {below}", short(id)));
                }
            }
            State::Failed(Failure::Subtask { by, .. }) => self.check_failed_below(id, by, tasks),
            _ => {}
        }
        self.count_starts(before, row);
    }

    /// A task fails for a subtask only while nobody else works for it below.
    fn check_failed_below(&self, id: TaskId, by: TaskId, tasks: &[TaskRow]) {
        let below = |row: &&TaskRow| row.task.parent == Some(id) && !row.disregarded;
        let active = |row: &TaskRow| !row.task.state.group().is_at_rest();
        if let Some(active) = tasks.iter().filter(below).find(|row| active(row)) {
            let (by, active) = (short(by), short(active.task.id));
            let what = format!("{} failed for {by} while its {active} is not over", short(id));
            self.sim.violate(1, what);
        }
    }

    /// Ends before an agent could start have a cap of their own.
    fn count_starts(&self, before: Option<State>, row: &TaskRow) {
        let id = row.task.id;
        let mut ledger = self.ledger();
        let count = ledger.agree.failed_starts.entry(id).or_default();
        match (before, row.task.state, row.task.reason) {
            (_, State::Running { .. }, _) | (_, _, Reason::Asked(_)) => *count = 0,
            (Some(State::Claimed { .. }), State::Queued { .. }, Reason::Retrying(cause))
                if cause.retry() == Retry::Retryable =>
            {
                *count += 1;
            }
            _ => {}
        }
        let count = *count;
        drop(ledger);
        if count > FAILED_STARTS {
            self.sim.violate(8, format!("{} was queued {count} times unstarted", short(id)));
        }
    }

    /// A task that says that an attempt acts has one that may, and none that may is without a task.
    fn check_acting(&self, tasks: &[TaskRow], attempts: &[AttemptRow]) {
        for task in tasks {
            let (id, state) = (task.task.id, task.task.state);
            let of = attempts.iter().filter(|row| row.task == id && row.attempt.may_act());
            let may_act: Vec<_> = of.map(|row| row.attempt.number).collect();
            let acts: Vec<_> = state.attempt().into_iter().collect();
            if may_act != acts {
                let name = state.name();
                let what = format!("{} is {name} by {acts:?}, and {may_act:?} may act", short(id));
                self.sim.violate(1, what);
            }
        }
    }

    /// The attempts of a session follow one another: all but the last are over, with their pushes.
    fn check_sessions(&self, attempts: &[AttemptRow]) {
        let mut last: BTreeMap<SessionId, &AttemptRow> = BTreeMap::new();
        for row in attempts {
            let newest = last.entry(row.session).or_insert(row);
            if newest.attempt.epoch < row.attempt.epoch {
                *newest = row;
            }
        }
        for row in attempts {
            let is_over = matches!(row.attempt.phase, Phase::Ended(..))
                && !matches!(row.attempt.publish, Publish::Open(_));
            let next = last[&row.session];
            if !is_over && next.attempt.epoch > row.attempt.epoch {
                let phase = row.attempt.phase;
                let what = format!("{} follows {}, which is {phase:?}", name(next), name(row));
                self.sim.violate(2, what);
            }
        }
    }

    /// A lease that was committed is never shortened, and what is durable stays so.
    fn check_growth(&self, row: &AttemptRow) {
        let key = (row.task, row.attempt.number);
        let (end, length) = (row.attempt.lease_end, row.transcript_length);
        let mut ledger = self.ledger();
        let had = ledger.agree.lease_ends.insert(key, end).unwrap_or(end);
        let stored = ledger.agree.lengths.insert(key, length).unwrap_or(length);
        drop(ledger);
        if end < had {
            let what = format!("the lease of {} fell from {had:?} to {end:?}", name(row));
            self.sim.violate(2, what);
        }
        if length < stored {
            let what = format!("the transcript of {} fell from {stored} to {length}", name(row));
            self.sim.violate(5, what);
        }
    }

    /// No agent is executed before the commit that lets it run.
    fn check_started(&self, row: &AttemptRow) {
        let key = (row.task, row.attempt.number);
        let runs = |machine: &Arc<Machine>| machine.inside().executed.contains_key(&key);
        if row.attempt.started_at.is_none() && self.machines().iter().any(runs) {
            self.sim.violate(1, format!("the agent of {} runs without a start", name(row)));
        }
    }

    /// An attempt that is published was in time; one that a clock ended was late.
    fn check_phase(&self, row: &AttemptRow) {
        match row.attempt.phase {
            Phase::Publishing { due } => {
                let opened = due.before(Limits::default().publish);
                if row.attempt.deadline.is_some_and(|deadline| opened > deadline) {
                    self.sim.violate(4, format!("{} is published after its deadline", name(row)));
                }
            }
            Phase::Ending(_) => {
                if let Some(fired) = row.fired.as_ref().map(|fired| fired.0).filter(|f| !f.passed())
                {
                    self.sim.violate(6, format!("{} was ended by {fired}", name(row)));
                }
            }
            Phase::Claimed | Phase::Running | Phase::Ended(..) => {}
        }
    }

    /// What takes longer to look at, every so often.
    pub(super) fn check_words(&self) {
        self.check_questions();
        self.check_ledgers();
    }

    /// An open question is what its task waits for, unless the task is over.
    fn check_questions(&self) {
        let tasks = self.tasks();
        for question in self.rows::<QuestionRow>() {
            let task = tasks.iter().find(|row| row.task.id == question.task);
            let Some(task) = task.filter(|_| question.answered_at.is_none()) else { continue };
            let waits = match task.task.state {
                State::Blocked(
                    Blocked::Held { question: open, .. } | Blocked::Question { question: open },
                ) => open == question.id,
                state => state.group() == Group::Final,
            };
            if !waits {
                let state = task.task.state.name();
                let what = format!("{} is {state}, and its question is open", short(question.task));
                self.sim.violate(7, what);
            }
        }
    }

    /// What a tree of tasks is charged with is what its attempts have used.
    fn check_ledgers(&self) {
        let (tasks, attempts) = (self.tasks(), self.attempts());
        for ledger in self.rows::<LedgerRow>() {
            let below = |row: &&AttemptRow| {
                tasks.iter().any(|task| task.task.id == row.task && task.root == ledger.root)
            };
            let of_tree = || attempts.iter().filter(below).map(|row| row.usage);
            let tokens: u64 = of_tree().map(|usage| usage.tokens()).sum();
            let cost = of_tree()
                .filter_map(|usage| usage.cost)
                .fold(Money::ZERO, |sum, cost| sum.plus(cost));
            let (has_tokens, has_cost) = (ledger.ledger.tokens, ledger.ledger.cost);
            // What a removed subtask has used is not paid back, and nobody can add it up any more.
            let agrees = match self.ledger().removed.is_trimmed(ledger.root) {
                true => has_tokens >= tokens && has_cost >= cost,
                false => (has_tokens, has_cost) == (tokens, cost),
            };
            if !agrees {
                let (root, has) = (short(ledger.root), ledger.ledger);
                let what = format!("{root} is charged {has:?} for {tokens} tokens, {cost}");
                self.sim.violate(8, what);
            }
        }
    }

    /// An agent is told the answer to what it asks once.
    pub(crate) fn check_answered(&self, sandbox: &Sandbox) {
        let told = String::from_utf8_lossy(&sandbox.stdin);
        let mut ids: Vec<&str> = told
            .match_indices("\"request_id\":\"")
            .filter_map(|(at, found)| told[at + found.len()..].split('"').next())
            .collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            let (task, attempt) = (short(sandbox.task), sandbox.attempt);
            let what = format!("{task} #{attempt} was told the answer to {} twice", twice[0]);
            self.sim.violate(0, what);
        }
    }

    /// The work of an attempt whose sandbox may go is saved as it was. What is on a machine whose
    /// runner was away for as long as its trees are waited for is not: the session goes on without
    /// it, and it stays where it is.
    fn check_kept(&self, row: &AttemptRow) {
        let is_saved = row.termination.is_some_and(|saga| saga.kept.tree);
        let key = (row.task, row.attempt.number);
        if !is_saved || !self.ledger().agree.kept.insert(key) {
            return; // later its session's next attempt may have changed it
        }
        if row.kept_commit.is_none() && self.was_away(row) {
            self.ledger().agree.given_up.insert(key);
            return;
        }
        let has_it = |machine: &Arc<Machine>| {
            row.sandbox.is_some_and(|id| machine.inside().boxes.contains_key(&id))
        };
        let Some(number) = self.machines().iter().position(has_it) else { return };
        let tip = self.machines()[number].remote.tip(number, row.session);
        let Some((tip, edits)) = tip else { return };
        // One that ended before it could touch the tree keeps nothing; somebody before it did.
        let kept_before = |other: &AttemptRow| {
            let is_before = other.attempt.epoch < row.attempt.epoch && row.kept_commit.is_none();
            is_before && (other.session, other.kept_commit) == (row.session, Some(tip))
        };
        let is_kept = row.kept_commit == Some(tip) || self.attempts().iter().any(kept_before);
        if edits > 0 && !is_kept {
            let kept = row.kept_commit.map_or("nothing".to_owned(), short);
            self.sim.violate(10, format!("of {} {kept} is kept, not {}", name(row), short(tip)));
        }
    }
}
