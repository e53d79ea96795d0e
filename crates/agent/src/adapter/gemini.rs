//! How Gemini CLI is started and speaks: the prompt on standard input, one JSON object per line,
//! `result` at the end.
//!
//! Its errors carry text alone, but its exit code is the HTTP status of the model's API modulo 256,
//! or one of its own codes; so the cause of a failure is known only at the exit. A broken stream
//! and a refusal of the model end with an error result and an exit of 0. It exits before a pipe is
//! drained, so its output goes to a file: of 3 MB through a pipe that was read late, 63 KB came.

use belay_kernel::{Cause, EventKind, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::adapter::chunks::Chunks;
use crate::field::{Num, Part, Str, raw, read};
use crate::judge::Exit;
use crate::launch::{
    Conversation, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin, Stdout, merge,
};
use crate::notes::{Books, Notes, Turn, cause_of_status};
use crate::observation::{Clip, Detail, Drift, Failure, TurnEnd};
use crate::reader::Dialect;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    if launch.permissions == Permissions::Ask {
        return Err(LaunchRefusal::CannotAsk);
    }
    let stdin = Stdin::Whole(launch.prompt.clone().into_bytes());
    let mut plan = LaunchPlan::new(launch, launch.argv("gemini"), stdin);
    plan.stdout = Stdout::File;
    plan.arg(&["--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"]);
    match &launch.conversation {
        Conversation::Fresh(id) | Conversation::Resumed(id) if !id.is_uuid() => {
            return Err(LaunchRefusal::NotUuid(id.clone()));
        }
        Conversation::Fresh(id) => {
            plan.arg(&["--session-id", id.as_str()]);
            plan.conversation = Some(id.clone());
        }
        Conversation::Resumed(id) => plan.arg(&["--resume", id.as_str()]),
    }
    if let Some(model) = &launch.model {
        plan.arg(&["--model", model]);
    }
    let mut settings = json!({
        "privacy": {"usageStatisticsEnabled": false},
        "general": {"disableAutoUpdate": true, "disableUpdateNag": true},
    });
    if launch.environment.contains_key("GEMINI_API_KEY") {
        // Without a choice there is a question, and nobody to ask.
        settings["security"]["auth"]["selectedType"] = json!("gemini-api-key");
    }
    if let Some(turns) = launch.max_turns {
        settings["model"]["maxSessionTurns"] = json!(turns);
    }
    if !launch.mcp.is_empty() {
        settings["mcpServers"] = servers(&launch.mcp);
    }
    merge(&mut settings, &Value::Object(launch.settings.clone()));
    plan.directories.push(launch.state(".gemini"));
    plan.file(launch.state(".gemini/settings.json"), &settings);
    plan.set([
        ("GEMINI_CLI_HOME", launch.state_dir.clone()),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true".into()),
        // Otherwise a parent process swallows signals.
        ("GEMINI_CLI_NO_RELAUNCH", "true".into()),
    ]);
    Ok(plan.finish(launch))
}

fn servers(servers: &[McpServer]) -> Value {
    let timeout_ms = 24 * 3_600 * 1_000;
    let described = servers.iter().map(|server| {
        let mut value = match server {
            McpServer::Http { url, .. } => json!({"httpUrl": url}),
            McpServer::Program { argv, .. } => json!({
                "command": argv.first(),
                "args": argv.get(1..),
                // Gemini CLI hides variables that look like secrets unless they are named.
                "env": {"BELAY_URL": "$BELAY_URL", "BELAY_TOKEN": "$BELAY_TOKEN"},
            }),
        };
        if let McpServer::Http { token_variable: Some(variable), .. } = server {
            value["headers"] = json!({"Authorization": format!("Bearer ${variable}")});
        }
        value["timeout"] = json!(timeout_ms);
        value["trust"] = json!(true);
        (server.name().to_owned(), value)
    });
    described.collect::<Map<_, _>>().into()
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow, default)]
    role: Str<'a>,
    #[serde(borrow, default)]
    content: Str<'a>,
    #[serde(borrow, default)]
    tool_name: Str<'a>,
    #[serde(borrow, default)]
    tool_id: Str<'a>,
    #[serde(borrow, default)]
    parameters: Part<'a>,
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(borrow, default)]
    output: Str<'a>,
    #[serde(borrow, default)]
    message: Str<'a>,
    #[serde(borrow, default)]
    error: Part<'a>,
    #[serde(borrow, default)]
    stats: Part<'a>,
}

#[derive(Deserialize, Default)]
struct ResultError<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    message: Str<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stats {
    total_tokens: Num,
    input_tokens: Num,
    output_tokens: Num,
    cached: Num,
}

impl Stats {
    /// Thoughts are in the total alone.
    fn usage(&self) -> Usage {
        let count = |number: Num| number.count().unwrap_or(0);
        let (input, cached) = (count(self.input_tokens), count(self.cached));
        let beyond_input = count(self.total_tokens).saturating_sub(input);
        Usage {
            input_tokens: input.saturating_sub(cached),
            output_tokens: count(self.output_tokens).max(beyond_input),
            cache_read_tokens: cached,
            cache_write_tokens: 0,
            cost: None,
        }
    }
}

/// Gemini CLI's dialect.
pub(crate) struct Gemini {
    resumed: bool,
    chunks: Chunks,
}

impl Gemini {
    pub(crate) fn new(launch: &Launch) -> Self {
        Self { resumed: launch.conversation.resumed().is_some(), chunks: Chunks::default() }
    }

    fn result(&self, line: &Line<'_>, notes: &mut Notes<'_>) {
        let stats: Stats = read(line.stats).unwrap_or_default();
        notes.used_more(stats.usage());
        if line.status.get() == Some("success") {
            return notes.succeeded();
        }
        let error: ResultError<'_> = read(line.error).unwrap_or_default();
        let said = notes.books.last_error.as_ref().map(|last| last.message.text.clone());
        let message = error.message.get().map(Into::into).or(said).unwrap_or_default();
        let cause = match error.kind.or_empty() {
            "FatalAuthenticationError" => Cause::Auth,
            "FatalInputError" | "FatalConfigError" | "FatalSandboxError" => Cause::Configuration,
            "FatalTurnLimitedError" | "FatalToolExecutionError" => Cause::AgentFailed,
            "FatalCancellationError" => Cause::Cancelled,
            _ => Cause::Crash,
        };
        notes.failed(Failure::new(cause, &message));
    }
}

impl Dialect for Gemini {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        let kind = line.kind.or_empty();
        if kind != "message" {
            self.chunks.flush(notes);
        }
        match kind {
            "init" => {
                notes.conversation(line.session_id.or_empty());
                notes.turn_goes_on();
                notes.event(EventKind::Started, Detail::Model(line.model.or_empty().into()));
            }
            "message" if line.role.get() == Some("assistant") => {
                self.chunks.said(line.content.or_empty(), notes);
            }
            "message" => {}
            "tool_use" => {
                let name = line.tool_name.or_empty();
                let edits = edited_files(name, line.parameters);
                notes.tool_opened(line.tool_id.or_empty(), name, raw(line.parameters), edits);
            }
            "tool_result" => {
                let failed = line.status.get() != Some("success");
                let (id, output) = (line.tool_id.or_empty(), line.output.or_empty());
                notes.tool_closed(EventKind::ToolResult, id, failed, output);
            }
            "error" => notes.error(Failure::new(Cause::Crash, line.message.or_empty())),
            "result" => self.result(&line, notes),
            unknown => notes.unknown(unknown),
        }
    }

    fn finish(&mut self, notes: &mut Notes<'_>) {
        self.chunks.flush(notes);
    }

    fn at_exit(&self, books: &Books, exit: Exit) -> Option<TurnEnd> {
        let Exit::Code(code) = exit else { return None };
        let cause = cause_of_exit(code)?;
        let message = match &books.turn {
            Turn::Ended(TurnEnd::Failed(failure)) => failure.message.clone(),
            Turn::Ended(TurnEnd::Succeeded) => return None,
            Turn::Waiting | Turn::Open => Clip::of(&format!("exited with {code}")),
        };
        // The code for bad input, before anything was said: the session was not there.
        let conversation_lost = self.resumed && code == 42 && books.turn == Turn::Waiting;
        let failure = Failure { cause, message, resets_at: None, conversation_lost };
        Some(TurnEnd::Failed(failure))
    }
}

/// The cause that an exit code stands for: an HTTP status modulo 256, or Gemini CLI's own.
fn cause_of_exit(code: i32) -> Option<Cause> {
    match code {
        41 => Some(Cause::Auth),
        42 | 44 | 52 | 55 => Some(Cause::Configuration),
        53 | 54 => Some(Cause::AgentFailed),
        130 => Some(Cause::Cancelled),
        144..=255 => u16::try_from(code + 256).ok().map(cause_of_status),
        _ => None,
    }
}

fn edited_files(tool: &str, parameters: Part<'_>) -> Vec<Box<str>> {
    #[derive(Deserialize)]
    struct Parameters<'a> {
        #[serde(borrow, default)]
        file_path: Str<'a>,
    }
    if !matches!(tool, "write_file" | "replace" | "edit") {
        return Vec::new();
    }
    let parameters: Option<Parameters<'_>> = read(parameters);
    let path = parameters.and_then(|p| p.file_path.get().map(|path| Clip::of(path).text));
    path.into_iter().collect()
}
