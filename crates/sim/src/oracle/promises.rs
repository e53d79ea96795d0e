//! What was answered holds: whoever was told that something is durable can rely on it.
//!
//! Looked at when the answer arrives. Rows only go on from what was promised, so it does not matter
//! how long the answer was on its way.

use belay_api::port::Who;
use belay_api::{Code, Problem};
use belay_kernel::task::State;
use belay_kernel::{QuestionId, Span, TaskId, Timestamp};
use belay_store::rows::{AttemptRow, QuestionRow, TaskRow};
use belay_store::{Record, Store};

use super::{Oracle, at_once, rank, short};

impl Oracle {
    fn row<R: Record>(&self, id: R::Id) -> Option<R> {
        let rows = at_once(self.memory.load::<R>(&[id])).and_then(Result::ok);
        rows.and_then(|mut rows| rows.pop().flatten()).map(|stored| stored.row)
    }

    /// A runner was told something about its attempt, which must be so.
    fn check_told(&self, who: Who, told: &str, is_so: impl FnOnce(&AttemptRow) -> bool) {
        let row = self.row::<AttemptRow>((who.task, who.attempt));
        if !row.as_ref().is_some_and(is_so) && !self.was_removed(who.task) {
            let name = format!("{} #{}", short(who.task), who.attempt);
            self.sim.violate(5, format!("{name} was told {told}, and it is not so"));
        }
    }

    /// The agent may be executed.
    pub(crate) fn told_started(&self, who: Who) {
        self.check_told(who, "to start", |row| row.attempt.started_at.is_some());
    }

    /// So much of the transcript is durable.
    pub(crate) fn told_durable(&self, who: Who, next: u64) {
        let told = format!("that {next} bytes are durable");
        self.check_told(who, &told, |row| row.transcript_length >= next);
    }

    /// The question was asked.
    pub(crate) fn told_asked(&self, who: Who, question: QuestionId) {
        let is_there = self.row::<QuestionRow>(question).is_some();
        self.check_told(who, "that it has asked", |_| is_there);
    }

    /// It is known what became of the push.
    pub(crate) fn told_settled(&self, who: Who) {
        self.check_told(who, "that its push is settled", |row| row.attempt.publish.is_settled());
    }

    /// The end was taken; a push that is open is settled first.
    pub(crate) fn told_ended(&self, who: Who) {
        self.check_told(who, "that it has ended", |row| rank(row.attempt.phase) >= 2);
    }

    /// The lease was renewed by a beat that was sent at `sent`, by the store's clock.
    pub(crate) fn told_renewed(&self, who: Who, sent: Timestamp, lease: Span) {
        let until = sent.after(lease);
        let told = format!("that its lease lasts until {until:?}");
        self.check_told(who, &told, |row| row.attempt.lease_end >= until);
    }

    /// A person was told that what they asked for is done; it is known by its key ever after.
    pub(crate) fn told_done(&self, person: &str, key: &str) {
        let stored = at_once(self.memory.answered(person, key)).and_then(Result::ok).flatten();
        if stored.is_none() {
            self.sim.violate(5, format!("{key} was acknowledged, and nobody knows of it"));
        }
    }

    /// A person was told that a task cannot be stopped: then it is over.
    pub(crate) fn told_unstoppable(&self, task: TaskId, problem: &Problem) {
        let state = self.row::<TaskRow>(task).map(|row| row.task.state);
        let is_over = matches!(state, Some(State::Completed | State::BudgetExceeded));
        if problem.code == Code::IllegalMove && !is_over && !self.was_removed(task) {
            let name = state.map_or("not there", |state| state.name());
            let what = format!("{} cannot be stopped, it is said, and it is {name}", short(task));
            self.sim.violate(3, what);
        }
    }
}
