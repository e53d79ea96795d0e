//! The publish gate, and what became of a push.

use belay_api::port::{Left, Who};
use belay_kernel::attempt::{Event as AttemptEvent, Phase};
use belay_kernel::fence::Intent;
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::retry::Progress;
use belay_kernel::sandbox::Exit;
use belay_kernel::task::{self, Blocked, Event, State};
use belay_kernel::{Cause, Disposition};
use belay_store::rows::AttemptRow;
use belay_store::{Commit, NewEvent, Store};
use serde_json::json;

use crate::Control;
use crate::commit::{EndNote, Put, short};
use crate::finish::{exited, progress, success_facts, summarised};
use crate::look::{Look, Others, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;

impl<S: Store> Control<S> {
    /// Opens the gate: attempt, state and deadline are checked in the commit that stores the push.
    pub(crate) async fn open_gate(&self, who: Who, push: Push) -> Outcome<()> {
        let prepare = |look: &mut Look, subtasks: &Others| {
            exited(look, Exit::Success);
            let budget = look.standing();
            if let State::Blocked(Blocked::Held { .. }) = look.task.row.task.state {
                // It went without its answer. Questions never publish: the attempt ends, the
                // question stays, and the work is kept for whoever gets the answer.
                let facts = success_facts(look, subtasks, Progress::Made);
                return Ok((Event::Succeed { attempt: who.attempt, facts }, EndNote::NONE));
            }
            let event = Event::OpenPublish { attempt: who.attempt, push, budget };
            Ok((event, EndNote { cause: Some(Cause::Budget), ..EndNote::NONE }))
        };
        self.act(who, prepare, |_, draft| draft).await?;
        let look = self.look_at(who.task, Some(who.attempt)).await?;
        match admitted(&look, who, Intent::Act)?.row.attempt.phase {
            Phase::Publishing { .. } => Ok(()),
            Phase::Claimed | Phase::Running | Phase::Ending(_) | Phase::Ended(..) => {
                Err(Refused::Fenced)
            }
        }
    }

    /// It is known what became of a push: of the task's acting attempt, or of one that is ending.
    pub(crate) async fn take_settled(
        &self,
        who: Who,
        outcome: PushOutcome,
        left: Left,
    ) -> Outcome<()> {
        let (number, told) =
            (self.next_remark(who.task).await?, self.told_result(who).await?.is_some());
        let prepare = |look: &mut Look, subtasks: &Others| {
            let facts = success_facts(look, subtasks, progress(&left, told, subtasks));
            let note = match outcome {
                PushOutcome::Pushed => EndNote::NONE,
                PushOutcome::NotPushed => EndNote {
                    cause: Some(Cause::PublishFailed),
                    message: Some("the work was not published; `resume` publishes it again".into()),
                    ..EndNote::NONE
                },
            };
            Ok((Event::Settled { attempt: who.attempt, outcome, facts }, note))
        };
        let extra = |look: &Look, draft: crate::commit::Draft| {
            let draft = draft.with(|commit| match told {
                true => commit,
                false => summarised(commit, look, who, number, &left),
            });
            draft.with(|commit| commit.event(settled_event(look, who, outcome)))
        };
        match self.act(who, prepare, extra).await {
            Err(Refused::Fenced | Refused::Gone) => self.settle_ending(who, outcome).await,
            other => other.map(drop),
        }
    }

    /// Keeps what stands in the way of settling a push, so that `why` can say it.
    pub(crate) async fn note_unsettled(&self, who: Who, why: &str) -> Outcome<()> {
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let row = admitted(&look, who, Intent::Append)?;
            let message = Some(short(why));
            if row.row.attempt.publish.is_settled() || row.row.message == message {
                return Ok(());
            }
            let changed = AttemptRow { message, ..row.row.clone() };
            let commit = Commit::new().update(row.revision, &changed);
            if self.put(commit.into()).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// The task has moved on; what became of the push is still recorded.
    async fn settle_ending(&self, who: Who, outcome: PushOutcome) -> Outcome<()> {
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let row = admitted(&look, who, Intent::Append)?;
            let limits = &look.policy.limits;
            let event = AttemptEvent::Settled(outcome);
            let attempt = match row.row.attempt.step(event, look.now, limits) {
                Disposition::Accept(attempt) => attempt,
                Disposition::Ignore => return Ok(()),
                Disposition::Deny(denial) => return Err(task::Denial::Attempt(denial).into()),
            };
            let changed = AttemptRow { attempt, ..row.row.clone() };
            let commit = Commit::new().event(settled_event(&look, who, outcome));
            let draft = self.ended(&look, row, changed, commit);
            if self.put(draft).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }
}

fn settled_event(look: &Look, who: Who, outcome: PushOutcome) -> NewEvent {
    let push = look.attempt.as_ref().and_then(|row| row.row.attempt.publish.push());
    let body = json!({ "outcome": outcome, "commit": push.map(|push| push.commit) });
    NewEvent {
        attempt: Some(who.attempt),
        session: look.task.row.session,
        ..NewEvent::task(who.task, "publish.settled", body.to_string(), look.now)
    }
}
