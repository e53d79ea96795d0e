//! How Codex speaks: JSON-RPC. We open a thread and start a turn; `turn/completed` ends it, with a
//! status and, if it failed, a typed error.
//!
//! Token counts are totals of the thread, across resumes: a resumed thread repeats its old total
//! before the turn, and that is subtracted. There is no price. Threads that Codex starts beside
//! ours (its own subagents) are counted too, but only our thread's turn is the turn.

use std::collections::BTreeMap;

use belay_kernel::{Cause, EventKind, Timestamp, Usage};
use serde::Deserialize;

use crate::adapter::codex_ask::Ask;
use crate::adapter::codex_plan::{INITIALIZE, THREAD, TURN, open_thread, start_turn};
use crate::adapter::rpc::{self, Kind, Message, RpcError};
use crate::field::{Flag, Num, Part, Str, raw, read};
use crate::launch::Launch;
use crate::notes::{Books, Notes, cause_of_status, minus, plus};
use crate::observation::{Clip, Detail, Drift, Failure, Question, TurnEnd};
use crate::reader::Dialect;

/// How many threads are counted.
const THREAD_LIMIT: usize = 64;

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(rename = "threadId", borrow, default)]
    thread_id: Str<'a>,
    #[serde(borrow, default)]
    turn: Part<'a>,
    #[serde(borrow, default)]
    item: Part<'a>,
    #[serde(borrow, default)]
    error: Part<'a>,
    #[serde(rename = "tokenUsage", borrow, default)]
    token_usage: Part<'a>,
    #[serde(rename = "rateLimits", borrow, default)]
    rate_limits: Part<'a>,
    #[serde(rename = "requestId", borrow, default)]
    request_id: Part<'a>,
    #[serde(borrow, default)]
    message: Str<'a>,
}

#[derive(Deserialize)]
struct Opened<'a> {
    #[serde(borrow, default)]
    thread: Part<'a>,
    #[serde(borrow, default)]
    model: Str<'a>,
}

#[derive(Deserialize)]
struct Turn<'a> {
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(borrow, default)]
    error: Part<'a>,
}

#[derive(Deserialize, Default)]
struct TurnError<'a> {
    #[serde(borrow, default)]
    message: Str<'a>,
    #[serde(rename = "codexErrorInfo", borrow, default)]
    info: Part<'a>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    text: Str<'a>,
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(borrow, default)]
    command: Str<'a>,
    #[serde(rename = "aggregatedOutput", borrow, default)]
    output: Str<'a>,
    #[serde(rename = "exitCode", default)]
    exit_code: Num,
    #[serde(borrow, default)]
    changes: Part<'a>,
    #[serde(borrow, default)]
    tool: Str<'a>,
    #[serde(borrow, default)]
    arguments: Part<'a>,
    #[serde(borrow, default)]
    result: Part<'a>,
    #[serde(borrow, default)]
    summary: Part<'a>,
    #[serde(default)]
    success: Flag,
}

#[derive(Deserialize)]
struct TokenUsage {
    total: Tokens,
    #[serde(default)]
    last: Tokens,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "camelCase", default)]
struct Tokens {
    input_tokens: Num,
    cached_input_tokens: Num,
    cache_write_input_tokens: Num,
    output_tokens: Num,
}

impl Tokens {
    fn usage(self) -> Usage {
        let count = |number: Num| number.count().unwrap_or(0);
        let (read, write) = (count(self.cached_input_tokens), count(self.cache_write_input_tokens));
        Usage {
            input_tokens: count(self.input_tokens).saturating_sub(read).saturating_sub(write),
            output_tokens: count(self.output_tokens),
            cache_read_tokens: read,
            cache_write_tokens: write,
            cost: None,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counted {
    before: Usage,
    total: Usage,
}

/// Codex's dialect.
pub(crate) struct Codex {
    launch: Launch,
    thread: Option<Box<str>>,
    turn: Option<Box<str>>,
    counted: BTreeMap<Box<str>, Counted>,
    ask: Ask,
    resets_at: Option<Timestamp>,
    requests: u64,
}

impl Codex {
    pub(crate) fn new(launch: &Launch) -> Self {
        Self {
            launch: launch.clone(),
            thread: None,
            turn: None,
            counted: BTreeMap::new(),
            ask: Ask::new(launch.permissions),
            resets_at: None,
            requests: TURN,
        }
    }

    fn response(&mut self, id: u64, result: Result<Part<'_>, Part<'_>>, notes: &mut Notes<'_>) {
        match (id, result) {
            (INITIALIZE, Ok(_)) => {
                let mut bytes = rpc::notification("initialized", &serde_json::json!({}));
                bytes.extend(open_thread(&self.launch));
                notes.write(bytes);
            }
            (THREAD, Ok(result)) => self.opened(result, notes),
            (INITIALIZE | THREAD | TURN, Err(error)) => {
                let error: RpcError<'_> = read(error).unwrap_or_default();
                let resumes = self.launch.conversation.resumed().is_some();
                let mut failure = Failure::new(Cause::Configuration, error.message.or_empty());
                failure.conversation_lost = id == THREAD && resumes;
                notes.failed(failure);
            }
            // The turn's own notifications say more; interrupts need no answer.
            (_, Ok(_) | Err(_)) => {}
        }
    }

    fn opened(&mut self, result: Part<'_>, notes: &mut Notes<'_>) {
        #[derive(Deserialize)]
        struct Thread<'a> {
            #[serde(borrow, default)]
            id: Str<'a>,
        }
        let opened: Option<Opened<'_>> = read(result);
        let thread = opened.as_ref().and_then(|opened| read::<Thread<'_>>(opened.thread));
        let Some(id) = thread.as_ref().and_then(|thread| thread.id.get()) else {
            return notes.failed(Failure::new(Cause::Configuration, "opened no thread"));
        };
        self.thread = Some(id.into());
        notes.conversation(id);
        let model = opened.as_ref().and_then(|opened| opened.model.get()).unwrap_or_default();
        notes.event(EventKind::Started, Detail::Model(model.into()));
        notes.write(start_turn(TURN, id, &self.launch.prompt));
    }

    fn is_ours(&self, params: &Params<'_>) -> bool {
        params.thread_id.get().is_none() || params.thread_id.get() == self.thread.as_deref()
    }

    fn notification(&mut self, method: &str, params: &Params<'_>, notes: &mut Notes<'_>) {
        match method {
            "turn/started" if self.is_ours(params) => {
                let turn: Option<Turn<'_>> = read(params.turn);
                self.turn = turn.and_then(|turn| turn.id.get().map(Into::into));
                notes.turn_goes_on();
            }
            "turn/completed" if self.is_ours(params) => self.completed(params, notes),
            "turn/completed" => notes.event(EventKind::SubagentCompleted, Detail::Plain),
            "item/started" => started(params.item, notes),
            "item/completed" => completed(params.item, notes),
            "thread/tokenUsage/updated" => self.count(params, notes),
            "account/rateLimits/updated" => self.rate_limits(params.rate_limits),
            "error" => {
                let error: TurnError<'_> = read(params.error).unwrap_or_default();
                notes.error(self.failure(&error, None));
            }
            "serverRequest/resolved" => self.ask.resolved(raw(params.request_id), notes),
            "warning" | "configWarning" | "guardianWarning" => {
                let text = Detail::Text(Clip::of(params.message.or_empty()));
                notes.event(EventKind::Error, text);
            }
            "turn/started" => {}
            method if SILENT.contains(&method) => {}
            unknown => notes.unknown(unknown),
        }
    }

    fn completed(&mut self, params: &Params<'_>, notes: &mut Notes<'_>) {
        let Some(turn) = read::<Turn<'_>>(params.turn) else {
            return notes.drift(Drift::NotJson);
        };
        let error: TurnError<'_> = read(turn.error).unwrap_or_default();
        match turn.status.or_empty() {
            "completed" => notes.succeeded(),
            "interrupted" => notes.failed(Failure::new(Cause::Cancelled, "interrupted")),
            _ => {
                let last = notes.books.last_error.clone();
                let failure = self.failure(&error, last.as_ref());
                notes.failed(failure);
            }
        }
    }

    fn failure(&self, error: &TurnError<'_>, last: Option<&Failure>) -> Failure {
        let cause = cause_of(error.info).or_else(|| last.map(|last| last.cause));
        let cause = cause.unwrap_or(Cause::Crash);
        let limit = matches!(cause, Cause::UsageLimit | Cause::RateLimit);
        let resets_at = self.resets_at.filter(|_| limit);
        Failure { resets_at, ..Failure::new(cause, error.message.or_empty()) }
    }

    fn count(&mut self, params: &Params<'_>, notes: &mut Notes<'_>) {
        let Some(usage) = read::<TokenUsage>(params.token_usage) else { return };
        let thread: Box<str> = params.thread_id.or_empty().into();
        let (total, last) = (usage.total.usage(), usage.last.usage());
        if self.counted.len() >= THREAD_LIMIT && !self.counted.contains_key(&thread) {
            return;
        }
        let before_turn = self.turn.is_none() && self.is_ours(params);
        let first = Counted { before: minus(total, last), total };
        let counted = self.counted.entry(thread).or_insert(first);
        counted.total = total;
        if before_turn {
            counted.before = total;
        }
        let sum = self
            .counted
            .values()
            .fold(Usage::default(), |sum, counted| plus(sum, minus(counted.total, counted.before)));
        notes.usage(sum);
    }

    fn rate_limits(&mut self, limits: Part<'_>) {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Window {
            #[serde(rename = "usedPercent")]
            used: Num,
            #[serde(rename = "resetsAt")]
            resets_at: Num,
        }
        #[derive(Deserialize)]
        struct Limits<'a> {
            #[serde(borrow, default)]
            primary: Part<'a>,
            #[serde(borrow, default)]
            secondary: Part<'a>,
        }
        let Some(limits) = read::<Limits<'_>>(limits) else { return };
        let windows = [read::<Window>(limits.primary), read::<Window>(limits.secondary)];
        let used_up = windows.into_iter().flatten().filter(|w| w.used.get() >= Some(100.0));
        let seconds = used_up.filter_map(|window| window.resets_at.count()).max();
        let ms = seconds.and_then(|s| i64::try_from(s.saturating_mul(1_000)).ok());
        self.resets_at = ms.map(Timestamp::from_millis);
    }
}

impl Dialect for Codex {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(message) = serde_json::from_str::<Message<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        match message.kind() {
            Kind::Response { id, result } => self.response(id, result, notes),
            Kind::Request { id, method } => self.ask.request(id, method, message.params, notes),
            Kind::Notification(method) => {
                let Some(params) = read::<Params<'_>>(message.params) else {
                    return notes.unknown(method);
                };
                self.notification(method, &params, notes);
            }
            Kind::Other => notes.drift(Drift::NotJson),
        }
    }

    fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        self.ask.answer(question, answer)
    }

    fn next_turn(&mut self, prompt: &str) -> Option<Vec<u8>> {
        let thread = self.thread.as_deref()?;
        self.requests += 1;
        Some(start_turn(self.requests, thread, prompt))
    }

    fn interrupt(&mut self, _books: &Books) -> Option<Vec<u8>> {
        let (thread, turn) = (self.thread.as_deref()?, self.turn.as_deref()?);
        self.requests += 1;
        let params = serde_json::json!({"threadId": thread, "turnId": turn});
        Some(rpc::request(self.requests, "turn/interrupt", &params))
    }

    /// The app server ends with 0 when its input is closed, whatever became of the turn.
    fn at_exit(&self, _books: &Books, _exit: crate::judge::Exit) -> Option<TurnEnd> {
        None
    }
}

fn started(item: Part<'_>, notes: &mut Notes<'_>) {
    let Some(item) = read::<Item<'_>>(item) else { return };
    let id = item.id.or_empty();
    match item.kind.or_empty() {
        "commandExecution" => {
            notes.tool_opened(id, "commandExecution", item.command.or_empty(), Vec::new());
        }
        "fileChange" => {
            notes.tool_opened(id, "fileChange", raw(item.changes), changed_files(item.changes));
        }
        "mcpToolCall" | "dynamicToolCall" | "collabAgentToolCall" => {
            notes.tool_opened(id, item.tool.or_empty(), raw(item.arguments), Vec::new());
        }
        kind @ ("webSearch" | "imageView" | "imageGeneration" | "sleep") => {
            notes.tool_opened(id, kind, "", Vec::new());
        }
        _ => {}
    }
}

fn completed(item: Part<'_>, notes: &mut Notes<'_>) {
    let Some(item) = read::<Item<'_>>(item) else { return };
    match item.kind.or_empty() {
        "agentMessage" | "plan" => notes.said(item.text.or_empty()),
        "reasoning" => {
            let summary: Vec<String> = read(item.summary).unwrap_or_default();
            notes.thought(&summary.join("\n"));
        }
        "commandExecution" | "fileChange" | "mcpToolCall" | "dynamicToolCall" | "webSearch"
        | "imageView" | "imageGeneration" | "sleep" => {
            close(&item, EventKind::ToolCompleted, notes);
        }
        "collabAgentToolCall" => close(&item, EventKind::SubagentCompleted, notes),
        "userMessage" | "hookPrompt" | "functionCallOutput" | "contextCompaction"
        | "enteredReviewMode" | "exitedReviewMode" | "subAgentActivity" => {}
        unknown => notes.unknown(&format!("item/{unknown}")),
    }
}

fn close(item: &Item<'_>, kind: EventKind, notes: &mut Notes<'_>) {
    let failed = matches!(item.status.or_empty(), "failed" | "declined")
        || item.success.get() == Some(false)
        || item.exit_code.get().is_some_and(|code| code != 0.0);
    let output = item.output.get().unwrap_or_else(|| raw(item.result));
    notes.tool_closed(kind, item.id.or_empty(), failed, output);
}

fn changed_files(changes: Part<'_>) -> Vec<Box<str>> {
    #[derive(Deserialize)]
    struct Change<'a> {
        #[serde(borrow, default)]
        path: Str<'a>,
    }
    let changes: Vec<Change<'_>> = read(changes).unwrap_or_default();
    changes.iter().filter_map(|c| c.path.get().map(|path| Clip::of(path).text)).take(100).collect()
}

/// Notifications that say nothing which counts, or nothing which does not come again, whole: parts
/// of items, and news of what is not our thread. What is not here, and not read, is drift.
#[rustfmt::skip]
const SILENT: &[&str] = &[
    "account/gatewayOAuth/changed", "account/login/completed", "account/updated",
    "app/list/updated", "autoApprovalReview/strictReviewRequired", "command/exec/outputDelta",
    "deprecationNotice", "fs/changed", "hook/completed", "hook/started",
    "item/agentMessage/delta", "item/autoApprovalReview/completed",
    "item/autoApprovalReview/started", "item/commandExecution/outputDelta",
    "item/commandExecution/terminalInteraction", "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated", "item/mcpToolCall/progress", "item/plan/delta",
    "item/reasoning/summaryPartAdded", "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta", "mcpServer/event/stream/notification",
    "mcpServer/oauthLogin/completed", "mcpServer/startupStatus/updated", "model/rerouted",
    "model/safetyBuffering/updated", "model/verification", "modelProvider/authRecoveryCompleted",
    "modelProvider/authRecoveryStarted", "process/exited", "process/outputDelta",
    "project/changed", "rawResponse/completed", "rawResponseItem/completed",
    "remoteControl/status/changed", "skills/changed", "thread/archived",
    "thread/attachment/updated", "thread/closed", "thread/compacted", "thread/deleted",
    "thread/environment/connected", "thread/environment/disconnected", "thread/goal/cleared",
    "thread/goal/updated", "thread/name/updated", "thread/prediction/updated",
    "thread/project/updated", "thread/queue/changed", "thread/readState/changed",
    "thread/reverted", "thread/settings/updated", "thread/started", "thread/status/changed",
    "thread/unarchived", "turn/diff/updated", "turn/moderationMetadata", "turn/plan/updated",
];

/// The cause that Codex's typed error stands for; nothing where it only says `other`.
fn cause_of(info: Part<'_>) -> Option<Cause> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        #[serde(rename = "httpStatusCode")]
        status: Num,
    }
    if let Some(name) = read::<String>(info) {
        return Some(match &*name {
            "contextWindowExceeded" => Cause::ContextOverflow,
            "sessionBudgetExceeded" => Cause::Budget,
            "usageLimitExceeded" => Cause::UsageLimit,
            "rateLimitExceeded" => Cause::RateLimit,
            "serverOverloaded"
            | "flexUnavailable"
            | "internalServerError"
            | "policyCapacityUnavailable" => Cause::Network,
            "modelNotFound" | "badRequest" => Cause::Configuration,
            "cyberPolicy" | "misalignmentPolicyViolation" => Cause::Refusal,
            "unauthorized" => Cause::Auth,
            "tooManyDenials" | "sandboxError" | "threadRollbackFailed" => Cause::AgentFailed,
            _ => return None,
        });
    }
    let by_name: BTreeMap<String, Status> = read(info)?;
    let (name, status) = by_name.into_iter().next()?;
    match (&*name, status.status.status()) {
        (_, Some(status)) => Some(cause_of_status(status)),
        (
            "httpConnectionFailed"
            | "responseStreamConnectionFailed"
            | "responseStreamDisconnected"
            | "responseTooManyFailedAttempts",
            None,
        ) => Some(Cause::Network),
        (_, None) => None,
    }
}
