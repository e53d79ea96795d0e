//! Events and beats of agents that speak for themselves, with their attempt's token.
//!
//! They become evidence as a runner's reports do: one commit moves the sandbox, its timers and the
//! events together, and reads the attempt, so that a stop that came first refuses it. Times are
//! ours. Numbered events are counted by the evidence, in the same commit: what is told again
//! because an answer was lost is known, and nothing is stored twice.

use belay_api::port::Who;
use belay_api::{AgentEvent, Code, EventsTaken, Heartbeat, HeartbeatTaken, Problem};
use belay_kernel::evidence::{Evidence, Turn};
use belay_kernel::fence::Intent;
use belay_kernel::sandbox::{self, Event as SandboxEvent, Reason};
use belay_kernel::tool::ToolKey;
use belay_kernel::verdict::judge;
use belay_kernel::{Disposition, EventKind, Limits, SandboxId, Timestamp};
use belay_store::blob::BlobHash;
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{
    Beat, Beaten, Commit, Committed, Document, Failure, Holder, Key, NewEvent, Refusal, Request,
    Store, Stored,
};
use serde_json::json;

use crate::Control;
use crate::beat::{is_news, pulsed};
use crate::look::{Look, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::{admitted, earlier, sooner};

/// Sorted out: what is new of a batch, and how the sandbox is after it.
struct Sorted<'a> {
    new: Vec<&'a AgentEvent>,
    known: u64,
    next: u64,
    row: SandboxRow,
}

impl<S: Store> Control<S> {
    /// Takes events of the agent in a sandbox, its own unless one is named: all of them or none.
    pub async fn take_events(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: Vec<AgentEvent>,
        key: Option<String>,
    ) -> Result<EventsTaken, Problem> {
        Ok(self.ingest(who, sandbox, &events, key.as_deref()).await?)
    }

    async fn ingest(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: &[AgentEvent],
        key: Option<&str>,
    ) -> Outcome<EventsTaken> {
        let asked = self.known_by(who, events, key);
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let (attempt, stored) = speaks_for(&look, who, sandbox)?;
            if let Some(before) = self.answered_before(asked.as_ref()).await? {
                return Ok(before);
            }
            let sorted = sort(&stored.row, events, look.now, &look.policy.limits)?;
            let taken = EventsTaken {
                taken: sorted.new.len() as u64,
                known: sorted.known,
                next: sorted.next,
            };
            if sorted.new.is_empty() {
                return Ok(taken);
            }
            let mut commit = self.told_elsewhere(&look, attempt, stored, &sorted)?;
            if let Some(asked) = &asked {
                let answer = json!(taken).to_string();
                commit = commit.request(Request { answer, at: look.now, ..asked.clone() });
            }
            match self.store().commit(commit).await {
                Ok(Committed::Done) => {
                    self.heard_of_itself(&attempt.row);
                    return Ok(taken);
                }
                Ok(Committed::Replayed(_) | Committed::Overtaken(_)) | Err(Failure::Unknown) => {}
                Ok(Committed::Refused(refusal)) => return Err(Failure::Refused(refusal).into()),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Refused::busy())
    }

    /// By what the same request is known again: the sender's key, or, where events have neither
    /// key nor number, one of ours that guards against a lost answer of the store.
    fn known_by(&self, who: Who, events: &[AgentEvent], key: Option<&str>) -> Option<Request> {
        let key = match key {
            Some(key) => key.to_owned(),
            None if events.iter().all(|event| event.seq.is_some()) => return None,
            None => format!("own-{:032x}", self.inner.chance.draw()),
        };
        Some(Request {
            principal: format!("events of {}/{}", who.task, who.attempt),
            key,
            body_hash: hash(events),
            answer: String::new(),
            at: Timestamp::EPOCH,
        })
    }

    async fn answered_before(&self, asked: Option<&Request>) -> Outcome<Option<EventsTaken>> {
        let Some(asked) = asked else { return Ok(None) };
        let Some(before) = self.store().answered(&asked.principal, &asked.key).await? else {
            return Ok(None);
        };
        if before.body_hash != asked.body_hash {
            return Err(Failure::Refused(Refusal::KeyReused).into());
        }
        let unreadable = |_| Refused::new(Code::Internal, "a stored answer is unreadable");
        serde_json::from_str(&before.answer).map(Some).map_err(unreadable)
    }

    /// The commit of what an agent told.
    fn told_elsewhere(
        &self,
        look: &Look,
        attempt: &Stored<AttemptRow>,
        stored: &Stored<SandboxRow>,
        sorted: &Sorted<'_>,
    ) -> Outcome<Commit> {
        let mut commit = Commit::new().update(stored.revision, &sorted.row);
        let (limits, switches) = (&look.policy.limits, &self.settings().switches);
        let due_at = sorted.row.stream.as_ref().map_or(attempt.row.due_at, |stream| {
            earlier(attempt.row.due_at, &attempt.row, &stream.0, limits, switches)
        });
        commit = match due_at == attempt.row.due_at {
            true => commit.read(attempt),
            false => commit.update(attempt.revision, &AttemptRow { due_at, ..attempt.row.clone() }),
        };
        let mask = self.mask_in(look)?;
        for event in &sorted.new {
            commit = commit.event(NewEvent {
                task: Some(attempt.row.task),
                attempt: Some(attempt.row.attempt.number),
                session: look.task.row.session,
                workflow: look.task.row.workflow,
                kind: event.kind.name().to_owned(),
                body: mask.json(&event.data),
                at: look.now,
            });
        }
        Ok(commit)
    }

    /// Takes a beat of the agent in a sandbox, its own unless one is named.
    pub async fn take_heartbeat(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        beat: Heartbeat,
    ) -> Result<HeartbeatTaken, Problem> {
        Ok(self.take_pulse(who, sandbox, beat).await?)
    }

    async fn take_pulse(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        beat: Heartbeat,
    ) -> Outcome<HeartbeatTaken> {
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let (attempt, stored) = speaks_for(&look, who, sandbox)?;
            let limits = &look.policy.limits;
            let lease_ms = self.renew_own(&look, attempt).await?;
            let heard = self.heard_of_itself(&attempt.row);
            let Some(mut row) = pulsed(&stored.row, beat.status, heard, look.now, limits) else {
                return Err(not_started());
            };
            moved(&mut row, [SandboxEvent::SignOfLife], look.now, limits)?;
            let commit = Commit::new().read(attempt).update(stored.revision, &row);
            match self.store().commit(commit).await {
                Ok(Committed::Done) => {}
                Ok(Committed::Overtaken(_)) | Err(Failure::Unknown) => continue,
                Ok(Committed::Refused(refusal)) => return Err(Failure::Refused(refusal).into()),
                Ok(Committed::Replayed(_)) => return Err(Refused::busy()),
                Err(failure) => return Err(failure.into()),
            }
            if heard || is_news(&stored.row) {
                let id = (attempt.row.task, attempt.row.attempt.number);
                let key = Key::of::<AttemptRow>(&id);
                self.store().rearm(key, attempt.revision, Some(look.now)).await?;
            }
            let evidence = row.evidence.as_ref().map(|document| document.0);
            let verdict = evidence.map(|evidence| judge(&evidence, limits, look.now).ruling);
            return Ok(HeartbeatTaken {
                state: row.state.status().name().to_owned(),
                verdict: verdict.map(|ruling| ruling.name().to_owned()).unwrap_or_default(),
                lease_ms,
            });
        }
        Err(Refused::busy())
    }

    /// Renews the lease of an attempt for which no runner beats.
    async fn renew_own(
        &self,
        look: &Look,
        attempt: &Stored<AttemptRow>,
    ) -> Outcome<Option<belay_kernel::Span>> {
        if attempt.row.runner.is_some() {
            return Ok(None);
        }
        let lease = look.policy.limits.attempt_lease_remote;
        let beat = Beat {
            holder: Holder::Attempt(attempt.row.task, attempt.row.attempt.number),
            fence: attempt.row.attempt.epoch.to_string(),
            until: look.now.after(lease),
        };
        match self.store().beat(vec![beat], look.now).await?.pop() {
            Some(Beaten::Current { .. }) => Ok(Some(lease)),
            Some(Beaten::Fenced | Beaten::Gone) | None => Err(Refused::Fenced),
        }
    }

    /// Where nobody else speaks for an agent, its own word is what was awaited; tells whether that
    /// is news.
    fn heard_of_itself(&self, row: &AttemptRow) -> bool {
        row.runner.is_none() && self.note_heard(row)
    }
}

/// The attempt and the sandbox, if whoever speaks may speak for them.
fn speaks_for(
    look: &Look,
    who: Who,
    sandbox: Option<SandboxId>,
) -> Outcome<(&Stored<AttemptRow>, &Stored<SandboxRow>)> {
    let attempt = look.attempt.as_ref().ok_or(Refused::Fenced)?;
    if sandbox.is_some() && attempt.row.sandbox != sandbox {
        let detail = "an attempt's token speaks for its own sandbox alone";
        return Err(Refused::new(Code::Forbidden, detail));
    }
    let stored = look.sandbox.as_ref().ok_or(Refused::Gone)?;
    // A dead sandbox is gone (410), whatever became of its attempt.
    if stored.row.state.is_gone() {
        return Err(Refused::Gone);
    }
    Ok((admitted(look, who, Intent::Act)?, stored))
}

fn not_started() -> Refused {
    Refused::new(Code::IllegalMove, "the attempt has not started; only then is its agent watched")
}

/// Sorts out what is new, and watches it.
fn sort<'a>(
    row: &SandboxRow,
    events: &'a [AgentEvent],
    now: Timestamp,
    limits: &Limits,
) -> Outcome<Sorted<'a>> {
    let mut row = row.clone();
    let (Some(Document(evidence)), Some(Document(stream))) = (&mut row.evidence, &mut row.stream)
    else {
        return Err(not_started());
    };
    let (mut new, mut known, mut happened) = (Vec::with_capacity(events.len()), 0, Vec::new());
    for (index, event) in events.iter().enumerate() {
        match event.seq.map(|seq| evidence.count(seq)) {
            None | Some(Turn::Next) => {}
            Some(Turn::Known) => {
                known += 1;
                continue;
            }
            Some(Turn::Early) => return Err(too_early(index, evidence)),
        }
        watch(evidence, event, now);
        if let Some(call) = &event.call {
            let key = ToolKey::of(call);
            match event.kind {
                EventKind::ToolUse => stream.tool_opened(key, now),
                EventKind::ToolResult | EventKind::ToolCompleted => stream.tool_closed(key, now),
                _ => {}
            }
        }
        stream.output(now);
        happened.push(SandboxEvent::from_kind(&event.kind));
        new.push(event);
    }
    let next = evidence.next_number();
    if !new.is_empty() {
        row.due_at = sooner(row.due_at, judge(evidence, limits, now).recheck_at);
    }
    moved(&mut row, happened, now, limits)?;
    Ok(Sorted { new, known, next, row })
}

fn watch(evidence: &mut Evidence, event: &AgentEvent, now: Timestamp) {
    match (&event.kind, &event.call) {
        (EventKind::ToolUse, Some(call)) => evidence.tool_opened(ToolKey::of(call), now),
        (EventKind::ToolResult | EventKind::ToolCompleted, Some(call)) => {
            evidence.tool_closed(ToolKey::of(call), now);
        }
        (kind, _) => evidence.seen(kind, now),
    }
}

/// Moves the sandbox by what happened; whoever speaks for a dead one must stop.
fn moved(
    row: &mut SandboxRow,
    happened: impl IntoIterator<Item = SandboxEvent>,
    now: Timestamp,
    limits: &Limits,
) -> Outcome<()> {
    for event in happened {
        match sandbox::step(&row.state, event, now, limits) {
            Disposition::Accept(moved) => row.state = moved.next,
            Disposition::Ignore => {}
            Disposition::Deny(deny) => match deny.reason {
                Reason::Gone => return Err(Refused::Gone),
                // Nothing that an agent tells of itself is an illegal move.
                Reason::Illegal | Reason::TooEarly(_) => {}
            },
        }
    }
    Ok(())
}

fn too_early(index: usize, evidence: &Evidence) -> Refused {
    let next = evidence.next_number();
    let detail = format!("events[{index}]: events before it have not come; send again from {next}");
    Refused::Problem(Problem::new(Code::OutOfOrder, detail).choices([next]))
}

/// The hash of what a batch says.
fn hash(events: &[AgentEvent]) -> String {
    let mut said = Vec::new();
    for event in events {
        for part in [event.kind.name(), event.call.as_deref().unwrap_or(""), &event.data] {
            said.extend_from_slice(&(part.len() as u64).to_le_bytes());
            said.extend_from_slice(part.as_bytes());
        }
    }
    BlobHash::of(&said).to_string()
}
