//! A control plane in memory that a test can look into, stop, fence, and make unreliable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use belay_api::port::{
    Acknowledged, Asked, Assignment, Beat, Beaten, ClaimRequest, Duty, Ending, Fate, Found, Hello,
    Left, Port, PortError, Present, Pulse, Report, Seen, Start, Stepped, Who,
};
use belay_kernel::attempt::{Outcome, Phase};
use belay_kernel::publish::{Publish, Push, PushOutcome};
use belay_kernel::termination::{Step, Termination};
use belay_kernel::{Cause, HeartbeatStatus, QuestionId, RunnerId, SessionId, Span, Timestamp};
use tokio::sync::Notify;

/// What control knows of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) assignment: Assignment,
    pub(crate) transcript: Vec<u8>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) ending: Option<Ending>,
    pub(crate) settled: Vec<(PushOutcome, Left)>,
    pub(crate) found: Vec<(Step, Found)>,
    pub(crate) statuses: Vec<HeartbeatStatus>,
    /// Whether the last beat said that everything is told.
    pub(crate) told: bool,
    pub(crate) reports: usize,
    answer: Option<(QuestionId, String)>,
    delivered: Vec<QuestionId>,
}

impl Row {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.transcript).into_owned()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.assignment.termination.is_some_and(|saga| saga.step == Step::Done)
    }

    fn is_to_freeze(&self) -> bool {
        self.assignment.termination.is_some_and(|saga| saga.step == Step::Freeze)
    }

    fn is_current(&self) -> bool {
        matches!(self.assignment.phase, Phase::Claimed | Phase::Running | Phase::Publishing { .. })
    }

    fn leave(&mut self, outcome: Outcome, cause: Option<Cause>) {
        if self.is_current() {
            self.assignment.phase = Phase::Ending(outcome);
            let keep_alive = self.assignment.work.keep_alive;
            self.assignment.termination = Some(Termination::of_end(outcome, cause, keep_alive));
        }
    }
}

#[derive(Default)]
struct State {
    queue: Vec<Assignment>,
    rows: BTreeMap<Who, Row>,
    fenced: BTreeSet<Who>,
    unavailable: bool,
    /// Whether duties are kept back.
    reticent: bool,
    /// Whether beats are taken and reports are not.
    deaf: bool,
    /// Sessions of which nothing is to be left.
    forget: Vec<SessionId>,
    /// Calls whose next answer is lost, after they were done.
    lost: BTreeSet<&'static str>,
    calls: Vec<String>,
}

/// The control plane.
#[derive(Clone, Default)]
pub(crate) struct Control {
    state: Arc<Mutex<State>>,
    told: Arc<Notify>,
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn queue(&self, assignment: Assignment) {
        self.state().queue.push(assignment);
        self.told.notify_waiters();
    }

    pub(crate) fn row(&self, who: Who) -> Option<Row> {
        self.state().rows.get(&who).cloned()
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.state().calls.iter().filter(|call| *call == name).count()
    }

    pub(crate) fn stop(&self, who: Who) {
        self.state().rows.get_mut(&who).unwrap().leave(Outcome::Cancelled, None);
        self.told.notify_waiters();
    }

    /// Finds an attempt idle.
    pub(crate) fn condemn(&self, who: Who) {
        self.state().rows.get_mut(&who).unwrap().leave(Outcome::Failed, Some(Cause::IdleTimeout));
        self.told.notify_waiters();
    }

    pub(crate) fn set_reticent(&self, reticent: bool) {
        self.state().reticent = reticent;
        self.told.notify_waiters();
    }

    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.state().deaf = deaf;
    }

    pub(crate) fn fence(&self, who: Who) {
        self.state().fenced.insert(who);
    }

    pub(crate) fn lose(&self, call: &'static str) {
        self.state().lost.insert(call);
    }

    /// Forgets what is behind so much of a transcript.
    pub(crate) fn cut(&self, who: Who, length: usize) {
        self.state().rows.get_mut(&who).unwrap().transcript.truncate(length);
    }

    pub(crate) fn forget(&self, session: SessionId) {
        self.state().forget.push(session);
        self.told.notify_waiters();
    }

    /// Whether nothing is left to be forgotten.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.state().forget.is_empty()
    }

    pub(crate) fn set_unavailable(&self, unavailable: bool) {
        self.state().unavailable = unavailable;
    }

    pub(crate) fn answer(&self, who: Who, question: QuestionId, text: &str) {
        self.state().rows.get_mut(&who).unwrap().answer = Some((question, text.into()));
        self.told.notify_waiters();
    }

    /// Something is done, unless control cannot be reached; its answer may be lost.
    fn call<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut State) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        let mut state = self.state();
        if state.unavailable {
            return Err(PortError::Unavailable("switched off".into()));
        }
        state.calls.push(name.into());
        let done = act(&mut state);
        let lost = state.lost.remove(name);
        drop(state);
        self.told.notify_waiters();
        if lost { Err(PortError::Unavailable("the answer was lost".into())) } else { done }
    }

    /// The same, for an attempt that is current.
    fn current<T>(
        &self,
        name: &'static str,
        who: Who,
        act: impl FnOnce(&mut Row) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        self.call(name, |state| {
            if state.fenced.contains(&who) {
                return Err(PortError::Fenced);
            }
            let row = state.rows.get_mut(&who).ok_or(PortError::Gone)?;
            if row.is_current() { act(row) } else { Err(PortError::Fenced) }
        })
    }

    fn due(&self) -> Vec<Duty> {
        let state = self.state();
        let mut duties = Vec::new();
        if state.reticent {
            return duties;
        }
        for (who, row) in &state.rows {
            if state.fenced.contains(who) {
                continue;
            }
            if row.assignment.termination.is_some_and(|saga| saga.step != Step::Done) {
                duties.push(Duty::End(Box::new(row.current())));
            }
            let open = matches!(row.assignment.publish, Publish::Open(_));
            if open && !row.is_current() {
                duties.push(Duty::Settle(Box::new(row.current())));
            }
            if let Some((question, text)) = row.answer.clone() {
                duties.push(Duty::Answer { who: *who, question, text });
            }
        }
        duties.extend(state.forget.iter().map(|session| Duty::Forget { session: *session }));
        if !state.queue.is_empty() {
            duties.push(Duty::Claim { role: "default".into() });
        }
        duties
    }
}

impl Row {
    fn current(&self) -> Assignment {
        let acknowledged = self.transcript.len() as u64;
        Assignment { acknowledged, ..self.assignment.clone() }
    }
}

impl Port for Control {
    async fn join(&self, _: Hello) -> Result<Vec<Assignment>, PortError> {
        self.call("join", |state| {
            let open = state.rows.values().filter(|row| !row.is_over());
            Ok(open.map(Row::current).collect())
        })
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Assignment>, PortError> {
        self.call("claim", |state| {
            let count = state.queue.len().min(ask.slots as usize);
            let claimed: Vec<_> = state.queue.drain(..count).collect();
            for assignment in &claimed {
                let row = Row {
                    assignment: assignment.clone(),
                    transcript: Vec::new(),
                    seen: Vec::new(),
                    asked: Vec::new(),
                    ending: None,
                    settled: Vec::new(),
                    found: Vec::new(),
                    statuses: Vec::new(),
                    told: false,
                    reports: 0,
                    answer: None,
                    delivered: Vec::new(),
                };
                state.rows.insert(assignment.who, row);
            }
            Ok(claimed)
        })
    }

    async fn duties(&self, _: RunnerId, patience: Span) -> Result<Vec<Duty>, PortError> {
        let told = self.told.notified();
        if self.state().unavailable {
            return Err(PortError::Unavailable("switched off".into()));
        }
        let due = self.due();
        if !due.is_empty() {
            return Ok(due);
        }
        let patience = Duration::from_millis(patience.as_millis());
        let _ = tokio::time::timeout(patience, told).await;
        Ok(self.due())
    }

    async fn beat(&self, beat: Beat) -> Result<Vec<Beaten>, PortError> {
        self.call("beat", |state| {
            let mut answers = Vec::new();
            for Pulse { who, status, told } in beat.attempts {
                let fenced = state.fenced.contains(&who);
                answers.push(match state.rows.get_mut(&who) {
                    Some(row) if row.is_current() && !fenced => {
                        row.statuses.push(status);
                        row.told = told;
                        Beaten::Current { lease: row.assignment.lease }
                    }
                    Some(row) if row.is_to_freeze() && !fenced => Beaten::Freeze,
                    _ => Beaten::Fenced,
                });
            }
            Ok(answers)
        })
    }

    async fn preparing(&self, who: Who) -> Result<(), PortError> {
        self.current("preparing", who, |_| Ok(()))
    }

    async fn freezing(&self, _: Who) -> Result<(), PortError> {
        self.call("freezing", |_| Ok(()))
    }

    async fn thawed(&self, _: Who) -> Result<(), PortError> {
        self.call("thawed", |_| Ok(()))
    }

    async fn start(&self, who: Who, _: Start) -> Result<(), PortError> {
        self.current("start", who, |row| {
            if row.assignment.phase == Phase::Claimed {
                row.assignment.phase = Phase::Running;
            }
            Ok(())
        })
    }

    async fn report(&self, who: Who, report: Report) -> Result<Acknowledged, PortError> {
        self.call("report", |state| {
            if state.deaf {
                return Err(PortError::Unavailable("it hears nothing".into()));
            }
            let fenced = state.fenced.contains(&who);
            let row = state.rows.get_mut(&who).filter(|_| !fenced).ok_or(PortError::Fenced)?;
            let length = row.transcript.len() as u64;
            if report.from == length {
                row.transcript.extend(&report.bytes);
                row.seen.extend(report.seen);
                row.reports += 1;
            }
            Ok(Acknowledged { next: row.transcript.len() as u64 })
        })
    }

    async fn ask(&self, who: Who, asked: Asked) -> Result<(), PortError> {
        self.current("ask", who, |row| {
            if !row.asked.contains(&asked) {
                row.asked.push(asked.clone());
            }
            if !asked.held {
                row.leave(Outcome::Question, None);
            }
            Ok(())
        })
    }

    async fn delivered(&self, who: Who, question: QuestionId) -> Result<(), PortError> {
        self.current("delivered", who, |row| {
            row.answer = row.answer.take().filter(|(open, _)| *open != question);
            row.delivered.push(question);
            Ok(())
        })
    }

    async fn open_publish(&self, who: Who, push: Push) -> Result<(), PortError> {
        self.current("open_publish", who, |row| match row.assignment.publish {
            Publish::Open(open) if open != push => {
                Err(PortError::Refused("another push is open".into()))
            }
            _ => {
                row.assignment.publish = Publish::Open(push);
                row.assignment.phase = Phase::Publishing { due: Timestamp::MAX };
                Ok(())
            }
        })
    }

    async fn settled(&self, who: Who, outcome: PushOutcome, left: Left) -> Result<(), PortError> {
        self.call("settled", |state| {
            let row = state.rows.get_mut(&who).ok_or(PortError::Gone)?;
            if let Publish::Open(push) = row.assignment.publish {
                row.assignment.publish = push.settled(outcome);
                row.settled.push((outcome, left));
            }
            match outcome {
                PushOutcome::Pushed => row.leave(Outcome::Succeeded, None),
                PushOutcome::NotPushed => row.leave(Outcome::Failed, None),
            }
            Ok(())
        })
    }

    async fn unsettled(&self, _: Who, _: String) -> Result<(), PortError> {
        self.call("unsettled", |_| Ok(()))
    }

    async fn forgot(&self, _: RunnerId, session: SessionId) -> Result<(), PortError> {
        self.call("forgot", |state| {
            state.forget.retain(|one| *one != session);
            Ok(())
        })
    }

    async fn end(&self, who: Who, ending: Ending) -> Result<(), PortError> {
        self.current("end", who, |row| {
            match &ending {
                Ending::Succeeded(_) => row.leave(Outcome::Succeeded, None),
                Ending::Failed { cause, .. } => row.leave(Outcome::Failed, Some(*cause)),
            }
            row.ending = Some(ending);
            Ok(())
        })
    }

    async fn sweep(&self, _: RunnerId, present: Vec<Present>) -> Result<Vec<Fate>, PortError> {
        self.call("sweep", |state| {
            let wanted = |one: &Present| {
                state.rows.values().any(|row| row.assignment.sandbox == one.sandbox)
            };
            let fate = |one| if wanted(one) { Fate::Keep } else { Fate::Kill };
            Ok(present.iter().map(fate).collect())
        })
    }

    async fn stepped(&self, who: Who, stepped: Stepped) -> Result<Termination, PortError> {
        self.call("stepped", |state| {
            let row = state.rows.get_mut(&who).ok_or(PortError::Gone)?;
            let mut saga = row.assignment.termination.ok_or(PortError::Gone)?;
            if saga.step == stepped.step {
                saga = saga.after(stepped.went);
                let frozen = row.found.iter().any(|(step, _)| *step == Step::Freeze)
                    && !row.found.iter().any(|(step, _)| *step == Step::Kill);
                if frozen && stepped.step == Step::SaveTree {
                    saga = saga.stays();
                }
                while matches!(saga.step, Step::Settle | Step::Tell) {
                    saga = saga.after(stepped.went);
                }
                row.found.push((stepped.step, stepped.found));
            }
            row.assignment.termination = Some(saga);
            Ok(saga)
        })
    }
}
