//! The one reader of the log on a node, and the queues that it fills.
//!
//! Each event is read and rendered once. A stream that wants some tasks only is found by their ids,
//! so that thousands that wait for something else cost nothing. While nobody listens, nothing is
//! read: the first stream to come says where to begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_api::Problem;
use belay_kernel::{TaskId, WorkflowId};
use belay_store::{Cursor, EventFilter};
use tokio::sync::Notify;
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
/// How long it rests when the log cannot be read.
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
    head: Cursor,
    next_id: u64,
    streams: BTreeMap<u64, Stream>,
    index: Index,
}

/// The reader's side and the streams' side of what they share. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    state: Arc<Mutex<State>>,
    /// Somebody listens.
    wake: Arc<Notify>,
}

impl Hub {
    /// A hub to which nobody listens yet.
    pub(crate) fn new() -> Self {
        let state = State {
            head: Cursor { epoch: 0, number: 0 },
            next_id: 0,
            streams: BTreeMap::new(),
            index: Index::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), wake: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the reader is; nothing, if nobody listens.
    fn place(&self) -> Option<Cursor> {
        let state = self.state();
        (!state.streams.is_empty()).then_some(state.head)
    }

    /// Reads the log and hands it out, for ever.
    pub(crate) async fn run<S: Service>(&self, service: &S) {
        loop {
            let Some(head) = self.place() else {
                self.wake.notified().await;
                continue;
            };
            match self.turn(service, head).await {
                Ok(true) => {}
                Ok(false) => service.await_log(head, LOOK_AGAIN).await,
                Err(problem) => {
                    tracing::warn!("the log of events cannot be read: {problem}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Hands out what there is after `head`; tells whether there was anything.
    async fn turn<S: Service>(&self, service: &S, head: Cursor) -> Result<bool, Problem> {
        let read = service.read_log(head, EventFilter::default(), READ).await?;
        if read.cursor == head {
            return Ok(false);
        }
        let frames: Vec<_> =
            read.events.into_iter().map(|event| Frame::new(head.epoch, event)).collect();
        let bytes = frames.iter().map(Frame::size).sum();
        self.hand_out(head, Batch { frames, upto: read.cursor.number, bytes });
        Ok(true)
    }

    /// Puts a batch into every queue that wants some of it. A queue that is full is closed: its
    /// stream goes on from the log when its client comes back.
    fn hand_out(&self, after: Cursor, batch: Batch) {
        let mut state = self.state();
        if state.head != after {
            return; // everybody left meanwhile, and somebody came who begins elsewhere
        }
        state.head.number = batch.upto;
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

    /// A queue of what is handed out from now on, for a stream that has seen everything up to
    /// `seen`: everything after [`Queue::head`] comes through it.
    pub(crate) fn subscribe(&self, wanted: Wanted, seen: Cursor) -> Queue {
        let (queue, batches) = mpsc::channel(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut state = self.state();
        if state.streams.is_empty() {
            state.head = seen;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.index.put(id, &wanted);
        state.streams.insert(id, Stream { queue, waiting: Arc::clone(&waiting), wanted });
        self.wake.notify_one();
        Queue { id, head: state.head.number, batches, waiting, hub: self.clone() }
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
        let head = self.hub.state().head.number;
        self.batches.is_empty().then_some(head)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.hub.state().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::{Revision, Timestamp};
    use belay_store::{Event, NewEvent};

    use super::*;

    fn at(number: u64) -> Cursor {
        Cursor { epoch: 1, number }
    }

    fn frame(number: u64, task: u128, body: &str) -> Frame {
        let task = TaskId::from_bits(task);
        let event = NewEvent::task(task, "agent.x", body.to_owned(), Timestamp::EPOCH);
        Frame::new(1, Event { number, revision: Revision(1), event })
    }

    /// A batch with one event of each of these tasks, right after `head`.
    fn hand(hub: &Hub, head: u64, tasks: &[u128], body: &str) {
        let numbered = tasks.iter().zip(head + 1..);
        let frames: Vec<_> = numbered.map(|(task, number)| frame(number, *task, body)).collect();
        let bytes = frames.iter().map(Frame::size).sum();
        hub.hand_out(at(head), Batch { upto: head + tasks.len() as u64, frames, bytes });
    }

    fn of(task: u128) -> Wanted {
        let mut wanted = Wanted::default();
        wanted.tasks.insert(TaskId::from_bits(task));
        wanted
    }

    #[tokio::test]
    async fn who_waits_for_another_task_is_left_alone_and_knows_how_far_it_is() {
        let hub = Hub::new();
        let mut all = hub.subscribe(Wanted::default(), at(10));
        let mut one = hub.subscribe(of(1), at(3));
        assert_eq!((all.head, one.head), (10, 10), "the reader is where the first one began");
        hand(&hub, 10, &[2, 2], "{}");
        assert_eq!(one.seen_upto(), Some(12), "nothing of it was wanted");
        assert_eq!(all.seen_upto(), None, "something waits");
        hand(&hub, 12, &[2, 1], "{}");
        assert_eq!(one.next().await.unwrap().upto, 14);
        assert_eq!(all.next().await.unwrap().upto, 12);
        assert_eq!(all.next().await.unwrap().upto, 14);
    }

    #[tokio::test]
    async fn a_queue_that_is_full_is_closed_and_the_others_go_on() {
        let hub = Hub::new();
        let mut slow = hub.subscribe(Wanted::default(), at(0));
        let mut quick = hub.subscribe(Wanted::default(), at(0));
        for number in 0..=QUEUE as u64 {
            hand(&hub, number, &[1], "{}");
            assert_eq!(quick.next().await.unwrap().upto, number + 1);
        }
        for number in 0..QUEUE as u64 {
            assert_eq!(slow.next().await.unwrap().upto, number + 1, "what it has is not lost");
        }
        assert!(slow.next().await.is_none());
        assert_eq!(hub.state().streams.len(), 1);
    }

    #[tokio::test]
    async fn a_queue_is_bounded_by_bytes_but_takes_one_large_batch() {
        let hub = Hub::new();
        let mut slow = hub.subscribe(Wanted::default(), at(0));
        let large = format!("\"{}\"", "x".repeat(QUEUE_BYTES));
        hand(&hub, 0, &[1], &large);
        hand(&hub, 1, &[1], "{}");
        assert_eq!(slow.next().await.unwrap().upto, 1);
        assert!(slow.next().await.is_none());
    }

    #[test]
    fn who_leaves_is_forgotten_and_who_comes_to_nobody_begins_anew() {
        let hub = Hub::new();
        let gone = hub.subscribe(of(1), at(5));
        drop(gone);
        assert!(hub.place().is_none() && hub.state().index.by_task.is_empty());
        let here = hub.subscribe(of(1), at(20));
        assert_eq!(hub.place(), Some(at(20)));
        // A batch that was read for somebody who left is not handed out: it begins elsewhere.
        hand(&hub, 5, &[1], "{}");
        assert_eq!(here.seen_upto(), Some(20));
    }
}
