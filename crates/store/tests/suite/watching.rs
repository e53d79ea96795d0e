//! Webhooks, letters, meters, alerts: their rows come back, and the rules that hold for them.

use std::sync::Arc;

use belay_kernel::alert::{Kind, State};
use belay_kernel::meter::{Seen, Totals};
use belay_kernel::{Limits, NodeId, RunnerId, WebhookId};
use belay_store::rows::{
    AlertRow, HookOrigin, LetterRow, LetterState, MeterRow, Secret, Shape, TaskRow, WebhookRow,
};
use belay_store::{Commit, Committed, Document, List, Query, Record, Refusal, Rule, Store, Stored};

use super::make::*;

async fn comes_back<S: Store, R: Record + PartialEq>(store: &S, id: R::Id, row: R) {
    done(store, Commit::new().insert(&row)).await;
    assert_eq!(load::<S, R>(store, id).await, Some(Stored { revision: FIRST, row }));
}

fn webhook(shape: Shape) -> WebhookRow {
    let id = WebhookId::from_bits(fresh());
    WebhookRow {
        id,
        name: format!("hook {id}").into(),
        url: Secret("https://example.org/services/secret".into()),
        shape,
        kinds: List(vec!["task.*".into(), "alert.firing".into()]),
        secret: Some(Secret("sesame".into())),
        origin: HookOrigin::Api,
        seen: 7,
        owner: Some(NodeId::from_bits(3)),
        created_at: at(9),
        paused_at: Some(at(11)),
    }
}

fn letter(webhook: WebhookId, number: u64, state: LetterState) -> LetterRow {
    LetterRow {
        webhook,
        number,
        task: Some(task_id()),
        delivery: format!("{webhook}.5-{number}").into(),
        kind: "task.ready".into(),
        envelope: "{\"kind\":\"task.ready\"}".into(),
        state,
        tries: 2,
        since: at(10),
        send_at: at(11),
        failure: Some("500".into()),
        failed_at: Some(at(12)),
        made_at: at(10),
    }
}

pub(crate) async fn webhooks_and_their_letters_come_back<S: Store>(store: Arc<S>) {
    for shape in [Shape::Belay, Shape::Slack, Shape::Ntfy] {
        let row = webhook(shape);
        let printed = format!("{row:?}");
        let hidden = !printed.contains("sesame") && !printed.contains("services");
        assert!(hidden, "secrets are not printed: {printed}");
        let id = row.id;
        comes_back(&*store, id, row).await;
        comes_back(&*store, (id, 1), letter(id, 1, LetterState::Waiting)).await;
        let dead = LetterRow { task: None, ..letter(id, 2, LetterState::Dead) };
        comes_back(&*store, (id, 2), dead).await;
        let unsent =
            LetterRow { failure: None, failed_at: None, ..letter(id, 3, LetterState::Waiting) };
        comes_back(&*store, (id, 3), unsent).await;
        let waiting = Query::<LetterRow>::first(9).webhook(&[id]).state(&[LetterState::Waiting]);
        let page = store.list(waiting).await.unwrap();
        let numbers: Vec<_> = page.rows.iter().map(|row| row.row.number).collect();
        assert_eq!(numbers, [3, 1]);
    }
}

pub(crate) async fn a_webhooks_name_is_its_own<S: Store>(store: Arc<S>) {
    let one = webhook(Shape::Belay);
    done(&*store, Commit::new().insert(&one)).await;
    let twin = WebhookRow { name: one.name.clone(), ..webhook(Shape::Slack) };
    let refused = store.commit(Commit::new().insert(&twin)).await.unwrap();
    let rule = Rule::Unique;
    let expected = Refusal::Rule { table: "webhooks".into(), rule };
    assert_eq!(refused, Committed::Refused(expected));
    let by_name = Query::<WebhookRow>::first(9).name(std::slice::from_ref(&one.name));
    let named = store.list(by_name).await.unwrap();
    assert_eq!(named.rows.iter().map(|row| row.row.id).collect::<Vec<_>>(), [one.id]);
}

pub(crate) async fn letters_go_with_their_webhook<S: Store>(store: Arc<S>) {
    let hook = webhook(Shape::Belay);
    let stray = store.commit(Commit::new().insert(&letter(hook.id, 1, LetterState::Dead))).await;
    let expected = Refusal::Rule { table: "letters".into(), rule: Rule::Reference };
    assert_eq!(stray.unwrap(), Committed::Refused(expected));
    let both = Commit::new().insert(&hook).insert(&letter(hook.id, 1, LetterState::Dead));
    done(&*store, both).await;
    let stored = load::<S, WebhookRow>(&store, hook.id).await.unwrap();
    done(&*store, Commit::new().delete(&stored)).await;
    assert_eq!(load::<S, LetterRow>(&store, (hook.id, 1)).await, None);
}

pub(crate) async fn meters_and_alerts_come_back<S: Store>(store: Arc<S>) {
    let mut totals = Totals::default();
    totals.note(&Seen::Joined(RunnerId::from_bits(4)), at(1_000), &Limits::default());
    let name = format!("meter {}", fresh());
    let row = MeterRow { name: name.as_str().into(), seen: 12, totals: Document(totals) };
    comes_back(&*store, row.name.clone(), row).await;
    let states = [
        State::Pending { since: at(1) },
        State::Firing { since: at(2) },
        State::Cleared { since: at(3), until: at(4) },
    ];
    for (kind, state) in Kind::ALL.iter().zip(states.into_iter().cycle()) {
        let subject = format!("subject {}", fresh()).into();
        let row = AlertRow { kind: *kind, subject, state, sentence: "It burns.".into() };
        comes_back(&*store, (*kind, row.subject.clone()), row).await;
    }
}

pub(crate) async fn rows_are_counted_by_name<S: Store>(store: Arc<S>) {
    let counted = |tally: Vec<(String, u64)>| {
        assert!(tally.is_sorted());
        tally.into_iter().find(|(state, _)| state == "QUEUED").map_or(0, |(_, count)| count)
    };
    let before = counted(store.tally::<TaskRow>("state").await.unwrap());
    for _ in 0..3 {
        done(&*store, creation(&task("counter"))).await;
    }
    // Other cases may share the database.
    assert!(counted(store.tally::<TaskRow>("state").await.unwrap()) >= before + 3);
}
