//! What must hold when the clock is set back under a store.

use std::time::{Duration, Instant};

use belay_kernel::{AttemptNumber, Span, TaskId, Timestamp};
use belay_store::rows::TaskRow;
use belay_store::{Beat, Beaten, Commit, EventFilter, Holder, NewEvent, Store};

use crate::suite::make::*;

const HOLD: Span = Span::from_secs(5);

/// What was promised by a clock that is about to be set back.
pub(crate) struct Armed {
    task: TaskId,
    holder: Holder,
    now: Timestamp,
    until: Timestamp,
    began: Instant,
    delay: Duration,
}

/// A task whose timer fires after `delay`, with a live attempt and its lease, all by the store's
/// own clock.
pub(crate) async fn armed<S: Store>(store: &S, delay: Duration) -> Armed {
    let now = store.now().await.unwrap();
    let began = Instant::now();
    let (row, session) = (task("builder"), session());
    let attempt = attempt(row.task.id, 1, session.id);
    done(store, creation(&row).insert(&session).insert(&attempt)).await;
    let holder = Holder::Attempt(row.task.id, AttemptNumber(1));
    let due_at = now.after(Span::from_millis(u64::try_from(delay.as_millis()).unwrap()));
    let row = TaskRow { due_at: Some(due_at), ..task_of(store, attempt.task).await.row };
    let told = NewEvent::task(attempt.task, "armed", "{}".into(), now);
    done(store, Commit::new().update(FIRST, &row).event(told)).await;
    let until = now.after(Span::from_millis(60_000));
    let beaten = store.beat(vec![beat(holder, until)], now).await.unwrap();
    assert_eq!(beaten, [Beaten::Current { until }]);
    Armed { task: attempt.task, holder, now, until, began, delay }
}

fn beat(holder: Holder, until: Timestamp) -> Beat {
    Beat { holder, fence: "1".to_owned(), until }
}

/// Time goes on: the timer fires when its delay has passed and not before, the lease is as long as
/// it was promised, and events come in order, at moments that do not go back.
pub(crate) async fn after_the_clock_was_set_back<S: Store>(store: &S, armed: Armed) {
    let now = store.now().await.unwrap();
    assert!(now >= armed.now, "{now:?} is not before {:?}", armed.now);
    let until = now.after(Span::from_millis(10));
    let beaten = store.beat(vec![beat(armed.holder, until)], now).await.unwrap();
    assert_eq!(beaten, [Beaten::Current { until: armed.until }]);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = store.now().await.unwrap();
        let due = store.take_due(now, HOLD, 100).await.unwrap();
        if due.iter().any(|due| due.key.id::<TaskRow>() == Some(armed.task)) {
            break;
        }
        assert!(Instant::now() < deadline, "the timer fires");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(armed.began.elapsed() + Duration::from_millis(50) >= armed.delay, "not before");
    let now = store.now().await.unwrap();
    let told = NewEvent::task(armed.task, "fired", "{}".into(), now);
    done(store, Commit::new().event(told)).await;
    crate::suite::following::settle(store).await;
    let filter = EventFilter { task: Some(armed.task), ..EventFilter::default() };
    let page = store.events(store.oldest().await.unwrap(), filter, 100).await.unwrap();
    let told: Vec<_> = page.events.iter().map(|one| one.event.kind.as_str()).collect();
    assert_eq!(told.last(), Some(&"fired"), "{told:?}");
    let at = |kind: &str| page.events.iter().find(|one| one.event.kind == kind).unwrap().event.at;
    assert!(at("armed") <= at("fired"));
}
