//! Stop is stop: wherever a task is, its processes are gone when `belay stop` returns, and nothing
//! of it is pushed ever after, or what was pushed is said.

use std::fs;
use std::process::Stdio;

use crate::processes;
use crate::scripted::Scripted;
use crate::world::{QUICK, World, wait_for};

/// An agent in full flight: children that left their session, were forked twice and ignore TERM,
/// and a change in the tree.
const IN_FULL_FLIGHT: &str = "
echo begun > made.txt
( setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & )
( ( setsid setsid sh -c 'trap \"\" TERM; sleep 1000 & exec sleep 1001' & ) & )
trap '' TERM
reach flying
while :; do echo on and on; sleep 0.1; done";

/// The remote is as it was, and stays so while another task goes through the same server.
#[track_caller]
fn nothing_is_pushed(world: &World, task: &str, refs: &str) {
    let other = world.script(&["other", "--review", "auto", "--publish", "none"], "true");
    world.reaches(&other, "COMPLETED");
    assert_eq!(world.refs("remote.git"), refs);
    assert!(!world.refs("repo").contains(task));
    assert_eq!(world.state(task), "CANCELLED");
}

#[test]
fn in_full_flight() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let task = world.script(&["fly", "--repo", &url], IN_FULL_FLIGHT);
    world.reached(&task, "flying");
    wait_for("the daemons are there", || {
        let words: Vec<String> = world.sandboxed().into_iter().map(|seen| seen.words).collect();
        words.iter().any(|words| words.starts_with("sleep 1001"))
            && words.iter().any(|words| words.contains("trap \"\" TERM HUP INT"))
    });

    let receipt = world.belay(&["stop", &task]).done().out;
    world.nothing_runs();
    assert!(receipt.contains("seen to be gone"), "{receipt}");
    assert!(receipt.contains("not pushed"), "{receipt}");
    assert!(receipt.contains(&format!("refs/belay/kept/{task}/1")), "{receipt}");
    assert!(receipt.contains("complete"), "{receipt}");
    nothing_is_pushed(&world, &task, &refs);
    wait_for("the shim is gone too", || world.sandboxed().is_empty());

    // The work is kept, and the same stop has the same receipt.
    assert!(world.belay(&["diff", &task]).done().out.contains("+begun"));
    let again = world.belay(&["stop", &task]).done().out;
    assert_eq!(again, receipt);
    assert_eq!(world.belay(&["show", "--receipt", &task]).done().out, receipt);
    let kept = world.transcript(&task, 1);
    assert!(!kept.is_empty() && kept.lines().all(|line| line == "on and on"), "{kept}");
}

#[test]
fn while_queued() {
    let world = World::new(&format!("{QUICK}\n[roles.default]\nworkers = 0"));
    let url = world.remote();
    let refs = world.refs("remote.git");
    let task = world.script(&["wait", "--repo", &url], "echo > made.txt");
    assert_eq!(world.state(&task), "QUEUED");
    let receipt = world.belay(&["stop", &task]).done().out;
    assert!(receipt.contains("not pushed"), "{receipt}");
    assert_eq!(world.state(&task), "CANCELLED");
    assert_eq!(world.attempts(&task), [[""; 0]; 0]);
    assert_eq!(world.refs("remote.git"), refs);
    assert!(world.sandboxed().is_empty());
}

#[test]
fn while_preparing() {
    let world = World::quiet(QUICK);
    let url = world.remote();
    // A remote that is slow to be read: it asks this program before it packs anything.
    let hook = format!(
        "#!/bin/sh\n: > '{0}/cloning'\n\
         while [ ! -e '{0}/go' ] && [ -d '{0}' ]; do sleep 0.02; done\nexec \"$@\"\n",
        world.path(".").display()
    );
    fs::write(world.path("slow"), hook).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(world.path("slow"), mode).unwrap();
    let slow = world.path("slow").display().to_string();
    let words = ["config", "--file", "home/.gitconfig", "uploadpack.packObjectsHook", &slow];
    world.git(".", &words);
    world.up();
    let refs = world.refs("remote.git");
    let task = world.script(&["clone", "--repo", &url], "echo > made.txt; reach ran");
    wait_for("the clone has begun", || world.path("cloning").exists());
    assert_eq!(world.state(&task), "CLAIMED");

    let receipt = world.belay(&["stop", &task]).done().out;
    assert!(receipt.contains("not pushed"), "{receipt}");
    world.nothing_runs();
    fs::write(world.path("go"), "").unwrap();
    world.settles(&task);
    nothing_is_pushed(&world, &task, &refs);
    assert!(!world.tree(&task).join(".git/ran").exists(), "the agent was never started");
}

#[test]
fn while_a_question_is_open() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let ask = "echo half > made.txt; echo '{\"text\": \"Which?\"}' > $BELAY_QUESTION_FILE";
    let task = world.script(&["ask", "--repo", &url], ask);
    world.reaches(&task, "BLOCKED");
    world.settles(&task);
    assert_eq!(world.refs("remote.git"), refs, "a question never publishes");
    let receipt = world.belay(&["stop", &task]).done().out;
    assert!(receipt.contains("not pushed"), "{receipt}");
    world.nothing_runs();
    world.belay(&["answer", &task, "this"]).refused(3, "CANCELLED");
    nothing_is_pushed(&world, &task, &refs);
    assert_eq!(world.attempts(&task).len(), 1);
}

#[test]
fn while_a_question_is_held() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let scripted = Scripted::claude().asks("Which colour?", "made.txt").succeeds();
    let task = world.start(&scripted.words("ask", &["--repo", &url]));
    world.reaches(&task, "BLOCKED");
    assert!(!processes::agents_of_world(&world.data()).is_empty(), "the agent is held");
    let receipt = world.belay(&["stop", &task]).done().out;
    world.nothing_runs();
    assert!(receipt.contains("not pushed"), "{receipt}");
    world.belay(&["answer", &task, "teal"]).refused(3, "CANCELLED");
    nothing_is_pushed(&world, &task, &refs);
}

/// A remote that lets go of a push only when it is told to.
const HELD: &str = ": > pushing; while [ ! -e go ] && [ -d home ]; do sleep 0.02; done";

/// What the receipt says of the push, against what the remote has.
#[track_caller]
fn receipt_agrees(world: &World, task: &str) -> bool {
    let receipt = world.belay(&["stop", task]).done().out;
    let branch = format!("refs/heads/belay/{task}");
    let query = format!("SELECT push_commit FROM attempts WHERE task = '{task}' AND number = 1");
    let commit = world.cell(&query);
    let found = world.refs("remote.git");
    let landed = !commit.is_empty() && found.contains(&format!("{branch} {commit}"));
    assert_eq!(receipt.contains(&format!("pushed {commit}")), landed, "{receipt}\n{found}");
    assert_eq!(receipt.contains("not pushed"), !landed, "{receipt}\n{found}");
    landed
}

/// A world with a task whose push is under way, and a stop that waits for it.
fn during_the_push(hook: &str) -> (World, String, std::process::Child) {
    let world = World::new(QUICK);
    let url = world.remote();
    world.hook(hook);
    let task = world.script(&["push", "--repo", &url], "echo done > made.txt");
    wait_for("the push is under way", || world.path("pushing").exists());
    let stop = world.cli(&["stop", &task]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the stop is committed", || world.state(&task) == "CANCELLED");
    world.nothing_runs();
    (world, task, stop)
}

#[test]
fn during_a_push_that_lands() {
    let (world, task, stop) = during_the_push(HELD);
    let early = world.belay(&["stop", "--wait", "100ms", &task]).done().out;
    assert!(early.contains("what became of its push"), "{early}");
    fs::write(world.path("go"), "").unwrap();
    let receipt = stop.wait_with_output().unwrap();
    let receipt = String::from_utf8(receipt.stdout).unwrap();
    assert!(receipt.contains("published   pushed"), "{receipt}");
    assert!(receipt_agrees(&world, &task), "the push came first");
    assert_eq!(world.state(&task), "CANCELLED");
}

#[test]
fn during_a_push_that_the_remote_refuses() {
    // It refuses everything: its own answer to the push is what makes it certain.
    let refuses = format!("{HELD}; exit 1");
    let (world, task, stop) = during_the_push(&refuses);
    fs::write(world.path("go"), "").unwrap();
    let receipt = stop.wait_with_output().unwrap();
    let receipt = String::from_utf8(receipt.stdout).unwrap();
    assert!(receipt.contains("not pushed"), "{receipt}");
    assert!(!receipt_agrees(&world, &task));
    // Whoever lifts the rule afterwards does not get the commit either.
    world.hook("exit 0");
    let refs = world.refs("remote.git");
    nothing_is_pushed(&world, &task, &refs);
}

#[test]
fn during_a_push_whose_process_is_killed() {
    let world = World::new(QUICK);
    let url = world.remote();
    world.hook(HELD);
    let task = world.script(&["push", "--repo", &url], "echo done > made.txt");
    wait_for("the push is under way", || world.path("pushing").exists());
    let is_push = |words: &str| words.contains(" push ") && words.contains(&task);
    let pushing: Vec<_> =
        processes::all().map(|(seen, _)| seen).filter(|seen| is_push(&seen.words)).collect();
    assert!(!pushing.is_empty(), "the push is a process");
    pushing.iter().for_each(processes::kill);
    let stop = world.cli(&["stop", &task]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the stop is committed", || world.state(&task) == "CANCELLED");
    // The remote still works on what it was sent, and may take it seconds later.
    fs::write(world.path("go"), "").unwrap();
    let receipt = stop.wait_with_output().unwrap();
    assert!(!receipt.stdout.is_empty());
    world.settles(&task);
    receipt_agrees(&world, &task);
    let settled = world.refs("remote.git");
    nothing_is_pushed(&world, &task, &settled);
}

#[test]
fn during_a_push_of_which_nothing_is_known_and_that_no_fence_can_follow() {
    let world = World::new(QUICK);
    let url = world.remote();
    world.hook(&format!("[ -e pushing ] && exit 1; {HELD}; exit 1"));
    let task = world.script(&["push", "--repo", &url], "echo done > made.txt");
    wait_for("the push is under way", || world.path("pushing").exists());
    let is_push = |words: &str| words.contains(" push ") && words.contains(&task);
    let pushing: Vec<_> =
        processes::all().map(|(seen, _)| seen).filter(|seen| is_push(&seen.words)).collect();
    pushing.iter().for_each(processes::kill);
    world.belay(&["stop", "--wait", "100ms", &task]).done();
    wait_for("what stands in the way is said", || {
        let why = world.belay(&["why", &task]).done().out;
        why.contains("the remote refuses that") && why.contains("move the branch there yourself")
    });
    let early = world.belay(&["stop", "--wait", "100ms", &task]).done().out;
    assert!(early.contains("what became of its push"), "nobody says more than is known: {early}");
    fs::write(world.path("go"), "").unwrap();
    // Somebody who may moves the branch.
    let branch = format!("refs/heads/belay/{task}");
    world.git("remote.git", &["update-ref", &branch, "HEAD"]);
    world.settles(&task);
    assert!(!receipt_agrees(&world, &task));
}

#[test]
fn during_a_push_while_the_server_is_killed() {
    let (world, task, stop) = during_the_push(HELD);
    world.crash();
    fs::write(world.path("go"), "").unwrap();
    world.up();
    let said = stop.wait_with_output().unwrap();
    assert!(said.status.success(), "the stop finds the new server: {said:?}");
    world.settles(&task);
    receipt_agrees(&world, &task);
    let settled = world.refs("remote.git");
    nothing_is_pushed(&world, &task, &settled);
    assert_eq!(world.attempts(&task).len(), 1);
}

#[test]
fn while_the_server_is_killed() {
    let world = World::new(QUICK);
    let url = world.remote();
    let refs = world.refs("remote.git");
    let task = world.script(&["fly", "--repo", &url], IN_FULL_FLIGHT);
    world.reached(&task, "flying");
    let mut stop = world.cli(&["stop", &task]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the stop is committed", || world.state(&task) == "CANCELLED");
    world.crash();
    world.up();
    assert!(stop.wait().unwrap().success());
    world.nothing_runs();
    world.settles(&task);
    nothing_is_pushed(&world, &task, &refs);
}
