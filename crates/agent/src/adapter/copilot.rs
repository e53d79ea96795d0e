//! How GitHub Copilot's CLI is started and speaks: the prompt as an argument, one JSON object per
//! line, `result` with an exit code at the end.
//!
//! It masks the value of its API key wherever it occurs in its output, so a key that is a common
//! word breaks its own event names. With a model of one's own it reports no tokens.

use belay_kernel::{Cause, EventKind, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::field::{Flag, Num, Part, Str, raw, read};
use crate::launch::{
    Conversation, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin,
};
use crate::notes::{Notes, cause_of_status};
use crate::observation::{Clip, Detail, Drift, Failure};
use crate::reader::Dialect;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    if launch.permissions == Permissions::Ask {
        return Err(LaunchRefusal::CannotAsk);
    }
    if !launch.settings.is_empty() {
        return Err(LaunchRefusal::NoSettings);
    }
    let stdin = Stdin::Whole(Vec::new());
    let mut plan = LaunchPlan::new(launch, launch.argv("copilot"), stdin);
    plan.arg(&["--prompt", &launch.prompt_argument(), "--output-format", "json"]);
    plan.arg(&["--allow-all", "--no-ask-user", "--no-auto-update", "--no-color"]);
    match &launch.conversation {
        Conversation::Fresh(id) | Conversation::Resumed(id) if !id.is_uuid() => {
            return Err(LaunchRefusal::NotUuid(id.clone()));
        }
        Conversation::Fresh(id) => {
            plan.arg(&["--session-id", id.as_str()]);
            plan.conversation = Some(id.clone());
        }
        Conversation::Resumed(id) => plan.arg(&[&format!("--resume={id}")]),
    }
    if let Some(model) = &launch.model {
        plan.arg(&["--model", model]);
    }
    if !launch.mcp.is_empty() {
        let path = launch.state("copilot-mcp.json");
        plan.arg(&["--additional-mcp-config", &format!("@{path}")]);
        plan.file(path, &json!({"mcpServers": servers(&launch.mcp)}));
    }
    plan.set([("COPILOT_AUTO_UPDATE", "false".into())]);
    Ok(plan.finish(launch))
}

fn servers(servers: &[McpServer]) -> Value {
    let described = servers.iter().map(|server| {
        let mut value = match server {
            McpServer::Http { url, .. } => json!({"type": "http", "url": url}),
            McpServer::Program { argv, .. } => json!({
                "type": "local",
                "command": argv.first(),
                "args": argv.get(1..),
                "env": {"BELAY_URL": "${BELAY_URL}", "BELAY_TOKEN": "${BELAY_TOKEN}"},
            }),
        };
        if let McpServer::Http { token_variable: Some(variable), .. } = server {
            value["headers"] = json!({"Authorization": format!("Bearer ${{{variable}}}")});
        }
        value["tools"] = json!(["*"]);
        (server.name().to_owned(), value)
    });
    described.collect::<Map<_, _>>().into()
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    data: Part<'a>,
    #[serde(rename = "sessionId", borrow, default)]
    session_id: Str<'a>,
    #[serde(rename = "exitCode", default)]
    exit_code: Num,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    content: Str<'a>,
    #[serde(borrow, default)]
    tool_call_id: Str<'a>,
    #[serde(borrow, default)]
    tool_name: Str<'a>,
    #[serde(borrow, default)]
    arguments: Part<'a>,
    #[serde(default)]
    success: Flag,
    #[serde(borrow, default)]
    result: Part<'a>,
    #[serde(borrow, default)]
    file_edits: Part<'a>,
    #[serde(borrow, default)]
    error_type: Str<'a>,
    #[serde(borrow, default)]
    failure_kind: Str<'a>,
    #[serde(default)]
    status_code: Num,
    #[serde(borrow, default)]
    message: Str<'a>,
    #[serde(borrow, default)]
    error_message: Str<'a>,
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(default)]
    input_tokens: Num,
    #[serde(default)]
    output_tokens: Num,
    #[serde(default)]
    cache_read_tokens: Num,
    #[serde(default)]
    cache_write_tokens: Num,
}

/// Copilot's dialect.
#[derive(Default)]
pub(crate) struct Copilot {
    began: bool,
    /// What ended the session, if something did.
    error: Option<Failure>,
}

impl Copilot {
    fn event(&mut self, kind: &str, data: &Data<'_>, notes: &mut Notes<'_>) {
        match kind {
            "session.start" | "session.resume" => notes.conversation(data.session_id.or_empty()),
            "assistant.turn_start" => {
                notes.turn_goes_on();
                if !std::mem::replace(&mut self.began, true) {
                    let model = data.model.or_empty();
                    notes.event(EventKind::Started, Detail::Model(model.into()));
                }
            }
            "assistant.message" => notes.said(data.content.or_empty()),
            "assistant.reasoning" => notes.thought(data.content.or_empty()),
            "assistant.usage" => notes.used_more(tokens(data)),
            "tool.execution_start" => {
                let (id, name) = (data.tool_call_id.or_empty(), data.tool_name.or_empty());
                notes.tool_opened(id, name, raw(data.arguments), Vec::new());
            }
            "tool.execution_complete" => completed(data, notes),
            "subagent.completed" => notes.event(EventKind::SubagentCompleted, Detail::Plain),
            "skill.invoked" => notes.event(EventKind::SkillCompleted, Detail::Plain),
            "model.call_failure" => notes.error(call_failure(data)),
            "session.error" => {
                let failure = session_error(data, notes);
                self.error = Some(failure.clone());
                notes.error(failure);
            }
            "abort" => self.error = Some(Failure::new(Cause::Cancelled, "aborted")),
            kind if SILENT.contains(&kind) => {}
            unknown => notes.unknown(unknown),
        }
    }
}

impl Dialect for Copilot {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        if line.kind.get() != Some("result") {
            let data: Data<'_> = read(line.data).unwrap_or_default();
            return self.event(line.kind.or_empty(), &data, notes);
        }
        notes.conversation(line.session_id.or_empty());
        match (line.exit_code.get(), self.error.clone()) {
            (Some(0.0), None) => notes.succeeded(),
            (_, Some(failure)) => notes.failed(failure),
            (_, None) => {
                let last = notes.books.last_error.clone();
                notes.failed(last.unwrap_or_else(|| Failure::new(Cause::Crash, "failed")));
            }
        }
    }
}

fn tokens(data: &Data<'_>) -> Usage {
    let count = |number: Num| number.count().unwrap_or(0);
    let (read, write) = (count(data.cache_read_tokens), count(data.cache_write_tokens));
    Usage {
        input_tokens: count(data.input_tokens).saturating_sub(read).saturating_sub(write),
        output_tokens: count(data.output_tokens),
        cache_read_tokens: read,
        cache_write_tokens: write,
        cost: None,
    }
}

fn completed(data: &Data<'_>, notes: &mut Notes<'_>) {
    #[derive(Deserialize)]
    struct Output<'a> {
        #[serde(borrow, default)]
        content: Str<'a>,
    }
    #[derive(Deserialize)]
    struct Edit<'a> {
        #[serde(borrow, default)]
        path: Str<'a>,
    }
    let output: Option<Output<'_>> = read(data.result);
    let output = output.as_ref().map(|output| output.content.or_empty()).unwrap_or_default();
    let failed = data.success.get() == Some(false);
    let kind = EventKind::ToolCompleted;
    notes.tool_closed(kind, data.tool_call_id.or_empty(), failed, output);
    let edits: Vec<Edit<'_>> = read(data.file_edits).unwrap_or_default();
    for path in edits.iter().filter_map(|edit| edit.path.get()).take(100) {
        notes.event(EventKind::FileEdited, Detail::File(Clip::of(path).text));
    }
}

fn call_failure(data: &Data<'_>) -> Failure {
    let cause = match (data.status_code.status(), data.failure_kind.or_empty()) {
        (Some(status), _) => cause_of_status(status),
        (None, "transport") => Cause::Network,
        (None, _) => Cause::Crash,
    };
    Failure::new(cause, data.error_message.or_empty())
}

fn session_error(data: &Data<'_>, notes: &Notes<'_>) -> Failure {
    let last = notes.books.last_error.as_ref().map(|last| last.cause);
    let cause = match (data.error_type.or_empty(), data.status_code.status()) {
        ("authentication" | "authorization", _) => Cause::Auth,
        ("quota", _) => Cause::UsageLimit,
        ("rate_limit", _) => Cause::RateLimit,
        ("context_limit", _) => Cause::ContextOverflow,
        (_, Some(status)) => cause_of_status(status),
        (_, None) => last.unwrap_or(Cause::Crash),
    };
    Failure::new(cause, data.message.or_empty())
}

/// Events that are known to say nothing that counts. What is not here, and not read, is drift.
#[rustfmt::skip]
const SILENT: &[&str] = &[
    "assistant.idle", "assistant.intent", "assistant.message_delta", "assistant.message_start",
    "assistant.reasoning_delta", "assistant.server_tool_progress", "assistant.streaming_delta",
    "assistant.tool_call_delta", "assistant.turn_end", "assistant.turn_retry",
    "capabilities.changed", "commands.changed", "hook.end", "hook.progress", "hook.start",
    "model.call_final_result", "model.call_finished", "model.call_start",
    "pending_messages.modified", "permission.completed", "permission.requested",
    "session.auto_mode_resolved", "session.autopilot_stopped", "session.background_tasks_changed",
    "session.compaction_complete", "session.compaction_start", "session.context_changed",
    "session.context_cleared", "session.custom_agents_updated", "session.extensions_loaded",
    "session.idle", "session.info", "session.log", "session.managed_settings_resolved",
    "session.mcp_server_removed", "session.mcp_server_status_changed",
    "session.mcp_server_tools_loaded", "session.mcp_servers_loaded", "session.mode_changed",
    "session.model_change", "session.permissions_changed", "session.plan_changed",
    "session.quota_observation", "session.session_limits_changed", "session.shutdown",
    "session.skills_loaded", "session.snapshot_rewind", "session.task_complete",
    "session.title_changed", "session.todos_changed", "session.tools_updated",
    "session.truncation", "session.usage_checkpoint", "session.usage_info", "session.warning",
    "session.workspace_file_changed", "skill.context_delivered", "subagent.deselected",
    "subagent.failed", "subagent.selected", "subagent.started", "system.message",
    "system.notification", "tool.execution_partial_result", "tool.execution_progress",
    "tool.shell_output", "user.message",
];
