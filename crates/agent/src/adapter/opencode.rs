//! How OpenCode is started and speaks: the prompt on standard input, one JSON object per line.
//!
//! There is no result event. A step that finishes with the reason `stop` is the agent's word that
//! it is done; any other reason is not, even with an exit of 0 (a broken stream finishes a step for
//! an `unknown` reason and the loop goes on). It exits before a pipe is drained, so its output goes
//! to a file. Its MCP servers are connected in the background: the first step may be without them.

use belay_kernel::{Cause, EventKind, Money, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::field::{Num, Part, Str, raw, read};
use crate::judge::Exit;
use crate::launch::{
    Conversation, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin, Stdout, merge,
};
use crate::notes::{Books, Notes, Turn, cause_of_status};
use crate::observation::{Clip, Detail, Drift, Failure, TurnEnd};
use crate::reader::Dialect;

/// How long a request to an MCP server may take.
const REQUEST_TIMEOUT_MS: u64 = 24 * 3_600_000;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    if launch.permissions == Permissions::Ask {
        return Err(LaunchRefusal::CannotAsk);
    }
    let stdin = Stdin::Whole(launch.prompt.clone().into_bytes());
    let mut plan = LaunchPlan::new(launch, launch.argv("opencode"), stdin);
    plan.stdout = Stdout::File;
    plan.arg(&["run", "--format", "json", "--dir", &launch.work_dir]);
    if let Conversation::Resumed(id) = &launch.conversation {
        plan.arg(&["--session", id.as_str()]);
    }
    if let Some(model) = &launch.model {
        plan.arg(&["--model", model]);
    }
    let mut settings = json!({"permission": "allow", "autoupdate": false, "share": "disabled"});
    if !launch.mcp.is_empty() {
        settings["mcp"] = servers(&launch.mcp);
    }
    merge(&mut settings, &Value::Object(launch.settings.clone()));
    let path = launch.state("opencode.json");
    plan.file(path.clone(), &settings);
    plan.set([
        ("OPENCODE_CONFIG", path),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1".into()),
        ("XDG_DATA_HOME", launch.state(".local/share")),
        ("XDG_CONFIG_HOME", launch.state(".config")),
        ("XDG_STATE_HOME", launch.state(".local/state")),
    ]);
    Ok(plan.finish(launch))
}

fn servers(servers: &[McpServer]) -> Value {
    let described = servers.iter().map(|server| {
        let mut value = match server {
            McpServer::Http { url, .. } => json!({"type": "remote", "url": url, "oauth": false}),
            McpServer::Program { argv, .. } => json!({"type": "local", "command": argv}),
        };
        if let McpServer::Http { token_variable: Some(variable), .. } = server {
            value["headers"] = json!({"Authorization": format!("Bearer {{env:{variable}}}")});
        }
        value["enabled"] = json!(true);
        // For connecting too, and five seconds unless told: a busy machine takes longer, and a
        // person far longer.
        value["timeout"] = json!(REQUEST_TIMEOUT_MS);
        (server.name().to_owned(), value)
    });
    described.collect::<Map<_, _>>().into()
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(rename = "sessionID", borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    part: Part<'a>,
    #[serde(borrow, default)]
    error: Part<'a>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    text: Str<'a>,
    #[serde(borrow, default)]
    tool: Str<'a>,
    #[serde(rename = "callID", borrow, default)]
    call_id: Str<'a>,
    #[serde(borrow, default)]
    state: Part<'a>,
    #[serde(borrow, default)]
    reason: Str<'a>,
    #[serde(borrow, default)]
    tokens: Part<'a>,
    #[serde(default)]
    cost: Num,
}

#[derive(Deserialize)]
struct ToolState<'a> {
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(borrow, default)]
    input: Part<'a>,
    #[serde(borrow, default)]
    output: Str<'a>,
    #[serde(borrow, default)]
    error: Str<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Tokens {
    input: Num,
    output: Num,
    reasoning: Num,
    cache: Cache,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cache {
    read: Num,
    write: Num,
}

#[derive(Deserialize, Default)]
struct ErrorEvent<'a> {
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    data: Part<'a>,
}

#[derive(Deserialize, Default)]
struct ErrorData<'a> {
    #[serde(borrow, default)]
    message: Str<'a>,
    #[serde(rename = "statusCode", default)]
    status: Num,
}

/// OpenCode's dialect.
#[derive(Default)]
pub(crate) struct OpenCode {
    began: bool,
    /// Why the last step finished.
    reason: Box<str>,
}

impl OpenCode {
    fn step_finished(&mut self, piece: &Piece<'_>, notes: &mut Notes<'_>) {
        let tokens: Tokens = read(piece.tokens).unwrap_or_default();
        let count = |number: Num| number.count().unwrap_or(0);
        notes.used_more(Usage {
            input_tokens: count(tokens.input),
            output_tokens: count(tokens.output).saturating_add(count(tokens.reasoning)),
            cache_read_tokens: count(tokens.cache.read),
            cache_write_tokens: count(tokens.cache.write),
            cost: piece.cost.get().and_then(Money::from_usd),
        });
        self.reason = Clip::of(piece.reason.or_empty()).text;
        if &*self.reason == "stop" {
            notes.succeeded();
        }
    }

    fn tool(piece: &Piece<'_>, notes: &mut Notes<'_>) {
        let Some(state) = read::<ToolState<'_>>(piece.state) else { return };
        let (id, name) = (piece.call_id.or_empty(), piece.tool.or_empty());
        if !notes.books.tools.contains_key(id) {
            let edits = edited_files(name, state.input);
            notes.tool_opened(id, name, raw(state.input), edits);
        }
        let kind = match name {
            "task" => EventKind::SubagentCompleted,
            "skill" => EventKind::SkillCompleted,
            _ => EventKind::ToolCompleted,
        };
        match state.status.or_empty() {
            "completed" => notes.tool_closed(kind, id, false, state.output.or_empty()),
            "error" => notes.tool_closed(kind, id, true, state.error.or_empty()),
            _ => {}
        }
    }

    fn error(error: Part<'_>, notes: &mut Notes<'_>) {
        let error: ErrorEvent<'_> = read(error).unwrap_or_default();
        let data: ErrorData<'_> = read(error.data).unwrap_or_default();
        let cause = match (error.name.or_empty(), data.status.status()) {
            ("ProviderAuthError", _) => Cause::Auth,
            ("ContextOverflowError", _) => Cause::ContextOverflow,
            ("ContentFilterError", _) => Cause::Refusal,
            ("MessageAbortedError", _) => Cause::Cancelled,
            ("MessageOutputLengthError", _) => Cause::AgentFailed,
            (_, Some(status)) => cause_of_status(status),
            ("APIError", None) => Cause::Network,
            (_, None) => Cause::Crash,
        };
        notes.failed(Failure::new(cause, data.message.or_empty()));
    }
}

impl Dialect for OpenCode {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        if let Some(id) = line.session_id.get() {
            notes.conversation(id);
        }
        if line.kind.get() == Some("error") {
            return Self::error(line.error, notes);
        }
        let Some(piece) = read::<Piece<'_>>(line.part) else {
            return notes.unknown(line.kind.or_empty());
        };
        match line.kind.or_empty() {
            "step_start" => {
                notes.turn_goes_on();
                if !std::mem::replace(&mut self.began, true) {
                    notes.event(EventKind::Started, Detail::Plain);
                }
            }
            "text" => notes.said(piece.text.or_empty()),
            "reasoning" => notes.thought(piece.text.or_empty()),
            "tool_use" => Self::tool(&piece, notes),
            "step_finish" => self.step_finished(&piece, notes),
            unknown => notes.unknown(unknown),
        }
    }

    /// An exit of 0 after a step that did not finish with `stop` is no success.
    fn at_exit(&self, books: &Books, _exit: Exit) -> Option<TurnEnd> {
        if matches!(books.turn, Turn::Ended(_)) {
            return None;
        }
        let cause = match &*self.reason {
            "content-filter" => Cause::Refusal,
            "length" => Cause::AgentFailed,
            _ => return None,
        };
        Some(TurnEnd::Failed(Failure::new(cause, &self.reason)))
    }
}

fn edited_files(tool: &str, input: Part<'_>) -> Vec<Box<str>> {
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(rename = "filePath", borrow, default)]
        file_path: Str<'a>,
    }
    if !matches!(tool, "write" | "edit" | "multiedit") {
        return Vec::new();
    }
    let input: Option<Input<'_>> = read(input);
    let path = input.and_then(|input| input.file_path.get().map(|path| Clip::of(path).text));
    path.into_iter().collect()
}
