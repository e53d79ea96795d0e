//! What was observed of one sandbox, with its times. It never judges; [`crate::verdict`] does.
//!
//! Every update is total: any observation may come at any time, twice, late or out of order. Times
//! are the receiver's and never fall, so a late delivery cannot make a sandbox look older than it
//! was seen to be. Completion follows the order of arrival: work that arrives after
//! `agent.completed` clears it, and the latest completion counts.
//!
//! A new sandbox has new evidence. There is no way to build it from a predecessor's: a
//! predecessor's heartbeat once condemned its successor.

use serde::{Deserialize, Serialize};

use crate::event::{EventClass, EventKind, HeartbeatStatus};
use crate::hold::{Hold, carry};
use crate::time::Timestamp;
use crate::tool::{OpenTools, ToolKey};

/// The first and the last time a sandbox was seen alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Life {
    /// The first sign of life: the agent's start, as far as anyone can see.
    pub first: Timestamp,
    /// The last sign of life.
    pub last: Timestamp,
}

/// Everything that was observed of one sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    created_at: Timestamp,
    life: Option<Life>,
    last_work: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    status: Option<HeartbeatStatus>,
    hold: Hold,
    tools: OpenTools,
    /// The number of the last event that its sender numbered.
    #[serde(default)]
    counted: u64,
}

/// What a numbered event is beside those that came before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It is the next one.
    Next,
    /// It came before: told again, because the answer was lost.
    Known,
    /// Events before it have not come.
    Early,
}

impl Evidence {
    /// Of a sandbox created now, nothing has been seen yet.
    pub fn new(created_at: Timestamp) -> Self {
        Self {
            created_at,
            life: None,
            last_work: None,
            completed_at: None,
            status: None,
            hold: Hold::Nothing,
            tools: OpenTools::default(),
            counted: 0,
        }
    }

    /// When the sandbox was created.
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When it was seen alive, if ever.
    pub const fn life(&self) -> Option<Life> {
        self.life
    }

    /// When it last did work, if ever.
    pub const fn last_work(&self) -> Option<Timestamp> {
        self.last_work
    }

    /// When the agent last said that it is done, if it did no work since.
    pub const fn completed_at(&self) -> Option<Timestamp> {
        self.completed_at
    }

    /// What the last heartbeat said.
    pub const fn status(&self) -> Option<HeartbeatStatus> {
        self.status
    }

    /// What holds the clocks.
    pub const fn hold(&self) -> Hold {
        self.hold
    }

    /// The tool calls that are open.
    pub const fn tools(&self) -> &OpenTools {
        &self.tools
    }

    /// The number that the next numbered event has.
    pub const fn next_number(&self) -> u64 {
        self.counted.saturating_add(1)
    }

    /// What an event with this number is; the next one is counted by it.
    pub fn count(&mut self, number: u64) -> Turn {
        if number <= self.counted {
            return Turn::Known;
        }
        if number > self.next_number() {
            return Turn::Early;
        }
        self.counted = number;
        Turn::Next
    }

    /// An event of the agent arrived.
    pub fn seen(&mut self, kind: &EventKind, now: Timestamp) {
        self.alive(now);
        match kind.class() {
            EventClass::NotWork => {}
            EventClass::Work => {
                self.last_work = self.last_work.max(Some(now));
                self.completed_at = match kind {
                    EventKind::Completed => Some(now),
                    _ => None,
                };
            }
        }
    }

    /// Output arrived: a sign of life, not work.
    pub fn output(&mut self, now: Timestamp) {
        self.alive(now);
    }

    /// A heartbeat arrived.
    pub fn beat(&mut self, status: HeartbeatStatus, now: Timestamp) {
        self.alive(now);
        self.status = Some(status);
    }

    /// A beat of an agent that lives renewed its lease then. What else it said may be lost: the two
    /// are not written together.
    pub fn renewed(&mut self, at: Timestamp) {
        if let Some(life) = &mut self.life {
            life.last = life.last.max(at);
        }
    }

    /// A tool call was opened, which is work.
    pub fn tool_opened(&mut self, key: ToolKey, now: Timestamp) {
        self.seen(&EventKind::ToolUse, now);
        self.tools.open(key, now);
    }

    /// A tool call was closed, which is work, whether or not it was known.
    pub fn tool_closed(&mut self, key: ToolKey, now: Timestamp) {
        self.seen(&EventKind::ToolResult, now);
        self.tools.close(key);
    }

    /// The agent's process exited with success: done, as if it had said so.
    pub fn exited_well(&mut self, now: Timestamp) {
        self.alive(now);
        self.completed_at = self.completed_at.or(Some(now));
    }

    /// A question waits for a person: the clocks stop.
    pub fn asked(&mut self, now: Timestamp) {
        self.hold = self.hold.asked(now);
    }

    /// The last open question was answered: the clocks go on from where they stood.
    pub fn answered(&mut self, now: Timestamp) {
        self.release(self.hold.answered(), now);
    }

    /// The sandbox was paused: the clocks stop.
    pub fn paused(&mut self, now: Timestamp) {
        self.hold = self.hold.pause(now);
    }

    /// The sandbox was resumed and answered its probe, which is a sign of life.
    pub fn resumed(&mut self, now: Timestamp) {
        if self.hold.paused() {
            self.release(self.hold.resume(), now);
            self.alive(now);
        }
    }

    /// Leaves out the time in which *we* could not have seen anything: silence while we could not
    /// commit is not evidence against the agent. What a hold leaves out is not left out twice.
    pub fn excuse(&mut self, from: Timestamp, until: Timestamp) {
        self.carry(from, self.hold.since().map_or(until, |since| since.min(until)));
    }

    fn carry(&mut self, from: Timestamp, until: Timestamp) {
        self.created_at = carry(self.created_at, from, until);
        self.life = self.life.map(|life| Life {
            first: carry(life.first, from, until),
            last: carry(life.last, from, until),
        });
        self.last_work = self.last_work.map(|at| carry(at, from, until));
        self.completed_at = self.completed_at.map(|at| carry(at, from, until));
        self.tools.carry(from, until);
    }

    fn alive(&mut self, now: Timestamp) {
        self.life = Some(match self.life {
            None => Life { first: now, last: now },
            Some(life) => Life { first: life.first, last: life.last.max(now) },
        });
    }

    fn release(&mut self, left: Hold, now: Timestamp) {
        if let (Some(since), None) = (self.hold.since(), left.since()) {
            self.carry(since, now);
        }
        self.hold = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_once_and_in_order() {
        let mut evidence = Evidence::new(Timestamp::EPOCH);
        let mut count = |number| evidence.count(number);
        assert_eq!(
            [1, 2, 2, 1].map(&mut count),
            [Turn::Next, Turn::Next, Turn::Known, Turn::Known]
        );
        assert_eq!([4, 3, 4].map(count), [Turn::Early, Turn::Next, Turn::Next]);
        assert_eq!(evidence.next_number(), 5);
    }

    #[test]
    fn evidence_from_before_numbers_has_none() {
        let mut old = serde_json::to_value(Evidence::new(Timestamp::EPOCH)).unwrap();
        old.as_object_mut().unwrap().remove("counted");
        assert_eq!(serde_json::from_value::<Evidence>(old).unwrap().next_number(), 1);
    }
}
