//! How any agent of the Agent Client Protocol speaks: JSON-RPC. We open a session and prompt it;
//! the answer to the prompt ends the turn, with a reason.
//!
//! We are a client without a file system and without terminals: the agent works in its sandbox with
//! its own tools. Text comes in chunks; a run of chunks is one message.

use belay_kernel::{Cause, EventKind, Money, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::adapter::acp_permission::Permission;
use crate::adapter::chunks::Chunks;
use crate::adapter::rpc::{self, Kind, Message, RpcError};
use crate::field::{Flag, Num, Part, Str, raw, read};
use crate::launch::{Conversation, Interrupt, Launch, LaunchPlan, LaunchRefusal, McpServer, Stdin};
use crate::notes::{Books, Notes, cause_of_status};
use crate::observation::{Clip, Detail, Drift, Failure, Question};
use crate::reader::Dialect;

const INITIALIZE: u64 = 1;
const SESSION: u64 = 2;
const MODEL: u64 = 3;
const PROMPT: u64 = 4;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    if launch.program.is_empty() {
        return Err(LaunchRefusal::NoProgram);
    }
    if !launch.settings.is_empty() {
        return Err(LaunchRefusal::NoSettings);
    }
    let hello = rpc::request(
        INITIALIZE,
        "initialize",
        &json!({
            "protocolVersion": 1,
            "clientCapabilities":
                {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "belay", "title": "Belay", "version": env!("CARGO_PKG_VERSION")},
        }),
    );
    let mut plan = LaunchPlan::new(launch, launch.argv(""), Stdin::Open(hello));
    plan.interrupt = Interrupt::Message;
    Ok(plan.finish(launch))
}

#[derive(Deserialize)]
struct Initialized<'a> {
    #[serde(rename = "agentCapabilities", borrow, default)]
    capabilities: Part<'a>,
}

#[derive(Deserialize, Default)]
struct Capabilities<'a> {
    #[serde(rename = "loadSession", default)]
    load: Flag,
    #[serde(rename = "mcpCapabilities", borrow, default)]
    mcp: Part<'a>,
}

#[derive(Deserialize, Default)]
struct McpCapabilities {
    #[serde(default)]
    http: Flag,
}

#[derive(Deserialize)]
struct Opened<'a> {
    #[serde(rename = "sessionId", borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    models: Part<'a>,
}

#[derive(Deserialize)]
struct Prompted<'a> {
    #[serde(rename = "stopReason", borrow, default)]
    stop_reason: Str<'a>,
    #[serde(borrow, default)]
    usage: Part<'a>,
    #[serde(rename = "_meta", borrow, default)]
    meta: Part<'a>,
}

/// Tokens as the protocol and, in `_meta`, Gemini CLI write them.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Tokens {
    #[serde(rename = "inputTokens", alias = "input_tokens")]
    input: Num,
    #[serde(rename = "outputTokens", alias = "output_tokens")]
    output: Num,
    #[serde(rename = "cachedReadTokens")]
    cache_read: Num,
    #[serde(rename = "cachedWriteTokens")]
    cache_write: Num,
}

#[derive(Deserialize)]
struct Update<'a> {
    #[serde(rename = "sessionUpdate", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    content: Part<'a>,
    #[serde(rename = "toolCallId", borrow, default)]
    tool_call_id: Str<'a>,
    #[serde(borrow, default)]
    title: Str<'a>,
    #[serde(rename = "kind", borrow, default)]
    tool_kind: Str<'a>,
    #[serde(borrow, default)]
    status: Str<'a>,
    #[serde(rename = "rawInput", borrow, default)]
    input: Part<'a>,
    #[serde(rename = "rawOutput", borrow, default)]
    output: Part<'a>,
    #[serde(borrow, default)]
    locations: Part<'a>,
    #[serde(borrow, default)]
    cost: Part<'a>,
}

/// ACP's dialect.
pub(crate) struct Acp {
    launch: Launch,
    session: Option<Box<str>>,
    /// Whether the turn is ours: a loaded session first repeats what was said before.
    prompted: bool,
    chunks: Chunks,
    permission: Permission,
    /// What the session had cost before this turn.
    cost_before: Option<Money>,
}

impl Acp {
    pub(crate) fn new(launch: &Launch) -> Self {
        Self {
            launch: launch.clone(),
            session: None,
            prompted: false,
            chunks: Chunks::default(),
            permission: Permission::new(launch.permissions),
            cost_before: None,
        }
    }

    fn response(&mut self, id: u64, result: Result<Part<'_>, Part<'_>>, notes: &mut Notes<'_>) {
        match (id, result) {
            (INITIALIZE, Ok(result)) => self.initialized(result, notes),
            (SESSION, Ok(result)) => self.opened(result, notes),
            (MODEL, Ok(_)) => self.prompt(notes),
            (MODEL, Err(error)) => {
                // The agent keeps its own model: worth saying, not worth failing for.
                let error: RpcError<'_> = read(error).unwrap_or_default();
                notes.error(Failure::new(Cause::Configuration, error.message.or_empty()));
                self.prompt(notes);
            }
            (PROMPT, Ok(result)) => self.answered(result, notes),
            (INITIALIZE | SESSION | PROMPT, Err(error)) => {
                self.chunks.flush(notes);
                let mut failure = failure_of(error);
                let resumes = self.launch.conversation.resumed().is_some();
                failure.conversation_lost = id == SESSION && resumes;
                notes.failed(failure);
            }
            (_, Ok(_) | Err(_)) => {}
        }
    }

    fn initialized(&mut self, result: Part<'_>, notes: &mut Notes<'_>) {
        let initialized: Option<Initialized<'_>> = read(result);
        let able: Capabilities<'_> =
            initialized.and_then(|initialized| read(initialized.capabilities)).unwrap_or_default();
        let http = read::<McpCapabilities>(able.mcp).unwrap_or_default().http.is_set();
        let mut params = json!({"cwd": self.launch.work_dir, "mcpServers": self.servers(http)});
        let request = match &self.launch.conversation {
            Conversation::Fresh(_) => rpc::request(SESSION, "session/new", &params),
            Conversation::Resumed(id) if able.load.is_set() => {
                params["sessionId"] = json!(id.as_str());
                self.session = Some(id.as_str().into());
                rpc::request(SESSION, "session/load", &params)
            }
            Conversation::Resumed(_) => {
                let text = "this agent cannot load a session";
                let failure = Failure::new(Cause::Configuration, text);
                return notes.failed(Failure { conversation_lost: true, ..failure });
            }
        };
        notes.write(request);
    }

    /// The servers that this agent can reach. Tokens go over its standard input, to no file.
    fn servers(&self, http: bool) -> Value {
        let servers = self.launch.mcp.iter().filter_map(|server| match server {
            McpServer::Http { name, url, token_variable } if http => {
                let token = token_variable.as_ref().and_then(|name| self.launch.variable(name));
                let headers = token.map(
                    |token| json!({"name": "Authorization", "value": format!("Bearer {token}")}),
                );
                let headers: Vec<Value> = headers.into_iter().collect();
                Some(json!({"type": "http", "name": name, "url": url, "headers": headers}))
            }
            McpServer::Http { .. } => None,
            McpServer::Program { name, argv } => {
                let variables = self.launch.belay.variables();
                let env: Vec<Value> = variables
                    .iter()
                    .map(|(name, value)| json!({"name": name, "value": value}))
                    .collect();
                let (command, args) = (argv.first(), argv.get(1..));
                Some(json!({"name": name, "command": command, "args": args, "env": env}))
            }
        });
        servers.collect()
    }

    fn opened(&mut self, result: Part<'_>, notes: &mut Notes<'_>) {
        let opened: Option<Opened<'_>> = read(result);
        if let Some(id) = opened.as_ref().and_then(|opened| opened.session_id.get()) {
            self.session = Some(id.into());
        }
        let Some(session) = self.session.clone() else {
            return notes.failed(Failure::new(Cause::Configuration, "opened no session"));
        };
        notes.conversation(&session);
        let models = opened.map_or("", |opened| raw(opened.models));
        match &self.launch.model {
            // Agents without a choice of models have no such method.
            Some(model) if !models.is_empty() => {
                let params = json!({"sessionId": session, "modelId": model});
                notes.write(rpc::request(MODEL, "session/set_model", &params));
            }
            Some(_) | None => self.prompt(notes),
        }
    }

    fn prompt(&mut self, notes: &mut Notes<'_>) {
        self.prompted = true;
        notes.turn_goes_on();
        let model = self.launch.model.clone().unwrap_or_default();
        notes.event(EventKind::Started, Detail::Model(model.into()));
        let prompt = json!([{"type": "text", "text": self.launch.prompt}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        notes.write(rpc::request(PROMPT, "session/prompt", &params));
    }

    fn answered(&mut self, result: Part<'_>, notes: &mut Notes<'_>) {
        self.chunks.flush(notes);
        let Some(prompted) = read::<Prompted<'_>>(result) else {
            return notes.failed(Failure::new(Cause::Crash, "answered the prompt with nothing"));
        };
        if let Some(tokens) = tokens_of(&prompted) {
            notes.used_more(tokens);
        }
        let failed = |cause, text| Failure::new(cause, text);
        match prompted.stop_reason.or_empty() {
            "end_turn" => notes.succeeded(),
            "cancelled" => notes.failed(failed(Cause::Cancelled, "cancelled")),
            "refusal" => notes.failed(failed(Cause::Refusal, "the model refused")),
            "max_tokens" => notes.failed(failed(Cause::ContextOverflow, "out of tokens")),
            "max_turn_requests" => notes.failed(failed(Cause::AgentFailed, "out of turns")),
            other => notes.failed(failed(Cause::AgentFailed, other)),
        }
    }

    fn update(&mut self, update: &Update<'_>, notes: &mut Notes<'_>) {
        let kind = update.kind.or_empty();
        if kind == "usage_update" {
            return self.cost(update.cost, notes);
        }
        if !self.prompted {
            return;
        }
        match kind {
            "agent_message_chunk" => self.chunks.said(text_of(update.content).or_empty(), notes),
            "agent_thought_chunk" => {
                self.chunks.thought(text_of(update.content).or_empty(), notes);
            }
            "tool_call" | "tool_call_update" => {
                self.chunks.flush(notes);
                self.permission.tool_moved(update.tool_call_id.or_empty(), notes);
                moved_tool(update, notes);
                closed_tool(update, notes);
            }
            "user_message_chunk"
            | "plan"
            | "available_commands_update"
            | "current_mode_update"
            | "config_option_update"
            | "session_info_update" => {}
            unknown => notes.unknown(unknown),
        }
    }

    /// Costs are of the whole session.
    fn cost(&mut self, cost: Part<'_>, notes: &mut Notes<'_>) {
        #[derive(Deserialize)]
        struct Cost<'a> {
            #[serde(default)]
            amount: Num,
            #[serde(borrow, default)]
            currency: Str<'a>,
        }
        let Some(cost) = read::<Cost<'_>>(cost) else { return };
        let amount = cost.amount.get().and_then(Money::from_usd);
        let Some(total) = amount.filter(|_| cost.currency.get() == Some("USD")) else { return };
        if self.prompted {
            let ours = total.minus(self.cost_before.unwrap_or(Money::ZERO));
            let usage = notes.books.usage;
            notes.usage_at_least(Usage { cost: Some(ours), ..usage });
        } else {
            self.cost_before = Some(total);
        }
    }
}

impl Dialect for Acp {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default)]
            update: Part<'a>,
        }
        let Ok(message) = serde_json::from_str::<Message<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        match message.kind() {
            Kind::Response { id, result } => self.response(id, result, notes),
            Kind::Request { id, method: "session/request_permission" } => {
                #[derive(Deserialize)]
                struct Wanted<'a> {
                    #[serde(rename = "toolCall", borrow, default)]
                    tool_call: Part<'a>,
                }
                self.chunks.flush(notes);
                let wanted: Option<Wanted<'_>> = read(message.params);
                if let Some(tool) = wanted.and_then(|wanted| read::<Update<'_>>(wanted.tool_call)) {
                    moved_tool(&tool, notes);
                }
                self.permission.request(id, message.params, notes);
            }
            Kind::Request { id, method } => {
                notes.unknown(method);
                notes.write(rpc::refusal(id, method));
            }
            Kind::Notification("session/update") => {
                let params: Option<Params<'_>> = read(message.params);
                match params.and_then(|params| read::<Update<'_>>(params.update)) {
                    Some(update) => self.update(&update, notes),
                    None => notes.drift(Drift::NotJson),
                }
            }
            // Extensions of an agent begin with an underscore; they are its own affair.
            Kind::Notification(method) if method.starts_with('_') => {}
            Kind::Notification(method) => notes.unknown(method),
            Kind::Other => notes.drift(Drift::NotJson),
        }
    }

    fn finish(&mut self, notes: &mut Notes<'_>) {
        self.chunks.flush(notes);
    }

    fn answer(&mut self, question: &Question, answer: &str) -> Option<Vec<u8>> {
        self.permission.answer(question, answer)
    }

    fn interrupt(&mut self, _books: &Books) -> Option<Vec<u8>> {
        let session = self.session.as_deref().filter(|_| self.prompted)?;
        Some(rpc::notification("session/cancel", &json!({"sessionId": session})))
    }
}

fn text_of<'a>(content: Part<'a>) -> Str<'a> {
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(borrow, default)]
        text: Str<'a>,
    }
    read::<Content<'a>>(content).map(|content| content.text).unwrap_or_default()
}

/// A tool call is opened by the first that is heard of it, whatever that is called: an agent may
/// ask for permission, or report an update, without having announced the call.
fn moved_tool(update: &Update<'_>, notes: &mut Notes<'_>) {
    #[derive(Deserialize)]
    struct Location<'a> {
        #[serde(borrow, default)]
        path: Str<'a>,
    }
    let id = update.tool_call_id.or_empty();
    if !notes.books.tools.contains_key(id) {
        let name = update.tool_kind.get().or(update.title.get()).unwrap_or_default();
        let input = match raw(update.input) {
            "" => update.title.or_empty(),
            input => input,
        };
        notes.tool_opened(id, name, input, Vec::new());
    }
    let Some(tool) = notes.books.tools.get_mut(id) else { return };
    let kind = update.tool_kind.get().unwrap_or(&tool.name);
    if matches!(kind, "edit" | "delete" | "move") && tool.edits.is_empty() {
        let locations: Vec<Location<'_>> = read(update.locations).unwrap_or_default();
        let paths = locations.iter().filter_map(|l| l.path.get().map(|path| Clip::of(path).text));
        tool.edits = paths.take(100).collect();
    }
}

fn closed_tool(update: &Update<'_>, notes: &mut Notes<'_>) {
    let failed = match update.status.or_empty() {
        "completed" => false,
        "failed" => true,
        _ => return,
    };
    let output = match raw(update.output) {
        "" => raw(update.content),
        output => output,
    };
    notes.tool_closed(EventKind::ToolCompleted, update.tool_call_id.or_empty(), failed, output);
}

fn tokens_of(prompted: &Prompted<'_>) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default)]
        quota: Part<'a>,
    }
    #[derive(Deserialize)]
    struct Quota<'a> {
        #[serde(borrow, default)]
        token_count: Part<'a>,
    }
    let in_meta = || {
        let quota: Quota<'_> = read(read::<Meta<'_>>(prompted.meta)?.quota)?;
        read::<Tokens>(quota.token_count)
    };
    let tokens = read::<Tokens>(prompted.usage).or_else(in_meta)?;
    Some(Usage {
        input_tokens: tokens.input.count()?,
        output_tokens: tokens.output.count().unwrap_or(0),
        cache_read_tokens: tokens.cache_read.count().unwrap_or(0),
        cache_write_tokens: tokens.cache_write.count().unwrap_or(0),
        cost: None,
    })
}

/// Agents put an HTTP status into the code, or into the data.
fn failure_of(error: Part<'_>) -> Failure {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Data {
        #[serde(alias = "statusCode", alias = "code")]
        status: Num,
    }
    const AUTH_REQUIRED: f64 = -32_000.0;
    let error: RpcError<'_> = read(error).unwrap_or_default();
    let in_data = || read::<Data>(error.data).and_then(|data| data.status.status());
    let cause = match error.code.status().or_else(in_data) {
        Some(status) => cause_of_status(status),
        None if error.code.get() == Some(AUTH_REQUIRED) => Cause::Auth,
        None => Cause::Crash,
    };
    Failure::new(cause, error.message.or_empty())
}
