//! One stream, without its transport: what it says next, and when it is over.

use std::sync::Arc;

use axum::body::Bytes;
use belay_store::{Cursor, EventFilter};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use super::frame::Frame;
use super::hub::{Batch, Hub, Queue};
use super::wanted::Wanted;
use super::{HEARTBEAT, Place};
use crate::service::Service;

/// How many events a stream that is behind reads at once.
const PAGE: usize = 250;

/// Why a stream ends, from our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// The client did not keep up.
    Slow,
    /// The server is being stopped.
    Stopping,
    /// The log cannot be read now.
    Unavailable,
    /// Whoever listens may not any more.
    Forbidden,
}

impl Over {
    /// The name on the wire.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Stopping => "stopping",
            Self::Unavailable => "unavailable",
            Self::Forbidden => "forbidden",
        }
    }
}

/// What a stream says.
#[derive(Debug)]
pub(crate) enum Told {
    /// Events, in order.
    Events(Vec<Bytes>),
    /// Nothing happened; everything up to here was seen.
    Heartbeat(Cursor),
    /// It is over, and can be resumed here.
    Resume(Cursor, Over),
}

/// In which form events are told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// As server-sent events.
    Sse,
    /// As JSON documents.
    Json,
}

enum Phase {
    /// It reads the log by itself; with a queue, it is nearly there.
    Behind(Option<Queue>),
    Live(Queue),
    Over,
}

/// What a stream begins with.
pub(crate) struct Begin {
    pub(crate) wanted: Wanted,
    pub(crate) after: Cursor,
    pub(crate) form: Form,
    /// A token that may open nothing any more before the stream is over.
    pub(crate) token: Option<String>,
    pub(crate) place: Place,
}

/// A stream.
pub(crate) struct Feed<S> {
    service: S,
    hub: Hub,
    closing: watch::Receiver<bool>,
    wanted: Wanted,
    filter: EventFilter,
    form: Form,
    token: Option<String>,
    cursor: Cursor,
    phase: Phase,
    beat: Interval,
    _place: Place,
}

impl<S: Service> Feed<S> {
    pub(crate) fn new(service: S, hub: Hub, closing: watch::Receiver<bool>, begin: Begin) -> Self {
        let Begin { wanted, after, form, token, place } = begin;
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            service,
            hub,
            closing,
            filter: wanted.of_log(),
            wanted,
            form,
            token,
            cursor: after,
            phase: Phase::Behind(None),
            beat,
            _place: place,
        }
    }

    /// Where the stream is.
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// What comes next; nothing, when it is over. It may be dropped and asked again: what was not
    /// answered was not passed over.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            let told = match &mut self.phase {
                Phase::Over => return None,
                Phase::Behind(_) => self.catch_up().await,
                Phase::Live(_) => self.live().await,
            };
            if let Some(told) = told {
                return Some(told);
            }
        }
    }

    fn over(&mut self, why: Over) -> Option<Told> {
        self.phase = Phase::Over;
        Some(Told::Resume(self.cursor, why))
    }

    /// Reads a page of the log; goes live when nothing is left between it and the queue.
    async fn catch_up(&mut self) -> Option<Told> {
        if *self.closing.borrow() {
            return self.over(Over::Stopping);
        }
        let read = match self.service.read_log(self.cursor, self.filter, PAGE).await {
            Ok(read) => read,
            Err(problem) => {
                tracing::debug!("a stream cannot read the log: {problem}");
                return self.over(Over::Unavailable);
            }
        };
        let all = read.events.len() < PAGE;
        let frames: Vec<_> =
            read.events.into_iter().map(|event| Frame::new(self.cursor.epoch, event)).collect();
        self.cursor = read.cursor;
        if all {
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Behind(Some(queue)) if queue.head <= self.cursor.number => {
                    Phase::Live(queue)
                }
                Phase::Behind(Some(queue)) => Phase::Behind(Some(queue)),
                Phase::Behind(None) => {
                    let queue = self.hub.subscribe(self.wanted.clone(), self.cursor);
                    match queue.head <= self.cursor.number {
                        true => Phase::Live(queue),
                        false => Phase::Behind(Some(queue)),
                    }
                }
                other @ (Phase::Live(_) | Phase::Over) => other,
            };
        }
        self.told(frames.iter())
    }

    async fn live(&mut self) -> Option<Told> {
        /// What happened first.
        enum Happened {
            Closing,
            Batch(Option<Arc<Batch>>),
            Time,
        }
        let Phase::Live(queue) = &mut self.phase else { return None };
        let happened = tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => Happened::Closing,
            batch = queue.next() => Happened::Batch(batch),
            _ = self.beat.tick() => Happened::Time,
        };
        match happened {
            Happened::Closing => self.over(Over::Stopping),
            Happened::Batch(Some(batch)) => self.take(&batch),
            Happened::Batch(None) => self.over(Over::Slow),
            Happened::Time => self.heartbeat().await,
        }
    }

    fn take(&mut self, batch: &Arc<Batch>) -> Option<Told> {
        let seen = self.cursor.number;
        self.cursor.number = seen.max(batch.upto);
        self.told(batch.frames.iter().filter(|frame| frame.number > seen))
    }

    /// What is wanted of these events, if anything is.
    fn told<'a>(&self, frames: impl Iterator<Item = &'a Frame>) -> Option<Told> {
        let wanted = frames.filter(|frame| self.wanted.covers(frame));
        let messages: Vec<_> = wanted
            .map(|frame| match self.form {
                Form::Sse => frame.sse(),
                Form::Json => frame.json(),
            })
            .collect();
        (!messages.is_empty()).then_some(Told::Events(messages))
    }

    /// Says that the stream is alive, if whoever listens still may.
    async fn heartbeat(&mut self) -> Option<Told> {
        if let Some(token) = &self.token
            && !matches!(self.service.principal(token).await, Ok(Some(_)))
        {
            return self.over(Over::Forbidden);
        }
        if let Phase::Live(queue) = &self.phase
            && let Some(upto) = queue.seen_upto()
        {
            self.cursor.number = self.cursor.number.max(upto);
        }
        Some(Told::Heartbeat(self.cursor))
    }
}

/// The document of a message that is no event: `stream.heartbeat`, `stream.resume`.
pub(crate) fn document(kind: &str, cursor: Cursor, why: Option<Over>) -> String {
    let mut document = json!({ "kind": format!("stream.{kind}"), "cursor": cursor.to_string() });
    if let Some(why) = why {
        document["body"] = json!({ "reason": why.name() });
    }
    document.to_string()
}
