//! What the server tells of itself at `/metrics`: every answer is counted, and what the dashboard
//! and the rules name is there, with the labels that they use.

#[path = "support/node.rs"]
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use belay_api::{AgentEvent, NewWebhook};
use belay_kernel::attempt::{Outcome, Phase, Proof};
use belay_kernel::{EventKind, InstallationId, Span, Timestamp};
use belay_store::{Commit, Memory, NewEvent, Store};
use node::{Node, TOKEN, ask};
use serde_json::json;

/// Figures by name: their labels, with the values that these have.
type Known = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The labels in braces: `a="b",c="d"`.
fn labels(text: &str) -> Vec<(String, String)> {
    let one = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim_start_matches('~').trim().trim_matches('"');
        Some((name.trim().trim_end_matches('!').to_owned(), value.to_owned()))
    };
    text.split(',').filter_map(one).collect()
}

fn known(page: &str) -> Known {
    let mut known = Known::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (figure, _) = line.rsplit_once(' ').unwrap();
        let (name, rest) = figure.split_once('{').unwrap_or((figure, ""));
        let of_name = known.entry(name.to_owned()).or_default();
        for (label, value) in labels(rest.trim_end_matches('}')) {
            of_name.entry(label).or_default().insert(value);
        }
    }
    known
}

async fn page<S: Store>(node: &Node<S>) -> String {
    let (status, page) = ask(node.address, "GET /metrics", TOKEN, b"").await.unwrap();
    assert_eq!(status, 200, "{page}");
    page
}

#[tokio::test]
async fn whoever_is_refused_is_counted_for_the_route_that_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::on(directory.path()).await;
    let agent = node.agent().await;
    for (line, token, status) in [
        ("GET /api/v1/tasks", "wrong", 401),
        ("GET /api/v1/tasks", TOKEN, 200),
        ("POST /api/v1/tokens", agent.token.as_str(), 403),
        ("PUT /api/v1/tasks", TOKEN, 405),
        ("GET /nowhere/at/all", TOKEN, 404),
        ("GET /nowhere/at/all", "wrong", 401),
    ] {
        let answer = ask(node.address, line, token, b"").await.unwrap();
        assert_eq!(answer.0, status, "{line} {}", answer.1);
    }
    let page = page(&node).await;
    for (method, route, class, count) in [
        ("GET", "/api/v1/tasks", "2xx", 1),
        ("GET", "/api/v1/tasks", "4xx", 1),
        ("POST", "/api/v1/tokens", "4xx", 1),
        ("other", "other", "4xx", 3),
    ] {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{class}\"");
        let line = format!("\nbelay_http_requests_total{{{labels}}} {count}\n");
        assert!(page.contains(&line), "{line} is not in\n{page}");
        let labels = format!("method=\"{method}\",route=\"{route}\"");
        let counted = format!("\nbelay_http_request_seconds_count{{{labels}}} ");
        assert!(page.contains(&counted), "{counted} is not in\n{page}");
    }
    assert!(!page.contains("nowhere"), "no label has a value that a client chose");
    node.stop().await;
}

/// A figure in an expression: its name, and the labels that it must have, with a value where the
/// expression names one.
#[derive(Debug)]
struct Named {
    figure: String,
    labels: Vec<(String, Option<String>)>,
}

/// Up to the bracket that closes what was opened before `text`.
fn within(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.expect("brackets are closed")]
}

/// What is grouped by labels: `by (labels) (…)`, as ranges of the expression.
fn groups(expression: &str) -> Vec<(std::ops::Range<usize>, Vec<String>)> {
    let mut groups = Vec::new();
    for (at, by) in expression.match_indices("by (") {
        let names = within(&expression[at + by.len()..]);
        let rest = at + by.len() + names.len() + 1;
        let open = rest + expression[rest..].find('(').expect("a group of something") + 1;
        let names = names.split(',').map(|name| name.trim().to_owned()).collect();
        groups.push((open..open + within(&expression[open..]).len(), names));
    }
    groups
}

fn named(expression: &str) -> Vec<Named> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let groups = groups(expression);
    let mut all = Vec::new();
    for (at, _) in expression.match_indices("belay_") {
        let rest = &expression[at..];
        let end = rest.find(|c| !of_name(c)).unwrap_or(rest.len());
        let selected = rest[end..].strip_prefix('{').and_then(|rest| rest.split('}').next());
        let selected = labels(selected.unwrap_or_default());
        let selected = selected.into_iter().map(|(name, value)| (name, Some(value)));
        let grouped = groups.iter().filter(|(range, _)| range.contains(&at));
        let grouped = grouped.flat_map(|(_, names)| names.iter().map(|name| (name.clone(), None)));
        let labels = selected.chain(grouped).collect();
        all.push(Named { figure: rest[..end].to_owned(), labels });
    }
    assert!(!all.is_empty(), "`{expression}` names no figure of ours");
    all
}

/// The expressions of a dashboard, each with what its legend names.
fn of_dashboard(text: &str) -> Vec<(String, Vec<String>)> {
    let document: serde_json::Value = serde_json::from_str(text).unwrap();
    let panels = document["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let one = |target: &serde_json::Value| {
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        let names = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        let names = names.map(|name| name.trim().to_owned()).collect();
        (target["expr"].as_str().unwrap().to_owned(), names)
    };
    targets.map(one).collect()
}

/// The expressions of rules: what follows `expr:`, on its line or on those that are indented more.
fn of_rules(text: &str) -> Vec<String> {
    let mut expressions = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.trim_start().strip_prefix("expr: ") else { continue };
        let indent = line.len() - line.trim_start().len();
        let mut expression = first.trim_start_matches(">-").to_owned();
        while let Some(more) = lines.next_if(|line| line.len() - line.trim_start().len() > indent) {
            expression = format!("{expression} {}", more.trim());
        }
        expressions.push(expression.trim().to_owned());
    }
    expressions
}

fn hold(known: &Known, expression: &str) -> Result<(), String> {
    for Named { figure, labels } in named(expression) {
        let Some(has) = known.get(&figure) else {
            return Err(format!("there is no figure `{figure}`"));
        };
        for (label, value) in labels {
            let Some(values) = has.get(&label) else {
                return Err(format!("`{figure}` has no label `{label}`"));
            };
            if let Some(value) = value
                && !values.contains(&value)
            {
                return Err(format!("`{label}` of `{figure}` is never `{value}`"));
            }
        }
    }
    Ok(())
}

/// A node of which everything can be told that the dashboard shows.
async fn lived() -> Node<Memory> {
    let store = Memory::new(InstallationId::from_bits(1), 1);
    store.set_now(Timestamp::from_millis(1_000_000));
    let node = Node::with(store.clone()).await;
    let agent = node.agent().await;
    let kind = EventKind::from_name("agent.tool_use");
    let event = AgentEvent { seq: None, kind, call: None, data: "{}".into() };
    node.control.take_events(agent.who, None, vec![event], None).await.unwrap();
    let hook = NewWebhook {
        name: "farm".into(),
        url: "https://example.org/".into(),
        ..NewWebhook::default()
    };
    node.control.make_webhook("ada", hook).await.unwrap();
    // It is judged when it was silent for a while.
    store.set_now(Timestamp::from_millis(1_000_000).after(Span::from_mins(4)));
    let judged = async {
        while !page(&node).await.contains("\nbelay_verdicts_total{") {
            let _ = tokio::time::timeout(Duration::from_millis(50), node.control.tend()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), judged).await.expect("it is judged");
    node.control.stop("ada", agent.who.task, Duration::ZERO).await.unwrap();
    // No runner is here that would end it; this is what control tells when one has.
    let body = json!({ "phase": Phase::Ended(Outcome::Cancelled, Proof::Observed) }).to_string();
    let now = store.now().await.unwrap();
    let ended = NewEvent::task(agent.who.task, "sandbox.terminated", body, now);
    assert!(store.commit(Commit::new().event(ended)).await.unwrap().is_done());
    node
}

#[tokio::test]
async fn what_the_dashboard_and_the_rules_name_is_told_with_the_labels_that_they_use() {
    let node = lived().await;
    // The page tells of requests that were answered before it.
    page(&node).await;
    let known = known(&page(&node).await);
    let dashboard = of_dashboard(include_str!("../../../deploy/grafana/belay.json"));
    let rules = of_rules(include_str!("../../../deploy/prometheus/belay.rules.yml"));
    assert!(dashboard.len() > 20 && rules.len() > 7, "{} {}", dashboard.len(), rules.len());
    for (expression, legend) in &dashboard {
        hold(&known, expression).unwrap_or_else(|why| panic!("{why}: {expression}"));
        let grouped: Vec<_> = groups(expression).into_iter().flat_map(|(_, names)| names).collect();
        for name in legend {
            assert!(grouped.contains(name), "the legend names `{name}`: {expression}");
        }
    }
    for expression in &rules {
        hold(&known, expression).unwrap_or_else(|why| panic!("{why}: {expression}"));
    }
    for wrong in [
        "belay_taskz",
        "max by (colour) (belay_tasks)",
        "sum(rate(belay_stops_total{result=\"lost\"}[5m]))",
        "histogram_quantile(0.5, sum by (le) (rate(belay_stop_seconds_count[1h])))",
    ] {
        assert!(hold(&known, wrong).is_err(), "{wrong}");
    }
    node.stop().await;
}
