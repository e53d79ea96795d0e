//! What an attempt asks for on its way: to be prepared, to start, to ask, to end.

use belay_api::port::{Asked, Ending, Left, Start, Who};
use belay_kernel::attempt::Event as AttemptEvent;
use belay_kernel::deadline::{Pace, Stream};
use belay_kernel::evidence::Evidence;
use belay_kernel::fence::Intent;
use belay_kernel::retry::{Failure, Jitter, Progress};
use belay_kernel::sandbox::{self, Exit};
use belay_kernel::task::{self, Event, Hold, SuccessFacts};
use belay_kernel::{Disposition, question};
use belay_store::rows::{AttemptRow, QuestionRow, RemarkRow, SandboxRow, Speaker};
use belay_store::{Commit, Document, List, NewEvent, Store};
use serde_json::json;

use crate::Control;
use crate::commit::{Draft, EndNote, Put};
use crate::look::{Look, Others, TRIES};
use crate::refuse::{Outcome, Refused};
use crate::report::admitted;

impl<S: Store> Control<S> {
    /// Chance for a backoff.
    pub(crate) fn jitter(&self) -> Jitter {
        Jitter::from_bits(self.inner.chance.draw() as u32)
    }

    /// The attempt that speaks goes on with `event`, which is nobody else's concern.
    pub(crate) async fn advance(
        &self,
        who: Who,
        event: AttemptEvent,
        intent: Intent,
    ) -> Outcome<()> {
        for _ in 0..TRIES {
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            let row = admitted(&look, who, intent)?;
            let limits = &look.policy.limits;
            let next = match row.row.attempt.step(event, look.now, limits) {
                Disposition::Accept(next) => next,
                Disposition::Ignore => return Ok(()),
                Disposition::Deny(denial) => return Err(task::Denial::Attempt(denial).into()),
            };
            let mut changed = AttemptRow { attempt: next, ..row.row.clone() };
            changed.due_at =
                crate::commit::due_at(&changed, &look.stream(), limits, &self.settings().switches);
            let commit = Commit::new().update(row.revision, &changed);
            if self.put(commit.into()).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// Decides `event` for the attempt that speaks, and commits it with `extra`.
    pub(crate) async fn act(
        &self,
        who: Who,
        prepare: impl Fn(&mut Look, &Others) -> Outcome<(Event, EndNote)>,
        extra: impl Fn(&Look, Draft) -> Draft,
    ) -> Outcome<Look> {
        for _ in 0..TRIES {
            let mut look = self.look_at(who.task, Some(who.attempt)).await?;
            let subtasks = self.subtasks(who.task).await?;
            admitted(&look, who, Intent::Act)?;
            let (event, note) = prepare(&mut look, &subtasks)?;
            let attempt = look.attempt.as_ref().map(|row| &row.row.attempt);
            let row = &look.task.row.task;
            let next = match task::step(row, attempt, &event, look.now, &look.policy) {
                Disposition::Accept(next) => next,
                Disposition::Ignore => return Ok(look),
                Disposition::Deny(denial) => return Err(denial.into()),
            };
            let draft = self.draft(&look, &next, &note).with(|commit| subtasks.read(commit));
            if self.try_put(extra(&look, draft)).await? == Put::Done {
                return Ok(look);
            }
        }
        Err(Refused::busy())
    }

    /// The agent may be executed, or not.
    pub(crate) async fn start_attempt(&self, who: Who, start: Start) -> Outcome<()> {
        let pace = if start.partial_output { Pace::Partial } else { Pace::Quiet };
        let prepare = |look: &mut Look, _: &Others| {
            if look.standing().is_used_up() {
                return Ok((Event::BudgetUsedUp, EndNote::NONE));
            }
            let now = look.now;
            if let Some(attempt) = &mut look.attempt
                && attempt.row.attempt.started_at.is_none()
            {
                attempt.row.token_hash = Some(start.token_hash.as_str().into());
                if let Some(sandbox) = &mut look.sandbox {
                    sandbox.row.evidence = Some(Document(Evidence::new(now)));
                    sandbox.row.stream = Some(Document(Stream::started(now, pace)));
                    sandbox.row.due_at = Some(now.after(look.policy.limits.start));
                    let (state, limits) = (sandbox.row.state, &look.policy.limits);
                    let thawed = sandbox::step(&state, sandbox::Event::Resumed, now, limits);
                    if let Disposition::Accept(moved) = thawed {
                        sandbox.row.state = moved.next;
                    }
                    look.sandbox_changed = true;
                }
            }
            Ok((Event::Start { attempt: who.attempt }, EndNote::NONE))
        };
        let look = self.act(who, prepare, |_, draft| draft).await?;
        match look.standing().is_used_up() {
            true => Err(Refused::Fenced),
            false => Ok(()),
        }
    }

    /// The agent asks a question.
    pub(crate) async fn take_question(&self, who: Who, asked: Asked) -> Outcome<()> {
        if let Err(denial) = question::check(&asked.text, &asked.options) {
            return Err(Refused::new(belay_api::Code::BadRequest, denial.to_string()));
        }
        let known = self.row::<QuestionRow>(asked.question).await?;
        if known.as_ref().is_some_and(|row| row.row.answered_at.is_some()) {
            // It was asked before and answered since: asking again must not block the task anew,
            // because nobody can answer it twice.
            let look = self.look_at(who.task, Some(who.attempt)).await?;
            return admitted(&look, who, Intent::Act).map(drop);
        }
        let hold = if asked.held { Hold::Held } else { Hold::Released };
        let event = Event::Ask { attempt: who.attempt, question: asked.question, hold };
        let prepare = |_: &mut Look, _: &Others| Ok((event, EndNote::NONE));
        let extra = |look: &Look, draft: Draft| match &known {
            Some(known) => draft.with(|commit| commit.read(known)),
            None => draft.with(|commit| {
                let row = question_row(look, who, &asked);
                let body = json!({
                    "question": row.id, "text": &*row.text, "options": row.options.0,
                    "held": asked.held,
                });
                let event = NewEvent {
                    attempt: Some(who.attempt),
                    session: look.task.row.session,
                    ..NewEvent::task(who.task, "task.question", body.to_string(), look.now)
                };
                commit.insert(&row).event(event)
            }),
        };
        self.act(who, prepare, extra).await.map(drop)
    }

    /// The agent is gone, and this is how it ended.
    pub(crate) async fn end_attempt(&self, who: Who, ending: Ending) -> Outcome<()> {
        let jitter = self.jitter();
        let (number, told) =
            (self.next_remark(who.task).await?, self.told_result(who).await?.is_some());
        let left = match &ending {
            Ending::Succeeded(left) | Ending::Failed { left, .. } => left.clone(),
        };
        let prepare = |look: &mut Look, subtasks: &Others| {
            let success = matches!(ending, Ending::Succeeded(_));
            exited(look, if success { Exit::Success } else { Exit::Failure });
            let progress = progress(&left, told, subtasks);
            Ok(match &ending {
                Ending::Succeeded(_) => {
                    let facts = success_facts(look, subtasks, progress);
                    (Event::Succeed { attempt: who.attempt, facts }, EndNote::NONE)
                }
                Ending::Failed { cause, message, resets_at, conversation_lost, .. } => {
                    if let (true, Some(session)) = (conversation_lost, &mut look.session) {
                        session.row.conversation = None;
                        look.session_changed = true;
                    }
                    let (cause, reset_at) = (*cause, *resets_at);
                    let failure = Failure { cause, progress, reset_at, jitter };
                    let message = Some(message.clone());
                    let note =
                        EndNote { cause: Some(cause), message, resets_at: reset_at, fired: None };
                    (Event::Fail { attempt: who.attempt, failure }, note)
                }
            })
        };
        let extra = |look: &Look, draft: Draft| {
            draft.with(|commit| match told {
                true => commit,
                false => summarised(commit, look, who, number, &left),
            })
        };
        self.act(who, prepare, extra).await.map(drop)
    }
}

/// What a success reads.
pub(crate) fn success_facts(look: &Look, subtasks: &Others, progress: Progress) -> SuccessFacts {
    SuccessFacts { progress, children: subtasks.children(), budget: look.standing() }
}

/// Whether an attempt left anything behind; `told` is whether it submitted a result.
pub(crate) fn progress(left: &Left, told: bool, subtasks: &Others) -> Progress {
    match left.changed || told || left.summary.is_some() || !subtasks.rows.is_empty() {
        true => Progress::Made,
        false => Progress::None,
    }
}

/// The sandbox's agent is gone.
pub(crate) fn exited(look: &mut Look, exit: Exit) {
    let (now, limits) = (look.now, look.policy.limits);
    let Some(sandbox) = &mut look.sandbox else { return };
    let row: &mut SandboxRow = &mut sandbox.row;
    if let (Exit::Success, Some(evidence)) = (exit, &mut row.evidence) {
        evidence.0.exited_well(now);
    }
    let moved = sandbox::step(&row.state, sandbox::Event::Exited(exit), now, &limits);
    if let Disposition::Accept(moved) = moved {
        row.state = moved.next;
    }
    row.due_at = None; // its attempt's termination looks after it from here on
    look.sandbox_changed = true;
}

/// What the agent said it did is kept in the task's thread.
pub(crate) fn summarised(
    commit: Commit,
    look: &Look,
    who: Who,
    number: u64,
    left: &Left,
) -> Commit {
    let Some(summary) = left.summary.as_deref().filter(|text| !text.trim().is_empty()) else {
        return commit;
    };
    let end = (0..=100_000.min(summary.len())).rev().find(|&at| summary.is_char_boundary(at));
    let row = RemarkRow {
        task: who.task,
        number,
        attempt: Some(who.attempt),
        speaker: Speaker::Agent,
        text: summary[..end.unwrap_or(0)].replace('\0', " ").into(),
        said_at: look.now,
    };
    commit.insert(&row)
}

fn question_row(look: &Look, who: Who, asked: &Asked) -> QuestionRow {
    QuestionRow {
        id: asked.question,
        task: who.task,
        attempt: who.attempt,
        text: asked.text.as_str().into(),
        options: List(asked.options.clone()),
        asked_at: look.now,
        answer: None,
        answered_by: None,
        answered_at: None,
    }
}
