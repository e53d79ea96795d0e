//! What an agent that runs elsewhere tells of itself: events, one or many at a time, and beats.
//!
//! ```text
//!  {"kind": "agent.tool_use", "seq": 7, "call": "c1", "data": {…}}      one event
//!  {"events": [{…}, {…}]}   or   [{…}, {…}]                             several, in order
//! ```
//!
//! A batch is taken whole or not at all; what is wrong with it names the element. Numbers (`seq`)
//! begin with 1 and have no gaps, so that whoever got no answer sends the same again: what was
//! taken before is passed over, and what would leave a gap is refused.
//!
//! Any kind is taken. `agent.` in front of it is implied, so that no agent can say something in the
//! name of a task or a sandbox.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use belay_kernel::{EventKind, HeartbeatStatus, Span};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::problem::{Code, Problem};

/// The most events in one batch.
pub const MOST_EVENTS: usize = 1_000;
/// The longest particulars of one event, in bytes of JSON.
pub const LONGEST_DATA: usize = 65_536;
/// The longest name of a kind, with its `agent.`, and of a tool call.
const LONGEST_NAME: usize = 100;
/// How deep particulars may be nested.
const DEEPEST: usize = 64;
/// What every kind begins with.
const PREFIX: &str = "agent.";

/// Something that an agent did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentEvent {
    /// Its number among the events of its sandbox, if the sender counts them.
    pub seq: Option<u64>,
    /// What it did.
    pub kind: EventKind,
    /// The tool call that it opens or closes.
    pub call: Option<String>,
    /// The particulars: a JSON document on one line.
    pub data: String,
}

/// An event as it is sent.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct NewAgentEvent {
    /// What the agent did: `agent.tool_use`, or any other name. `agent.` in front is implied.
    #[schema(min_length = 1, max_length = 100)]
    pub kind: String,
    /// Its number among the events of its sandbox: 1, 2, … without gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub seq: Option<u64>,
    /// The tool call that it opens (`agent.tool_use`) or closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 100)]
    pub call: Option<String>,
    /// The particulars.
    pub data: serde_json::Value,
}

/// Events as they are sent, in order.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct NewAgentEvents {
    /// The events, at most a thousand.
    #[schema(max_items = 1000)]
    pub events: Vec<NewAgentEvent>,
}

/// What became of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventsTaken {
    /// So many are stored by this request.
    pub taken: u64,
    /// So many were stored before.
    pub known: u64,
    /// The number that the next one has, if numbers are used.
    pub next: u64,
}

/// A beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// How the agent is.
    pub status: HeartbeatStatus,
}

/// The answer to a beat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatTaken {
    /// The state of the sandbox.
    pub state: String,
    /// What its evidence means now.
    pub verdict: String,
    /// How long the attempt is held without another beat, if nobody else beats for it.
    pub lease_ms: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told<'a> {
    #[serde(borrow, alias = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default, borrow)]
    call: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

/// Reads the body of a request: one event, or several.
pub fn read_events(body: &[u8]) -> Result<Vec<AgentEvent>, Problem> {
    let elements = elements(body)?;
    if elements.len() > MOST_EVENTS {
        let count = elements.len();
        let detail = format!("{count} events are more than the {MOST_EVENTS} that one batch takes");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let mut events: Vec<AgentEvent> = Vec::with_capacity(elements.len());
    for (index, raw) in elements.iter().enumerate() {
        let event = read_event(raw.get())
            .map_err(|problem| Problem { detail: at(index, &problem.detail), ..problem })?;
        let expected = events.last().map(|last| last.seq.map(|seq| seq.checked_add(1)));
        let follows = expected.is_none_or(|expected| expected == event.seq.map(Some));
        if !follows || event.seq == Some(0) {
            return Err(bad(at(index, "its `seq` does not follow; numbers begin with 1")));
        }
        events.push(event);
    }
    Ok(events)
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(Code::BadRequest, detail)
}

fn at(index: usize, detail: &str) -> String {
    format!("events[{index}]: {detail}")
}

/// The elements of a body, as they are written.
fn elements(body: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    let wrong = |error: serde_json::Error| bad(format!("the body is not what is taken: {error}"));
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'[') {
        return serde_json::from_slice(body).map_err(wrong);
    }
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_slice(body).map_err(wrong)?;
    match (fields.remove("events"), fields.keys().next()) {
        (Some(events), None) => serde_json::from_str(events.get()).map_err(wrong),
        (Some(_), Some(other)) => {
            let other: String = other.chars().take(LONGEST_NAME).collect();
            Err(bad(format!("`{other}` is not known beside `events`")))
        }
        (None, _) => Ok(vec![serde_json::from_slice(body).map_err(wrong)?]),
    }
}

fn read_event(text: &str) -> Result<AgentEvent, Problem> {
    let told: Told<'_> = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    let name = match told.kind.starts_with(PREFIX) {
        true => told.kind,
        false => Cow::Owned(format!("{PREFIX}{}", told.kind)),
    };
    check_name("kind", &name)?;
    if let Some(call) = &told.call {
        check_name("call", call)?;
    }
    Ok(AgentEvent {
        seq: told.seq,
        kind: EventKind::from_name(&name),
        call: told.call.map(Cow::into_owned),
        data: told.data.map_or(Ok("{}".to_owned()), |raw| one_line(raw.get()))?,
    })
}

fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    if name.len() > LONGEST_NAME {
        return Err(bad(format!("its `{field}` is longer than {LONGEST_NAME} bytes")));
    }
    if name == PREFIX || name.is_empty() || name.chars().any(char::is_control) {
        return Err(bad(format!("its `{field}` is empty or not plain text")));
    }
    Ok(())
}

/// Particulars on one line, if they are sound: small enough, not too deep, and text throughout.
fn one_line(json: &str) -> Result<String, Problem> {
    if json.len() > LONGEST_DATA {
        let detail = format!("its `data` has {} bytes; {LONGEST_DATA} are taken", json.len());
        return Err(Problem::new(Code::TooLarge, detail));
    }
    if depth(json) > DEEPEST {
        return Err(bad(format!("its `data` is nested deeper than {DEEPEST}")));
    }
    let Sound = serde_json::from_str(json).map_err(|error| bad(format!("its `data`: {error}")))?;
    // Within a JSON text a line can only end between two values.
    Ok(if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ") } else { json.to_owned() })
}

/// How deep a JSON text is nested.
fn depth(json: &str) -> usize {
    let (mut deepest, mut depth, mut quoted, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Any JSON value, looked at throughout and kept nowhere: every text in it is text, and every
/// number a number. (`serde`'s own way to ignore a value passes over what is in it.)
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while values.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
