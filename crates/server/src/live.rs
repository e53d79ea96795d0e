//! Live streams of events: server-sent events and WebSocket, over one reader of the log per node.
//!
//! ```text
//!                       ┌─ queue ─► feed ─► SSE
//!  log ─► hub (reads    ├─ queue ─► feed ─► WebSocket        a feed that begins behind reads the
//!         each event    └─ queue ─► feed ─► …                log by itself until it has caught up
//!         once)
//! ```
//!
//! A stream is a cursor that moves. It begins after a cursor, reads what it missed, and then takes
//! what the hub hands out; where the two meet, numbers decide, so that nothing is missed and
//! nothing comes twice. Every message carries the cursor after it.
//!
//! A queue is bounded. A client that is slower than its queue is told where to resume and closed:
//! the log is the buffer, memory is not. A client that takes nothing at all is cut off by its
//! connection's own limit.

mod feed;
mod frame;
mod hub;
mod listen;
mod sse;
mod wanted;
mod ws;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_api::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::answer::Failed;

pub(crate) use hub::Hub;
pub(crate) use listen::Listener;
pub(crate) use sse::sse;
pub(crate) use wanted::{Wanted, names};
pub(crate) use ws::ws;

/// Where streams are.
pub(crate) const STREAM: &str = "/api/v1/events/stream";
pub(crate) const WEBSOCKET: &str = "/api/v1/events/ws";
/// How many streams are open at a time. They are counted apart from other connections, because
/// they stay: a thousand dashboards must not keep a person's stop waiting.
pub(crate) const STREAMS: usize = 8_192;
/// How often a stream in which nothing happens says that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// What a connection holds of the server until it becomes a stream.
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Slot {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }

    /// The connection is a stream from now on, and makes room for another connection.
    fn leave(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// What every stream of a node shares.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) hub: Hub,
    slots: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
    /// Held by every stream: closed when all of them are over.
    open: mpsc::Sender<()>,
}

/// A stream's place among all streams.
pub(crate) struct Place {
    _slot: OwnedSemaphorePermit,
    _open: mpsc::Sender<()>,
}

impl Live {
    /// The streams of a node, and what ends when the last of them does.
    pub(crate) fn new(hub: Hub, closing: watch::Receiver<bool>) -> (Self, mpsc::Receiver<()>) {
        let (open, over) = mpsc::channel(1);
        (Self { hub, slots: Arc::new(Semaphore::new(STREAMS)), closing, open }, over)
    }

    /// A place for one more stream, in exchange for the connection's own.
    fn place(&self, slot: Option<&Slot>) -> Result<Place, Failed> {
        let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() else {
            let detail = format!("{STREAMS} streams are open, which is all there are; try again");
            return Err(Failed::new(Code::Unavailable, detail));
        };
        if let Some(slot) = slot {
            slot.leave();
        }
        Ok(Place { _slot: permit, _open: self.open.clone() })
    }
}
