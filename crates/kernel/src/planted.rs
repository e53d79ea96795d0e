//! Bugs that can be planted, to see that the simulator finds them.
//!
//! A simulator that finds nothing may be blind. So the real code has places where it can be made
//! wrong on purpose: each asks [`is`], which is `false` at compile time unless the feature
//! `planted` is on. Nothing but the simulator's own tests turns that on; the tidy test holds it.
//!
//! The choice belongs to a thread, because a simulated world does: worlds side by side do not see
//! each other's bugs.

/// A bug, by what is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// Whoever speaks is heard, whatever attempt it speaks for.
    FenceDropped,
    /// Automatic retries do not heed `max_attempts`.
    RetryUncapped,
    /// Ends before `start` are not counted.
    StartsUncapped,
    /// A completed task can be cancelled.
    CompletionOverwritten,
    /// A stop is acknowledged before its processes are proven gone.
    ReceiptWithoutProof,
    /// A stop is acknowledged before it is known what became of the push.
    ReceiptBeforeSettled,
    /// A session is free although a push of it is open.
    SessionFreedEarly,
    /// The publish gate does not look at the deadline.
    GateAfterDeadline,
    /// A question is gone with the attempt that held it.
    QuestionLost,
    /// Usage is added up as if each report told only what is new.
    UsageCountedTwice,
    /// A task gets subtasks whatever its state is.
    SubtaskAfterStop,
    /// A task is claimed before what it waits for has completed.
    DependencyNotAwaited,
    /// A lease that still lasts is taken for proof of death.
    LeaseProofEarly,
    /// A row that is due is condemned without being judged again.
    SweepWithoutRedecision,
    /// Timers are lost with the node that set them.
    TimerInMemory,
    /// A node ends only what it has seen begin.
    StopFromMemory,
    /// A decision does not expect the other tasks that it read.
    ReadSetWithoutOthers,
    /// A subtask is made without its parent's decisions noticing.
    SubtaskUnseen,
    /// A report is taken again when it is told again.
    ReportTakenTwice,
    /// An effect is called done before it is performed.
    EffectSettledFirst,
    /// A commit that was overtaken is taken for done.
    OvertakenTakenForDone,
    /// A beat is answered although it was not committed.
    BeatAnsweredUncommitted,
    /// The work is pushed before the gate is opened.
    PushBeforeGate,
    /// *Not pushed* is said without a fence push.
    NotPushedWithoutFence,
    /// The agent is executed before the commit that lets it run.
    ExecutedBeforeCommit,
    /// A lease is counted from when the answer came.
    LeaseFromReply,
    /// The transcript is sealed without its tail.
    TranscriptSealedEarly,
    /// The working tree is not saved.
    KeptTreeDropped,
    /// The sandbox is destroyed before its output is saved.
    DestroyedBeforeSaved,
    /// An answer is written to the agent again by a runner that does not know that it was.
    AnsweredTwice,
    /// A commit writes the lease end back that it has read.
    LeaseWrittenBack,
    /// Events are numbered before they are committed.
    CursorByPlainSequence,
}

impl Bug {
    /// Every one of them.
    pub const ALL: &[Self] = &[
        Self::FenceDropped,
        Self::RetryUncapped,
        Self::StartsUncapped,
        Self::CompletionOverwritten,
        Self::ReceiptWithoutProof,
        Self::ReceiptBeforeSettled,
        Self::SessionFreedEarly,
        Self::GateAfterDeadline,
        Self::QuestionLost,
        Self::UsageCountedTwice,
        Self::SubtaskAfterStop,
        Self::DependencyNotAwaited,
        Self::LeaseProofEarly,
        Self::SweepWithoutRedecision,
        Self::TimerInMemory,
        Self::StopFromMemory,
        Self::ReadSetWithoutOthers,
        Self::SubtaskUnseen,
        Self::ReportTakenTwice,
        Self::EffectSettledFirst,
        Self::OvertakenTakenForDone,
        Self::BeatAnsweredUncommitted,
        Self::PushBeforeGate,
        Self::NotPushedWithoutFence,
        Self::ExecutedBeforeCommit,
        Self::LeaseFromReply,
        Self::TranscriptSealedEarly,
        Self::KeptTreeDropped,
        Self::DestroyedBeforeSaved,
        Self::AnsweredTwice,
        Self::LeaseWrittenBack,
        Self::CursorByPlainSequence,
    ];
}

/// Whether this bug is planted: never, in the product.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use chosen::{Planting, is, plant};

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::Bug;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is planted on this thread.
    pub fn is(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }

    /// As long as this is there, a bug is planted on its thread.
    #[derive(Debug)]
    pub struct Planting(PhantomData<*const ()>);

    /// Plants a bug on this thread.
    pub fn plant(bug: Bug) -> Planting {
        CHOSEN.set(Some(bug));
        Planting(PhantomData)
    }

    impl Drop for Planting {
        fn drop(&mut self) {
            CHOSEN.set(None);
        }
    }
}
