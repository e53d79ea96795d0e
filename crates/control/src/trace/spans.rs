//! The spans of an attempt, made of what is stored of it.

use belay_kernel::Timestamp;
use belay_kernel::attempt::{Outcome, Phase};
use belay_kernel::publish::Publish;
use belay_store::rows::{AttemptRow, SpecRow};

use super::context::Context;

/// How something went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Well, or not to be judged.
    Fine,
    /// Not well, and why.
    Failed(String),
}

/// A span of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceSpan {
    /// The trace, and its own id there.
    pub own: Context,
    /// The span that it is a part of.
    pub parent: Option<u64>,
    /// What was done.
    pub name: String,
    /// Whether it answers a request from outside.
    pub serves: bool,
    /// From when, in nanoseconds since the Unix epoch.
    pub from_ns: u128,
    /// Until when.
    pub until_ns: u128,
    /// What it is about.
    pub attributes: Vec<(&'static str, String)>,
    /// How it went.
    pub status: Status,
}

fn nanos(at: Timestamp) -> u128 {
    u128::try_from(at.as_millis()).unwrap_or(0) * 1_000_000
}

/// An id that follows from what the span is about.
fn id(row: &AttemptRow, name: &str) -> u64 {
    let text = format!("{} {} {name}", row.task, row.attempt.number);
    let hash = belay_api::token_hash(&text);
    u64::from_str_radix(&hash[..16], 16).unwrap_or(1).max(1)
}

/// The spans of an attempt of which everything is safe since `over`.
pub(super) fn of_attempt(
    spec: &SpecRow,
    role: &str,
    row: &AttemptRow,
    published: Option<(Timestamp, Timestamp)>,
    over: Timestamp,
) -> Vec<TraceSpan> {
    let Some(root) = spec.trace.as_deref().and_then(|text| text.parse::<Context>().ok()) else {
        return Vec::new();
    };
    let attempt = &row.attempt;
    let whole = id(row, "attempt");
    let span = |name: &str, id: u64, parent: u64, from: Timestamp, until: Timestamp| TraceSpan {
        own: Context { trace: root.trace, span: id },
        parent: Some(parent),
        name: name.to_owned(),
        serves: false,
        from_ns: nanos(from),
        until_ns: nanos(until.max(from)),
        attributes: vec![
            ("belay.task", row.task.to_string()),
            ("belay.attempt", attempt.number.to_string()),
        ],
        status: Status::Fine,
    };
    let part = |name: &str, from, until| span(name, id(row, name), whole, from, until);
    let ending = row.ending_at.unwrap_or(over);
    let proven = row.proven_at.unwrap_or(over);
    let name = format!("attempt {}", attempt.number);
    let mut first = span(&name, whole, root.span, attempt.claimed_at, proven.max(ending));
    first.attributes.push(("belay.role", role.to_owned()));
    first.attributes.extend(spec.agent.as_deref().map(|agent| ("belay.agent", agent.to_owned())));
    if let Phase::Ended(outcome, proof) = attempt.phase {
        first.attributes.push(("belay.outcome", outcome.code().to_owned()));
        first.attributes.push(("belay.proof", format!("{proof:?}").to_lowercase()));
        first.status = status(outcome, row);
    }
    let mut spans = vec![first];
    let started = attempt.started_at;
    spans.push(part("prepare", attempt.claimed_at, started.unwrap_or(ending)));
    if let Some(started) = started {
        let mut agent = part("agent", started, published.map_or(ending, |(from, _)| from));
        agent.attributes.extend(row.cause.map(|cause| ("belay.cause", cause.code().to_owned())));
        spans.push(agent);
    }
    if let Some((from, until)) = published {
        let mut publish = part("publish", from, until);
        if let Publish::Pushed(push) = attempt.publish {
            publish.attributes.push(("belay.commit", push.commit.to_string()));
        }
        spans.push(publish);
    }
    spans.push(part("terminate", ending, over));
    spans
}

fn status(outcome: Outcome, row: &AttemptRow) -> Status {
    match outcome {
        Outcome::Succeeded | Outcome::Question | Outcome::Cancelled => Status::Fine,
        Outcome::Failed | Outcome::TimedOut | Outcome::BudgetExceeded | Outcome::Lost => {
            let cause = row.cause.map_or(outcome.code(), |cause| cause.code());
            Status::Failed(cause.to_owned())
        }
    }
}
