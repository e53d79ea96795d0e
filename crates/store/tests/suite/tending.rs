//! Timers, leases, effects, pruning: what happens beside decisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use belay_kernel::attempt::{Outcome, Phase};
use belay_kernel::{AttemptNumber, Epoch, NodeId, Span};
use belay_store::rows::{AttemptRow, TaskRow};
use belay_store::{
    Beat, Beaten, Commit, Holder, Key, LeaseAct, LeaseKind, LeaseWrite, NewEffect, NewEvent, Prune,
    Request, Settle, Settled, Store,
};

use super::make::*;

const HOLD: Span = Span::from_secs(5);

pub(crate) async fn what_is_due_is_taken_once_and_again_after_its_hold<S: Store>(store: Arc<S>) {
    let (one, two) = (task("builder"), task("builder"));
    let late = TaskRow { due_at: Some(at(300)), ..one.clone() };
    let early = TaskRow { due_at: Some(at(200)), ..two.clone() };
    let session = session();
    let mut try_ = attempt(two.task.id, 1, session.id);
    try_.due_at = Some(at(250));
    let commit = Commit::new().insert(&late).insert(&early).insert(&session).insert(&try_);
    done(&*store, commit).await;
    assert!(store.take_due(at(199), HOLD, 10).await.unwrap().is_empty());
    let due = store.take_due(at(300), HOLD, 10).await.unwrap();
    let keys: Vec<_> = due.iter().map(|due| (due.at.as_millis(), due.key.clone())).collect();
    let attempt_key = Key::of::<AttemptRow>(&(two.task.id, AttemptNumber(1)));
    let wanted = [
        (200, Key::of::<TaskRow>(&two.task.id)),
        (250, attempt_key),
        (300, Key::of::<TaskRow>(&one.task.id)),
    ];
    assert_eq!(keys, wanted);
    assert!(store.take_due(at(4_000), HOLD, 10).await.unwrap().is_empty(), "others hold it");
    let again = store.take_due(at(300).after(HOLD), HOLD, 2).await.unwrap();
    assert_eq!(again.len(), 2, "nobody dealt with it, and no more than asked for");
    assert_eq!(task_of(&*store, one.task.id).await.revision, FIRST);
    done(&*store, Commit::new().update(FIRST, &late)).await;
    let due = store.take_due(at(4_000), HOLD, 10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(300)], "as the row says");
}

pub(crate) async fn a_timer_is_rearmed_unless_the_row_moved_on<S: Store>(store: Arc<S>) {
    let row = TaskRow { due_at: Some(at(100)), ..task("builder") };
    done(&*store, creation(&row)).await;
    let key = Key::of::<TaskRow>(&row.task.id);
    store.rearm(key.clone(), FIRST, Some(at(70_000))).await.unwrap();
    assert_eq!(task_of(&*store, row.task.id).await.row.due_at, Some(at(70_000)));
    done(&*store, Commit::new().update(FIRST, &row)).await;
    store.rearm(key.clone(), FIRST, None).await.unwrap();
    assert_eq!(task_of(&*store, row.task.id).await.row.due_at, Some(at(100)), "it moved on");
    store.rearm(key, FIRST.next(), None).await.unwrap();
    assert_eq!(task_of(&*store, row.task.id).await.row.due_at, None);
}

/// A task with a live attempt; gives the holder of its lease.
async fn live<S: Store>(store: &S) -> (AttemptRow, Holder) {
    let (row, session) = (task("builder"), session());
    let attempt = attempt(row.task.id, 1, session.id);
    done(store, creation(&row).insert(&session).insert(&attempt)).await;
    (attempt, Holder::Attempt(row.task.id, AttemptNumber(1)))
}

fn beat(holder: Holder, fence: &str, until: i64) -> Beat {
    Beat { holder, fence: fence.to_owned(), until: at(until) }
}

fn current(until: i64) -> Beaten {
    Beaten::Current { until: at(until) }
}

pub(crate) async fn beats_renew_and_never_shorten<S: Store>(store: Arc<S>) {
    let (attempt, holder) = live(&*store).await;
    let beats = [70_000, 65_000, 80_000].map(|until| beat(holder, "1", until));
    for (beat, until) in beats.into_iter().zip([70_000, 70_000, 80_000]) {
        assert_eq!(store.beat(vec![beat], at(9)).await.unwrap(), [current(until)]);
    }
    let id = (attempt.task, AttemptNumber(1));
    let stored = load::<S, AttemptRow>(&store, id).await.unwrap();
    assert_eq!(stored.row.attempt.lease_end, at(80_000), "the row shows the committed end");
    let same = vec![beat(holder, "1", 81_000), beat(holder, "1", 82_000)];
    let answers = store.beat(same, at(9)).await.unwrap();
    assert_eq!(answers[1], current(82_000), "twice in one batch");
    let stale = AttemptRow { transcript_length: 5, ..attempt };
    done(&*store, Commit::new().update(FIRST, &stale)).await;
    let stored = load::<S, AttemptRow>(&store, id).await.unwrap();
    assert_eq!(stored.row.attempt.lease_end, at(82_000), "a commit takes back no promise");
}

pub(crate) async fn a_beat_touches_no_revision<S: Store>(store: Arc<S>) {
    let (attempt, holder) = live(&*store).await;
    store.beat(vec![beat(holder, "1", 99_000)], at(9)).await.unwrap();
    let id = (attempt.task, AttemptNumber(1));
    assert_eq!(load::<S, AttemptRow>(&store, id).await.unwrap().revision, FIRST);
    assert_eq!(task_of(&*store, attempt.task).await.revision, FIRST);
    let mut stopped = attempt;
    stopped.attempt.phase = Phase::Ending(Outcome::Cancelled);
    done(&*store, Commit::new().update(FIRST, &stopped)).await;
}

pub(crate) async fn who_is_not_current_is_told<S: Store>(store: Arc<S>) {
    let (attempt, holder) = live(&*store).await;
    let nobody = Holder::Attempt(attempt.task, AttemptNumber(9));
    let beats =
        vec![beat(holder, "1", 61_000), beat(holder, "0", 99_000), beat(nobody, "1", 99_000)];
    let answers = store.beat(beats, at(9)).await.unwrap();
    assert_eq!(answers, [current(61_000), Beaten::Fenced, Beaten::Gone]);
    let mut ending = attempt.clone();
    ending.attempt.phase = Phase::Ending(Outcome::Lost);
    done(&*store, Commit::new().update(FIRST, &ending)).await;
    let answers = store.beat(vec![beat(holder, "1", 99_000)], at(9)).await.unwrap();
    assert_eq!(answers, [Beaten::Fenced], "ENDING renews nothing");
    let id = (attempt.task, AttemptNumber(1));
    let stored = load::<S, AttemptRow>(&store, id).await.unwrap();
    assert_eq!(stored.row.attempt.lease_end, at(61_000), "its committed end stands");
    let over = ended(&stored.row);
    done(&*store, Commit::new().update(stored.revision, &over)).await;
    let answers = store.beat(vec![beat(holder, "1", 99_000)], at(9)).await.unwrap();
    assert_eq!(answers, [Beaten::Gone]);
    let stored = load::<S, AttemptRow>(&store, id).await.unwrap();
    assert_eq!(stored.row.attempt.lease_end, at(61_000), "and is remembered");
    assert_eq!(stored.row.attempt.epoch, Epoch(1));
}

pub(crate) async fn leases_are_extended_by_our_downtime<S: Store>(store: Arc<S>) {
    let (_, open) = live(&*store).await;
    let (closed_row, closed) = live(&*store).await;
    let mut ending = closed_row;
    ending.attempt.phase = Phase::Ending(Outcome::Lost);
    done(&*store, Commit::new().update(FIRST, &ending)).await;
    assert!(store.extend_leases(LeaseKind::Attempt, Span::from_secs(7)).await.unwrap() >= 1);
    let leases = store.leases(LeaseKind::Attempt).await.unwrap();
    let end = |holder| leases.iter().find(|lease| lease.holder == holder).unwrap().until;
    assert_eq!((end(open), end(closed)), (at(67_000), at(60_000)));
}

pub(crate) async fn nodes_are_present_by_lease<S: Store>(store: Arc<S>) {
    let node = Holder::Node(NodeId::from_bits(fresh()));
    let open = |fence: &str, until| LeaseWrite {
        holder: node,
        act: LeaseAct::Open { fence: fence.to_owned(), mode: "live", until: at(until) },
    };
    done(&*store, Commit::new().lease(open("first", 15_000))).await;
    assert_eq!(
        store.beat(vec![beat(node, "first", 20_000)], at(9)).await.unwrap(),
        [current(20_000)]
    );
    done(&*store, Commit::new().lease(open("second", 16_000))).await;
    let beats = vec![beat(node, "first", 30_000), beat(node, "second", 18_000)];
    let answers = store.beat(beats, at(9)).await.unwrap();
    assert_eq!(answers, [Beaten::Fenced, current(18_000)], "a newer process of the same node");
    let leases = store.leases(LeaseKind::Node).await.unwrap();
    assert!(
        leases.iter().any(|lease| lease.holder == node && lease.fence == "second" && lease.open)
    );
    done(&*store, Commit::new().lease(LeaseWrite { holder: node, act: LeaseAct::Drop })).await;
    let leases = store.leases(LeaseKind::Node).await.unwrap();
    assert!(leases.iter().all(|lease| lease.holder != node));
}

fn effect(kind: &str, due: i64) -> NewEffect {
    let (kind, body) = (kind.to_owned(), "{}".to_owned());
    NewEffect {
        task: Some(task_id()),
        attempt: Some(AttemptNumber(1)),
        kind,
        body,
        due_at: at(due),
    }
}

/// Other effects of the same store are not this test's.
async fn take<S: Store>(store: &S, kind: &str, now: i64) -> Vec<belay_store::Effect> {
    let taken = store.take_effects(at(now), HOLD, 1_000).await.unwrap();
    taken.into_iter().filter(|one| one.effect.kind == kind).collect()
}

pub(crate) async fn effects_are_handed_out_at_least_once<S: Store>(store: Arc<S>) {
    let kind = format!("push-{}", task_id());
    let row = task("builder");
    done(&*store, creation(&row).effect(effect(&kind, 100)).effect(effect(&kind, 9_000))).await;
    assert!(take(&*store, &kind, 99).await.is_empty());
    let first = take(&*store, &kind, 100).await.remove(0);
    assert_eq!((first.tries, first.effect.attempt), (1, Some(AttemptNumber(1))));
    assert!(take(&*store, &kind, 101).await.is_empty(), "it is held");
    let second = take(&*store, &kind, 5_100).await.remove(0);
    assert_eq!((second.id, second.tries), (first.id, 2), "whoever held it fell");
    let settle = |one: &belay_store::Effect, what| Settled { id: one.id, tries: one.tries, what };
    let late = store.settle_effects(vec![settle(&first, Settle::Done)]).await.unwrap();
    assert_eq!(late, [false], "who held it too long settles nothing");
    let again = settle(&second, Settle::Again(at(6_000)));
    assert_eq!(store.settle_effects(vec![again]).await.unwrap(), [true]);
    assert!(take(&*store, &kind, 5_999).await.is_empty());
    let third = take(&*store, &kind, 6_000).await.remove(0);
    let done = vec![settle(&third, Settle::Done), settle(&third, Settle::Done)];
    assert_eq!(store.settle_effects(done).await.unwrap(), [true, false]);
    assert_eq!(take(&*store, &kind, 60_000).await.len(), 1, "the other one is there");
}

pub(crate) async fn effects_of_many_hands_are_not_handed_out_twice_at_once<S: Store>(
    store: Arc<S>,
) {
    let kind = format!("kill-{}", task_id());
    let commits = (0..60).map(|_| creation(&task("builder")).effect(effect(&kind, 1)));
    store.commit_all(commits.collect()).await.unwrap();
    let takers = (0..6).map(|_| {
        let (store, kind) = (Arc::clone(&store), kind.clone());
        tokio::spawn(async move {
            let mut mine = Vec::new();
            for _ in 0..12 {
                let taken = store.take_effects(at(100), HOLD, 3).await.unwrap();
                mine.extend(taken.into_iter().filter(|one| one.effect.kind == kind));
            }
            mine
        })
    });
    let mut all = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        all.extend(taker.await.unwrap().into_iter().map(|one| one.id));
    }
    let distinct: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (60, 60));
}

pub(crate) async fn what_is_old_is_forgotten<S: Store>(store: Arc<S>) {
    let row = task("builder");
    let request = |key: &str, ms| Request {
        principal: "ada".into(),
        key: format!("{key}-{}", row.task.id),
        body_hash: "h".into(),
        answer: "a".into(),
        at: at(ms),
    };
    let old = NewEvent { at: at(-10), ..event(row.task.id, "old") };
    let start = store.latest().await.unwrap();
    done(&*store, creation(&row).event(old.clone()).request(request("old", -10))).await;
    done(&*store, creation(&task("builder")).event(old).request(request("new", 100))).await;
    super::following::settle(&*store).await;
    let everything = store.events(start, Default::default(), 100).await.unwrap();
    assert_eq!(everything.events.len(), 5, "and the marker");
    let prune = Prune { events_before: at(10_000), requests_before: at(0) };
    let mut pruned = store.prune(prune).await.unwrap();
    while pruned.events > 0 {
        pruned = store.prune(prune).await.unwrap();
    }
    let key = |key: &str| format!("{key}-{}", row.task.id);
    assert_eq!(store.answered("ada", &key("old")).await.unwrap(), None);
    assert!(store.answered("ada", &key("new")).await.unwrap().is_some());
    let oldest = store.oldest().await.unwrap();
    assert_eq!(oldest, store.latest().await.unwrap(), "nothing is left, and nothing is renumbered");
    if start.number + 1 < oldest.number {
        let refused = store.events(start, Default::default(), 9).await.unwrap_err();
        assert_eq!(refused.refusal().map(|refusal| refusal.code()), Some("pruned"));
    }
    done(&*store, creation(&task("builder"))).await;
    super::following::settle(&*store).await;
    let next = store.events(oldest, Default::default(), 9).await.unwrap();
    assert_eq!(next.events[0].number, oldest.number + 1);
}

pub(crate) async fn a_clock_that_is_set_back_shortens_nothing<S: Store>(store: Arc<S>) {
    let (attempt, holder) = live(&*store).await;
    store.beat(vec![beat(holder, "1", 90_000)], at(50_000)).await.unwrap();
    // The clock of whoever beats was set back by a day: the beat comes, the promise stands.
    let day = 86_400_000;
    let back = store.beat(vec![beat(holder, "1", 60_000 - day)], at(-day)).await.unwrap();
    assert_eq!(back, [current(90_000)]);
    let lease = store.leases(LeaseKind::Attempt).await.unwrap();
    let lease = lease.into_iter().find(|lease| lease.holder == holder).unwrap();
    assert_eq!((lease.until, lease.beaten_at), (at(90_000), at(60_000).max(lease.beaten_at)));
    let (first, second) = (store.now().await.unwrap(), store.now().await.unwrap());
    assert!(second >= first);
    let row = TaskRow { due_at: Some(at(1_000)), ..task_of(&*store, attempt.task).await.row };
    done(&*store, Commit::new().update(FIRST, &row)).await;
    assert!(store.take_due(at(-day), HOLD, 10).await.unwrap().is_empty());
}
