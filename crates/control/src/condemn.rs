//! Passed clocks: what is due is judged again from what is stored, and only then condemned.
//!
//! A timer proposes; the kernel decides inside the commit. A timer that is stale, early or told
//! twice changes nothing.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_kernel::absence::Lease;
use belay_kernel::attempt::{Attempt, Denial, Event as AttemptEvent, Phase, Proof};
use belay_kernel::deadline::{self, Due, Reach};
use belay_kernel::planted::{self, Bug};
use belay_kernel::retry::{Failure, Progress};
use belay_kernel::sandbox::{self, Effect};
use belay_kernel::task::{self, Event};
use belay_kernel::verdict::{Belief, judge};
use belay_kernel::{
    AttemptNumber, Cause, Disposition, Reading, SandboxId, Span, Switches, TaskId, Timestamp,
};
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{Commit, Key, MAX_BATCH, NewEvent, Query, Store};
use serde_json::json;

use crate::Control;
use crate::commit::{EndNote, Put};
use crate::finish::success_facts;
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};

impl<S: Store> Control<S> {
    /// Since when this node could commit without a break: since now, if it has just come back and
    /// has not said so yet.
    pub(crate) fn up_since(&self, now: Timestamp) -> Timestamp {
        match self.was_away() {
            true => now,
            false => Timestamp::from_millis(self.inner.up_since.load(Ordering::SeqCst)),
        }
    }

    /// Whether this node could not commit for longer than its lease, and nobody was heard since.
    fn was_away(&self) -> bool {
        let lease = Duration::from_millis(self.settings().limits.node_lease.as_millis());
        self.stayed().elapsed() > lease
    }

    /// An attempt is due: a deadline or its lease may have passed.
    pub(crate) async fn expire(&self, task: TaskId, number: AttemptNumber) -> Outcome<()> {
        for _ in 0..TRIES {
            let look = match self.look_at(task, Some(number)).await {
                Ok(look) => look,
                Err(Refused::Problem(_)) => return Ok(()), // deleted meanwhile
                Err(refused) => return Err(refused),
            };
            let Some(stored) = &look.attempt else { return Ok(()) };
            let lease = self.watched_lease(&look, &stored.row);
            let over = look.now > lease.held_until() || planted::is(Bug::SweepWithoutRedecision);
            let early = planted::is(Bug::LeaseProofEarly);
            let put = match stored.row.attempt.phase {
                Phase::Ended(..) => self.rearm(&look, None).await?,
                Phase::Ending(_) if over || early => self.prove_by_lease(&look, lease).await?,
                Phase::Ending(_) => {
                    let again = lease.look_again(look.now, self.passed_on(1));
                    self.rearm(&look, Some(again)).await?
                }
                Phase::Claimed | Phase::Running | Phase::Publishing { .. } => {
                    self.expire_acting(&look, lease, over).await?
                }
            };
            if put == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// An attempt's lease, as this node sees it.
    fn watched_lease(&self, look: &Look, row: &AttemptRow) -> Lease {
        let limits = &look.policy.limits;
        let length =
            row.runner.map_or(limits.attempt_lease_remote, |runner| self.lease(runner, limits));
        Lease { end: row.attempt.lease_end, length, watched_since: self.up_since(look.now) }
    }

    /// Sets when the attempt is to be looked at again.
    async fn rearm(&self, look: &Look, at: Option<Timestamp>) -> Outcome<Put> {
        if let Some(stored) = &look.attempt {
            let id = (stored.row.task, stored.row.attempt.number);
            self.store().rearm(Key::of::<AttemptRow>(&id), stored.revision, at).await?;
        }
        Ok(Put::Done)
    }

    async fn expire_acting(&self, look: &Look, lease: Lease, over: bool) -> Outcome<Put> {
        let Some(stored) = &look.attempt else { return Ok(Put::Done) };
        let (attempt, limits) = (&stored.row.attempt, &look.policy.limits);
        let again = lease.look_again(look.now, self.passed_on(1));
        let reading = if over {
            lease.reading(look.now)
        } else {
            let (reach, switches) = (self.reach(look), &self.settings().switches);
            match deadline::due(attempt, &look.stream(), reach, limits, switches, look.now) {
                Due::Passed(reading) => {
                    match reading.doubted_until(self.watched(look.now), look.now) {
                        // Another node may have been there for longer.
                        Some(until) => {
                            let soon = look.now.after(self.passed_on(1));
                            return self.rearm(look, Some(until.min(soon).min(again))).await;
                        }
                        None => reading,
                    }
                }
                // The runner may speak to another node, which has heard: that one is to judge.
                Due::At(at) if reach == Reach::Awaited => {
                    let soon = look.now.after(self.passed_on(1));
                    let at = if attempt_due(look, switches) { at.min(soon) } else { at };
                    return self.rearm(look, Some(at.min(again))).await;
                }
                Due::At(at) => return self.rearm(look, Some(at.min(again))).await,
                Due::Never => return self.rearm(look, Some(again)).await,
            }
        };
        let settling = matches!(attempt.phase, Phase::Publishing { .. });
        if settling && stored.row.fired.is_some() {
            // Whoever settles the push was told, and is told again; nothing else can be done.
            return self.rearm(look, Some(look.now.after(limits.orphan_sweep))).await;
        }
        let event = Event::Expire {
            attempt: attempt.number,
            reading,
            progress: worked(look),
            jitter: self.jitter(),
        };
        let row = &look.task.row.task;
        match task::step(row, Some(attempt), &event, look.now, &look.policy) {
            Disposition::Accept(next) => {
                self.put(self.draft(look, &next, &EndNote::fired(reading))).await
            }
            Disposition::Ignore | Disposition::Deny(_) => {
                let later = look.now.after(limits.due_sweep).after(limits.due_sweep);
                self.rearm(look, Some(later)).await
            }
        }
    }

    /// Whether the runner has told everything since we could last commit.
    fn reach(&self, look: &Look) -> Reach {
        let Some(stored) = &look.attempt else { return Reach::Heard };
        let attempt = &stored.row.attempt;
        let heard = self.inner.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let told = !self.was_away() && heard.contains(&(stored.row.task, attempt.number));
        Reach::of(attempt, self.up_since(look.now), told)
    }

    /// The runner has told everything that it saw until now; tells whether that is news.
    pub(crate) fn note_heard(&self, row: &AttemptRow) -> bool {
        let mut heard = self.inner.heard.lock().unwrap_or_else(PoisonError::into_inner);
        row.attempt.may_act() && heard.insert((row.task, row.attempt.number))
    }

    /// Nothing will be judged of this attempt any more.
    pub(crate) fn forget_heard(&self, row: &AttemptRow) {
        let mut heard = self.inner.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.remove(&(row.task, row.attempt.number));
    }

    /// We could not commit for a while: nobody has been heard since. Whoever tells late, because it
    /// stood still, takes nothing back.
    pub(crate) fn nobody_heard(&self, now: Timestamp) {
        self.inner.up_since.fetch_max(now.as_millis(), Ordering::SeqCst);
        self.inner.heard.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The shim kills before the lease is over; now it is over.
    async fn prove_by_lease(&self, look: &Look, lease: Lease) -> Outcome<Put> {
        let Some(stored) = &look.attempt else { return Ok(Put::Done) };
        let step = |attempt: Attempt, event| attempt.step(event, look.now, &look.policy.limits);
        let gone = AttemptEvent::Proven(Proof::LeaseExpired);
        let mut proven = step(stored.row.attempt, gone);
        if proven == Disposition::Deny(Denial::MayBeFrozen) {
            // Only its runner can end it, and is told to.
            let waited_until = self.waited_until(&stored.row, look).await?;
            let given_up = step(stored.row.attempt, AttemptEvent::GivenUp { waited_until });
            proven = given_up.and_then(|lost| step(lost, gone));
        }
        let attempt = match proven {
            Disposition::Accept(attempt) => attempt,
            Disposition::Deny(Denial::StillWaitedFor { until }) => {
                return self.rearm(look, Some(until.after(Span::from_millis(1)))).await;
            }
            Disposition::Ignore | Disposition::Deny(_) => {
                return self.rearm(look, Some(lease.held_until())).await;
            }
        };
        let mut changed = AttemptRow { attempt, ..stored.row.clone() };
        changed.proven_at = Some(look.now);
        let body = json!({
            "proof": Proof::LeaseExpired,
            "lease_end": attempt.lease_end,
            "phase": attempt.phase,
            "cause": changed.cause,
            "proven_after_ms": changed.proven_after().as_millis(),
        });
        let event = NewEvent {
            attempt: Some(attempt.number),
            ..NewEvent::task(stored.row.task, "attempt.proven", body.to_string(), look.now)
        };
        self.put(self.ended(look, stored, changed, Commit::new().event(event))).await
    }

    /// A sandbox is due: its evidence may mean something else by now.
    pub(crate) async fn judge_sandbox(&self, id: SandboxId) -> Outcome<()> {
        for _ in 0..TRIES {
            // A sandbox that was frozen in between has had several; the last one counts.
            let attempts = self.all(Query::<AttemptRow>::first(MAX_BATCH).sandbox(&[id])).await?;
            let last = attempts.iter().max_by_key(|row| row.row.attempt.epoch);
            let Some(attempt) = last else { return Ok(()) };
            let number = attempt.row.attempt.number;
            let look = self.look_at(attempt.row.task, Some(number)).await?;
            if self.judge_once(&look).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    async fn judge_once(&self, look: &Look) -> Outcome<Put> {
        let (Some(stored), Some(attempt)) = (&look.sandbox, &look.attempt) else {
            return Ok(Put::Done);
        };
        let limits = &look.policy.limits;
        let key = Key::of::<SandboxRow>(&stored.row.id);
        let Some(evidence) = stored.row.evidence.as_ref().filter(|_| attempt.row.attempt.may_act())
        else {
            self.store().rearm(key, stored.revision, None).await?;
            return Ok(Put::Done);
        };
        let mut evidence = evidence.0;
        evidence.renewed(self.watched_lease(look, &attempt.row).renewed_at().min(look.now));
        let verdict = judge(&evidence, limits, look.now);
        self.inner.gauges.judged(verdict.ruling.name());
        let soon = || look.now.after(self.passed_on(1));
        let again =
            match verdict.believed(self.watched(look.now), self.reach(look), limits, look.now) {
                Belief::Stands => None,
                Belief::NotBefore(at) => Some(at),
                Belief::AskAgain { by: Some(at) } => Some(at.min(soon())),
                Belief::AskAgain { by: None } => Some(soon()),
            };
        if again.is_some() {
            self.store().rearm(key, stored.revision, again).await?;
            return Ok(Put::Done);
        }
        if attempt.row.runner.is_none() && verdict.ruling.is_past_completion() {
            return self.complete_elsewhere(look).await;
        }
        let moved = sandbox::Event::from_ruling(verdict.ruling)
            .and_then(|event| sandbox::step(&stored.row.state, event, look.now, limits).accepted());
        let Some(moved) = moved else {
            self.store().rearm(key, stored.revision, verdict.recheck_at).await?;
            return Ok(Put::Done);
        };
        let cause = moved.effects.iter().find_map(|effect| match effect {
            Effect::EndAttempt(cause) => Some(*cause),
            Effect::Terminate => None,
        });
        let mut look = look.clone();
        if let Some(sandbox) = &mut look.sandbox {
            sandbox.row.state = moved.next;
            sandbox.row.due_at = None;
            look.sandbox_changed = true;
        }
        self.condemn(&look, cause, verdict.reasons.as_slice().first().copied()).await
    }

    /// An agent that no runner watches said that it is done, and did nothing since: it succeeded.
    async fn complete_elsewhere(&self, look: &Look) -> Outcome<Put> {
        let Some(attempt) = &look.attempt else { return Ok(Put::Done) };
        let subtasks = self.subtasks(look.task.row.task.id).await?;
        let mut look = look.clone();
        if let Some(sandbox) = &mut look.sandbox {
            sandbox.row.due_at = None;
            look.sandbox_changed = true;
        }
        let facts = success_facts(&look, &subtasks, worked(&look));
        let event = Event::Succeed { attempt: attempt.row.attempt.number, facts };
        let row = &look.task.row.task;
        match task::step(row, Some(&attempt.row.attempt), &event, look.now, &look.policy) {
            Disposition::Accept(next) => {
                let draft = self.draft(&look, &next, &EndNote::NONE);
                self.put(draft.with(|commit| subtasks.read(commit))).await
            }
            Disposition::Ignore | Disposition::Deny(_) => self.condemn(&look, None, None).await,
        }
    }

    /// Ends the attempt for what the verdict found, in the commit that moves the sandbox.
    async fn condemn(
        &self,
        look: &Look,
        cause: Option<Cause>,
        fired: Option<Reading>,
    ) -> Outcome<Put> {
        let (Some(attempt), Some(sandbox)) = (&look.attempt, &look.sandbox) else {
            return Ok(Put::Done);
        };
        let only_sandbox =
            || Commit::new().read(attempt).update(sandbox.revision, &sandbox.row).into();
        let Some(cause) = cause else { return self.put(only_sandbox()).await };
        let failure =
            Failure { cause, progress: worked(look), reset_at: None, jitter: self.jitter() };
        let event = Event::Fail { attempt: attempt.row.attempt.number, failure };
        let row = &look.task.row.task;
        match task::step(row, Some(&attempt.row.attempt), &event, look.now, &look.policy) {
            Disposition::Accept(next) => {
                let note = EndNote { cause: Some(cause), fired, ..EndNote::NONE };
                self.put(self.draft(look, &next, &note)).await
            }
            Disposition::Ignore | Disposition::Deny(_) => self.put(only_sandbox()).await,
        }
    }
}

/// Whether a deadline of the attempt has passed, for whoever has heard its runner.
fn attempt_due(look: &Look, switches: &Switches) -> bool {
    let limits = &look.policy.limits;
    look.attempt.as_ref().is_some_and(|stored| {
        let attempt = &stored.row.attempt;
        let due = deadline::due(attempt, &look.stream(), Reach::Heard, limits, switches, look.now);
        matches!(due, Due::Passed(_))
    })
}

/// Whether anything was seen that counts as work: what became of the tree is not known yet.
fn worked(look: &Look) -> Progress {
    let evidence = look.sandbox.as_ref().and_then(|row| row.row.evidence.as_ref());
    match evidence.and_then(|evidence| evidence.0.last_work()) {
        Some(_) => Progress::Made,
        None => Progress::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_we_were_down_is_not_taken_back_by_whoever_tells_late() {
        let control = crate::testing::control().await;
        let since = || Timestamp::from_millis(control.inner.up_since.load(Ordering::SeqCst));
        let after = |seconds| since().after(Span::from_secs(seconds));
        let (late, now) = (after(10), after(700));
        control.nobody_heard(now);
        control.nobody_heard(late);
        assert_eq!(since(), now);
    }
}
