//! Reports: what an attempt printed becomes durable, and what was seen in it becomes evidence.
//!
//! The bytes are stored first, at their offset; then one commit moves the durable length, the
//! evidence, the usage and the events together. The length is the compare-and-set: a report that
//! was taken before is known by it, so that no line and no event is stored twice.

use belay_api::port::{Acknowledged, Report, Seen, Who};
use belay_kernel::budget;
use belay_kernel::fence::{self, Intent};
use belay_kernel::planted::{self, Bug};
use belay_kernel::sandbox::{self, Event as SandboxEvent};
use belay_kernel::tool::ToolKey;
use belay_kernel::verdict::judge;
use belay_kernel::{Disposition, Limits, Switches, Timestamp};
use belay_store::blob::{BlobHash, BlobKey};
use belay_store::rows::{AttemptRow, LedgerRow, SandboxRow, SessionRow};
use belay_store::{Commit, NewEffect, NewEvent, Request, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::commit::{Draft, Put, due_at};
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};

impl<S: Store> Control<S> {
    /// Takes a report.
    pub(crate) async fn take_report(&self, who: Who, report: Report) -> Outcome<Acknowledged> {
        let length = report.from + report.bytes.len() as u64;
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let row = admitted(&look, who, Intent::Append)?;
            let durable = row.row.transcript_length;
            let again = durable != report.from && !planted::is(Bug::ReportTakenTwice);
            if again || (report.bytes.is_empty() && report.seen.is_empty()) {
                return Ok(Acknowledged { next: durable });
            }
            if row.row.transcript_hash.is_some() {
                return Ok(Acknowledged { next: durable }); // sealed: nothing can follow
            }
            if !report.bytes.is_empty() {
                let key = BlobKey::Transcript(who.task, who.attempt);
                self.inner.blobs.append(key, report.from, report.bytes.clone()).await?;
            }
            let draft = self.observed(&look, who, &report, length);
            if self.try_put(draft).await? == Put::Done {
                self.inner.output.notify_waiters();
                return Ok(Acknowledged { next: length });
            }
        }
        Err(Refused::busy())
    }

    /// The commit of a report.
    pub(crate) fn observed(&self, look: &Look, who: Who, report: &Report, length: u64) -> Draft {
        let Some(stored) = &look.attempt else { return Commit::new().into() };
        let (now, limits) = (look.now, &look.policy.limits);
        let mut attempt = AttemptRow { transcript_length: length, ..stored.row.clone() };
        let mut commit = Commit::new();
        let mut draft_effects = false;
        if let Some((usage, ledger)) = charged(look, &stored.row, &report.seen) {
            attempt.usage = usage;
            commit = commit.update(ledger.revision, &ledger.row);
            if look.budget.standing(&ledger.row.ledger).is_used_up() {
                commit = commit.effect(used_up(look));
                draft_effects = true;
            }
        }
        // A probe is answered by the sandbox, and says nothing of the agent.
        let of_agent = |seen: &Seen| !matches!(seen, Seen::Probed { .. });
        let told = !report.bytes.is_empty() || report.seen.iter().any(of_agent);
        let acts = attempt.attempt.may_act() && told;
        if let (true, Some(sandbox)) = (acts, &look.sandbox) {
            let row = watched(&sandbox.row, report, now, limits);
            if let Some(stream) = &row.stream {
                let switches = &self.settings().switches;
                attempt.due_at = earlier(attempt.due_at, &attempt, &stream.0, limits, switches);
            }
            commit = commit.update(sandbox.revision, &row);
        }
        let named = report.seen.iter().rev().find_map(|seen| match seen {
            Seen::Conversation(name) => Some(name),
            _ => None,
        });
        if let (Some(name), Some(session)) = (named, &look.session) {
            let row =
                SessionRow { conversation: Some(name.as_str().into()), ..session.row.clone() };
            commit = commit.update(session.revision, &row);
        }
        commit = commit.update(stored.revision, &attempt);
        for event in events(look, who, report) {
            commit = commit.event(event);
        }
        if report.bytes.is_empty() {
            commit = commit.request(once(who, report, now));
        }
        Draft { commit, offer: None, effects: draft_effects }
    }
}

/// The attempt that speaks, if it may.
pub(crate) fn admitted(look: &Look, who: Who, intent: Intent) -> Outcome<&Stored<AttemptRow>> {
    let row = look.attempt.as_ref().ok_or(Refused::Fenced)?;
    fence::admit(&row.row.attempt, who.attempt, who.epoch, intent)?;
    Ok(row)
}

/// The attempt's usage and the tree's ledger after what was reported, if anything was.
fn charged(
    look: &Look,
    attempt: &AttemptRow,
    seen: &[Seen],
) -> Option<(belay_kernel::Usage, Stored<LedgerRow>)> {
    let ledger = look.ledger.as_ref()?;
    let mut used = (attempt.usage, ledger.row.ledger);
    for seen in seen {
        if let Seen::Usage(usage) = seen {
            let charged = budget::charge(&used.1, &used.0, usage);
            used = (charged.usage, charged.ledger);
        }
    }
    let row = LedgerRow { ledger: used.1, ..ledger.row.clone() };
    (row != ledger.row).then_some((used.0, Stored { revision: ledger.revision, row }))
}

/// Everything below the root is to be ended: nothing is left.
fn used_up(look: &Look) -> NewEffect {
    NewEffect {
        task: Some(look.task.row.root),
        attempt: None,
        kind: "budget_used_up".to_owned(),
        body: json!({}).to_string(),
        due_at: look.now,
    }
}

/// The sandbox after what was seen, with when to judge it again.
fn watched(row: &SandboxRow, report: &Report, now: Timestamp, limits: &Limits) -> SandboxRow {
    let mut row = row.clone();
    let (Some(evidence), Some(stream)) = (&mut row.evidence, &mut row.stream) else { return row };
    let (evidence, stream) = (&mut evidence.0, &mut stream.0);
    if !report.bytes.is_empty() {
        evidence.output(now);
        stream.output(now);
    }
    let mut happened = vec![SandboxEvent::SignOfLife];
    for seen in &report.seen {
        match seen {
            Seen::Event { kind, .. } => {
                evidence.seen(kind, now);
                stream.seen();
                happened.push(SandboxEvent::from_kind(kind));
            }
            Seen::ToolOpened { id } => {
                evidence.tool_opened(ToolKey::of(id), now);
                stream.tool_opened(ToolKey::of(id), now);
            }
            Seen::ToolClosed { id } => {
                evidence.tool_closed(ToolKey::of(id), now);
                stream.tool_closed(ToolKey::of(id), now);
            }
            Seen::Usage(_) | Seen::Conversation(_) | Seen::Drift(_) | Seen::Probed { .. } => {}
        }
    }
    row.due_at = sooner(row.due_at, judge(evidence, limits, now).recheck_at);
    for event in happened {
        if let Disposition::Accept(moved) = sandbox::step(&row.state, event, now, limits) {
            row.state = moved.next;
        }
    }
    row
}

/// A timer that is too early is set right when it fires; only one that is too late is moved.
pub(crate) fn earlier(
    due: Option<Timestamp>,
    row: &AttemptRow,
    stream: &belay_kernel::deadline::Stream,
    limits: &Limits,
    switches: &Switches,
) -> Option<Timestamp> {
    sooner(due, due_at(row, stream, limits, switches))
}

/// The first of two moments, as far as there are any.
pub(crate) fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn events(look: &Look, who: Who, report: &Report) -> Vec<NewEvent> {
    let event = |kind: &str, body: String| NewEvent {
        attempt: Some(who.attempt),
        session: look.task.row.session,
        workflow: look.task.row.workflow,
        ..NewEvent::task(who.task, kind, body, look.now)
    };
    let of = |seen: &Seen| match seen {
        Seen::Event { kind, detail } => Some(event(kind.name(), detail.to_string())),
        Seen::Usage(usage) => Some(event("agent.usage", json!(usage).to_string())),
        Seen::Conversation(name) => {
            Some(event("agent.conversation", json!({ "name": name }).to_string()))
        }
        Seen::Drift(count) => Some(event("agent.drift", json!({ "count": count }).to_string())),
        Seen::Probed { healthy } => {
            Some(event("sandbox.probed", json!({ "healthy": healthy }).to_string()))
        }
        Seen::ToolOpened { .. } | Seen::ToolClosed { .. } => None,
    };
    report.seen.iter().filter_map(of).collect()
}

/// A report without bytes does not move the length, so it is known again by what it says.
fn once(who: Who, report: &Report, now: Timestamp) -> Request {
    let body = serde_json::to_vec(&report.seen).unwrap_or_default();
    let hash = BlobHash::of(&body).to_string();
    Request {
        principal: format!("attempt {}/{}", who.task, who.attempt),
        key: format!("report {} {hash}", report.from),
        body_hash: hash,
        answer: String::new(),
        at: now,
    }
}
