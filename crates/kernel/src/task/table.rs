//! Every move that the machine makes, found by asking it: from the states in which tasks are made,
//! whatever can happen is let happen, until nothing new follows.
//!
//! What is found is what can be reached, not what could be written down. Whoever wants to know
//! whether everything was exercised holds it against this.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Blocked, Children, Effect, Event, Failure, Hold, Plan, Policy, QueueFacts, Reason, Review,
    State, SuccessFacts, Task, step,
};
use crate::attempt::Event::Proven as ProvenBy;
use crate::attempt::{Attempt, Outcome, Phase, Proof};
use crate::budget::Standing;
use crate::cause::Cause;
use crate::claim::{ClaimFacts, SessionSlot};
use crate::clock::{Clock, Reading};
use crate::disposition::Disposition;
use crate::id::{AttemptNumber, Epoch, QuestionId, TaskId};
use crate::limits::{Caps, Limits};
use crate::publish::{CommitId, Publish, Push, PushOutcome};
use crate::retry::{Effort, Failure as FailedAttempt, Jitter, Progress};
use crate::time::{Span, Timestamp};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const FAR: Timestamp = Timestamp::from_millis(2_000_000_000);
const ATTEMPT: AttemptNumber = AttemptNumber(1);
const QUESTION: QuestionId = QuestionId::from_bits(1);
const TASK: TaskId = TaskId::from_bits(1);
const OTHER: TaskId = TaskId::from_bits(2);
const PUSH: Push = Push { commit: CommitId::from_sha1([1; 20]), expected: None };

/// A move: the names of where it begins and where it ends, as [`State::place`] gives them.
pub type Move = (&'static str, &'static str);

impl State {
    /// Where a task is, as finely as moves are told apart: the state's name, with what it carries
    /// that decides what follows. `attempt` is the acting one, if there is one.
    pub const fn place(&self, attempt: Option<&Attempt>) -> &'static str {
        match self {
            Self::Pending { .. } => "PENDING",
            Self::Queued { plan: Plan::Fresh, .. } => "QUEUED (fresh)",
            Self::Queued { plan: Plan::Same, .. } => "QUEUED (same)",
            Self::Queued { plan: Plan::Republish, .. } => "QUEUED (republish)",
            Self::Claimed { .. } => "CLAIMED",
            Self::Running { .. } => match attempt {
                Some(Attempt { phase: Phase::Publishing { .. }, .. }) => "RUNNING (publishing)",
                Some(_) | None => "RUNNING",
            },
            Self::Blocked(Blocked::Held { .. }) => "BLOCKED (held)",
            Self::Blocked(Blocked::Question { .. }) => "BLOCKED (question)",
            Self::Blocked(Blocked::Subtasks { .. }) => "BLOCKED (subtasks)",
            Self::Ready { .. } => "READY",
            Self::Completed => "COMPLETED",
            Self::Failed(Failure::Cause(_)) => "FAILED (cause)",
            Self::Failed(Failure::Dependency { .. }) => "FAILED (dependency)",
            Self::Failed(Failure::Subtask { .. }) => "FAILED (subtask)",
            Self::Failed(Failure::Publish) => "FAILED (publish)",
            Self::TimedOut { .. } => "TIMED_OUT",
            Self::Cancelled => "CANCELLED",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
        }
    }
}

impl Phase {
    /// The phase's name, with the outcome of an end and the kind of its proof.
    pub const fn place(&self) -> &'static str {
        match self {
            Self::Claimed => "CLAIMED",
            Self::Running => "RUNNING",
            Self::Publishing { .. } => "PUBLISHING",
            Self::Ending(Outcome::Succeeded) => "ENDING (succeeded)",
            Self::Ending(Outcome::Question) => "ENDING (question)",
            Self::Ending(Outcome::Failed) => "ENDING (failed)",
            Self::Ending(Outcome::TimedOut) => "ENDING (timed out)",
            Self::Ending(Outcome::Cancelled) => "ENDING (cancelled)",
            Self::Ending(Outcome::BudgetExceeded) => "ENDING (budget exceeded)",
            Self::Ending(Outcome::Lost) => "ENDING (lost)",
            Self::Ended(_, Proof::Observed) => "ENDED (observed)",
            Self::Ended(_, Proof::LeaseExpired) => "ENDED (lease expired)",
            Self::Ended(_, Proof::NotOurs) => "ENDED (not ours)",
        }
    }
}

impl Effect {
    /// The effect's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Prepare(_) => "prepare",
            Self::Execute(_) => "execute",
            Self::DeliverAnswer(_) => "deliver_answer",
            Self::Push(_) => "push",
            Self::SettlePublish(_) => "settle_publish",
            Self::Terminate(_) => "terminate",
            Self::CancelDescendants => "cancel_descendants",
            Self::DisregardSubtasks => "disregard_subtasks",
            Self::AnnounceQuestion(_) => "announce_question",
            Self::AnnounceReady => "announce_ready",
            Self::AnnounceRest => "announce_rest",
            Self::AnnounceRequeue => "announce_requeue",
        }
    }
}

/// Every move that can be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Of a task from one place to another, with the effects that it always has.
    pub tasks: BTreeMap<Move, BTreeSet<&'static str>>,
    /// Of an attempt, as [`Phase::place`] names them.
    pub attempts: BTreeSet<Move>,
}

/// Asks the machine for everything that it does.
pub fn table() -> Table {
    let mut found = Table::default();
    let made = [Plan::Fresh, Plan::Same]
        .into_iter()
        .flat_map(|plan| [State::Pending { plan }, State::Queued { plan, not_before: None }]);
    let mut open: VecDeque<(State, Option<Attempt>)> = made.map(|state| (state, None)).collect();
    let mut known: BTreeSet<(State, Option<Attempt>)> = open.iter().copied().collect();
    let events = events();
    while let Some((state, attempt)) = open.pop_front() {
        for (task, event) in tasks(state).flat_map(|t| events.iter().map(move |e| (t, e))) {
            let policy = Policy { limits: Limits::default(), caps: Caps::default() };
            let Disposition::Accept(next) = step(&task, attempt.as_ref(), event, NOW, &policy)
            else {
                continue;
            };
            let node = plain(next.task.state, next.attempt.or(attempt));
            let (from, to) = (state.place(attempt.as_ref()), node.0.place(node.1.as_ref()));
            if from != to {
                let effects: BTreeSet<_> = next.effects.iter().map(|e| e.name()).collect();
                let always = found.tasks.entry((from, to)).or_insert_with(|| effects.clone());
                always.retain(|effect| effects.contains(effect));
            }
            found.attempts.extend(attempt_moves(attempt, next.attempt));
            if known.insert(node) {
                open.push_back(node);
            }
        }
    }
    found
}

/// What the attempt of a transition did, and how its end can be proven if that was it.
fn attempt_moves(before: Option<Attempt>, after: Option<Attempt>) -> Vec<Move> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let (from, to) = (before.phase.place(), after.phase.place());
    let proofs = [Proof::Observed, Proof::LeaseExpired, Proof::NotOurs].map(ProvenBy);
    let proven = proofs.into_iter().filter_map(|event| {
        let ended = after.step(event, FAR, &Limits::default()).accepted()?;
        Some((to, ended.phase.place()))
    });
    let moved = (from != to).then_some((from, to));
    moved.into_iter().chain(proven).collect()
}

/// Every task in this state that decisions tell apart: its parent, its review, its effort so far.
fn tasks(state: State) -> impl Iterator<Item = Task> {
    let caps = Caps::default();
    let spent = Effort { tries: 1, failed_starts: caps.starts, parks: caps.parks, fruitless: 0 };
    let braked = Effort { fruitless: caps.no_progress, ..Effort::default() };
    let efforts = [Effort::default(), spent, braked];
    let kinds = [(None, Review::Manual), (None, Review::Auto), (Some(OTHER), Review::Manual)];
    kinds.into_iter().flat_map(move |(parent, review)| {
        efforts.into_iter().map(move |effort| Task {
            id: TASK,
            parent,
            review,
            max_attempts: 2,
            state,
            reason: Reason::Created,
            since: NOW,
            attempts: ATTEMPT,
            effort,
        })
    })
}

/// A state and its acting attempt without what no decision here depends on.
fn plain(state: State, attempt: Option<Attempt>) -> (State, Option<Attempt>) {
    let (attempt_number, question, by) = (ATTEMPT, QUESTION, OTHER);
    let state = match state {
        State::Pending { .. }
        | State::Completed
        | State::Cancelled
        | State::BudgetExceeded
        | State::Failed(Failure::Publish) => state,
        State::Queued { plan, .. } => State::Queued { plan, not_before: None },
        State::Claimed { plan, .. } => State::Claimed { attempt: attempt_number, plan },
        State::Running { plan, .. } => State::Running { attempt: attempt_number, plan },
        State::Blocked(Blocked::Held { .. }) => {
            State::Blocked(Blocked::Held { attempt: attempt_number, question })
        }
        State::Blocked(Blocked::Question { .. }) => State::Blocked(Blocked::Question { question }),
        State::Blocked(Blocked::Subtasks { .. }) => {
            State::Blocked(Blocked::Subtasks { attempt: attempt_number })
        }
        State::Ready { .. } => State::Ready { attempt: attempt_number },
        State::Failed(Failure::Cause(_)) => State::Failed(Failure::Cause(Cause::Crash)),
        State::Failed(Failure::Dependency { plan, .. }) => {
            State::Failed(Failure::Dependency { by, plan })
        }
        State::Failed(Failure::Subtask { .. }) => {
            State::Failed(Failure::Subtask { by, attempt: attempt_number })
        }
        State::TimedOut { .. } => State::TimedOut { clock: Clock::Absolute },
    };
    let acting = attempt.filter(|attempt| state.attempt().is_some() && attempt.may_act());
    let acting = acting.map(|attempt| Attempt {
        number: ATTEMPT,
        lease_end: FAR,
        prepared_at: NOW,
        started_at: attempt.started_at.map(|_| NOW),
        deadline: attempt.deadline.map(|_| FAR),
        held_since: attempt.held_since.map(|_| NOW),
        phase: match attempt.phase {
            Phase::Publishing { .. } => Phase::Publishing { due: FAR },
            phase => phase,
        },
        ..Attempt::claimed(ATTEMPT, Epoch(1), FAR, NOW)
    });
    let publish = attempt.map_or(Publish::None, |attempt| attempt.publish);
    (state, acting.map(|acting| Attempt { publish, ..acting }))
}

/// Whatever can happen, with everything that decisions tell apart.
fn events() -> Vec<Event> {
    let attempt = ATTEMPT;
    let facts = QueueFacts { failed_dependency: None, budget: Standing::Left };
    let claim = ClaimFacts {
        unfinished_dependencies: 0,
        session: SessionSlot::Free,
        role: None,
        budget: Standing::Left,
        account_probe: None,
        tree: None,
    };
    let mut events = vec![
        Event::Run(facts),
        Event::Cancel,
        Event::Accept { seen: ATTEMPT },
        Event::Reject,
        Event::Answer { question: QUESTION },
        Event::Retry(facts),
        Event::Resume(facts),
        Event::Claim { facts: claim, epoch: Epoch(1), lease_end: FAR },
        Event::DependencyRested { by: OTHER },
        Event::DependencyRequeued { by: OTHER, still: None },
        Event::DependencyRequeued { by: OTHER, still: Some(OTHER) },
        Event::SubtaskRequeued { by: OTHER },
        Event::BudgetUsedUp,
        Event::Start { attempt },
        Event::Withdraw { attempt },
    ];
    let holds = [Hold::Held, Hold::Released];
    events.extend(holds.map(|hold| Event::Ask { attempt, question: QUESTION, hold }));
    events.extend(children().map(Event::SubtaskRested));
    for budget in [Standing::Left, Standing::Exceeded] {
        events.push(Event::OpenPublish { attempt, push: PUSH, budget });
        for (progress, children) in each_progress().flat_map(|p| children().map(move |c| (p, c))) {
            let facts = SuccessFacts { progress, children, budget };
            let settled = |outcome| Event::Settled { attempt, outcome, facts };
            events.extend([PushOutcome::Pushed, PushOutcome::NotPushed].map(settled));
            events.push(Event::Succeed { attempt, facts });
        }
    }
    for progress in each_progress() {
        events.extend(Cause::ALL.iter().map(|&cause| {
            let jitter = Jitter::NONE;
            let failure = FailedAttempt { cause, progress, reset_at: None, jitter };
            Event::Fail { attempt, failure }
        }));
        events.extend(Clock::ALL.iter().map(|&clock| {
            let (measured, allowed) = (Span::from_secs(2), Span::from_secs(1));
            let reading = Reading { clock, measured, allowed };
            Event::Expire { attempt, reading, progress, jitter: Jitter::NONE }
        }));
    }
    events
}

fn each_progress() -> impl Iterator<Item = Progress> {
    [Progress::Made, Progress::None].into_iter()
}

fn children() -> impl Iterator<Item = Children> {
    let some = |active, failed| Children { active, failed };
    [some(0, None), some(1, None), some(0, Some(OTHER))].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of event has a number here, so that a new one does not compile without.
    const fn number(event: &Event) -> usize {
        match event {
            Event::Run(_) => 0,
            Event::Cancel => 1,
            Event::Accept { .. } => 2,
            Event::Reject => 3,
            Event::Answer { .. } => 4,
            Event::Retry(_) => 5,
            Event::Resume(_) => 6,
            Event::Claim { .. } => 7,
            Event::DependencyRested { .. } => 8,
            Event::DependencyRequeued { .. } => 9,
            Event::SubtaskRested(_) => 10,
            Event::SubtaskRequeued { .. } => 11,
            Event::BudgetUsedUp => 12,
            Event::Start { .. } => 13,
            Event::Ask { .. } => 14,
            Event::OpenPublish { .. } => 15,
            Event::Settled { .. } => 16,
            Event::Succeed { .. } => 17,
            Event::Fail { .. } => 18,
            Event::Expire { .. } => 19,
            Event::Withdraw { .. } => 20,
        }
    }

    #[test]
    fn every_kind_of_event_is_let_happen() {
        let numbers: BTreeSet<_> = events().iter().map(number).collect();
        assert_eq!(numbers, (0..=20).collect());
    }

    #[test]
    fn moves_are_those_of_the_machine() {
        let moves = table().tasks;
        let from = |place: &str| -> Vec<&str> {
            moves.keys().filter(|(from, _)| *from == place).map(|(_, to)| *to).collect()
        };
        assert_eq!(from("PENDING"), ["CANCELLED", "QUEUED (fresh)", "QUEUED (same)"]);
        assert_eq!(from("READY"), ["CANCELLED", "COMPLETED", "PENDING"]);
        for place in ["COMPLETED", "CANCELLED", "BUDGET_EXCEEDED"] {
            assert_eq!(from(place), [""; 0], "{place} is final");
        }
        let always = &moves[&("RUNNING (publishing)", "CANCELLED")];
        assert!(always.contains("settle_publish") && always.contains("terminate"), "{always:?}");
    }

    #[test]
    fn an_attempt_ends_by_every_outcome_and_every_proof() {
        let ends = table().attempts;
        let reached: BTreeSet<_> = ends.iter().map(|(_, to)| *to).collect();
        let ending = reached.iter().filter(|place| place.starts_with("ENDING")).count();
        let ended = reached.iter().filter(|place| place.starts_with("ENDED")).count();
        assert_eq!((ending, ended), (7, 3), "{reached:?}");
        assert!(!ends.contains(&("CLAIMED", "PUBLISHING")));
    }

    #[test]
    fn every_effect_is_always_had_by_some_move() {
        let effects: BTreeSet<_> = table().tasks.into_values().flatten().collect();
        assert_eq!(effects.len(), 13, "{effects:?}");
    }
}
