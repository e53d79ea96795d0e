//! `belay mcp` on standard input and output, with a real MCP client: an assistant gives a task and
//! tends it; a server that is not up, or falls, is said so and found again.

use std::path::Path;
use std::process::Stdio;

use belay_model_server::clis;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::{ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;

use crate::scripted::Scripted;
use crate::world::{QUICK, World, run, wait_for};

/// An assistant with its own `belay mcp`.
struct Assistant {
    runtime: Runtime,
    service: RunningService<RoleClient, ()>,
    child: Child,
}

impl Assistant {
    fn new(world: &World, words: &[&str]) -> Self {
        Self::started_as(world, &[&["mcp"], words].concat())
    }

    /// One that starts `belay` with these words.
    fn started_as(world: &World, words: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let (service, child) = runtime.block_on(async {
            let mut command = Command::from(world.cli(words));
            let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = pipes.spawn().unwrap();
            let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
            (().serve(pipes).await.unwrap(), child)
        });
        Self { runtime, service, child }
    }

    fn tools(&self) -> Vec<String> {
        let tools = self.runtime.block_on(self.service.list_all_tools()).unwrap();
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// Calls a tool: what it says, and whether that is an error.
    fn call(&self, tool: &'static str, arguments: &Value) -> Result<(Value, bool), ServiceError> {
        let arguments = arguments.as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.runtime.block_on(self.service.call_tool(call))?;
        Ok((result.structured_content.unwrap_or_default(), result.is_error == Some(true)))
    }

    #[track_caller]
    fn done(&self, tool: &'static str, arguments: Value) -> Value {
        let (said, wrong) = self.call(tool, &arguments).unwrap();
        assert!(!wrong, "{tool}: {said}");
        said
    }

    #[track_caller]
    fn refused(&self, tool: &'static str, arguments: Value) -> Value {
        let (said, wrong) = self.call(tool, &arguments).unwrap();
        assert!(wrong, "{tool}: {said}");
        said["code"].clone()
    }

    /// The client goes, and the program with it.
    fn leaves(mut self) {
        self.runtime.block_on(async {
            self.service.cancel().await.unwrap();
            assert!(self.child.wait().await.unwrap().success());
        });
    }
}

/// A world in which an agent named `claude` is installed that does what it is told.
fn with_claude(script: &Scripted) -> (World, tempfile::TempDir) {
    let programs = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let key = ("ANTHROPIC_API_KEY", "sk-scripted-key");
    let world = World::with(QUICK, &[("PATH", &path), key]);
    script.install(&programs.path().join("claude"));
    (world, programs)
}

#[test]
fn an_assistant_gives_a_task_answers_its_question_and_accepts_its_work() {
    let asks = Scripted::claude().asks("Which colour?", "made.txt").succeeds();
    let (world, _programs) = with_claude(&asks);
    world.up();
    let assistant = Assistant::new(&world, &[]);
    assert_eq!(assistant.tools().len(), 8);
    let made = assistant.done("create_task", json!({"prompt": "-", "title": "Paint it"}));
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(made["repository"], json!(world.path("repo").canonicalize().unwrap()));
    world.reaches(&id, "BLOCKED");
    let shown = assistant.done("get_task", json!({"task": &id[..6]}));
    assert_eq!(shown["questions"][0]["text"], "Which colour?");
    assert_eq!(assistant.refused("accept_task", json!({"task": id})), "illegal_move");
    assistant.done("answer_question", json!({"task": id, "answer": "teal"}));
    world.reaches(&id, "READY");
    let listed = assistant.done("list_tasks", json!({"states": ["READY"]}));
    assert_eq!(listed["tasks"][0]["title"], "Paint it");
    assistant.done("reject_task", json!({"task": id, "comment": "Paler."}));
    assert_eq!(world.state(&id), "PENDING");
    assert_eq!(assistant.done("stop_task", json!({"task": id}))["standing"], "stopped");
    let next = assistant.done("continue_task", json!({"task": id, "message": "Now red."}));
    assert_eq!(next["continues"], json!(id));
    assistant.done("stop_task", json!({"task": next["id"]}));
    assert_eq!(assistant.refused("get_task", json!({"task": "zzzz"})), "not_found");
    assistant.leaves();
}

/// What a page tells people to put into their assistant's configuration.
fn told_to_copy(page: &str) -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&page).unwrap();
    let blocks = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.contains("mcpServers"));
    let block = block.unwrap_or_else(|| panic!("{} says nothing", page.display()));
    assert!(block.lines().count() <= 4, "it is short enough to be copied: {block}");
    serde_json::from_str(block).unwrap()
}

#[test]
fn what_people_are_told_to_copy_makes_an_assistant_give_tasks() {
    let (world, _programs) = with_claude(&Scripted::claude().succeeds());
    world.up();
    for page in ["README.md", "docs/mcp.md"] {
        let server = told_to_copy(page)["mcpServers"]["belay"].clone();
        let built = Path::new(env!("CARGO_BIN_EXE_belay")).file_name().unwrap();
        assert_eq!(server["command"].as_str(), built.to_str(), "{page} names this program");
        let words: Vec<_> =
            server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let assistant = Assistant::started_as(&world, &words);
        assert!(assistant.tools().contains(&"create_task".to_owned()), "{page}");
        let made = assistant.done("create_task", json!({"prompt": "Mend it.", "title": page}));
        world.reaches(made["id"].as_str().unwrap(), "READY");
        assistant.leaves();
    }
}

#[test]
fn a_server_that_is_not_up_is_said_so_and_found_when_it_is() {
    let world = World::quiet(QUICK);
    let assistant = Assistant::new(&world, &[]);
    assert_eq!(assistant.refused("list_tasks", json!({})), "unavailable");
    assert!(!world.data().join("server.json").exists(), "nothing is started by itself");
    world.up();
    assistant.done("list_tasks", json!({}));
    world.crash();
    world.up();
    assistant.done("list_tasks", json!({}));
    assistant.leaves();
}

#[test]
fn a_server_is_started_where_that_is_asked_for() {
    let world = World::quiet(QUICK);
    let assistant = Assistant::new(&world, &["--start"]);
    assistant.done("list_tasks", json!({}));
    assistant.leaves();
    world.belay(&["down"]).done();
    wait_for("the server is gone", || !world.data().join("server.json").exists());
}

#[test]
fn the_official_sdk_speaks_it_too_over_both_ways() {
    if std::env::var_os(clis::SKIP).is_some() {
        return;
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let script = clis::install_mcp_client(base).unwrap_or_else(|error| panic!("{error}"));
    let world = World::new(QUICK);
    let server = std::fs::read(world.data().join("server.json")).unwrap();
    let server: Value = serde_json::from_slice(&server).unwrap();
    let url = format!("{}/mcp", server["url"].as_str().unwrap());
    let token = std::fs::read_to_string(world.data().join("token")).unwrap();
    let belay = env!("CARGO_BIN_EXE_belay");
    for words in [vec!["stdio", belay, "mcp"], vec!["http", &url, token.trim()]] {
        let mut node = std::process::Command::new("node");
        node.arg(&script).args(&words).env("BELAY_DATA_DIR", world.data());
        let said = run(&mut node).json();
        assert_eq!(said["tools"].as_array().unwrap().len(), 8, "{said}");
        assert_eq!((&said["tasks"], &said["bad"]), (&json!(0), &json!(true)), "{said}");
        assert_eq!((&said["server"], &said["refused"]), (&json!("belay"), &json!("not_found")));
    }
}

#[test]
fn an_agents_own_tools_need_an_attempts_token() {
    let world = World::new(QUICK);
    let assistant = Assistant::new(&world, &[]);
    let answer = assistant.call("ask_user", &json!({"question": "Which?"}));
    let Err(ServiceError::McpError(error)) = answer else { panic!("{answer:?}") };
    assert!(error.message.contains("attempt"), "{error}");
    assistant.leaves();
}
