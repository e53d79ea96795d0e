//! The structure behind `why`: a task's state, since when, which rule put it there, what it waits
//! for, what happens next and when, and whether anything will ever move it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, Phase};
use crate::claim::{Blocker, ClaimFacts, blockers};
use crate::clock::{Clock, Reading};
use crate::deadline::{self, Stream};
use crate::id::{AttemptNumber, QuestionId, TaskId};
use crate::limits::{Limits, Switches};
use crate::task::{Blocked, Children, Failure, Plan, Reason, State, Task, Verb};
use crate::time::Timestamp;

/// What a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum WaitsFor {
    /// A person who may do one of the state's verbs.
    Person,
    /// A person's answer.
    Answer(QuestionId),
    /// A person's review of this attempt.
    Review(AttemptNumber),
    /// A worker of its role.
    Worker,
    /// Something that keeps it from being claimed.
    Blocker(Blocker),
    /// So many subtasks.
    Subtasks(u32),
    /// The agent.
    Agent(AttemptNumber),
    /// The outcome of a push.
    Publish(AttemptNumber),
    /// Another task, which has to be queued again.
    Task(TaskId),
}

/// What will happen by itself, and when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Upcoming {
    /// The clock that will fire, unless something happens before.
    pub clock: Clock,
    /// When.
    pub at: Timestamp,
}

/// Why something will move the task on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum LivePath {
    /// It is final: nothing has to.
    Final,
    /// An attempt acts under a lease until then; when it is over, it is lost.
    Lease(Timestamp),
    /// It can be claimed.
    Claimable,
    /// A timer will fire.
    Timer(Timestamp),
    /// A question or a review is open, or a person may go on.
    Person,
    /// It waits for something that has a name.
    Named,
    /// Nothing will: a bug, shown here and by an alert.
    None,
}

/// The answer to `why`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Why {
    /// The state.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// Why it is in that state.
    pub reason: Reason,
    /// The clock that put it there, with measured and allowed value.
    pub fired: Option<Reading>,
    /// What it waits for.
    pub waits_for: Vec<WaitsFor>,
    /// What will happen by itself.
    pub next: Vec<Upcoming>,
    /// What a person can do.
    pub verbs: Vec<Verb>,
    /// Why something will move it on.
    pub path: LivePath,
}

/// What is read to explain a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// Its last attempt.
    pub attempt: Option<&'a Attempt>,
    /// What was seen of that attempt's output.
    pub stream: Stream,
    /// What a claim would read.
    pub claim: ClaimFacts,
    /// Its subtasks.
    pub children: Children,
    /// The clock that put it in its state, as stored with the event.
    pub fired: Option<Reading>,
}

/// Explains a task.
pub fn explain(
    task: &Task,
    facts: &Facts<'_>,
    now: Timestamp,
    limits: &Limits,
    switches: &Switches,
) -> Why {
    let waits_for = waits_for(task, facts, now);
    let next = upcoming(task, facts, limits, switches);
    let path = live_path(task, facts, &waits_for);
    Why {
        state: task.state,
        since: task.since,
        reason: task.reason,
        fired: facts.fired,
        waits_for,
        next,
        verbs: task.state.verbs().to_vec(),
        path,
    }
}

fn waits_for(task: &Task, facts: &Facts<'_>, now: Timestamp) -> Vec<WaitsFor> {
    match task.state {
        State::Pending { .. } | State::TimedOut { .. } => vec![WaitsFor::Person],
        State::Queued { not_before, .. } => {
            let blockers: Vec<_> =
                blockers(not_before, &facts.claim, now).map(WaitsFor::Blocker).collect();
            if blockers.is_empty() { vec![WaitsFor::Worker] } else { blockers }
        }
        State::Claimed { attempt, .. } => vec![WaitsFor::Agent(attempt)],
        State::Running { attempt, .. } => match facts.attempt.map(|row| row.phase) {
            Some(Phase::Publishing { .. }) => vec![WaitsFor::Publish(attempt)],
            _ => vec![WaitsFor::Agent(attempt)],
        },
        State::Blocked(Blocked::Held { question, .. } | Blocked::Question { question }) => {
            vec![WaitsFor::Answer(question)]
        }
        State::Blocked(Blocked::Subtasks { .. }) => {
            vec![WaitsFor::Subtasks(facts.children.active)]
        }
        State::Ready { attempt } => vec![WaitsFor::Review(attempt)],
        State::Failed(Failure::Dependency { by, .. } | Failure::Subtask { by, .. }) => {
            vec![WaitsFor::Task(by), WaitsFor::Person]
        }
        State::Failed(Failure::Cause(_) | Failure::Publish) => vec![WaitsFor::Person],
        State::Completed | State::Cancelled | State::BudgetExceeded => vec![],
    }
}

fn upcoming(task: &Task, facts: &Facts<'_>, limits: &Limits, switches: &Switches) -> Vec<Upcoming> {
    let Some(row) = facts.attempt.filter(|row| task.state.attempt() == Some(row.number)) else {
        return vec![];
    };
    let lease = row.may_act().then_some((Clock::AttemptLease, row.lease_end));
    let clocks = deadline::clocks(row, &facts.stream, limits, switches)
        .map(|running| (running.clock, running.passes_at));
    let mut next: Vec<_> = clocks.chain(lease).map(|(clock, at)| Upcoming { clock, at }).collect();
    next.sort_by_key(|upcoming| upcoming.at);
    next
}

fn live_path(task: &Task, facts: &Facts<'_>, waits_for: &[WaitsFor]) -> LivePath {
    match task.state {
        State::Completed | State::Cancelled | State::BudgetExceeded => LivePath::Final,
        State::Pending { .. } | State::Ready { .. } => LivePath::Person,
        State::Failed(_) | State::TimedOut { .. } => LivePath::Person,
        State::Blocked(Blocked::Question { .. }) => LivePath::Person,
        State::Queued { .. } => match waits_for {
            [WaitsFor::Worker] => LivePath::Claimable,
            [WaitsFor::Blocker(Blocker::NotBefore(at))] => LivePath::Timer(*at),
            [WaitsFor::Blocker(Blocker::TreeElsewhere(holder))] => LivePath::Timer(holder.until),
            _ => LivePath::Named,
        },
        State::Claimed { .. } | State::Running { .. } | State::Blocked(Blocked::Held { .. }) => {
            let acting = facts.attempt.filter(|row| task.state.attempt() == Some(row.number));
            match acting.filter(|row| row.may_act()) {
                Some(row) => LivePath::Lease(row.lease_end),
                None => LivePath::None,
            }
        }
        State::Blocked(Blocked::Subtasks { .. }) => match facts.children.active {
            0 => LivePath::None,
            _ => LivePath::Named,
        },
    }
}

impl Reason {
    /// The reason's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Asked(verb) => verb.name(),
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::Question => "question",
            Self::Succeeded => "succeeded",
            Self::SubtasksRested => "subtasks_rested",
            Self::Requeued(_) => "requeued",
            Self::Retrying(_) => "retrying",
            Self::RoleStopped => "role_stopped",
            Self::Ended(cause) => cause.code(),
        }
    }
}

/// The sentence that goes with a state and its reason.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.reason) {
            (State::Queued { .. }, Reason::Created) => f.write_str("It is new.")?,
            (_, Reason::Created) => f.write_str("It is new, and waits to be run.")?,
            (State::Queued { plan: Plan::Republish, .. }, Reason::Asked(verb)) => {
                write!(f, "A person asked to {verb} it; its work is published again.")?;
            }
            (_, Reason::Asked(verb)) => write!(f, "A person asked to {verb} it.")?,
            (_, Reason::Claimed) => f.write_str("A worker took it and prepares its sandbox.")?,
            (_, Reason::Started) => f.write_str("Its agent was started.")?,
            (_, Reason::Question) => f.write_str("Its agent asked a question.")?,
            (State::Blocked(_), Reason::Succeeded) => {
                f.write_str("Its agent succeeded, but subtasks are not finished.")?;
            }
            (_, Reason::Succeeded) => f.write_str("Its agent succeeded.")?,
            (_, Reason::SubtasksRested) => f.write_str("Its last subtask completed.")?,
            (_, Reason::Requeued(by)) => write!(f, "Task {by} is on its way again.")?,
            (_, Reason::Retrying(cause)) => {
                write!(f, "Its last attempt ended ({cause}); it is tried again.")?;
            }
            (_, Reason::RoleStopped) => f.write_str("Its role was stopped at once.")?,
            (_, Reason::Ended(cause)) => write!(f, "It ended: {cause}.")?,
        }
        match self.fired {
            Some(reading) => write!(f, " The clock that fired: {reading}."),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Standing;
    use crate::cause::Cause;
    use crate::claim::{SessionSlot, TreeHolder};
    use crate::deadline::Pace;
    use crate::id::{Epoch, RunnerId};
    use crate::retry::Effort;
    use crate::role::Hold;
    use crate::task::Review;
    use crate::time::Span;

    const NOW: Timestamp = Timestamp::from_millis(5_000);
    const FREE: ClaimFacts = ClaimFacts {
        unfinished_dependencies: 0,
        session: SessionSlot::Free,
        role: None,
        budget: Standing::Left,
        account_probe: None,
        tree: None,
    };
    const ONE: AttemptNumber = AttemptNumber(1);

    fn why(state: State, attempt: Option<&Attempt>, claim: ClaimFacts, active: u32) -> Why {
        let task = Task {
            id: TaskId::from_bits(1),
            parent: None,
            review: Review::Manual,
            max_attempts: 1,
            state,
            reason: Reason::Created,
            since: Timestamp::EPOCH,
            attempts: ONE,
            effort: Effort::default(),
        };
        let children = Children { active, failed: None };
        let mut stream = Stream::started(Timestamp::EPOCH, Pace::Partial);
        stream.output(NOW);
        let facts = Facts { attempt, stream, claim, children, fired: None };
        explain(&task, &facts, NOW, &Limits::default(), &Switches::default())
    }

    fn running() -> Attempt {
        let lease_end = Timestamp::from_millis(600_000);
        Attempt::claimed(ONE, Epoch(1), lease_end, Timestamp::EPOCH)
            .step(crate::attempt::Event::Start, Timestamp::EPOCH, &Limits::default())
            .accepted()
            .unwrap()
    }

    #[test]
    fn a_queued_task_says_what_keeps_it() {
        let queued = State::Queued { plan: Plan::Fresh, not_before: None };
        let free = why(queued, None, FREE, 0);
        assert_eq!((free.waits_for, free.path), (vec![WaitsFor::Worker], LivePath::Claimable));

        let stopped = ClaimFacts { role: Some(Hold::RoleStopped), ..FREE };
        let kept = why(queued, None, stopped, 0);
        assert_eq!(kept.waits_for, [WaitsFor::Blocker(Blocker::RoleStopped)]);
        assert_eq!(kept.path, LivePath::Named);

        let later = NOW.after(Span::from_secs(1));
        let holder = TreeHolder { runner: RunnerId::from_bits(7), until: later };
        let elsewhere = why(queued, None, ClaimFacts { tree: Some(holder), ..FREE }, 0);
        assert_eq!(elsewhere.waits_for, [WaitsFor::Blocker(Blocker::TreeElsewhere(holder))]);
        assert_eq!(elsewhere.path, LivePath::Timer(later));

        let parked =
            why(State::Queued { plan: Plan::Same, not_before: Some(later) }, None, FREE, 0);
        assert_eq!(parked.path, LivePath::Timer(later));
    }

    #[test]
    fn a_running_task_says_which_clocks_run() {
        let row = running();
        let state = State::Running { attempt: ONE, plan: Plan::Fresh };
        let why = why(state, Some(&row), FREE, 0);
        assert_eq!(why.waits_for, [WaitsFor::Agent(ONE)]);
        assert_eq!(why.path, LivePath::Lease(row.lease_end));
        let clocks: Vec<_> =
            why.next.iter().map(|next| (next.clock, next.at.as_millis())).collect();
        assert_eq!(
            clocks,
            [
                (Clock::Inactivity, 65_001),
                (Clock::AttemptLease, 600_000),
                (Clock::Absolute, 3_600_001)
            ]
        );
    }

    #[test]
    fn a_held_question_stops_every_clock_but_its_own_and_the_lease() {
        let held = running()
            .step(crate::attempt::Event::Hold, NOW, &Limits::default())
            .accepted()
            .unwrap();
        let question = QuestionId::from_bits(4);
        let state = State::Blocked(Blocked::Held { attempt: ONE, question });
        let why = why(state, Some(&held), FREE, 0);
        assert_eq!(why.waits_for, [WaitsFor::Answer(question)]);
        let clocks: Vec<_> =
            why.next.iter().map(|next| (next.clock, next.at.as_millis())).collect();
        assert_eq!(clocks, [(Clock::Linger, 305_001), (Clock::AttemptLease, 600_000)]);
    }

    #[test]
    fn a_claim_and_a_publish_say_when_they_are_over() {
        let claimed = Attempt::claimed(ONE, Epoch(1), Timestamp::MAX, Timestamp::EPOCH);
        let state = State::Claimed { attempt: ONE, plan: Plan::Fresh };
        let next = why(state, Some(&claimed), FREE, 0).next;
        let clocks: Vec<_> = next.iter().map(|next| (next.clock, next.at.as_millis())).collect();
        assert_eq!(clocks[..2], [(Clock::Claim, 120_001), (Clock::ClaimTotal, 900_001)]);

        let push = crate::publish::Push {
            commit: crate::publish::CommitId::from_sha1([0; 20]),
            expected: None,
        };
        let publishing = running()
            .step(crate::attempt::Event::OpenPublish(push), NOW, &Limits::default())
            .accepted()
            .unwrap();
        let state = State::Running { attempt: ONE, plan: Plan::Fresh };
        let why = why(state, Some(&publishing), FREE, 0);
        assert_eq!(why.waits_for, [WaitsFor::Publish(ONE)]);
        assert_eq!((why.next[0].clock, why.next[0].at.as_millis()), (Clock::Publish, 35_001));
    }

    #[test]
    fn a_state_that_nothing_moves_is_a_bug_that_is_seen() {
        let state = State::Running { attempt: ONE, plan: Plan::Fresh };
        assert_eq!(why(state, None, FREE, 0).path, LivePath::None, "no attempt row");
        let over = running()
            .step(
                crate::attempt::Event::End(crate::attempt::Outcome::Lost),
                NOW,
                &Limits::default(),
            )
            .accepted()
            .unwrap();
        assert_eq!(why(state, Some(&over), FREE, 0).path, LivePath::None, "its attempt is over");
        let blocked = State::Blocked(Blocked::Subtasks { attempt: ONE });
        assert_eq!(why(blocked, None, FREE, 0).path, LivePath::None, "no subtask is active");
        assert_eq!(why(blocked, None, FREE, 2).path, LivePath::Named);
    }

    #[test]
    fn every_state_at_rest_says_what_a_person_can_do() {
        let by = TaskId::from_bits(7);
        let dependency = State::Failed(Failure::Dependency { by, plan: Plan::Fresh });
        assert_eq!(
            why(dependency, None, FREE, 0).waits_for,
            [WaitsFor::Task(by), WaitsFor::Person]
        );
        for state in [
            State::Pending { plan: Plan::Fresh },
            State::Ready { attempt: ONE },
            State::Failed(Failure::Publish),
            State::TimedOut { clock: Clock::Absolute },
            State::Blocked(Blocked::Question { question: QuestionId::from_bits(1) }),
        ] {
            let why = why(state, None, FREE, 0);
            assert_eq!(why.path, LivePath::Person, "{state:?}");
            assert_eq!(why.verbs, state.verbs());
        }
        assert_eq!(why(State::Completed, None, FREE, 0).path, LivePath::Final);
    }

    #[test]
    fn the_sentence_names_the_clock_with_measured_and_allowed() {
        let mut why = why(State::TimedOut { clock: Clock::Inactivity }, None, FREE, 0);
        why.reason = Reason::Ended(Cause::Inactivity);
        why.fired = Some(Reading {
            clock: Clock::Inactivity,
            measured: Span::from_secs(61),
            allowed: Span::from_secs(60),
        });
        assert_eq!(
            why.to_string(),
            "It ended: inactivity. The clock that fired: inactivity 1m1s of 1m allowed."
        );
        assert_eq!(why.reason.code(), "inactivity");
        why.state = State::Queued { plan: Plan::Republish, not_before: None };
        (why.reason, why.fired) = (Reason::Asked(Verb::Resume), None);
        assert_eq!(why.to_string(), "A person asked to resume it; its work is published again.");
    }
}
