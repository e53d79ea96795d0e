//! Webhooks through control's own surface, on the in-memory store with time that tests set: order,
//! repetition, dead letters, restarts, several nodes. Real sockets are in `courier.rs`.

#![allow(clippy::disallowed_methods, reason = "the test reads the clock that it sets")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_api::{Ask, Code, EditWebhook, HookShape, ListLetters, MadeWebhook, NewTask, NewWebhook};
use belay_control::{Control, Courier, HookSettings, Parcel, Parts, Settings, Undelivered};
use belay_kernel::{Span, TaskId};
use belay_store::blob::{BlobLimits, Blobs};
use belay_store::rows::Secret;
use belay_store::{Commit, Memory, NewEvent, Store};
use serde_json::Value;
use support::{memory, parts, test};

/// How a receiver behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Takes,
    Fails,
    /// It takes the letter, and its answer never comes.
    Hangs,
}

/// What a receiver got: the name of the delivery, the task, the event's number, its kind.
type Got = (String, Option<String>, u64, String);

/// A receiver, and the way to it.
#[derive(Clone)]
struct Receiver {
    got: Arc<Mutex<Vec<Got>>>,
    mood: Arc<Mutex<Mood>>,
    /// The task whose letters it does not take.
    picky: Arc<Mutex<Option<String>>>,
}

impl Receiver {
    fn new() -> Self {
        Self { got: Arc::default(), mood: Arc::new(Mutex::new(Mood::Takes)), picky: Arc::default() }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

impl Courier for Receiver {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("not https".into()) }
    }

    fn send(
        &self,
        parcel: Parcel,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Undelivered>> + Send>> {
        let body: Value = serde_json::from_slice(&parcel.body).unwrap();
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let delivery = parcel.headers.iter().find(|(name, _)| *name == "belay-delivery").unwrap();
        let got = (
            delivery.1.clone(),
            text("task"),
            body["number"].as_u64().unwrap(),
            text("kind").unwrap(),
        );
        let picky = got.1.is_some() && *self.picky.lock().unwrap() == got.1;
        let mood = if picky { Mood::Fails } else { *self.mood.lock().unwrap() };
        if mood != Mood::Fails {
            self.got.lock().unwrap().push(got);
        }
        Box::pin(async move {
            match mood {
                Mood::Takes => Ok(()),
                Mood::Fails => {
                    Err(Undelivered { failure: "it answered 500".into(), retry_after: None })
                }
                Mood::Hangs => std::future::pending().await,
            }
        })
    }
}

/// A store, the receiver that its nodes write to, and how many ids were drawn.
struct Post {
    store: Memory,
    blobs: Blobs,
    receiver: Receiver,
    drawn: AtomicU64,
}

impl Post {
    fn new() -> Self {
        let blobs = Blobs::in_memory(BlobLimits::default());
        Self { store: memory(), blobs, receiver: Receiver::new(), drawn: AtomicU64::new(0) }
    }

    async fn node(&self, webhooks: Vec<HookSettings>) -> Control<Memory> {
        let drawn = self.drawn.fetch_add(100_000, Ordering::SeqCst);
        let parts = Parts {
            settings: Settings { agent: "claude".into(), webhooks, ..Settings::default() },
            courier: Some(Arc::new(self.receiver.clone())),
            ..parts(&self.store, &self.blobs, drawn)
        };
        Control::open(parts).await.unwrap()
    }

    async fn pass(&self, span: Span) {
        let now = self.store.now().await.unwrap();
        self.store.set_now(now.after(span));
    }
}

async fn tend(control: &Control<Memory>) {
    let _ = tokio::time::timeout(Duration::from_secs(5), control.tend()).await;
}

async fn hook(control: &Control<Memory>, kinds: &[&str]) -> MadeWebhook {
    let new = NewWebhook {
        name: "farm".into(),
        url: "https://example.org/services/sesame".into(),
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..NewWebhook::default()
    };
    control.make_webhook("ada", new).await.unwrap()
}

async fn task(control: &Control<Memory>) -> TaskId {
    let new = NewTask { prompt: "Mend it".into(), ..NewTask::default() };
    control.create(Ask::by("ada"), new).await.unwrap().summary.id
}

/// Something happens to a task.
async fn happens(post: &Post, task: Option<TaskId>, kind: &str) {
    let now = post.store.now().await.unwrap();
    let event = NewEvent { task, ..NewEvent::general(kind, "{}".into(), now) };
    assert!(post.store.commit(Commit::new().event(event)).await.unwrap().is_done());
}

#[test]
fn a_hook_is_told_what_it_wants_from_its_making_on() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        let before = task(&node).await;
        let made = hook(&node, &["task.created", "alert.*"]).await;
        assert!(made.secret.unwrap().starts_with("belay_hook_"));
        let after = task(&node).await;
        happens(&post, Some(after), "task.ready").await;
        happens(&post, None, "alert.firing").await;
        tend(&node).await;
        let told: Vec<_> = post.receiver.got().into_iter().map(|got| (got.1, got.3)).collect();
        let expected = [(Some(after.to_string()), "task.created"), (None, "alert.firing")];
        let mut expected = expected.map(|(task, kind)| (task, kind.to_owned())).to_vec();
        expected.sort();
        let mut told = told;
        told.sort();
        assert_eq!(told, expected, "and nothing of {before}");
        let view = node.webhook("farm").await.unwrap();
        assert_eq!((view.waiting, view.dead, view.failure), (0, 0, None));
    });
}

#[test]
fn tasks_are_told_in_order_and_do_not_wait_for_each_other() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["task.*"]).await;
        let mut tasks = Vec::new();
        for _ in 0..30 {
            tasks.push(task(&node).await);
        }
        *post.receiver.picky.lock().unwrap() = Some(tasks[0].to_string());
        for step in 0..10 {
            for id in &tasks {
                happens(&post, Some(*id), &format!("task.step{step}")).await;
            }
        }
        tend(&node).await;
        let of = |id: TaskId| {
            let got = post.receiver.got();
            let mine = got.into_iter().filter(|got| got.1 == Some(id.to_string()));
            mine.map(|got| got.2).collect::<Vec<_>>()
        };
        assert_eq!(of(tasks[0]), [0u64; 0], "nothing of a task whose first letter is not taken");
        for id in &tasks[1..] {
            assert_eq!(of(*id).len(), 11, "{id}");
            assert!(of(*id).is_sorted(), "{:?}", of(*id));
        }
        let letters = node.letters("farm", ListLetters::default()).await.unwrap().letters;
        assert_eq!(letters.len(), 11);
        let tried: Vec<_> = letters.iter().filter(|letter| letter.tries > 0).collect();
        assert_eq!(tried.len(), 1, "only the first was tried");
        assert_eq!(tried[0].failure.as_deref(), Some("it answered 500"));
        *post.receiver.picky.lock().unwrap() = None;
        post.pass(Span::from_mins(2)).await;
        tend(&node).await;
        assert_eq!(of(tasks[0]).len(), 11);
        assert!(of(tasks[0]).is_sorted());
    });
}

#[test]
fn a_letter_is_repeated_for_a_day_then_dead_then_replayed() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["task.created"]).await;
        post.receiver.set(Mood::Fails);
        task(&node).await;
        tend(&node).await;
        let mut tries = 0;
        for _ in 0..60 {
            let letters = node.letters("farm", ListLetters::default()).await.unwrap().letters;
            assert_eq!(letters.len(), 1);
            assert!(letters[0].tries >= tries);
            tries = letters[0].tries;
            if letters[0].state == "dead" {
                break;
            }
            post.pass(Span::from_mins(30)).await;
            tend(&node).await;
        }
        assert!((20..60).contains(&tries), "{tries} tries in a day");
        let view = node.webhook("farm").await.unwrap();
        assert_eq!((view.waiting, view.dead), (0, 1));
        assert_eq!(view.failure.as_deref(), Some("it answered 500"));
        post.receiver.set(Mood::Takes);
        tend(&node).await;
        assert_eq!(post.receiver.got(), [], "the dead stay dead");
        let dead = ListLetters { state: Some("dead".into()), ..ListLetters::default() };
        let dead = node.letters("farm", dead).await.unwrap().letters.remove(0);
        assert_eq!(node.replay("ada", "farm", Some(dead.number)).await.unwrap().replayed, 1);
        let again = node.replay("ada", "farm", Some(dead.number)).await;
        assert!(again.is_err(), "it is not dead any more");
        tend(&node).await;
        assert_eq!(post.receiver.got()[0].0, dead.delivery);
        let view = node.webhook("farm").await.unwrap();
        assert_eq!((view.waiting, view.dead), (0, 0));
    });
}

#[test]
fn what_was_delivered_but_not_recorded_is_delivered_again_under_the_same_name() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["task.created"]).await;
        post.receiver.set(Mood::Hangs);
        task(&node).await;
        tend(&node).await;
        assert_eq!(post.receiver.got().len(), 1);
        drop(node);
        post.receiver.set(Mood::Takes);
        post.pass(Span::from_secs(16)).await; // the fallen node's lease
        let next = post.node(vec![]).await;
        tend(&next).await;
        let got = post.receiver.got();
        assert_eq!(got.len(), 2);
        assert_eq!(got[0], got[1]);
        assert_eq!(next.webhook("farm").await.unwrap().waiting, 0);
    });
}

#[test]
fn one_node_at_a_time_sends_for_a_hook() {
    test(async {
        let post = Post::new();
        let (one, other) = (post.node(vec![]).await, post.node(vec![]).await);
        hook(&one, &["task.*"]).await;
        for _ in 0..20 {
            task(&other).await;
        }
        let both = async { tokio::join!(one.tend(), other.tend()) };
        let _ = tokio::time::timeout(Duration::from_secs(5), both).await;
        let mut times = BTreeMap::<String, usize>::new();
        for got in post.receiver.got() {
            *times.entry(got.0).or_default() += 1;
        }
        assert_eq!(times.len(), 20);
        assert!(times.values().all(|count| *count == 1), "{times:?}");
    });
}

#[test]
fn more_events_than_letters_may_wait_are_told_without_a_gap() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["noise"]).await;
        post.receiver.set(Mood::Fails);
        for _ in 0..2_600 {
            happens(&post, None, "noise").await;
        }
        tend(&node).await;
        let view = node.webhook("farm").await.unwrap();
        assert!((1_000..=1_500).contains(&view.waiting), "{} wait", view.waiting);
        assert!(view.behind > 1_000, "the rest waits where events are");
        post.receiver.set(Mood::Takes);
        post.pass(Span::from_mins(1)).await;
        for _ in 0..200 {
            tend(&node).await;
            if node.webhook("farm").await.unwrap().waiting == 0 {
                break;
            }
        }
        let numbers: Vec<_> = post.receiver.got().into_iter().map(|got| got.2).collect();
        assert_eq!(numbers.len(), 2_600);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
    });
}

#[test]
fn the_settings_make_change_and_remove_hooks_and_the_api_leaves_those_alone() {
    test(async {
        let post = Post::new();
        let settings = |url: &str| HookSettings {
            name: "file".into(),
            url: Secret(url.into()),
            shape: HookShape::Slack,
            kinds: vec!["task.ready".into()],
            secret: None,
        };
        let node = post.node(vec![settings("https://one.example.org/x")]).await;
        tend(&node).await;
        let first = node.webhook("file").await.unwrap();
        assert_eq!((first.target.as_str(), first.signed), ("https://one.example.org", false));
        assert!(node.remove_webhook("ada", "file").await.is_err());
        post.pass(Span::from_secs(20)).await;
        let node = post.node(vec![settings("https://two.example.org/x")]).await;
        tend(&node).await;
        let second = node.webhook("file").await.unwrap();
        assert_eq!((second.target.as_str(), second.id), ("https://two.example.org", first.id));
        post.pass(Span::from_secs(20)).await;
        let node = post.node(vec![]).await;
        tend(&node).await;
        assert_eq!(node.webhooks().await.unwrap().webhooks, []);
    });
}

#[test]
fn a_hook_that_cannot_be_used_is_refused_with_a_sentence() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        let good = || NewWebhook {
            name: "farm".into(),
            url: "https://example.org/x".into(),
            ..NewWebhook::default()
        };
        for (bad, says) in [
            (NewWebhook { name: "".into(), ..good() }, "name"),
            (NewWebhook { name: "a b".into(), ..good() }, "name"),
            (NewWebhook { url: "ftp://x".into(), ..good() }, "https"),
            (NewWebhook { kinds: vec!["Task!".into()], ..good() }, "kind of event"),
            (NewWebhook { secret: Some("short".into()), ..good() }, "secret"),
        ] {
            let problem = node.make_webhook("ada", bad).await.unwrap_err();
            assert!(problem.detail.contains(says), "{}", problem.detail);
        }
        node.make_webhook("ada", good()).await.unwrap();
        let problem = node.make_webhook("ada", good()).await.unwrap_err();
        assert!(problem.detail.contains("is there already"), "{}", problem.detail);
        node.remove_webhook("ada", "farm").await.unwrap();
        node.make_webhook("ada", good()).await.unwrap();
    });
}

#[test]
fn a_paused_hook_is_told_nothing_and_later_everything_in_order() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["task.*"]).await;
        post.receiver.set(Mood::Fails);
        let first = task(&node).await;
        tend(&node).await;
        let paused = EditWebhook { paused: Some(true), ..EditWebhook::default() };
        let view = node.edit_webhook("ada", "farm", paused.clone()).await.unwrap();
        assert!(view.paused_at.is_some());
        let again = node.edit_webhook("ada", "farm", paused).await.unwrap();
        assert_eq!(again.paused_at, view.paused_at, "it was paused already");
        tend(&node).await;
        post.receiver.set(Mood::Takes);
        happens(&post, Some(first), "task.ready").await;
        // Longer than letters are tried for: that nobody tried is no reason to give them up.
        post.pass(Span::from_mins(48 * 60)).await;
        tend(&node).await;
        assert_eq!(post.receiver.got(), []);
        let view = node.webhook("farm").await.unwrap();
        assert_eq!((view.waiting, view.dead, view.behind > 0), (1, 0, true));

        post.receiver.set(Mood::Fails);
        let goes_on = EditWebhook { paused: Some(false), ..EditWebhook::default() };
        node.edit_webhook("ada", "farm", goes_on).await.unwrap();
        tend(&node).await;
        assert_eq!(node.webhook("farm").await.unwrap().dead, 0, "they are tried like new ones");
        post.receiver.set(Mood::Takes);
        post.pass(Span::from_mins(120)).await;
        tend(&node).await;
        let kinds: Vec<_> = post.receiver.got().into_iter().map(|got| got.3).collect();
        assert_eq!(kinds, ["task.created", "task.ready"]);
        assert_eq!(node.webhook("farm").await.unwrap().paused_at, None);
    });
}

#[test]
fn what_is_said_of_a_hook_is_changed_and_the_rest_stays() {
    test(async {
        let post = Post::new();
        let settings = HookSettings {
            name: "file".into(),
            url: Secret("https://one.example.org/x".into()),
            shape: HookShape::Slack,
            kinds: vec!["task.ready".into()],
            secret: None,
        };
        let node = post.node(vec![settings]).await;
        tend(&node).await;
        let made = hook(&node, &["task.ready"]).await.webhook;
        let edit = |url: &str, kinds: &[&str]| EditWebhook {
            url: (!url.is_empty()).then(|| url.to_owned()),
            kinds: Some(kinds.iter().map(|kind| (*kind).to_owned()).collect()),
            ..EditWebhook::default()
        };
        let to = "https://two.example.org/y";
        let view = node.edit_webhook("ada", "farm", edit(to, &["alert.*"])).await.unwrap();
        assert_eq!((view.id, view.target.as_str()), (made.id, "https://two.example.org"));
        assert_eq!((view.kinds, view.signed), (vec!["alert.*".to_owned()], true));
        for (which, bad) in [
            ("farm", edit("ftp://x", &["alert.*"])),
            ("farm", edit("", &["Not!"])),
            ("farm", EditWebhook { secret: Some("short".into()), ..EditWebhook::default() }),
            ("file", edit("", &["task.failed"])),
            ("nobody", edit("", &["task.failed"])),
        ] {
            assert!(node.edit_webhook("ada", which, bad.clone()).await.is_err(), "{bad:?}");
        }
        assert_eq!(node.webhook("farm").await.unwrap().kinds, ["alert.*"]);
        // What the settings say can be paused, and stays so when they are read again.
        let paused = EditWebhook { paused: Some(true), ..EditWebhook::default() };
        assert!(node.edit_webhook("ada", "file", paused).await.unwrap().paused_at.is_some());
        tend(&node).await;
        assert!(node.webhook("file").await.unwrap().paused_at.is_some());
    });
}

#[test]
fn a_request_about_a_hook_is_done_once_for_each_key() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        let by = |key: &str| Ask::by("ada").key(key);
        let new = NewWebhook {
            name: "farm".into(),
            url: "https://example.org/x".into(),
            kinds: vec!["task.ready".into()],
            ..NewWebhook::default()
        };
        let made = node.make_webhook(by("1"), new.clone()).await.unwrap();
        let again = node.make_webhook(by("1"), new.clone()).await.unwrap();
        assert_eq!((again.webhook.id, again.secret), (made.webhook.id, None), "it is told once");
        let other = NewWebhook { name: "barn".into(), ..new };
        let reused = node.make_webhook(by("1"), other).await.unwrap_err();
        assert_eq!(reused.code, Code::IdempotencyKeyReused);
        for key in ["2", "2", "3"] {
            node.test_webhook(by(key), "farm").await.unwrap();
        }
        tend(&node).await;
        assert_eq!(post.receiver.got().len(), 2, "two tests for two keys");
        for _ in 0..2 {
            node.remove_webhook(by("4"), "farm").await.unwrap();
        }
        assert_eq!(node.remove_webhook(by("5"), "farm").await.unwrap_err().code, Code::NotFound);
    });
}

#[test]
fn a_backup_is_made_once_for_each_key() {
    test(async {
        let post = Post::new();
        let made = Arc::new(Mutex::new(Vec::new()));
        let seen = made.clone();
        let parts = Parts {
            back_up: Some(Box::new(move |path| {
                let seen = seen.clone();
                Box::pin(async move {
                    let mut seen = seen.lock().unwrap();
                    if seen.contains(&path) {
                        return Err("there is something".to_owned());
                    }
                    seen.push(path);
                    Ok(seen.len() as u64)
                })
            })),
            ..parts(&post.store, &post.blobs, 0)
        };
        let node = Control::open(parts).await.unwrap();
        let by = |key: &str| Ask::by("ada").key(key);
        let first = node.backup(by("1"), "/a".into()).await.unwrap();
        let again = node.backup(by("1"), "/a".into()).await.unwrap();
        assert_eq!((first.bytes, &again), (1, &first));
        assert_eq!(node.backup(by("2"), "/a".into()).await.unwrap_err().code, Code::Refused);
        let reused = node.backup(by("1"), "/b".into()).await.unwrap_err();
        assert_eq!(reused.code, Code::IdempotencyKeyReused);
        assert_eq!(made.lock().unwrap().len(), 1);
    });
}

#[test]
fn no_secret_is_shown() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        let secret = "sesame-sesame-sesame";
        let new = NewWebhook {
            name: "farm".into(),
            url: "https://user:sesame@example.org/sesame?token=sesame".into(),
            secret: Some(secret.into()),
            ..NewWebhook::default()
        };
        assert!(!format!("{new:?}").contains("sesame"));
        let made = node.make_webhook("ada", new).await.unwrap();
        post.receiver.set(Mood::Fails);
        task(&node).await;
        tend(&node).await;
        let list = node.webhooks().await.unwrap();
        let letters = node.letters("farm", ListLetters::default()).await.unwrap();
        assert_eq!(letters.letters.len(), 1);
        for shown in [
            serde_json::to_string(&made).unwrap(),
            serde_json::to_string(&list).unwrap(),
            serde_json::to_string(&letters).unwrap(),
            format!("{made:?} {list:?} {letters:?}"),
        ] {
            assert!(!shown.contains("sesame"), "{shown}");
        }
    });
}

#[test]
fn a_test_reaches_its_hook_alone_whatever_it_wants() {
    test(async {
        let post = Post::new();
        let node = post.node(vec![]).await;
        hook(&node, &["task.ready"]).await;
        let other = NewWebhook {
            name: "other".into(),
            url: "https://example.org/x".into(),
            kinds: vec!["*".into()],
            ..NewWebhook::default()
        };
        node.make_webhook("ada", other).await.unwrap();
        node.test_webhook("ada", "farm").await.unwrap();
        tend(&node).await;
        let got = post.receiver.got();
        let id = node.webhook("farm").await.unwrap().id.to_string();
        let tests: Vec<_> = got.iter().filter(|got| got.3 == "webhook.test").collect();
        assert_eq!(tests.len(), 1);
        assert!(tests[0].0.starts_with(&id));
    });
}
