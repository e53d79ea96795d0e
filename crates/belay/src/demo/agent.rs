//! The demo's agent: a plain command that works, asks, crashes, hangs, idles and runs away, each on
//! its word. It prints what any command may print, one JSON object a line, and does it for real.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use belay_api::{Client, NewTask, Publishing};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::DemoAgent;
use crate::fault::{Exit, Fault};
use crate::screen::put;
use crate::times::now;

/// What each report of usage adds.
const TOKENS_A_STEP: u64 = 3_000;
/// The code with which the crash exits.
const CRASH: i32 = 70;

/// Plays a scenario.
pub(crate) async fn agent(agent: &DemoAgent) -> Result<Exit, Fault> {
    let file = |error: std::io::Error| Fault::failed(format!("a file of the tree: {error}"));
    match agent.scenario.as_str() {
        "success" => edit("NOTES.md", "The demo was here.\n").map_err(file)?,
        "question" => ask_once().map_err(file)?,
        "subtasks" => hand_out(&agent.mark).await?,
        "part" => {
            let path = format!("part-{}.md", variable("BELAY_TASK_ID"));
            edit(&path, "A part.\n").map_err(file)?;
        }
        "chain" => edit("chain.md", "A link.\n").map_err(file)?,
        "crash" => {
            if variable("BELAY_ATTEMPT") == "1" {
                edit("halves.md", "The first half.\n").map_err(file)?;
                print("agent.error", json!({ "text": "something went wrong; exiting" }));
                std::process::exit(CRASH);
            }
            edit("halves.md", "The other half.\n").map_err(file)?;
        }
        "hang" => {
            edit("before.md", "Done before the hang.\n").map_err(file)?;
            std::future::pending::<()>().await;
        }
        "idle" => repeat("agent.heartbeat", || json!({ "status": "idle" })).await,
        "stuck" => repeat("agent.thinking", || json!({ "text": "let me think again" })).await,
        "stop" => run_away(&agent.mark).await?,
        "daemon" => live_on().await?,
        "budget" => {
            let mut used = 0;
            repeat("agent.usage", move || {
                used += TOKENS_A_STEP;
                json!({ "input_tokens": used, "output_tokens": 0 })
            })
            .await;
        }
        other => return Err(Fault::usage(format!("`{other}` is not a scenario of the demo"))),
    }
    print("agent.assistant_message", json!({ "text": "done" }));
    Ok(Exit::Done)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Prints an event, with the time at which it happened.
fn print(kind: &str, mut body: Value) {
    body["type"] = json!(kind);
    body["at_ms"] = json!(now().as_millis());
    put(format!("{body}\n").as_bytes());
}

/// Does the same again and again, and never ends.
async fn repeat(kind: &str, mut body: impl FnMut() -> Value) {
    loop {
        print(kind, body());
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

/// Adds to a file of the tree, as a tool call.
fn edit(path: &str, text: &str) -> std::io::Result<()> {
    print("agent.tool_use", json!({ "id": path, "name": "edit", "input": { "path": path } }));
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(text.as_bytes())?;
    print("agent.file_edited", json!({ "path": path }));
    print("agent.tool_result", json!({ "id": path, "text": "written" }));
    Ok(())
}

/// Asks, unless the prompt holds the answer.
fn ask_once() -> std::io::Result<()> {
    let prompt = fs::read_to_string(variable("BELAY_PROMPT_FILE"))?;
    if let Some((_, answer)) = prompt.rsplit_once("The answer: ") {
        return edit("colour.md", answer.lines().next().unwrap_or_default());
    }
    let question = json!({ "text": "Which colour?", "options": ["red", "blue"] });
    fs::write(variable("BELAY_QUESTION_FILE"), question.to_string())
}

/// Makes two subtasks with its own token; they work on its own repository.
async fn hand_out(mark: &str) -> Result<(), Fault> {
    let client = Client::new(&variable("BELAY_URL"), &variable("BELAY_TOKEN"));
    let program = std::env::current_exe().map_err(|error| Fault::failed(error.to_string()))?;
    let program = program.display().to_string();
    for _ in 0..2 {
        let part = NewTask {
            prompt: "Write a part.".to_owned(),
            command: [&*program, "demo-agent", "part", mark].map(str::to_owned).to_vec(),
            publish: Publishing::None,
            ..NewTask::default()
        };
        let made = client.create(&part, None).await?;
        let text = format!("made subtask {}", made.summary.id);
        print("agent.assistant_message", json!({ "text": text }));
    }
    Ok(())
}

/// Starts two daemons that want to outlive everything, and works on.
async fn run_away(mark: &str) -> Result<(), Fault> {
    let wrong = |error: std::io::Error| Fault::failed(format!("a daemon: {error}"));
    let program = std::env::current_exe().map_err(wrong)?;
    edit("before.md", "Done before the stop.\n").map_err(wrong)?;
    for _ in 0..2 {
        let mut daemon = Command::new(&program);
        daemon.args(["demo-agent", "daemon", mark]).stdin(Stdio::null()).stdout(Stdio::null());
        daemon.stderr(Stdio::null()).spawn().map_err(wrong)?;
    }
    repeat("agent.tool_use", || json!({ "name": "make", "input": "all" })).await;
    Ok(())
}

/// A session of its own, deaf to every polite signal.
async fn live_on() -> Result<(), Fault> {
    // Fails only for a process that leads a group already, and then it has one of its own.
    let _ = rustix::process::setsid();
    let wrong = |error: std::io::Error| Fault::failed(format!("a signal: {error}"));
    let (mut terminate, mut hang_up, mut interrupt) = (
        signal(SignalKind::terminate()).map_err(wrong)?,
        signal(SignalKind::hangup()).map_err(wrong)?,
        signal(SignalKind::interrupt()).map_err(wrong)?,
    );
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
