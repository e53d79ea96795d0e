//! `--keep-alive`: an agent that has done its part is frozen, and the same process goes on when
//! more is asked of it, also after the server was killed; a stop or a removal ends it.

use std::fs;
use std::path::Path;

use crate::processes::{self, Seen};
use crate::scripted::Scripted;
use crate::world::{QUICK, World, wait_for};

/// An agent that takes turns, and counts them in its own memory: another process would begin anew.
fn counting() -> Scripted {
    let result = serde_json::json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "Done.",
        "session_id": "6f2c1f0e-0000-4000-8000-000000000001", "total_cost_usd": 0.01,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    });
    Scripted::claude().does(&format!(
        "count=1\nwhile :; do echo \"$count $told\" > count.txt; echo '{result}'\n\
         read -r told || exit 0; count=$((count + 1)); done"
    ))
}

/// The agent's process, which is there although its task rests.
#[track_caller]
fn kept(world: &World, task: &str) -> Seen {
    wait_for("the session is paused", || session(world, task) == "paused frozen");
    let agent = world.agent(task);
    assert!(is_frozen(agent.pid), "{agent:?} is frozen");
    agent
}

/// A session's state, and what it resumes from.
fn session(world: &World, task: &str) -> String {
    world.cell(&format!(
        "SELECT s.state || ' ' || coalesce(s.kept, '') FROM sessions s JOIN tasks t \
         ON t.session = s.id WHERE t.id = '{task}'"
    ))
}

/// How probes of sandboxes went.
fn probes(world: &World) -> Vec<Vec<String>> {
    world.rows("SELECT body FROM events WHERE kind = 'sandbox.probed' ORDER BY number")
}

/// Whether the kernel says that a process is in a cgroup that is frozen.
fn is_frozen(pid: i32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(group) = unified else { return false };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|mount| {
        let events = Path::new(mount).join(group.trim_start_matches('/')).join("cgroup.events");
        fs::read_to_string(events).is_ok_and(|text| text.contains("frozen 1"))
    })
}

fn count(world: &World, task: &str) -> String {
    fs::read_to_string(world.tree(task).join("count.txt")).unwrap_or_default()
}

#[test]
fn the_same_process_goes_on_after_review_and_restart() {
    let world = World::new(QUICK);
    let agent = counting();
    let first = world.start(&agent.words("begin", &["--keep-alive"]));
    world.reaches(&first, "READY");
    let before = kept(&world, &first);
    assert!(count(&world, &first).starts_with("1 "));
    world.belay(&["accept", &first]).done();
    assert_eq!(session(&world, &first), "paused frozen", "what is done can be continued");

    world.crash();
    assert!(is_frozen(before.pid), "nobody is needed to keep it frozen");
    world.up();
    let second = world.belay(&["continue", &first, "go further", "--json"]).json();
    let second = second["id"].as_str().unwrap().to_owned();
    world.reaches(&second, "READY");
    let after = kept(&world, &first);
    assert_eq!((after.pid, after.started), (before.pid, before.started), "the same process");
    let told = count(&world, &second);
    assert!(told.starts_with("2 ") && told.contains("go further"), "{told}");

    assert_eq!(probes(&world), [[r#"{"healthy":true}"#]]);

    // Each attempt has its own part of what was printed, and of what was used.
    let (one, two) = (world.transcript(&first, 1), world.transcript(&second, 1));
    assert_eq!(one.matches("\"result\"").count(), 2, "{one}");
    assert!(two.starts_with("{\"is_error\"") || two.starts_with("{\"type\":\"result\""), "{two}");
    assert_eq!(two.lines().count(), 1, "{two}");
    let used = "SELECT DISTINCT input_tokens || '+' || output_tokens FROM attempts";
    assert_eq!(world.rows(used), [["10+1"]]);
    assert_eq!(world.cell("SELECT count(*) FROM sandboxes"), "1");

    // A stop is acknowledged when the process is gone.
    let receipt = world.belay(&["stop", &second]).done().out;
    assert!(receipt.contains("seen to be gone"), "{receipt}");
    world.nothing_runs();
    assert_eq!(session(&world, &second), "stopped tree");
}

#[test]
fn a_question_that_was_held_is_answered_in_the_same_process() {
    let world = World::new(&format!("{QUICK}linger = '700ms'\n"));
    let scripted = Scripted::claude().asks("Which colour?", "made.txt").succeeds();
    let task = world.start(&scripted.words("ask", &["--keep-alive"]));
    world.reaches(&task, "BLOCKED");
    let before = kept(&world, &task);
    assert_eq!(world.attempts(&task)[0][2], "question");
    world.belay(&["answer", &task, "teal"]).done();
    world.reaches(&task, "READY");
    let answer = fs::read_to_string(world.tree(&task).join("made.txt")).unwrap();
    assert!(answer.contains("teal"), "{answer}");
    let attempts = world.attempts(&task);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0][5], attempts[1][5], "the same sandbox");
    assert!(before.pid > 0);
    wait_for("the agent has exited by itself", || world.sandboxed().is_empty());
}

#[test]
fn what_was_kept_and_is_gone_begins_anew_with_the_tree() {
    let world = World::new(QUICK);
    let task = world.start(&counting().words("begin", &["--keep-alive", "--review", "auto"]));
    world.reaches(&task, "COMPLETED");
    kept(&world, &task);
    processes::end(&world.data());
    let next = world.belay(&["continue", &task, "go further", "--json"]).json();
    let next = next["id"].as_str().unwrap().to_owned();
    world.reaches(&next, "COMPLETED");
    let told = count(&world, &next);
    assert!(told.starts_with("1 ") && told.contains("go further"), "another process: {told}");
    assert_eq!(world.tree(&next), world.tree(&task), "in the same tree");
    kept(&world, &next);
    assert_eq!(probes(&world), [[r#"{"healthy":false}"#]]);
}

#[test]
fn removal_ends_it_and_leaves_nothing_but_kept_work() {
    let world = World::new(QUICK);
    let task = world.start(&counting().words("begin", &["--keep-alive"]));
    world.reaches(&task, "READY");
    kept(&world, &task);
    let (tree, session) = (world.tree(&task), world.cell("SELECT id FROM sessions"));
    world.belay(&["rm", &task]).done();
    world.nothing_runs();
    wait_for("the session is forgotten", || world.cell("SELECT count(*) FROM sessions") == "0");
    for table in ["tasks", "attempts", "sandboxes", "specs", "ledgers"] {
        assert_eq!(world.cell(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
    assert!(!tree.exists() && !tree.with_extension("json").exists());
    assert!(!world.data().join("runner/sessions").join(session).exists());
    let mirrors = fs::read_dir(world.data().join("work/mirrors")).unwrap();
    let kept = mirrors.flatten().any(|mirror| {
        let mirror = format!("data/work/mirrors/{}", mirror.file_name().to_string_lossy());
        world.refs(&mirror).contains(&format!("refs/belay/kept/{task}/1"))
    });
    assert!(kept, "the only copy of its work is not removed with it");
}

#[test]
fn a_plain_command_cannot_stay_and_its_tree_does() {
    let world = World::new(QUICK);
    let task = world.script(&["x", "--keep-alive"], "echo $BELAY_ATTEMPT >> made.txt");
    world.reaches(&task, "READY");
    world.settles(&task);
    wait_for("its session is paused", || session(&world, &task) == "paused tree");
    world.nothing_runs();
    world.belay(&["reject", &task, "again", "--run"]).done();
    wait_for("the second attempt is ready", || {
        world.attempts(&task).len() == 2 && world.state(&task) == "READY"
    });
    let made = fs::read_to_string(world.tree(&task).join("made.txt")).unwrap();
    assert_eq!(made, "1\n2\n");
}

/// An agent that is idle with its first message, and works when it is told more; and its task,
/// which was failed for that and whose agent is kept.
fn dozed_off(world: &World) -> (String, Seen) {
    let agent = Scripted::dozing_claude()
        .does("echo \"1 $told\" > count.txt; read -r told")
        .wakes()
        .does("echo \"2 $told\" > count.txt")
        .succeeds()
        .does("read -r told");
    let task = world.start(&agent.words("begin", &["--keep-alive"]));
    world.reaches(&task, "FAILED");
    assert_eq!(world.why(&task), "idle_timeout");
    let agent = kept(world, &task);
    (task, agent)
}

#[test]
fn one_that_was_idle_goes_on_when_it_is_resumed() {
    let world = World::new(&format!("{QUICK}idle = '700ms'\n"));
    let (task, before) = dozed_off(&world);
    world.belay(&["resume", &task, "do go on"]).done();
    world.reaches(&task, "READY");
    let after = kept(&world, &task);
    assert_eq!((after.pid, after.started), (before.pid, before.started), "the same process");
    let told = count(&world, &task);
    assert!(told.starts_with("2 ") && told.contains("do go on"), "{told}");
    let attempts = world.attempts(&task);
    assert_eq!(attempts[0][5], attempts[1][5], "the same sandbox");
}

#[test]
fn a_retry_begins_in_a_new_session_and_ends_what_was_kept() {
    let world = World::new(&format!("{QUICK}idle = '700ms'\n"));
    let (task, before) = dozed_off(&world);
    world.belay(&["retry", &task]).done();
    wait_for("the second attempt is over", || {
        world.attempts(&task).len() == 2 && world.state(&task) == "FAILED"
    });
    let after = kept(&world, &task);
    assert_ne!((after.pid, after.started), (before.pid, before.started), "another process");
    let attempts = world.attempts(&task);
    assert_ne!(attempts[0][4], attempts[1][4], "another session");
    assert_ne!(attempts[0][5], attempts[1][5], "another sandbox");
    let lives = || {
        processes::all().any(|(seen, _)| seen.pid == before.pid && seen.started == before.started)
    };
    wait_for("what was kept is ended", || !lives());
    let old = format!("SELECT state FROM sessions WHERE id = '{}'", attempts[0][4]);
    assert_eq!(world.cell(&old), "stopped");
}
