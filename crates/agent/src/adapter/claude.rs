//! How Claude Code speaks: one JSON object per line. `system/init` opens a turn, `result` ends it.
//!
//! What it taught us. The order of keys is not fixed (`type` can come last). `subtype: "success"`
//! says nothing: API errors carry it, with `is_error`. `terminal_reason` can make a failure of a
//! success. The usage on `assistant` lines is that of the beginning of the message; the true
//! figures are in the partial events while it runs and in `result` at the end. After a resume the
//! cost in `result` is that of the whole conversation; `model_usage_since_last_result` is ours.

use std::collections::BTreeMap;

use belay_kernel::{Cause, EventKind, Money, Span, Timestamp, Usage};
use serde::Deserialize;

use crate::adapter::claude_control::Control;
use crate::adapter::claude_plan::user_message;
use crate::field::{Flag, Num, Part, Str, raw, read};
use crate::launch::{Conversation, Launch, Permissions};
use crate::notes::{Books, Notes, cause_of_status, plus};
use crate::observation::{Clip, Detail, Drift, Failure, Question, TurnEnd};
use crate::reader::Dialect;

/// How many messages in the making are followed at once.
const MESSAGE_LIMIT: usize = 256;

/// Every field that is read, of whatever type of line.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    subtype: Str<'a>,
    #[serde(borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    parent_tool_use_id: Str<'a>,
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow, default)]
    message: Part<'a>,
    #[serde(borrow, default)]
    event: Part<'a>,
    #[serde(borrow, default)]
    error: Str<'a>,
    #[serde(default)]
    error_status: Num,
    #[serde(default)]
    retry_delay_ms: Num,
    #[serde(borrow, default)]
    rate_limit_info: Part<'a>,
    #[serde(borrow, default)]
    request_id: Str<'a>,
    #[serde(borrow, default)]
    request: Part<'a>,
    // Of a result.
    #[serde(default)]
    is_error: Flag,
    #[serde(borrow, default)]
    terminal_reason: Str<'a>,
    #[serde(borrow, default)]
    stop_reason: Str<'a>,
    #[serde(default)]
    api_error_status: Num,
    #[serde(borrow, default)]
    api_error: Str<'a>,
    #[serde(default)]
    num_turns: Num,
    #[serde(borrow, default)]
    result: Str<'a>,
    #[serde(borrow, default)]
    errors: Part<'a>,
    #[serde(default)]
    total_cost_usd: Num,
    #[serde(borrow, default)]
    usage: Part<'a>,
    #[serde(borrow, default)]
    model_usage_since_last_result: Part<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Part<'a>,
    #[serde(borrow, default)]
    usage: Part<'a>,
}

/// An item of a message's content.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    text: Str<'a>,
    #[serde(borrow, default)]
    thinking: Str<'a>,
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    input: Part<'a>,
    #[serde(borrow, default)]
    tool_use_id: Str<'a>,
    #[serde(default)]
    is_error: Flag,
    #[serde(borrow, default)]
    content: Part<'a>,
}

#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    message: Part<'a>,
    #[serde(borrow, default)]
    usage: Part<'a>,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct Tokens {
    #[serde(default, alias = "inputTokens")]
    input_tokens: Num,
    #[serde(default, alias = "outputTokens")]
    output_tokens: Num,
    #[serde(default, alias = "cacheReadInputTokens")]
    cache_read_input_tokens: Num,
    #[serde(default, alias = "cacheCreationInputTokens")]
    cache_creation_input_tokens: Num,
    #[serde(default, rename = "costUSD")]
    cost_usd: Num,
}

impl Tokens {
    fn usage(self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.count().unwrap_or(0),
            output_tokens: self.output_tokens.count().unwrap_or(0),
            cache_read_tokens: self.cache_read_input_tokens.count().unwrap_or(0),
            cache_write_tokens: self.cache_creation_input_tokens.count().unwrap_or(0),
            cost: self.cost_usd.get().and_then(Money::from_usd),
        }
    }
}

#[derive(Deserialize)]
struct RateLimit<'a> {
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(default, rename = "resetsAt")]
    resets_at: Num,
}

/// Claude Code's dialect.
pub(crate) struct Claude {
    resumed: bool,
    control: Control,
    /// What results have settled.
    settled: Usage,
    /// What partial messages have shown since.
    live: Usage,
    /// Output tokens of messages in the making, by the tool call that they belong to.
    making: BTreeMap<Box<str>, u64>,
    /// When the account's allowance is there again, if it is used up.
    used_up_until: Option<Option<Timestamp>>,
    began: bool,
}

impl Claude {
    pub(crate) fn new(launch: &Launch) -> Self {
        Self {
            resumed: matches!(launch.conversation, Conversation::Resumed(_)),
            control: Control::new(launch.permissions == Permissions::All),
            settled: Usage::default(),
            live: Usage::default(),
            making: BTreeMap::new(),
            used_up_until: None,
            began: false,
        }
    }

    fn system(&mut self, line: &Line<'_>, notes: &mut Notes<'_>) {
        match line.subtype.or_empty() {
            "init" => {
                self.began = true;
                notes.turn_goes_on();
                let model = line.model.or_empty();
                notes.event(EventKind::Started, Detail::Model(model.into()));
            }
            "api_retry" => {
                let cause = self.cause_of(line.error_status.status(), line.error.or_empty());
                let mut failure = Failure::new(cause, line.error.or_empty());
                let delay = line.retry_delay_ms.count().map(Span::from_millis);
                failure.resets_at = delay.map(|delay| notes.now.after(delay));
                notes.error(failure);
            }
            "task_notification" => notes.event(EventKind::SubagentCompleted, Detail::Plain),
            "compact_boundary"
            | "status"
            | "informational"
            | "task_started"
            | "task_progress"
            | "task_updated"
            | "session_state_changed"
            | "hook_started"
            | "hook_progress"
            | "hook_response"
            | "files_persisted"
            | "local_command_output"
            | "notification"
            | "background_tasks_changed"
            | "elicitation_complete"
            | "thinking_tokens"
            | "permission_denied"
            | "api_error"
            | "turn_duration"
            | "memory_recall" => {}
            unknown => notes.unknown(&format!("system/{unknown}")),
        }
    }

    fn assistant(line: &Line<'_>, notes: &mut Notes<'_>) {
        if let Some(error) = line.error.get() {
            let status = line.api_error_status.status();
            let cause = status.map_or_else(|| cause_of_error(error), cause_of_status);
            notes.error(Failure::new(cause, error));
        }
        for item in items(line.message) {
            match item.kind.or_empty() {
                "text" => notes.said(item.text.or_empty()),
                "thinking" => notes.thought(item.thinking.or_empty()),
                "redacted_thinking" => notes.thought(""),
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    let name = item.name.or_empty();
                    let edits = edited_files(name, item.input);
                    notes.tool_opened(item.id.or_empty(), name, raw(item.input), edits);
                }
                "web_search_tool_result"
                | "web_fetch_tool_result"
                | "mcp_tool_result"
                | "code_execution_tool_result" => close_tool(&item, notes),
                "fallback" | "compaction" => {}
                unknown => notes.unknown(&format!("assistant/{unknown}")),
            }
        }
    }

    fn user(&mut self, line: &Line<'_>, notes: &mut Notes<'_>) {
        for item in items(line.message) {
            if item.kind.or_empty() == "tool_result" {
                self.control.tool_over(item.tool_use_id.or_empty(), notes);
                close_tool(&item, notes);
            }
        }
    }

    /// The partial events are the only true figures while a message is in the making.
    fn partial(&mut self, line: &Line<'_>, notes: &mut Notes<'_>) {
        let Some(partial) = read::<Partial<'_>>(line.event) else { return };
        let belongs_to = line.parent_tool_use_id.or_empty();
        match partial.kind.or_empty() {
            "message_start" => {
                let message: Option<Message<'_>> = read(partial.message);
                let tokens: Tokens = message.and_then(|m| read(m.usage)).unwrap_or_default();
                let usage = tokens.usage();
                if self.making.len() < MESSAGE_LIMIT {
                    self.making.insert(belongs_to.into(), usage.output_tokens);
                }
                self.live = plus(self.live, Usage { cost: None, ..usage });
            }
            "message_delta" => {
                let tokens: Tokens = read(partial.usage).unwrap_or_default();
                let made = tokens.output_tokens.count().unwrap_or(0);
                let before = self.making.insert(belongs_to.into(), made).unwrap_or(0);
                let more = made.saturating_sub(before);
                self.live = plus(self.live, Usage { output_tokens: more, ..Usage::default() });
            }
            _ => return,
        }
        notes.usage_at_least(plus(self.settled, self.live));
    }

    fn result(&mut self, line: &Line<'_>, notes: &mut Notes<'_>) {
        self.settle(line, notes);
        let end = self.end_of_turn(line, notes);
        notes.turn_ended(end);
    }

    fn settle(&mut self, line: &Line<'_>, notes: &mut Notes<'_>) {
        let by_model: Option<BTreeMap<String, Tokens>> = read(line.model_usage_since_last_result);
        let fresh = match by_model {
            Some(models) => {
                models.values().fold(Usage::default(), |sum, tokens| plus(sum, tokens.usage()))
            }
            None => {
                let tokens: Tokens = read(line.usage).unwrap_or_default();
                let cost = line.total_cost_usd.get().and_then(Money::from_usd);
                let cost = cost.map(|cost| cost.minus(self.settled.cost.unwrap_or(Money::ZERO)));
                Usage { cost, ..tokens.usage() }
            }
        };
        self.settled = plus(self.settled, fresh);
        self.live = Usage::default();
        self.making.clear();
        notes.usage_at_least(self.settled);
    }

    fn end_of_turn(&self, line: &Line<'_>, notes: &mut Notes<'_>) -> TurnEnd {
        let errors: Vec<String> = read(line.errors).unwrap_or_default();
        let joined = errors.join("; ");
        let message = line.result.get().unwrap_or(&joined);
        let status = line.api_error_status.status();
        let failed = |cause| TurnEnd::Failed(Failure::new(cause, message));
        match (line.subtype.or_empty(), line.terminal_reason.or_empty()) {
            (_, "prompt_too_long" | "blocking_limit") => failed(Cause::ContextOverflow),
            ("error_max_budget_usd", _) => failed(Cause::Budget),
            (_, "aborted_streaming" | "aborted_tools") => failed(Cause::Cancelled),
            ("error_max_turns", _) | (_, "max_turns") => failed(Cause::AgentFailed),
            _ if line.stop_reason.or_empty() == "refusal" => failed(Cause::Refusal),
            ("error_during_execution", "")
                if self.resumed && !self.began && line.num_turns.count() == Some(0) =>
            {
                let failure = Failure::new(Cause::AgentFailed, message);
                TurnEnd::Failed(Failure { conversation_lost: true, ..failure })
            }
            ("success", reason) if !line.is_error.is_set() => {
                let known = ["", "completed", "hook_stopped", "stop_hook_prevented"];
                if !known.contains(&reason) {
                    notes.drift(Drift::UnknownType(format!("terminal_reason/{reason}").into()));
                }
                TurnEnd::Succeeded
            }
            _ => {
                let text = line.api_error.get().unwrap_or_default();
                let known = notes.books.last_error.as_ref().map(|failure| failure.cause);
                let cause = match (status, text) {
                    (None, "") => known.unwrap_or(Cause::AgentFailed),
                    (status, text) => self.cause_of(status, text),
                };
                let resets_at = self.used_up_until.flatten().filter(|_| is_limit(cause));
                TurnEnd::Failed(Failure { resets_at, ..Failure::new(cause, message) })
            }
        }
    }

    fn cause_of(&self, status: Option<u16>, error: &str) -> Cause {
        let cause = status.map_or_else(|| cause_of_error(error), cause_of_status);
        let used_up = self.used_up_until.is_some() && cause == Cause::RateLimit;
        if used_up { Cause::UsageLimit } else { cause }
    }

    fn rate_limit(&mut self, line: &Line<'_>) {
        let Some(limit) = read::<RateLimit<'_>>(line.rate_limit_info) else { return };
        let resets_at = limit.resets_at.count().and_then(|seconds| i64::try_from(seconds).ok());
        let resets_at = resets_at.map(|s| Timestamp::from_millis(s.saturating_mul(1_000)));
        self.used_up_until = (limit.status.or_empty() == "rejected").then_some(resets_at);
    }
}

impl Dialect for Claude {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        if let Some(id) = line.session_id.get() {
            notes.conversation(id);
        }
        match line.kind.or_empty() {
            "stream_event" => self.partial(&line, notes),
            "assistant" => Self::assistant(&line, notes),
            "user" => self.user(&line, notes),
            "system" => self.system(&line, notes),
            "result" => self.result(&line, notes),
            "rate_limit_event" => self.rate_limit(&line),
            "control_request" => {
                self.control.request(line.request_id.or_empty(), line.request, notes);
            }
            "control_cancel_request" => self.control.cancel(line.request_id.or_empty(), notes),
            "control_response"
            | "keep_alive"
            | "tool_progress"
            | "tool_use_summary"
            | "auth_status"
            | "prompt_suggestion"
            | "streamlined_text"
            | "streamlined_tool_use_summary"
            | "transcript_mirror" => {}
            unknown => notes.unknown(unknown),
        }
    }

    fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        self.control.answer(question, answer)
    }

    fn next_turn(&mut self, prompt: &str) -> Option<Vec<u8>> {
        Some(user_message(prompt))
    }

    fn interrupt(&mut self, _books: &Books) -> Option<Vec<u8>> {
        Some(self.control.interrupt())
    }
}

fn items<'a>(message: Part<'a>) -> Vec<Item<'a>> {
    let message: Option<Message<'a>> = read(message);
    message.and_then(|message| read(message.content)).unwrap_or_default()
}

fn close_tool(item: &Item<'_>, notes: &mut Notes<'_>) {
    let id = item.tool_use_id.or_empty();
    let kind = match notes.books.tools.get(id).map(|tool| &*tool.name) {
        Some("Task" | "Agent") => EventKind::SubagentCompleted,
        Some("Skill") => EventKind::SkillCompleted,
        _ => EventKind::ToolResult,
    };
    let text: Option<Str<'_>> = read(item.content);
    let output = text.as_ref().and_then(Str::get).unwrap_or_else(|| raw(item.content));
    notes.tool_closed(kind, id, item.is_error.is_set(), output);
}

fn edited_files(tool: &str, input: Part<'_>) -> Vec<Box<str>> {
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow, default, alias = "notebook_path")]
        file_path: Str<'a>,
    }
    if !matches!(tool, "Write" | "Edit" | "MultiEdit" | "NotebookEdit") {
        return Vec::new();
    }
    let input: Option<Input<'_>> = read(input);
    let path = input.and_then(|input| input.file_path.get().map(|path| Clip::of(path).text));
    path.into_iter().collect()
}

const fn is_limit(cause: Cause) -> bool {
    matches!(cause, Cause::RateLimit | Cause::UsageLimit)
}

/// The cause that one of Claude Code's own words for errors stands for.
fn cause_of_error(error: &str) -> Cause {
    match error {
        "authentication_failed" | "oauth_org_not_allowed" | "billing_error" => Cause::Auth,
        "rate_limit" => Cause::RateLimit,
        "server_error" | "overloaded" | "connection_failed" | "timeout" => Cause::Network,
        "model_not_found" | "invalid_request" => Cause::Configuration,
        "prompt_too_long" => Cause::ContextOverflow,
        _ => Cause::AgentFailed,
    }
}
