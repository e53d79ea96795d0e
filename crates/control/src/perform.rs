//! Effects, performed after the commit that stored them: at least once, and so that twice is once.
//!
//! Each is level-triggered: it looks at the rows as they are when it is performed, not as they
//! were when it was stored, and it is done when they show that it is.

use std::time::Duration;

use belay_api::port::Duty;
use belay_kernel::graph::DependencyState;
use belay_kernel::planted::{self, Bug};
use belay_kernel::session;
use belay_kernel::task::{self, Event, State};
use belay_kernel::termination::Step;
use belay_kernel::{AttemptNumber, Disposition, QuestionId, RunnerId, Span, TaskId, Timestamp};
use belay_store::rows::{QuestionRow, SessionRow, TaskRow};
use belay_store::{Commit, Effect, MAX_BATCH, Query, Settle, Settled, Store, Stored};
use serde_json::Value;

use crate::Control;
use crate::assignment::who;
use crate::commit::{Draft, EndNote, Put};
use crate::frozen::frozen_in;
use crate::look::{Look, Others, TRIES};
use crate::refuse::{Outcome, Refused};

/// How many effects are taken at a time, and for how long they are held. A node that falls leaves
/// them held for so long, stops and pushes that wait for a receipt among them.
const BATCH: usize = 64;
const HOLD: Span = Span::from_secs(5);
/// A runner is reminded of a duty after this, and at most after that: as long may a stop wait
/// whose runner came back.
const REMIND: Span = Span::from_secs(2);
const REMIND_AT_MOST: Span = Span::from_secs(10);
/// How often an effect is left to other nodes at once, before it is with the usual patience.
const PASSED_ON: u32 = 8;

/// Whether an effect is done.
pub(crate) enum Performed {
    Done,
    /// It waits for somebody else, who was told.
    Waits,
    /// It waits for a runner that does not listen here: another node may reach it.
    Elsewhere,
}

/// Whom what happens to a task depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kin {
    /// Its subtasks.
    Below,
    /// What it waits for.
    Before,
}

impl<S: Store> Control<S> {
    /// Performs effects as they come, for ever.
    pub(crate) async fn perform_forever(&self) {
        loop {
            match self.perform_due().await {
                Ok(0) => {}
                Ok(_) => continue,
                Err(refused) => tracing::warn!(?refused, "effects could not be performed"),
            }
            let hinted = self.inner.effects.notified();
            let _ = tokio::time::timeout(self.unevenly(Span::from_secs(1)), hinted).await;
        }
    }

    /// Performs what is due; tells how much that was.
    pub(crate) async fn perform_due(&self) -> Outcome<usize> {
        let now = self.now().await?;
        let effects = self.store().take_effects(now, HOLD, BATCH).await?;
        if planted::is(Bug::EffectSettledFirst) {
            let done = |effect: &Effect| Settled {
                id: effect.id,
                tries: effect.tries,
                what: Settle::Done,
            };
            self.store().settle_effects(effects.iter().map(done).collect()).await?;
        }
        let mut settled = Vec::with_capacity(effects.len());
        for effect in &effects {
            let what = match self.perform(effect).await {
                Ok(Performed::Done) => Settle::Done,
                Ok(Performed::Waits) => Settle::Again(now.after(patience(effect.tries))),
                Ok(Performed::Elsewhere) => Settle::Again(now.after(self.passed_on(effect.tries))),
                Err(refused) => {
                    tracing::warn!(kind = effect.effect.kind, ?refused, "an effect failed");
                    Settle::Again(now.after(patience(effect.tries)))
                }
            };
            settled.push(Settled { id: effect.id, tries: effect.tries, what });
        }
        self.store().settle_effects(settled).await?;
        Ok(effects.len())
    }

    /// This long, or up to a third less: nodes that look in step would always do so in the same
    /// order, and the first would take everything, also what only another can do.
    pub(crate) fn unevenly(&self, span: Span) -> Duration {
        let drawn = u64::try_from(self.inner.chance.draw() & 0xFFFF).unwrap_or(0);
        let less = span.as_millis() / 3 * drawn / 0xFFFF;
        Duration::from_millis(span.as_millis() - less)
    }

    /// After how long what this node cannot do is tried again, by it or another one. Drawn, so that
    /// it is not this one each time.
    pub(crate) fn passed_on(&self, tries: u32) -> Span {
        let most = if tries <= PASSED_ON { Span::from_secs(1) } else { patience(tries) };
        let drawn = u64::try_from(self.inner.chance.draw() & 0xFFFF).unwrap_or(0);
        Span::from_millis(100 + most.as_millis() * drawn / 0xFFFF)
    }

    /// Leaves a duty with its runner; tells whether the runner hears of it here.
    pub(crate) fn tell(&self, runner: RunnerId, duty: Duty) -> Performed {
        self.inner.mailboxes.leave(runner, duty);
        match self.inner.mailboxes.listens(runner) {
            true => Performed::Waits,
            false => Performed::Elsewhere,
        }
    }

    async fn perform(&self, effect: &Effect) -> Outcome<Performed> {
        let new = &effect.effect;
        let body: Value = serde_json::from_str(&new.body).unwrap_or_default();
        if new.kind == "forget_session" {
            let session = body["session"].as_str().and_then(|id| id.parse().ok());
            return match session {
                Some(session) => self.remind_to_forget(session).await,
                None => Ok(Performed::Done),
            };
        }
        if new.kind == "forget_task" {
            let numbers = body["attempts"].as_array().into_iter().flatten();
            let numbers = numbers.filter_map(|number| u32::try_from(number.as_u64()?).ok());
            let numbers: Vec<_> = numbers.map(AttemptNumber).collect();
            return match body["task"].as_str().and_then(|id| id.parse().ok()) {
                Some(task) => self.forget_task(task, &numbers).await,
                None => Ok(Performed::Done),
            };
        }
        let Some(task) = new.task else { return Ok(Performed::Done) };
        let look = match self.look_at(task, new.attempt).await {
            Ok(look) => look,
            Err(Refused::Problem(_)) => return Ok(Performed::Done), // deleted meanwhile
            Err(refused) => return Err(refused),
        };
        match new.kind.as_str() {
            "terminate" => self.remind_to_end(&look).await,
            "settle_publish" => self.remind_to_settle(&look, effect.tries).await,
            "deliver_answer" => self.remind_to_deliver(&look, &body).await,
            "cancel_descendants" => self.cancel_subtasks(&look, None).await,
            "disregard_subtasks" => {
                let before = body["before"].as_i64().map(Timestamp::from_millis);
                self.end_abandoned(&look).await?;
                self.cancel_subtasks(&look, before).await
            }
            "announce_rest" | "announce_requeue" => self.announce(&look).await,
            "subtask_removed" => {
                let event = |left: &Others| Some(Event::SubtaskRested(left.children()));
                self.nudge(task, Kin::Below, event).await.map(|()| Performed::Done)
            }
            "dependency_removed" => self.recount(task).await.map(|()| Performed::Done),
            "budget_used_up" => self.end_tree(task).await,
            other => {
                tracing::error!(kind = other, "an effect that nobody knows was dropped");
                Ok(Performed::Done)
            }
        }
    }

    async fn remind_to_end(&self, look: &Look) -> Outcome<Performed> {
        let Some(stored) = &look.attempt else { return Ok(Performed::Done) };
        let saga = stored.row.termination;
        let unseen = stored.row.attempt.claimed_at < self.started_at();
        if planted::is(Bug::StopFromMemory) && unseen {
            return Ok(Performed::Done);
        }
        if saga.is_none_or(|saga| saga.step == Step::Done) {
            return Ok(Performed::Done);
        }
        if self.abandon(look).await? {
            return Ok(Performed::Waits);
        }
        let assignment = self.assignment(look).await?;
        Ok(match (stored.row.runner, assignment) {
            (Some(runner), Some(assignment)) => self.tell(runner, Duty::End(Box::new(assignment))),
            _ => Performed::Waits,
        })
    }

    async fn remind_to_settle(&self, look: &Look, tries: u32) -> Outcome<Performed> {
        let Some(stored) = &look.attempt else { return Ok(Performed::Done) };
        if stored.row.attempt.publish.is_settled() {
            return Ok(Performed::Done);
        }
        self.leave_settling(look, tries).await
    }

    async fn remind_to_deliver(&self, look: &Look, body: &Value) -> Outcome<Performed> {
        let question = body["question"].as_str().and_then(|id| id.parse::<QuestionId>().ok());
        let (Some(stored), Some(question)) = (&look.attempt, question) else {
            return Ok(Performed::Done);
        };
        let speaker = who(&stored.row);
        let delivered = self.inner.mailboxes.was_delivered(speaker, question);
        if !stored.row.attempt.may_act() || delivered {
            return Ok(Performed::Done);
        }
        let answer = self.row::<QuestionRow>(question).await?.and_then(|row| row.row.answer);
        Ok(match (stored.row.runner, answer) {
            (Some(runner), Some(text)) => {
                self.tell(runner, Duty::Answer { who: speaker, question, text: text.to_string() })
            }
            _ => Performed::Waits,
        })
    }

    /// Cancels what is unfinished below a task; with a moment, what was there before it is also
    /// disregarded from now on.
    async fn cancel_subtasks(
        &self,
        look: &Look,
        disregard: Option<Timestamp>,
    ) -> Outcome<Performed> {
        for below in self.subtasks(look.task.row.task.id).await?.rows {
            if disregard.is_some_and(|before| below.row.created_at >= before) {
                continue;
            }
            let cancel = |_: &Others| Some(Event::Cancel);
            self.nudge_so(below.row.task.id, Kin::Below, disregard.is_some(), cancel).await?;
        }
        Ok(Performed::Done)
    }

    /// Nothing is left of a tree's budget.
    async fn end_tree(&self, root: TaskId) -> Outcome<Performed> {
        let tree = self.all(Query::<TaskRow>::first(MAX_BATCH).root(&[root])).await?;
        for row in tree {
            self.nudge(row.row.task.id, Kin::Below, |_| Some(Event::BudgetUsedUp)).await?;
        }
        Ok(Performed::Done)
    }

    /// Tells parent, dependants and session of a task that came to rest or is on its way again.
    /// What it is by then counts, and not what it was when the effect was made.
    async fn announce(&self, look: &Look) -> Outcome<Performed> {
        let id = look.task.row.task.id;
        if let Some(parent) = look.task.row.task.parent {
            let event = |subtasks: &Others| match subtasks.state(id)?.group().is_at_rest() {
                true => Some(Event::SubtaskRested(subtasks.children())),
                false => Some(Event::SubtaskRequeued { by: id }),
            };
            self.nudge(parent, Kin::Below, event).await?;
        }
        for dependant in self.dependants(id).await?.rows {
            let waiting = dependant.row.task.id;
            self.recount(waiting).await?;
            let event = |others: &Others| match DependencyState::of(&others.state(id)?) {
                DependencyState::Met => None,
                DependencyState::Failed => Some(Event::DependencyRested { by: id }),
                DependencyState::Waiting => {
                    Some(Event::DependencyRequeued { by: id, still: others.failed() })
                }
            };
            self.nudge(waiting, Kin::Before, event).await?;
        }
        if look.task.row.task.state.group().is_at_rest() {
            self.rest_session(look).await?;
        }
        Ok(Performed::Done)
    }

    /// Lets something happen to a task, if it means anything to it: what that is depends on its kin
    /// as they are when it is committed.
    async fn nudge(
        &self,
        id: TaskId,
        kin: Kin,
        event: impl Fn(&Others) -> Option<Event>,
    ) -> Outcome<()> {
        self.nudge_so(id, kin, false, event).await
    }

    /// The same; with `disregard` its parent does not wait for it any more.
    async fn nudge_so(
        &self,
        id: TaskId,
        kin: Kin,
        disregard: bool,
        event: impl Fn(&Others) -> Option<Event>,
    ) -> Outcome<()> {
        for _ in 0..TRIES {
            let mut look = match self.look(id).await {
                Ok(look) => look,
                Err(Refused::Problem(_)) => return Ok(()),
                Err(refused) => return Err(refused),
            };
            let others = match kin {
                Kin::Below => self.subtasks(id).await?,
                Kin::Before => self.dependencies(id).await?,
            };
            let Some(event) = event(&others) else { return Ok(()) };
            let marked = disregard
                && !look.task.row.disregarded
                && look.task.row.task.state != State::Completed;
            look.task.row.disregarded |= marked;
            let attempt = look.attempt.as_ref().map(|row| &row.row.attempt);
            let row = &look.task.row.task;
            let draft = match task::step(row, attempt, &event, look.now, &look.policy) {
                Disposition::Accept(next) => self.draft(&look, &next, &EndNote::NONE),
                Disposition::Ignore | Disposition::Deny(_) if marked => {
                    Commit::new().update(look.task.revision, &look.task.row).into()
                }
                Disposition::Ignore | Disposition::Deny(_) => return Ok(()),
            };
            if self.try_put(draft.with(|commit| others.read(commit))).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// Counts what a task still waits for, anew: twice is once.
    async fn recount(&self, id: TaskId) -> Outcome<()> {
        for _ in 0..TRIES {
            let Some(stored) = self.row::<TaskRow>(id).await? else { return Ok(()) };
            let others = self.dependencies(id).await?;
            let met = |row: &&Stored<TaskRow>| {
                DependencyState::of(&row.row.task.state) == DependencyState::Met
            };
            let unfinished = others.rows.len() - others.rows.iter().filter(met).count();
            let unfinished = u32::try_from(unfinished).unwrap_or(u32::MAX);
            if unfinished == stored.row.unfinished {
                return Ok(());
            }
            let row = TaskRow { unfinished, ..stored.row.clone() };
            let commit = others.read(Commit::new()).update(stored.revision, &row);
            let offer = row.claim_at().map(|_| row.role.as_str().to_owned());
            if self.put(Draft { commit, offer, effects: false }).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// A session whose tasks are over is over.
    async fn rest_session(&self, look: &Look) -> Outcome<()> {
        let Some(stored) = &look.session else { return Ok(()) };
        if frozen_in(&stored.row.session).is_some() {
            return self.rest_frozen(look).await;
        }
        let session::Rest::Stop(reason) = session::Rest::of(&look.task.row.task.state) else {
            return Ok(());
        };
        let event = session::Event::Stopped { reason };
        let Disposition::Accept(moved) = session::step(&stored.row.session, event) else {
            return Ok(());
        };
        if !moved.effects.is_empty() {
            return Ok(()); // its attempt's termination settles it
        }
        let row = SessionRow { session: stored.row.session.after(&moved), ..stored.row.clone() };
        let commit = Commit::new().read(&look.task).update(stored.revision, &row);
        self.put(commit.into()).await.map(drop)
    }
}

/// How long to wait before a runner is reminded again.
fn patience(tries: u32) -> Span {
    let doubled = 1u64.checked_shl(tries.saturating_sub(1)).unwrap_or(u64::MAX);
    REMIND.times(doubled).min(REMIND_AT_MOST)
}

#[cfg(test)]
mod tests {
    use belay_api::NewTask;
    use belay_api::port::{Assignment, ClaimRequest, Ending, Hello, Left, Port, Start};
    use belay_kernel::Cause;
    use belay_store::Memory;

    use super::*;

    const RUNNER: RunnerId = RunnerId::from_bits(7);

    async fn start(control: &Control<Memory>) -> Assignment {
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        let run = control.claim(ask).await.unwrap().pop().unwrap();
        let start = Start { token_hash: "h".into(), partial_output: true };
        control.start(run.who, start).await.unwrap();
        run
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_a_subtask_is_what_it_is_when_its_parent_hears_of_it() {
        let control = crate::testing::control().await;
        let hello = Hello {
            runner: RUNNER,
            name: "here".into(),
            slots: 8,
            roles: vec!["default".into()],
            providers: vec!["process".into()],
            version: "1".into(),
        };
        control.join(hello).await.unwrap();
        let make = |parent| NewTask { prompt: "Mend it".into(), parent, ..NewTask::default() };
        let parent = control.create("ada", make(None)).await.unwrap().summary.id;
        let above = start(&control).await;
        let child = control.create("ada", make(Some(parent))).await.unwrap().summary.id;
        control.end(above.who, Ending::Succeeded(Left::default())).await.unwrap();
        let below = start(&control).await;
        let failed = Ending::Failed {
            cause: Cause::Auth,
            message: "no".into(),
            resets_at: None,
            conversation_lost: false,
            left: Left::default(),
        };
        control.end(below.who, failed).await.unwrap();
        control.perform_due().await.unwrap();
        control.retry("ada", child).await.unwrap();
        let tried_again = control.look(child).await.unwrap();
        control.stop("ada", child, Duration::ZERO).await.unwrap();
        control.perform_due().await.unwrap();
        // Whoever has seen that it is tried again tells its parent only now.
        control.announce(&tried_again).await.unwrap();
        assert_eq!(control.show(parent).await.unwrap().summary.state, "FAILED");
    }
}
