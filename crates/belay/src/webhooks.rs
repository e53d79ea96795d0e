//! `belay webhook …` and `belay alerts`.

use belay_api::{
    AlertView, EditWebhook, HookShape, LetterView, ListLetters, NewWebhook, WebhookView,
};

use crate::cli::{self, AddWebhook, Letters, Webhook};
use crate::connect::Link;
use crate::fault::{Exit, Fault};
use crate::screen::{Ink, Palette, one_line, say, say_json};
use crate::times::{ago, now};

/// Does what is asked.
pub(crate) async fn webhook(link: &mut Link, asked: &Webhook, json: bool) -> Result<Exit, Fault> {
    match asked {
        Webhook::Add(add) => return make(link, add, json).await,
        Webhook::Ls => {
            let list = link.ask(async |client| client.webhooks().await).await?;
            match (json, list.webhooks.is_empty()) {
                (true, _) => say_json(&list),
                (false, true) => say("no webhooks"),
                (false, false) => say(&table(HEAD, list.webhooks.iter().map(row))),
            }
        }
        Webhook::Show(which) => {
            let hook = link.ask(async |client| client.webhook(&which.webhook).await).await?;
            if json { say_json(&hook) } else { say(&shown(&hook)) }
        }
        Webhook::Edit(asked) => {
            let url = asked.url.as_deref().map(address).transpose()?;
            let (shape, kinds) = (asked.shape.map(shape_of), asked.kinds.clone());
            let edit = EditWebhook { url, shape, kinds, ..EditWebhook::default() };
            return change(link, &asked.which.webhook, &edit, json).await;
        }
        Webhook::Pause(which) => {
            let edit = EditWebhook { paused: Some(true), ..EditWebhook::default() };
            return change(link, &which.webhook, &edit, json).await;
        }
        Webhook::Resume(which) => {
            let edit = EditWebhook { paused: Some(false), ..EditWebhook::default() };
            return change(link, &which.webhook, &edit, json).await;
        }
        Webhook::Rm(which) => {
            link.ask(async |client| client.remove_webhook(&which.webhook).await).await?;
            if !json {
                say(&format!("{} is removed", which.webhook));
            }
        }
        Webhook::Test(which) => {
            let hook = link.ask(async |client| client.test_webhook(&which.webhook).await).await?;
            let line = format!("a test is on its way to {}", hook.target);
            if json { say_json(&hook) } else { say(&line) }
        }
        Webhook::Letters(letters) => return list_letters(link, letters, json).await,
        Webhook::Replay(replay) => {
            let (name, number) = (&replay.which.webhook, replay.number);
            let done = link.ask(async |client| client.replay(name, number).await).await?;
            if json { say_json(&done) } else { say(&format!("{} sent again", done.replayed)) }
        }
    }
    Ok(Exit::Done)
}

/// Where a webhook is: as it was typed, or from standard input.
fn address(typed: &str) -> Result<String, Fault> {
    if typed != "-" {
        return Ok(typed.to_owned());
    }
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Fault::failed(format!("standard input: {error}")))?;
    Ok(line.trim().to_owned())
}

const fn shape_of(shape: cli::HookShape) -> HookShape {
    match shape {
        cli::HookShape::Belay => HookShape::Belay,
        cli::HookShape::Slack => HookShape::Slack,
        cli::HookShape::Ntfy => HookShape::Ntfy,
    }
}

async fn change(
    link: &mut Link,
    which: &str,
    edit: &EditWebhook,
    json: bool,
) -> Result<Exit, Fault> {
    // Asked twice, it is the same change.
    let hook = link.ask(async |client| client.edit_webhook(which, edit).await).await?;
    match json {
        true => say_json(&hook),
        false => say(&shown(&hook)),
    }
    Ok(Exit::Done)
}

async fn make(link: &mut Link, add: &AddWebhook, json: bool) -> Result<Exit, Fault> {
    let new = NewWebhook {
        name: add.name.clone(),
        url: address(&add.url)?,
        shape: shape_of(add.shape),
        kinds: add.kinds.clone(),
        secret: None,
    };
    // Asked once: a repetition would be told that the name is taken, and lose the secret.
    let made = link.client().make_webhook(&new).await.map_err(Fault::from)?;
    if json {
        say_json(&made);
        return Ok(Exit::Done);
    }
    say(&format!("{} is told {}", made.webhook.name, made.webhook.kinds.join(", ")));
    if let Some(secret) = &made.secret {
        say(&format!("its deliveries are signed with {secret}"));
        say("this is told once: keep it where the receiver can check signatures with it");
    }
    Ok(Exit::Done)
}

async fn list_letters(link: &mut Link, letters: &Letters, json: bool) -> Result<Exit, Fault> {
    let state = letters.dead.then(|| "dead".to_owned());
    let asked = ListLetters { state, ..ListLetters::default() };
    let name = &letters.which.webhook;
    let page = link.ask(async |client| client.letters(name, &asked).await).await?;
    match (json, page.letters.is_empty()) {
        (true, _) => say_json(&page),
        (false, true) => say("no letters"),
        (false, false) => {
            let head = ["NUMBER", "STATE", "KIND", "TASK", "TRIES", "MADE", "FAILURE"];
            say(&table(head, page.letters.iter().map(letter_row)));
        }
    }
    Ok(Exit::Done)
}

/// Lists alerts.
pub(crate) async fn alerts(link: &mut Link, json: bool) -> Result<Exit, Fault> {
    let list = link.ask(async |client| client.alerts().await).await?;
    if json {
        say_json(&list);
    } else if list.alerts.is_empty() {
        say("no alerts");
    } else {
        let lines = list.alerts.iter().map(alert_line).collect::<Vec<_>>();
        say(&lines.join("\n"));
    }
    Ok(Exit::Done)
}

fn alert_line(alert: &AlertView) -> String {
    let palette = Palette::stdout();
    let ink = if alert.state == "firing" { Ink::Bad } else { Ink::Faint };
    let since = ago(alert.until.unwrap_or(alert.since), now());
    let state = palette.paint(ink, &format!("{:<8}", alert.state));
    format!("{state} {} ({since}): {}", alert.kind, alert.sentence)
}

const HEAD: [&str; 7] = ["NAME", "TARGET", "SHAPE", "KINDS", "WAITING", "DEAD", "FAILURE"];

fn row(hook: &WebhookView) -> [String; 7] {
    [
        hook.name.clone(),
        hook.target.clone(),
        match hook.paused_at {
            None => shape_name(hook.shape).to_owned(),
            Some(_) => format!("{}, paused", shape_name(hook.shape)),
        },
        one_line(&hook.kinds.join(","), 32),
        hook.waiting.to_string(),
        hook.dead.to_string(),
        one_line(hook.failure.as_deref().unwrap_or("-"), 48),
    ]
}

fn letter_row(letter: &LetterView) -> [String; 7] {
    [
        letter.number.to_string(),
        letter.state.clone(),
        letter.kind.clone(),
        letter.task.map_or("-".to_owned(), |task| task.to_string()),
        letter.tries.to_string(),
        ago(letter.made_at, now()),
        one_line(letter.failure.as_deref().unwrap_or("-"), 60),
    ]
}

const fn shape_name(shape: HookShape) -> &'static str {
    match shape {
        HookShape::Belay => "belay",
        HookShape::Slack => "slack",
        HookShape::Ntfy => "ntfy",
    }
}

fn shown(hook: &WebhookView) -> String {
    let signed = if hook.signed { "signed" } else { "not signed" };
    let paused = hook.paused_at.map(|at| format!("; paused {}", ago(at, now())));
    let behind = hook.paused_at.map(|_| format!(", {} events behind", hook.behind));
    let (paused, behind) = (paused.unwrap_or_default(), behind.unwrap_or_default());
    let lines = [
        format!("{}  {} ({})", hook.name, hook.target, shape_name(hook.shape)),
        format!("told      {}{paused}", hook.kinds.join(", ")),
        format!("from      {}, {signed}, made {}", hook.origin, ago(hook.created_at, now())),
        format!("letters   {} waiting, {} dead{behind}", hook.waiting, hook.dead),
        format!("failure   {}", hook.failure.as_deref().unwrap_or("-")),
    ];
    lines.join("\n")
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_have_to_be() {
        let rows = [["a", "1"], ["long", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["N", "C"], rows.into_iter()), "N     C\na     1\nlong  22");
    }
}
