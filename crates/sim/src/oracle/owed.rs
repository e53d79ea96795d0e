//! What is still owed when nothing goes wrong any more, and by whom.

use std::collections::BTreeSet;

use belay_kernel::TaskId;
use belay_kernel::attempt::Phase;
use belay_kernel::session::{self, Kept};
use belay_kernel::status::Group;
use belay_kernel::task::{Blocked, State};
use belay_kernel::termination::Step;
use belay_store::rows::{AttemptRow, DependencyRow, SessionRow, TaskRow};

use super::{Oracle, short};

impl Oracle {
    /// Everything that keeps this world from being at rest, in sentences.
    pub(crate) fn owed(&self) -> Vec<String> {
        let mut owed: Vec<String> = Vec::new();
        for row in self.attempts().iter() {
            owed.extend(
                attempt(row)
                    .map(|what| format!("{} #{}: {what}", short(row.task), row.attempt.number)),
            );
        }
        let tasks = self.tasks();
        let waiting = self.waiting_for_person(&tasks);
        for row in tasks.iter().filter(|row| !waiting.contains(&row.task.id)) {
            owed.extend(task(row).map(|what| format!("{}: {what}", short(row.task.id))));
        }
        for row in self.rows::<SessionRow>() {
            if row.session.attempt == session::Attempt::Live {
                owed.push(format!("control: session {} is not free", short(row.id)));
            }
        }
        let sessions = self.rows::<SessionRow>();
        let keeps = |session| {
            let row = sessions.iter().find(|row| row.id == session);
            row.is_some_and(|row| {
                matches!(row.session.state, session::State::Paused { kept: Kept::Frozen(_), .. })
            })
        };
        for alive in self.alive().iter().filter(|one| !(one.frozen && keeps(one.session))) {
            let name = format!("{} #{}", short(alive.task), alive.attempt);
            owed.push(format!("the machine: a process of {name} lives"));
        }
        owed
    }

    /// Tasks that nothing but a person moves on: those that may not be run because what they wait
    /// for failed, and those that wait for such tasks.
    fn waiting_for_person(&self, tasks: &[TaskRow]) -> BTreeSet<TaskId> {
        let edges = self.rows::<DependencyRow>();
        let mut waiting = BTreeSet::new();
        loop {
            let before = waiting.len();
            for row in tasks {
                let id = row.task.id;
                let of_others = match row.task.state {
                    State::Pending { .. } => true,
                    State::Queued { .. } => edges
                        .iter()
                        .any(|edge| edge.task == id && waiting.contains(&edge.depends_on)),
                    State::Blocked(Blocked::Subtasks { .. }) => tasks.iter().any(|below| {
                        below.task.parent == Some(id) && waiting.contains(&below.task.id)
                    }),
                    _ => false,
                };
                if of_others {
                    waiting.insert(id);
                }
            }
            if waiting.len() == before {
                return waiting;
            }
        }
    }
}

fn attempt(row: &AttemptRow) -> Option<String> {
    let attempt = &row.attempt;
    match attempt.phase {
        Phase::Ended(..) => {}
        phase => {
            return Some(format!("the runner: it is {phase:?}, lease to {:?}", attempt.lease_end));
        }
    }
    if !attempt.publish.is_settled() {
        return Some("the runner: its push is not settled".into());
    }
    match row.termination {
        Some(saga) if saga.step != Step::Done => {
            Some(format!("the runner: its termination is at {:?}", saga.step))
        }
        Some(_) | None => None,
    }
}

fn task(row: &TaskRow) -> Option<String> {
    match row.task.state {
        State::Queued { .. } if row.unfinished > 0 => {
            Some(format!("others: it waits for {} tasks", row.unfinished))
        }
        State::Queued { not_before, .. } => {
            Some(format!("the runner: it is QUEUED ({}) {not_before:?}", row.task.reason.code()))
        }
        State::Blocked(Blocked::Subtasks { .. }) => Some("its subtasks: it is BLOCKED".into()),
        state if state.group().is_at_rest() || state.group() == Group::Final => None,
        state => Some(format!("{:?}: it is {}", state.group(), state.name())),
    }
}
