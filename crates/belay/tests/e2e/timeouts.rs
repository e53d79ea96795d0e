//! Clocks: each fires where it should, what it ends is ended wholly, and what was finished before
//! is not touched afterwards.

use std::fs;

use crate::scripted::Scripted;
use crate::world::{QUICK, World, wait_for};

/// Leaves the session, ignores TERM, and is silent.
const SILENT: &str = "
echo begun > made.txt
( setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & )
trap '' TERM
reach silent
while :; do sleep 1; done";

/// Nothing of a task that timed out was pushed, nothing of it runs, its work is kept.
#[track_caller]
fn is_timed_out(world: &World, task: &str, clock: &str, refs: &str) {
    world.reaches(task, "TIMED_OUT");
    assert_eq!(world.why(task), clock);
    world.settles(task);
    world.nothing_runs();
    let attempts = world.attempts(task);
    assert_eq!(attempts.len(), 1, "it is not retried by itself: {attempts:?}");
    assert_eq!(attempts[0][1..4], ["ENDED", "timed_out", "none"]);
    assert_eq!(world.refs("remote.git"), refs);
    assert!(world.belay(&["diff", task]).done().out.contains("+begun"));
}

#[test]
fn silence_is_ended() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let flags = ["hush", "--repo", &url, "--inactivity", "700ms", "--max-attempts", "3"];
    let task = world.script(&flags, SILENT);
    is_timed_out(&world, &task, "inactivity", &refs);
    let why = world.belay(&["why", &task]).done().out;
    assert!(why.contains("700ms"), "the measured and allowed values are told: {why}");
    let fired = world.cell(&format!("SELECT fired FROM attempts WHERE task = '{task}'"));
    assert!(fired.contains("inactivity"), "{fired}");
}

#[test]
fn output_keeps_silence_away_but_not_the_end() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let talk = "echo begun > made.txt; while :; do echo still here; sleep 0.1; done";
    let flags = ["talk", "--repo", &url, "--inactivity", "4s", "--timeout", "6s"];
    let task = world.script(&flags, talk);
    is_timed_out(&world, &task, "absolute", &refs);
    let lines = world.transcript(&task, 1).lines().count();
    assert!(lines > 10, "it was heard until the end: {lines}");
}

#[test]
fn an_open_tool_call_is_not_silence() {
    let world = World::new(QUICK);
    let tool = "echo '{\"type\":\"agent.tool_use\",\"id\":\"t1\",\"name\":\"build\"}'; sleep 2.5; \
                echo '{\"type\":\"agent.tool_result\",\"id\":\"t1\"}'; echo x > made.txt";
    let flags = ["build", "--inactivity", "500ms", "--review", "auto"];
    let task = world.script(&flags, tool);
    world.reaches(&task, "COMPLETED");
}

#[test]
fn a_deadline_passes_while_the_server_is_down() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let task = world.script(&["down", "--repo", &url, "--timeout", "1500ms"], SILENT);
    world.reached(&task, "silent");
    world.crash();
    let deadline = world.cell(&format!("SELECT deadline FROM attempts WHERE task = '{task}'"));
    let deadline: u128 = deadline.parse().unwrap();
    wait_for("the deadline has passed", || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_millis() > deadline
    });
    assert_eq!(world.state(&task), "RUNNING");
    world.up();
    is_timed_out(&world, &task, "absolute", &refs);
}

#[test]
fn a_publish_that_came_first_is_not_timed_out() {
    let world = World::new(QUICK);
    let url = world.remote();
    world.hook(": > pushing; while [ ! -e go ] && [ -d home ]; do sleep 0.02; done");
    let flags = ["push", "--repo", &url, "--timeout", "2s"];
    let task = world.script(&flags, "echo done > made.txt");
    wait_for("the push is under way", || world.path("pushing").exists());
    let began = world.cell(&format!("SELECT started_at FROM attempts WHERE task = '{task}'"));
    let began: u128 = began.parse().unwrap();
    wait_for("the absolute limit has passed", || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_millis() > began + 2_500
    });
    assert_eq!(world.state(&task), "RUNNING", "in PUBLISHING only the publish deadline runs");
    fs::write(world.path("go"), "").unwrap();
    world.reaches(&task, "READY");
    world.settles(&task);
    assert!(world.refs("remote.git").contains(&format!("belay/{task}")));
}

#[test]
fn a_push_that_does_not_end_is_given_up_and_never_lands() {
    let world = World::new(&format!("{QUICK}publish = '1s'\n"));
    let url = world.remote();
    // The first push hangs; the one that moves the ref away from it does not.
    world.hook(
        "[ -e pushing ] && exit 0; : > pushing; \
         while [ ! -e go ] && [ -d home ]; do sleep 0.02; done; : > late",
    );
    let task = world.script(&["push", "--repo", &url], "echo done > made.txt; echo ran");
    world.reaches(&task, "FAILED");
    assert_eq!(world.why(&task), "publish");
    assert_eq!(world.attempts(&task)[0][2..4], ["failed", "not_pushed"]);
    let branch = format!("refs/heads/belay/{task}");
    let commit = world.cell(&format!("SELECT push_commit FROM attempts WHERE task = '{task}'"));
    let fenced = world.refs("remote.git");
    assert!(!fenced.contains(&commit), "{fenced}");
    fs::write(world.path("go"), "").unwrap();
    wait_for("the late push was let go", || world.path("late").exists());
    world.settles(&task);

    // Publishing again does not run the agent again.
    world.belay(&["resume", &task]).done();
    world.reaches(&task, "READY");
    assert!(world.refs("remote.git").contains(&format!("{branch} {commit}")));
    assert_eq!(world.transcript(&task, 1), "ran\n");
    assert_eq!(world.transcript(&task, 2), "");
}

#[test]
fn what_is_finished_is_not_timed_out_later() {
    let world = World::new(&format!("{QUICK}linger = '500ms'\n"));
    let flags = ["quick", "--timeout", "1s", "--inactivity", "500ms"];
    let ready = world.script(&flags, "echo x > made.txt");
    world.reaches(&ready, "READY");
    let done = world.script(&[&flags[..], &["--review", "auto"]].concat(), "echo x > made.txt");
    world.reaches(&done, "COMPLETED");
    world.settles(&done);
    // A later task with the same limits is timed out: the clocks have passed for all.
    let late = world.script(&flags, SILENT);
    world.reaches(&late, "TIMED_OUT");
    world.settles(&late);
    assert_eq!((world.state(&ready), world.state(&done)), ("READY".into(), "COMPLETED".into()));
    world.belay(&["accept", &ready]).done();
}

#[test]
fn what_outlives_the_agent_does_not_hold_its_task() {
    let world = World::new(QUICK);
    let daemon =
        "( setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & ); echo x > made.txt";
    let task = world.script(&["leave", "--review", "auto"], daemon);
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    world.nothing_runs();
}

#[test]
fn an_agent_that_says_its_result_and_never_exits_is_ended() {
    let world = World::new(QUICK);
    let scripted = Scripted::claude().does("echo x > made.txt").succeeds().stays();
    let task = world.start(&scripted.words("stay", &["--review", "auto"]));
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    world.nothing_runs();
    assert_eq!(world.git("repo", &["show", &format!("belay/{task}:made.txt")]), "x");
}
