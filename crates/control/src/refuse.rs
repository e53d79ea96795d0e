//! Why something is not done, in the words of whoever asked: a problem for people, a port error
//! for runners.

use belay_api::port::PortError;
use belay_api::{Code, Problem};
use belay_kernel::fence::Refusal as FenceRefusal;
use belay_kernel::task::{Denial, State, Verb};
use belay_store::blob::BlobError;
use belay_store::{Failure, Refusal};

use crate::vault::VaultError;

/// Why something is not done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It is refused, with a sentence.
    Problem(Problem),
    /// It speaks for an attempt that is not current.
    Fenced,
    /// It speaks for an attempt that is over.
    Gone,
    /// It could not be done, or nobody knows whether it was.
    Failed(Failure),
}

pub(crate) type Outcome<T> = Result<T, Refused>;

impl Refused {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self::Problem(Problem::new(code, detail))
    }

    /// Others changed the same rows again and again.
    pub(crate) fn busy() -> Self {
        Self::new(Code::Unavailable, "too many changes at once; ask again")
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<BlobError> for Refused {
    fn from(error: BlobError) -> Self {
        match error.refusal() {
            Some(refusal) => Self::new(Code::Refused, refusal.to_string()),
            None => Self::new(Code::Unavailable, format!("a blob cannot be used: {error}")),
        }
    }
}

impl From<VaultError> for Refused {
    fn from(error: VaultError) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

impl From<FenceRefusal> for Refused {
    fn from(refusal: FenceRefusal) -> Self {
        match refusal {
            FenceRefusal::Fenced => Self::Fenced,
            FenceRefusal::Gone => Self::Gone,
        }
    }
}

impl From<Denial> for Refused {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Fenced => Self::Fenced,
            Denial::Illegal { state, legal } => Self::Problem(illegal(&state, legal)),
            Denial::Blocked(_) => Self::new(Code::Refused, "the task cannot be claimed now"),
            Denial::DependencyFailed(by) => Self::new(
                Code::Refused,
                format!("task {by}, which it waits for, did not complete; retry that one first"),
            ),
            Denial::BudgetUsedUp => Self::new(
                Code::Refused,
                "the task's budget is used up; make a new task with a larger one",
            ),
            Denial::OtherQuestion(open) => Self::new(
                Code::Refused,
                format!("another question is open by now: {open}; show the task and answer that"),
            ),
            Denial::OtherAttempt(seen) => Self::new(
                Code::Refused,
                format!("the work to review is that of attempt {seen} by now; look at it first"),
            ),
            Denial::Attempt(denial) => Self::new(Code::IllegalMove, attempt(&denial)),
        }
    }
}

fn attempt(denial: &belay_kernel::attempt::Denial) -> String {
    use belay_kernel::attempt::Denial as D;
    match denial {
        D::Phase(phase) => format!("the attempt is {phase:?} and does not take this"),
        D::DeadlinePassed { .. } => "the attempt's deadline passed before it could publish".into(),
        D::LeaseTooShort { .. } => "the attempt's lease ends too soon to publish; renew it".into(),
        D::LeaseStillHeld { .. } => "the attempt's lease has not ended yet".into(),
        D::StillWaitedFor { .. } => "the machine that has it frozen is still waited for".into(),
        D::MayBeFrozen => "the attempt's sandbox may be frozen, which no lease ends".into(),
        D::OtherPush => "another push of this attempt was recorded".into(),
    }
}

/// An illegal move: the state, and what is possible.
pub(crate) fn illegal(state: &State, legal: &[Verb]) -> Problem {
    let name = state.name();
    let detail = match legal {
        [] => format!("the task is {name}; nothing can be done with it"),
        _ => {
            let verbs: Vec<_> = legal.iter().map(|verb| verb.name()).collect();
            format!("the task is {name}; possible now: {}", verbs.join(", "))
        }
    };
    Problem::new(Code::IllegalMove, detail).choices(legal)
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Problem(problem) => problem,
            Refused::Fenced => Self::new(Code::Fenced, "the attempt is not current any more"),
            Refused::Gone => Self::new(Code::Gone, "the attempt is over"),
            Refused::Failed(failure) => failed(&failure),
        }
    }
}

fn failed(failure: &Failure) -> Problem {
    let code = match failure.refusal() {
        Some(Refusal::TooLarge { .. } | Refusal::TooMany { .. }) => Code::TooLarge,
        Some(Refusal::KeyReused) => Code::IdempotencyKeyReused,
        Some(
            Refusal::NotText { .. }
            | Refusal::ForeignCursor
            | Refusal::FutureCursor
            | Refusal::BadCursor
            | Refusal::Pruned { .. },
        ) => Code::BadRequest,
        Some(Refusal::OutOfRange { .. }) => Code::BadRequest,
        Some(Refusal::Rule { .. } | Refusal::Twice(_)) => Code::Internal,
        None => Code::Unavailable,
    };
    Problem::new(code, failure.to_string())
}

impl From<Refused> for PortError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fenced => Self::Fenced,
            Refused::Gone => Self::Gone,
            Refused::Problem(problem) if problem.code == Code::Unavailable => {
                Self::Unavailable(problem.detail)
            }
            Refused::Problem(problem) => Self::Refused(problem.detail),
            Refused::Failed(failure) if failure.refusal().is_some() => {
                Self::Refused(failure.to_string())
            }
            Refused::Failed(failure) => Self::Unavailable(failure.to_string()),
        }
    }
}
