//! Runners that are not there: what was theirs to do is done by another one, or by nobody.
//!
//! A push can be settled by any runner that reaches the remote. What only the lost machine has, its
//! end of the transcript and its tree, is waited for as long as the next attempt would wait for the
//! tree; then what is missing is named, and the session is free to go on elsewhere. Nothing on the
//! old machine is deleted for that: its tree is there, should it come back.

use belay_api::port::{Duty, Found, Stepped};
use belay_kernel::absence::Silence;
use belay_kernel::attempt::Phase;
use belay_kernel::receipt::{TranscriptSeal, UNKNOWN_END};
use belay_kernel::termination::{Step, Went};
use belay_kernel::{RunnerId, Timestamp};
use belay_store::rows::AttemptRow;
use belay_store::{Commit, Holder, LeaseKind, NewEvent, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::assignment::who;
use crate::look::Look;
use crate::perform::Performed;
use crate::refuse::Outcome;

impl<S: Store> Control<S> {
    /// Who is to settle the attempt's push: its runner, or another one while that is not there.
    /// Each reminder asks the next, since not every machine reaches every remote.
    pub(crate) async fn leave_settling(&self, look: &Look, tries: u32) -> Outcome<Performed> {
        let Some(Stored { row, .. }) = &look.attempt else { return Ok(Performed::Done) };
        let Some(assignment) = self.assignment(look).await? else { return Ok(Performed::Done) };
        let mut present = self.present_runners(look).await?;
        let own = row.runner.filter(|own| present.contains(own) || present.is_empty());
        present.sort_unstable();
        let others = (!present.is_empty()).then(|| tries as usize % present.len());
        let runner = own.or_else(|| others.map(|turn| present[turn]));
        Ok(match runner {
            Some(runner) => self.tell(runner, Duty::Settle(Box::new(assignment))),
            None => Performed::Waits,
        })
    }

    /// The runners whose presence is proven.
    pub(crate) async fn present_runners(&self, look: &Look) -> Outcome<Vec<RunnerId>> {
        let leases = self.store().leases(LeaseKind::Runner).await?;
        let present = leases.iter().filter(|lease| lease.until >= look.now);
        let runner = |holder| match holder {
            Holder::Runner(runner) => Some(runner),
            Holder::Attempt(..) | Holder::Worker(_) | Holder::Node(_) => None,
        };
        Ok(present.filter_map(|lease| runner(lease.holder)).collect())
    }

    /// Whether the attempt is proven over, and its runner has been away for as long as its tree is
    /// waited for.
    async fn is_abandoned(&self, look: &Look) -> Outcome<bool> {
        let Some(Stored { row, .. }) = &look.attempt else { return Ok(false) };
        let proven = matches!(row.attempt.phase, Phase::Ended(..)) && row.runner.is_some();
        Ok(proven && look.now > self.waited_until(row, look).await?)
    }

    /// Until when what only the attempt's runner has is waited for, if nothing is heard of it.
    pub(crate) async fn waited_until(&self, row: &AttemptRow, look: &Look) -> Outcome<Timestamp> {
        let leases = self.store().leases(LeaseKind::Runner).await?;
        let seen = row
            .runner
            .and_then(|runner| leases.iter().find(|lease| lease.holder == Holder::Runner(runner)));
        let silence = Silence {
            heard_until: seen.map_or(row.attempt.claimed_at, |lease| lease.until),
            wanted_since: row.ending_at.unwrap_or(row.attempt.claimed_at),
            watched_since: self.up_since(look.now),
        };
        Ok(silence.waited_until(&look.policy.limits))
    }

    /// Gets an attempt past what only its runner could have done, if that is not there any more.
    /// Tells whether it did.
    pub(crate) async fn abandon(&self, look: &Look) -> Outcome<bool> {
        if !self.is_abandoned(look).await? {
            return Ok(false);
        }
        let Some(stored) = &look.attempt else { return Ok(false) };
        let (mut row, mut look) = (stored.row.clone(), look.clone());
        let begun = row.termination.map(|saga| saga.step);
        while let Some(saga) = row.termination.filter(|saga| saga.step.is_runners()) {
            let found = match saga.step {
                Step::SaveTranscript if row.attempt.started_at.is_some() => {
                    let length = row.transcript_length;
                    let missing = vec![(length, UNKNOWN_END)];
                    let hash = String::new();
                    Found::Transcript(TranscriptSeal { length, hash, missing })
                }
                _ => Found::Nothing,
            };
            let stepped = Stepped { step: saga.step, went: Went::Impossible, found };
            if matches!(saga.step, Step::SaveTranscript | Step::Kill) {
                self.keep_found(who(&row), &mut look, &stepped, &mut row).await?;
            }
            row.termination = Some(saga.after(stepped.went));
        }
        if row.termination.map(|saga| saga.step) == begun {
            return Ok(false); // what is left waits for its push
        }
        let body = json!({
            "runner": row.runner, "step": begun, "missing": row.transcript_missing.0,
        });
        let event = NewEvent {
            attempt: Some(row.attempt.number),
            session: Some(row.session),
            ..NewEvent::task(row.task, "attempt.abandoned", body.to_string(), look.now)
        };
        tracing::warn!(task = %row.task, runner = ?row.runner, "what its runner has is given up");
        let draft = self.ended(&look, stored, row, Commit::new().event(event));
        self.put(draft).await.map(|_| true)
    }
}
