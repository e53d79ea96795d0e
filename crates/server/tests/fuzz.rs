//! Bytes at random, and bodies that are nearly right, at every route that takes a body: whatever
//! comes, it is a success or a refusal, never a fault of ours, and the server goes on.

#[path = "support/node.rs"]
mod node;

use node::{Agent, Node, TOKEN, ask};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// How many bodies each route is sent.
const CASES: usize = 60;

/// Where a body is sent, with something that would be taken there.
fn routes(agent: &Agent) -> Vec<(String, String, &'static str)> {
    let (task, sandbox) = (agent.who.task, agent.sandbox);
    let admin = |path: &str, body| (path.to_owned(), TOKEN.to_owned(), body);
    let own = |path: String, body| (path, agent.token.clone(), body);
    vec![
        admin("/tasks", r#"{"prompt":"x","hold":true,"limits":{"idle":"3m"},"budget_usd":1.5}"#),
        admin(&format!("/tasks/{task}/answer"), r#"{"question":"0000000000000005","text":"y"}"#),
        admin(&format!("/tasks/{task}/accept"), r#"{"attempt":1}"#),
        admin(&format!("/tasks/{task}/reject"), r#"{"comment":"no","run":true}"#),
        admin(&format!("/tasks/{task}/resume"), r#"{"message":"go on"}"#),
        admin(&format!("/tasks/{task}/continue"), r#"{"message":"go on"}"#),
        own(
            format!("/sandboxes/{sandbox}/events"),
            r#"{"events":[{"kind":"agent.tool_use","call":"c","data":{"a":["\u00e9",1.5e3]}}]}"#,
        ),
        own(format!("/sandboxes/{sandbox}/heartbeat"), r#"{"status":"running"}"#),
    ]
}

/// Bytes at random, or the right body with bytes changed, doubled or left out.
fn body(right: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let changed = proptest::collection::vec(change, 1..5).prop_map(move |changes| {
        let mut bytes = right.as_bytes().to_vec();
        for (at, byte, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let index = at.index(bytes.len());
            match how {
                0 => bytes[index] = byte,
                1 => bytes.insert(index, b"\"{}[],:0\\"[usize::from(byte) % 9]),
                2 => drop(bytes.remove(index)),
                _ => bytes.extend_from_slice(&right.as_bytes()[..index.min(right.len())]),
            }
        }
        bytes
    });
    let noise = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![8 => changed, 2 => noise, 1 => Just(right.as_bytes().to_vec())]
}

#[tokio::test]
async fn no_body_is_a_fault_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let agent = node.agent().await;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut answers = std::collections::BTreeMap::<u16, usize>::new();
    for (path, token, right) in routes(&agent) {
        let line = format!("POST /api/v1{path}");
        for _ in 0..CASES {
            let body = body(right).new_tree(&mut runner).unwrap().current();
            let answer = ask(node.address, &line, &token, &body).await;
            let shown = String::from_utf8_lossy(&body);
            let (status, text) = answer.unwrap_or_else(|error| panic!("{line} {shown}: {error}"));
            assert!(status < 500, "{line} {shown}: {status} {text}");
            *answers.entry(status).or_default() += 1;
        }
    }
    assert!(answers.contains_key(&400) && answers.contains_key(&200), "{answers:?}");
    assert_eq!(node.client().health().await.unwrap().status, "ok");
    node.stop().await;
}

#[tokio::test]
async fn no_query_is_a_fault_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let value = "[a-z0-9%&=,.*+;:/ \\-]{0,40}";
    for path in ["/events", "/tasks", "/events/ws"] {
        for name in ["after", "task", "workflow", "kind", "type", "limit", "wait_ms"] {
            for _ in 0..8 {
                let value = value.new_tree(&mut runner).unwrap().current().replace(' ', "%20");
                let line = format!("GET /api/v1{path}?{name}={value}&after=");
                let (status, text) = ask(node.address, &line, TOKEN, b"").await.unwrap();
                assert!(status < 500, "{line}: {status} {text}");
            }
        }
    }
    node.stop().await;
}
