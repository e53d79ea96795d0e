//! Runs of chunks put together again: agents that stream their words one chunk per event would
//! otherwise count as saying thousands of things. Only as much is kept as is shown.

use belay_kernel::EventKind;

use crate::notes::Notes;
use crate::observation::{Clip, Detail};

#[derive(Default)]
pub(crate) struct Chunks {
    kind: Option<EventKind>,
    text: String,
    bytes: usize,
}

impl Chunks {
    pub(crate) fn said(&mut self, chunk: &str, notes: &mut Notes<'_>) {
        self.add(EventKind::AssistantMessage, chunk, notes);
    }

    pub(crate) fn thought(&mut self, chunk: &str, notes: &mut Notes<'_>) {
        self.add(EventKind::Thinking, chunk, notes);
    }

    fn add(&mut self, kind: EventKind, chunk: &str, notes: &mut Notes<'_>) {
        if chunk.is_empty() {
            return;
        }
        if self.kind.as_ref() != Some(&kind) {
            self.flush(notes);
            self.kind = Some(kind);
        }
        self.bytes += chunk.len();
        if self.text.len() < Clip::LIMIT {
            self.text.push_str(&Clip::of(chunk).text);
        }
    }

    /// What was said so far is a message.
    pub(crate) fn flush(&mut self, notes: &mut Notes<'_>) {
        if let Some(kind) = self.kind.take() {
            let clip = Clip { bytes: self.bytes, ..Clip::of(&self.text) };
            notes.event(kind, Detail::Text(clip));
        }
        self.text.clear();
        self.bytes = 0;
    }
}
