//! Events: complete, in order within a task, by a cursor that is believed only where it was given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belay_kernel::SessionId;
use belay_store::rows::TaskRow;
use belay_store::{Commit, Cursor, EventFilter, NewEvent, Store};

use super::make::*;

/// Waits until everything that was committed before has a number: the newest does not move any more
/// once a marker that is committed now is there.
pub(crate) async fn settle<S: Store>(store: &S) -> Cursor {
    let marker = task_id();
    let mut cursor = store.latest().await.unwrap();
    let commit = Commit::new().event(NewEvent::task(marker, "marker", "{}".into(), at(9_999)));
    done(store, commit).await;
    let filter = EventFilter { task: Some(marker), ..EventFilter::default() };
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = store.events(cursor, filter, 10).await.unwrap();
        if !found.events.is_empty() {
            return found.cursor;
        }
        cursor = found.cursor;
        assert!(Instant::now() < deadline, "events are numbered in the end");
        store.await_events(cursor, Duration::from_millis(50)).await;
    }
}

/// The marker events of other cases are not part of what is looked at.
fn ours(event: &belay_store::Event) -> bool {
    event.event.kind != "marker"
}

pub(crate) async fn events_are_read_in_order_by_cursor<S: Store>(store: Arc<S>) {
    let start = settle(&*store).await;
    let row = task("builder");
    done(&*store, creation(&row).event(event(row.task.id, "second"))).await;
    let next = TaskRow { priority: 1, ..row.clone() };
    done(&*store, Commit::new().update(FIRST, &next).event(event(row.task.id, "third"))).await;
    settle(&*store).await;
    let mut cursor = start;
    let mut seen = Vec::new();
    loop {
        let page = store.events(cursor, EventFilter::default(), 2).await.unwrap();
        if page.events.is_empty() {
            break;
        }
        cursor = page.cursor;
        seen.extend(page.events);
    }
    let numbers: Vec<_> = seen.iter().map(|one| one.number).collect();
    let counted: Vec<_> = (start.number + 1..).take(numbers.len()).collect();
    assert_eq!(numbers, counted, "without gaps");
    let told: Vec<_> = seen
        .iter()
        .filter(|one| ours(one))
        .map(|one| (one.event.kind.as_str(), one.revision.0))
        .collect();
    assert_eq!(told, [("task.created", 1), ("second", 1), ("third", 2)]);
    let spelled: Cursor = cursor.to_string().parse().unwrap();
    assert_eq!(spelled, cursor);
}

pub(crate) async fn events_are_filtered<S: Store>(store: Arc<S>) {
    let start = settle(&*store).await;
    let (one, two) = (task("builder"), task("builder"));
    let session = SessionId::from_bits(fresh());
    let told = NewEvent { session: Some(session), ..event(two.task.id, "session.paused") };
    done(&*store, creation(&one)).await;
    done(&*store, creation(&two).event(told)).await;
    settle(&*store).await;
    let kinds = |filter| {
        let store = Arc::clone(&store);
        async move {
            let page = store.events(start, filter, 50).await.unwrap();
            let last = store.latest().await.unwrap();
            assert_eq!(page.cursor, last, "a filtered reader does not look twice");
            page.events.into_iter().map(|one| one.event.kind).collect::<Vec<_>>()
        }
    };
    let of_task = EventFilter { task: Some(one.task.id), ..EventFilter::default() };
    assert_eq!(kinds(of_task).await, ["task.created"]);
    let of_session = EventFilter { session: Some(session), ..EventFilter::default() };
    assert_eq!(kinds(of_session).await, ["session.paused"]);
}

pub(crate) async fn foreign_and_future_cursors_are_refused<S: Store>(store: Arc<S>) {
    let here = settle(&*store).await;
    let refused = |cursor| {
        let store = Arc::clone(&store);
        async move {
            let answer = store.events(cursor, EventFilter::default(), 5).await;
            answer.unwrap_err().refusal().map(|refusal| refusal.code())
        }
    };
    let foreign = Cursor { epoch: here.epoch ^ 1, ..here };
    assert_eq!(refused(foreign).await, Some("foreign_cursor"));
    let future = Cursor { number: here.number + 1_000_000, ..here };
    assert_eq!(refused(future).await, Some("future_cursor"));
    let absurd = Cursor { number: u64::MAX, ..here };
    assert_eq!(refused(absurd).await, Some("future_cursor"));
}

pub(crate) async fn whoever_waits_for_events_is_woken<S: Store>(store: Arc<S>) {
    let here = settle(&*store).await;
    let waiter = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let began = Instant::now();
            store.await_events(here, Duration::from_secs(20)).await;
            began.elapsed()
        })
    };
    tokio::task::yield_now().await;
    done(&*store, creation(&task("builder"))).await;
    let waited = waiter.await.unwrap();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

/// Sixteen writers, of several events a commit and several tasks, against one follower by cursor:
/// nothing skipped, nothing doubled, within a task in the order of its revisions.
pub(crate) async fn sixteen_writers_and_a_follower<S: Store>(store: Arc<S>) {
    const WRITERS: usize = 16;
    const COMMITS: usize = 40;
    let start = settle(&*store).await;
    let left = Arc::new(AtomicUsize::new(WRITERS));
    let mut writers = Vec::new();
    for index in 0..WRITERS {
        let (store, left) = (Arc::clone(&store), Arc::clone(&left));
        writers.push(tokio::spawn(async move {
            let mut row = task("builder");
            done(&*store, Commit::new().insert(&row).event(numbered(&row, 0))).await;
            for count in 1..COMMITS {
                row.priority = (index * count) as i64;
                let revision = belay_kernel::Revision(count as u64);
                let commit = Commit::new().update(revision, &row).event(numbered(&row, 2 * count));
                done(&*store, commit.event(numbered(&row, 2 * count + 1))).await;
            }
            left.fetch_sub(1, Ordering::SeqCst);
        }));
    }
    let wanted = WRITERS * (1 + 2 * (COMMITS - 1));
    let mut told: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
    let (mut cursor, mut count) = (start, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while count < wanted {
        assert!(Instant::now() < deadline, "{count} of {wanted} events came");
        let page = store.events(cursor, EventFilter::default(), 37).await.unwrap();
        let mut last = cursor.number;
        for one in page.events {
            assert_eq!(one.number, last + 1, "no gap");
            last = one.number;
            let Ok(order) = one.event.kind.parse::<u64>() else { continue };
            told.entry(one.event.task).or_default().push((one.revision.0, order));
            count += 1;
        }
        cursor = page.cursor;
        if count < wanted {
            store.await_events(cursor, Duration::from_millis(20)).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(told.len(), WRITERS);
    for events in told.values() {
        let mut sorted = events.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(*events, sorted, "in order, each once");
    }
}

fn numbered(row: &TaskRow, number: usize) -> NewEvent {
    event(row.task.id, &number.to_string())
}
