//! The tool calls that an agent has open, in bounded memory.
//!
//! A quiet tool call is healthy: a test suite may print nothing for minutes. So an open call holds
//! off the stuck and inactivity clocks, but only within its own limit. What decides is the call
//! that was opened *last*: as long as it is within its limit, one is.
//!
//! Agents open a few calls at once, but nothing bounds how many they report. Eight are remembered
//! by key; beyond those only the latest opening is kept, and it holds until its limit is over,
//! whoever closes what. That errs towards life, and for at most one limit.

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Reading};
use crate::hold::carry;
use crate::time::{Span, Timestamp};

/// A tool call's name within its sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolKey(u64);

impl ToolKey {
    /// The key of the call that its agent names `id` (64-bit FNV-1a).
    pub fn of(id: &str) -> Self {
        Self(id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Call {
    key: ToolKey,
    opened_at: Timestamp,
}

const NO_CALL: Call = Call { key: ToolKey(0), opened_at: Timestamp::EPOCH };

/// The open tool calls of one sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct OpenTools {
    calls: [Call; Self::REMEMBERED],
    open: u8,
    beyond: Option<Timestamp>,
}

impl Default for OpenTools {
    fn default() -> Self {
        Self { calls: [NO_CALL; Self::REMEMBERED], open: 0, beyond: None }
    }
}

impl OpenTools {
    /// How many open calls are remembered one by one.
    pub const REMEMBERED: usize = 8;

    fn remembered(&self) -> &[Call] {
        &self.calls[..usize::from(self.open)]
    }

    /// A call was opened. Told twice, it is as old as the first telling.
    pub fn open(&mut self, key: ToolKey, now: Timestamp) {
        if self.remembered().iter().any(|call| call.key == key) {
            return;
        }
        let next = usize::from(self.open);
        if next < Self::REMEMBERED {
            self.calls[next] = Call { key, opened_at: now };
            self.open += 1;
        } else {
            self.beyond = self.beyond.max(Some(now));
        }
    }

    /// A call was closed. One that is not known is none of ours.
    pub fn close(&mut self, key: ToolKey) {
        if let Some(index) = self.remembered().iter().position(|call| call.key == key) {
            self.open -= 1;
            let last = usize::from(self.open);
            self.calls.swap(index, last);
            self.calls[last] = NO_CALL;
        }
    }

    /// When the call that was opened last, of those still open, was opened.
    pub fn latest(&self) -> Option<Timestamp> {
        if self.open == 0 {
            return self.beyond;
        }
        self.remembered().iter().map(|call| Some(call.opened_at)).fold(self.beyond, Option::max)
    }

    /// What the tool-call clock shows: the call that holds off longest.
    pub fn reading(&self, allowed: Span, now: Timestamp) -> Option<Reading> {
        self.latest().map(|since| Reading::since(Clock::ToolCall, since, now, allowed))
    }

    /// The first moment at which no open call holds anything off; nothing, if none is open.
    pub fn holds_until(&self, allowed: Span) -> Option<Timestamp> {
        self.latest().map(|since| Reading::passes_at(Clock::ToolCall, since, allowed))
    }

    /// Leaves out the time from `from` to `until`.
    pub(crate) fn carry(&mut self, from: Timestamp, until: Timestamp) {
        for call in &mut self.calls[..usize::from(self.open)] {
            call.opened_at = carry(call.opened_at, from, until);
        }
        self.beyond = self.beyond.map(|since| carry(since, from, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Span = Span::from_secs(600);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn the_call_opened_last_holds_longest() {
        let mut tools = OpenTools::default();
        assert_eq!(tools.holds_until(LIMIT), None);
        tools.open(ToolKey::of("a"), at(0));
        tools.open(ToolKey::of("b"), at(10));
        assert_eq!(tools.holds_until(LIMIT), Some(Timestamp::from_millis(610_001)));
        tools.close(ToolKey::of("b"));
        assert_eq!(tools.latest(), Some(at(0)));
        tools.close(ToolKey::of("a"));
        assert_eq!(tools, OpenTools::default());
    }

    #[test]
    fn an_unknown_close_and_a_second_open_change_nothing() {
        let mut tools = OpenTools::default();
        tools.close(ToolKey::of("never opened"));
        tools.open(ToolKey::of("a"), at(0));
        let before = tools;
        tools.open(ToolKey::of("a"), at(500));
        tools.close(ToolKey::of("b"));
        assert_eq!(tools, before, "a redelivered opening must not buy another ten minutes");
    }

    #[test]
    fn more_calls_than_are_remembered_hold_for_one_limit_and_no_longer() {
        let mut tools = OpenTools::default();
        let keys: Vec<_> = (0..20).map(|n| ToolKey::of(&format!("call {n}"))).collect();
        for (second, key) in keys.iter().enumerate() {
            tools.open(*key, at(second as i64));
        }
        for key in &keys {
            tools.close(*key);
        }
        assert_eq!(tools.open, 0);
        assert_eq!(tools.latest(), Some(at(19)));
        let reading = tools.reading(LIMIT, at(620)).unwrap();
        assert!(reading.passed());
        assert!(!tools.reading(LIMIT, at(619)).unwrap().passed());
    }

    #[test]
    fn held_time_does_not_age_an_open_call() {
        let mut tools = OpenTools::default();
        (0..9).for_each(|n| tools.open(ToolKey::of(&format!("call {n}")), at(n)));
        tools.carry(at(100), at(1_000));
        assert_eq!(tools.latest(), Some(at(908)));
        tools.beyond = None;
        assert_eq!(tools.latest(), Some(at(907)));
    }

    #[test]
    fn keys_tell_calls_apart() {
        assert_eq!(ToolKey::of("toolu_1"), ToolKey::of("toolu_1"));
        assert_ne!(ToolKey::of("toolu_1"), ToolKey::of("toolu_2"));
        assert_eq!(ToolKey::of("a").0, 0xaf63_dc4c_8601_ec8c, "FNV-1a, as published");
    }
}
