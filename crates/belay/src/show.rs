//! `belay show` and `belay why`.

use belay_api::{AttemptView, QuestionView, ReceiptView, TaskView};
use belay_kernel::attempt::{Phase, Proof};
use belay_kernel::publish::Publish;
use belay_kernel::{Money, Timestamp};

use crate::cli::Show;
use crate::connect::Link;
use crate::fault::{Exit, Fault};
use crate::screen::{Ink, Palette, clean, one_line, say, say_json};
use crate::times::{ago, now};

/// Shows a task, or the receipt of its stop.
pub(crate) async fn show(link: &mut Link, show: &Show, json: bool) -> Result<Exit, Fault> {
    let id = &show.which.task;
    if show.receipt {
        let receipt = link.ask(async |client| client.receipt(id).await).await?;
        if json {
            say_json(&receipt);
        } else {
            say(&receipt_text(&receipt));
        }
        return Ok(Exit::Done);
    }
    let task = link.ask(async |client| client.show(id).await).await?;
    if json {
        say_json(&task);
    } else {
        say(&text(&task, now(), Palette::stdout()));
    }
    Ok(Exit::Done)
}

/// Explains a task, in sentences.
pub(crate) async fn why(link: &mut Link, id: &str, json: bool) -> Result<Exit, Fault> {
    let why = link.ask(async |client| client.why(id).await).await?;
    if json {
        say_json(&why);
    } else {
        say(&clean(&why.sentences.join("\n")));
    }
    Ok(Exit::Done)
}

/// A task, for people.
pub(crate) fn text(task: &TaskView, now: Timestamp, palette: Palette) -> String {
    let summary = &task.summary;
    let mut lines = vec![format!(
        "{}  {}  {}",
        palette.state(&summary.state),
        summary.id,
        palette.paint(Ink::Strong, &one_line(&summary.title, 70)),
    )];
    lines.push(format!("{} ({})", clean(&task.sentence), ago(summary.since, now)));
    lines.push(String::new());
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            lines.push(format!("{}{value}", palette.paint(Ink::Faint, &format!("{name:<12}"))));
        }
    };
    let model = task.model.as_ref().map_or(String::new(), |model| format!(" ({model})"));
    field("agent", Some(clean(&format!("{}{model}", summary.agent))));
    field("command", Some(clean(&task.command.join(" "))));
    field("repository", task.repository.as_deref().map(clean));
    field("base", task.base.as_deref().map(clean));
    field("branch", task.branch.as_deref().map(clean));
    field("role", Some(summary.role.clone()));
    field("made", Some(ago(summary.created_at, now)));
    field("continues", task.continues.map(|id| id.to_string()));
    field("parent", summary.parent.map(|id| id.to_string()));
    field("used", Some(used(task)));
    for child in &task.after {
        field(
            "after",
            Some(format!("{} {} {}", child.id, child.state, one_line(&child.title, 50))),
        );
    }
    for child in &task.subtasks {
        field(
            "subtask",
            Some(format!("{} {} {}", child.id, child.state, one_line(&child.title, 50))),
        );
    }
    for attempt in &task.attempt_list {
        field("attempt", Some(attempt_text(attempt, now)));
    }
    let progress = task.progress.as_ref();
    field(
        "progress",
        progress.map(|said| format!("{} ({})", one_line(&said.text, 100), ago(said.at, now))),
    );
    for question in &task.questions {
        field("question", Some(question_text(question)));
    }
    let verbs = task.verbs.iter().map(|verb| verb.name()).collect::<Vec<_>>();
    field("possible", Some(verbs.join(", ")));
    if let Some(said) = task.summary_text.as_deref().filter(|said| !said.trim().is_empty()) {
        lines.push(String::new());
        lines.push(clean(said.trim_end()));
    }
    lines.join("\n")
}

/// What a task has used, and may.
pub(crate) fn used(task: &TaskView) -> String {
    let mut parts = Vec::new();
    let summary = &task.summary;
    if summary.cost != Money::ZERO || task.max_cost.is_some() {
        let most = task.max_cost.map_or(String::new(), |most| format!(" of {most}"));
        parts.push(format!("{}{most}", summary.cost));
    }
    if summary.tokens > 0 || task.max_tokens.is_some() {
        let most = task.max_tokens.map_or(String::new(), |most| format!(" of {most}"));
        parts.push(format!("{}{most} tokens", summary.tokens));
    }
    parts.join(", ")
}

fn attempt_text(view: &AttemptView, now: Timestamp) -> String {
    let attempt = &view.attempt;
    let phase = match attempt.phase {
        Phase::Claimed => "is being prepared".to_owned(),
        Phase::Running => "runs".to_owned(),
        Phase::Publishing { .. } => "is being published".to_owned(),
        Phase::Ending(outcome) => format!("ends: {}", word(&outcome)),
        Phase::Ended(outcome, _) => word(&outcome),
    };
    let mut text = format!("{} {phase}, {}", attempt.number, ago(attempt.claimed_at, now));
    if let Some(cause) = view.cause {
        text = format!("{text}, {cause}");
    }
    if let Some(message) = view.message.as_deref().filter(|message| !message.is_empty()) {
        text = format!("{text}: {}", one_line(message, 100));
    }
    if let Some(fired) = view.fired {
        text = format!("{text} [{fired}]");
    }
    if let Publish::Pushed(push) = attempt.publish {
        text = format!("{text}, pushed {}", push.commit);
    }
    if let Some(kept) = &view.kept_ref {
        text = format!("{text}, kept as {kept}");
    }
    text
}

/// A value as its stable name on the wire.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn question_text(question: &QuestionView) -> String {
    let answer = match &question.answer {
        Some(answer) => format!("answered: {}", one_line(answer, 80)),
        None => "not answered yet".to_owned(),
    };
    let options = question.options.iter().enumerate();
    let options =
        options.map(|(at, option)| format!("\n              {}. {}", at + 1, clean(option)));
    format!("{}{} ({answer})", clean(&question.text), options.collect::<String>())
}

/// A receipt, for people.
pub(crate) fn receipt_text(view: &ReceiptView) -> String {
    let receipt = &view.receipt;
    let proof = match view.proof_kind {
        None => "there was nothing to prove".to_owned(),
        Some(Proof::Observed) if receipt.processes == 1 => "1 process, seen to be gone".to_owned(),
        Some(Proof::Observed) => format!("{} processes, seen to be gone", receipt.processes),
        Some(Proof::LeaseExpired) => "its lease is over, so it has killed itself".to_owned(),
        Some(Proof::NotOurs) => "a person's own agent: fenced, not killed".to_owned(),
    };
    let took = receipt.proven_at.since(receipt.stopped_at);
    let mut lines = vec![format!("stopped     {} (proven after {took})", view.task)];
    let attempt = receipt.attempt.map_or("none".to_owned(), |number| number.to_string());
    lines.push(format!("attempt     {attempt}"));
    lines.push(format!("proof       {proof}"));
    let pushed = receipt.pushed.map_or("not pushed".to_owned(), |sha| format!("pushed {sha}"));
    lines.push(format!("published   {pushed}"));
    if let Some(effect) = &receipt.last_effect {
        lines.push(format!("last effect {}", clean(effect)));
    }
    if let Some(seal) = &receipt.transcript {
        let whole = match seal.is_complete() {
            true => "complete".to_owned(),
            false => format!("{} ranges missing", seal.missing.len()),
        };
        lines.push(format!("transcript  {} bytes, {whole}, {}", seal.length, seal.hash));
    }
    if let Some(kept) = &view.kept_ref {
        lines.push(format!("kept        {kept}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_kernel::receipt::{Receipt, TranscriptSeal};
    use belay_kernel::{AttemptNumber, TaskId};

    #[test]
    fn a_receipt_says_what_is_certain() {
        let receipt = Receipt {
            attempt: Some(AttemptNumber(2)),
            stopped_at: Timestamp::from_millis(1_000),
            proven_at: Timestamp::from_millis(1_120),
            last_effect: None,
            pushed: None,
            processes: 3,
            proof: Some(Proof::Observed),
            transcript: Some(TranscriptSeal { length: 9, hash: "ab".into(), missing: vec![] }),
        };
        let view = ReceiptView {
            task: TaskId::from_bits(7),
            receipt,
            publish: Publish::None,
            proof_kind: Some(Proof::Observed),
            kept_ref: Some("refs/belay/kept/x/2".into()),
            kept_commit: None,
        };
        insta::assert_snapshot!(receipt_text(&view));
    }
}
