//! Sandboxes that stay: frozen with their agent in them when it has done its part, so that the same
//! agent goes on when more is asked of it; and ended when nothing will be.
//!
//! ```text
//!  attempt 1 ends ─► freeze, save ─► session paused(frozen) ─► attempt 2 is claimed ─► thaw, go on
//!                                          └─ cancelled, removed, begun anew ─► kill and prove
//! ```
//!
//! What is frozen cannot act, so the attempt is over and its session free. Its processes are not
//! gone, though: a stop is acknowledged only when they are.

use belay_api::port::Thaw;
use belay_kernel::Disposition;
use belay_kernel::sandbox::State as SandboxState;
use belay_kernel::session::{self, Kept, Rest, State, StopReason};
use belay_kernel::task::{self, Plan};
use belay_kernel::termination::Step;
use belay_kernel::{Epoch, SandboxId, TaskId};
use belay_store::rows::{AttemptRow, QuestionRow, SessionRow};
use belay_store::{Commit, MAX_BATCH, NewEffect, Query, Store};
use serde_json::json;

use crate::Control;
use crate::assignment::who;
use crate::commit::{Draft, Put};
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};

/// The sandbox that a session keeps frozen.
pub(crate) const fn frozen_in(session: &session::Session) -> Option<SandboxId> {
    match session.state {
        State::Paused { kept: Kept::Frozen(sandbox), .. } => Some(sandbox),
        State::New
        | State::Running { .. }
        | State::Pausing { .. }
        | State::Paused { .. }
        | State::Stopped { .. } => None,
    }
}

impl Look {
    /// Whether the attempt's sandbox is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.sandbox.as_ref().is_some_and(|row| row.row.state == SandboxState::Paused)
    }

    /// Whether the attempt is the one whose sandbox its session keeps frozen.
    fn holds_frozen(&self) -> bool {
        let (Some(session), Some(attempt)) = (&self.session, &self.attempt) else { return false };
        let session = &session.row.session;
        attempt.row.sandbox.is_some()
            && frozen_in(session) == attempt.row.sandbox
            && session.epoch == attempt.row.attempt.epoch
            && attempt.row.termination.is_some_and(|saga| saga.step == Step::Done)
    }
}

impl<S: Store> Control<S> {
    /// Ends what is frozen in the session of an attempt, if its task makes that of it.
    pub(crate) async fn rest_frozen(&self, look: &Look) -> Outcome<()> {
        match Rest::of_frozen(&look.task.row.task.state) {
            Rest::Stop(reason) => self.end_frozen(look, reason).await,
            Rest::Pause(_) => Ok(()),
        }
    }

    /// Ends the sandbox that the session of an attempt keeps frozen: the session is stopped, and
    /// the attempt's termination goes on where it was left.
    pub(crate) async fn end_frozen(&self, look: &Look, reason: StopReason) -> Outcome<()> {
        let mut look = look.clone();
        for _ in 0..TRIES {
            if !look.holds_frozen() {
                return Ok(());
            }
            let (Some(session), Some(attempt)) = (&look.session, &look.attempt) else {
                return Ok(());
            };
            let event = session::Event::Stopped { reason };
            let Disposition::Accept(moved) = session::step(&session.row.session, event) else {
                return Ok(());
            };
            let stopped =
                SessionRow { session: session.row.session.after(&moved), ..session.row.clone() };
            let termination = attempt.row.termination.map(|saga| saga.ends());
            let ending = AttemptRow { termination, ..attempt.row.clone() };
            let (task, number) = (attempt.row.task, attempt.row.attempt.number);
            let effect = NewEffect {
                task: Some(task),
                attempt: Some(number),
                kind: "terminate".to_owned(),
                body: json!({}).to_string(),
                due_at: look.now,
            };
            let commit = Commit::new()
                .read(&look.task)
                .update(session.revision, &stopped)
                .update(attempt.revision, &ending)
                .effect(effect);
            if self.put(Draft { commit, offer: None, effects: true }).await? == Put::Done {
                return Ok(());
            }
            look = self.look_at(task, Some(number)).await?;
        }
        Err(Refused::busy())
    }

    /// Ends what earlier sessions of a task keep frozen that begins anew: nobody goes on in them.
    pub(crate) async fn end_abandoned(&self, look: &Look) -> Outcome<()> {
        let task = &look.task.row;
        let anew = match task.task.state {
            task::State::Queued { plan, .. } | task::State::Claimed { plan, .. } => {
                plan == Plan::Fresh
            }
            task::State::Running { plan, .. } => plan == Plan::Fresh,
            _ => false,
        };
        let of_task = Query::<AttemptRow>::first(MAX_BATCH).task(&[task.task.id]);
        for attempt in self.all(of_task).await? {
            let look = self.look_at(task.task.id, Some(attempt.row.attempt.number)).await?;
            if anew || task.session != Some(attempt.row.session) {
                self.end_frozen(&look, StopReason::Failed).await?;
            }
        }
        Ok(())
    }

    /// How the attempt goes on in a sandbox that was frozen before; nothing if it has one of its
    /// own.
    pub(crate) async fn thaw(&self, look: &Look) -> Outcome<Option<Thaw>> {
        let Some(attempt) = look.attempt.as_ref().filter(|_| look.spec.keep_alive) else {
            return Ok(None);
        };
        let Some(sandbox) = attempt.row.sandbox else { return Ok(None) };
        let before = self.earlier_in(sandbox, attempt.row.attempt.epoch).await?;
        let Some(first) = before.first() else { return Ok(None) };
        let mut answers = Vec::new();
        for task in before.iter().map(|row| row.task).collect::<std::collections::BTreeSet<_>>() {
            answers.extend(self.answers(task).await?);
        }
        Ok(Some(Thaw {
            first: who(first),
            printed: before.iter().map(|row| row.transcript_length).sum(),
            answers,
        }))
    }

    /// The attempts that a sandbox had before this epoch, oldest first.
    async fn earlier_in(&self, sandbox: SandboxId, before: Epoch) -> Outcome<Vec<AttemptRow>> {
        let found = self.all(Query::<AttemptRow>::first(MAX_BATCH).sandbox(&[sandbox])).await?;
        let mut rows: Vec<_> = found.into_iter().map(|row| row.row).collect();
        rows.retain(|row| row.attempt.epoch < before);
        rows.sort_by_key(|row| row.attempt.epoch);
        Ok(rows)
    }

    async fn answers(&self, task: TaskId) -> Outcome<Vec<(belay_kernel::QuestionId, String)>> {
        let asked = self.all(Query::<QuestionRow>::first(MAX_BATCH).task(&[task])).await?;
        let answered = asked.into_iter().filter_map(|row| {
            let answer = row.row.answer?;
            Some((row.row.id, answer.to_string()))
        });
        Ok(answered.collect())
    }
}
