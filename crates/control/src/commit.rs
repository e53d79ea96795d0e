//! From a decision to a commit: rows, events and effects, together or not at all.

use belay_kernel::attempt::Phase;
use belay_kernel::claim::Account;
use belay_kernel::deadline;
use belay_kernel::planted::{self, Bug};
use belay_kernel::task::{Blocked, Effect, Reason, State, Transition};
use belay_kernel::termination::Termination;
use belay_kernel::{AttemptNumber, Cause, Limits, Reading, Switches, Timestamp};
use belay_store::rows::{AccountRow, AttemptRow, SandboxRow, TaskRow};
use belay_store::{Commit, Committed, Document, Failure, NewEffect, NewEvent, Note, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::look::Look;
use crate::refuse::{self, Refused};

/// What is known of why an attempt ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndNote {
    pub(crate) cause: Option<Cause>,
    pub(crate) message: Option<String>,
    pub(crate) fired: Option<Reading>,
    /// When the usage limit resets that it met, if that is known.
    pub(crate) resets_at: Option<Timestamp>,
}

impl EndNote {
    pub(crate) const NONE: Self = Self { cause: None, message: None, fired: None, resets_at: None };

    pub(crate) fn fired(reading: Reading) -> Self {
        Self { fired: Some(reading), ..Self::NONE }
    }
}

/// A commit, and who is to be told after it.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) commit: Commit,
    /// A role that may have something to claim.
    pub(crate) offer: Option<String>,
    /// Whether there are effects to perform.
    pub(crate) effects: bool,
}

impl From<Commit> for Draft {
    fn from(commit: Commit) -> Self {
        Self { commit, offer: None, effects: false }
    }
}

impl Draft {
    /// Adds to the commit.
    #[must_use]
    pub(crate) fn with(self, add: impl FnOnce(Commit) -> Commit) -> Self {
        Self { commit: add(self.commit), ..self }
    }
}

/// What became of a commit, besides a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// It is durable, now or since an earlier try.
    Done,
    /// Something that it read was changed: look again.
    Overtaken,
}

impl<S: Store> Control<S> {
    /// Commits, and tells whoever is to be told.
    pub(crate) async fn put(&self, draft: Draft) -> refuse::Outcome<Put> {
        let began = tokio::time::Instant::now();
        let committed = self.store().commit(draft.commit).await?;
        let overtaken = matches!(committed, Committed::Overtaken(_));
        self.inner.gauges.committed(began.elapsed(), overtaken);
        match committed {
            Committed::Done | Committed::Replayed(_) => {}
            Committed::Overtaken(_) if planted::is(Bug::OvertakenTakenForDone) => {}
            Committed::Overtaken(_) => return Ok(Put::Overtaken),
            Committed::Refused(refusal) => {
                return Err(Failure::Refused(refusal).into());
            }
        }
        if let Some(role) = &draft.offer {
            self.inner.mailboxes.offer(role);
        }
        if draft.effects {
            self.inner.effects.notify_one();
        }
        self.inner.committed.notify_waiters();
        Ok(Put::Done)
    }

    /// Commits. What nobody knows to be committed is to be looked at again, like what was
    /// overtaken.
    pub(crate) async fn try_put(&self, draft: Draft) -> refuse::Outcome<Put> {
        match self.put(draft).await {
            Err(Refused::Failed(Failure::Unknown)) => Ok(Put::Overtaken),
            put => put,
        }
    }

    /// The commit of a transition: both rows as they are to be, what it tells, what it causes.
    pub(crate) fn draft(&self, look: &Look, next: &Transition, note: &EndNote) -> Draft {
        let now = look.now;
        let task = TaskRow {
            task: next.task,
            due_at: wakes_at(&next.task.state),
            ..look.task.row.clone()
        };
        let mut commit = look.read(Commit::new()).update(look.task.revision, &task);
        let changed = || look.sandbox.as_ref().map(|row| (row.revision, row.row.clone()));
        let sandbox = held(look, &next.task.state)
            .or_else(|| if look.sandbox_changed { changed() } else { None });
        if let Some((revision, row)) = &sandbox {
            commit = commit.update(*revision, row);
        }
        if let (true, Some(session)) = (look.session_changed, &look.session) {
            commit = commit.update(session.revision, &session.row);
        }
        if let (Some(attempt), Some(stored)) = (next.attempt, &look.attempt) {
            let stream = sandbox
                .as_ref()
                .and_then(|(_, row)| row.stream.as_ref().map(|seen| seen.0))
                .unwrap_or_else(|| look.stream());
            let mut row = AttemptRow { attempt, ..stored.row.clone() };
            if let (Phase::Ending(outcome), None) = (attempt.phase, row.termination) {
                let keep_alive = look.spec.keep_alive;
                row.termination = Some(Termination::of_end(outcome, note.cause, keep_alive));
                row.ending_at = Some(now);
                row.cause = note.cause.or(match next.task.reason {
                    Reason::Ended(cause) | Reason::Retrying(cause) => Some(cause),
                    _ => None,
                });
                row.fired = note.fired.map(Document);
                row.message = note.message.as_deref().map(short);
                commit = accounted(commit, look, note);
            }
            if matches!(attempt.phase, Phase::Publishing { .. }) {
                row.fired = note.fired.map(Document).or(row.fired);
            }
            let (limits, switches) = (&look.policy.limits, &self.settings().switches);
            row.due_at = due_at(&row, &stream, limits, switches);
            commit = commit.update(stored.revision, &row);
        }
        commit = commit.event(told(look, next, note));
        let mut draft = Draft::from(commit);
        for effect in &next.effects {
            draft = caused(draft, look, *effect);
        }
        draft
    }
}

/// A note of at most what the column takes, cut at a letter.
pub(crate) fn short(text: &str) -> Note {
    let end = (0..=4_000.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    Note::from(text[..end.unwrap_or(0)].replace('\0', " "))
}

/// When a queued task that waits for its time is to be offered.
fn wakes_at(state: &State) -> Option<Timestamp> {
    match state {
        State::Queued { not_before, .. } => *not_before,
        _ => None,
    }
}

/// When an attempt is to be looked at again: its first deadline, or the end of its lease.
pub(crate) fn due_at(
    row: &AttemptRow,
    stream: &deadline::Stream,
    limits: &Limits,
    switches: &Switches,
) -> Option<Timestamp> {
    let attempt = &row.attempt;
    let first = deadline::clocks(attempt, stream, limits, switches).map(|clock| clock.passes_at);
    let lease = match attempt.phase {
        Phase::Ended(..) => None,
        Phase::Ending(_) if planted::is(Bug::LeaseProofEarly) => row.ending_at,
        Phase::Claimed | Phase::Running | Phase::Publishing { .. } | Phase::Ending(_) => {
            Some(attempt.lease_end.after(belay_kernel::Span::from_millis(1)))
        }
    };
    first.chain(lease).min()
}

/// A sandbox's clocks stand still while a question of its agent is held.
fn held(look: &Look, next: &State) -> Option<(belay_kernel::Revision, SandboxRow)> {
    let Stored { revision, row } = look.sandbox.as_ref()?;
    let mut row = row.clone();
    let evidence = &mut row.evidence.as_mut()?.0;
    let stream = &mut row.stream.as_mut()?.0;
    match (look.task.row.task.state, next) {
        (State::Running { .. }, State::Blocked(Blocked::Held { .. })) => {
            evidence.asked(look.now);
            row.due_at = None;
        }
        (State::Blocked(Blocked::Held { .. }), State::Running { .. }) => {
            let since = look.attempt.as_ref().and_then(|attempt| attempt.row.attempt.held_since);
            stream.released(since.unwrap_or(look.now), look.now);
            evidence.answered(look.now);
            row.due_at = Some(look.now);
        }
        _ => return None,
    }
    Some((*revision, row))
}

/// An account that met its usage limit is limited; one that did not works. However the attempt ends
/// that tries it first: if it were forgotten, all others would wait for it for ever.
fn accounted(commit: Commit, look: &Look, note: &EndNote) -> Commit {
    let Some(name) = &look.task.row.account else { return commit };
    let before = look.account.as_ref().map_or(Account::Open, |row| row.row.account);
    let after = match note.cause {
        Some(Cause::UsageLimit) => {
            before.limited(note.resets_at.unwrap_or(look.now.after(look.policy.limits.park)))
        }
        _ => before.passed(look.task.row.task.id),
    };
    let row = AccountRow { name: name.clone(), account: after };
    match &look.account {
        _ if after == before => commit,
        Some(stored) => commit.update(stored.revision, &row),
        None => commit.insert(&row),
    }
}

/// The event of a transition.
fn told(look: &Look, next: &Transition, note: &EndNote) -> NewEvent {
    let state = next.task.state;
    let body = json!({
        "from": look.task.row.task.state.name(),
        "state": state.name(),
        "group": state.group(),
        "reason": next.task.reason.code(),
        "phase": next.attempt.map(|attempt| attempt.phase),
        "cause": note.cause,
        "message": note.message.as_deref().map(|text| short(text).to_string()),
        "fired": note.fired,
    });
    let kind = format!("task.{}", state.name().to_lowercase());
    NewEvent {
        attempt: next.attempt.map(|attempt| attempt.number),
        session: look.task.row.session,
        workflow: look.task.row.workflow,
        ..NewEvent::task(look.task.row.task.id, &kind, body.to_string(), look.now)
    }
}

/// An effect as it is stored, or the hint that it is.
fn caused(draft: Draft, look: &Look, effect: Effect) -> Draft {
    let stored = |kind: &str, attempt: Option<AttemptNumber>, body: serde_json::Value| NewEffect {
        task: Some(look.task.row.task.id),
        attempt,
        kind: kind.to_owned(),
        body: body.to_string(),
        due_at: look.now,
    };
    let nothing = json!({});
    let new = match effect {
        Effect::Offer => {
            return Draft { offer: Some(look.task.row.role.as_str().to_owned()), ..draft };
        }
        // Done by whoever asked, in reaction to the answer; or told by the event alone.
        Effect::Prepare(_)
        | Effect::Execute(_)
        | Effect::Push(_)
        | Effect::AnnounceQuestion(_)
        | Effect::AnnounceReady => return draft,
        Effect::DeliverAnswer(attempt) => {
            let question = match look.task.row.task.state {
                State::Blocked(Blocked::Held { question, .. }) => Some(question),
                _ => None,
            };
            stored("deliver_answer", Some(attempt), json!({ "question": question }))
        }
        Effect::SettlePublish(attempt) => stored("settle_publish", Some(attempt), nothing),
        Effect::Terminate(attempt) => stored("terminate", Some(attempt), nothing),
        Effect::CancelDescendants => stored("cancel_descendants", None, nothing),
        Effect::DisregardSubtasks => {
            stored("disregard_subtasks", None, json!({ "before": look.now }))
        }
        Effect::AnnounceRest => stored("announce_rest", None, nothing),
        Effect::AnnounceRequeue => stored("announce_requeue", None, nothing),
    };
    Draft { commit: draft.commit.effect(new), effects: true, ..draft }
}
