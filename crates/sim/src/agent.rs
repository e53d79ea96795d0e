//! Agents: scripts drawn from the seed, in the words of Claude Code or of a plain command.
//!
//! They do what agents were seen to do: work steadily, in bursts or silently; crash, hang, say that
//! they are done and stay or go on, exit without having said anything, ask and wait, ask by file
//! and leave, print a flood, lie about how they are, meet their usage limit, make subtasks, ignore
//! polite signals, leave processes behind that are hard to reach, and speak with a token that is
//! not theirs any more.

use std::sync::Arc;
use std::time::Duration;

use belay_api::port::Who;
use belay_kernel::{SandboxId, Timestamp};
use belay_sandbox::{Exit, Plan, Stream};
use serde_json::json;

use crate::ghost;
use crate::machine::{Kin, Machine};
use crate::rng::Rng;

/// What standard input has for every turn of a conversation.
const TOLD: &str = "\"type\":\"user\"";

/// How far away a limit may be that an agent works to.
const PATIENT_MS: u64 = 480_000;

/// One thing that an agent does.
#[derive(Clone, Debug)]
enum Act {
    Print(Stream, String),
    Wait(u64),
    Edit,
    /// Asks by its own tool, and waits for the answer for as long as it takes.
    Ask(String),
    /// Writes a file that its environment names.
    Write(&'static str, String),
    Fork(Kin, bool),
    /// Asks for a subtask with its attempt's token.
    Subtask,
    /// Works until its attempt's limit is as near as this, or as far behind, if that is soon.
    WorkToTheLimit(i64),
    /// Its token goes on being used, after its attempt is over.
    Haunt,
    Exit(Exit),
}

/// What an agent does.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// In a few words, for the trace.
    pub(crate) name: String,
    pub(crate) ignores_term: bool,
    /// Whether it stays when it is done, until its standard input is closed: somebody may have more
    /// for it to do.
    stays: bool,
    acts: Vec<Act>,
}

/// Where an agent finds itself.
pub(crate) struct Setting<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) now: Timestamp,
    /// How often its account is used up, out of a thousand.
    pub(crate) usage_limits: u64,
    /// Whether its task asks for its sandbox to be kept.
    pub(crate) is_kept: bool,
    /// How often it was told to go on before.
    pub(crate) turn: u64,
}

/// Draws what the agent of a sandbox does.
pub(crate) fn compose(rng: &mut Rng, setting: &Setting<'_>) -> Script {
    let plan = setting.plan;
    let is_claude = plan.argv.first().is_some_and(|program| program.ends_with("claude"));
    let after = |flag: &str| {
        let at = plan.argv.iter().position(|word| word == flag)?;
        plan.argv.get(at + 1).cloned()
    };
    let conversation = after("--session-id").or_else(|| after("--resume")).unwrap_or_default();
    let (acts, names) = (Vec::new(), Vec::new());
    let mut draft = Draft { rng, is_claude, acts, names, count: 0, turn: setting.turn };
    draft.begin(&conversation);
    draft.leave_processes();
    draft.work();
    draft.speak();
    match is_claude && draft.rng.permille(setting.usage_limits) {
        true => draft.meet_limit(setting.now),
        false => draft.close(),
    }
    let (acts, names) = (draft.acts, draft.names);
    let ignores_term = rng.permille(200);
    let deaf = if ignores_term { " (ignores TERM)" } else { "" };
    let dialect = if is_claude { "claude" } else { "command" };
    let name = format!("{dialect}, {}{deaf}", names.join(", "));
    Script { name, ignores_term, stays: is_claude && setting.is_kept, acts }
}

struct Draft<'a> {
    rng: &'a mut Rng,
    is_claude: bool,
    acts: Vec<Act>,
    names: Vec<&'static str>,
    count: u64,
    turn: u64,
}

impl Draft<'_> {
    fn print(&mut self, line: &serde_json::Value) {
        self.acts.push(Act::Print(Stream::Stdout, format!("{line}\n")));
    }

    fn begin(&mut self, conversation: &str) {
        if self.rng.permille(60) {
            let ms = self.rng.between(1_000, 150_000);
            self.acts.push(Act::Wait(ms));
        }
        if self.is_claude {
            self.print(&json!({
                "type": "system", "subtype": "init", "session_id": conversation, "model": "m",
            }));
        }
    }

    fn leave_processes(&mut self) {
        for (kin, chance, name) in [(Kin::Child, 250, "children"), (Kin::Escapee, 200, "escapee")] {
            if self.rng.permille(chance) {
                let heeds_term = self.rng.permille(500);
                self.acts.push(Act::Fork(kin, heeds_term));
                self.names.push(name);
            }
        }
    }

    fn say(&mut self) {
        self.count += 1;
        let text = format!("step {} of {:08x}", self.count, self.rng.next() as u32);
        let line = match (self.is_claude, self.rng.below(4)) {
            (true, 0) => json!({"type": "user", "message": {"content": [
                {"type": "tool_result", "tool_use_id": format!("t{}", self.count - 1)},
            ]}}),
            (true, 1) => json!({"type": "assistant", "message": {"content": [
                {"type": "tool_use", "id": format!("t{}", self.count), "name": "Bash", "input": {}},
            ]}}),
            (true, _) => {
                let said = json!({"type": "text", "text": text});
                json!({"type": "assistant", "message": {"content": [said]}})
            }
            (false, 0) => json!({
                "type": "agent.usage", "input_tokens": self.count * 100, "output_tokens": 7,
                "cost_usd": self.count as f64 * 0.01,
            }),
            (false, 1) => match self.rng.below(6) {
                0 => self.lie(),
                _ => json!({"type": "agent.tool_use", "id": "x", "name": "make"}),
            },
            (false, _) => {
                self.acts.push(Act::Print(Stream::Stdout, format!("{text}\n")));
                return;
            }
        };
        self.print(&line);
        if self.rng.permille(100) {
            self.acts.push(Act::Print(Stream::Stderr, format!("warning: {text}\n")));
        }
    }

    /// Something that is not so.
    fn lie(&mut self) -> serde_json::Value {
        self.names.push("lies");
        match self.rng.below(12) {
            0 => json!({"type": "agent.heartbeat", "status": "failed"}),
            1..4 => json!({"type": "agent.heartbeat", "status": "idle"}),
            4..6 => json!({"type": "agent.heartbeat", "status": "degraded"}),
            6..9 => json!({"type": "agent.completed"}),
            _ => json!({"type": "agent.usage", "input_tokens": 1, "cost_usd": -3.0}),
        }
    }

    fn work(&mut self) {
        let (steps, least, most) = match self.rng.below(6) {
            0 => (self.rng.between(5, 30), 0, 50),
            1 => (self.rng.between(1, 4), 30_000, 100_000),
            2 => (self.rng.between(20, 120), 500, 9_000),
            _ => (self.rng.between(2, 15), 100, 12_000),
        };
        self.names.push(match least {
            0 => "bursty",
            30_000 => "silent",
            _ => "steady",
        });
        for _ in 0..steps {
            self.say();
            let ms = self.rng.between(least, most);
            self.acts.push(Act::Wait(ms));
            if self.rng.permille(250) {
                self.acts.push(Act::Edit);
            }
            if self.rng.permille(8) {
                let ms = self.rng.between(0, 40_000);
                self.acts.extend([Act::Wait(ms), Act::Exit(Exit::Signal(11))]);
                self.names.push("crashes");
                return;
            }
        }
        if self.rng.permille(60) {
            self.names.push("floods");
            for number in 0..self.rng.between(200, 2_000) {
                self.acts.push(Act::Print(Stream::Stdout, format!("{number:0>120}\n")));
            }
        }
        if self.is_claude && self.rng.permille(200) {
            self.ask();
        }
    }

    fn ask(&mut self) {
        self.names.push("asks and waits");
        let id = match self.turn {
            0 => format!("ask-{}", self.count),
            turn => format!("ask-{turn}-{}", self.count),
        };
        self.print(&json!({
            "type": "control_request", "request_id": id,
            "request": {"subtype": "can_use_tool", "tool_name": "AskUserQuestion",
                "tool_use_id": format!("q{}", self.count),
                "input": {"questions": [{"question": "Which?", "options": [
                    {"label": "this"}, {"label": "that"}]}]}},
        }));
        self.acts.push(Act::Ask(id));
        self.print(&json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": format!("q{}", self.count)},
        ]}}));
        for _ in 0..self.rng.between(1, 6) {
            self.say();
            let ms = self.rng.between(100, 6_000);
            self.acts.push(Act::Wait(ms));
        }
    }

    /// With its token: for subtasks, and by whoever has it later.
    fn speak(&mut self) {
        if self.rng.permille(50) {
            self.names.push("asks for a subtask");
            self.acts.push(Act::Subtask);
        }
        if self.rng.permille(100) {
            self.names.push("haunts");
            self.acts.push(Act::Haunt);
        }
    }

    /// Its account is used up, until then or nobody knows when.
    fn meet_limit(&mut self, now: Timestamp) {
        self.names.push("meets its limit");
        let known = self.rng.permille(700);
        let seconds =
            now.as_millis() / 1_000 + i64::try_from(self.rng.between(10, 2_400)).unwrap_or(60);
        self.print(&json!({
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "rejected", "resetsAt": known.then_some(seconds)},
        }));
        self.print(&json!({
            "type": "result", "subtype": "success", "is_error": true, "num_turns": 1,
            "result": "You've hit your limit", "api_error_status": 429,
            "total_cost_usd": 0.01, "usage": {"input_tokens": 90, "output_tokens": 8},
        }));
        self.acts.push(Act::Exit(Exit::Code(1)));
    }

    /// Says how it went.
    fn conclude(&mut self, failed: bool) {
        self.print(&json!({
            "type": "result", "subtype": "success", "is_error": failed, "num_turns": 3,
            "result": if failed { "API Error" } else { "Done." },
            "api_error_status": if failed { Some(500) } else { None },
            "total_cost_usd": 0.04, "usage": {"input_tokens": 900, "output_tokens": 80},
        }));
    }

    /// Was done, and goes on all the same; then it is done again.
    fn go_on(&mut self) {
        self.names.push("resumes after completion");
        let ms = self.rng.between(100, 14_000);
        self.acts.push(Act::Wait(ms));
        for _ in 0..self.rng.between(1, 6) {
            self.say();
            let ms = self.rng.between(100, 6_000);
            self.acts.extend([Act::Wait(ms), Act::Edit]);
        }
        if self.is_claude {
            self.conclude(false);
        }
    }

    fn close(&mut self) {
        if self.rng.permille(150) {
            self.names.push("works to its limit");
            let ms = i64::try_from(self.rng.below(1_200)).unwrap_or(0) - 400;
            self.acts.push(Act::WorkToTheLimit(ms));
        }
        if self.rng.permille(700) {
            self.acts.push(Act::Edit);
        }
        if self.rng.permille(120) {
            let text = r#"{"text": "Wood or wire?", "options": ["wood", "wire"]}"#.to_owned();
            self.acts.push(Act::Write("BELAY_QUESTION_FILE", text));
            self.names.push("asks by file");
        } else if self.rng.permille(300) {
            self.acts.push(Act::Write("BELAY_SUMMARY_FILE", "Mended it.".to_owned()));
        }
        let draw = self.rng.below(100);
        if draw < 4 {
            self.names.push("hangs");
            return;
        }
        if self.is_claude && !(4..8).contains(&draw) {
            let failed = (8..14).contains(&draw);
            self.conclude(failed);
            if failed {
                self.names.push("fails");
            }
        }
        match draw {
            14..20 => self.names.push("stays"),
            20..26 => {
                self.names.push("exits badly");
                self.acts.push(Act::Exit(Exit::Code(1)));
            }
            26..34 => {
                self.go_on();
                self.acts.push(Act::Exit(Exit::Code(0)));
            }
            _ => self.acts.push(Act::Exit(Exit::Code(0))),
        }
    }
}

/// Lives in its sandbox until its script ends it, or somebody does.
pub(crate) async fn live(machine: Arc<Machine>, id: SandboxId, script: Script) {
    let (mut script, mut turn) = (script, 0);
    loop {
        let Some(exit) = act(&machine, id, script.acts).await else { break };
        turn += 1;
        let more = match exit == Exit::Code(0) && script.stays {
            true => listen(&machine, id, turn).await,
            false => None,
        };
        match more {
            Some(more) => script = more,
            None => return machine.exited(id, exit),
        }
    }
    // One that hangs or stays does nothing for ever.
    std::future::pending::<()>().await;
}

/// Waits until there is more to do; nothing, if there will not be.
async fn listen(machine: &Arc<Machine>, id: SandboxId, turn: u64) -> Option<Script> {
    let (.., mut changed) = machine.lives_in(id)?;
    loop {
        let (told, is_closed) = {
            let inside = machine.inside();
            let sandbox = inside.boxes.get(&id)?;
            let told = String::from_utf8_lossy(&sandbox.stdin).matches(TOLD).count();
            (told as u64, sandbox.stdin_closed)
        };
        match (machine.is_frozen(id), told > turn, is_closed) {
            (false, true, _) => return machine.next_script(id, turn),
            (false, false, true) => return None,
            (true, ..) | (false, false, false) => changed.changed().await.ok()?,
        }
    }
}

/// Does what it does; how it exits, if it does.
async fn act(machine: &Arc<Machine>, id: SandboxId, acts: Vec<Act>) -> Option<Exit> {
    let (session, _, env, mut changed) = machine.lives_in(id)?;
    for act in acts {
        while machine.is_frozen(id) {
            changed.changed().await.ok()?;
        }
        match act {
            Act::Print(stream, text) => machine.print(id, stream, text.as_bytes()),
            Act::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Act::Edit => machine.remote.edit(machine.number, session),
            Act::Subtask => {
                if let Some(token) = env.get("BELAY_TOKEN") {
                    ghost::ask_for_subtask(&machine.net, token).await;
                }
            }
            Act::Haunt => {
                let (_, who, ..) = machine.lives_in(id)?;
                tokio::spawn(ghost::haunt(Arc::clone(&machine.net), who));
            }
            Act::WorkToTheLimit(ms) => {
                let (_, who, ..) = machine.lives_in(id)?;
                work_to_the_limit(machine, id, who, ms).await;
            }
            Act::Fork(kin, heeds_term) => machine.fork(id, kin, heeds_term),
            Act::Write(name, text) => {
                if let Some(path) = env.get(name) {
                    let _ = std::fs::write(path, text);
                }
            }
            Act::Ask(request) => {
                let needle = format!("\"request_id\":\"{request}\"");
                let is_answered = || {
                    let inside = machine.inside();
                    let stdin = inside.boxes.get(&id).map(|sandbox| &sandbox.stdin[..]);
                    String::from_utf8_lossy(stdin.unwrap_or_default()).contains(&needle)
                };
                while !is_answered() {
                    changed.changed().await.ok()?;
                }
            }
            Act::Exit(exit) => return Some(exit),
        }
    }
    None
}

/// Works on, and says so, until the attempt's deadline is near or just over.
async fn work_to_the_limit(machine: &Arc<Machine>, id: SandboxId, who: Who, ms: i64) {
    let deadline = machine.net.oracle().and_then(|oracle| oracle.deadline(who));
    let Some(deadline) = deadline else { return };
    loop {
        let left = deadline.as_millis() + ms - machine.sim.now().as_millis();
        let Ok(left @ 1..=PATIENT_MS) = u64::try_from(left) else { return };
        tokio::time::sleep(Duration::from_millis(left.min(20_000))).await;
        machine.print(id, Stream::Stdout, b"still at it\n");
    }
}
