//! The termination sequence: a saga whose step is stored, resumed after a crash, each step
//! idempotent and bounded.
//!
//! ```text
//!  0 commit ENDING ─► 1 kill and prove ─► 2 save transcript ─► 3 save tree
//!                                            ─► 4 destroy ─► 5 settle ─► 6 tell
//!  storage dies with the processes?  0 ─► freeze ─► 2 ─► 3 ─► kill and prove ─► 4 ─► 5 ─► 6
//!  the sandbox is to stay?           0 ─► freeze ─► 2 ─► 3 ─► 5 ─► 6, and later, if it is to end
//!                                    after all: kill and prove ─► 4 ─► 5 ─► 6
//! ```
//!
//! **Barrier:** nothing that could destroy transcript or tree happens before they are durable.
//! Where storage outlives the processes the kill comes first, because what is dead cannot write
//! any more. Where it does not, the sandbox is frozen, read, and killed after that.

use serde::{Deserialize, Serialize};

use crate::attempt::Outcome;
use crate::cause::Cause;

/// Whether a sandbox's files can be read after its processes are gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// They can.
    Outlives,
    /// They are gone with the processes.
    DiesWithProcesses,
}

/// The step that is to be done next. Step 0 is the commit that stored the first one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Stop the processes without losing their files.
    Freeze,
    /// Kill the processes and prove that they are gone.
    Kill,
    /// Save the transcript's tail and the agent's own session files, under its real session id.
    SaveTranscript,
    /// Save the working tree.
    SaveTree,
    /// Destroy the sandbox.
    Destroy,
    /// Settle, by compare-and-set on (task, attempt, saga).
    Settle,
    /// Emit `sandbox.terminated`.
    Tell,
    /// Nothing is left to do.
    Done,
}

impl Step {
    /// Whether it is the runner's to do. The others are control's: they are done in the commit that
    /// makes the session free, and not because a runner has come to them.
    pub const fn is_runners(self) -> bool {
        match self {
            Self::Freeze | Self::Kill | Self::SaveTranscript | Self::SaveTree | Self::Destroy => {
                true
            }
            Self::Settle | Self::Tell | Self::Done => false,
        }
    }
}

/// How a step went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Went {
    /// It is done, now or earlier; gone, 404 and 410 are done.
    Done,
    /// It was not done, or nobody knows: it is tried again, and the id is kept.
    Failed,
    /// It can never be done, and what is missing is named: the machine never came back.
    Impossible,
}

/// What is known to be safe so far; stored with the step.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Kept {
    /// The transcript is durable, or its missing range is named.
    pub transcript: bool,
    /// The tree is durable, or it is proven that there is none any more.
    pub tree: bool,
}

/// The saga of one attempt's sandbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Termination {
    /// Whether files outlive processes.
    pub storage: Storage,
    /// What is to be done next.
    pub step: Step,
    /// What is safe.
    pub kept: Kept,
}

impl Termination {
    /// The saga as it is stored in the commit that enters ENDING.
    pub const fn begin(storage: Storage) -> Self {
        let step = match storage {
            Storage::Outlives => Step::Kill,
            Storage::DiesWithProcesses => Step::Freeze,
        };
        Self { storage, step, kept: Kept { transcript: false, tree: false } }
    }

    /// The saga of a sandbox that is to stay, frozen, until its session goes on or is over. What is
    /// frozen cannot act, and what cannot be frozen is ended like any other.
    pub const fn freeze() -> Self {
        Self { step: Step::Freeze, ..Self::begin(Storage::Outlives) }
    }

    /// The saga of an attempt that ends so. Where its task asked to keep the agent alive, the
    /// sandbox of one that has done its part, or waits, stays; every other is ended.
    pub fn of_end(outcome: Outcome, cause: Option<Cause>, keep_alive: bool) -> Self {
        let waits = match outcome {
            Outcome::Succeeded | Outcome::Question => true,
            Outcome::Failed
            | Outcome::TimedOut
            | Outcome::Cancelled
            | Outcome::BudgetExceeded
            | Outcome::Lost => cause == Some(Cause::IdleTimeout),
        };
        match keep_alive && waits {
            true => Self::freeze(),
            false => Self::begin(Storage::Outlives),
        }
    }

    /// The saga of a frozen sandbox whose transcript and tree are safe, if it stays: there is
    /// nothing to destroy.
    #[must_use]
    pub const fn stays(self) -> Self {
        match self.step {
            Step::Destroy => Self { step: Step::Settle, ..self },
            _ => self,
        }
    }

    /// The saga of a frozen sandbox that is to end after all. Its transcript and tree are safe.
    #[must_use]
    pub const fn ends(self) -> Self {
        Self { step: Step::Kill, ..self }
    }

    /// Whether everything that the sandbox held is safe.
    const fn is_safe(&self) -> bool {
        self.kept.transcript && self.kept.tree
    }

    /// The saga after its step went so.
    ///
    /// A step that failed is tried again: the intent stands, the id is kept. Only proven absence
    /// gets past saving, so that the only copy is never destroyed.
    #[must_use]
    pub const fn after(self, went: Went) -> Self {
        use Step::{Destroy, Done, Freeze, Kill, SaveTranscript, SaveTree, Settle, Tell};
        if matches!(went, Went::Failed) {
            return self;
        }
        let (step, kept) = match (self.step, self.storage) {
            (Freeze, Storage::Outlives) if matches!(went, Went::Impossible) => (Kill, self.kept),
            // A sandbox that cannot be frozen, because it is gone, has nothing left to read.
            (Freeze, _) => (SaveTranscript, self.kept),
            (Kill, Storage::Outlives) if self.is_safe() => (Destroy, self.kept),
            (Kill, Storage::Outlives) => (SaveTranscript, self.kept),
            (Kill, Storage::DiesWithProcesses) => (Destroy, self.kept),
            (SaveTranscript, _) => (SaveTree, Kept { transcript: true, ..self.kept }),
            (SaveTree, Storage::Outlives) => (Destroy, Kept { tree: true, ..self.kept }),
            (SaveTree, Storage::DiesWithProcesses) => (Kill, Kept { tree: true, ..self.kept }),
            (Destroy, _) => (Settle, self.kept),
            (Settle, _) => (Tell, self.kept),
            (Tell | Done, _) => (Done, self.kept),
        };
        Self { step, kept, ..self }
    }

    /// Whether the step that is next could destroy transcript or tree.
    pub const fn next_destroys(&self) -> bool {
        match (self.step, self.storage) {
            (Step::Destroy, _) | (Step::Kill, Storage::DiesWithProcesses) => true,
            (Step::Kill, Storage::Outlives)
            | (Step::Freeze | Step::SaveTranscript | Step::SaveTree, _)
            | (Step::Settle | Step::Tell | Step::Done, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(storage: Storage) -> Vec<Step> {
        let mut saga = Termination::begin(storage);
        let mut steps = vec![saga.step];
        while saga.step != Step::Done && steps.len() < 20 {
            saga = saga.after(Went::Done);
            steps.push(saga.step);
        }
        steps
    }

    #[test]
    fn where_storage_outlives_the_processes_the_kill_comes_first() {
        use Step::*;
        let all = [Kill, SaveTranscript, SaveTree, Destroy, Settle, Tell, Done];
        assert_eq!(steps(Storage::Outlives), all);
    }

    #[test]
    fn where_it_does_not_the_sandbox_is_frozen_and_read_first() {
        use Step::*;
        let all = [Freeze, SaveTranscript, SaveTree, Kill, Destroy, Settle, Tell, Done];
        assert_eq!(steps(Storage::DiesWithProcesses), all);
    }

    #[test]
    fn a_sandbox_that_stays_is_frozen_and_read_and_nothing_is_destroyed() {
        use Step::*;
        let mut saga = Termination::freeze();
        for step in [Freeze, SaveTranscript, SaveTree] {
            assert_eq!(saga.step, step);
            saga = saga.after(Went::Done);
        }
        let stays = saga.stays();
        assert_eq!((saga.step, stays.step), (Destroy, Settle));
        let over = stays.after(Went::Done).after(Went::Done);
        assert_eq!(over.step, Done);
        let ends = over.ends();
        assert_eq!(ends.step, Kill);
        assert_eq!(ends.after(Went::Done).step, Destroy, "what is safe is not saved again");
    }

    #[test]
    fn an_agent_stays_that_has_done_its_part_or_waits_if_it_was_asked_for() {
        use Outcome::*;
        for outcome in [Succeeded, Question, Failed, TimedOut, Cancelled, BudgetExceeded, Lost] {
            for cause in Cause::ALL.iter().copied().map(Some).chain([None]) {
                let waits =
                    matches!(outcome, Succeeded | Question) || cause == Some(Cause::IdleTimeout);
                let asked = Termination::of_end(outcome, cause, true);
                assert_eq!(asked.step == Step::Freeze, waits, "{outcome:?} {cause:?}");
                assert_eq!(asked.storage, Storage::Outlives);
                let not_asked = Termination::of_end(outcome, cause, false);
                assert_eq!(not_asked, Termination::begin(Storage::Outlives));
            }
        }
    }

    #[test]
    fn a_step_is_the_runners_until_everything_is_safe_and_gone() {
        use Step::*;
        let all = [Freeze, Kill, SaveTranscript, SaveTree, Destroy, Settle, Tell, Done];
        let mine = all.map(Step::is_runners);
        assert_eq!(mine, [true, true, true, true, true, false, false, false]);
        for storage in [Storage::Outlives, Storage::DiesWithProcesses] {
            let sides: Vec<_> = steps(storage).into_iter().map(Step::is_runners).collect();
            assert!(sides.is_sorted_by(|one, next| one >= next), "it is handed over once");
        }
    }

    #[test]
    fn what_cannot_be_frozen_is_ended() {
        let saga = Termination::freeze();
        assert_eq!(saga.after(Went::Failed), saga, "tried again");
        let killed = saga.after(Went::Impossible);
        assert_eq!(killed, Termination::begin(Storage::Outlives));
        assert_eq!(killed.stays(), killed);
    }

    #[test]
    fn destroying_is_what_ends_the_files() {
        let destroys =
            |storage, step| Termination { step, ..Termination::begin(storage) }.next_destroys();
        for storage in [Storage::Outlives, Storage::DiesWithProcesses] {
            assert!(destroys(storage, Step::Destroy));
            assert!(!destroys(storage, Step::SaveTree));
        }
        assert!(destroys(Storage::DiesWithProcesses, Step::Kill));
        assert!(!destroys(Storage::Outlives, Step::Kill));
    }

    #[test]
    fn lesson_a_failed_terminate_is_not_reported_as_terminated() {
        let saga = Termination::begin(Storage::Outlives);
        assert_eq!(saga.after(Went::Failed), saga);
        assert_eq!(saga.after(Went::Impossible).step, Step::SaveTranscript);
    }

    proptest! {
        #[test]
        fn nothing_is_destroyed_before_it_is_kept(
            outlives: bool,
            went in prop::collection::vec(
                prop::sample::select(&[Went::Done, Went::Failed, Went::Impossible]), 0..40),
        ) {
            let storage =
                if outlives { Storage::Outlives } else { Storage::DiesWithProcesses };
            let mut saga = Termination::begin(storage);
            for went in went {
                if saga.next_destroys() {
                    prop_assert!(saga.kept.transcript && saga.kept.tree);
                }
                let next = saga.after(went);
                prop_assert!(next.kept.transcript >= saga.kept.transcript);
                prop_assert!(next.kept.tree >= saga.kept.tree);
                saga = next;
            }
        }
    }
}
