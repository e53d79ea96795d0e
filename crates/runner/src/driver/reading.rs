//! What an agent printed, read in order: chunks in, masked bytes and observations out.
//!
//! The reader of the agent's dialect gets standard output alone, because a line of standard error
//! in the middle of one would break it; reports hold both streams. So every observation's place is
//! brought from the one count to the other.

use belay_agent::{Agent, Drift, Exit, Judgement, Launch, Observation, Reader, Turn};
use belay_api::port::Seen;
use belay_api::{Masker, Secrets};
use belay_kernel::{HeartbeatStatus, Timestamp, Usage};
use belay_sandbox::{Chunk, Stream};

use super::report::Item;
use crate::journal::{Entry, What};

/// Where an attempt's output is in that of its sandbox.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// What the sandbox had printed before.
    pub(super) before: u64,
    /// How much of the attempt's own is durable.
    pub(super) durable: u64,
}

/// Where the reading of one attempt's output stands.
pub(super) struct Reading {
    agent: Agent,
    pub(super) reader: Reader,
    masker: Masker,
    pub(super) secrets: Secrets,
    /// What the sandbox had printed before this attempt went on in it.
    before: u64,
    /// What had been used by then.
    used_before: Option<Usage>,
    /// What is durable already and therefore not handed on.
    acknowledged: u64,
    /// How many bytes of both streams were taken.
    pub(super) taken: u64,
    /// How many of them the masker gave back.
    given: u64,
    /// Ranges that the sandbox lost.
    missing: Vec<(u64, u64)>,
    /// Answers and turns that are applied again at their place.
    replay: std::vec::IntoIter<Entry>,
    next_told: Option<Entry>,
    /// What the reader wants to be written.
    pub(super) writes: Vec<belay_agent::Write>,
}

impl Reading {
    pub(super) fn new(
        agent: Agent,
        launch: &Launch,
        secrets: &Secrets,
        place: Place,
        told: Vec<Entry>,
    ) -> Self {
        let mut replay = told.into_iter();
        let next_told = replay.next();
        Self {
            agent,
            reader: agent.reader(launch),
            masker: Masker::new(secrets.clone()),
            secrets: secrets.clone(),
            before: place.before,
            used_before: None,
            acknowledged: place.before + place.durable,
            taken: 0,
            given: 0,
            missing: Vec::new(),
            replay,
            next_told,
            writes: Vec::new(),
        }
    }

    /// The ranges of the attempt's own output that the sandbox lost.
    pub(super) fn missing(&self) -> Vec<(u64, u64)> {
        let own = |(from, to): &(u64, u64)| {
            (from.saturating_sub(self.before), to.saturating_sub(self.before))
        };
        self.missing.iter().map(own).filter(|(from, to)| from < to).collect()
    }

    /// Whether everything that is durable was read again.
    pub(super) const fn is_caught_up(&self) -> bool {
        self.taken >= self.acknowledged
    }

    /// How the agent is, as far as its own words tell.
    pub(super) fn status(&self) -> HeartbeatStatus {
        match (self.reader.status(), self.agent, self.reader.turn()) {
            (Some(said), ..) => said,
            (None, Agent::Command, _) | (None, _, Turn::Open) => HeartbeatStatus::Running,
            (None, _, Turn::Waiting | Turn::Ended(_)) => HeartbeatStatus::Idle,
        }
    }

    /// Takes a chunk in. Bytes that the sandbox lost before it are named, and stand as zeros, so
    /// that what follows keeps its place.
    pub(super) fn take(&mut self, chunk: &Chunk) -> Vec<Item> {
        let mut items = Vec::new();
        if self.used_before.is_none() && self.taken >= self.before {
            self.used_before = Some(self.reader.usage());
        }
        while chunk.offset > self.taken {
            let lost = (chunk.offset - self.taken).min(1 << 20);
            let end = self.taken + lost;
            match self.missing.last_mut() {
                Some(last) if last.1 == self.taken => last.1 = end,
                _ => self.missing.push((self.taken, end)),
            }
            self.taken = end;
            let zeros = self.masker.push(&vec![0; usize::try_from(lost).unwrap_or(0)]);
            items.extend(self.item(zeros, Vec::new()));
        }
        let known = usize::try_from(self.taken - chunk.offset).unwrap_or(usize::MAX);
        let Some(bytes) = chunk.bytes.get(known..) else { return items };
        let mut seen = Vec::new();
        if chunk.stream == Stream::Stdout {
            let before = self.reader.taken();
            self.push(chunk.at, bytes, &mut seen);
            // A line ends in the chunk that it is seen in.
            for (at, _) in &mut seen {
                *at = self.taken + at.saturating_sub(before);
            }
            seen.retain(|(at, _)| *at > self.acknowledged);
            for (at, _) in &mut seen {
                *at -= self.before;
            }
        }
        self.taken += bytes.len() as u64;
        let masked = self.masker.push(bytes);
        items.extend(self.item(masked, seen));
        items
    }

    /// Pushes standard output into the reader, with the answers that were given meanwhile.
    fn push(&mut self, at: Timestamp, bytes: &[u8], seen: &mut Vec<(u64, Seen)>) {
        let mut rest = bytes;
        let mut found = Vec::new();
        while let Some(entry) = &self.next_told {
            let before = usize::try_from(entry.at.saturating_sub(self.reader.taken()));
            let Some((first, after)) = before.ok().and_then(|count| rest.split_at_checked(count))
            else {
                break;
            };
            self.reader.push(at, first, &mut found);
            rest = after;
            // The bytes are in the journal; only the reader has to know.
            match &entry.what {
                What::Answer { key, text } => drop(self.reader.answer(key, text)),
                What::Turn { prompt: Some(prompt), .. } => drop(self.reader.next_turn(prompt)),
                What::Turn { prompt: None, .. }
                | What::Initial
                | What::Write(_)
                | What::Refused { .. } => {}
            }
            self.next_told = self.replay.next();
        }
        self.reader.push(at, rest, &mut found);
        self.note(found, seen);
    }

    /// The sandbox ended with so many bytes printed: what is left, and the judgement.
    pub(super) fn finish(
        &mut self,
        at: Timestamp,
        exit: Exit,
        printed: u64,
    ) -> (Judgement, Vec<Item>) {
        if printed > self.taken {
            self.missing.push((self.taken, printed));
        }
        let mut found = Vec::new();
        let judgement = self.reader.finish(at, exit, &mut found);
        let mut seen = Vec::new();
        self.note(found, &mut seen);
        for (at, _) in &mut seen {
            *at = self.taken.saturating_sub(self.before);
        }
        let masked = self.masker.finish();
        // What was seen at the very end has no bytes of its own, so it may be told twice.
        let items = self.item(masked, seen).into_iter().collect();
        (judgement, items)
    }

    /// What is handed on: of the bytes only what is not durable yet.
    fn item(&mut self, masked: Vec<u8>, seen: Vec<(u64, Seen)>) -> Option<Item> {
        let begin = self.given;
        self.given += masked.len() as u64;
        let durable = usize::try_from(self.acknowledged.saturating_sub(begin));
        let bytes = masked.get(durable.unwrap_or(usize::MAX)..).unwrap_or_default().to_vec();
        (!bytes.is_empty() || !seen.is_empty()).then_some(Item::Output { bytes, seen })
    }

    /// What control is told of observations; what is to be written is put aside.
    fn note(&mut self, found: Vec<belay_agent::Seen>, seen: &mut Vec<(u64, Seen)>) {
        for one in found {
            let told = match one.what {
                Observation::Event(event) => {
                    let mut detail = serde_json::to_value(&event.detail).unwrap_or_default();
                    self.secrets.value(&mut detail);
                    Seen::Event { kind: event.kind, detail }
                }
                Observation::Conversation(id) => Seen::Conversation(id.as_str().into()),
                Observation::Usage(usage) => {
                    Seen::Usage(usage.since(self.used_before.unwrap_or_default()))
                }
                Observation::ToolOpened { id, .. } => {
                    Seen::ToolOpened { id: self.secrets.text(&id) }
                }
                Observation::ToolClosed { id } => Seen::ToolClosed { id: self.secrets.text(&id) },
                Observation::Drift(drift) => {
                    tracing::debug!(agent = %self.agent, drift = %shown(&drift), "drift");
                    Seen::Drift(1)
                }
                Observation::Write(write) => {
                    self.writes.push(write);
                    continue;
                }
                // Questions are asked from the reader's own books; turns are judged at the end.
                Observation::Question(_)
                | Observation::QuestionClosed(_)
                | Observation::TurnStarted
                | Observation::TurnEnded(_) => continue,
            };
            seen.push((one.at.end, told));
        }
    }
}

/// A drift for the log: the name of an unknown type is the agent's word and is not repeated.
const fn shown(drift: &Drift) -> &'static str {
    match drift {
        Drift::UnknownType(_) => "unknown type",
        Drift::NotJson => "not JSON",
        Drift::NotUtf8 => "not UTF-8",
        Drift::TooLong => "line too long",
        Drift::HalfLine => "half a line",
        Drift::UsageFell => "usage fell",
        Drift::UnknownTool => "unknown tool",
        Drift::TooManyTools => "too many tools",
        Drift::SecondEnd => "second end",
        Drift::BadConversation => "bad conversation",
    }
}
