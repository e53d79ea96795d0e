//! What an agent says from a shell: `belay ask` and `belay submit-result`. Both speak with the
//! attempt's own token, which every agent has in its environment.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use belay_api::{ATTEMPT_TOKEN, Asking, ClientError, Code, NewQuestion, RESULT_LIMIT, Submission};

use crate::cli;
use crate::connect::{Link, Start};
use crate::data::Data;
use crate::fault::{Exit, Fault};
use crate::screen::{note, say, say_json};

/// How long one request waits for the answer.
const WAIT: Duration = Duration::from_secs(30);
/// How soon a server that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long it is tried to note that the answer was printed.
const NOTE_WITHIN: Duration = Duration::from_secs(5);

/// Asks, waits, and prints the answer.
pub(crate) async fn ask(data: &Data, ask: &cli::Ask, json: bool) -> Result<Exit, Fault> {
    only_for_attempts()?;
    let mut link = Link::open(data, Start::Never).await?;
    let until = ask.wait.map(|wait| Instant::now() + Duration::from_millis(wait.as_millis()));
    let question = NewQuestion { text: ask.question.clone(), options: ask.options.clone() };
    let mut asking = Asking { question: None, answer: None };
    let mut told = false;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(WAIT).min(WAIT);
        let next = match asking.question {
            None => link.client().ask(&question).await,
            Some(question) => link.client().await_answer(question, wait).await,
        };
        match next {
            Ok(next) => asking = next,
            // The server is being restarted, or cannot answer now; the attempt's lease says for how
            // long that can go on.
            Err(error) if is_passing(&error) => {
                tokio::time::sleep(ASK_AGAIN).await;
                link.refresh();
            }
            Err(error) => return Err(error.into()),
        }
        if let Asking { question: Some(question), answer: Some(answer) } = &asking {
            match json {
                true => say_json(&asking),
                false => say(answer),
            }
            let noting = link.ask(async |client| client.handed_over(*question).await);
            let _ = tokio::time::timeout(NOTE_WITHIN, noting).await;
            return Ok(Exit::Done);
        }
        if !told {
            note(
                "belay: waiting for the person's answer; ask again with the same words if this \
                  breaks off",
            );
            told = true;
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Fault {
                exit: Exit::NeedsPerson,
                text: "there is no answer yet; the question stays open".to_owned(),
            });
        }
        if asking.question.is_none() {
            // Another question of the same attempt is open: this one is put when that is answered.
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// Hands in what came of the work.
pub(crate) async fn submit_result(data: &Data, result: &cli::SubmitResult) -> Result<Exit, Fault> {
    only_for_attempts()?;
    let body = Submission { text: text_of(&result.file)? };
    let mut link = Link::open(data, Start::Never).await?;
    link.ask(async |client| client.submit_result(&body).await).await?;
    Ok(Exit::Done)
}

/// Refuses people: they have other ways, and the server would refuse their token.
fn only_for_attempts() -> Result<(), Fault> {
    let token = std::env::var("BELAY_TOKEN").unwrap_or_default();
    if token.starts_with(ATTEMPT_TOKEN) {
        return Ok(());
    }
    let text = "this is for agents in their sandboxes: BELAY_TOKEN holds no attempt's token";
    Err(Fault::usage(text))
}

fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => problem.code == Code::Unavailable,
        ClientError::Unanswered(_) => true,
    }
}

/// What a file, or standard input, says.
fn text_of(path: &Path) -> Result<String, Fault> {
    let wrong = |error: std::io::Error| Fault::file(path, &error);
    let mut bytes = Vec::new();
    let most = RESULT_LIMIT as u64 + 1;
    match path == Path::new("-") {
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => File::open(path).map_err(wrong)?.take(most).read_to_end(&mut bytes),
    }
    .map_err(wrong)?;
    if bytes.len() > RESULT_LIMIT {
        return Err(Fault::usage(format!("a result has at most {RESULT_LIMIT} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Fault::usage("a result is text, in UTF-8"))
}
