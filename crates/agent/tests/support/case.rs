//! Each agent as the tests run it: its tools by name, and how it is pointed at the scripted model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use belay_agent::{
    Agent, BelayEnvironment, Conversation, ConversationId, LINE_LIMIT, Launch, McpServer,
    Permissions,
};
use belay_kernel::{AttemptNumber, TaskId};
use belay_model_server::{ModelServer, Script};
use serde_json::{Value, json};

/// An agent under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    Claude,
    Codex,
    Gemini,
    OpenCode,
    Copilot,
    GeminiAcp,
    OpenCodeAcp,
    CopilotAcp,
}

impl Case {
    pub(crate) fn agent(self) -> Agent {
        match self {
            Self::Claude => Agent::Claude,
            Self::Codex => Agent::Codex,
            Self::Gemini => Agent::Gemini,
            Self::OpenCode => Agent::OpenCode,
            Self::Copilot => Agent::Copilot,
            Self::GeminiAcp | Self::OpenCodeAcp | Self::CopilotAcp => Agent::Acp,
        }
    }

    /// The agent whose program runs.
    fn behind(self) -> Agent {
        match self {
            Self::GeminiAcp => Agent::Gemini,
            Self::OpenCodeAcp => Agent::OpenCode,
            Self::CopilotAcp => Agent::Copilot,
            other => other.agent(),
        }
    }

    /// The name of its fixtures, with the version that made them.
    pub(crate) fn label(self) -> String {
        let acp = if self.agent() == Agent::Acp { "-acp" } else { "" };
        let version = self.behind().facts().tested.expect("a real agent has a tested version");
        format!("{}{acp}-{version}", self.behind())
    }

    /// A script's line that runs a shell command.
    pub(crate) fn shell(self, command: &str) -> String {
        let (tool, input) = match self.behind() {
            Agent::Claude => ("Bash", json!({"command": command, "description": "x"})),
            Agent::Codex => ("exec_command", json!({"cmd": command, "yield_time_ms": 30_000})),
            Agent::Gemini => ("run_shell_command", json!({"command": command})),
            _ => ("bash", json!({"command": command, "description": "x"})),
        };
        format!("call {tool} {input}\n")
    }

    /// A script's line that writes a file with the agent's own tool for that.
    pub(crate) fn edit(self, path: &Path) -> String {
        let path = path.to_str().unwrap();
        let (tool, input) = match self.behind() {
            Agent::Claude => ("Write", json!({"file_path": path, "content": "hello\n"})),
            Agent::Codex => {
                let patch = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n";
                ("apply_patch", json!(patch))
            }
            Agent::Gemini => ("write_file", json!({"file_path": path, "content": "hello\n"})),
            Agent::OpenCode => ("write", json!({"filePath": path, "content": "hello\n"})),
            _ => ("create", json!({"path": path, "file_text": "hello\n"})),
        };
        format!("call {tool} {input}\n")
    }

    /// A script's line that calls a tool of Belay's MCP server. Without a terminal, Gemini CLI
    /// hides every tool that is called like its own `ask_user`, so it calls another.
    pub(crate) fn ask_by_mcp(self) -> String {
        let tool = match self.behind() {
            Agent::Claude => "mcp__belay__ask_user",
            Agent::Codex => "mcp__belay/ask_user",
            Agent::Gemini => "mcp_belay_report_progress",
            Agent::OpenCode => "belay_ask_user",
            _ => "belay-ask_user",
        };
        format!("call {tool} {{\"text\":\"Which colour?\"}}\n")
    }
}

/// A place of its own for one test: a home, a tree, a model.
pub(crate) struct Place {
    pub(crate) case: Case,
    pub(crate) root: PathBuf,
    pub(crate) server: ModelServer,
}

static PLACES: AtomicU32 = AtomicU32::new(0);

impl Place {
    pub(crate) fn new(case: Case, name: &str, script: &str) -> Self {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let folder = format!("{case:?}-{name}-{}-{number}", std::process::id());
        let root = Path::new(super::BASE).join("places").join(folder);
        fs::create_dir_all(root.join("tree")).unwrap();
        let script: Script = script.parse().unwrap();
        let server = ModelServer::start(script).unwrap();
        Self { case, root, server }
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(crate) fn script(&self, script: &str) {
        self.server.set_script(script.parse().unwrap());
    }

    /// A launch of this agent on this model.
    pub(crate) fn launch(&self, prompt: &str) -> Launch {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let number = u128::from(PLACES.fetch_add(1, Ordering::Relaxed));
        let bits = (u128::from(std::process::id()) << 64) | number;
        let mut launch = Launch {
            program: self.program(),
            prompt: prompt.into(),
            conversation: Conversation::Fresh(ConversationId::chosen(bits)),
            model: None,
            permissions: Permissions::All,
            mcp: vec![McpServer::belay(&self.server.url())],
            work_dir: text(self.tree()),
            state_dir: text(self.state()),
            belay: BelayEnvironment {
                url: self.server.url(),
                token: "attempt-token-7f3a".into(),
                task: TaskId::from_bits(7),
                attempt: AttemptNumber(1),
                prompt_file: text(self.root.join("prompt")),
                question_file: text(self.root.join("question")),
                summary_file: text(self.root.join("summary")),
            },
            environment: BTreeMap::new(),
            settings: serde_json::Map::new(),
            max_turns: None,
            max_budget: None,
            line_limit: LINE_LIMIT,
        };
        self.point(&mut launch);
        launch
    }

    fn program(&self) -> Vec<String> {
        let name = self.case.behind().program().unwrap();
        let path = super::programs().expect("the programs are installed").join(name);
        let mut argv = vec![path.to_str().unwrap().to_owned()];
        match self.case {
            Case::GeminiAcp => {
                argv.extend(["--acp".into(), "--model".into(), "gemini-2.5-flash".into()]);
            }
            Case::OpenCodeAcp => argv.push("acp".into()),
            Case::CopilotAcp => argv.push("--acp".into()),
            _ => {}
        }
        argv
    }

    /// Points the agent at the scripted model, as its own documentation says.
    fn point(&self, launch: &mut Launch) {
        let url = self.server.url();
        let mut set = |name: &str, value: &str| {
            launch.environment.insert(name.into(), value.into());
        };
        set("PATH", &std::env::var("PATH").unwrap());
        set("TERM", "dumb");
        match self.case.behind() {
            Agent::Claude => {
                set("ANTHROPIC_BASE_URL", &url);
                set("ANTHROPIC_API_KEY", "sk-scripted-key");
                set("CLAUDE_CODE_MAX_RETRIES", "0");
            }
            Agent::Codex => {
                set("SCRIPTED_KEY", "sk-scripted-key");
                launch.settings = object(codex_settings(&url));
                launch.model = Some("gpt-5.5".into());
            }
            Agent::Gemini => {
                set("GEMINI_API_KEY", "sk-scripted-key");
                set("GOOGLE_GEMINI_BASE_URL", &url);
                if self.case == Case::Gemini {
                    launch.model = Some("gemini-2.5-flash".into());
                    launch.settings = object(json!({"general": {"maxAttempts": 1}}));
                } else {
                    set("GEMINI_CLI_HOME", &launch.state_dir);
                    set("GEMINI_CLI_TRUST_WORKSPACE", "true");
                    set("GEMINI_CLI_NO_RELAUNCH", "true");
                    self.write(".gemini/settings.json", &gemini_settings());
                }
            }
            Agent::OpenCode => {
                set("OPENCODE_DISABLE_MODELS_FETCH", "1");
                set("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1");
                let settings = opencode_settings(&url);
                if self.case == Case::OpenCode {
                    launch.settings = object(settings);
                } else {
                    set("OPENCODE_CONFIG", &format!("{}/opencode.json", launch.state_dir));
                    self.write("opencode.json", &settings);
                }
            }
            _ => {
                set("COPILOT_OFFLINE", "true");
                set("COPILOT_PROVIDER_BASE_URL", &format!("{url}/v1"));
                set("COPILOT_PROVIDER_API_KEY", "sk-scripted-key");
                set("COPILOT_MODEL", "m1");
                // Copilot unpacks 235 MB of itself; once is enough.
                let cache = Path::new(super::BASE).join("copilot-cache");
                set("XDG_CACHE_HOME", cache.to_str().unwrap());
            }
        }
    }

    fn write(&self, path: &str, value: &Value) {
        let path = self.state().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // What a slow grandchild still writes there is in nobody's way.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("not an object: {other}"),
    }
}

fn codex_settings(url: &str) -> Value {
    json!({
        "model_provider": "scripted",
        "model_providers": {"scripted": {
            "name": "scripted",
            "base_url": format!("{url}/v1"),
            "env_key": "SCRIPTED_KEY",
            "wire_api": "responses",
            "request_max_retries": 0,
            "stream_max_retries": 0,
        }},
    })
}

fn gemini_settings() -> Value {
    json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": false},
        "general": {"maxAttempts": 1, "disableAutoUpdate": true},
    })
}

fn opencode_settings(url: &str) -> Value {
    json!({
        "model": "scripted/m1",
        "small_model": "scripted/m1",
        "snapshot": false,
        "autoupdate": false,
        "enabled_providers": ["scripted"],
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": format!("{url}/v1"), "apiKey": "sk-scripted-key"},
            "models": {"m1": {
                "name": "M1",
                "limit": {"context": 100_000, "output": 8_000},
                "cost": {"input": 3, "output": 15},
            }},
        }},
    })
}
