//! How Claude Code is started: as a conversation over standard input and output, with its control
//! protocol on, so that its questions can be held and its turn interrupted.

use serde_json::{Value, json};

use crate::launch::{
    Conversation, Interrupt, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin,
};

/// Longer than any question is held: an MCP tool may wait for a person.
const TOOL_TIMEOUT_MS: u32 = 24 * 3_600 * 1_000;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    let stdin = Stdin::Open(user_message(&launch.prompt));
    let mut plan = LaunchPlan::new(launch, launch.argv("claude"), stdin);
    plan.interrupt = Interrupt::Message;
    plan.arg(&["-p", "--output-format", "stream-json", "--input-format", "stream-json"]);
    plan.arg(&["--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio"]);
    let mode = match launch.permissions {
        Permissions::All => "bypassPermissions",
        Permissions::Ask => "default",
    };
    plan.arg(&["--permission-mode", mode]);
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
    if let Some(turns) = launch.max_turns {
        plan.arg(&["--max-turns", &turns.to_string()]);
    }
    if let Some(budget) = launch.max_budget {
        let micros = budget.as_micros();
        let dollars = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        plan.arg(&["--max-budget-usd", &dollars]);
    }
    if !launch.settings.is_empty() {
        plan.arg(&["--settings", &Value::Object(launch.settings.clone()).to_string()]);
    }
    if !launch.mcp.is_empty() {
        let path = launch.state("claude/belay-mcp.json");
        plan.arg(&["--mcp-config", &path, "--strict-mcp-config"]);
        plan.file(path, &json!({"mcpServers": servers(&launch.mcp)}));
    }
    let home = launch.state("claude");
    plan.directories.push(home.clone());
    plan.set([
        ("CLAUDE_CONFIG_DIR", home),
        // Claude Code refuses to work without asking as root unless it knows of a sandbox.
        ("IS_SANDBOX", "1".into()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
        ("DISABLE_AUTOUPDATER", "1".into()),
        ("MCP_TOOL_TIMEOUT", TOOL_TIMEOUT_MS.to_string()),
    ]);
    Ok(plan.finish(launch))
}

/// What a person says, as a line of standard input.
pub(crate) fn user_message(text: &str) -> Vec<u8> {
    let message = json!({"type": "user", "message": {"role": "user", "content": text}});
    format!("{message}\n").into_bytes()
}

/// Servers as Claude Code and, alike, Copilot and Cursor write them.
fn servers(servers: &[McpServer]) -> Value {
    servers
        .iter()
        .map(|server| {
            let value = match server {
                McpServer::Http { url, token_variable, .. } => {
                    let mut value = json!({"type": "http", "url": url});
                    if let Some(variable) = token_variable {
                        value["headers"] =
                            json!({"Authorization": format!("Bearer ${{{variable}}}")});
                    }
                    value
                }
                McpServer::Program { argv, .. } => {
                    json!({"type": "stdio", "command": argv.first(), "args": argv.get(1..)})
                }
            };
            (server.name().to_owned(), value)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
