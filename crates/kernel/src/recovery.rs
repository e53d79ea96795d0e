//! What a lost worker means for the task it held: one event for the task's own machine.
//!
//! Nothing here changes a task. The event names the attempt that was seen, so that the machine
//! fences it if the task has moved on, and the machine alone decides what follows: queued again or
//! failed, a question left open, a push looked after. Rows were once patched directly, and only
//! those `in progress`: what was claimed and not yet started stayed claimed for ever.

use crate::cause::Cause;
use crate::retry::{Failure, Jitter, Progress};
use crate::task::Event;
use crate::worker::Held;

/// The event that a lost worker's task is given. `progress` is what the attempt is known to have
/// left behind.
pub const fn recover(held: Held, progress: Progress, jitter: Jitter) -> Event {
    let failure = Failure { cause: Cause::Lost, progress, reset_at: None, jitter };
    Event::Fail { attempt: held.attempt, failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{self, Attempt, Outcome, Phase};
    use crate::id::{AttemptNumber, Epoch, QuestionId, TaskId};
    use crate::limits::Limits;
    use crate::publish::{CommitId, Push};
    use crate::retry::Effort;
    use crate::task::{
        Blocked, Effect, Plan, Policy, Reason, Review, State, Task, Transition, step,
    };
    use crate::time::Timestamp;

    const TASK: TaskId = TaskId::from_bits(1);
    const ONE: AttemptNumber = AttemptNumber(1);

    /// What becomes of a task in `state`, whose attempt went through `events`, when its worker is
    /// lost.
    fn lost(state: State, events: &[attempt::Event]) -> Transition {
        let lease_end = Timestamp::from_millis(600_000);
        let mut row = Attempt::claimed(ONE, Epoch(1), lease_end, Timestamp::EPOCH);
        for event in events {
            row = row.step(*event, Timestamp::EPOCH, &Limits::default()).accepted().unwrap();
        }
        let task = Task {
            id: TASK,
            parent: None,
            review: Review::Manual,
            max_attempts: 2,
            state,
            reason: Reason::Claimed,
            since: Timestamp::EPOCH,
            attempts: ONE,
            effort: Effort::default(),
        };
        let held = Held { task: TASK, attempt: ONE };
        let event = recover(held, Progress::Made, Jitter::NONE);
        step(&task, Some(&row), &event, Timestamp::EPOCH, &Policy::default()).accepted().unwrap()
    }

    #[test]
    fn lesson_claimed_and_running_tasks_are_both_recovered() {
        let claimed = State::Claimed { attempt: ONE, plan: Plan::Fresh };
        let running = State::Running { attempt: ONE, plan: Plan::Fresh };
        for (state, events) in [(claimed, &[][..]), (running, &[attempt::Event::Start])] {
            let next = lost(state, events);
            assert!(matches!(next.task.state, State::Queued { .. }), "{state:?}");
            let row = next.attempt.unwrap();
            assert_eq!(row.phase, Phase::Ending(Outcome::Lost));
            assert!(next.effects.contains(&Effect::Terminate(ONE)));
        }
    }

    #[test]
    fn a_question_stays_asked_and_a_publish_is_settled() {
        let question = QuestionId::from_bits(3);
        let held = State::Blocked(Blocked::Held { attempt: ONE, question });
        let asked = lost(held, &[attempt::Event::Start, attempt::Event::Hold]);
        assert_eq!(asked.task.state, State::Blocked(Blocked::Question { question }));

        let push = Push { commit: CommitId::from_sha1([1; 20]), expected: None };
        let running = State::Running { attempt: ONE, plan: Plan::Fresh };
        let events = [attempt::Event::Start, attempt::Event::OpenPublish(push)];
        let publishing = lost(running, &events);
        assert_eq!(publishing.task.state, running);
        assert_eq!(publishing.effects, [Effect::SettlePublish(ONE)]);
    }
}
