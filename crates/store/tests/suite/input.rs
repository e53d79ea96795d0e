//! Bad input: a typed refusal, and nothing half done. And lists, whose cursors come from outside.

use std::sync::Arc;

use belay_kernel::budget::Ledger;
use belay_kernel::{Money, TaskId};
use belay_store::rows::{LedgerRow, QuestionRow, TaskRow};
use belay_store::{After, Commit, Committed, List, MAX_BATCH, NewEvent, Query, Refusal, Store};

use super::make::*;

async fn refused<S: Store>(store: &S, commit: Commit) -> &'static str {
    match store.commit(commit).await.unwrap() {
        Committed::Refused(refusal) => refusal.code(),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn oversized_fields_are_refused<S: Store>(store: Arc<S>) {
    let row = task("builder");
    let id = row.task.id;
    let mut wide = spec(id);
    wide.prompt = "x".repeat(1_048_577).into();
    assert_eq!(refused(&*store, Commit::new().insert(&row).insert(&wide)).await, "too_large");
    wide.prompt = "x".repeat(1_048_576).into();
    let mut listed = wide.clone();
    listed.limits = List(vec!["y".repeat(70_000)]);
    assert_eq!(refused(&*store, Commit::new().insert(&row).insert(&listed)).await, "too_large");
    let told = NewEvent::task(id, "big", "z".repeat(262_145), at(1));
    assert_eq!(refused(&*store, creation(&row).event(told)).await, "too_large");
    assert_eq!(load::<S, TaskRow>(&store, id).await, None);
    done(&*store, Commit::new().insert(&row).insert(&wide)).await;
}

pub(crate) async fn what_is_not_text_is_refused<S: Store>(store: Arc<S>) {
    let row = task("builder");
    let mut nul = spec(row.task.id);
    nul.title = "a\0b".into();
    assert_eq!(refused(&*store, Commit::new().insert(&row).insert(&nul)).await, "not_text");
    let told = NewEvent::task(row.task.id, "k\0", "{}".into(), at(1));
    assert_eq!(refused(&*store, creation(&row).event(told)).await, "not_text");
    assert_eq!(load::<S, TaskRow>(&store, row.task.id).await, None);
    assert_eq!(store.answered("a\0", "b\0").await.unwrap(), None);
    let listed = store.list(Query::<TaskRow>::first(5).id_begins("a\0")).await;
    assert_eq!(listed.unwrap_err().refusal().map(Refusal::code), Some("not_text"));
    nul.title = "\u{feff}\u{202e}é\u{301}🧗\u{10ffff}\r\n\t".into();
    done(&*store, Commit::new().insert(&row).insert(&nul)).await;
    let stored = load::<S, belay_store::rows::SpecRow>(&store, row.task.id).await.unwrap();
    assert_eq!(stored.row, nul);
}

pub(crate) async fn numbers_that_do_not_fit_are_refused<S: Store>(store: Arc<S>) {
    let row = task("builder");
    let huge = Ledger { cost: Money::from_micros(u64::MAX), ..Ledger::default() };
    let broken = LedgerRow { root: row.task.id, ledger: huge };
    let commit = Commit::new().insert(&row).insert(&broken);
    assert_eq!(refused(&*store, commit).await, "out_of_range");
    assert_eq!(load::<S, TaskRow>(&store, row.task.id).await, None);
    let most = Ledger { cost: Money::from_micros(i64::MAX as u64), ..Ledger::default() };
    let fits = LedgerRow { root: row.task.id, ledger: most };
    let extreme = TaskRow { priority: i64::MAX, ..row.clone() };
    done(&*store, Commit::new().insert(&extreme).insert(&fits)).await;
    assert_eq!(task_of(&*store, row.task.id).await.row.priority, i64::MAX);
}

pub(crate) async fn a_commit_that_names_a_row_twice_is_refused<S: Store>(store: Arc<S>) {
    let row = task("builder");
    assert_eq!(refused(&*store, Commit::new().insert(&row).insert(&row)).await, "named_twice");
}

pub(crate) async fn too_much_at_once_is_refused<S: Store>(store: Arc<S>) {
    let many = vec![Commit::new(); MAX_BATCH + 1];
    let code = |failure: belay_store::Failure| failure.refusal().map(Refusal::code);
    assert_eq!(code(store.commit_all(many).await.unwrap_err()), Some("too_many"));
    let page = store.list(Query::<TaskRow>::first(MAX_BATCH + 1)).await;
    assert_eq!(code(page.unwrap_err()), Some("too_many"));
    let ids = vec![TaskId::from_bits(1); MAX_BATCH + 1];
    assert_eq!(code(store.load::<TaskRow>(&ids).await.unwrap_err()), Some("too_many"));
}

pub(crate) async fn unknown_ids_are_nothing<S: Store>(store: Arc<S>) {
    let row = task("builder");
    done(&*store, creation(&row)).await;
    let found = store.load::<TaskRow>(&[task_id(), row.task.id, task_id(), row.task.id]).await;
    let there: Vec<_> = found.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(there, [false, true, false, true]);
    assert!(store.load::<TaskRow>(&[]).await.unwrap().is_empty());
}

pub(crate) async fn lists_are_paged_completely<S: Store>(store: Arc<S>) {
    let role = format!("listed-{}", task_id());
    let mut rows: Vec<TaskRow> = (0..23).map(|_| task(&role)).collect();
    for (index, row) in rows.iter_mut().enumerate() {
        row.created_at = at(10 * (index as i64 / 4));
    }
    store.commit_all(rows.iter().map(creation).collect()).await.unwrap();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.created_at), row.task.id.to_string()));
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let query = Query::<TaskRow>::first(5).role(&[role.parse().unwrap()]).after(after);
        let page = store.list(query).await.unwrap();
        seen.extend(page.rows.into_iter().map(|stored| stored.row));
        let Some(next) = page.after else { break };
        after = Some(next.to_string().parse::<After>().unwrap());
    }
    assert_eq!(seen, rows, "newest first, each once");
}

pub(crate) async fn lists_are_filtered<S: Store>(store: Arc<S>) {
    let role = format!("filtered-{}", task_id());
    let (parent, mut child, mut cancelled) = (task(&role), task(&role), task(&role));
    child.task.parent = Some(parent.task.id);
    child.root = parent.task.id;
    cancelled.task.state = belay_kernel::task::State::Cancelled;
    done(&*store, Commit::new().insert(&parent).insert(&child).insert(&cancelled)).await;
    let ids = |query: Query<TaskRow>| {
        let (store, role) = (Arc::clone(&store), role.clone());
        async move {
            let page = store.list(query.role(&[role.parse().unwrap()])).await.unwrap();
            let mut ids: Vec<_> = page.rows.iter().map(|stored| stored.row.task.id).collect();
            ids.sort();
            ids
        }
    };
    let all = Query::first(9);
    assert_eq!(ids(all.clone()).await.len(), 3);
    assert_eq!(ids(all.clone().parent(&[parent.task.id])).await, [child.task.id]);
    assert_eq!(ids(all.clone().top_level()).await.len(), 2);
    assert_eq!(ids(all.clone().state(&["CANCELLED".into()])).await, [cancelled.task.id]);
    assert_eq!(ids(all.clone().state(&["QUEUED".into(), "CANCELLED".into()])).await.len(), 3);
    assert_eq!(ids(all.clone().state(&[])).await.len(), 0);
    let letters = &child.task.id.to_string()[..15];
    assert!(ids(all.clone().id_begins(letters)).await.contains(&child.task.id));
    assert_eq!(ids(all.root(&[parent.task.id])).await.len(), 2);
    let open = store.list(Query::<QuestionRow>::first(9).task(&[parent.task.id]).open()).await;
    assert!(open.unwrap().rows.is_empty());
}

pub(crate) async fn a_page_of_another_list_is_refused<S: Store>(store: Arc<S>) {
    for text in ["[1]", "[\"a\",\"b\"]", "[1,2]", "[1,\"a\",\"b\"]", "[1,\"a\\u0000\"]"] {
        let refused = match text.parse::<After>() {
            Ok(after) => {
                let page = store.list(Query::<TaskRow>::first(5).after(Some(after))).await;
                page.unwrap_err().refusal().map(Refusal::code)
            }
            Err(refusal) => Some(refusal.code()),
        };
        assert_eq!(refused, Some("bad_cursor"), "{text}");
    }
    for text in ["", "nonsense", "{}", "[]", "[null,null]", "[1.5,\"a\"]", "[[],[]]"] {
        assert_eq!(text.parse::<After>(), Err(Refusal::BadCursor), "{text}");
    }
}
