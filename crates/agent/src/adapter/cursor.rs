//! How Cursor's CLI is started and speaks: the prompt as an argument, one JSON object per line,
//! `result` at the end, after which it lingers.
//!
//! It is not to be had from a package registry, so this adapter is tested on streams of the
//! documented shape only.

use std::collections::BTreeMap;

use belay_kernel::{Cause, EventKind, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use crate::adapter::chunks::Chunks;
use crate::field::{Flag, Num, Part, Str, raw, read};
use crate::launch::{
    Conversation, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin,
};
use crate::notes::Notes;
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
    let mut plan = LaunchPlan::new(launch, launch.argv("cursor-agent"), stdin);
    plan.arg(&["--print", "--output-format", "stream-json", "--stream-partial-output"]);
    plan.arg(&["--force", "--trust", "--approve-mcps", "--workspace", &launch.work_dir]);
    if let Conversation::Resumed(id) = &launch.conversation {
        plan.arg(&["--resume", id.as_str()]);
    }
    if let Some(model) = &launch.model {
        plan.arg(&["--model", model]);
    }
    if !launch.mcp.is_empty() {
        plan.directories.push(launch.state(".cursor"));
        plan.file(launch.state(".cursor/mcp.json"), &json!({"mcpServers": servers(&launch.mcp)}));
    }
    plan.arg(&["--", &launch.prompt_argument()]);
    Ok(plan.finish(launch))
}

fn servers(servers: &[McpServer]) -> Value {
    let described = servers.iter().map(|server| {
        let value = match server {
            McpServer::Http { url, token_variable: Some(variable), .. } => json!({
                "url": url,
                "headers": {"Authorization": format!("Bearer ${{env:{variable}}}")},
            }),
            McpServer::Http { url, token_variable: None, .. } => json!({"url": url}),
            McpServer::Program { argv, .. } => {
                json!({"command": argv.first(), "args": argv.get(1..)})
            }
        };
        (server.name().to_owned(), value)
    });
    described.collect::<Map<_, _>>().into()
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Str<'a>,
    #[serde(borrow, default)]
    subtype: Str<'a>,
    #[serde(borrow, default)]
    session_id: Str<'a>,
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow, default)]
    text: Str<'a>,
    #[serde(borrow, default)]
    message: Part<'a>,
    #[serde(borrow, default)]
    call_id: Str<'a>,
    #[serde(borrow, default)]
    tool_call: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(default)]
    is_error: Flag,
    #[serde(borrow, default)]
    result: Str<'a>,
    #[serde(borrow, default)]
    usage: Part<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    text: Str<'a>,
}

#[derive(Deserialize, Default)]
struct Call<'a> {
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    args: Part<'a>,
    #[serde(borrow, default)]
    arguments: Part<'a>,
    #[serde(borrow, default)]
    result: Part<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Tokens {
    input_tokens: Num,
    output_tokens: Num,
    cache_read_tokens: Num,
    cache_write_tokens: Num,
}

/// Cursor's dialect.
#[derive(Default)]
pub(crate) struct Cursor {
    chunks: Chunks,
}

impl Dialect for Cursor {
    fn line(&mut self, line: &str, notes: &mut Notes<'_>) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return notes.drift(Drift::NotJson);
        };
        if let Some(id) = line.session_id.get() {
            notes.conversation(id);
        }
        let kind = line.kind.or_empty();
        if !matches!(kind, "assistant" | "thinking") {
            self.chunks.flush(notes);
        }
        match (kind, line.subtype.or_empty()) {
            ("system", "init") => {
                notes.turn_goes_on();
                notes.event(EventKind::Started, Detail::Model(line.model.or_empty().into()));
            }
            ("assistant", _) => {
                let message: Option<Message<'_>> = read(line.message);
                for item in message.iter().flat_map(|message| &message.content) {
                    self.chunks.said(item.text.or_empty(), notes);
                }
            }
            ("thinking", "completed") => self.chunks.flush(notes),
            ("thinking", _) => self.chunks.thought(line.text.or_empty(), notes),
            ("tool_call", "started") => started(&line, notes),
            ("tool_call", "completed") => completed(&line, notes),
            ("result", subtype) => result(&line, subtype, notes),
            ("user", _) => {}
            (kind, "") => notes.unknown(kind),
            (kind, subtype) => notes.unknown(&format!("{kind}/{subtype}")),
        }
    }

    fn finish(&mut self, notes: &mut Notes<'_>) {
        self.chunks.flush(notes);
    }
}

/// The call, and the name of its tool: the one key of the object, like `shellToolCall`.
fn call<'a>(line: &Line<'a>) -> (String, Call<'a>) {
    let entry = line.tool_call.as_ref().and_then(|call| call.first_key_value());
    let Some((name, value)) = entry else { return (String::new(), Call::default()) };
    let call: Call<'a> = read(Some(*value)).unwrap_or_default();
    let name = call.name.get().unwrap_or_else(|| name.trim_end_matches("ToolCall")).to_owned();
    (name, call)
}

fn started(line: &Line<'_>, notes: &mut Notes<'_>) {
    #[derive(Deserialize)]
    struct Args<'a> {
        #[serde(borrow, default)]
        path: Str<'a>,
    }
    let (name, call) = call(line);
    let args = call.args.or(call.arguments);
    let edits = match &*name {
        "write" | "edit" | "delete" => {
            let args: Option<Args<'_>> = read(args);
            args.and_then(|args| args.path.get().map(|path| Clip::of(path).text))
        }
        _ => None,
    };
    let edits = edits.into_iter().collect();
    notes.tool_opened(line.call_id.or_empty(), &name, raw(args), edits);
}

fn completed(line: &Line<'_>, notes: &mut Notes<'_>) {
    let (_, call) = call(line);
    let outcome: Option<BTreeMap<String, &RawValue>> = read(call.result);
    let failed = outcome
        .is_some_and(|outcome| outcome.contains_key("error") || outcome.contains_key("rejected"));
    let kind = EventKind::ToolCompleted;
    notes.tool_closed(kind, line.call_id.or_empty(), failed, raw(call.result));
}

fn result(line: &Line<'_>, subtype: &str, notes: &mut Notes<'_>) {
    let tokens: Tokens = read(line.usage).unwrap_or_default();
    let count = |number: Num| number.count().unwrap_or(0);
    notes.used_more(Usage {
        input_tokens: count(tokens.input_tokens),
        output_tokens: count(tokens.output_tokens),
        cache_read_tokens: count(tokens.cache_read_tokens),
        cache_write_tokens: count(tokens.cache_write_tokens),
        cost: None,
    });
    if subtype == "success" && !line.is_error.is_set() {
        notes.succeeded();
    } else {
        notes.failed(Failure::new(Cause::AgentFailed, line.result.or_empty()));
    }
}
