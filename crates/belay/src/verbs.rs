//! What a person does to a task: stop, cancel, answer, accept, reject, retry, resume, continue, rm;
//! and `backup`.

use std::io::BufRead;
use std::time::{Duration, Instant};

use belay_api::{
    Accept, Answer, Client, Comment, Continue, QuestionView, Resume, Stopping, TaskView,
};
use belay_kernel::receipt::Pending;

use crate::cli::{self, Command};
use crate::connect::{Link, key};
use crate::fault::{Exit, Fault};
use crate::merge;
use crate::screen::{Palette, clean, is_interactive, note, one_line, say, say_json};
use crate::show::receipt_text;

/// How long one request waits for a receipt.
const STOP_WAIT: Duration = Duration::from_secs(30);

/// Does what is asked.
pub(crate) async fn verb(link: &mut Link, command: Command, json: bool) -> Result<Exit, Fault> {
    match command {
        Command::Stop(stop) => {
            let key = key(stop.keyed.idempotency_key.as_deref())?;
            let wait = Duration::from_millis(stop.wait.as_millis());
            let answer = stop_task(link, &stop.keyed.which.task, wait, &key).await?;
            tell_stopping(&answer, json);
            Ok(Exit::Done)
        }
        Command::Cancel(cancel) => {
            let (id, key) = (&cancel.which.task, key(cancel.idempotency_key.as_deref())?);
            let answer = link.ask(async |client| client.cancel(id, Some(&key)).await).await?;
            tell_stopping(&answer, json);
            Ok(Exit::Done)
        }
        Command::Answer(answer) => answer_question(link, &answer, json).await,
        Command::Accept(accept) => {
            let (id, key) =
                (&accept.keyed.which.task, key(accept.keyed.idempotency_key.as_deref())?);
            let task = match accept.merge {
                true => merge::accept(link, id, &key).await?,
                false => {
                    let body = Accept::default();
                    link.ask(async |client| client.accept(id, &body, Some(&key)).await).await?
                }
            };
            tell(&task, json)
        }
        Command::Reject(reject) => {
            let (id, key) =
                (&reject.keyed.which.task, key(reject.keyed.idempotency_key.as_deref())?);
            let body = Comment { comment: reject.comment, run: reject.run };
            let task = link.ask(async |client| client.reject(id, &body, Some(&key)).await).await?;
            tell(&task, json)
        }
        Command::Retry(retry) => {
            let (id, key) = (&retry.which.task, key(retry.idempotency_key.as_deref())?);
            tell(&link.ask(async |client| client.retry(id, Some(&key)).await).await?, json)
        }
        Command::Resume(resume) => {
            let (id, key) =
                (&resume.keyed.which.task, key(resume.keyed.idempotency_key.as_deref())?);
            let task = link.ask(async |client| client.show(id).await).await?;
            if task.summary.state == "PENDING" && resume.message.is_none() {
                // What was rejected goes on when a person says so, in the same session.
                let run = async |client: &Client| client.run(id, Some(&key)).await;
                return tell(&link.ask(run).await?, json);
            }
            let body = Resume { message: resume.message };
            tell(&link.ask(async |client| client.resume(id, &body, Some(&key)).await).await?, json)
        }
        Command::Continue(next) => {
            let (id, key) = (&next.keyed.which.task, key(next.keyed.idempotency_key.as_deref())?);
            let body = Continue { message: next.message };
            tell(&link.ask(async |client| client.follow(id, &body, Some(&key)).await).await?, json)
        }
        Command::Rm(which) => {
            link.client().delete(&which.task).await?;
            if !json {
                note(&format!("belay: {} is removed; its kept work stays", which.task));
            }
            Ok(Exit::Done)
        }
        Command::Backup(backup) => back_up(link, &backup, json).await,
        other => Err(Fault::failed(format!("{other:?} is not done here"))),
    }
}

/// Says what became of a task.
fn tell(task: &TaskView, json: bool) -> Result<Exit, Fault> {
    if json {
        say_json(task);
    } else {
        let summary = &task.summary;
        let state = Palette::stdout().state(&summary.state);
        say(&format!("{state}  {}  {}", summary.id, clean(&task.sentence)));
    }
    Ok(Exit::Done)
}

/// Stops a task, and waits for the receipt.
pub(crate) async fn stop_task(
    link: &mut Link,
    id: &str,
    wait: Duration,
    key: &str,
) -> Result<Stopping, Fault> {
    let until = Instant::now() + wait;
    let mut key = Some(key);
    loop {
        let left = until.saturating_duration_since(Instant::now()).min(STOP_WAIT);
        let answer = link.ask(async |client| client.stop(id, left, key).await).await?;
        if matches!(answer, Stopping::Stopped { .. }) || Instant::now() >= until {
            return Ok(answer);
        }
        // The key stands for the first request. Asking again needs none: a second stop of a task
        // that is cancelled gives the same receipt.
        key = None;
    }
}

fn tell_stopping(answer: &Stopping, json: bool) {
    if json {
        say_json(answer);
        return;
    }
    match answer {
        Stopping::Stopped { receipt } => say(&receipt_text(receipt)),
        Stopping::Stopping { pending } => {
            let waits = pending.iter().map(|pending| match pending {
                Pending::Proof { .. } => "the proof that its processes are gone",
                Pending::Publish => "what became of its push",
            });
            let waits: Vec<_> = waits.collect();
            let waits = if waits.is_empty() { "its receipt".into() } else { waits.join(" and ") };
            say(&format!(
                "stopping; it will do nothing more. Still to come: {waits} (`belay why` says more)"
            ));
        }
    }
}

async fn answer_question(link: &mut Link, answer: &cli::Answer, json: bool) -> Result<Exit, Fault> {
    let id = &answer.keyed.which.task;
    let key = key(answer.keyed.idempotency_key.as_deref())?;
    let task = link.ask(async |client| client.show(id).await).await?;
    let Some(question) = open_question(&task) else {
        let verbs = task.verbs.iter().map(|verb| verb.name()).collect::<Vec<_>>().join(", ");
        let state = &task.summary.state;
        let text = format!("task {id} asks nothing: it is {state}. Possible now: {verbs}");
        return Err(Fault::refused(text));
    };
    let text = match &answer.text {
        Some(text) => text.clone(),
        None if is_interactive() => ask_person(question)?,
        None => return Err(Fault::usage("say the answer: belay answer TASK \"…\"")),
    };
    let body = Answer { question: Some(question.id), text };
    tell(&link.ask(async |client| client.answer(id, &body, Some(&key)).await).await?, json)
}

/// The question that a task waits with.
pub(crate) fn open_question(task: &TaskView) -> Option<&QuestionView> {
    task.questions.iter().rev().find(|question| question.answer.is_none())
}

/// A question with its options, numbered.
pub(crate) fn question_lines(question: &QuestionView) -> String {
    let options = question.options.iter().enumerate();
    let options = options.map(|(at, option)| format!("\n  {}. {}", at + 1, one_line(option, 100)));
    format!("{}{}", clean(question.text.trim()), options.collect::<String>())
}

fn ask_person(question: &QuestionView) -> Result<String, Fault> {
    note(&question_lines(question));
    note("answer:");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Fault::usage(format!("the answer cannot be read: {error}")))?;
    let line = line.trim();
    if line.is_empty() { Err(Fault::usage("no answer was given")) } else { Ok(line.to_owned()) }
}

async fn back_up(link: &mut Link, backup: &cli::Backup, json: bool) -> Result<Exit, Fault> {
    let path =
        std::path::absolute(&backup.path).map_err(|error| Fault::file(&backup.path, &error))?;
    let Some(path) = path.to_str() else {
        return Err(Fault::usage("the path of a backup must be UTF-8"));
    };
    let made = link.client().backup(path).await?;
    if json {
        say_json(&made);
    } else {
        say(&format!("{} ({} bytes)", made.path, made.bytes));
    }
    Ok(Exit::Done)
}
