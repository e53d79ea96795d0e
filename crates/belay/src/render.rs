//! What an agent did, as lines that people read.

use belay_agent::Detail;
use belay_api::EventView;
use belay_kernel::EventKind;

use crate::screen::{Ink, Palette, clean, one_line};

/// How much of an event is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// One line.
    Brief,
    /// All that is kept beside the transcript.
    Full,
}

/// The text of an agent's event; nothing for what says nothing.
pub(crate) fn event(event: &EventView, palette: Palette, amount: Amount) -> Option<String> {
    // What is counted about an agent is no act of it.
    const COUNTED: [&str; 3] = ["agent.usage", "agent.conversation", "agent.drift"];
    if !event.kind.starts_with("agent.") || COUNTED.contains(&event.kind.as_str()) {
        return None;
    }
    let kind = EventKind::from_name(&event.kind);
    let body = event.body.get("detail").unwrap_or(&event.body);
    let detail = serde_json::from_value(body.clone()).unwrap_or(Detail::Plain);
    let cut = |text: &str| match amount {
        Amount::Brief => one_line(text, 100),
        Amount::Full => clean(text.trim_end()),
    };
    let faint = |text: String| palette.paint(Ink::Faint, &text);
    let line = match (kind, detail) {
        (EventKind::Heartbeat, _) => return None,
        (EventKind::Thinking, Detail::Text(clip)) => {
            faint(format!("thinking: {}", cut(&clip.text)))
        }
        (EventKind::Thinking, _) => return None,
        (EventKind::Error, Detail::Text(clip)) => {
            palette.paint(Ink::Bad, &format!("error: {}", cut(&clip.text)))
        }
        (EventKind::Started, Detail::Model(model)) => faint(format!("started with {model}")),
        (EventKind::Started, _) => faint("started".into()),
        (EventKind::Completed, Detail::Text(clip)) if !clip.text.trim().is_empty() => {
            palette.paint(Ink::Good, &cut(&clip.text))
        }
        // The task's next state says as much, and a command's own last line may be the same word.
        (EventKind::Completed, _) if amount == Amount::Brief => return None,
        (EventKind::Completed, _) => palette.paint(Ink::Good, "done"),
        (_, Detail::Text(clip)) if clip.text.trim().is_empty() => return None,
        (_, Detail::Text(clip)) => cut(&clip.text),
        (_, Detail::Tool { name, input, .. }) => {
            format!("{} {}", palette.paint(Ink::Active, &clean(&name)), one_line(&input.text, 100))
        }
        (_, Detail::Outcome { failed: false, .. }) if amount == Amount::Brief => return None,
        (_, Detail::Outcome { name, failed, output, .. }) => {
            let (word, ink) = if failed { ("failed", Ink::Bad) } else { ("done", Ink::Faint) };
            let head = palette.paint(ink, &format!("  {} {word}", clean(&name)));
            let text = cut(&output.text).replace('\n', "\n    ");
            if text.is_empty() { head } else { format!("{head}\n    {text}") }
        }
        (_, Detail::File(path)) => format!("{} {}", faint("edited".into()), clean(&path)),
        (_, Detail::Model(model)) => faint(format!("model {}", clean(&model))),
        (kind, Detail::Plain) => faint(kind.name().trim_start_matches("agent.").replace('_', " ")),
    };
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_agent::Clip;
    use belay_kernel::Timestamp;

    fn line(kind: &str, detail: Detail, amount: Amount) -> Option<String> {
        let body = serde_json::json!({ "detail": detail });
        let view = EventView {
            cursor: "1".into(),
            task: None,
            attempt: None,
            workflow: None,
            kind: kind.into(),
            announces: None,
            body,
            at: Timestamp::EPOCH,
        };
        let shown = event(&view, Palette::plain(), amount);
        let bare = EventView { body: view.body["detail"].clone(), ..view };
        assert_eq!(event(&bare, Palette::plain(), amount), shown, "with and without a wrapper");
        shown
    }

    #[test]
    fn what_an_agent_does_can_be_read() {
        let tool = Detail::Tool {
            id: "1".into(),
            name: "Bash".into(),
            input: Clip::of("{\"command\":\"make\"}"),
        };
        let outcome = |failed| Detail::Outcome {
            id: "1".into(),
            name: "Bash".into(),
            failed,
            output: Clip::of("one\ntwo"),
        };
        let text = |text: &str| Detail::Text(Clip::of(text));
        for (kind, detail, amount, expected) in [
            ("agent.tool_use", tool, Amount::Brief, Some("Bash {\"command\":\"make\"}")),
            ("agent.tool_result", outcome(false), Amount::Brief, None),
            (
                "agent.tool_result",
                outcome(false),
                Amount::Full,
                Some("  Bash done\n    one\n    two"),
            ),
            ("agent.tool_result", outcome(true), Amount::Brief, Some("  Bash failed\n    one")),
            ("agent.assistant_message", text("a\nb"), Amount::Brief, Some("a")),
            ("agent.assistant_message", text("a\nb"), Amount::Full, Some("a\nb")),
            ("agent.assistant_message", text("\x1b[2J"), Amount::Full, Some("\u{fffd}[2J")),
            (
                "agent.file_edited",
                Detail::File("src/a.rs".into()),
                Amount::Brief,
                Some("edited src/a.rs"),
            ),
            ("agent.heartbeat", Detail::Plain, Amount::Full, None),
            ("agent.completed", Detail::Plain, Amount::Brief, None),
            ("agent.completed", Detail::Plain, Amount::Full, Some("done")),
            ("agent.sub_thing", Detail::Plain, Amount::Brief, Some("sub thing")),
            ("task.running", Detail::Plain, Amount::Full, None),
            ("agent.usage", Detail::Plain, Amount::Full, None),
        ] {
            assert_eq!(line(kind, detail, amount).as_deref(), expected, "{kind}");
        }
    }
}
