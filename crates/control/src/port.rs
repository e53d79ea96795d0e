//! The port's side of control: each call of a runner is one of the other modules' operations.

use std::time::Duration;

use belay_api::port::{
    Acknowledged, Asked, Assignment, Beat, Beaten, ClaimRequest, Duty, Ending, Fate, Hello, Left,
    Port, PortError, Present, Report, Start, Stepped, Who,
};
use belay_kernel::attempt::Event as AttemptEvent;
use belay_kernel::fence::Intent;
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::termination::Termination;
use belay_kernel::{QuestionId, RunnerId, SessionId, Span};
use belay_store::Store;

use crate::Control;

impl<S: Store> Port for Control<S> {
    async fn join(&self, hello: Hello) -> Result<Vec<Assignment>, PortError> {
        Ok(self.join_runner(hello).await?)
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Assignment>, PortError> {
        Ok(self.claim_for(ask).await?)
    }

    async fn duties(&self, runner: RunnerId, patience: Span) -> Result<Vec<Duty>, PortError> {
        let _listening = self.inner.mailboxes.listen(runner);
        let (duties, hint) = self.inner.mailboxes.take(runner);
        if !duties.is_empty() {
            return Ok(duties);
        }
        let patience = Duration::from_millis(patience.as_millis());
        let _ = tokio::time::timeout(patience, hint.notified()).await;
        Ok(self.inner.mailboxes.take(runner).0)
    }

    async fn beat(&self, beat: Beat) -> Result<Vec<Beaten>, PortError> {
        Ok(self.take_beat(beat).await?)
    }

    async fn preparing(&self, who: Who) -> Result<(), PortError> {
        Ok(self.advance(who, AttemptEvent::Prepared, Intent::Act).await?)
    }

    async fn freezing(&self, who: Who) -> Result<(), PortError> {
        Ok(self.advance(who, AttemptEvent::Freeze, Intent::Append).await?)
    }

    async fn thawed(&self, who: Who) -> Result<(), PortError> {
        Ok(self.advance(who, AttemptEvent::Thawed, Intent::Append).await?)
    }

    async fn start(&self, who: Who, start: Start) -> Result<(), PortError> {
        Ok(self.start_attempt(who, start).await?)
    }

    async fn report(&self, who: Who, report: Report) -> Result<Acknowledged, PortError> {
        Ok(self.take_report(who, report).await?)
    }

    async fn ask(&self, who: Who, asked: Asked) -> Result<(), PortError> {
        Ok(self.take_question(who, asked).await?)
    }

    async fn delivered(&self, who: Who, question: QuestionId) -> Result<(), PortError> {
        self.inner.mailboxes.note_delivered(who, question);
        Ok(())
    }

    async fn open_publish(&self, who: Who, push: Push) -> Result<(), PortError> {
        Ok(self.open_gate(who, push).await?)
    }

    async fn settled(&self, who: Who, outcome: PushOutcome, left: Left) -> Result<(), PortError> {
        Ok(self.take_settled(who, outcome, left).await?)
    }

    async fn unsettled(&self, who: Who, why: String) -> Result<(), PortError> {
        Ok(self.note_unsettled(who, &why).await?)
    }

    async fn forgot(&self, runner: RunnerId, session: SessionId) -> Result<(), PortError> {
        Ok(self.session_forgotten(runner, session).await?)
    }

    async fn end(&self, who: Who, ending: Ending) -> Result<(), PortError> {
        Ok(self.end_attempt(who, ending).await?)
    }

    async fn sweep(&self, runner: RunnerId, present: Vec<Present>) -> Result<Vec<Fate>, PortError> {
        Ok(self.judge_present(runner, &present).await?)
    }

    async fn stepped(&self, who: Who, stepped: Stepped) -> Result<Termination, PortError> {
        Ok(self.take_step(who, stepped).await?)
    }
}
