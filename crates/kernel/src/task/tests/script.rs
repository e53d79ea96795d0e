//! Scripts for the task machine: `event; +10s event#2; …` in, one line of trace per event out.

use super::super::*;
use crate::deadline::{Pace, Stream};
use crate::disposition::Disposition;
use crate::limits::Switches;
use crate::publish::CommitId;
use crate::time::Span;
use crate::why::{self, LivePath};

const BY: TaskId = TaskId::from_bits(77);
const OTHER: TaskId = TaskId::from_bits(78);
const QUESTION: QuestionId = QuestionId::from_bits(5);
const OTHER_QUESTION: QuestionId = QuestionId::from_bits(6);
const PUSH: Push = Push { commit: CommitId::from_sha1([1; 20]), expected: None };

/// One task with its attempt, and the time.
#[derive(Clone)]
pub(super) struct World {
    pub(super) task: Task,
    pub(super) attempt: Option<Attempt>,
    now: Timestamp,
}

/// Plays `script` on a pending task and compares the trace.
pub(super) fn check(script: &str, expected: &str) {
    check_from("PENDING", script, expected);
}

/// Plays `script` on a task at the state labelled `start` and compares the trace.
pub(super) fn check_from(start: &str, script: &str, expected: &str) {
    let expected: Vec<_> = expected.lines().map(str::trim).collect();
    assert_eq!(World::at(start).play(script).lines().collect::<Vec<_>>(), expected, "{start}");
}

/// Every state, each with a label and the attempt that goes with it.
pub(super) fn every_state() -> Vec<(&'static str, State, Option<Attempt>)> {
    let labels = [
        "PENDING",
        "QUEUED",
        "CLAIMED",
        "RUNNING",
        "HELD",
        "QUESTION",
        "SUBTASKS",
        "READY",
        "COMPLETED",
        "FAILED",
        "DEPENDENCY",
        "SUBTASK",
        "PUBLISH",
        "TIMED_OUT",
        "CANCELLED",
        "BUDGET",
    ];
    labels.map(|label| (label, World::at(label).task.state, World::at(label).attempt)).into()
}

fn state_of(label: &str) -> State {
    let attempt = AttemptNumber(1);
    match label {
        "PENDING" => State::Pending { plan: Plan::Fresh },
        "QUEUED" => State::Queued { plan: Plan::Fresh, not_before: None },
        "CLAIMED" => State::Claimed { attempt, plan: Plan::Fresh },
        "RUNNING" => State::Running { attempt, plan: Plan::Fresh },
        "HELD" => State::Blocked(Blocked::Held { attempt, question: QUESTION }),
        "QUESTION" => State::Blocked(Blocked::Question { question: QUESTION }),
        "SUBTASKS" => State::Blocked(Blocked::Subtasks { attempt }),
        "READY" => State::Ready { attempt },
        "COMPLETED" => State::Completed,
        "FAILED" => State::Failed(Failure::Cause(Cause::Crash)),
        "DEPENDENCY" => State::Failed(Failure::Dependency { by: BY, plan: Plan::Fresh }),
        "SUBTASK" => State::Failed(Failure::Subtask { by: BY, attempt }),
        "PUBLISH" => State::Failed(Failure::Publish),
        "TIMED_OUT" => State::TimedOut { clock: Clock::Absolute },
        "CANCELLED" => State::Cancelled,
        "BUDGET" => State::BudgetExceeded,
        _ => panic!("unknown state {label}"),
    }
}

impl World {
    /// A task at the state with this label; `auto`, `subtask` and `max=N` may follow it.
    pub(super) fn at(start: &str) -> Self {
        let (label, options) = start.split_once(' ').unwrap_or((start, ""));
        let state = state_of(label);
        let limits = Limits::default();
        let claimed = Attempt::claimed(
            AttemptNumber(1),
            Epoch(1),
            Timestamp::from_millis(100_000_000),
            Timestamp::EPOCH,
        );
        let go = |attempt: Attempt, event| {
            attempt.step(event, Timestamp::EPOCH, &limits).accepted().expect("a legal set-up")
        };
        let attempt = match state {
            State::Pending { .. } | State::Queued { .. } => None,
            State::Claimed { .. } => Some(claimed),
            State::Running { .. } => Some(go(claimed, attempt::Event::Start)),
            State::Blocked(Blocked::Held { .. }) => {
                Some(go(go(claimed, attempt::Event::Start), attempt::Event::Hold))
            }
            _ => Some(go(claimed, attempt::Event::End(attempt::Outcome::Succeeded))),
        };
        let max = options.split(' ').find_map(|option| option.strip_prefix("max="));
        let task = Task {
            id: TaskId::from_bits(1),
            parent: options.contains("subtask").then_some(TaskId::from_bits(2)),
            review: if options.contains("auto") { Review::Auto } else { Review::Manual },
            max_attempts: max.map_or(1, |max| max.parse().expect("a number")),
            state,
            reason: Reason::Created,
            since: Timestamp::EPOCH,
            attempts: attempt.map_or(AttemptNumber(0), |attempt| attempt.number),
            effort: Effort::default(),
        };
        Self { task, attempt, now: Timestamp::EPOCH }
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Span::from_secs(seconds));
    }

    pub(super) fn step(&self, event: &Event) -> Disposition<Transition, Denial> {
        step(&self.task, self.attempt.as_ref(), event, self.now, &Policy::default())
    }

    pub(super) fn apply(&mut self, next: Transition) {
        self.task = next.task;
        self.attempt = next.attempt.or(self.attempt);
    }

    /// Why something will move the task on, if it has the subtasks that its state speaks of.
    pub(super) fn path(&self) -> LivePath {
        let Event::Claim { facts: claim, .. } = claim_of("claim") else { return LivePath::None };
        let blocked = matches!(self.task.state, State::Blocked(Blocked::Subtasks { .. }));
        let children = Children { active: u32::from(blocked), failed: None };
        let stream = Stream::started(self.now, Pace::Partial);
        let attempt = self.attempt.as_ref();
        let facts = why::Facts { attempt, stream, claim, children, fired: None };
        let (limits, switches) = (Limits::default(), Switches::default());
        why::explain(&self.task, &facts, self.now, &limits, &switches).path
    }

    /// Plays a script and returns its trace.
    pub(super) fn play(&mut self, script: &str) -> String {
        let lines = script.split(';').map(|word| {
            let mut word = word.trim();
            if let Some(rest) = word.strip_prefix('+') {
                let (span, event) = rest.split_once(' ').expect("`+10s event`");
                self.now = self.now.after(span.parse().expect("a span"));
                word = event.trim();
            }
            let at = self.now.as_millis() / 1_000;
            format!("{at}s {word} {}", self.one(word))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn one(&mut self, word: &str) -> String {
        let (name, number) = word.split_once('#').unwrap_or((word, ""));
        let mut event = for_attempt(event_of(name), self.task.attempts);
        if let Ok(number) = number.parse() {
            event = for_attempt(event, AttemptNumber(number));
        }
        match self.step(&event) {
            Disposition::Accept(next) => {
                let effects: Vec<_> = next.effects.iter().map(show_effect).collect();
                let line = format!("{} [{}]", show_state(&next.task.state), effects.join(" "));
                self.apply(next);
                line
            }
            Disposition::Ignore => "ignore".into(),
            Disposition::Deny(denial) => format!("deny {}", show_denial(&denial)),
        }
    }
}

/// One event of every kind, by name.
pub(super) fn every_event() -> Vec<(&'static str, Event)> {
    [
        "run",
        "cancel",
        "accept",
        "reject",
        "answer",
        "retry",
        "resume",
        "claim",
        "dependency-rested",
        "dependency-requeued",
        "subtasks",
        "subtasks:1-failed",
        "subtask-requeued",
        "budget",
        "start",
        "ask",
        "ask-exit",
        "publish",
        "pushed",
        "not-pushed",
        "succeed",
        "succeed:1-active",
        "succeed:empty",
        "fail:lost",
        "fail:auth",
        "fail:usage_limit",
        "expire:absolute",
        "expire:claim",
        "expire:linger",
        "expire:publish",
        "expire:attempt_lease",
        "withdraw",
    ]
    .map(|name| (name, event_of(name)))
    .into()
}

fn queue_facts(name: &str) -> QueueFacts {
    QueueFacts {
        failed_dependency: name.contains("blocked").then_some(BY),
        budget: if name.contains("broke") { Standing::UsedUp } else { Standing::Left },
    }
}

fn success_facts(name: &str) -> SuccessFacts {
    SuccessFacts {
        progress: if name.contains("empty") { Progress::None } else { Progress::Made },
        children: children(name),
        budget: if name.contains("over") { Standing::Exceeded } else { Standing::UsedUp },
    }
}

fn children(name: &str) -> Children {
    Children {
        active: u32::from(name.contains("1-active")),
        failed: name.contains("1-failed").then_some(BY),
    }
}

fn claim_of(name: &str) -> Event {
    use crate::claim::SessionSlot;
    use crate::role::Hold;
    let blocked = name.contains("blocked");
    let facts = ClaimFacts {
        unfinished_dependencies: u32::from(blocked),
        session: SessionSlot::Free,
        role: blocked.then_some(Hold::RoleStopped),
        budget: Standing::Left,
        account_probe: None,
        tree: None,
    };
    Event::Claim { facts, epoch: Epoch(9), lease_end: Timestamp::from_millis(100_000_000) }
}

fn failure_of(cause: &str) -> FailedAttempt {
    let cause = *Cause::ALL.iter().find(|known| known.code() == cause).expect("a cause");
    FailedAttempt { cause, progress: Progress::Made, reset_at: None, jitter: Jitter::NONE }
}

fn reading_of(clock: &str) -> Reading {
    let clocks = [
        Clock::Start,
        Clock::Claim,
        Clock::Absolute,
        Clock::Inactivity,
        Clock::Linger,
        Clock::Publish,
        Clock::AttemptLease,
    ];
    let clock = clocks.into_iter().find(|known| known.name() == clock).expect("a clock");
    Reading { clock, measured: Span::from_secs(2), allowed: Span::from_secs(1) }
}

fn event_of(name: &str) -> Event {
    let attempt = AttemptNumber(1);
    let (verb, detail) = name.split_once(':').unwrap_or((name, ""));
    match verb {
        "run" => Event::Run(queue_facts(name)),
        "cancel" => Event::Cancel,
        "accept" => Event::Accept { seen: attempt },
        "reject" => Event::Reject,
        "answer" => Event::Answer { question: QUESTION },
        "answer-other" => Event::Answer { question: OTHER_QUESTION },
        "retry" | "retry-blocked" => Event::Retry(queue_facts(name)),
        "resume" | "resume-broke" => Event::Resume(queue_facts(name)),
        "claim" | "claim-blocked" => claim_of(name),
        "dependency-rested" => Event::DependencyRested { by: BY },
        "dependency-requeued" => Event::DependencyRequeued { by: BY, still: None },
        "dependency-requeued-other" => Event::DependencyRequeued { by: OTHER, still: None },
        "dependency-requeued-still" => Event::DependencyRequeued { by: BY, still: Some(OTHER) },
        "subtasks" => Event::SubtaskRested(children(name)),
        "subtask-requeued" => Event::SubtaskRequeued { by: BY },
        "subtask-requeued-other" => Event::SubtaskRequeued { by: OTHER },
        "budget" => Event::BudgetUsedUp,
        "start" => Event::Start { attempt },
        "ask" => Event::Ask { attempt, question: QUESTION, hold: Hold::Held },
        "ask-other" => Event::Ask { attempt, question: OTHER_QUESTION, hold: Hold::Held },
        "ask-exit" => Event::Ask { attempt, question: QUESTION, hold: Hold::Released },
        "publish" => Event::OpenPublish { attempt, push: PUSH, budget: success_facts(name).budget },
        "pushed" => {
            let facts = success_facts(name);
            Event::Settled { attempt, outcome: PushOutcome::Pushed, facts }
        }
        "not-pushed" => {
            let facts = success_facts(name);
            Event::Settled { attempt, outcome: PushOutcome::NotPushed, facts }
        }
        "succeed" => Event::Succeed { attempt, facts: success_facts(name) },
        "fail" => Event::Fail { attempt, failure: failure_of(detail) },
        "expire" => Event::Expire {
            attempt,
            reading: reading_of(detail.trim_end_matches(":empty")),
            progress: success_facts(name).progress,
            jitter: Jitter::NONE,
        },
        "withdraw" => Event::Withdraw { attempt },
        _ => panic!("unknown event {name}"),
    }
}

/// The same event, from the attempt with this number.
pub(super) fn for_attempt(event: Event, number: AttemptNumber) -> Event {
    let mut event = event;
    match &mut event {
        Event::Accept { seen } => *seen = number,
        Event::Start { attempt }
        | Event::Ask { attempt, .. }
        | Event::OpenPublish { attempt, .. }
        | Event::Settled { attempt, .. }
        | Event::Succeed { attempt, .. }
        | Event::Fail { attempt, .. }
        | Event::Expire { attempt, .. }
        | Event::Withdraw { attempt } => *attempt = number,
        _ => {}
    }
    event
}

pub(super) fn show_state(state: &State) -> String {
    let plan = |plan: &Plan| format!("{plan:?}").to_lowercase();
    let detail = match state {
        State::Pending { plan: next } => plan(next),
        State::Queued { plan: next, not_before: None } => plan(next),
        State::Queued { plan: next, not_before: Some(at) } => {
            format!("{} @{}s", plan(next), at.as_millis() / 1_000)
        }
        State::Claimed { attempt, plan: next } => format!("#{attempt} {}", plan(next)),
        State::Running { attempt, .. } | State::Ready { attempt } => format!("#{attempt}"),
        State::Blocked(Blocked::Held { attempt, .. }) => format!("held#{attempt}"),
        State::Blocked(Blocked::Question { .. }) => "question".into(),
        State::Blocked(Blocked::Subtasks { .. }) => "subtasks".into(),
        State::Failed(failure) => failure.cause().code().into(),
        State::TimedOut { clock } => clock.name().into(),
        State::Completed | State::Cancelled | State::BudgetExceeded => String::new(),
    };
    format!("{} {detail}", state.name()).trim_end().into()
}

fn show_effect(effect: &Effect) -> String {
    match effect {
        Effect::Offer => "offer".into(),
        Effect::Prepare(attempt) => format!("prepare#{attempt}"),
        Effect::Execute(attempt) => format!("execute#{attempt}"),
        Effect::DeliverAnswer(attempt) => format!("answer#{attempt}"),
        Effect::Push(attempt) => format!("push#{attempt}"),
        Effect::SettlePublish(attempt) => format!("settle#{attempt}"),
        Effect::Terminate(attempt) => format!("terminate#{attempt}"),
        Effect::CancelDescendants => "descendants".into(),
        Effect::DisregardSubtasks => "disregard".into(),
        Effect::AnnounceQuestion(_) => "question".into(),
        Effect::AnnounceReady => "ready".into(),
        Effect::AnnounceRest => "rest".into(),
        Effect::AnnounceRequeue => "requeue".into(),
    }
}

pub(super) fn show_denial(denial: &Denial) -> String {
    match denial {
        Denial::Fenced => "fenced".into(),
        Denial::Illegal { legal, .. } => {
            legal.iter().map(|verb| verb.name()).collect::<Vec<_>>().join(" ")
        }
        Denial::Blocked(blockers) => format!("{} blockers", blockers.len()),
        Denial::DependencyFailed(_) => "dependency failed".into(),
        Denial::BudgetUsedUp => "budget used up".into(),
        Denial::OtherQuestion(_) => "other question".into(),
        Denial::OtherAttempt(_) => "other attempt".into(),
        Denial::Attempt(attempt::Denial::DeadlinePassed { .. }) => "deadline passed".into(),
        Denial::Attempt(denial) => format!("{denial:?}"),
    }
}
