//! The one reader of the log on a node, and the queues that it fills.
//!
//! Each event is read and rendered once. A stream that wants some tasks only is found by their ids,
//! so that thousands that wait for something else cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_api::Problem;
use belay_kernel::{TaskId, WorkflowId};
use belay_store::{Cursor, EventFilter};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::frame::Frame;
use super::wanted::Wanted;
use crate::service::Service;

/// How many events are read at once.
const READ: usize = 500;
/// How much one stream may have waiting: so many batches, and so many bytes.
const QUEUE: usize = 64;
const QUEUE_BYTES: usize = 8 << 20;
/// How long the reader waits for a hint before it looks for itself.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long it rests when nobody listens, or when the log cannot be read.
const REST: Duration = Duration::from_millis(50);

/// Events that were read together, in order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) frames: Vec<Frame>,
    /// The number after the last event that was looked at.
    pub(crate) upto: u64,
    bytes: usize,
}

/// Whom a stream is found by.
#[derive(Debug, Default)]
struct Index {
    /// Streams that want events of any task.
    all: BTreeSet<u64>,
    by_task: BTreeMap<TaskId, BTreeSet<u64>>,
    by_workflow: BTreeMap<WorkflowId, BTreeSet<u64>>,
}

impl Index {
    fn put(&mut self, id: u64, wanted: &Wanted) {
        for task in &wanted.tasks {
            self.by_task.entry(*task).or_default().insert(id);
        }
        if wanted.tasks.is_empty() {
            for workflow in &wanted.workflows {
                self.by_workflow.entry(*workflow).or_default().insert(id);
            }
        }
        if wanted.tasks.is_empty() && wanted.workflows.is_empty() {
            self.all.insert(id);
        }
    }

    fn take(&mut self, id: u64, wanted: &Wanted) {
        fn leave<K: Ord>(map: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, id: u64) {
            if let Some(ids) = map.get_mut(key) {
                ids.remove(&id);
                if ids.is_empty() {
                    map.remove(key);
                }
            }
        }
        self.all.remove(&id);
        for task in &wanted.tasks {
            leave(&mut self.by_task, task, id);
        }
        for workflow in &wanted.workflows {
            leave(&mut self.by_workflow, workflow, id);
        }
    }

    /// The streams that want something of these events, besides those that want any.
    fn named(&self, frames: &[Frame]) -> BTreeSet<u64> {
        let mut ids = BTreeSet::new();
        for frame in frames {
            let of_task = frame.task.and_then(|task| self.by_task.get(&task));
            let of_workflow = frame.workflow.and_then(|id| self.by_workflow.get(&id));
            for found in [of_task, of_workflow].into_iter().flatten() {
                ids.extend(found);
            }
        }
        ids
    }
}

#[derive(Debug)]
struct Stream {
    queue: mpsc::Sender<Arc<Batch>>,
    waiting: Arc<AtomicUsize>,
    wanted: Wanted,
}

#[derive(Debug)]
struct State {
    /// Everything up to and including this was handed out.
    head: u64,
    next_id: u64,
    streams: BTreeMap<u64, Stream>,
    index: Index,
}

/// The reader's side and the streams' side of what they share. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    state: Arc<Mutex<State>>,
    epoch: u64,
}

impl Hub {
    /// A hub that hands out what comes after the newest event.
    pub(crate) async fn open<S: Service>(service: &S) -> Result<Self, Problem> {
        let (_, newest) = service.log_ends().await?;
        let state = State {
            head: newest.number,
            next_id: 0,
            streams: BTreeMap::new(),
            index: Index::default(),
        };
        Ok(Self { state: Arc::new(Mutex::new(state)), epoch: newest.epoch })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last event that was handed out.
    pub(crate) fn head(&self) -> u64 {
        self.state().head
    }

    /// Reads the log and hands it out, for ever.
    pub(crate) async fn run<S: Service>(&self, service: &S) {
        loop {
            match self.turn(service).await {
                Ok(true) => {}
                Ok(false) => {
                    let head = Cursor { epoch: self.epoch, number: self.head() };
                    service.await_log(head, LOOK_AGAIN).await;
                }
                Err(problem) => {
                    tracing::warn!("the log of events cannot be read: {problem}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Hands out what there is; tells whether there may be more.
    async fn turn<S: Service>(&self, service: &S) -> Result<bool, Problem> {
        let (head, idle) = {
            let state = self.state();
            (state.head, state.streams.is_empty())
        };
        if idle {
            let (_, newest) = service.log_ends().await?;
            if self.skip_to(newest.number) {
                tokio::time::sleep(REST).await;
                return Ok(false);
            }
        }
        let after = Cursor { epoch: self.epoch, number: head };
        let read = service.read_log(after, EventFilter::default(), READ).await?;
        let more = read.events.len() == READ;
        let epoch = self.epoch;
        let frames: Vec<_> =
            read.events.into_iter().map(|event| Frame::new(epoch, event)).collect();
        let bytes = frames.iter().map(Frame::size).sum();
        self.hand_out(Batch { frames, upto: read.cursor.number, bytes });
        Ok(more)
    }

    /// Passes over what nobody listens to; tells whether nobody does.
    fn skip_to(&self, newest: u64) -> bool {
        let mut state = self.state();
        let nobody = state.streams.is_empty();
        if nobody {
            state.head = newest;
        }
        nobody
    }

    /// Puts a batch into every queue that wants some of it. A queue that is full is closed: its
    /// stream goes on from the log when its client comes back.
    fn hand_out(&self, batch: Batch) {
        let mut state = self.state();
        state.head = batch.upto;
        if batch.frames.is_empty() {
            return;
        }
        let batch = Arc::new(batch);
        let mut slow = Vec::new();
        let named = state.index.named(&batch.frames);
        for id in state.index.all.iter().chain(&named) {
            let Some(stream) = state.streams.get(id) else { continue };
            let waiting = stream.waiting.fetch_add(batch.bytes, Ordering::AcqRel);
            let full = waiting > 0 && waiting + batch.bytes > QUEUE_BYTES;
            if full || !put(&stream.queue, &batch) {
                slow.push(*id);
            }
        }
        for id in slow {
            state.remove(id);
        }
    }

    /// A queue of what is handed out from now on: everything after [`Queue::head`].
    pub(crate) fn subscribe(&self, wanted: Wanted) -> Queue {
        let (queue, batches) = mpsc::channel(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.index.put(id, &wanted);
        state.streams.insert(id, Stream { queue, waiting: Arc::clone(&waiting), wanted });
        Queue { id, head: state.head, batches, waiting, hub: self.clone() }
    }
}

fn put(queue: &mpsc::Sender<Arc<Batch>>, batch: &Arc<Batch>) -> bool {
    match queue.try_send(Arc::clone(batch)) {
        Ok(()) => true,
        Err(TrySendError::Full(_) | TrySendError::Closed(_)) => false,
    }
}

impl State {
    fn remove(&mut self, id: u64) {
        if let Some(stream) = self.streams.remove(&id) {
            self.index.take(id, &stream.wanted);
        }
    }
}

/// What a stream has waiting.
#[derive(Debug)]
pub(crate) struct Queue {
    id: u64,
    /// Everything after this comes through the queue.
    pub(crate) head: u64,
    batches: mpsc::Receiver<Arc<Batch>>,
    waiting: Arc<AtomicUsize>,
    hub: Hub,
}

impl Queue {
    /// The next batch; nothing, if the queue was full and is closed.
    pub(crate) async fn next(&mut self) -> Option<Arc<Batch>> {
        let batch = self.batches.recv().await?;
        self.waiting.fetch_sub(batch.bytes, Ordering::AcqRel);
        Some(batch)
    }

    /// How far this stream has seen everything, if nothing is waiting: what was handed out before
    /// the head moved is in the queue, so the head is read first.
    pub(crate) fn seen_upto(&self) -> Option<u64> {
        let head = self.hub.head();
        self.batches.is_empty().then_some(head)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.hub.state().remove(self.id);
    }
}
