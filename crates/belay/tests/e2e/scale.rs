//! Many at once, a clock that jumps, and a disk that is full.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::world::{QUICK, World, wait_within};

#[test]
fn two_hundred_at_once() {
    let world = World::new(&format!("{QUICK}[roles.default]\nworkers = 200\n"));
    let body = serde_json::json!({
        "prompt": "go", "agent": "command", "publish": "none", "review": "auto",
        "limits": {"inactivity": "10m"},
        "command": ["sh", "-c", "echo one; mkfifo go; read word < go; rm go; echo two"],
    });
    let tasks: Vec<String> = (0..200)
        .map(|_| world.api("POST", "/tasks", &body)["id"].as_str().unwrap().to_owned())
        .collect();
    let limit = Duration::from_secs(240);
    let running = || world.cell("SELECT count(*) FROM tasks WHERE state = 'RUNNING'");
    wait_within(limit, "all run at the same time", || running() == "200");
    let agents = || {
        world
            .sandboxed()
            .into_iter()
            .filter(|seen| seen.words.starts_with("sh -c echo one"))
            .count()
    };
    wait_within(limit, "each has one agent", || agents() == 200);
    for task in &tasks {
        // Waits until the agent is there to read it.
        fs::write(world.tree(task).join("go"), "now\n").unwrap();
    }
    let done = || world.cell("SELECT count(*) FROM tasks WHERE state = 'COMPLETED'");
    wait_within(limit, "all complete", || done() == "200");
    let ended = || world.cell("SELECT count(*) FROM attempts WHERE phase <> 'ENDED'");
    wait_within(limit, "all end", || ended() == "0");
    assert_eq!(world.cell("SELECT count(*) FROM attempts"), "200");
    world.nothing_runs();
    let lengths = world.rows("SELECT DISTINCT transcript_length FROM attempts");
    assert_eq!(lengths, [["8"]], "nobody's output is lost");
}

/// Runs a program; says whether it could be run and succeeded.
fn succeeds(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_fails_what_it_must_and_loses_nothing() {
    let world = World::quiet(QUICK);
    let data = world.data();
    fs::create_dir(&data).unwrap();
    let place = data.display().to_string();
    if !succeeds("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", &place]) {
        // Only root can make a disk that is small.
        return;
    }
    let mounted = Mounted(place);
    world.up();
    let before = world.script(&["before", "--review", "auto"], "echo x > made.txt");
    world.reaches(&before, "COMPLETED");
    world.settles(&before);
    let fill = data.join("fill");
    // The copy fails when there is no room any more, which is what is wanted.
    let _ = fs::write(&fill, vec![0u8; 32 << 20]);
    let said = world.belay(&["run", "full", "--detach", "--", "sh", "-c", "echo y > made.txt"]);
    assert!(said.code != 0 || said.out.len() >= 16, "an answer, whichever: {said:?}");
    fs::remove_file(&fill).unwrap();
    let after = world.script(&["after", "--review", "auto"], "echo z > made.txt");
    world.reaches(&after, "COMPLETED");
    world.settles(&after);
    assert_eq!(world.state(&before), "COMPLETED");
    if said.code == 0 {
        let full = said.id();
        wait_within(Duration::from_secs(60), "it comes to rest", || {
            ["READY", "FAILED"].contains(&world.state(&full).as_str())
        });
    }
    world.nothing_runs();
    world.crash();
    drop(mounted);
}

/// Something that is mounted for as long as this lives.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: what still has a file open there keeps it until it ends.
        succeeds("umount", &["-l", &self.0]);
    }
}
