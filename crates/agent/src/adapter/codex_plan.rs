//! How Codex is started: as its app server on standard input and output.
//!
//! Rejected: `codex exec --json`. It reports errors as text alone, cannot ask anything, says what
//! it used only at the end and blocks on an open standard input. The app server has typed errors,
//! holds questions, counts after every model call and can be interrupted.

use serde_json::{Value, json};

use crate::adapter::rpc;
use crate::launch::{
    Conversation, Interrupt, Launch, LaunchPlan, LaunchRefusal, McpServer, Permissions, Stdin,
};

/// The ids of the requests that lead to a turn.
pub(crate) const INITIALIZE: u64 = 1;
pub(crate) const THREAD: u64 = 2;
pub(crate) const TURN: u64 = 3;

pub(crate) fn plan(launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
    let hello = rpc::request(
        INITIALIZE,
        "initialize",
        &json!({
            "clientInfo": {"name": "belay", "title": "Belay", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"experimentalApi": true, "requestAttestation": false},
        }),
    );
    let mut plan = LaunchPlan::new(launch, launch.argv("codex"), Stdin::Open(hello));
    plan.interrupt = Interrupt::Message;
    plan.arg(&["app-server", "--listen", "stdio://"]);
    let mut settings = json!({
        "check_for_update_on_startup": false,
        "suppress_unstable_features_warning": true,
        "analytics": {"enabled": false},
        // Without these two, Codex looks up three hosts and lingers for 5 s at its end.
        "otel": {"metrics_exporter": "none"},
        "features": {"plugins": false, "default_mode_request_user_input": true},
    });
    for server in &launch.mcp {
        settings["mcp_servers"][server.name()] = mcp(server);
    }
    crate::launch::merge(&mut settings, &Value::Object(launch.settings.clone()));
    let mut flags = Vec::new();
    flatten("", &settings, &mut flags);
    for flag in &flags {
        plan.arg(&["-c", flag]);
    }
    let home = launch.state("codex");
    plan.directories.push(home.clone());
    plan.set([("CODEX_HOME", home)]);
    Ok(plan.finish(launch))
}

fn mcp(server: &McpServer) -> Value {
    match server {
        McpServer::Http { url, token_variable, .. } => {
            let mut value = json!({"url": url, "tool_timeout_sec": 24 * 3_600});
            if let Some(variable) = token_variable {
                value["bearer_token_env_var"] = json!(variable);
            }
            value
        }
        McpServer::Program { argv, .. } => json!({
            "command": argv.first(),
            "args": argv.get(1..),
            "tool_timeout_sec": 24 * 3_600,
            // Codex hands a program only what it names.
            "env_vars": ["BELAY_URL", "BELAY_TOKEN", "BELAY_TASK_ID", "BELAY_ATTEMPT"],
        }),
    }
}

/// Settings as `a.b.c=value` flags, whose values are TOML. JSON's scalars and arrays of them are.
fn flatten(path: &str, value: &Value, flags: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
                let name = if plain { name.clone() } else { json!(name).to_string() };
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, flags);
            }
        }
        Value::Null => {}
        value => flags.push(format!("{path}={value}")),
    }
}

/// Opens the thread that the launch wants.
pub(crate) fn open_thread(launch: &Launch) -> Vec<u8> {
    let (approval, sandbox) = match launch.permissions {
        Permissions::All => ("never", "danger-full-access"),
        Permissions::Ask => ("untrusted", "danger-full-access"),
    };
    let mut params =
        json!({"cwd": launch.work_dir, "approvalPolicy": approval, "sandbox": sandbox});
    if let Some(model) = &launch.model {
        params["model"] = json!(model);
    }
    match &launch.conversation {
        Conversation::Fresh(_) => rpc::request(THREAD, "thread/start", &params),
        Conversation::Resumed(id) => {
            params["threadId"] = json!(id.as_str());
            params["excludeTurns"] = json!(true);
            rpc::request(THREAD, "thread/resume", &params)
        }
    }
}

/// Gives the thread a prompt.
pub(crate) fn start_turn(id: u64, thread: &str, prompt: &str) -> Vec<u8> {
    let input = json!([{"type": "text", "text": prompt, "text_elements": []}]);
    rpc::request(id, "turn/start", &json!({"threadId": thread, "input": input}))
}
