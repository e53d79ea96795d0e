//! What people's assistants call: tasks and their verbs.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_api::{Accept, Answer, Code, Comment, Continue, ListTasks, NewTask, Problem, TaskView};
use belay_kernel::task::Review;
use belay_kernel::{AttemptNumber, QuestionId, TaskId};
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::backend::Backend;
use super::call::{Called, data, read};
use super::inputs;

/// How long a stop waits for its receipt: assistants give a tool a minute.
const STOP_WAIT: Duration = Duration::from_secs(30);
/// How many tasks a list shows, if nobody says.
const PAGE: usize = 20;

pub(super) async fn create<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::CreateTask = read(arguments)?;
    let mut limits = BTreeMap::new();
    limits.extend(input.timeout.map(|timeout| ("absolute".to_owned(), timeout)));
    let task = NewTask {
        prompt: input.prompt,
        title: input.title,
        agent: input.agent,
        model: input.model,
        repository: input.repository,
        base: input.base,
        branch: input.branch,
        review: match input.review {
            Some(inputs::Review::Auto) => Review::Auto,
            Some(inputs::Review::Manual) | None => Review::Manual,
        },
        limits,
        budget_usd: input.budget_usd,
        max_tokens: input.max_tokens,
        max_attempts: input.max_attempts,
        after: tasks(&input.after)?,
        priority: input.priority,
        ..NewTask::default()
    };
    told(&backend.create(task).await?)
}

pub(super) async fn list<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::ListTasks = read(arguments)?;
    let limit = input.limit.and_then(|limit| usize::try_from(limit).ok());
    let which = ListTasks {
        state: input.states.join(","),
        limit: Some(limit.unwrap_or(PAGE)),
        after: input.after,
        ..ListTasks::default()
    };
    data(&backend.list(which).await?)
}

pub(super) async fn get<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::Which = read(arguments)?;
    told(&backend.show(&input.task).await?)
}

pub(super) async fn follow<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::ContinueTask = read(arguments)?;
    told(&backend.follow(&input.task, Continue { message: input.message }).await?)
}

pub(super) async fn stop<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::Which = read(arguments)?;
    data(&backend.stop(&input.task, STOP_WAIT).await?)
}

pub(super) async fn answer<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::AnswerQuestion = read(arguments)?;
    let question = match input.question.as_deref().map(str::parse::<QuestionId>) {
        None => None,
        Some(Ok(question)) => Some(question),
        Some(Err(_)) => return Err(bad("that is not the id of a question; get_task shows it")),
    };
    let answer = Answer { question, text: input.answer };
    told(&backend.answer(&input.task, answer).await?)
}

pub(super) async fn accept<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::AcceptTask = read(arguments)?;
    let accept = Accept { attempt: input.attempt.map(AttemptNumber) };
    told(&backend.accept(&input.task, accept).await?)
}

pub(super) async fn reject<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::RejectTask = read(arguments)?;
    let comment = Comment { comment: input.comment, run: input.run };
    told(&backend.reject(&input.task, comment).await?)
}

/// Ids that an assistant names.
pub(super) fn tasks(ids: &[String]) -> Result<Vec<TaskId>, Problem> {
    let parsed = ids.iter().map(|id| id.parse::<TaskId>());
    parsed.collect::<Result<_, _>>().map_err(|_| bad("`after` takes whole ids of tasks"))
}

fn bad(detail: &str) -> Problem {
    Problem::new(Code::BadRequest, detail)
}

/// A task as an assistant is told of it: what a person would look at, without the ids and figures
/// of the machinery.
fn told(task: &TaskView) -> Called {
    let attempts = task.attempt_list.iter().map(|view| {
        json!({
            "number": view.attempt.number,
            "phase": view.attempt.phase,
            "cause": view.cause,
            "message": view.message,
            "kept_ref": view.kept_ref,
        })
    });
    let verbs = task.verbs.iter().map(|verb| verb.name());
    data(&json!({
        "id": task.summary.id,
        "title": task.summary.title,
        "state": task.summary.state,
        "why": task.sentence,
        "since": task.summary.since,
        "possible": verbs.collect::<Vec<_>>(),
        "agent": task.summary.agent,
        "repository": task.repository,
        "branch": task.branch,
        "continues": task.continues,
        "parent": task.summary.parent,
        "subtasks": task.subtasks,
        "waits_for": task.after,
        "questions": task.questions,
        "progress": task.progress,
        "summary": task.summary_text,
        "cost": task.summary.cost,
        "tokens": task.summary.tokens,
        "attempts": attempts.collect::<Vec<Value>>(),
    }))
}
