//! `belay logs` and `belay diff`.

use std::time::Duration;

use belay_api::{ClientError, TaskView};
use belay_kernel::status::Group;

use crate::cli::{Attempt, Logs};
use crate::connect::Link;
use crate::fault::{Exit, Fault};
use crate::render::{self, Amount};
use crate::screen::{Ink, Palette, note, put, say};

/// How long one request waits for more.
const WAIT: Duration = Duration::from_secs(20);

/// Prints what an agent said and did.
pub(crate) async fn logs(link: &mut Link, logs: &Logs, json: bool) -> Result<Exit, Fault> {
    let id = &logs.attempt.which.task;
    let task = link.ask(async |client| client.show(id).await).await?;
    if json || (!logs.raw && task.command.is_empty()) {
        events(link, logs, &task, json).await?;
    } else {
        transcript(link, logs, &task).await?;
    }
    Ok(Exit::Done)
}

/// Whether nothing more will come unless a person does something.
fn is_over(task: &TaskView) -> bool {
    task.summary.group != Group::Active
}

/// The very bytes: of the attempt that is named, else of the last one and those that follow it.
async fn transcript(link: &mut Link, logs: &Logs, task: &TaskView) -> Result<(), Fault> {
    let id = task.summary.id.to_string();
    let named = logs.attempt.attempt;
    let mut attempt = named.unwrap_or(task.summary.attempts.0);
    let mut from = 0;
    let wait = if logs.follow { WAIT } else { Duration::ZERO };
    loop {
        if attempt == 0 {
            let task = link.ask(async |client| client.show(&id).await).await?;
            attempt = task.summary.attempts.0;
            if attempt == 0 && (!logs.follow || is_over(&task)) {
                note("belay: no attempt was made yet");
                return Ok(());
            }
            if attempt == 0 {
                wait_for_event(link, &task).await?;
            }
            continue;
        }
        let ask = async |client: &belay_api::Client| {
            client.transcript(&id, Some(attempt), from, wait).await
        };
        let piece = link.ask(ask).await?;
        if piece.from > from {
            note(&format!("belay: bytes {from} to {} are missing", piece.from));
        }
        let empty = piece.bytes.is_empty();
        put(&piece.bytes);
        from = piece.from + piece.bytes.len() as u64;
        if !empty || (!piece.ended && logs.follow) {
            continue;
        }
        let task = link.ask(async |client| client.show(&id).await).await?;
        let newest = task.summary.attempts.0;
        if named.is_none() && newest > attempt {
            (attempt, from) = (newest, 0);
        } else if !logs.follow || named.is_some() || is_over(&task) {
            return Ok(());
        } else {
            wait_for_event(link, &task).await?;
        }
    }
}

/// Waits until something happens to a task, or for some seconds.
async fn wait_for_event(link: &mut Link, task: &TaskView) -> Result<(), Fault> {
    let id = Some(task.summary.id);
    let mut cursor = None;
    // The first answer tells where the end is; what comes after it is news.
    for _ in 0..64 {
        let after: Option<String> = cursor.clone();
        let ask = async |client: &belay_api::Client| {
            client.events(id, after.as_deref(), Duration::from_secs(2)).await
        };
        let events = link.ask(ask).await?;
        if events.events.is_empty() {
            return Ok(());
        }
        cursor = Some(events.cursor);
    }
    Ok(())
}

/// What a known agent did, so that it can be read.
async fn events(link: &mut Link, logs: &Logs, task: &TaskView, json: bool) -> Result<(), Fault> {
    let palette = Palette::stdout();
    let id = task.summary.id;
    let named = logs.attempt.attempt;
    let mut cursor: Option<String> = None;
    let mut shown = None;
    let mut over = is_over(task) || !logs.follow;
    loop {
        let wait = if over { Duration::ZERO } else { WAIT };
        let ask = async |client: &belay_api::Client| -> Result<_, ClientError> {
            client.events(Some(id), cursor.as_deref(), wait).await
        };
        let batch = link.ask(ask).await?;
        for event in &batch.events {
            let number = event.attempt.map(|number| number.0);
            if named.is_some_and(|named| number != Some(named)) {
                continue;
            }
            if json {
                // One event a line, so that a program can read them as they come.
                say(&serde_json::to_string(event).unwrap_or_default());
                continue;
            }
            let Some(line) = render::event(event, palette, Amount::Full) else { continue };
            if number.is_some() && number != shown {
                shown = number;
                let head = format!("attempt {}", number.unwrap_or(0));
                say(&palette.paint(Ink::Strong, &head));
            }
            say(&line);
        }
        let empty = batch.events.is_empty();
        cursor = Some(batch.cursor);
        if empty && over {
            return Ok(());
        }
        if !over {
            let id = id.to_string();
            over = is_over(&link.ask(async |client| client.show(&id).await).await?);
        }
    }
}

/// Prints what an attempt changed.
pub(crate) async fn diff(link: &mut Link, attempt: &Attempt) -> Result<Exit, Fault> {
    let (id, number) = (&attempt.which.task, attempt.attempt);
    put(&link.ask(async |client| client.diff(id, number).await).await?);
    Ok(Exit::Done)
}
