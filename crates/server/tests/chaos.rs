//! A bad network between clients and the server: connections are cut, held up, and what was sent is
//! sent twice. Whoever asks again until there is an answer has everything done once.

#[path = "support/node.rs"]
mod node;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/sse.rs"]
mod sse;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_api::NewTask;
use node::{Agent, Node, TOKEN, ask, ask_once};
use proxy::Proxy;
use serde_json::{Value, json};
use sse::Sse;

const PATIENCE: Duration = Duration::from_secs(120);
const MAKERS: usize = 4;
const TASKS: usize = 25;
const AGENTS: usize = 4;
const EVENTS: u64 = 120;

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Makes tasks, each with a key of its own, asking again until there is an answer.
async fn make_tasks(address: SocketAddr, maker: usize) -> Vec<String> {
    let mut made = Vec::new();
    for number in 0..TASKS {
        let key = format!("{maker}-{number}");
        let task = NewTask { prompt: key.clone(), hold: true, ..NewTask::default() };
        let body = serde_json::to_vec(&task).unwrap();
        let answer = loop {
            // One that came to nothing, or was cut, is asked again.
            if let Ok((status, answer)) =
                ask_once(address, "POST /api/v1/tasks", TOKEN, Some(&key), &body).await
            {
                assert_eq!(status, 201, "{answer}");
                break answer;
            }
        };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["prompt"], key.as_str());
        made.push(answer["id"].as_str().unwrap().to_owned());
    }
    made
}

/// Tells numbered events in batches, asking again until there is an answer, and going on from where
/// the server says.
async fn tell_events(address: SocketAddr, agent: Agent) {
    let line = format!("POST /api/v1/sandboxes/{}/events", agent.sandbox);
    let mut next = 1;
    while next <= EVENTS {
        let batch: Vec<_> = (next..(next + 7).min(EVENTS + 1))
            .map(|seq| json!({ "kind": "agent.tool_use", "seq": seq, "data": { "n": seq } }))
            .collect();
        let body = serde_json::to_vec(&batch).unwrap();
        if let Ok((status, answer)) = ask(address, &line, &agent.token, &body).await {
            assert_eq!(status, 200, "{answer}");
            next = serde_json::from_str::<Value>(&answer).unwrap()["next"].as_u64().unwrap();
        }
    }
}

/// Listens until it has seen this event, coming back with its cursor whenever it is cut off.
async fn listen(address: SocketAddr, until: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let (mut seen, mut last) = (Vec::new(), None::<String>);
    loop {
        let query = if last.is_none() { "?after=oldest" } else { "" };
        let Ok(mut stream) = Sse::open(address, TOKEN, query, last.as_deref()).await else {
            continue;
        };
        if stream.status != 200 {
            continue;
        }
        while let Ok(Some(message)) = stream.next().await {
            last = message.id.clone().or(last);
            if message.data.is_some() && message.event.as_deref() != Some("stream.resume") {
                seen.push(message.json());
            }
            if until(&seen) {
                return seen;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_bad_network_everything_is_done_once_and_seen_once() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let mut agents = Vec::new();
    for _ in 0..AGENTS {
        agents.push(node.agent().await);
    }
    let before = node.log(None).await.len();
    let all = before + MAKERS * TASKS + AGENTS * usize::try_from(EVENTS).unwrap();
    let proxy = Proxy::start(node.address, 0x0bad_5eed).await;
    let address = proxy.address;
    let listeners: Vec<_> =
        (0..3).map(|_| tokio::spawn(listen(address, move |seen| seen.len() >= all))).collect();
    let makers: Vec<_> = (0..MAKERS).map(|n| tokio::spawn(make_tasks(address, n))).collect();
    let tellers: Vec<_> =
        agents.iter().map(|agent| tokio::spawn(tell_events(address, agent.clone()))).collect();
    let mut ids = BTreeSet::new();
    for maker in makers {
        ids.extend(soon(maker).await.unwrap());
    }
    for teller in tellers {
        soon(teller).await.unwrap();
    }
    assert_eq!(ids.len(), MAKERS * TASKS, "every task has an id of its own");
    let log = node.log(None).await;
    assert_eq!(log.len(), all, "every task was made once, every event stored once");
    for listener in listeners {
        let seen = soon(listener).await.unwrap();
        let cursors: Vec<_> = seen.iter().map(|event| event["cursor"].as_str().unwrap()).collect();
        assert_eq!(cursors, log, "nothing missed, nothing twice");
        for agent in &agents {
            let of = |event: &&Value| {
                event["task"] == json!(agent.who.task) && event["kind"] == "agent.tool_use"
            };
            let numbers: Vec<_> =
                seen.iter().filter(of).map(|event| event["body"]["n"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=EVENTS).collect::<Vec<_>>(), "in order");
        }
    }
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let counts = &proxy.counts;
    assert!(count(&counts.cut) > 20 && count(&counts.duplicated) > 20, "{counts:?}");
    assert!(count(&counts.delayed) > 20, "{counts:?}");
    drop(proxy);
    soon(node.stop()).await;
}
