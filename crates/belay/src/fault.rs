//! How a command ends when it does not do what was asked: an exit code and one sentence.

use belay_api::{ClientError, Code, Problem, Unanswered};

/// Exit codes, as `--help` and docs/cli.md tell them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// It is refused: an illegal move, a dirty tree, a missing agent.
    Refused = 3,
    /// No server answers.
    Unreachable = 4,
    /// It waits for a person's answer.
    NeedsPerson = 5,
    /// A deadline passed.
    TimedOut = 6,
    /// It was cancelled.
    Cancelled = 7,
    /// Its budget is used up.
    BudgetExceeded = 8,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The table of exit codes at the end of `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done; for `run` also: ready for review
  1    failed
  2    the command line makes no sense
  3    refused: an illegal move, a dirty tree, a missing agent, …
  4    no server answers
  5    a person has to answer a question first
  6    timed out
  7    cancelled
  8    budget exceeded
  130  interrupted; the task goes on";

/// Why a command did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fault {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// What, why, and what next.
    pub(crate) text: String,
}

impl Fault {
    /// The command line makes no sense.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, text: text.into() }
    }

    /// It is not allowed, or not possible as things are.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, text: text.into() }
    }

    /// No server answers.
    pub(crate) fn unreachable(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unreachable, text: text.into() }
    }

    /// Something failed.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, text: text.into() }
    }

    /// Something failed on a file.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::failed(format!("{} cannot be used: {error}", path.display()))
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let exit = match problem.code {
            Code::BadRequest | Code::MethodNotAllowed | Code::TooLarge => Exit::Usage,
            Code::Unauthorized
            | Code::Forbidden
            | Code::NotFound
            | Code::Ambiguous
            | Code::IllegalMove
            | Code::Fenced
            | Code::Gone
            | Code::OutOfOrder
            | Code::Refused
            | Code::IdempotencyKeyReused
            | Code::Overtaken => Exit::Refused,
            Code::Unavailable | Code::TooManyRequests => Exit::Unreachable,
            Code::Internal => Exit::Failed,
        };
        let mut text = problem.detail;
        // An illegal move tells what is possible in its own sentence.
        if !problem.choices.is_empty() && problem.code != Code::IllegalMove {
            let word = match problem.code {
                Code::Ambiguous => "It could be",
                _ => "Possible now",
            };
            text = format!("{text}\n{word}: {}", problem.choices.join(", "));
        }
        Self { exit, text }
    }
}

impl From<Unanswered> for Fault {
    fn from(unanswered: Unanswered) -> Self {
        let mut text = unanswered.to_string();
        let mut source = std::error::Error::source(&unanswered);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        let next = match std::env::var_os("BELAY_URL").is_some_and(|url| !url.is_empty()) {
            true => "BELAY_URL names it: start it there, or unset the variable",
            false => "`belay up` starts a server",
        };
        Self::unreachable(format!("{text}; {next}"))
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => problem.into(),
            ClientError::Unanswered(unanswered) => unanswered.into(),
        }
    }
}

/// How a program that follows a task ends, by the task's state.
pub(crate) fn exit_of_state(state: &str) -> Exit {
    match state {
        "COMPLETED" | "READY" => Exit::Done,
        "TIMED_OUT" => Exit::TimedOut,
        "CANCELLED" => Exit::Cancelled,
        "BUDGET_EXCEEDED" => Exit::BudgetExceeded,
        "BLOCKED" => Exit::NeedsPerson,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_code() {
        for (state, code) in [
            ("COMPLETED", 0),
            ("READY", 0),
            ("FAILED", 1),
            ("BLOCKED", 5),
            ("TIMED_OUT", 6),
            ("CANCELLED", 7),
            ("BUDGET_EXCEEDED", 8),
        ] {
            assert_eq!(exit_of_state(state) as u8, code, "{state}");
        }
    }

    #[test]
    fn a_problem_says_what_is_possible_instead() {
        for (code, text) in [
            (Code::Ambiguous, "two fit\nIt could be: ab, ac"),
            (Code::Refused, "two fit\nPossible now: ab, ac"),
            (Code::IllegalMove, "two fit"),
        ] {
            let fault = Fault::from(Problem::new(code, "two fit").choices(["ab", "ac"]));
            assert_eq!((fault.exit, fault.text.as_str()), (Exit::Refused, text));
        }
        let fault = Fault::from(Problem::new(Code::Unavailable, "later"));
        assert_eq!(fault.exit, Exit::Unreachable);
    }
}
