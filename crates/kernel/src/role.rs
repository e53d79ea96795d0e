//! A role's desired state: what a person wants of it, which nothing else may overrule.
//!
//! A role that a person stopped stays stopped: it *drains* (what runs may finish, nothing new is
//! claimed), or with `--now` its tasks are queued again without using a try. Its waiting tasks
//! show `role_stopped`. What is *observed* of a role (live workers, a pending start) is kept
//! elsewhere: intent and observation in one column was how stopped agents came back.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::disposition::Disposition::{self, Accept, Ignore};
use crate::worker;

/// The name of a role: `default`, `builder`, `reviewer`, …
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoleName(Box<str>);

/// Why a text is not a role's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a role: 1 to 40 small letters, digits, - and _, a letter first")]
pub struct RoleNameError(String);

impl RoleName {
    const LONGEST: usize = 40;

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RoleName {
    type Err = RoleNameError;

    fn from_str(text: &str) -> Result<Self, RoleNameError> {
        let letter_first = text.starts_with(|c: char| c.is_ascii_lowercase());
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if letter_first && text.len() <= Self::LONGEST && text.chars().all(known) {
            Ok(Self(text.into()))
        } else {
            Err(RoleNameError(text.chars().take(Self::LONGEST).collect()))
        }
    }
}

impl TryFrom<String> for RoleName {
    type Error = RoleNameError;

    fn try_from(text: String) -> Result<Self, RoleNameError> {
        text.parse()
    }
}

impl From<RoleName> for String {
    fn from(name: RoleName) -> Self {
        name.0.into()
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a person wants of a role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// It works.
    Running,
    /// It does not.
    Stopped(Stop),
}

/// How a role is stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// What runs may finish.
    Drain,
    /// What runs is ended and queued again, without using a try.
    Now,
}

/// The part of a role's row that decisions read and write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Its name.
    pub name: RoleName,
    /// What a person wants of it.
    pub desired: Desired,
    /// How many workers it may have; zero means none.
    pub workers: u32,
}

/// What a person does to a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Let it work.
    Start,
    /// Let it not.
    Stop(Stop),
    /// Give it this many workers.
    SetWorkers(u32),
}

/// A role's change, with what it asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The role to store.
    pub role: Role,
    /// What has to be done about it, in the same commit.
    pub effects: Vec<Effect>,
}

/// What a role's change asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A start that is pending is withdrawn: see [`crate::restart::Event::Withdraw`].
    WithdrawStart,
    /// End what its workers run, and queue it again without using a try.
    RequeueHeld,
    /// A person acted: close the breaker.
    ResetBreaker,
    /// Its workers may need starting.
    ReviewRole,
}

/// Why tasks of a role are not claimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hold {
    /// A person stopped it.
    RoleStopped,
    /// It has no workers, by configuration.
    NoWorkers,
}

impl Hold {
    /// The stable code that a waiting task shows.
    pub const fn code(self) -> &'static str {
        match self {
            Self::RoleStopped => "role_stopped",
            Self::NoWorkers => "role_has_no_workers",
        }
    }
}

/// What a live worker of a role has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directive {
    /// Go on.
    Continue,
    /// Finish what you have, then leave.
    Finish,
    /// Leave; what you have is queued again.
    Leave,
}

/// What a role shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It works, or would.
    Running,
    /// It is stopped, and this many workers have yet to finish.
    Draining {
        /// How many.
        active: u32,
    },
    /// It is stopped.
    Stopped,
}

impl Role {
    /// How many workers there should be now.
    pub const fn wanted(&self) -> u32 {
        match self.desired {
            Desired::Running => self.workers,
            Desired::Stopped(_) => 0,
        }
    }

    /// Why no task of the role may be claimed now, if so.
    pub const fn hold(&self) -> Option<Hold> {
        match (self.desired, self.workers) {
            (Desired::Stopped(_), _) => Some(Hold::RoleStopped),
            (Desired::Running, 0) => Some(Hold::NoWorkers),
            (Desired::Running, _) => None,
        }
    }

    /// What a worker in `state` has to do, which its next beat is told.
    pub const fn directive(&self, state: &worker::State) -> Directive {
        use worker::State::{Active, Gone, Waiting};
        match (self.desired, state) {
            (Desired::Running, Gone | Waiting { .. } | Active { .. }) => Directive::Continue,
            (Desired::Stopped(Stop::Drain), Active { .. }) => Directive::Finish,
            (Desired::Stopped(Stop::Drain), Gone | Waiting { .. })
            | (Desired::Stopped(Stop::Now), Gone | Waiting { .. } | Active { .. }) => {
                Directive::Leave
            }
        }
    }

    /// What it shows while `active` of its workers hold a task.
    pub const fn status(&self, active: u32) -> Status {
        match (self.desired, active) {
            (Desired::Running, _) => Status::Running,
            (Desired::Stopped(_), 0) => Status::Stopped,
            (Desired::Stopped(_), active) => Status::Draining { active },
        }
    }

    /// The role after a person's `event`.
    pub fn step(&self, event: Event) -> Disposition<Transition, std::convert::Infallible> {
        let to = |desired: Desired, effects: &[Effect]| {
            let role = Self { desired, ..self.clone() };
            Accept(Transition { role, effects: effects.to_vec() })
        };
        match (self.desired, event) {
            // Starting what runs is still a person's act: it closes the breaker.
            (Desired::Running | Desired::Stopped(_), Event::Start) => {
                to(Desired::Running, &[Effect::ResetBreaker, Effect::ReviewRole])
            }
            (Desired::Running, Event::Stop(Stop::Drain)) => {
                to(Desired::Stopped(Stop::Drain), &[Effect::WithdrawStart])
            }
            (Desired::Running | Desired::Stopped(Stop::Drain), Event::Stop(Stop::Now)) => {
                to(Desired::Stopped(Stop::Now), &[Effect::WithdrawStart, Effect::RequeueHeld])
            }
            // What was ended cannot be drained any more.
            (Desired::Stopped(Stop::Drain | Stop::Now), Event::Stop(Stop::Drain))
            | (Desired::Stopped(Stop::Now), Event::Stop(Stop::Now)) => Ignore,
            (Desired::Running | Desired::Stopped(_), Event::SetWorkers(workers)) => {
                if workers == self.workers {
                    return Ignore;
                }
                let role = Self { workers, ..self.clone() };
                let effect =
                    if role.wanted() == 0 { Effect::WithdrawStart } else { Effect::ReviewRole };
                Accept(Transition { role, effects: vec![effect] })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptNumber, ConnectionId, RunnerId, TaskId};
    use crate::time::Timestamp;

    fn role(desired: Desired, workers: u32) -> Role {
        Role { name: "builder".parse().unwrap(), desired, workers }
    }

    const RUNNING: Desired = Desired::Running;
    const DRAINED: Desired = Desired::Stopped(Stop::Drain);
    const ENDED: Desired = Desired::Stopped(Stop::Now);

    /// Plays `script` (words) from a running role with two workers and compares each step.
    fn check(script: &str, expected: &str) {
        let mut current = role(RUNNING, 2);
        let mut trace = Vec::new();
        for word in script.split_whitespace() {
            let event = match word {
                "start" => Event::Start,
                "stop" => Event::Stop(Stop::Drain),
                "stop-now" => Event::Stop(Stop::Now),
                number => Event::SetWorkers(number.parse().unwrap()),
            };
            let said = match current.step(event) {
                Accept(Transition { role, effects }) => {
                    current = role;
                    format!("{:?}×{} {effects:?}", current.desired, current.workers)
                }
                Ignore => "ignore".to_owned(),
                Disposition::Deny(never) => match never {},
            };
            trace.push(format!("{word} → {said}"));
        }
        let expected: Vec<_> = expected.lines().map(str::trim).collect();
        assert_eq!(trace, expected);
    }

    #[test]
    fn a_person_stops_and_starts_a_role() {
        check(
            "start stop stop stop-now stop stop-now start stop-now",
            "start → Running×2 [ResetBreaker, ReviewRole]
             stop → Stopped(Drain)×2 [WithdrawStart]
             stop → ignore
             stop-now → Stopped(Now)×2 [WithdrawStart, RequeueHeld]
             stop → ignore
             stop-now → ignore
             start → Running×2 [ResetBreaker, ReviewRole]
             stop-now → Stopped(Now)×2 [WithdrawStart, RequeueHeld]",
        );
    }

    #[test]
    fn zero_workers_means_none() {
        check(
            "2 0 3 stop 4 0",
            "2 → ignore
             0 → Running×0 [WithdrawStart]
             3 → Running×3 [ReviewRole]
             stop → Stopped(Drain)×3 [WithdrawStart]
             4 → Stopped(Drain)×4 [WithdrawStart]
             0 → Stopped(Drain)×0 [WithdrawStart]",
        );
        assert_eq!(role(RUNNING, 0).hold(), Some(Hold::NoWorkers));
        assert_eq!(role(RUNNING, 0).wanted(), 0);
        assert_eq!(Hold::NoWorkers.code(), "role_has_no_workers");
    }

    /// User-stopped agents were restarted.
    #[test]
    fn lesson_a_stopped_role_wants_no_workers_and_its_tasks_say_so() {
        for desired in [DRAINED, ENDED] {
            assert_eq!(role(desired, 5).wanted(), 0);
            assert_eq!(role(desired, 5).hold().map(Hold::code), Some("role_stopped"));
            assert_eq!(role(desired, 0).hold(), Some(Hold::RoleStopped));
            assert_eq!(role(desired, 5).status(0), Status::Stopped);
            assert_eq!(role(desired, 5).status(1), Status::Draining { active: 1 });
        }
        assert_eq!(role(RUNNING, 5).wanted(), 5);
        assert_eq!(role(RUNNING, 1).hold(), None);
        assert_eq!(role(RUNNING, 5).status(0), Status::Running);
        assert_eq!(role(RUNNING, 5).status(3), Status::Running);
    }

    #[test]
    fn workers_are_told_to_continue_finish_or_leave() {
        let connection = ConnectionId::from_bits(1);
        let kind =
            worker::Kind::Slot { runner: RunnerId::from_bits(1), place: worker::Place::Remote };
        let end = Timestamp::EPOCH;
        let held = worker::Held { task: TaskId::from_bits(1), attempt: AttemptNumber(1) };
        let states = [
            worker::State::Gone,
            worker::State::Waiting { connection, kind, ready_until: end },
            worker::State::Active { connection, kind, active_until: end, held },
        ];
        let told = |desired| states.map(|state| role(desired, 1).directive(&state));
        assert_eq!(told(RUNNING), [Directive::Continue; 3]);
        assert_eq!(told(DRAINED), [Directive::Leave, Directive::Leave, Directive::Finish]);
        assert_eq!(told(ENDED), [Directive::Leave; 3]);
    }

    #[test]
    fn names_are_checked_wherever_they_come_from() {
        let long = "a".repeat(40);
        for name in ["default", "a", "code-review_2", &long] {
            assert_eq!(name.parse::<RoleName>().unwrap().to_string(), name);
            let json = serde_json::to_string(&name.parse::<RoleName>().unwrap()).unwrap();
            assert_eq!(serde_json::from_str::<RoleName>(&json).unwrap().as_str(), name);
        }
        let longer = "a".repeat(41);
        for name in ["", "Builder", "2fast", "-a", "a b", "a/b", "é", &longer] {
            assert!(name.parse::<RoleName>().is_err(), "{name}");
            let json = serde_json::to_string(name).unwrap();
            assert!(serde_json::from_str::<RoleName>(&json).is_err(), "{name}");
        }
        assert_eq!(
            "No".parse::<RoleName>().unwrap_err().to_string(),
            "`No` is not a role: 1 to 40 small letters, digits, - and _, a letter first"
        );
    }
}
