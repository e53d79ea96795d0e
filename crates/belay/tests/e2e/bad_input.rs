//! What makes no sense or is not possible is refused: an exit code, one sentence, nothing changed.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::world::{QUICK, World};

/// A refusal is one sentence on standard error, and makes nothing.
#[track_caller]
fn check(world: &World, words: &[&str], code: i32, sentence: &str) {
    let before = world.rows("SELECT id, revision FROM tasks ORDER BY id");
    let said = world.belay(words).refused(code, sentence);
    assert_eq!(said.out, "", "nothing but the complaint is printed");
    let text = said.err.trim_end();
    assert!(text.lines().count() <= 2 && !text.contains("panicked"), "one sentence: {text}");
    assert_eq!(world.rows("SELECT id, revision FROM tasks ORDER BY id"), before);
}

#[test]
fn agents_that_cannot_work() {
    let world = World::new(QUICK);
    check(&world, &["run", "x", "--agent", "cluade"], 2, "did you mean `claude`?");
    check(&world, &["run", "x", "--agent", "claude"], 3, "is not installed");
    check(&world, &["run", "x"], 3, "no agent is installed");
    check(&world, &["run", "x", "--agent", "command"], 2, "needs a program");
    world.program("bin-claude", "#!/bin/sh\necho 2.1.325\n");
    fs::create_dir(world.path("bin")).unwrap();
    fs::rename(world.path("bin-claude"), world.path("bin/claude")).unwrap();
    let path = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    let said = crate::world::run(world.cli(&["run", "x", "--agent", "claude"]).env("PATH", path));
    said.refused(3, "has no credentials; set ANTHROPIC_API_KEY");
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "0");
}

#[test]
fn trees_that_cannot_be_worked_on() {
    let world = World::new(QUICK);
    fs::create_dir(world.path("plain")).unwrap();
    let plain = world.path("plain").display().to_string();
    let program = ["--", "true"];
    let run = |flags: &[&str]| world.belay(&[&["run", "x"], flags, &program].concat());
    run(&["--repo", &plain]).refused(3, "not a git repository");
    run(&["--repo", "/no/such/place"]).refused(2, "there is no such directory");
    fs::write(world.path("repo/README"), "changed\n").unwrap();
    run(&[]).refused(3, "has changes that are not committed");
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "0", "nothing is made of it");
    run(&["--dirty", "include"]).done();
}

#[test]
fn what_a_person_ignores_everywhere_is_no_change() {
    let world = World::new(QUICK);
    fs::create_dir_all(world.path("config/git")).unwrap();
    fs::write(world.path("config/git/ignore"), "*.swp\n").unwrap();
    fs::write(world.path("repo/.git/info/exclude"), "mine/\n").unwrap();
    fs::create_dir(world.path("repo/mine")).unwrap();
    for file in ["repo/x.swp", "repo/mine/notes"] {
        fs::write(world.path(file), "not for others\n").unwrap();
    }
    let task = world.script(&["x", "--review", "auto"], "ls; echo > made.txt");
    world.reaches(&task, "COMPLETED");
    assert!(!world.transcript(&task, 1).contains("x.swp"));
    fs::write(world.path("repo/README"), "changed\n").unwrap();
    let task = world.script(&["x", "--dirty", "include", "--review", "auto"], "ls; cat README");
    world.reaches(&task, "COMPLETED");
    let printed = world.transcript(&task, 1);
    assert!(printed.contains("changed"), "{printed}");
    assert!(!printed.contains("x.swp") && !printed.contains("mine"), "{printed}");
}

#[test]
fn a_run_that_fails_says_why_and_what_to_do() {
    let world = World::new(QUICK);
    let said = world.belay(&["run", "x", "--base", "nowhere", "--", "true"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("why      `nowhere` is not a branch, tag or commit"), "{said:?}");
    assert!(said.out.contains("next     set that right, then belay retry"), "{said:?}");
    let said = world.belay(&["run", "x", "--", "sh", "-c", "echo oh >&2; exit 3"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("why      exited with 3"), "{said:?}");
    assert!(said.out.contains("next     belay logs "), "{said:?}");
}

#[test]
fn words_that_make_no_sense() {
    let world = World::new(QUICK);
    let run = |flags: &[&'static str], code: i32, sentence: &str| {
        check(&world, &[&["run", "x"], flags, &["--", "true"]].concat(), code, sentence);
    };
    for flag in ["--timeout=soon", "--inactivity=-3s", "--timeout=", "--max-tokens=many"] {
        let said = world.belay(&["run", "x", flag, "--", "true"]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(flag.split('=').next().unwrap()), "{said:?}");
    }
    for amount in ["NaN", "inf", "-1", "much"] {
        let said = world.belay(&["run", "x", &format!("--budget-usd={amount}"), "--", "true"]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(&format!("`{amount}` is not an amount of dollars")), "{said:?}");
    }
    run(&["--max-attempts", "0"], 2, "max_attempts");
    run(&["--env", "NOT_SET_ANYWHERE"], 2, "there is no such variable");
    run(&["--role", "no good"], 2, "role");
    check(&world, &["run", " ", "--agent", "claude"], 2, "the prompt is empty");
    check(&world, &["run", "--agent", "claude", ""], 2, "the prompt is empty");
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "0");
}

#[test]
fn a_prompt_that_is_too_long() {
    let world = World::new(QUICK);
    let mut command = world.cli(&["run", "-", "--detach", "--", "true"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may stop reading before everything is written.
    let _ = stdin.write_all(&vec![b'x'; 2 << 20]);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("longer than"));
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "0");
}

#[test]
fn ids_and_moves_that_do_not_fit() {
    let world = World::new(QUICK);
    for verb in ["show", "why", "stop", "retry", "resume", "logs", "diff", "accept", "rm"] {
        check(&world, &[verb, "zzzzzzzzzzzzzzzz"], 3, "no task");
    }
    for id in ["z!z", "z/z", "../tasks", "z z", "ä"] {
        check(&world, &["stop", id], 2, "is not the id of a task, nor the start of one");
    }
    let mut ids = Vec::new();
    // Of 40 ids two begin with the same letter: there are only 32.
    for _ in 0..40 {
        let words = ["run", "x", "--detach", "--role", "nobody", "--", "true"];
        ids.push(world.belay(&words).id());
    }
    let first = |id: &String| id.chars().next();
    let twice = ids.iter().find(|id| ids.iter().filter(|o| first(o) == first(id)).count() > 1);
    let letter = &twice.unwrap()[..1];
    check(&world, &["show", letter], 3, "It could be");
    check(&world, &["stop", letter], 3, "It could be");
    let task = &ids[0];
    check(&world, &["accept", task], 3, "QUEUED");
    check(&world, &["retry", task], 3, "possible now: cancel");
    check(&world, &["answer", task, "yes"], 3, "asks nothing");
    check(&world, &["continue", task, "more"], 3, "QUEUED");
    check(&world, &["run", "x", "--after", "zzzzzzzzzzzzzzzz", "--", "true"], 3, "no task");
    check(&world, &["run", "x", "--parent", "zzzzzzzzzzzzzzzz", "--", "true"], 3, "no task");
    // A subtask that waits for its own parent would wait for ever.
    let ring = ["run", "x", "--parent", task, "--after", task, "--", "true"];
    check(&world, &ring, 3, "wait for itself");
}

#[test]
fn the_same_key_is_the_same_request() {
    let world = World::new(QUICK);
    let words = |prompt: &'static str| {
        ["run", prompt, "--detach", "--idempotency-key", "k1", "--role", "nobody", "--", "true"]
    };
    let first = world.belay(&words("x")).id();
    assert_eq!(world.belay(&words("x")).id(), first);
    world.belay(&words("y")).refused(3, "key");
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "1");
}

#[test]
fn settings_that_do_not_fit_together() {
    let world = World::quiet("[limits]\nheartbeat_timeout = '1s'\n");
    world.belay(&["up"]).refused(2, "one lost beat must not condemn an agent");
    let world = World::quiet("[limits]\nidel = '1s'\n");
    let said = world.belay(&["up"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("idel"), "{said:?}");
}
