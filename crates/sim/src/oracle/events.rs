//! Events, as a consumer with a cursor reads them: complete, in order, one life per task.

use std::collections::BTreeMap;

use belay_kernel::{Revision, TaskId};
use belay_store::{Cursor, Event, EventFilter, Store};

use super::{Oracle, at_once, short};

/// Where the consumer stands, and what each task's last event said.
#[derive(Default)]
pub(super) struct Consumer {
    number: u64,
    states: BTreeMap<TaskId, String>,
    revisions: BTreeMap<TaskId, Revision>,
}

impl Oracle {
    /// Reads what is new.
    pub(super) fn read_events(&self) {
        let epoch = Store::installation(&self.memory).epoch;
        loop {
            let number = self.ledger().events.number;
            let cursor = Cursor { epoch, number };
            let read = Store::events(&self.memory, cursor, EventFilter::default(), 500);
            let Some(Ok(page)) = at_once(read) else {
                return self.sim.violate(13, format!("events after {number} cannot be read"));
            };
            if page.events.is_empty() {
                return;
            }
            let mut ledger = self.ledger();
            for event in &page.events {
                if let Some(what) = ledger.events.take(event) {
                    self.sim.violate(13, what);
                }
            }
        }
    }
}

impl Consumer {
    /// Takes the next event; what is wrong with it.
    fn take(&mut self, event: &Event) -> Option<String> {
        let expected = self.number + 1;
        self.number = event.number;
        if event.number != expected {
            return Some(format!("event {expected} is missing before {}", event.number));
        }
        let task = event.event.task?;
        // A report tells of a task without touching its row, and has no revision.
        if event.revision.0 > 0
            && self.revisions.insert(task, event.revision).is_some_and(|b| b > event.revision)
        {
            return Some(format!("events of {} are not in order", short(task)));
        }
        let body: serde_json::Value = serde_json::from_str(&event.event.body).unwrap_or_default();
        let state = body["state"].as_str()?.to_owned();
        let before = self.states.insert(task, state);
        match (before, body["from"].as_str()) {
            (Some(before), Some(from)) if before != from => {
                let kind = &event.event.kind;
                Some(format!("{kind} of {} comes from {from}, not {before}", short(task)))
            }
            _ => None,
        }
    }
}
