//! What agents call for themselves: ask, tell how far they are, hand in a result, make subtasks.

use std::time::Duration;

use belay_api::{Asking, Code, NewQuestion, NewTask, Problem, Progress, Submission, TaskView};
use rmcp::RoleServer;
use rmcp::model::{JsonObject, ProgressNotificationParam};
use rmcp::service::RequestContext;
use tokio::time::Instant;

use super::backend::Backend;
use super::call::{Called, read, sentence};
use super::{inputs, people};

/// How often a client that waits for a person's answer is told that it still is waited for.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How soon a server that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long it is tried to note that an answer was handed over.
const NOTE_WITHIN: Duration = Duration::from_secs(5);

/// Asks the person and waits: as long as the attempt may act, and the client does.
pub(super) async fn ask<B: Backend>(
    backend: &B,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Called {
    let input: inputs::AskUser = read(arguments)?;
    let question = NewQuestion { text: input.question, options: input.options };
    let began = Instant::now();
    let mut asking = Asking { question: None, answer: None };
    loop {
        let next = async {
            match asking.question {
                None => backend.ask(question.clone()).await,
                Some(question) => backend.await_answer(question, TELL_EVERY).await,
            }
        };
        let next = tokio::select! {
            // Nobody waits for this call any more; the question stays.
            () = context.ct.cancelled() => {
                return Err(Problem::new(Code::Unavailable, "the call was given up"));
            }
            () = backend.closed() => {
                let detail = "Belay is being restarted; call again with the same words, it is \
                              the same question";
                return Err(Problem::new(Code::Unavailable, detail));
            }
            next = next => next,
        };
        match next {
            Ok(next) => asking = next,
            // The server is being restarted, or cannot answer now. The lease says for how long
            // that can go on.
            Err(problem) if problem.code == Code::Unavailable => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(problem) => return Err(over(problem)),
        }
        if let Asking { question: Some(question), answer: Some(answer) } = &asking {
            note(backend.handed_over(*question)).await;
            return sentence(format!("The person answers: {answer}"));
        }
        still_waiting(context, began.elapsed()).await;
        if asking.question.is_none() {
            // Another question of the same attempt is open: this one is put when that is answered.
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// Notes that the answer was handed over. Where that cannot be noted, the agent is given it all the
/// same: the answer is the person's, and only the next question of the same words is affected.
async fn note(noting: impl Future<Output = Result<(), Problem>>) {
    match tokio::time::timeout(NOTE_WITHIN, noting).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => tracing::warn!("an answer was handed over, not noted: {problem}"),
        Err(_) => tracing::warn!("an answer was handed over, and nobody could be told"),
    }
}

/// A refusal in the words of somebody whose attempt may be over.
fn over(problem: Problem) -> Problem {
    match problem.code {
        Code::Fenced | Code::Gone | Code::Unauthorized => Problem {
            detail: "this attempt is over: it was stopped, or its time for the question has \
                     passed; do nothing more"
                .into(),
            ..problem
        },
        _ => problem,
    }
}

/// Tells the client that the call goes on, if it asked to be told.
async fn still_waiting(context: &RequestContext<RoleServer>, waited: Duration) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let mut progress = ProgressNotificationParam::new(token, waited.as_secs_f64());
    progress.message = Some("waiting for the person's answer".into());
    if let Err(error) = context.peer.notify_progress(progress).await {
        tracing::debug!("a client could not be told of progress: {error}");
    }
}

pub(super) async fn report_progress<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::ReportProgress = read(arguments)?;
    let progress = Progress { text: input.message, percent: input.percent };
    backend.report_progress(progress).await.map_err(over)?;
    sentence("Noted. The person can see it.")
}

pub(super) async fn submit_result<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::SubmitResult = read(arguments)?;
    backend.submit_result(Submission { text: input.result }).await.map_err(over)?;
    sentence("The result is kept.")
}

pub(super) async fn add_subtask<B: Backend>(backend: &B, arguments: JsonObject) -> Called {
    let input: inputs::AddSubtask = read(arguments)?;
    let task = NewTask {
        prompt: input.prompt,
        title: input.title,
        agent: input.agent,
        model: input.model,
        after: people::tasks(&input.after)?,
        ..NewTask::default()
    };
    let made: TaskView = backend.create(task).await.map_err(over)?;
    let (id, state) = (made.summary.id, made.summary.state);
    sentence(format!("Subtask {id} is made and is {state}."))
}
