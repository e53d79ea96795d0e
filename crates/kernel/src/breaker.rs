//! The restart breaker: a role whose workers keep falling is not started again and again.
//!
//! ```text
//!            3 unexpected exits in 5 min            wait over
//!   CLOSED ─────────────────────────────► COOLING ────────────► CLOSED
//!      └──────────────┬──────────────────────┘      60 s, then twice as long each time
//!                     ▼  credentials or configuration are wrong
//!                   HELD ──────── a person acts ──────────────► CLOSED
//! ```
//!
//! It is a value that is stored with its role: a breaker in memory forgets with its process, and
//! then nothing is bounded. What a person stopped is no exit; a success clears the count.
//!
//! Rejected: holding the breaker for *every* permanent cause. A refusal or an idle agent says
//! something about one task, and one task must not stop a role. Credentials and configuration are
//! the role's own.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::limits::{Caps, Limits};
use crate::time::{Span, Timestamp};

/// The cool-down doubles at most this often: 60 s becomes 64 min, and stays there.
const DOUBLINGS: u32 = 6;

/// Whether, and from when, a role's workers may be started.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Breaker {
    /// They may.
    Closed {
        /// Unexpected exits that still count, oldest first; fewer than the cap.
        exits: Vec<Timestamp>,
        /// How often it has opened since the last success.
        openings: u32,
    },
    /// They may again at `until`.
    Cooling {
        /// The end of the cool-down.
        until: Timestamp,
        /// How often it has opened since the last success, this time included.
        openings: u32,
    },
    /// They may again when a person has acted.
    Held {
        /// What is wrong.
        cause: Cause,
    },
}

/// What the breaker hears of a role's workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A worker or its agent ended, or could not be started, without being told to end.
    Exited(Cause),
    /// A worker ended because a person, or Belay for a person, stopped it.
    Stopped,
    /// A worker finished a task.
    Succeeded,
    /// A person started the role, or changed it.
    PersonActed,
}

/// What the breaker lets through now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Starts may be made.
    Open,
    /// Not before then.
    ShutUntil(Timestamp),
    /// Not before a person acts.
    ShutFor(Cause),
}

/// What an end says about its role.
enum Weight {
    /// The role cannot work until a person changes it.
    Hold,
    /// It may be the role's fault.
    Count,
    /// It is the task's, the account's or a person's doing.
    Nothing,
}

const fn weight(cause: Cause) -> Weight {
    match cause {
        Cause::Auth | Cause::Configuration => Weight::Hold,
        Cause::Crash
        | Cause::Lost
        | Cause::Infrastructure
        | Cause::Network
        | Cause::HeartbeatTimeout
        | Cause::NeverStarted
        | Cause::StuckRunning
        | Cause::AgentFailed => Weight::Count,
        Cause::RateLimit
        | Cause::SandboxExpired
        | Cause::UsageLimit
        | Cause::ContextOverflow
        | Cause::Refusal
        | Cause::IdleTimeout
        | Cause::Inactivity
        | Cause::MaxDuration
        | Cause::NoProgress
        | Cause::DependencyFailed
        | Cause::SubtaskFailed
        | Cause::PublishFailed
        | Cause::StartFailed
        | Cause::Budget
        | Cause::Cancelled => Weight::Nothing,
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { exits: Vec::new(), openings: 0 }
    }
}

impl Breaker {
    /// What it lets through at `now`. A wait is over at its end.
    pub fn gate(&self, now: Timestamp) -> Gate {
        match self {
            Self::Closed { .. } => Gate::Open,
            Self::Cooling { until, .. } if now >= *until => Gate::Open,
            Self::Cooling { until, .. } => Gate::ShutUntil(*until),
            Self::Held { cause } => Gate::ShutFor(*cause),
        }
    }

    /// The breaker after `event`.
    #[must_use]
    pub fn step(self, event: Event, now: Timestamp, limits: &Limits, caps: &Caps) -> Self {
        match (self.settled(now), event) {
            (
                Self::Closed { .. } | Self::Cooling { .. } | Self::Held { .. },
                Event::PersonActed,
            )
            | (Self::Closed { .. }, Event::Succeeded) => Self::default(),
            // The cool-down stands: one success among failures does not prove the role well.
            (Self::Cooling { until, .. }, Event::Succeeded) => Self::Cooling { until, openings: 0 },
            (Self::Closed { exits, openings }, Event::Exited(cause)) => match weight(cause) {
                Weight::Hold => Self::Held { cause },
                Weight::Count => counted(exits, openings, now, limits, caps),
                Weight::Nothing => Self::Closed { exits, openings },
            },
            (Self::Cooling { until, openings }, Event::Exited(cause)) => match weight(cause) {
                Weight::Hold => Self::Held { cause },
                // What falls during the cool-down was started before it.
                Weight::Count | Weight::Nothing => Self::Cooling { until, openings },
            },
            (same @ (Self::Closed { .. } | Self::Cooling { .. }), Event::Stopped)
            | (same @ Self::Held { .. }, Event::Stopped | Event::Succeeded | Event::Exited(_)) => {
                same
            }
        }
    }

    /// The same breaker, closed if its wait is over.
    fn settled(self, now: Timestamp) -> Self {
        match self {
            Self::Cooling { until, openings } if now >= until => {
                Self::Closed { exits: Vec::new(), openings }
            }
            other => other,
        }
    }
}

/// One more unexpected exit of a closed breaker.
fn counted(
    mut exits: Vec<Timestamp>,
    openings: u32,
    now: Timestamp,
    limits: &Limits,
    caps: &Caps,
) -> Breaker {
    exits.retain(|exit| now.since(*exit) <= limits.breaker_window);
    exits.push(now);
    if exits.len() < caps.breaker_exits as usize {
        return Breaker::Closed { exits, openings };
    }
    let until = now.after(cool_down(openings, limits));
    Breaker::Cooling { until, openings: openings.saturating_add(1) }
}

/// How long it stays open, having been open `openings` times before.
fn cool_down(openings: u32, limits: &Limits) -> Span {
    limits.breaker_cooldown.times(1 << openings.min(DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(word: &str) -> Event {
        match word {
            "stop" => Event::Stopped,
            "success" => Event::Succeeded,
            "person" => Event::PersonActed,
            code => {
                let cause = Cause::ALL.iter().find(|cause| cause.code() == code);
                Event::Exited(*cause.unwrap_or_else(|| panic!("no cause {code}")))
            }
        }
    }

    fn show(breaker: &Breaker) -> String {
        match breaker {
            Breaker::Closed { exits, openings } => format!("CLOSED {}/{openings}", exits.len()),
            Breaker::Cooling { until, openings } => {
                format!("COOLING until {} /{openings}", until.since(Timestamp::EPOCH))
            }
            Breaker::Held { cause } => format!("HELD {cause}"),
        }
    }

    /// Plays `script` (`time event; …`) and compares the breaker after each event.
    fn check(script: &str, expected: &str) {
        let mut breaker = Breaker::default();
        let mut trace = Vec::new();
        for line in script.split(';').map(str::trim) {
            let (time, word) = line.split_once(' ').unwrap();
            let now = Timestamp::EPOCH.after(time.parse().unwrap());
            breaker = breaker.step(event(word), now, &Limits::default(), &Caps::default());
            trace.push(format!("{line} → {}", show(&breaker)));
        }
        let expected: Vec<_> = expected.lines().map(str::trim).collect();
        assert_eq!(trace, expected);
    }

    #[test]
    fn three_exits_in_five_minutes_open_it_for_a_minute_then_two() {
        check(
            "1s crash; 2s crash; 3s crash; 63s crash; 64s lost; 65s crash; 185s crash",
            "1s crash → CLOSED 1/0
             2s crash → CLOSED 2/0
             3s crash → COOLING until 1m3s /1
             63s crash → CLOSED 1/1
             64s lost → CLOSED 2/1
             65s crash → COOLING until 3m5s /2
             185s crash → CLOSED 1/2",
        );
    }

    #[test]
    fn an_exit_counts_for_exactly_the_window() {
        check(
            "0s crash; 1s crash; 300s crash",
            "0s crash → CLOSED 1/0
             1s crash → CLOSED 2/0
             300s crash → COOLING until 6m /1",
        );
        check(
            "0s crash; 1s crash; 300.001s crash; 301s crash; 301.001s crash",
            "0s crash → CLOSED 1/0
             1s crash → CLOSED 2/0
             300.001s crash → CLOSED 2/0
             301s crash → COOLING until 6m1s /1
             301.001s crash → COOLING until 6m1s /1",
        );
    }

    #[test]
    fn a_wait_is_over_at_its_end() {
        let until = Timestamp::from_millis(60_000);
        let cooling = Breaker::Cooling { until, openings: 1 };
        for (ms, gate) in
            [(59_999, Gate::ShutUntil(until)), (60_000, Gate::Open), (60_001, Gate::Open)]
        {
            assert_eq!(cooling.gate(Timestamp::from_millis(ms)), gate, "{ms}");
        }
        assert_eq!(Breaker::default().gate(until), Gate::Open);
    }

    #[test]
    fn a_success_clears_the_count_but_not_a_cool_down() {
        check(
            "0s crash; 1s crash; 2s success; 3s crash; 4s crash; 5s crash; 6s success; \
             65s crash; 66s crash; 67s crash",
            "0s crash → CLOSED 1/0
             1s crash → CLOSED 2/0
             2s success → CLOSED 0/0
             3s crash → CLOSED 1/0
             4s crash → CLOSED 2/0
             5s crash → COOLING until 1m5s /1
             6s success → COOLING until 1m5s /0
             65s crash → CLOSED 1/0
             66s crash → CLOSED 2/0
             67s crash → COOLING until 2m7s /1",
        );
    }

    /// Permanent failures (auth, configuration) restarted for ever.
    #[test]
    fn lesson_a_permanent_cause_holds_it_until_a_person_acts() {
        check(
            "0s auth; 1s success; 2s stop; 3s crash; 9999s crash; 9999s person; 9999s crash",
            "0s auth → HELD auth
             1s success → HELD auth
             2s stop → HELD auth
             3s crash → HELD auth
             9999s crash → HELD auth
             9999s person → CLOSED 0/0
             9999s crash → CLOSED 1/0",
        );
        check(
            "0s crash; 0s crash; 0s crash; 1s configuration",
            "0s crash → CLOSED 1/0
             0s crash → CLOSED 2/0
             0s crash → COOLING until 1m /1
             1s configuration → HELD configuration",
        );
        let held = Breaker::Held { cause: Cause::Auth };
        assert_eq!(held.gate(Timestamp::MAX), Gate::ShutFor(Cause::Auth));
    }

    /// User-stopped agents were restarted, and their ends were counted as crashes.
    #[test]
    fn lesson_intentional_stops_do_not_count() {
        check(
            "0s stop; 1s stop; 2s stop; 3s cancelled; 4s crash; 5s stop; 6s crash",
            "0s stop → CLOSED 0/0
             1s stop → CLOSED 0/0
             2s stop → CLOSED 0/0
             3s cancelled → CLOSED 0/0
             4s crash → CLOSED 1/0
             5s stop → CLOSED 1/0
             6s crash → CLOSED 2/0",
        );
        check(
            "0s crash; 0s crash; 0s crash; 1s stop; 2s person",
            "0s crash → CLOSED 1/0
             0s crash → CLOSED 2/0
             0s crash → COOLING until 1m /1
             1s stop → COOLING until 1m /1
             2s person → CLOSED 0/0",
        );
    }

    #[test]
    fn each_cause_holds_counts_or_says_nothing_about_the_role() {
        let of = |wanted: fn(&Weight) -> bool| {
            let causes = Cause::ALL.iter().filter(|cause| wanted(&weight(**cause)));
            causes.map(|cause| cause.code()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(|weight| matches!(weight, Weight::Hold)), "auth configuration");
        assert_eq!(
            of(|weight| matches!(weight, Weight::Count)),
            "crash lost infrastructure network heartbeat_timeout never_started stuck_running \
             agent_failed"
        );
        check("0s refusal", "0s refusal → CLOSED 0/0");
    }

    /// The breaker lived in memory: a restart forgot it.
    #[test]
    fn lesson_the_breaker_survives_being_stored() {
        for breaker in [
            Breaker::Closed { exits: vec![Timestamp::from_millis(5)], openings: 2 },
            Breaker::Cooling { until: Timestamp::from_millis(7), openings: 1 },
            Breaker::Held { cause: Cause::Auth },
        ] {
            let json = serde_json::to_string(&breaker).unwrap();
            assert_eq!(serde_json::from_str::<Breaker>(&json).unwrap(), breaker);
        }
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            6 => Just(Event::Exited(Cause::Crash)),
            1 => proptest::sample::select(Cause::ALL).prop_map(Event::Exited),
            1 => Just(Event::Stopped),
            1 => Just(Event::Succeeded),
        ]
    }

    proptest! {
        /// Whatever happens, whatever the clock does: a cool-down is bounded, the stored exits are
        /// fewer than the cap, and without a success openings only grow, and waits with them.
        #[test]
        fn cool_downs_are_bounded_and_only_grow(
            events in proptest::collection::vec((any_event(), -90_000i64..400_000), 0..80),
        ) {
            let (limits, caps) = (Limits::default(), Caps::default());
            let longest = limits.breaker_cooldown.times(64);
            let (mut now, mut breaker) = (1_000_000_000, Breaker::default());
            let mut longest_wait = Span::ZERO;
            for (event, ms) in events {
                now += ms;
                let at = Timestamp::from_millis(now);
                let before = breaker.clone();
                breaker = breaker.step(event, at, &limits, &caps);
                if event == Event::Succeeded {
                    longest_wait = Span::ZERO;
                }
                match &breaker {
                    Breaker::Closed { exits, .. } => {
                        prop_assert!(exits.len() < caps.breaker_exits as usize);
                    }
                    Breaker::Cooling { until, .. } if matches!(before.gate(at), Gate::Open) => {
                        let wait = until.since(at);
                        prop_assert!(wait >= longest_wait && wait <= longest);
                        prop_assert!(wait >= limits.breaker_cooldown);
                        longest_wait = wait;
                    }
                    Breaker::Cooling { .. } | Breaker::Held { .. } => {}
                }
            }
        }
    }
}
