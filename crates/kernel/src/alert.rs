//! Alerts: what a person should hear of, as a judgement on measured values, and the life of each.
//!
//! ```text
//!  measured ─► judge ─► signals (kind, subject, sentence)
//!                          │ held long enough
//!        pending ──────────┴──► firing ──signal gone──► cleared
//! ```
//!
//! An alert is told twice: when it begins to fire, and when it is over. Between these it is a row,
//! so a restart neither repeats nor forgets it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{RunnerId, SandboxId, TaskId};
use crate::limits::{Caps, Limits};
use crate::mass_death::Census;
use crate::meter::{Recent, percent};
use crate::role::RoleName;
use crate::time::{Span, Timestamp};

/// Stops that fail, in a hundred: more are an alert.
pub const STOP_FAILURES: u64 = 10;
/// Attempts that end by inactivity, in a hundred: more are an alert.
pub const INACTIVITY_TIMEOUTS: u64 = 20;
/// How much of a budget is used, in a hundred: from here on it is an alert.
pub const BUDGET_USED: u64 = 80;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $code:literal,)*) => {
        /// What an alert is about.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AlertKind))]
        #[serde(rename_all = "snake_case")]
        pub enum Kind { $($(#[$doc])* $name),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }
        }
    };
}

kinds! {
    /// More than a tenth of the stops lately were not proven in time.
    StopFailures "stop_failures",
    /// More than a fifth of the attempts lately ended by the inactivity limit.
    InactivityTimeouts "inactivity_timeouts",
    /// A sandbox is in the database, but its runner does not have it, for a day.
    SandboxMissing "sandbox_missing",
    /// A runner joins again and again, or a role's breaker is open.
    WorkersFlapping "workers_flapping",
    /// Four fifths of a task's budget are used.
    BudgetNearlyUsed "budget_nearly_used",
    /// Most runners fell silent together.
    MassDeath "mass_death",
    /// Nothing will move a task on that is not final.
    NoLivePath "no_live_path",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Kind {
    /// How long its signal has to hold before it fires.
    pub const fn holds_for(self, limits: &Limits) -> Span {
        match self {
            Self::SandboxMissing => limits.sandbox_missing,
            // Whoever announces an end may be a moment behind the end.
            Self::NoLivePath => limits.orphan_sweep,
            Self::StopFailures
            | Self::InactivityTimeouts
            | Self::WorkersFlapping
            | Self::BudgetNearlyUsed
            | Self::MassDeath => Span::ZERO,
        }
    }
}

/// What was measured at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// What happened within the alert window.
    pub recent: Recent,
    /// Stops that are not proven yet although their time is over.
    pub overdue_stops: u64,
    /// Sandboxes that rows want and their runners do not have.
    pub missing: Vec<SandboxId>,
    /// How often runners joined within the breaker's window.
    pub joins: Vec<(RunnerId, usize)>,
    /// Roles whose breaker is open.
    pub open_breakers: Vec<RoleName>,
    /// Task trees under way with a budget, and how much of it is used, in a hundred.
    pub budgets: Vec<(TaskId, u64)>,
    /// How the runners stand.
    pub census: Census,
    /// Tasks without a live path.
    pub pathless: Vec<TaskId>,
}

/// Something that is not as it should be, now.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Signal {
    /// What it is about.
    pub kind: Kind,
    /// Which one; nothing, where there is only one.
    pub subject: String,
    /// A sentence with the measured and the allowed value.
    pub sentence: String,
}

fn signal(kind: Kind, subject: impl ToString, sentence: String) -> Signal {
    Signal { kind, subject: subject.to_string(), sentence }
}

/// Judges what was measured: every signal, in order.
pub fn judge(measured: &Measured, limits: &Limits, caps: &Caps) -> Vec<Signal> {
    let window = limits.alert_window;
    let mut signals = Vec::new();
    let failed = measured.recent.stops.bad + measured.overdue_stops;
    let stops = measured.recent.stops.all() + measured.overdue_stops;
    if failed * 100 > stops * STOP_FAILURES {
        signals.push(signal(
            Kind::StopFailures,
            "",
            format!(
                "{failed} of {stops} stops within {window} were not proven in {}: {} % (allowed: \
                 {STOP_FAILURES} %)",
                limits.stop_proof,
                percent(failed, stops),
            ),
        ));
    }
    let (inactive, ended) = (measured.recent.inactivity, measured.recent.ended);
    // What timed out a moment ago has not ended yet.
    let ended = ended.max(inactive);
    if inactive * 100 > ended * INACTIVITY_TIMEOUTS {
        signals.push(signal(
            Kind::InactivityTimeouts,
            "",
            format!(
                "{inactive} of {ended} attempts within {window} ended by the inactivity limit: {} \
                 % (allowed: {INACTIVITY_TIMEOUTS} %)",
                percent(inactive, ended),
            ),
        ));
    }
    each(&mut signals, measured, limits, caps);
    if measured.census.is_mass_death() {
        let Census { runners, fell_silent, .. } = measured.census;
        let sentence = format!("{fell_silent} of {runners} runners fell silent together");
        signals.push(signal(Kind::MassDeath, "", sentence));
    }
    signals.sort();
    signals
}

/// The signals of single things.
fn each(signals: &mut Vec<Signal>, measured: &Measured, limits: &Limits, caps: &Caps) {
    for sandbox in &measured.missing {
        let sentence = format!(
            "sandbox {sandbox} is in the database, but its runner does not have it; allowed for {}",
            limits.sandbox_missing
        );
        signals.push(signal(Kind::SandboxMissing, sandbox, sentence));
    }
    for (runner, count) in &measured.joins {
        if *count >= caps.breaker_exits as usize {
            let sentence = format!(
                "runner {runner} joined {count} times within {} (allowed: fewer than {})",
                limits.breaker_window, caps.breaker_exits
            );
            signals.push(signal(Kind::WorkersFlapping, runner, sentence));
        }
    }
    for role in &measured.open_breakers {
        let sentence = format!("workers of role {role} end again and again: its breaker is open");
        signals.push(signal(Kind::WorkersFlapping, role, sentence));
    }
    for (task, used) in &measured.budgets {
        if *used >= BUDGET_USED {
            let sentence =
                format!("task {task} has used {used} % of its budget (told from {BUDGET_USED} %)");
            signals.push(signal(Kind::BudgetNearlyUsed, task, sentence));
        }
    }
    for task in &measured.pathless {
        let sentence = format!("nothing will move task {task} on: a fault of Belay's");
        signals.push(signal(Kind::NoLivePath, task, sentence));
    }
}

/// The life of one alert.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// Its signal is there, but not for long enough.
    Pending {
        /// Since when.
        since: Timestamp,
    },
    /// It fires.
    Firing {
        /// Since when its signal is there.
        since: Timestamp,
    },
    /// It fired, and is over.
    Cleared {
        /// Since when it had been there.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
}

/// Whether an alert's signal is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// It is.
    There,
    /// It is not.
    Gone,
}

/// How an alert goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// As it is.
    Stay,
    /// It is in this state now, and nobody needs to hear.
    Move(State),
    /// It is in this state now, and that is told.
    Tell(State),
    /// It never fired: it is forgotten.
    Forget,
}

/// How an alert goes on whose signal is there, or not.
pub fn step(state: Option<State>, sign: Sign, holds_for: Span, now: Timestamp) -> Step {
    let begin = |since: Timestamp| match now.since(since) >= holds_for {
        true => Step::Tell(State::Firing { since }),
        false => Step::Move(State::Pending { since }),
    };
    match (state, sign) {
        (None | Some(State::Cleared { .. }), Sign::There) => begin(now),
        (Some(State::Pending { since }), Sign::There) => match begin(since) {
            Step::Move(_) => Step::Stay,
            told => told,
        },
        (Some(State::Firing { .. }), Sign::There) => Step::Stay,
        (Some(State::Firing { since }), Sign::Gone) => {
            Step::Tell(State::Cleared { since, until: now })
        }
        (Some(State::Pending { .. }), Sign::Gone) => Step::Forget,
        (None | Some(State::Cleared { .. }), Sign::Gone) => Step::Stay,
    }
}

#[cfg(test)]
mod tests;
