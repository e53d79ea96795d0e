//! A person's moves. Each is one decision of the kernel, committed with the request that asked for
//! it, so that asking again with the same key changes nothing.

use std::time::Duration;

use belay_api::{
    Accept, Answer, Ask, Code, Comment, Continue, Problem, Resume, Stopping, TaskView,
};
use belay_kernel::Disposition;
use belay_kernel::graph;
use belay_kernel::receipt::Standing;
use belay_kernel::task::{self, Event, State, Verb};
use belay_kernel::{QuestionId, Revision, TaskId, Timestamp};
use belay_store::blob::BlobHash;
use belay_store::rows::{QuestionRow, RemarkRow, Speaker};
use belay_store::{Commit, Query, Refusal, Request, Store};
use serde_json::{Value, json};

use crate::Control;
use crate::commit::{EndNote, Put};
use crate::look::{Look, Others, TRIES};
use crate::refuse::{Outcome, Refused, illegal};

/// Who asks for what, and the key by which the same request is known again.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    by: String,
    key: String,
    hash: String,
    /// Whether the key is the asker's own; else it only guards against a lost answer of the store.
    theirs: bool,
    /// The revisions at which the task may be.
    expects: Option<Vec<Revision>>,
}

impl Asked {
    /// The request as it is stored with the decision.
    pub(crate) fn request(&self, task: TaskId, now: Timestamp) -> Request {
        self.request_answered(&json!({ "task": task }), now)
    }

    /// The same, answered with something else.
    pub(crate) fn request_answered(&self, answer: &Value, now: Timestamp) -> Request {
        Request {
            principal: self.by.clone(),
            key: self.key.clone(),
            body_hash: self.hash.clone(),
            answer: answer.to_string(),
            at: now,
        }
    }

    pub(crate) fn by(&self) -> &str {
        &self.by
    }

    /// Whether the task is still what the asker saw.
    pub(crate) fn check(&self, at: Revision) -> Outcome<()> {
        match &self.expects {
            Some(seen) if !seen.contains(&at) => Err(Refused::new(
                Code::Overtaken,
                format!("the task was changed since: it is at revision {at}; look at it again"),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// What a decision adds to its commit besides the kernel's part.
type Extra = Box<dyn FnOnce(Commit) -> Commit + Send>;

fn plain(event: Event) -> Outcome<(Event, Extra)> {
    Ok((event, Box::new(|commit| commit)))
}

impl<S: Store> Control<S> {
    /// What is asked for, known again by its key.
    pub(crate) fn asked(&self, ask: Ask, body: &str) -> Asked {
        let Ask { by, key, expects } = ask;
        let theirs = key.is_some();
        let key = key.unwrap_or_else(|| format!("own-{:032x}", self.inner.chance.draw()));
        Asked { by, key, hash: BlobHash::of(body.as_bytes()).to_string(), theirs, expects }
    }

    /// What an earlier request with the same key was answered with.
    pub(crate) async fn replayed_answer(&self, asked: &Asked) -> Outcome<Option<Value>> {
        if asked.theirs { self.answer_before(asked).await } else { Ok(None) }
    }

    /// The task that an earlier request with the same key was answered with.
    pub(crate) async fn replayed(&self, asked: &Asked) -> Outcome<Option<TaskId>> {
        self.replayed_answer(asked).await?.map(task_in).transpose()
    }

    /// What this very request was answered with, whosoever key it has.
    async fn answer_before(&self, asked: &Asked) -> Outcome<Option<Value>> {
        let Some(before) = self.store().answered(&asked.by, &asked.key).await? else {
            return Ok(None);
        };
        if before.body_hash != asked.hash {
            return Err(belay_store::Failure::Refused(Refusal::KeyReused).into());
        }
        Ok(Some(serde_json::from_str(&before.answer).unwrap_or_default()))
    }

    /// Looks, lets `choose` say what happens, and commits it, until nobody was quicker.
    async fn move_task(
        &self,
        id: TaskId,
        asked: &Asked,
        choose: impl Fn(&Look, &Others) -> Outcome<(Event, Extra)>,
    ) -> Outcome<TaskId> {
        if let Some(before) = self.replayed(asked).await? {
            return Ok(before);
        }
        for _ in 0..TRIES {
            let look = self.look(id).await?;
            if let Err(changed) = asked.check(look.task.revision) {
                // It may be this very request that changed it, where its answer was lost.
                let before = self.answer_before(asked).await?;
                return before.map_or(Err(changed), task_in);
            }
            let dependencies = self.dependencies(id).await?;
            let (event, extra) = choose(&look, &dependencies)?;
            let attempt = look.attempt.as_ref().map(|row| &row.row.attempt);
            let row = &look.task.row.task;
            let next = match task::step(row, attempt, &event, look.now, &look.policy) {
                Disposition::Accept(next) => next,
                Disposition::Ignore => return Ok(id),
                Disposition::Deny(denial) => return Err(denial.into()),
            };
            let request = asked.request(id, look.now);
            let draft = self.draft(&look, &next, &EndNote::NONE);
            let draft = draft.with(|commit| extra(dependencies.read(commit)).request(request));
            if self.try_put(draft).await? == Put::Done {
                return Ok(id);
            }
        }
        Err(Refused::busy())
    }

    /// Queues a task that waits for it.
    pub async fn run(&self, ask: impl Into<Ask>, id: TaskId) -> Result<TaskView, Problem> {
        let asked = self.asked(ask.into(), &format!("run {id}"));
        let choose = |look: &Look, others: &Others| plain(Event::Run(look.queue_facts(others)));
        let id = self.move_task(id, &asked, choose).await?;
        self.show(id).await
    }

    /// Begins again, from the base, in a new session.
    pub async fn retry(&self, ask: impl Into<Ask>, id: TaskId) -> Result<TaskView, Problem> {
        let asked = self.asked(ask.into(), &format!("retry {id}"));
        let choose = |look: &Look, others: &Others| plain(Event::Retry(look.queue_facts(others)));
        let id = self.move_task(id, &asked, choose).await?;
        self.show(id).await
    }

    /// Goes on where the task was; a final one is followed by a new task in the same session.
    pub async fn resume(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        resume: Resume,
    ) -> Result<TaskView, Problem> {
        let body = format!("resume {id} {:?}", resume.message);
        let asked = self.asked(ask.into(), &body);
        let look = self.look(id).await?;
        if graph::follow_up(&look.task.row.task.state, Verb::Resume).is_some() {
            let message = resume.message.unwrap_or_else(|| "Go on where you were.".to_owned());
            let id = self.follow_with(&asked, id, Verb::Resume, message).await?;
            return self.show(id).await;
        }
        let number = self.next_remark(id).await?;
        let choose = |look: &Look, others: &Others| {
            let event = Event::Resume(look.queue_facts(others));
            let extra = said(look, number, resume.message.clone());
            Ok((event, extra))
        };
        let id = self.move_task(id, &asked, choose).await?;
        self.show(id).await
    }

    /// Follows a task that is over with a new one in the same session.
    pub async fn follow(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        follow: Continue,
    ) -> Result<TaskView, Problem> {
        let asked = self.asked(ask.into(), &format!("continue {id} {}", follow.message));
        let id = self.follow_with(&asked, id, Verb::Continue, follow.message).await?;
        self.show(id).await
    }

    /// Takes the work.
    pub async fn accept(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        accept: Accept,
    ) -> Result<TaskView, Problem> {
        let asked = self.asked(ask.into(), &format!("accept {id} {:?}", accept.attempt));
        let choose = |look: &Look, _: &Others| match (accept.attempt, look.task.row.task.state) {
            (Some(seen), _) | (None, State::Ready { attempt: seen }) => {
                plain(Event::Accept { seen })
            }
            (None, state) => Err(illegal(&state, state.verbs()).into()),
        };
        let id = self.move_task(id, &asked, choose).await?;
        self.show(id).await
    }

    /// Sends the work back, with a comment for the next attempt.
    pub async fn reject(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        comment: Comment,
    ) -> Result<TaskView, Problem> {
        let ask = ask.into();
        // A reject that is repeated repeats the run too.
        let key = ask.key.as_ref().map(|key| format!("{key} run"));
        let again = Ask { key, expects: None, ..ask.clone() };
        let asked = self.asked(ask, &format!("reject {id} {:?}", comment.comment));
        let number = self.next_remark(id).await?;
        let choose = |look: &Look, _: &Others| {
            Ok((Event::Reject, said(look, number, comment.comment.clone())))
        };
        let id = self.move_task(id, &asked, choose).await?;
        if comment.run {
            return self.run(again, id).await;
        }
        self.show(id).await
    }

    /// Answers a question: it is cleared and the task goes on, in one commit.
    pub async fn answer(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        answer: Answer,
    ) -> Result<TaskView, Problem> {
        let asked =
            self.asked(ask.into(), &format!("answer {id} {:?} {}", answer.question, answer.text));
        if answer.text.trim().is_empty() {
            return Err(Problem::new(Code::BadRequest, "the answer is empty; say something"));
        }
        let open = self.open_question(id, answer.question).await?;
        let choose = |_: &Look, _: &Others| {
            let Some(open) = &open else {
                return match answer.question {
                    Some(question) => plain(Event::Answer { question }),
                    None => Err(Refused::new(
                        Code::IllegalMove,
                        "the task has no open question; show it to see what it waits for",
                    )),
                };
            };
            let mut row = open.row.clone();
            row.answer = Some(chosen(&row, &answer.text).into());
            row.answered_by = Some(asked.by().into());
            let (revision, event) = (open.revision, Event::Answer { question: row.id });
            let extra: Extra = Box::new(move |commit| commit.update(revision, &row));
            Ok((event, extra))
        };
        let id = self.move_task(id, &asked, choose).await?;
        self.show(id).await
    }

    async fn open_question(
        &self,
        id: TaskId,
        named: Option<QuestionId>,
    ) -> Outcome<Option<belay_store::Stored<QuestionRow>>> {
        let open = self.store().list(Query::<QuestionRow>::first(10).task(&[id]).open()).await?;
        let mut rows = open.rows.into_iter();
        let mut found = match named {
            Some(question) => rows.find(|row| row.row.id == question),
            None => rows.next(),
        };
        if let Some(row) = &mut found {
            row.row.answered_at = Some(self.now().await?);
        }
        Ok(found)
    }

    /// Ends a task, and waits so long for everything to be certain.
    pub async fn stop(
        &self,
        ask: impl Into<Ask>,
        id: TaskId,
        wait: Duration,
    ) -> Result<Stopping, Problem> {
        let asked = self.asked(ask.into(), &format!("stop {id}"));
        let id = self.move_task(id, &asked, |_, _| plain(Event::Cancel)).await?;
        let until = tokio::time::Instant::now() + wait;
        loop {
            let committed = self.inner.committed.notified();
            let cursor = self.store().latest().await.map_err(Refused::from)?;
            let stopping = self.stopping(id).await?;
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if matches!(stopping, Stopping::Stopped { .. }) || left.is_zero() {
                return Ok(stopping);
            }
            let patience = left.min(Duration::from_secs(1));
            // What is awaited has no event of its own: a commit of this node tells, and what other
            // nodes do is seen a little later.
            let awaited = self.store().await_events(cursor, patience);
            tokio::select! {
                () = committed => {}
                _ = tokio::time::timeout(patience, awaited) => {}
            }
        }
    }

    /// How a stop of a task stands.
    async fn stopping(&self, id: TaskId) -> Outcome<Stopping> {
        let look = self.look(id).await?;
        match self.standing(&look).await? {
            Standing::NotStopped => {
                let state = look.task.row.task.state;
                Err(illegal(&state, state.verbs()).into())
            }
            Standing::Stopping(pending) => Ok(Stopping::Stopping { pending }),
            Standing::Stopped if self.is_being_saved(&look) => {
                Ok(Stopping::Stopping { pending: Vec::new() })
            }
            Standing::Stopped => {
                Ok(Stopping::Stopped { receipt: Box::new(self.receipt_of(&look)) })
            }
        }
    }

    /// The number of the next remark in a task's thread.
    pub(crate) async fn next_remark(&self, id: TaskId) -> Outcome<u64> {
        let page = self.store().list(Query::<RemarkRow>::first(1).task(&[id])).await?;
        Ok(page.rows.first().map_or(1, |row| row.row.number + 1))
    }
}

/// The task that a stored answer tells of.
fn task_in(answer: Value) -> Outcome<TaskId> {
    let task = answer["task"].as_str().and_then(|id| id.parse().ok());
    task.ok_or_else(|| Refused::new(Code::Internal, "a stored answer is unreadable"))
}

/// A person's words for the next attempt.
fn said(look: &Look, number: u64, text: Option<String>) -> Extra {
    let text = text.filter(|text| !text.trim().is_empty());
    let row = text.map(|text| RemarkRow {
        task: look.task.row.task.id,
        number,
        attempt: None,
        speaker: Speaker::Person,
        text: text.into(),
        said_at: look.now,
    });
    Box::new(move |commit| match &row {
        Some(row) => commit.insert(row),
        None => commit,
    })
}

/// The option that a number stands for, or the text itself.
fn chosen(question: &QuestionRow, text: &str) -> String {
    let number = text.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    number
        .and_then(|index| question.options.0.get(index))
        .map_or_else(|| text.trim().to_owned(), Clone::clone)
}
