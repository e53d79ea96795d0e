//! The diagnostic rule: when a stuck workflow gets a task that looks into it, and when it does not.
//!
//! A diagnostic is started only if *all* conditions hold; each is a value with what was measured
//! and what is allowed, and a sweep that starts none stores why. The rule was once the main source
//! of runaway work: it asked for a result that simple tasks never made, its counters lived in
//! memory and counted the same run each loop, and its list of states at rest missed a new one. So:
//! the [`Record`] is stored, each run is counted once, and standings come from the task machine.
//!
//! Counters belong to a *round*. A person's retry begins a new one: what was tried before stays in
//! the record, and the caps hold for each round.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::disposition::Disposition::{self, Accept, Deny, Ignore};
use crate::id::TaskId;
use crate::limits::{Caps, Limits, Switches};
use crate::time::{Span, Timestamp};
use crate::workflow::{HumanReason, Standing, Tally, Validated};

/// One condition of the rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Diagnostics are switched on.
    SwitchedOn,
    /// The workflow has tasks.
    HasTasks,
    /// Every task is at rest.
    AllAtRest,
    /// At least one FAILED or timed out.
    SomeFailed,
    /// No result is validated.
    NoValidatedResult,
    /// No diagnostic completed while the tasks it looked into still failed.
    NoneInVain,
    /// No diagnostic is under way.
    NonePending,
    /// Fewer than the allowed number of diagnostics failed in a row.
    ConsecutiveFailures,
    /// Fewer than the allowed number of diagnostics were made.
    Runs,
    /// The repository can be cloned.
    RepositoryClonable,
    /// The cool-down since the last diagnostic is over.
    CoolDown,
    /// The last task ended long enough ago.
    StuckFor,
}

impl Condition {
    /// The condition's stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::SwitchedOn => "switched_on",
            Self::HasTasks => "has_tasks",
            Self::AllAtRest => "all_at_rest",
            Self::SomeFailed => "some_failed",
            Self::NoValidatedResult => "no_validated_result",
            Self::NoneInVain => "none_in_vain",
            Self::NonePending => "none_pending",
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::Runs => "runs",
            Self::RepositoryClonable => "repository_clonable",
            Self::CoolDown => "cool_down",
            Self::StuckFor => "stuck_for",
        }
    }
}

/// Something that was measured, or is allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// How many.
    Count(u32),
    /// How long.
    Time(Span),
    /// It never happened, so it is long enough ago.
    Never,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Time(span) => write!(f, "{span}"),
            Self::Never => f.write_str("never"),
        }
    }
}

/// How a measured value relates to the one beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It has to be at least that.
    AtLeast,
    /// It may be at most that.
    AtMost,
}

/// One condition, looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Which.
    pub condition: Condition,
    /// What was measured.
    pub measured: Measure,
    /// How it has to relate to what is allowed.
    pub bound: Bound,
    /// What is allowed.
    pub allowed: Measure,
}

impl Check {
    /// Whether the condition holds.
    pub fn holds(&self) -> bool {
        match (self.measured, self.bound) {
            (Measure::Never, Bound::AtLeast | Bound::AtMost) => true,
            (Measure::Count(_) | Measure::Time(_), Bound::AtLeast) => self.measured >= self.allowed,
            (Measure::Count(_) | Measure::Time(_), Bound::AtMost) => self.measured <= self.allowed,
        }
    }

    const fn at_least(condition: Condition, measured: u32, allowed: u32) -> Self {
        let (measured, allowed) = (Measure::Count(measured), Measure::Count(allowed));
        Self { condition, measured, bound: Bound::AtLeast, allowed }
    }

    const fn at_most(condition: Condition, measured: u32, allowed: u32) -> Self {
        let (measured, allowed) = (Measure::Count(measured), Measure::Count(allowed));
        Self { condition, measured, bound: Bound::AtMost, allowed }
    }

    /// Waiting is over at its end.
    fn waited(
        condition: Condition,
        since: Option<Timestamp>,
        now: Timestamp,
        allowed: Span,
    ) -> Self {
        let measured = since.map_or(Measure::Never, |since| Measure::Time(now.since(since)));
        Self { condition, measured, bound: Bound::AtLeast, allowed: Measure::Time(allowed) }
    }
}

/// `runs: 3, at most 2`.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        write!(f, "{}: {}, {bound} {}", self.condition.code(), self.measured, self.allowed)
    }
}

/// One diagnostic of a workflow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The task that was made for it.
    pub task: TaskId,
    /// The round it belongs to.
    pub round: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// What was seen then.
    pub seen: Vec<Check>,
    /// How and when it ended.
    pub ended: Option<(RunEnd, Timestamp)>,
}

/// How a diagnostic ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// It completed, and so did what it looked into, or that is being tried again.
    Cured,
    /// It completed, and what it looked into still failed.
    InVain,
    /// It came to rest without completing.
    Failed,
}

impl RunEnd {
    /// How a diagnostic whose task stands like this has ended, given the tasks it looked into.
    pub const fn of(diagnostic: Standing, tasks: &Tally) -> Option<Self> {
        match diagnostic {
            Standing::Active => None,
            Standing::Completed if tasks.diagnosable() > 0 => Some(Self::InVain),
            Standing::Completed => Some(Self::Cured),
            Standing::Failed
            | Standing::TimedOut
            | Standing::Cancelled
            | Standing::BudgetExceeded => Some(Self::Failed),
        }
    }
}

/// What is stored of a workflow's diagnostics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// How often a person has begun anew.
    pub round: u32,
    /// Every diagnostic, of every round, oldest first.
    pub runs: Vec<Run>,
}

/// What happens to a workflow's diagnostics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A diagnostic was decided on; committed together with its task.
    Started {
        /// The task made for it.
        task: TaskId,
        /// What was seen.
        seen: Vec<Check>,
    },
    /// A diagnostic's task came to rest.
    Ended {
        /// The task.
        task: TaskId,
        /// How.
        end: RunEnd,
    },
    /// A person retried, resumed or answered one of the workflow's tasks.
    PersonRetried,
}

/// Why a record does not take an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// A diagnostic is under way.
    Pending,
    /// As many as allowed were made.
    CapReached,
    /// No diagnostic has this task.
    UnknownRun,
}

impl Record {
    /// The runs of the present round.
    fn current(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.runs.iter().filter(|run| run.round == self.round)
    }

    /// How many diagnostics this round has had.
    pub fn made(&self) -> u32 {
        count(self.current())
    }

    /// How many are under way, of whatever round.
    pub fn pending(&self) -> u32 {
        count(self.runs.iter().filter(|run| run.ended.is_none()))
    }

    /// How many of the latest ones failed, one after the other.
    pub fn consecutive_failures(&self) -> u32 {
        let ended = self.current().rev().filter_map(|run| run.ended);
        count(ended.take_while(|(end, _)| *end == RunEnd::Failed))
    }

    /// How many completed without helping.
    pub fn in_vain(&self) -> u32 {
        let end = |run: &&Run| matches!(run.ended, Some((RunEnd::InVain, _)));
        count(self.current().filter(end))
    }

    /// When the latest one ended, of whatever round.
    fn last_end(&self) -> Option<Timestamp> {
        self.runs.iter().filter_map(|run| run.ended).map(|(_, at)| at).max()
    }

    /// The record after `event`.
    pub fn step(&self, event: Event, now: Timestamp, caps: &Caps) -> Disposition<Self, Denial> {
        match event {
            Event::Started { task, seen } => {
                if self.runs.iter().any(|run| run.task == task) {
                    return Ignore;
                }
                if self.pending() > 0 {
                    return Deny(Denial::Pending);
                }
                if self.made() >= caps.diagnostics {
                    return Deny(Denial::CapReached);
                }
                let run = Run { task, round: self.round, started_at: now, seen, ended: None };
                let mut next = self.clone();
                next.runs.push(run);
                Accept(next)
            }
            Event::Ended { task, end } => {
                let mut next = self.clone();
                match next.runs.iter_mut().find(|run| run.task == task) {
                    None => Deny(Denial::UnknownRun),
                    // Each run is counted once, however often a sweep sees it.
                    Some(run) if run.ended.is_some() => Ignore,
                    Some(run) => {
                        run.ended = Some((end, now));
                        Accept(next)
                    }
                }
            }
            Event::PersonRetried => {
                if self.made() == 0 {
                    return Ignore;
                }
                Accept(Self { round: self.round.saturating_add(1), ..self.clone() })
            }
        }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

/// What else the rule reads.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The workflow's own tasks, without diagnostics.
    pub tasks: &'a Tally,
    /// Its diagnostic tasks.
    pub diagnostics: &'a Tally,
    /// Whether a result is validated.
    pub validated: Validated,
    /// What is stored of its diagnostics.
    pub record: &'a Record,
    /// Whether its repository can be cloned.
    pub repository: Repository,
    /// When its last task ended.
    pub last_task_ended: Option<Timestamp>,
}

/// Whether a workflow's repository can be cloned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repository {
    /// It has none, so nothing stands in the way.
    None,
    /// It can.
    Clonable,
    /// It cannot, or that is not known.
    NotClonable,
}

/// What the rule says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Start a diagnostic, and store what was seen with it.
    Start {
        /// Every condition, all of which hold.
        seen: Vec<Check>,
    },
    /// Start none.
    Hold {
        /// Every condition that does not hold.
        because: Vec<Check>,
        /// When waiting alone will have changed the answer; nothing, if it cannot.
        recheck_at: Option<Timestamp>,
    },
}

/// Whether diagnostics can still help a workflow whose tasks failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// One will be started, now or later.
    Possible,
    /// None will: a person has to act.
    NeedsHuman(HumanReason),
}

/// Whether a diagnostic is to be started now.
pub fn decide(
    look: &Look<'_>,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
    switches: &Switches,
) -> Decision {
    let checks = checks(look, now, limits, caps, switches);
    let because: Vec<Check> = checks.iter().filter(|check| !check.holds()).copied().collect();
    if because.is_empty() {
        return Decision::Start { seen: checks };
    }
    let waits =
        |check: &Check| matches!(check.condition, Condition::CoolDown | Condition::StuckFor);
    let recheck_at = because.iter().all(waits).then(|| {
        let cooled = look.record.last_end().map(|end| end.after(limits.diagnostic_cooldown));
        let stuck = look.last_task_ended.map(|end| end.after(limits.diagnostic_stuck));
        cooled.max(stuck).unwrap_or(now)
    });
    Decision::Hold { because, recheck_at }
}

fn checks(
    look: &Look<'_>,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
    switches: &Switches,
) -> Vec<Check> {
    let (tasks, record) = (look.tasks, look.record);
    let validated = u32::from(look.validated == Validated::Yes);
    let clonable = u32::from(look.repository != Repository::NotClonable);
    let pending = record.pending().max(look.diagnostics.active);
    vec![
        Check::at_least(Condition::SwitchedOn, u32::from(switches.diagnostics), 1),
        Check::at_least(Condition::HasTasks, tasks.total(), 1),
        Check::at_most(Condition::AllAtRest, tasks.active, 0),
        Check::at_least(Condition::SomeFailed, tasks.diagnosable(), 1),
        Check::at_most(Condition::NoValidatedResult, validated, 0),
        Check::at_most(Condition::NoneInVain, record.in_vain(), 0),
        Check::at_most(Condition::NonePending, pending, 0),
        under(
            Condition::ConsecutiveFailures,
            record.consecutive_failures(),
            caps.diagnostic_failures,
        ),
        under(Condition::Runs, record.made(), caps.diagnostics),
        Check::at_least(Condition::RepositoryClonable, clonable, 1),
        Check::waited(Condition::CoolDown, record.last_end(), now, limits.diagnostic_cooldown),
        Check::waited(Condition::StuckFor, look.last_task_ended, now, limits.diagnostic_stuck),
    ]
}

/// Fewer than `cap`: at most one less; and with a cap of zero, none can be made at all.
const fn under(condition: Condition, measured: u32, cap: u32) -> Check {
    match cap.checked_sub(1) {
        Some(most) => Check::at_most(condition, measured, most),
        None => Check::at_least(condition, 0, 1),
    }
}

/// Whether diagnostics can still help a workflow whose tasks failed.
pub fn outlook(record: &Record, caps: &Caps, switches: &Switches) -> Outlook {
    if !switches.diagnostics {
        Outlook::NeedsHuman(HumanReason::DiagnosticsOff)
    } else if record.in_vain() > 0 {
        Outlook::NeedsHuman(HumanReason::DiagnosedInVain)
    } else if record.consecutive_failures() >= caps.diagnostic_failures {
        Outlook::NeedsHuman(HumanReason::DiagnosticsFail)
    } else if record.made() >= caps.diagnostics && record.pending() == 0 {
        Outlook::NeedsHuman(HumanReason::DiagnosticsUsedUp)
    } else {
        Outlook::Possible
    }
}

#[cfg(test)]
mod tests;
