//! The real agents through `belay run`, on a scripted model: they ask by Belay's tools; and Claude
//! Code and Codex edit, ask by their own, and are stopped in flight.

use std::path::Path;
use std::time::Duration;

use belay_model_server::{ModelServer, clis};
use serde_json::{Value, json};

use crate::asks::fixed;
use crate::world::{PATIENCE, QUICK, World, wait_for};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Agent {
    Claude,
    Codex,
    Gemini,
    OpenCode,
    Copilot,
}

/// A world with an agent's real program and a model for it. Nothing where real agents are switched
/// off by whoever runs the tests, who says so.
struct Place {
    agent: Agent,
    world: World,
    model: ModelServer,
    programs: String,
}

impl Place {
    fn new(agent: Agent, script: &str) -> Option<Self> {
        if std::env::var_os(clis::SKIP).is_some() {
            return None;
        }
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let programs = clis::install(base).unwrap_or_else(|error| panic!("{error}"));
        let programs = programs.display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let world = fixed(QUICK, &[("PATH", &path)]);
        let model = ModelServer::start(script.parse().unwrap()).unwrap();
        Some(Self { agent, world, model, programs })
    }

    /// Makes a task for the agent, pointed at the scripted model as its own documentation says.
    fn start(&self, prompt: &str, flags: &[&str]) -> String {
        let url = self.model.url();
        let mut words: Vec<String> = vec![prompt.into()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match self.agent {
            Agent::Claude => {
                add(&["--agent", "claude", "--env", &format!("ANTHROPIC_BASE_URL={url}")]);
                add(&["--env", "ANTHROPIC_API_KEY=sk-scripted-key"]);
                add(&["--env", "CLAUDE_CODE_MAX_RETRIES=0"]);
            }
            Agent::Codex => {
                add(&["--agent", "codex", "--model", "gpt-5.5"]);
                add(&["--env", "SCRIPTED_KEY=sk-scripted-key", "--"]);
                add(&[&format!("{}/codex", self.programs)]);
                let provider = "model_providers.scripted";
                for setting in [
                    "model_provider=\"scripted\"".to_owned(),
                    format!("{provider}.name=\"scripted\""),
                    format!("{provider}.base_url=\"{url}/v1\""),
                    format!("{provider}.env_key=\"SCRIPTED_KEY\""),
                    format!("{provider}.wire_api=\"responses\""),
                    format!("{provider}.request_max_retries=0"),
                    format!("{provider}.stream_max_retries=0"),
                ] {
                    add(&["-c", &setting]);
                }
            }
            Agent::Gemini => {
                add(&["--agent", "gemini", "--model", "gemini-2.5-flash"]);
                add(&["--env", &format!("GOOGLE_GEMINI_BASE_URL={url}")]);
                add(&["--env", "GEMINI_API_KEY=sk-scripted-key"]);
            }
            Agent::OpenCode => {
                let settings = opencode_settings(&url);
                add(&["--agent", "opencode", "--model", "scripted/m1"]);
                add(&["--env", &format!("OPENCODE_CONFIG_CONTENT={settings}")]);
                add(&["--env", "OPENCODE_DISABLE_MODELS_FETCH=1"]);
                add(&["--env", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"]);
                add(&["--", &format!("{}/opencode", self.programs)]);
            }
            Agent::Copilot => {
                add(&["--agent", "copilot", "--env", "COPILOT_OFFLINE=true"]);
                add(&["--env", &format!("COPILOT_PROVIDER_BASE_URL={url}/v1")]);
                add(&["--env", "COPILOT_PROVIDER_API_KEY=sk-scripted-key"]);
                add(&["--env", "COPILOT_MODEL=m1"]);
                add(&["--", &format!("{}/copilot", self.programs)]);
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.world.start(&words)
    }

    /// A line of a script: the agent runs a command.
    fn shell(agent: Agent, command: &str) -> String {
        let (tool, input) = match agent {
            Agent::Claude => ("Bash", json!({"command": command, "description": "x"})),
            Agent::Codex => ("exec_command", json!({"cmd": command, "yield_time_ms": 30_000})),
            Agent::Gemini => ("run_shell_command", json!({"command": command})),
            Agent::OpenCode | Agent::Copilot => {
                ("bash", json!({"command": command, "description": "x"}))
            }
        };
        format!("call {tool} {input}\n")
    }
}

fn opencode_settings(url: &str) -> Value {
    json!({
        "small_model": "scripted/m1",
        "snapshot": false,
        "enabled_providers": ["scripted"],
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": format!("{url}/v1"), "apiKey": "sk-scripted-key"},
            "models": {"m1": {"name": "M1", "limit": {"context": 100_000, "output": 8_000}}},
        }},
    })
}

fn edits_a_file(agent: Agent) {
    let script = Place::shell(agent, "echo hello > made.txt") + "say I made it.";
    let Some(place) = Place::new(agent, &script) else { return };
    let task = place.start("Please make a file.", &[]);
    place.world.reaches(&task, "READY");
    let diff = place.world.belay(&["diff", &task]).done().out;
    assert!(diff.contains("+hello"), "{diff}");
    assert!(place.world.belay(&["logs", &task]).done().out.contains("I made it."));
    let asked = place.model.requests();
    assert!(asked.iter().any(|request| request.body.to_string().contains("Please make a file.")));
    place.world.belay(&["accept", "--merge", &task]).done();
    assert_eq!(std::fs::read_to_string(place.world.path("repo/made.txt")).unwrap(), "hello\n");
    place.world.settles(&task);
    place.world.nothing_runs();
    let used = "SELECT input_tokens > 0 AND output_tokens > 0 FROM attempts";
    assert_eq!(place.world.cell(used), "1", "what it used is counted");
}

#[test]
fn claude_edits_a_file() {
    edits_a_file(Agent::Claude);
}

#[test]
fn codex_edits_a_file() {
    edits_a_file(Agent::Codex);
}

fn asks_and_is_answered(agent: Agent) {
    let options = json!([
        {"label": "red", "description": "warm"},
        {"label": "teal", "description": "cool"},
    ]);
    let mut question = json!({"question": "Which colour?", "header": "Colour", "options": options});
    let tool = match agent {
        Agent::Claude => {
            question["multiSelect"] = Value::from(false);
            "AskUserQuestion"
        }
        _ => {
            question["id"] = Value::from("colour");
            "request_user_input"
        }
    };
    let input = json!({"questions": [question]});
    let Some(place) = Place::new(agent, &format!("call {tool} {input}\nsay Thank you.")) else {
        return;
    };
    let task = place.start("Please ask.", &[]);
    place.world.reaches(&task, "BLOCKED");
    assert_eq!(place.world.cell("SELECT variant FROM tasks"), "held");
    let shown = place.world.belay(&["show", &task]).done().out;
    assert!(shown.contains("Which colour?") && shown.contains("teal"), "{shown}");
    // The server may fall meanwhile: the agent waits on.
    place.world.crash();
    place.world.up();
    place.world.belay(&["answer", &task, "teal"]).done();
    place.world.reaches(&task, "READY");
    assert_eq!(place.world.attempts(&task).len(), 1, "it was held, not begun again");
    let heard = |request: &belay_model_server::Request| request.body.to_string().contains("teal");
    let last = place.model.requests().into_iter().rfind(|request| request.scripted).unwrap();
    assert!(heard(&last), "the model was told the answer: {}", last.body);
}

#[test]
fn claude_asks_and_is_answered() {
    asks_and_is_answered(Agent::Claude);
}

#[test]
fn codex_asks_and_is_answered() {
    asks_and_is_answered(Agent::Codex);
}

/// A line of a script: the agent calls one of Belay's own tools.
fn own_tool(agent: Agent, tool: &str, input: &Value) -> String {
    match agent {
        Agent::Claude => format!("call mcp__belay__{tool} {input}\n"),
        Agent::Codex => format!("call mcp__belay/{tool} {input}\n"),
        Agent::Gemini => format!("call mcp_belay_{tool} {input}\n"),
        Agent::OpenCode => format!("call belay_{tool} {input}\n"),
        Agent::Copilot => format!("call belay-{tool} {input}\n"),
    }
}

/// Some agents connect to their servers in the background: they are kept busy until their model is
/// offered Belay's tools. No two commands are the same, which could be taken for a loop.
fn busy(agent: Agent) -> String {
    (0..300).map(|turn| Place::shell(agent, &format!("sleep 0.2; : {turn}"))).collect()
}

/// The agent asks by Belay's tool, is answered by a server that fell meanwhile, tells how far it is
/// and hands in a result.
fn asks_by_mcp(agent: Agent) {
    let asked = json!({"question": "Which colour?", "options": ["red", "teal"]});
    let asks = if agent == Agent::Gemini { "ask_person" } else { "ask_user" };
    let script = own_tool(agent, "report_progress", &json!({"message": "Halfway.", "percent": 50}))
        + &own_tool(agent, asks, &asked)
        + &own_tool(agent, "submit_result", &json!({"result": "# Painted\n\nIn teal."}))
        + "say Thank you.";
    let begins = if agent == Agent::OpenCode { busy(agent) } else { script.clone() };
    let Some(place) = Place::new(agent, &begins) else { return };
    let task = place.start("Please ask.", &[]);
    if agent == Agent::OpenCode {
        let offered = |request: &belay_model_server::Request| {
            request.scripted && request.body["tools"].to_string().contains("belay_submit_result")
        };
        assert!(place.model.wait_for(PATIENCE, offered), "the model is offered Belay's tools");
        place.model.set_script(script.parse().unwrap());
    }
    place.world.reaches(&task, "BLOCKED");
    assert_eq!(place.world.cell("SELECT variant FROM tasks"), "held");
    let shown = place.world.belay(&["show", &task]).done().out;
    assert!(shown.contains("50 %: Halfway.") && shown.contains("Which colour?"), "{shown}");
    place.world.crash();
    place.world.up();
    place.world.belay(&["answer", &task, "2"]).done();
    place.world.reaches(&task, "READY");
    assert_eq!(place.world.attempts(&task).len(), 1, "it was held, not begun again");
    let requests = place.model.requests();
    let heard = |request: &&belay_model_server::Request| {
        request.scripted && request.body.to_string().contains("The person answers: teal")
    };
    assert!(requests.iter().any(|request| heard(&request)), "the model was told the answer");
    assert_eq!(place.world.cell("SELECT count(*) FROM questions"), "1");
    let shown = place.world.belay(&["show", &task]).done().out;
    assert!(shown.trim_end().ends_with("# Painted\n\nIn teal."), "{shown}");
    // The token is in the environment alone: in no argument, and in no file of the agent's home.
    let home = place.world.data().join("runner/sessions");
    let mut grep = std::process::Command::new("grep");
    grep.args(["-rlF", "belay_attempt_", "--include=*.json", "--include=*.toml"]).arg(&home);
    let found = crate::world::run(&mut grep);
    let leaks = found.out.lines().filter(|path| path.contains("/home/")).count();
    assert_eq!(leaks, 0, "{}", found.out);
}

#[test]
fn claude_asks_by_mcp() {
    asks_by_mcp(Agent::Claude);
}

#[test]
fn codex_asks_by_mcp() {
    asks_by_mcp(Agent::Codex);
}

#[test]
fn gemini_asks_by_mcp() {
    asks_by_mcp(Agent::Gemini);
}

#[test]
fn opencode_asks_by_mcp() {
    asks_by_mcp(Agent::OpenCode);
}

#[test]
fn copilot_asks_by_mcp() {
    asks_by_mcp(Agent::Copilot);
}

fn is_stopped_in_flight(agent: Agent) {
    let daemon =
        "( setsid sh -c 'trap \"\" TERM; sleep 1000' & ); echo begun > made.txt; sleep 900";
    let Some(place) = Place::new(agent, &Place::shell(agent, daemon)) else { return };
    let refs = place.world.refs("repo");
    let task = place.start("Please take long.", &[]);
    let words = |text: &str| place.world.sandboxed().iter().any(|s| s.words.starts_with(text));
    wait_for("its tool runs", || words("sleep 900") && words("sleep 1000"));
    let receipt = place.world.belay(&["stop", &task]).done().out;
    place.world.nothing_runs();
    assert!(receipt.contains("not pushed") && receipt.contains("seen to be gone"), "{receipt}");
    assert!(place.world.belay(&["diff", &task]).done().out.contains("+begun"));
    assert_eq!(place.world.refs("repo"), refs);
    let asked = place.model.requests().len();
    let spoke = place.model.wait_for(Duration::from_millis(300), |_| false);
    assert!(!spoke && place.model.requests().len() == asked, "nobody speaks to the model any more");
}

#[test]
fn claude_is_stopped_in_flight() {
    is_stopped_in_flight(Agent::Claude);
}

#[test]
fn codex_is_stopped_in_flight() {
    is_stopped_in_flight(Agent::Codex);
}

fn stays_and_goes_on(agent: Agent) {
    let script = Place::shell(agent, "echo one >> made.txt") + "say First.";
    let Some(place) = Place::new(agent, &script) else { return };
    let task = place.start("The first thing.", &["--keep-alive"]);
    place.world.reaches(&task, "READY");
    let kept = || place.world.cell("SELECT coalesce(kept, '') FROM sessions");
    wait_for("the agent is frozen", || kept() == "frozen");
    let before = place.world.agent(&task);
    let more = Place::shell(agent, "echo two >> made.txt") + "say Second.";
    place.model.set_script(more.parse().unwrap());
    place.world.belay(&["reject", &task, "Now the second thing.", "--run"]).done();
    wait_for("a second attempt", || place.world.attempts(&task).len() == 2);
    place.world.reaches(&task, "READY");
    wait_for("the agent is frozen again", || kept() == "frozen");
    let after = place.world.agent(&task);
    assert_eq!((before.pid, before.started), (after.pid, after.started), "the same process");
    let made = place.world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert_eq!(made, "one\ntwo");
    let used = "SELECT count(*) FROM attempts WHERE input_tokens > 0 AND output_tokens > 0";
    assert_eq!(place.world.cell(used), "2", "each has used something of its own");
    let receipt = place.world.belay(&["stop", &task]).done().out;
    assert!(receipt.contains("seen to be gone"), "{receipt}");
    place.world.nothing_runs();
}

#[test]
fn claude_stays_and_goes_on() {
    stays_and_goes_on(Agent::Claude);
}

#[test]
fn codex_stays_and_goes_on() {
    stays_and_goes_on(Agent::Codex);
}

#[test]
fn claude_goes_on_with_its_conversation() {
    let script = Place::shell(Agent::Claude, "echo one >> made.txt") + "say First.";
    let Some(place) = Place::new(Agent::Claude, &script) else { return };
    let task = place.start("The first thing.", &[]);
    place.world.reaches(&task, "READY");
    place.world.settles(&task);
    let more = Place::shell(Agent::Claude, "echo two >> made.txt") + "say Second.";
    place.model.set_script(more.parse().unwrap());
    let before = place.model.requests().len();
    place.world.belay(&["reject", &task, "Now the second thing.", "--run"]).done();
    wait_for("a second attempt", || place.world.attempts(&task).len() == 2);
    place.world.reaches(&task, "READY");
    let made = place.world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert_eq!(made, "one\ntwo");
    let second: Vec<_> = place.model.requests().split_off(before);
    let told = second.iter().find(|request| request.scripted).unwrap().body.to_string();
    assert!(told.contains("Now the second thing.") && told.contains("The first thing."), "{told}");
}
