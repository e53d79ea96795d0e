//! Decisions: revisions, read sets, all or nothing, idempotency, and the rules of the database.

use std::sync::Arc;

use belay_kernel::attempt::{Frozen, Outcome, Phase};
use belay_kernel::publish::{CommitId, Publish, Push};
use belay_kernel::task::{Blocked, Failure, Plan, Reason, State, Verb};
use belay_kernel::termination::{Storage, Termination};
use belay_kernel::{AttemptNumber, Cause, Clock, Epoch, Money, QuestionId, TaskId, Usage};
use belay_store::rows::{
    AttemptRow, DependencyRow, LedgerRow, QuestionRow, RemarkRow, Speaker, SpecRow, TaskRow,
};
use belay_store::{
    Commit, Committed, Key, List, Query, Record, Refusal, Request, Rule, Store, Stored,
};

use super::make::*;

/// Every shape of a task's state.
pub(crate) fn states() -> Vec<State> {
    let (attempt, question, by) =
        (AttemptNumber(7), QuestionId::from_bits(5), TaskId::from_bits(6));
    let plans = [Plan::Fresh, Plan::Same, Plan::Republish];
    let mut states = vec![
        State::Blocked(Blocked::Held { attempt, question }),
        State::Blocked(Blocked::Question { question }),
        State::Blocked(Blocked::Subtasks { attempt }),
        State::Ready { attempt },
        State::Completed,
        State::Failed(Failure::Subtask { by, attempt }),
        State::Failed(Failure::Publish),
        State::TimedOut { clock: Clock::Absolute },
        State::TimedOut { clock: Clock::Inactivity },
        State::Cancelled,
        State::BudgetExceeded,
    ];
    for plan in plans {
        states.push(State::Pending { plan });
        states.push(State::Queued { plan, not_before: None });
        states.push(State::Queued { plan, not_before: Some(at(77)) });
        states.push(State::Claimed { attempt, plan });
        states.push(State::Running { attempt, plan });
        states.push(State::Failed(Failure::Dependency { by, plan }));
    }
    states.extend(Cause::ALL.iter().map(|cause| State::Failed(Failure::Cause(*cause))));
    states
}

pub(crate) async fn rows_come_back_as_they_were<S: Store>(store: Arc<S>) {
    let mut reasons = vec![
        Reason::Created,
        Reason::Claimed,
        Reason::Started,
        Reason::Question,
        Reason::Succeeded,
        Reason::SubtasksRested,
        Reason::RoleStopped,
        Reason::Requeued(TaskId::from_bits(4)),
        Reason::Retrying(Cause::Lost),
        Reason::Ended(Cause::Budget),
    ];
    reasons.extend(Verb::ALL.map(Reason::Asked));
    for (index, state) in states().into_iter().enumerate() {
        let mut row = task("builder");
        row.task.state = state;
        row.task.reason = reasons[index % reasons.len()];
        row.priority = -3;
        row.due_at = Some(at(9));
        row.account = Some("acme".into());
        done(&*store, Commit::new().insert(&row)).await;
        assert_eq!(task_of(&*store, row.task.id).await, Stored { revision: FIRST, row });
    }
    let row = task("builder");
    let session = session();
    let push = Push {
        commit: CommitId::from_sha1([3; 20]),
        expected: Some(CommitId::from_sha256([4; 32])),
    };
    let mut full = attempt(row.task.id, 1, session.id);
    full.attempt.phase = Phase::Ending(Outcome::TimedOut);
    full.attempt.publish = Publish::NotPushed(push);
    full.attempt.epoch = Epoch(9);
    full.attempt.held_since = Some(at(3));
    full.attempt.frozen = Frozen::Before;
    full.usage = Usage { cost: Some(Money::from_micros(5)), output_tokens: 8, ..Usage::default() };
    full.termination = Some(Termination::begin(Storage::DiesWithProcesses));
    full.cause = Some(Cause::Inactivity);
    let question = QuestionRow {
        id: QuestionId::from_bits(fresh()),
        task: row.task.id,
        attempt: AttemptNumber(1),
        text: "Shall I?".into(),
        options: List(vec!["yes".into(), "no \"never\"".into()]),
        asked_at: at(4),
        answer: Some("yes".into()),
        answered_by: Some("ada".into()),
        answered_at: Some(at(5)),
    };
    let remark = RemarkRow {
        task: row.task.id,
        number: 1,
        attempt: None,
        speaker: Speaker::Person,
        text: "Please also paint it.\n'; DROP TABLE tasks; --".into(),
        said_at: at(6),
    };
    let commit = creation(&row).insert(&session).insert(&full).insert(&question).insert(&remark);
    done(&*store, commit).await;
    let id = row.task.id;
    same(&*store, id, spec(id)).await;
    same(&*store, id, ledger(id)).await;
    same(&*store, session.id, session).await;
    same(&*store, (id, AttemptNumber(1)), full).await;
    same(&*store, question.id, question).await;
    same(&*store, (id, 1), remark).await;
}

async fn same<S: Store, R: Record + PartialEq>(store: &S, id: R::Id, row: R) {
    assert_eq!(load::<S, R>(store, id).await, Some(Stored { revision: FIRST, row }));
}

pub(crate) async fn revisions_grow_by_one<S: Store>(store: Arc<S>) {
    let mut row = task("builder");
    done(&*store, creation(&row)).await;
    for revision in 1..5 {
        let stored = task_of(&*store, row.task.id).await;
        assert_eq!(stored.revision.0, revision);
        row.priority += 1;
        done(&*store, Commit::new().update(stored.revision, &row)).await;
    }
    assert_eq!(task_of(&*store, row.task.id).await.row.priority, 4);
}

pub(crate) async fn a_stale_decision_is_overtaken<S: Store>(store: Arc<S>) {
    let row = task("builder");
    done(&*store, creation(&row)).await;
    let urgent = TaskRow { priority: 9, ..row.clone() };
    done(&*store, Commit::new().update(FIRST, &urgent)).await;
    let late = TaskRow { priority: -9, ..row.clone() };
    let key = Key::of::<TaskRow>(&row.task.id);
    let overtaken = Committed::Overtaken(vec![key]);
    let commit = Commit::new().update(FIRST, &late).event(event(row.task.id, "late"));
    assert_eq!(store.commit(commit).await.unwrap(), overtaken);
    let unborn = Commit::new().update(belay_kernel::Revision(7), &late);
    assert_eq!(store.commit(unborn).await.unwrap(), overtaken);
    assert_eq!(task_of(&*store, row.task.id).await.row, urgent);
    let gone = Stored { revision: FIRST, row: late };
    assert_eq!(store.commit(Commit::new().delete(&gone)).await.unwrap(), overtaken);
}

pub(crate) async fn a_decision_is_overtaken_by_what_it_only_read<S: Store>(store: Arc<S>) {
    let (dependency, dependant) = (task("builder"), task("builder"));
    done(&*store, creation(&dependency)).await;
    let read = task_of(&*store, dependency.task.id).await;
    let mut completed = dependency.clone();
    completed.task.state = State::Completed;
    done(&*store, Commit::new().update(read.revision, &completed)).await;
    let waits = TaskRow { unfinished: 1, ..dependant.clone() };
    let edge = DependencyRow { task: waits.task.id, depends_on: dependency.task.id };
    let commit = creation(&waits).insert(&edge).read(&read);
    let key = Key::of::<TaskRow>(&dependency.task.id);
    assert_eq!(store.commit(commit).await.unwrap(), Committed::Overtaken(vec![key]));
    assert_eq!(
        load::<S, TaskRow>(&store, waits.task.id).await,
        None,
        "no counter that never falls"
    );
    let absent = creation(&dependant).read_absent::<TaskRow>(&dependency.task.id);
    assert!(matches!(store.commit(absent).await.unwrap(), Committed::Overtaken(_)));
    let now = task_of(&*store, dependency.task.id).await;
    done(&*store, creation(&dependant).read(&now).read_absent::<TaskRow>(&task_id())).await;
}

pub(crate) async fn what_is_made_twice_is_made_once<S: Store>(store: Arc<S>) {
    let row = task("builder");
    let both = tokio::join!(store.commit(creation(&row)), store.commit(creation(&row)));
    let answers = [both.0.unwrap(), both.1.unwrap()];
    assert_eq!(answers.iter().filter(|answer| answer.is_done()).count(), 1, "{answers:?}");
    assert!(answers.iter().any(|answer| matches!(answer, Committed::Overtaken(_))));
}

pub(crate) async fn a_decision_is_done_wholly_or_not_at_all<S: Store>(store: Arc<S>) {
    let before = store.latest().await.unwrap();
    let row = task("builder");
    let unknown = session();
    let broken = creation(&row).insert(&attempt(row.task.id, 1, unknown.id)).request(Request {
        principal: "ada".into(),
        key: row.task.id.to_string(),
        body_hash: "h".into(),
        answer: "a".into(),
        at: at(1),
    });
    let refused = store.commit(broken).await.unwrap();
    let table = "attempts".to_owned();
    assert_eq!(refused, Committed::Refused(Refusal::Rule { table, rule: Rule::Reference }));
    assert_eq!(load::<S, TaskRow>(&store, row.task.id).await, None);
    assert_eq!(load::<S, SpecRow>(&store, row.task.id).await, None);
    assert_eq!(store.answered("ada", &row.task.id.to_string()).await.unwrap(), None);
    let filter = belay_store::EventFilter { task: Some(row.task.id), ..Default::default() };
    done(&*store, creation(&task("builder"))).await;
    super::following::settle(&*store).await;
    assert!(store.events(before, filter, 10).await.unwrap().events.is_empty());
}

pub(crate) async fn decisions_in_one_call_are_judged_one_by_one<S: Store>(store: Arc<S>) {
    let rows: Vec<_> = (0..4).map(|_| task("builder")).collect();
    let orphan = attempt(task_id(), 1, session().id);
    let mut huge = spec(rows[3].task.id);
    huge.title = "x".repeat(201).into();
    let commits = vec![
        creation(&rows[0]),
        creation(&rows[0]),
        creation(&rows[1]).insert(&orphan),
        Commit::new().update(FIRST, &TaskRow { priority: 3, ..rows[0].clone() }),
        creation(&rows[2]),
        Commit::new().insert(&rows[3]).insert(&huge),
    ];
    let answers = store.commit_all(commits).await.unwrap();
    let done: Vec<_> = answers.iter().map(Committed::is_done).collect();
    assert_eq!(done, [true, false, false, true, true, false], "{answers:?}");
    assert!(matches!(answers[1], Committed::Overtaken(_)));
    assert!(matches!(answers[2], Committed::Refused(Refusal::Rule { .. })));
    assert!(matches!(answers[5], Committed::Refused(Refusal::TooLarge { .. })));
    assert_eq!(task_of(&*store, rows[0].task.id).await.row.priority, 3);
    assert_eq!(load::<S, TaskRow>(&store, rows[1].task.id).await, None);
    assert!(store.commit_all(vec![]).await.unwrap().is_empty());
}

fn request(key: &str, hash: &str, answer: &str) -> Request {
    let (principal, key) = ("ada".to_owned(), key.to_owned());
    Request { principal, key, body_hash: hash.to_owned(), answer: answer.to_owned(), at: at(50) }
}

/// Decisions that share a transaction are judged by what is stored, not by what one of them takes
/// for granted.
pub(crate) async fn what_an_overtaken_decision_believed_misleads_nobody<S: Store>(store: Arc<S>) {
    let [x, y, z] = [(); 3].map(|()| task("builder"));
    for row in [&x, &y, &z] {
        done(&*store, creation(row)).await;
    }
    let wrong = belay_kernel::Revision(7);
    let commits = vec![
        Commit::new().update(FIRST, &x),
        Commit::new().update(FIRST, &x).update(wrong, &y).update(FIRST, &z),
        Commit::new().update(FIRST, &y),
        Commit::new().update(FIRST, &z),
    ];
    let answers = store.commit_all(commits).await.unwrap();
    let [x, y] = [x, y].map(|row| Key::of::<TaskRow>(&row.task.id));
    let Committed::Overtaken(stale) = &answers[1] else { panic!("{answers:?}") };
    assert!(stale.contains(&x) && stale.contains(&y), "{stale:?}");
    assert_eq!([&answers[0], &answers[2], &answers[3]], [&Committed::Done; 3]);
}

pub(crate) async fn the_same_request_gets_the_same_answer<S: Store>(store: Arc<S>) {
    let key = task_id().to_string();
    let (first, again) = (task("builder"), task("builder"));
    done(&*store, creation(&first).request(request(&key, "h1", "made the first"))).await;
    let replayed = store.commit(creation(&again).request(request(&key, "h1", "made another")));
    let replayed = replayed.await.unwrap();
    let Committed::Replayed(answered) = replayed else { panic!("{replayed:?}") };
    assert_eq!(answered.answer, "made the first");
    assert_eq!(load::<S, TaskRow>(&store, again.task.id).await, None);
    let other = store.commit(creation(&again).request(request(&key, "h2", "x"))).await.unwrap();
    assert_eq!(other, Committed::Refused(Refusal::KeyReused));
    let mut elsewhere = request(&key, "h2", "x");
    elsewhere.principal = "bob".into();
    done(&*store, creation(&again).request(elsewhere)).await;
    let known = store.answered("ada", &key).await.unwrap().unwrap();
    assert_eq!((known.answer.as_str(), known.at), ("made the first", at(50)));
    assert_eq!(store.answered("ada", "never").await.unwrap(), None);
}

pub(crate) async fn a_request_of_two_at_once_is_done_once<S: Store>(store: Arc<S>) {
    for round in 0..20 {
        let key = format!("{}-{round}", task_id());
        let (one, two) = (task("builder"), task("builder"));
        let first = store.commit(creation(&one).request(request(&key, "h", "one")));
        let second = store.commit(creation(&two).request(request(&key, "h", "two")));
        let (first, second) = tokio::join!(first, second);
        let answers = [first.unwrap(), second.unwrap()];
        assert_eq!(answers.iter().filter(|answer| answer.is_done()).count(), 1, "{answers:?}");
        let replayed = answers.iter().any(|answer| matches!(answer, Committed::Replayed(_)));
        assert!(replayed, "{answers:?}");
    }
}

pub(crate) async fn removing_a_task_removes_what_hangs_on_it<S: Store>(store: Arc<S>) {
    let (row, other, session) = (task("builder"), task("builder"), session());
    let edge = DependencyRow { task: other.task.id, depends_on: row.task.id };
    let commit = creation(&row).insert(&session).insert(&attempt(row.task.id, 1, session.id));
    done(&*store, commit).await;
    done(&*store, creation(&other).insert(&edge)).await;
    let stored = task_of(&*store, row.task.id).await;
    done(&*store, Commit::new().delete(&stored)).await;
    let (id, first) = (row.task.id, AttemptNumber(1));
    assert_eq!(load::<S, TaskRow>(&store, id).await, None);
    assert_eq!(load::<S, SpecRow>(&store, id).await, None);
    assert_eq!(load::<S, LedgerRow>(&store, id).await, None);
    assert_eq!(load::<S, AttemptRow>(&store, (id, first)).await, None);
    let edges = store.list(Query::<DependencyRow>::first(9).depends_on(&[id])).await.unwrap();
    assert!(edges.rows.is_empty());
    let leases = store.leases(belay_store::LeaseKind::Attempt).await.unwrap();
    let holder = belay_store::Holder::Attempt(id, first);
    assert!(leases.iter().all(|lease| lease.holder != holder));
}

pub(crate) async fn what_others_need_is_not_removed<S: Store>(store: Arc<S>) {
    let (parent, mut child) = (task("builder"), task("builder"));
    child.task.parent = Some(parent.task.id);
    child.root = parent.task.id;
    done(&*store, Commit::new().insert(&parent).insert(&child)).await;
    let stored = task_of(&*store, parent.task.id).await;
    let refused = store.commit(Commit::new().delete(&stored)).await.unwrap();
    let table = "tasks".to_owned();
    assert_eq!(refused, Committed::Refused(Refusal::Rule { table, rule: Rule::Reference }));
    let below = task_of(&*store, child.task.id).await;
    done(&*store, Commit::new().delete(&below)).await;
    done(&*store, Commit::new().delete(&stored)).await;
}

pub(crate) async fn a_task_has_one_live_attempt<S: Store>(store: Arc<S>) {
    let (row, session) = (task("builder"), session());
    let first = attempt(row.task.id, 1, session.id);
    let second = attempt(row.task.id, 2, session.id);
    done(&*store, creation(&row).insert(&session).insert(&first)).await;
    let refused = store.commit(Commit::new().insert(&second)).await.unwrap();
    let table = "attempts".to_owned();
    let rule = Rule::OneLiveAttempt;
    assert_eq!(refused, Committed::Refused(Refusal::Rule { table, rule }));
    done(&*store, Commit::new().update(FIRST, &ended(&first)).insert(&second)).await;
}

pub(crate) async fn what_is_referred_to_must_be_there<S: Store>(store: Arc<S>) {
    let mut child = task("builder");
    child.task.parent = Some(task_id());
    let refused = store.commit(Commit::new().insert(&child)).await.unwrap();
    let table = "tasks".to_owned();
    assert_eq!(refused, Committed::Refused(Refusal::Rule { table, rule: Rule::Reference }));
}

pub(crate) async fn many_at_once_lose_no_update<S: Store>(store: Arc<S>) {
    let row = task("builder");
    done(&*store, creation(&row)).await;
    let writers = (0..8).map(|_| {
        let (store, id) = (Arc::clone(&store), row.task.id);
        tokio::spawn(async move {
            let mut done = 0;
            while done < 25 {
                let stored = task_of(&*store, id).await;
                let next = TaskRow { priority: stored.row.priority + 1, ..stored.row };
                let commit = Commit::new().update(stored.revision, &next).event(event(id, "n"));
                if store.commit(commit).await.unwrap().is_done() {
                    done += 1;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let stored = task_of(&*store, row.task.id).await;
    assert_eq!((stored.row.priority, stored.revision.0), (200, 201));
}

/// Two rows that are always changed together are never seen apart, whatever order they are named
/// in.
pub(crate) async fn two_rows_are_never_half_swapped<S: Store>(store: Arc<S>) {
    let (left, right) = (task("builder"), task("builder"));
    done(&*store, Commit::new().insert(&left).insert(&right)).await;
    let ids = [left.task.id, right.task.id];
    let movers = (0..6).map(|index| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut done = 0;
            while done < 15 {
                let order = if index % 2 == 0 { ids } else { [ids[1], ids[0]] };
                let (one, two) =
                    (task_of(&*store, order[0]).await, task_of(&*store, order[1]).await);
                let give = TaskRow { priority: one.row.priority - 1, ..one.row };
                let take = TaskRow { priority: two.row.priority + 1, ..two.row };
                let commit = Commit::new().update(one.revision, &give).update(two.revision, &take);
                if store.commit(commit).await.unwrap().is_done() {
                    done += 1;
                }
                let both = store.load::<TaskRow>(&ids).await.unwrap();
                let sum: i64 = both.iter().flatten().map(|stored| stored.row.priority).sum();
                assert_eq!(sum, 0);
            }
        })
    });
    for mover in movers.collect::<Vec<_>>() {
        mover.await.unwrap();
    }
}
