//! What a lost worker means for the tasks it had, as proposals to the tasks' own machine.
//!
//! Nothing here changes a task. Each proposal names the attempt it saw, so that the machine fences
//! it if the task has moved on. Rows were once patched directly, and only those `in progress`: what
//! was claimed and not yet started stayed claimed for ever.

use crate::cause::Cause;
use crate::id::{AttemptNumber, TaskId};
use crate::worker::{Held, Kind, StopMeans};

/// Where the attempt of a lost worker is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Being prepared.
    Claimed,
    /// The agent acts.
    Running,
    /// The agent has asked, and is held until its answer.
    Holding,
    /// The agent is gone, and its work is being pushed.
    Publishing,
    /// The task has moved on already.
    Ending,
}

/// What the task's machine is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proposal {
    /// End the attempt as lost; the task is queued again or settled by its own rules.
    RecoverTask {
        /// The task.
        task: TaskId,
        /// The attempt that was seen.
        attempt: AttemptNumber,
        /// Why.
        cause: Cause,
        /// How its agent is stopped.
        means: StopMeans,
    },
    /// End the attempt; the task goes on waiting for its answer.
    ReleaseHeld {
        /// The task.
        task: TaskId,
        /// The attempt that was seen.
        attempt: AttemptNumber,
        /// How its agent is stopped.
        means: StopMeans,
    },
    /// Let any runner with the credential find out what became of the push.
    SettlePublish {
        /// The task.
        task: TaskId,
        /// The attempt that was seen.
        attempt: AttemptNumber,
    },
}

/// What is proposed for an attempt at `stage` whose worker of this `kind` is lost; nothing, where
/// the attempt only waits for the proof of its end.
pub const fn propose(held: Held, stage: Stage, kind: Kind) -> Option<Proposal> {
    let Held { task, attempt } = held;
    let means = kind.stop_means();
    match stage {
        Stage::Claimed | Stage::Running => {
            Some(Proposal::RecoverTask { task, attempt, cause: Cause::Lost, means })
        }
        Stage::Holding => Some(Proposal::ReleaseHeld { task, attempt, means }),
        Stage::Publishing => Some(Proposal::SettlePublish { task, attempt }),
        Stage::Ending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunnerId;
    use crate::worker::{Place, ProcessIdentity};

    const HELD: Held = Held { task: TaskId::from_bits(1), attempt: AttemptNumber(2) };

    fn slot() -> Kind {
        Kind::Slot { runner: RunnerId::from_bits(1), place: Place::Remote }
    }

    /// Only tasks in progress were recovered: what was claimed, and its agent dead, stayed so.
    #[test]
    fn lesson_claimed_and_running_tasks_are_both_recovered() {
        let Held { task, attempt } = HELD;
        let recover =
            Proposal::RecoverTask { task, attempt, cause: Cause::Lost, means: StopMeans::Kill };
        assert_eq!(propose(HELD, Stage::Claimed, slot()), Some(recover));
        assert_eq!(propose(HELD, Stage::Running, slot()), Some(recover));
    }

    #[test]
    fn a_question_stays_asked_a_publish_is_settled_and_an_end_stands() {
        let Held { task, attempt } = HELD;
        assert_eq!(
            propose(HELD, Stage::Holding, slot()),
            Some(Proposal::ReleaseHeld { task, attempt, means: StopMeans::Kill })
        );
        assert_eq!(
            propose(HELD, Stage::Publishing, slot()),
            Some(Proposal::SettlePublish { task, attempt })
        );
        assert_eq!(propose(HELD, Stage::Ending, slot()), None);
    }

    #[test]
    fn an_external_agents_task_is_recovered_by_a_fence_alone() {
        let agent = ProcessIdentity::new(77, 1, 1).unwrap();
        let Held { task, attempt } = HELD;
        let means = StopMeans::FenceOnly;
        assert_eq!(
            propose(HELD, Stage::Running, Kind::External { agent }),
            Some(Proposal::RecoverTask { task, attempt, cause: Cause::Lost, means })
        );
        assert_eq!(
            propose(HELD, Stage::Holding, Kind::External { agent }),
            Some(Proposal::ReleaseHeld { task, attempt, means })
        );
    }
}
