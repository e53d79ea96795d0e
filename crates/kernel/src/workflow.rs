//! A workflow: a goal made of tasks. Its status, and the results that agents submit to it.
//!
//! The status is computed from how the tasks stand, never stored beside them. A simple workflow
//! needs no result: some completed and none failed is done. The rule that asked for a validated
//! result even then kept starting diagnostics for work that had succeeded.
//!
//! ```text
//!   submit ──► PENDING ──► VALIDATED (a person, or a validation command that exits 0)
//!                  └─────► REJECTED  (a person, or one that exits otherwise)
//! ```

use serde::{Deserialize, Serialize};

use crate::diagnostic::Outlook;
use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::task::State;

/// How one task of a workflow stands, by the task machine's own grouping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Not at rest: something, or someone, will move it.
    Active,
    /// COMPLETED.
    Completed,
    /// FAILED.
    Failed,
    /// `TIMED_OUT`.
    TimedOut,
    /// CANCELLED.
    Cancelled,
    /// `BUDGET_EXCEEDED`.
    BudgetExceeded,
}

impl From<&State> for Standing {
    fn from(state: &State) -> Self {
        match state {
            State::Pending { .. }
            | State::Queued { .. }
            | State::Claimed { .. }
            | State::Running { .. }
            | State::Blocked(_)
            | State::Ready { .. } => Self::Active,
            State::Completed => Self::Completed,
            State::Failed(_) => Self::Failed,
            State::TimedOut { .. } => Self::TimedOut,
            State::Cancelled => Self::Cancelled,
            State::BudgetExceeded => Self::BudgetExceeded,
        }
    }
}

/// How many tasks stand how.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Tally {
    /// Not at rest.
    pub active: u32,
    /// COMPLETED.
    pub completed: u32,
    /// FAILED.
    pub failed: u32,
    /// `TIMED_OUT`.
    pub timed_out: u32,
    /// CANCELLED.
    pub cancelled: u32,
    /// `BUDGET_EXCEEDED`.
    pub budget_exceeded: u32,
}

impl FromIterator<Standing> for Tally {
    fn from_iter<I: IntoIterator<Item = Standing>>(standings: I) -> Self {
        let mut tally = Self::default();
        for standing in standings {
            let count = match standing {
                Standing::Active => &mut tally.active,
                Standing::Completed => &mut tally.completed,
                Standing::Failed => &mut tally.failed,
                Standing::TimedOut => &mut tally.timed_out,
                Standing::Cancelled => &mut tally.cancelled,
                Standing::BudgetExceeded => &mut tally.budget_exceeded,
            };
            *count = count.saturating_add(1);
        }
        tally
    }
}

impl Tally {
    /// How many tasks there are.
    pub const fn total(&self) -> u32 {
        self.active
            .saturating_add(self.completed)
            .saturating_add(self.unsuccessful())
            .saturating_add(self.cancelled)
    }

    /// How many failed in a way that a diagnostic can look into.
    pub const fn diagnosable(&self) -> u32 {
        self.failed.saturating_add(self.timed_out)
    }

    /// How many came to rest without what was asked for, and not because a person said so.
    /// Reaching a limit is never success.
    pub const fn unsuccessful(&self) -> u32 {
        self.diagnosable().saturating_add(self.budget_exceeded)
    }
}

/// Whether a workflow has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "reason")]
pub enum Status {
    /// It goes on by itself.
    Open(OpenReason),
    /// Its goal is reached.
    Done(DoneReason),
    /// Nothing will happen until a person acts.
    NeedsHuman(HumanReason),
}

/// Why a workflow is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenReason {
    /// It has no tasks yet.
    NoTasks,
    /// Tasks, or a diagnostic, are not at rest.
    TasksActive,
    /// Tasks failed, and a diagnostic will look into it.
    AwaitsDiagnosis,
}

/// Why a workflow is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoneReason {
    /// A result was validated.
    ResultValidated,
    /// Some tasks completed, and none failed.
    TasksCompleted,
}

/// What a workflow wants a person for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HumanReason {
    /// A diagnostic completed, and the tasks it looked into still failed.
    DiagnosedInVain,
    /// Diagnostics failed too often in a row.
    DiagnosticsFail,
    /// As many diagnostics as allowed were made.
    DiagnosticsUsedUp,
    /// Tasks failed, and diagnostics are switched off.
    DiagnosticsOff,
    /// A budget is used up.
    BudgetUsedUp,
    /// Every task was cancelled.
    AllCancelled,
}

/// Whether a result of the workflow has been validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validated {
    /// One has.
    Yes,
    /// None has.
    No,
}

/// Where the workflow stands. `tasks` are its own tasks, `diagnostics` those that look into them.
pub const fn status(
    tasks: &Tally,
    diagnostics: &Tally,
    validated: Validated,
    outlook: Outlook,
) -> Status {
    if matches!(validated, Validated::Yes) {
        return Status::Done(DoneReason::ResultValidated);
    }
    if tasks.active > 0 || diagnostics.active > 0 {
        return Status::Open(OpenReason::TasksActive);
    }
    if tasks.total() == 0 {
        return Status::Open(OpenReason::NoTasks);
    }
    if tasks.diagnosable() > 0 {
        return match outlook {
            Outlook::Possible => Status::Open(OpenReason::AwaitsDiagnosis),
            Outlook::NeedsHuman(reason) => Status::NeedsHuman(reason),
        };
    }
    if tasks.budget_exceeded > 0 {
        return Status::NeedsHuman(HumanReason::BudgetUsedUp);
    }
    if tasks.completed == 0 {
        return Status::NeedsHuman(HumanReason::AllCancelled);
    }
    Status::Done(DoneReason::TasksCompleted)
}

/// What happens when a result is validated.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum OnValidated {
    /// Every task of the workflow that is not at rest is stopped.
    StopAll,
    /// Nothing: they go on.
    #[default]
    Nothing,
}

/// Something that a result rests on: a name and what it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// What it is, like `commit`, `file` or `test run`.
    pub name: String,
    /// What it says, like a hash, a path or a line of output.
    pub value: String,
}

/// How large a result may be.
pub const MARKDOWN_BYTES: usize = 100 * 1024;
/// How much evidence a result may have.
pub const EVIDENCE_ITEMS: usize = 50;
/// How long the name of evidence may be.
pub const EVIDENCE_NAME_BYTES: usize = 100;
/// How long evidence may be.
pub const EVIDENCE_VALUE_BYTES: usize = 4 * 1024;

/// Why a result is not taken. Nothing of it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmissionError {
    /// It says nothing.
    #[error("the result is empty")]
    Empty,
    /// Its text is too long.
    #[error("the result has {bytes} bytes, more than {MARKDOWN_BYTES}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It has too much evidence.
    #[error("the result has {items} pieces of evidence, more than {EVIDENCE_ITEMS}")]
    TooMuchEvidence {
        /// How much.
        items: usize,
    },
    /// A piece of evidence is too long, or has no name.
    #[error(
        "evidence {index} needs a name of 1 to {EVIDENCE_NAME_BYTES} bytes and at most \
         {EVIDENCE_VALUE_BYTES} bytes of text"
    )]
    BadEvidence {
        /// Which, counted from 1.
        index: usize,
    },
}

/// Whether a result with this text and evidence may be submitted.
pub fn check_submission(markdown: &str, evidence: &[Evidence]) -> Result<(), SubmissionError> {
    if markdown.trim().is_empty() {
        return Err(SubmissionError::Empty);
    }
    if markdown.len() > MARKDOWN_BYTES {
        return Err(SubmissionError::TooLong { bytes: markdown.len() });
    }
    if evidence.len() > EVIDENCE_ITEMS {
        return Err(SubmissionError::TooMuchEvidence { items: evidence.len() });
    }
    let bad = |item: &Evidence| {
        item.name.trim().is_empty()
            || item.name.len() > EVIDENCE_NAME_BYTES
            || item.value.len() > EVIDENCE_VALUE_BYTES
    };
    match evidence.iter().position(bad) {
        Some(at) => Err(SubmissionError::BadEvidence { index: at + 1 }),
        None => Ok(()),
    }
}

/// Who judged a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// A person.
    Person,
    /// The validation command, which ended with this status.
    Command {
        /// Its exit status.
        exit: i32,
    },
}

/// Where a submitted result stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultState {
    /// Nobody has judged it.
    Pending,
    /// It is what was asked for.
    Validated(Judge),
    /// It is not.
    Rejected(Judge),
}

/// What happens to a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultEvent {
    /// A person says that it is right.
    Validate,
    /// A person says that it is not.
    Reject,
    /// The validation command ended.
    CommandExited {
        /// Its exit status.
        exit: i32,
    },
    /// The validation command could not be run, which says nothing about the result.
    CommandUnavailable,
}

/// A result's change, with what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResultTransition {
    /// The state to store.
    pub state: ResultState,
    /// What has to be done about it, in the same commit.
    pub effect: Option<ResultEffect>,
}

/// What a result's change asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultEffect {
    /// Stop every task of the workflow that is not at rest.
    StopAll,
}

/// Why a result does not take an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultDenial {
    /// It was judged otherwise before; the agent may submit another one.
    AlreadyJudged(ResultState),
}

impl ResultState {
    /// The result after `event`.
    pub const fn step(
        self,
        event: ResultEvent,
        on_validated: OnValidated,
    ) -> Disposition<ResultTransition, ResultDenial> {
        use ResultEvent::{CommandExited, CommandUnavailable, Reject, Validate};
        match (self, event) {
            (Self::Pending, Validate) => validated(Judge::Person, on_validated),
            (Self::Pending, CommandExited { exit: 0 }) => {
                validated(Judge::Command { exit: 0 }, on_validated)
            }
            (Self::Pending, Reject) => rejected(Judge::Person),
            (Self::Pending, CommandExited { exit }) => rejected(Judge::Command { exit }),
            (Self::Pending | Self::Validated(_) | Self::Rejected(_), CommandUnavailable)
            | (Self::Validated(_), Validate | CommandExited { exit: 0 })
            | (Self::Rejected(_), Reject) => Ignore,
            (Self::Validated(_), Reject | CommandExited { .. })
            | (Self::Rejected(_), Validate | CommandExited { exit: 0 }) => {
                Deny(ResultDenial::AlreadyJudged(self))
            }
            (Self::Rejected(_), CommandExited { .. }) => Ignore,
        }
    }
}

const fn validated(
    judge: Judge,
    on_validated: OnValidated,
) -> Disposition<ResultTransition, ResultDenial> {
    let effect = match on_validated {
        OnValidated::StopAll => Some(ResultEffect::StopAll),
        OnValidated::Nothing => None,
    };
    Accept(ResultTransition { state: ResultState::Validated(judge), effect })
}

const fn rejected(judge: Judge) -> Disposition<ResultTransition, ResultDenial> {
    Accept(ResultTransition { state: ResultState::Rejected(judge), effect: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CF` as one completed and one failed task.
    fn tally(letters: &str) -> Tally {
        letters
            .chars()
            .map(|letter| match letter {
                'A' => Standing::Active,
                'C' => Standing::Completed,
                'F' => Standing::Failed,
                'T' => Standing::TimedOut,
                'X' => Standing::Cancelled,
                'B' => Standing::BudgetExceeded,
                other => panic!("no standing {other}"),
            })
            .collect()
    }

    /// The status of a workflow with these tasks and diagnostics.
    fn check(tasks: &str, diagnostics: &str, outlook: Outlook, expected: Status) {
        let (tasks, diagnostics) = (tally(tasks), tally(diagnostics));
        assert_eq!(status(&tasks, &diagnostics, Validated::No, outlook), expected, "{tasks:?}");
    }

    #[test]
    fn a_workflow_is_open_done_or_needs_a_person() {
        use Outlook::Possible;
        let done = Status::Done(DoneReason::TasksCompleted);
        let active = Status::Open(OpenReason::TasksActive);
        let vain = Outlook::NeedsHuman(HumanReason::DiagnosedInVain);
        for (tasks, diagnostics, outlook, expected) in [
            ("", "", Possible, Status::Open(OpenReason::NoTasks)),
            ("A", "", Possible, active),
            ("CA", "", Possible, active),
            ("FA", "", vain, active),
            ("F", "A", vain, active),
            ("C", "", Possible, done),
            ("CC", "", vain, done),
            ("CX", "", Possible, done),
            ("C", "F", Possible, done),
            ("CF", "", Possible, Status::Open(OpenReason::AwaitsDiagnosis)),
            ("T", "", Possible, Status::Open(OpenReason::AwaitsDiagnosis)),
            ("F", "C", vain, Status::NeedsHuman(HumanReason::DiagnosedInVain)),
            ("T", "C", vain, Status::NeedsHuman(HumanReason::DiagnosedInVain)),
            ("B", "", Possible, Status::NeedsHuman(HumanReason::BudgetUsedUp)),
            ("CB", "", Possible, Status::NeedsHuman(HumanReason::BudgetUsedUp)),
            ("X", "", Possible, Status::NeedsHuman(HumanReason::AllCancelled)),
        ] {
            check(tasks, diagnostics, outlook, expected);
        }
    }

    #[test]
    fn a_validated_result_is_done_whatever_the_tasks_do() {
        let done = Status::Done(DoneReason::ResultValidated);
        for tasks in ["", "A", "F", "CFB"] {
            let outlook = Outlook::NeedsHuman(HumanReason::DiagnosticsUsedUp);
            assert_eq!(status(&tally(tasks), &tally("A"), Validated::Yes, outlook), done);
        }
    }

    #[test]
    fn tallies_count_every_standing_once() {
        let tally = tally("AACFTTTXBB");
        assert_eq!((tally.total(), tally.diagnosable(), tally.unsuccessful()), (10, 4, 6));
    }

    /// Plays each event on each state: `V`, `R` accepted; `.` ignored; `-` denied.
    #[test]
    fn every_result_state_takes_or_refuses_every_event() {
        let events = [
            ResultEvent::Validate,
            ResultEvent::Reject,
            ResultEvent::CommandExited { exit: 0 },
            ResultEvent::CommandExited { exit: 1 },
            ResultEvent::CommandUnavailable,
        ];
        let row = |state: ResultState| {
            let letters =
                events.iter().map(|event| match state.step(*event, OnValidated::Nothing) {
                    Accept(to) => match to.state {
                        ResultState::Pending => 'P',
                        ResultState::Validated(_) => 'V',
                        ResultState::Rejected(_) => 'R',
                    },
                    Ignore => '.',
                    Deny(ResultDenial::AlreadyJudged(was)) => {
                        assert_eq!(was, state);
                        '-'
                    }
                });
            letters.collect::<String>()
        };
        assert_eq!(row(ResultState::Pending), "VRVR.");
        assert_eq!(row(ResultState::Validated(Judge::Person)), ".-.-.");
        assert_eq!(row(ResultState::Rejected(Judge::Command { exit: 1 })), "-.-..");
    }

    #[test]
    fn a_validated_result_stops_all_if_it_should() {
        let step = |event, policy| ResultState::Pending.step(event, policy).accepted().unwrap();
        for event in [ResultEvent::Validate, ResultEvent::CommandExited { exit: 0 }] {
            let stop = step(event, OnValidated::StopAll);
            assert_eq!(stop.effect, Some(ResultEffect::StopAll));
            assert_eq!(step(event, OnValidated::Nothing).effect, None);
        }
        let rejected = step(ResultEvent::CommandExited { exit: 3 }, OnValidated::StopAll);
        assert_eq!(rejected.effect, None);
        assert_eq!(rejected.state, ResultState::Rejected(Judge::Command { exit: 3 }));
        let by_person = step(ResultEvent::Reject, OnValidated::StopAll);
        assert_eq!(by_person.state, ResultState::Rejected(Judge::Person));
        let by_person = step(ResultEvent::Validate, OnValidated::StopAll);
        assert_eq!(by_person.state, ResultState::Validated(Judge::Person));
    }

    #[test]
    fn results_are_bounded_at_exactly_their_bounds() {
        let evidence = |name: usize, value: usize| Evidence {
            name: "n".repeat(name),
            value: "v".repeat(value),
        };
        let text = |bytes: usize| "x".repeat(bytes);
        let most = evidence(100, 4_096);
        assert_eq!(check_submission(&text(102_400), &vec![most.clone(); 50]), Ok(()));
        assert_eq!(check_submission("done", &[evidence(1, 0)]), Ok(()));
        assert_eq!(check_submission(" \n", &[]), Err(SubmissionError::Empty));
        assert_eq!(
            check_submission(&text(102_401), &[]),
            Err(SubmissionError::TooLong { bytes: 102_401 })
        );
        assert_eq!(
            check_submission("x", &vec![most.clone(); 51]),
            Err(SubmissionError::TooMuchEvidence { items: 51 })
        );
        for bad in [evidence(101, 1), evidence(1, 4_097), evidence(0, 1)] {
            assert_eq!(
                check_submission("x", &[most.clone(), bad]),
                Err(SubmissionError::BadEvidence { index: 2 })
            );
        }
        assert_eq!(
            SubmissionError::TooLong { bytes: 102_401 }.to_string(),
            "the result has 102401 bytes, more than 102400"
        );
    }
}
