//! What follows from an agent's end: a question, a publish, a success or a failure.

use belay_agent::{Failure, Judgement, QUESTION_FILE_LIMIT, QuestionFile, read_question_file};
use belay_api::Secrets;
use belay_api::port::{Asked, Ending, Left, Port};
use belay_kernel::{Cause, Span};
use belay_sandbox::{EndReason, Provider};

use super::act::unprepared;
use super::attempt::{Attempt, Halt};
use super::follow::Ended;
use super::publish;
use crate::files::{Files, read_plain};
use crate::shared::Backoff;
use crate::workspace::{Kept, Tree, Workspace};

/// The longest summary that is told.
const SUMMARY_LIMIT: usize = 64 << 10;
/// How often saving a tree is tried before an attempt is given up.
const TRIES: u32 = 4;

/// Says how the attempt went, and publishes what is to be published. Its processes are gone.
pub(super) async fn finish<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
    secrets: &Secrets,
    ended: Ended,
) -> Result<(), Halt> {
    let (port, who) = (&attempt.shared.port, attempt.assignment.who);
    if let Some(failure) = failure_of(&ended) {
        let kept = keep(attempt, tree).await;
        // Where nobody can tell, the agent is not blamed for having done nothing.
        let changed = kept.map_or(true, |kept| kept.moved);
        let ending = Ending::Failed {
            cause: failure.cause,
            message: secrets.text(&failure.message.text),
            resets_at: failure.resets_at,
            conversation_lost: failure.conversation_lost,
            left: Left { changed, summary: summary(&attempt.files, secrets) },
        };
        return attempt.say(|| port.end(who, ending.clone())).await;
    }
    if let Some(asked) = question(attempt, secrets) {
        return attempt.say(|| port.ask(who, asked.clone())).await;
    }
    let kept = keep(attempt, tree).await?;
    let left = Left { changed: kept.moved, summary: summary(&attempt.files, secrets) };
    let work = &attempt.assignment.work;
    if work.publish && tree.remote.is_some() && kept.changed {
        return publish::publish(attempt, tree, kept.commit, left).await;
    }
    attempt.say(|| port.end(who, Ending::Succeeded(left.clone()))).await
}

/// Why the run is no success, if it is none.
fn failure_of(ended: &Ended) -> Option<Failure> {
    let Judgement::Failed(failure) = &ended.judgement else { return None };
    let Some(end) = &ended.end else { return Some(failure.clone()) };
    Some(match end.reason {
        EndReason::StartFailed => {
            Failure::new(Cause::Configuration, "the agent's program could not be executed")
        }
        EndReason::LeaseOver => {
            Failure::new(Cause::Lost, "the lease was not renewed in time, so the agent was ended")
        }
        EndReason::Exited | EndReason::Stopped | EndReason::ShimLost if end.out_of_memory => {
            let text = format!("{}; memory ran out", failure.message.text);
            Failure { message: Failure::new(failure.cause, &text).message, ..failure.clone() }
        }
        EndReason::Exited | EndReason::Stopped | EndReason::ShimLost => failure.clone(),
    })
}

/// Saves the tree; a few tries.
async fn keep<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
) -> Result<Kept, Halt> {
    let (who, since) = (attempt.assignment.who, attempt.assignment.kept);
    let mut backoff = Backoff::new(Span::from_secs(1), Span::from_secs(5));
    for _ in 1..TRIES {
        match attempt.shared.workspace.keep(tree, who.task, who.attempt, since).await {
            Ok(kept) => return Ok(kept),
            Err(error) => tracing::warn!(?who, %error, "the tree could not be saved"),
        }
        backoff.wait().await;
    }
    let last = attempt.shared.workspace.keep(tree, who.task, who.attempt, since).await;
    last.map_err(|error| unprepared(&error))
}

/// The question that the agent left in its file, if it is one.
fn question<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    secrets: &Secrets,
) -> Option<Asked> {
    let bytes = read_plain(&attempt.files.question(), QUESTION_FILE_LIMIT)?;
    match read_question_file(&bytes) {
        QuestionFile::Question { text, options } => Some(Asked {
            question: attempt.file_question_id(),
            text: secrets.text(&text),
            options: options.iter().map(|option| secrets.text(option)).collect(),
            held: false,
        }),
        QuestionFile::Summary(_) | QuestionFile::Empty | QuestionFile::TooLong => None,
    }
}

/// What the agent said it did: in its summary, or in a question file that asks nothing.
pub(super) fn summary(files: &Files, secrets: &Secrets) -> Option<String> {
    let text = |mut bytes: Vec<u8>| {
        bytes.truncate(SUMMARY_LIMIT);
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let from_question =
        || match read_question_file(&read_plain(&files.question(), QUESTION_FILE_LIMIT)?) {
            QuestionFile::Summary(text) => Some(text),
            QuestionFile::TooLong => {
                Some("The question file was longer than 64 KiB and was not read.".to_owned())
            }
            QuestionFile::Question { .. } | QuestionFile::Empty => None,
        };
    let said = read_plain(&files.summary(), SUMMARY_LIMIT).and_then(text);
    said.or_else(from_question).map(|said| secrets.text(&said))
}
