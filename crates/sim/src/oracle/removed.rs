//! Tasks that people remove: they go whole, with everything of theirs, and nothing else goes.

use std::collections::{BTreeMap, BTreeSet};

use belay_kernel::attempt::Phase;
use belay_kernel::{RunnerId, SessionId, TaskId};
use belay_store::Store;
use belay_store::blob::{BlobKey, BlobKind, Blobs};
use belay_store::rows::{AttemptRow, SessionRow, SpecRow, TaskRow};

use super::{Ledger, Oracle, at_once, short};
use crate::world::FIRST;

/// What was seen of them.
#[derive(Default)]
pub(super) struct Seen {
    /// Tasks that somebody has asked to remove: that may happen at any time from then on.
    asked: BTreeSet<TaskId>,
    /// The parent and the root of every task that ever was.
    above: BTreeMap<TaskId, (Option<TaskId>, TaskId)>,
    gone: BTreeSet<TaskId>,
    /// The roots of trees of which something is gone.
    trimmed: BTreeSet<TaskId>,
}

impl Seen {
    /// A task is there for the first time.
    pub(super) fn born(&mut self, row: &TaskRow) {
        self.above.insert(row.task.id, (row.task.parent, row.root));
    }

    pub(super) fn is_gone(&self, task: TaskId) -> bool {
        self.gone.contains(&task)
    }

    pub(super) fn is_trimmed(&self, root: TaskId) -> bool {
        self.trimmed.contains(&root)
    }

    /// Whether somebody asked to remove it, or something above it.
    fn is_asked(&self, task: TaskId) -> bool {
        let above = |task: &TaskId| self.above.get(task).and_then(|(parent, _)| *parent);
        std::iter::successors(Some(task), above).any(|task| self.asked.contains(&task))
    }
}

impl Oracle {
    /// Somebody asks to remove a task.
    pub(crate) fn removing(&self, task: TaskId) {
        self.ledger().removed.asked.insert(task);
    }

    /// Whether a task was there, and is gone because somebody asked for that.
    pub(crate) fn was_removed(&self, task: TaskId) -> bool {
        self.ledger().removed.is_gone(task)
    }

    /// A person was told that a task is removed.
    pub(crate) fn told_removed(&self, task: TaskId) {
        self.sim.note(format_args!("person  removal of {} is acknowledged", short(task)));
        self.after_change();
        self.check_processes();
        if self.tasks().iter().any(|row| row.task.id == task) {
            self.sim.violate(5, format!("{} was removed, it is said, and is there", short(task)));
        }
    }

    /// Tasks that were there and are not: somebody asked for it, nobody worked on them, and nothing
    /// of them is left in the store.
    pub(super) fn check_removed(
        &self,
        ledger: &mut Ledger,
        tasks: &[TaskRow],
        attempts: &[AttemptRow],
    ) {
        if tasks.len() + ledger.removed.gone.len() == ledger.states.len() {
            return;
        }
        let is_there = |id: &TaskId| tasks.iter().any(|row| row.task.id == *id);
        let went = ledger.states.keys().copied().filter(|id| !is_there(id));
        let went: Vec<_> = went.filter(|id| !ledger.removed.is_gone(*id)).collect();
        for id in went {
            self.sim.note(format_args!("task    {} is removed", short(id)));
            self.check_gone(ledger, id, attempts);
            let root = ledger.removed.above.get(&id).map(|(_, root)| *root);
            ledger.removed.trimmed.extend(root);
            ledger.removed.gone.insert(id);
        }
    }

    fn check_gone(&self, ledger: &Ledger, id: TaskId, attempts: &[AttemptRow]) {
        let name = short(id);
        if !ledger.removed.is_asked(id) {
            self.sim.violate(5, format!("{name} is gone, and nobody has removed it"));
        }
        if let Some((state, _)) = ledger.states.get(&id).filter(|(state, _)| state.refuses_delete())
        {
            self.sim.violate(1, format!("{name} was removed while it was {}", state.name()));
        }
        let of_it = ledger.attempts.iter().filter(|((task, _), _)| *task == id);
        for ((_, number), (phase, publish)) in of_it {
            if !matches!(phase, Phase::Ended(..)) || !publish.is_settled() {
                self.sim.violate(3, format!("{name} was removed while its #{number} is {phase:?}"));
            }
        }
        let spec = at_once(self.memory.load::<SpecRow>(&[id])).and_then(Result::ok);
        let has_spec = spec.is_some_and(|rows| rows.iter().any(Option::is_some));
        if has_spec || attempts.iter().any(|row| row.task == id) {
            self.sim.violate(5, format!("{name} is removed, and some of it is there"));
        }
    }

    /// Whether a session is there.
    pub(super) fn has_session(&self, session: SessionId) -> bool {
        let rows = at_once(self.memory.load::<SessionRow>(&[session])).and_then(Result::ok);
        rows.is_some_and(|rows| rows.iter().any(Option::is_some))
    }

    /// A runner removes what it has of a session: nobody goes on in it.
    pub(crate) fn forgetting(&self, session: SessionId) {
        let (tasks, attempts) = (self.tasks(), self.attempts());
        let of_task = tasks.iter().find(|row| row.session == Some(session)).map(|r| r.task.id);
        let of_attempt = attempts.iter().find(|row| row.session == session).map(|row| row.task);
        if let Some(task) = of_task.or(of_attempt) {
            let (session, task) = (short(session), short(task));
            self.sim.violate(10, format!("the tree of {session} is removed, which {task} has"));
        }
    }

    /// What is left of removed tasks: their blobs, and sessions that nobody has any more. What was
    /// on a machine that is lost is waited for by nobody else, and hurts nobody.
    pub(crate) async fn left_behind(&self, blobs: &Blobs) -> Vec<String> {
        let (tasks, attempts) = (self.tasks(), self.attempts());
        let mut left = Vec::new();
        for kind in [BlobKind::Transcript, BlobKind::Diff] {
            for entry in blobs.list(kind).await.unwrap_or_default() {
                let (BlobKey::Transcript(task, number) | BlobKey::Diff(task, number)) = entry.key
                else {
                    continue;
                };
                if !tasks.iter().any(|row| row.task.id == task) {
                    let name = format!("{} #{number}", short(task));
                    left.push(format!("control: the {} of {name} is there", kind.name()));
                }
            }
        }
        for row in self.rows::<SessionRow>() {
            let is_used = tasks.iter().any(|task| task.session == Some(row.id))
                || attempts.iter().any(|attempt| attempt.session == row.id);
            if !is_used && !row.runner.is_some_and(|runner| self.is_lost(runner)) {
                left.push(format!("the runner: session {} is not forgotten", short(row.id)));
            }
        }
        left
    }

    /// Whether the machine of a runner is lost.
    fn is_lost(&self, runner: RunnerId) -> bool {
        let number = runner.as_bits().checked_sub(FIRST.as_bits());
        let number = number.and_then(|number| usize::try_from(number).ok());
        let machine = number.and_then(|number| self.machines().get(number));
        machine.is_some_and(|machine| machine.is_lost())
    }
}
