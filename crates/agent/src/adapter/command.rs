//! How any command is started and speaks: the prompt on standard input and in
//! `$BELAY_PROMPT_FILE`, work in the current directory, exit 0 for success.
//!
//! Lines of output are output. A line that is a JSON object whose `type` begins with `agent.` is an
//! event. Some carry more: `agent.tool_use` (`id`, `name`) opens a tool call, `agent.tool_result`
//! and `agent.tool_completed` (`id`) close it, `agent.usage` says what was used so far in all, and
//! `agent.heartbeat` (`status`) says how the command is: `running` until it says otherwise.

use belay_kernel::{Cause, EventKind, HeartbeatStatus, Money, Usage};
use serde::Deserialize;

use crate::field::{Flag, Num, Part, Str, raw};
use crate::judge::Exit;
use crate::launch::{Launch, LaunchPlan, LaunchRefusal, Permissions, Stdin};
use crate::notes::{Books, Notes};
use crate::observation::{Clip, Detail, Failure, TurnEnd};
use crate::reader::Dialect;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    if launch.program.is_empty() {
        return Err(LaunchRefusal::NoProgram);
    }
    if launch.conversation.resumed().is_some() {
        return Err(LaunchRefusal::NoConversations);
    }
    if launch.permissions == Permissions::Ask {
        return Err(LaunchRefusal::CannotAsk);
    }
    if !launch.settings.is_empty() {
        return Err(LaunchRefusal::NoSettings);
    }
    let stdin = Stdin::Whole(launch.prompt.clone().into_bytes());
    Ok(LaunchPlan::new(launch, launch.argv(""), stdin).finish(launch))
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    input: Part<'a>,
    #[serde(borrow, default)]
    text: Str<'a>,
    #[serde(borrow, default)]
    path: Str<'a>,
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(default)]
    failed: Flag,
    #[serde(default)]
    input_tokens: Num,
    #[serde(default)]
    output_tokens: Num,
    #[serde(default)]
    cache_read_tokens: Num,
    #[serde(default)]
    cache_write_tokens: Num,
    #[serde(default)]
    cost_usd: Num,
}

/// A plain command's dialect.
#[derive(Default)]
pub(crate) struct Command;

impl Dialect for Command {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        notes.turn_goes_on();
        if !line.starts_with('{') {
            return;
        }
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return };
        let Some(kind) = line.kind.get().filter(|kind| kind.starts_with("agent.")) else { return };
        match EventKind::from_name(&Clip::of(kind).text) {
            EventKind::ToolUse if line.id.get().is_some() => {
                let (id, name) = (line.id.or_empty(), line.name.or_empty());
                notes.tool_opened(id, name, raw(line.input), Vec::new());
            }
            kind @ (EventKind::ToolResult | EventKind::ToolCompleted)
                if notes.books.tools.contains_key(line.id.or_empty()) =>
            {
                let failed = line.failed.is_set();
                notes.tool_closed(kind, line.id.or_empty(), failed, line.text.or_empty());
            }
            EventKind::FileEdited if line.path.get().is_some() => {
                let path = Clip::of(line.path.or_empty()).text;
                notes.event(EventKind::FileEdited, Detail::File(path));
            }
            EventKind::Other(name) if &*name == "agent.usage" => notes.usage(usage(&line)),
            EventKind::Heartbeat if line.status.get().is_some() => {
                notes.books.status = status(line.status.or_empty()).or(notes.books.status);
                notes.event(EventKind::Heartbeat, Detail::Plain);
            }
            kind => {
                let text = line.text.get().map(|text| Detail::Text(Clip::of(text)));
                notes.event(kind, text.unwrap_or(Detail::Plain));
            }
        }
    }

    fn at_exit(&self, _books: &Books, exit: Exit) -> Option<TurnEnd> {
        match exit {
            Exit::Code(0) => Some(TurnEnd::Succeeded),
            Exit::Code(code) => {
                let text = format!("exited with {code}");
                Some(TurnEnd::Failed(Failure::new(Cause::Crash, &text)))
            }
            Exit::Signal(_) | Exit::Ended | Exit::Unseen => None,
        }
    }
}

/// The status with this name; nothing, if there is none.
fn status(name: &str) -> Option<HeartbeatStatus> {
    match name {
        "idle" => Some(HeartbeatStatus::Idle),
        "running" => Some(HeartbeatStatus::Running),
        "degraded" => Some(HeartbeatStatus::Degraded),
        "failed" => Some(HeartbeatStatus::Failed),
        _ => None,
    }
}

fn usage(line: &Line<'_>) -> Usage {
    let count = |number: Num| number.count().unwrap_or(0);
    Usage {
        input_tokens: count(line.input_tokens),
        output_tokens: count(line.output_tokens),
        cache_read_tokens: count(line.cache_read_tokens),
        cache_write_tokens: count(line.cache_write_tokens),
        cost: line.cost_usd.get().and_then(Money::from_usd),
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::Timestamp;

    use super::*;
    use crate::reader::{LINE_LIMIT, Reader};

    #[test]
    fn a_command_is_as_it_last_said_and_nonsense_changes_nothing() {
        let mut reader = Reader::new(Box::new(Command), LINE_LIMIT);
        assert_eq!(reader.status(), None);
        for (status, expected) in [
            ("idle", HeartbeatStatus::Idle),
            ("asleep", HeartbeatStatus::Idle),
            ("failed", HeartbeatStatus::Failed),
            ("degraded", HeartbeatStatus::Degraded),
            ("running", HeartbeatStatus::Running),
        ] {
            let line = format!("{{\"type\":\"agent.heartbeat\",\"status\":\"{status}\"}}\n");
            reader.push(Timestamp::EPOCH, line.as_bytes(), &mut Vec::new());
            assert_eq!(reader.status(), Some(expected), "{status}");
        }
    }
}
