//! What each move of the task machine does to the task, its attempt and the world.
//!
//! [`step`](super::step()) says which move an event is; a [`Turn`] carries it out on values. Every
//! move ends in [`Turn::commit`], which adds what all moves have in common.

use super::{
    Blocked, Children, Denial, Effect, Failure, Hold, Plan, Policy, QueueFacts, Reason, Review,
    State, SuccessFacts, Task, Transition, Verb,
};
use crate::attempt::{self, Attempt, Outcome, Phase};
use crate::budget::Standing;
use crate::cause::Cause;
use crate::claim::{ClaimFacts, blockers};
use crate::clock::{Clock, Reading};
use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::id::{AttemptNumber, Epoch, QuestionId, TaskId};
use crate::publish::{Push, PushOutcome};
use crate::retry::{self, Effort, Jitter, Next, Progress};
use crate::time::Timestamp;

pub(super) type Step = Disposition<Transition, Denial>;

/// One decision: the task as it is, the attempt that acts for it, the time and the numbers.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) task: &'a Task,
    pub(super) acting: Option<&'a Attempt>,
    pub(super) now: Timestamp,
    pub(super) policy: &'a Policy,
}

impl Cause {
    /// How an attempt that failed for this cause ended.
    pub(super) const fn outcome(self) -> Outcome {
        match self {
            Self::Lost | Self::SandboxExpired => Outcome::Lost,
            _ => Outcome::Failed,
        }
    }
}

impl Plan {
    /// What an attempt that had started is followed by without a person.
    pub(super) const fn again(self) -> Self {
        match self {
            Self::Fresh | Self::Same => Self::Same,
            Self::Republish => Self::Republish,
        }
    }
}

/// The common end of every move.
impl Turn<'_> {
    /// Goes to `state`, from now on and for `reason`.
    pub(super) fn to<const N: usize>(
        &self,
        state: State,
        reason: Reason,
        attempt: Option<Attempt>,
        effects: [Effect; N],
    ) -> Step {
        let task = Task { state, reason, since: self.now, ..*self.task };
        self.commit(task, attempt, effects)
    }

    /// Adds what every move that reaches, leaves or changes rest has to announce.
    fn commit<const N: usize>(
        &self,
        task: Task,
        attempt: Option<Attempt>,
        effects: [Effect; N],
    ) -> Step {
        let mut effects = Vec::from(effects);
        match (self.task.state.group().is_at_rest(), task.state.group().is_at_rest()) {
            (_, true) => effects.push(Effect::AnnounceRest),
            (true, false) => effects.push(Effect::AnnounceRequeue),
            (false, false) => {}
        }
        match task.state {
            State::Queued { .. } => effects.push(Effect::Offer),
            State::Ready { .. } => effects.push(Effect::AnnounceReady),
            _ => {}
        }
        Accept(Transition { task, attempt, effects })
    }

    /// The same turn for a task whose counts have changed.
    fn counting(&self, effort: Effort) -> Task {
        Task { effort, ..*self.task }
    }

    pub(super) fn illegal(&self) -> Step {
        Deny(Denial::Illegal { state: self.task.state, legal: self.task.state.verbs() })
    }

    /// Applies `event` to the acting attempt, then goes on with it.
    fn with(&self, event: attempt::Event, then: impl FnOnce(Attempt) -> Step) -> Step {
        let Some(attempt) = self.acting else { return Deny(Denial::Fenced) };
        match attempt.step(event, self.now, &self.policy.limits) {
            Accept(next) => then(next),
            Ignore => Ignore,
            Deny(denial) => Deny(Denial::Attempt(denial)),
        }
    }

    /// Ends the acting attempt, if there is one, and goes to `state`.
    fn end(&self, outcome: Outcome, state: State, reason: Reason) -> Step {
        if self.acting.is_none() {
            return self.to(state, reason, None, []);
        }
        self.with(attempt::Event::End(outcome), |ending| {
            self.to(state, reason, Some(ending), [Effect::Terminate(ending.number)])
        })
    }

    pub(super) fn is_publishing(&self) -> bool {
        self.acting.is_some_and(|attempt| matches!(attempt.phase, Phase::Publishing { .. }))
    }
}

/// A person's moves.
impl Turn<'_> {
    pub(super) fn queue<const N: usize>(
        &self,
        verb: Verb,
        plan: Plan,
        facts: QueueFacts,
        effects: [Effect; N],
    ) -> Step {
        if let Some(by) = facts.failed_dependency {
            return Deny(Denial::DependencyFailed(by));
        }
        if facts.budget.is_used_up() {
            return Deny(Denial::BudgetUsedUp);
        }
        self.renew(State::Queued { plan, not_before: None }, verb, None, effects)
    }

    /// Goes to `state` by a person's act, which grants new tries.
    fn renew<const N: usize>(
        &self,
        state: State,
        verb: Verb,
        attempt: Option<Attempt>,
        effects: [Effect; N],
    ) -> Step {
        let task = self.counting(self.task.effort.renewed());
        let task = Task { state, reason: Reason::Asked(verb), since: self.now, ..task };
        self.commit(task, attempt, effects)
    }

    pub(super) fn accept(&self, attempt: AttemptNumber, seen: AttemptNumber) -> Step {
        match seen == attempt {
            true => self.to(State::Completed, Reason::Asked(Verb::Accept), None, []),
            false => Deny(Denial::OtherAttempt(attempt)),
        }
    }

    pub(super) fn reject(&self) -> Step {
        self.to(State::Pending { plan: Plan::Same }, Reason::Asked(Verb::Reject), None, [])
    }

    pub(super) fn answer_held(
        &self,
        attempt: AttemptNumber,
        question: QuestionId,
        named: QuestionId,
    ) -> Step {
        if named != question {
            return Deny(Denial::OtherQuestion(question));
        }
        self.with(attempt::Event::Release, |released| {
            let state = State::Running { attempt, plan: Plan::Same };
            self.renew(state, Verb::Answer, Some(released), [Effect::DeliverAnswer(attempt)])
        })
    }

    pub(super) fn answer(&self, question: QuestionId, named: QuestionId) -> Step {
        if named != question {
            return Deny(Denial::OtherQuestion(question));
        }
        let state = State::Queued { plan: Plan::Same, not_before: None };
        self.renew(state, Verb::Answer, None, [])
    }

    /// A cancelled attempt whose push is open is settled before the stop is acknowledged.
    pub(super) fn cancel(&self) -> Step {
        let (state, reason) = (State::Cancelled, Reason::Asked(Verb::Cancel));
        let below = Effect::CancelDescendants;
        if self.acting.is_none() {
            return self.to(state, reason, None, [below]);
        }
        self.with(attempt::Event::End(Outcome::Cancelled), |ending| {
            let terminate = Effect::Terminate(ending.number);
            let settle = Effect::SettlePublish(ending.number);
            match self.is_publishing() {
                true => self.to(state, reason, Some(ending), [below, settle, terminate]),
                false => self.to(state, reason, Some(ending), [below, terminate]),
            }
        })
    }
}

/// The queue's moves, and what other tasks' ends do.
impl Turn<'_> {
    pub(super) fn claim(
        &self,
        plan: Plan,
        not_before: Option<Timestamp>,
        facts: &ClaimFacts,
        epoch: Epoch,
        lease_end: Timestamp,
    ) -> Step {
        let blockers: Vec<_> = blockers(not_before, facts, self.now).collect();
        if !blockers.is_empty() {
            return Deny(Denial::Blocked(blockers));
        }
        let attempt = self.task.attempts.next();
        let claimed = Attempt::claimed(attempt, epoch, lease_end, self.now);
        let task = Task { attempts: attempt, ..*self.task };
        let state = State::Claimed { attempt, plan };
        let effects = [Effect::Prepare(attempt)];
        Turn { task: &task, ..*self }.to(state, Reason::Claimed, Some(claimed), effects)
    }

    pub(super) fn rest(&self, failure: Failure) -> Step {
        self.end(Outcome::Failed, State::Failed(failure), Reason::Ended(failure.cause()))
    }

    pub(super) fn dependency_requeued(
        &self,
        by: TaskId,
        plan: Plan,
        still: Option<TaskId>,
    ) -> Step {
        match still {
            Some(by) => self.rest(Failure::Dependency { by, plan }),
            None => {
                let state = State::Queued { plan, not_before: None };
                self.to(state, Reason::Requeued(by), None, [])
            }
        }
    }

    pub(super) fn subtask_rested(&self, attempt: AttemptNumber, children: Children) -> Step {
        match self.after_success(attempt, children) {
            State::Blocked(_) => Ignore,
            State::Failed(failure) => self.rest(failure),
            state => self.to(state, Reason::SubtasksRested, None, []),
        }
    }

    pub(super) fn over_budget(&self) -> Step {
        let reason = Reason::Ended(Cause::Budget);
        self.end(Outcome::BudgetExceeded, State::BudgetExceeded, reason)
    }
}

/// The attempt's moves: starting, failing, expiring.
impl Turn<'_> {
    pub(super) fn start(&self, attempt: AttemptNumber, plan: Plan) -> Step {
        self.with(attempt::Event::Start, |started| {
            let task = self.counting(Effort { failed_starts: 0, ..self.task.effort });
            let state = State::Running { attempt, plan };
            let effects = [Effect::Execute(attempt)];
            Turn { task: &task, ..*self }.to(state, Reason::Started, Some(started), effects)
        })
    }

    /// An end before `start`.
    pub(super) fn fail_start(&self, plan: Plan, failure: retry::Failure) -> Step {
        let Policy { limits, caps } = self.policy;
        let next = retry::after_failed_start(self.task.effort, failure, self.now, limits, caps);
        self.follow(plan, failure.cause, next)
    }

    /// An end after `start`; while publishing, the agent is gone and only the push matters.
    pub(super) fn fail(&self, plan: Plan, failure: retry::Failure) -> Step {
        if self.is_publishing() {
            return self.look_after_push();
        }
        let Policy { limits, caps } = self.policy;
        let max = self.task.max_attempts;
        let next = retry::after_failure(self.task.effort, failure, max, self.now, limits, caps);
        self.follow(plan.again(), failure.cause, next)
    }

    fn follow(&self, plan: Plan, cause: Cause, next: Next) -> Step {
        let (state, reason, effort) = match next {
            Next::Again { not_before, effort } => {
                let state = State::Queued { plan, not_before: Some(not_before) };
                (state, Reason::Retrying(cause), effort)
            }
            Next::Rest { cause, effort } => {
                (State::Failed(Failure::Cause(cause)), Reason::Ended(cause), effort)
            }
        };
        let task = self.counting(effort);
        Turn { task: &task, ..*self }.end(cause.outcome(), state, reason)
    }

    pub(super) fn expire_claim(
        &self,
        plan: Plan,
        reading: Reading,
        progress: Progress,
        jitter: Jitter,
    ) -> Step {
        match reading.clock {
            Clock::Claim | Clock::ClaimTotal | Clock::AttemptLease => {
                self.fail_start(plan, failed(Cause::Lost, progress, jitter))
            }
            _ => Ignore, // the timer is stale
        }
    }

    pub(super) fn expire(
        &self,
        plan: Plan,
        reading: Reading,
        progress: Progress,
        jitter: Jitter,
    ) -> Step {
        let cause = match (reading.clock, self.is_publishing()) {
            (Clock::AttemptLease, _) => {
                return self.fail(plan, failed(Cause::Lost, progress, jitter));
            }
            (Clock::Start, false) => {
                return self.fail(plan, failed(Cause::NeverStarted, progress, jitter));
            }
            (Clock::Publish, true) => return self.look_after_push(),
            (Clock::Inactivity, false) => Cause::Inactivity,
            (Clock::Absolute, false) => Cause::MaxDuration,
            _ => return Ignore, // the publish came first, or the timer is stale
        };
        let task = self.counting(retry::count_fruitless(self.task.effort, true, progress));
        let state = State::TimedOut { clock: reading.clock };
        Turn { task: &task, ..*self }.end(Outcome::TimedOut, state, Reason::Ended(cause))
    }

    /// Its role was stopped at once: queued again, without using a try.
    pub(super) fn withdraw(&self, plan: Plan) -> Step {
        let state = State::Queued { plan, not_before: None };
        self.end(Outcome::Cancelled, state, Reason::RoleStopped)
    }
}

const fn failed(cause: Cause, progress: Progress, jitter: Jitter) -> retry::Failure {
    retry::Failure { cause, progress, reset_at: None, jitter }
}

/// The attempt's moves: asking.
impl Turn<'_> {
    pub(super) fn ask(&self, attempt: AttemptNumber, question: QuestionId, hold: Hold) -> Step {
        let announce = Effect::AnnounceQuestion(question);
        match hold {
            Hold::Held => self.with(attempt::Event::Hold, |held| {
                let state = State::Blocked(Blocked::Held { attempt, question });
                self.to(state, Reason::Question, Some(held), [announce])
            }),
            Hold::Released if self.is_publishing() => self.illegal(),
            Hold::Released => self.with(attempt::Event::End(Outcome::Question), |ending| {
                let state = State::Blocked(Blocked::Question { question });
                let effects = [announce, Effect::Terminate(attempt)];
                self.to(state, Reason::Question, Some(ending), effects)
            }),
        }
    }

    pub(super) fn ask_again(&self, question: QuestionId, asked: QuestionId, hold: Hold) -> Step {
        match hold {
            _ if asked != question => Deny(Denial::OtherQuestion(question)),
            Hold::Held => Ignore,
            Hold::Released => self.release(question, Outcome::Question),
        }
    }

    pub(super) fn expire_hold(&self, question: QuestionId, reading: Reading) -> Step {
        match reading.clock {
            Clock::Linger => self.release(question, Outcome::Question),
            Clock::AttemptLease => self.release(question, Outcome::Lost),
            _ => Ignore, // the clocks stand still
        }
    }

    /// The held attempt is over; the question is not. The task is blocked since it asked.
    pub(super) fn release(&self, question: QuestionId, outcome: Outcome) -> Step {
        self.with(attempt::Event::End(outcome), |ending| {
            let state = State::Blocked(Blocked::Question { question });
            let task = Task { state, ..*self.task };
            self.commit(task, Some(ending), [Effect::Terminate(ending.number)])
        })
    }
}

/// The attempt's moves: publishing and succeeding.
impl Turn<'_> {
    pub(super) fn open_publish(
        &self,
        attempt: AttemptNumber,
        push: Push,
        budget: Standing,
    ) -> Step {
        if budget == Standing::Exceeded && !self.is_publishing() {
            return self.over_budget();
        }
        self.with(attempt::Event::OpenPublish(push), |publishing| {
            self.commit(*self.task, Some(publishing), [Effect::Push(attempt)])
        })
    }

    pub(super) fn settled(&self, outcome: PushOutcome, facts: SuccessFacts) -> Step {
        self.with(attempt::Event::Settled(outcome), |settled| {
            let turn = Turn { acting: Some(&settled), ..*self };
            match outcome {
                PushOutcome::Pushed => turn.finish(settled.number, facts),
                PushOutcome::NotPushed => turn.rest(Failure::Publish),
            }
        })
    }

    /// What is being pushed succeeds when that is settled, not before.
    pub(super) fn succeed(&self, facts: SuccessFacts) -> Step {
        match self.acting {
            Some(attempt) if !self.is_publishing() => self.finish(attempt.number, facts),
            _ => self.illegal(),
        }
    }

    /// A success comes to rest, to review or to wait, unless it is over budget or fruitless.
    fn finish(&self, attempt: AttemptNumber, facts: SuccessFacts) -> Step {
        if facts.budget == Standing::Exceeded {
            return self.over_budget();
        }
        let effort = retry::count_fruitless(self.task.effort, true, facts.progress);
        let braked = retry::braked(self.task.effort, effort, &self.policy.caps);
        let state = match braked {
            true => State::Failed(Failure::Cause(Cause::NoProgress)),
            false => self.after_success(attempt, facts.children),
        };
        let reason = match state {
            State::Failed(failure) => Reason::Ended(failure.cause()),
            _ => Reason::Succeeded,
        };
        let task = self.counting(effort);
        Turn { task: &task, ..*self }.end(Outcome::Succeeded, state, reason)
    }

    /// Where a success goes, by its subtasks and its review.
    fn after_success(&self, attempt: AttemptNumber, children: Children) -> State {
        match (children.active, children.failed) {
            (1.., _) => State::Blocked(Blocked::Subtasks { attempt }),
            (0, Some(by)) => State::Failed(Failure::Subtask { by, attempt }),
            (0, None) if self.task.parent.is_some() => State::Completed,
            (0, None) => match self.task.review {
                Review::Auto => State::Completed,
                Review::Manual => State::Ready { attempt },
            },
        }
    }

    /// The task stays as it is until it is known what became of the push.
    fn look_after_push(&self) -> Step {
        let Some(attempt) = self.acting else { return Deny(Denial::Fenced) };
        self.commit(*self.task, Some(*attempt), [Effect::SettlePublish(attempt.number)])
    }
}
