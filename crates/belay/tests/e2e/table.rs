//! Every row of the table of a task's life, each by a test named after it.
//!
//! | row | test |
//! |---|---|
//! | PENDING → QUEUED | `row_pending_queued` |
//! | QUEUED → CLAIMED | `row_queued_claimed` |
//! | QUEUED → FAILED | `row_queued_failed` |
//! | CLAIMED → RUNNING | `row_claimed_running` |
//! | CLAIMED → QUEUED | `row_claimed_queued` |
//! | CLAIMED → FAILED | `row_claimed_failed` |
//! | RUNNING → BLOCKED | `row_running_blocked` |
//! | RUNNING, BLOCKED → READY | `row_running_ready`, `row_blocked_ready` |
//! | RUNNING, BLOCKED → COMPLETED | `row_running_completed`, `row_blocked_completed` |
//! | BLOCKED → RUNNING | `row_blocked_running` |
//! | BLOCKED → QUEUED | `row_blocked_queued` |
//! | RUNNING → QUEUED | `row_running_queued`, `row_running_queued_until_the_limit_resets` |
//! | RUNNING → FAILED | `row_running_failed` |
//! | RUNNING → TIMED_OUT | `row_running_timed_out` |
//! | BLOCKED → FAILED | `row_blocked_failed` |
//! | READY → COMPLETED | `row_ready_completed` |
//! | READY → PENDING | `row_ready_pending` |
//! | FAILED, TIMED_OUT → QUEUED | `row_resting_queued_by_retry`, `row_resting_queued_by_resume` |
//! | FAILED(dependency) → QUEUED | `row_failed_dependency_queued` |
//! | FAILED(subtask) → BLOCKED | `row_failed_subtask_blocked` |
//! | any but final → CANCELLED | `row_any_cancelled` |
//! | … → BUDGET_EXCEEDED | `row_any_budget_exceeded` |

use serde_json::json;

use crate::scripted::Scripted;
use crate::world::{QUICK, World, wait_for};

const WORK: &str = "echo work >> made.txt";

#[test]
fn row_pending_queued() {
    let world = World::new(QUICK);
    let body = json!({
        "prompt": "later", "agent": "command", "command": ["sh", "-c", "true"], "hold": true,
    });
    let task = world.api("POST", "/tasks", &body)["id"].as_str().unwrap().to_owned();
    let other = world.script(&["now", "--review", "auto"], WORK);
    world.reaches(&other, "COMPLETED");
    assert_eq!(world.state(&task), "PENDING", "it waits although a worker is free");
    world.api("POST", &format!("/tasks/{task}/run"), &json!({}));
    world.reaches(&task, "READY");
}

#[test]
fn row_queued_claimed() {
    let world = World::new(&format!("{QUICK}[roles.default]\nworkers = 1\n"));
    let first = world.script(&["first"], "reach up; await go");
    world.reached(&first, "up");
    let low = world.script(&["low", "--priority", "-1", "--review", "auto"], WORK);
    let high = world.script(&["high", "--priority", "5", "--review", "auto"], WORK);
    let after = world.script(&["after", "--after", &low, "--review", "auto"], WORK);
    for task in [&low, &high, &after] {
        assert_eq!(world.state(task), "QUEUED");
        assert_eq!(world.attempts(task), [[""; 0]; 0], "an attempt is made by the claim");
    }
    let why = world.belay(&["why", &after]).done().out;
    assert!(why.contains(&low), "it shows what it waits for: {why}");
    world.let_go(&first, "go");
    for task in [&low, &high, &after] {
        world.reaches(task, "COMPLETED");
    }
    let order = world.rows("SELECT task FROM attempts ORDER BY claimed_at, rowid");
    let order: Vec<&str> = order.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(order, [&first, &high, &low, &after]);
}

#[test]
fn row_queued_failed() {
    let world = World::new(QUICK);
    let first = world.script(&["first"], "await go; exit 1");
    let second = world.script(&["second", "--after", &first], WORK);
    let third = world.script(&["third", "--after", &second], WORK);
    world.reaches(&first, "RUNNING");
    assert_eq!(world.state(&second), "QUEUED");
    wait_for("the tree is there", || world.tree(&first).join(".git").exists());
    world.let_go(&first, "go");
    world.reaches(&second, "FAILED");
    assert_eq!(world.why(&second), "dependency");
    world.reaches(&third, "FAILED");
    assert_eq!(world.attempts(&second).len() + world.attempts(&third).len(), 0);
}

#[test]
fn row_claimed_running() {
    let world = World::new(QUICK);
    let task = world.script(&["run"], "reach up; await go");
    world.reached(&task, "up");
    assert_eq!(world.state(&task), "RUNNING", "an agent runs only after that commit");
    let started = world.cell("SELECT started_at FROM attempts");
    assert_ne!(started, "");
    world.let_go(&task, "go");
    world.reaches(&task, "READY");
}

/// A remote that fails so many times before it can be read.
fn shaky(failures: u32) -> (World, String) {
    let world = World::quiet(QUICK);
    let url = world.remote();
    let here = world.path(".").display().to_string();
    let script = format!(
        "#!/bin/sh\necho x >> '{here}/tries'\n\
         [ $(wc -l < '{here}/tries') -gt {failures} ] && exec \"$@\"\nexit 1\n"
    );
    world.program("shaky", &script);
    let path = world.path("shaky").display().to_string();
    world.git(".", &["config", "--file", "home/.gitconfig", "uploadpack.packObjectsHook", &path]);
    world.up();
    (world, url)
}

#[test]
fn row_claimed_queued() {
    let (world, url) = shaky(2);
    let task = world.script(&["go", "--repo", &url, "--review", "auto"], WORK);
    world.reaches(&task, "COMPLETED");
    let outcomes: Vec<_> = world.attempts(&task).into_iter().map(|row| row[2].clone()).collect();
    assert_eq!(outcomes, ["failed", "failed", "succeeded"], "the start cap, not a try, is used");
}

#[test]
fn row_claimed_failed() {
    let (world, url) = shaky(100);
    let task = world.script(&["go", "--repo", &url, "--max-attempts", "9"], WORK);
    world.reaches(&task, "FAILED");
    assert_eq!(world.why(&task), "start_failed");
    assert_eq!(world.attempts(&task).len(), 3);
    let wrong = world.script(&["go", "--base", "no-such-branch", "--max-attempts", "9"], WORK);
    world.reaches(&wrong, "FAILED");
    assert_eq!(world.why(&wrong), "configuration");
    assert_eq!(world.attempts(&wrong).len(), 1, "what is permanent is not tried again");
    world.nothing_runs();
}

/// Asks once, and does what it is told afterwards.
const ASKS: &str = "if grep -q teal $BELAY_PROMPT_FILE; then cp $BELAY_PROMPT_FILE told; \
                    else echo half > made.txt; \
                    echo '{\"text\": \"Which colour?\", \"options\": [\"red\", \"teal\"]}' \
                    > $BELAY_QUESTION_FILE; fi";

#[test]
fn row_running_blocked() {
    let world = World::new(QUICK);
    let said = world.belay(&["run", "ask", "--", "sh", "-c", ASKS]);
    assert_eq!(said.code, 5, "a person has to answer: {said:?}");
    assert!((said.out.clone() + &said.err).contains("Which colour?"), "{said:?}");
    let task = world.cell("SELECT id FROM tasks");
    assert_eq!(world.state(&task), "BLOCKED");
    world.settles(&task);
    assert!(!world.refs("repo").contains("belay/"), "questions never publish");

    // Said, but not asked.
    let said = "echo x > made.txt; echo 'All is done.' > $BELAY_QUESTION_FILE";
    let task = world.script(&["tell"], said);
    world.reaches(&task, "READY");
}

#[test]
fn row_running_ready() {
    let world = World::new(QUICK);
    let task = world.script(&["go"], WORK);
    world.reaches(&task, "READY");
    assert!(world.refs("repo").contains(&format!("refs/heads/belay/{task}")));
}

#[test]
fn row_running_completed() {
    let world = World::new(QUICK);
    let task = world.script(&["go", "--review", "auto"], WORK);
    world.reaches(&task, "COMPLETED");
    let parent = world.script(&["parent"], "reach up; await go");
    world.reached(&parent, "up");
    let child = world.script(&["child", "--parent", &parent], WORK);
    world.reaches(&child, "COMPLETED");
    world.let_go(&parent, "go");
    world.reaches(&parent, "READY");
}

/// A parent that succeeded while a subtask has still to do.
fn parent_and_child(world: &World, review: &str, then: &str) -> (String, String) {
    let parent = world.script(&["parent", "--review", review], "reach up; await go");
    world.reached(&parent, "up");
    let child =
        world.script(&["child", "--parent", &parent], &format!("reach up; await go; {then}"));
    world.reached(&child, "up");
    world.let_go(&parent, "go");
    world.reaches(&parent, "BLOCKED");
    (parent, child)
}

#[test]
fn row_blocked_ready() {
    let world = World::new(QUICK);
    let (parent, child) = parent_and_child(&world, "manual", WORK);
    world.let_go(&child, "go");
    world.reaches(&child, "COMPLETED");
    world.reaches(&parent, "READY");
    assert_eq!(world.attempts(&parent).len(), 1);
}

#[test]
fn row_blocked_completed() {
    let world = World::new(QUICK);
    let (parent, child) = parent_and_child(&world, "auto", WORK);
    world.let_go(&child, "go");
    world.reaches(&parent, "COMPLETED");
}

#[test]
fn row_blocked_failed() {
    let world = World::new(QUICK);
    let (parent, child) = parent_and_child(&world, "auto", "exit 1");
    world.let_go(&child, "go");
    world.reaches(&child, "FAILED");
    world.reaches(&parent, "FAILED");
    assert_eq!(world.why(&parent), "subtask");
}

#[test]
fn row_failed_subtask_blocked() {
    let world = World::new(QUICK);
    let (parent, child) = parent_and_child(&world, "auto", "[ $BELAY_ATTEMPT -ge 2 ]");
    world.let_go(&child, "go");
    world.reaches(&parent, "FAILED");
    world.settles(&child);
    world.belay(&["resume", &child]).done();
    wait_for("the parent waits again", || world.state(&parent) != "FAILED");
    world.reaches(&child, "COMPLETED");
    world.reaches(&parent, "COMPLETED");
}

#[test]
fn row_failed_dependency_queued() {
    let world = World::new(QUICK);
    let first = world.script(&["first", "--review", "auto"], "[ $BELAY_ATTEMPT -ge 2 ]");
    let second = world.script(&["second", "--after", &first, "--review", "auto"], WORK);
    world.reaches(&second, "FAILED");
    world.settles(&first);
    world.belay(&["resume", &first]).done();
    wait_for("it waits again", || world.state(&second) != "FAILED");
    world.reaches(&second, "COMPLETED");
}

#[test]
fn row_blocked_running() {
    let world = World::new(QUICK);
    let scripted = Scripted::claude().asks("Which colour?", "made.txt").awaits("go").succeeds();
    let task = world.start(&scripted.words("ask", &["--review", "auto"]));
    world.reaches(&task, "BLOCKED");
    assert_eq!(world.cell("SELECT variant FROM tasks"), "held");
    let agent = world.agent(&task);
    world.belay(&["answer", &task, "teal"]).done();
    wait_for("the answer has arrived", || world.tree(&task).join("made.txt").exists());
    assert_eq!(world.agent(&task), agent, "it is the same process");
    world.let_go(&task, "go");
    world.reaches(&task, "COMPLETED");
    assert_eq!(world.attempts(&task).len(), 1, "the same attempt goes on");
    let made = world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert!(made.contains("teal"), "{made}");
}

#[test]
fn row_blocked_queued() {
    let world = World::new(QUICK);
    let task = world.script(&["Paint it", "--review", "auto"], ASKS);
    world.reaches(&task, "BLOCKED");
    world.settles(&task);
    world.belay(&["answer", &task, "2"]).done();
    world.reaches(&task, "COMPLETED");
    let attempts = world.attempts(&task);
    assert_eq!(attempts[0][4], attempts[1][4], "it is the same session");
    let told = world.git("repo", &["show", &format!("belay/{task}:told")]);
    for part in ["Paint it", "Which colour?", "teal"] {
        assert!(told.contains(part), "`{part}` is missing: {told}");
    }
    assert_eq!(world.git("repo", &["show", &format!("belay/{task}:made.txt")]), "half");
}

#[test]
fn row_running_queued() {
    let world = World::new(QUICK);
    let flags = ["go", "--max-attempts", "3", "--review", "auto"];
    let task = world.script(&flags, &format!("{WORK}; [ $BELAY_ATTEMPT -ge 3 ]"));
    world.reaches(&task, "COMPLETED");
    let attempts = world.attempts(&task);
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| attempt[4] == attempts[0][4]), "{attempts:?}");
    let made = world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert_eq!(made, "work\nwork\nwork", "the tree goes on from attempt to attempt");
}

#[test]
fn row_running_queued_until_the_limit_resets() {
    let world = World::new(QUICK);
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(4);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let limited = Scripted::claude().finds_its_limit_used_until(soon).succeeds();
    let task = world.start(&limited.words("go", &["--review", "auto"]));
    wait_for("it is parked", || {
        world.cell("SELECT not_before FROM tasks") == (soon * 1000).to_string()
    });
    assert_eq!(world.state(&task), "QUEUED");
    world.settles(&task);
    world.nothing_runs();
    assert_eq!(world.cell("SELECT parks || ' ' || tries FROM tasks"), "1 0", "no try is used");
    let why = world.belay(&["why", &task]).done().out;
    assert!(why.to_lowercase().contains("limit"), "{why}");
    world.reaches(&task, "COMPLETED");
    let claimed = world.cell("SELECT claimed_at FROM attempts WHERE number = 2");
    assert!(claimed.parse::<u64>().unwrap() >= soon * 1000);
}

#[test]
fn row_running_failed() {
    let world = World::new(QUICK);
    let said = world.belay(&["run", "fail", "--", "sh", "-c", "echo half > made.txt; exit 3"]);
    assert_eq!(said.code, 1, "{said:?}");
    let task = world.cell("SELECT id FROM tasks");
    assert_eq!((world.state(&task), world.why(&task)), ("FAILED".into(), "crash".into()));
    world.settles(&task);
    assert!(!world.refs("repo").contains("belay/"), "nothing of a failure is pushed");
    assert!(world.belay(&["diff", &task]).done().out.contains("+half"), "but it is kept");
}

#[test]
fn row_running_timed_out() {
    let world = World::new(QUICK);
    let said = world.belay(&["run", "hang", "--timeout", "1s", "--", "sleep", "1000"]);
    assert_eq!(said.code, 6, "{said:?}");
    let task = world.cell("SELECT id FROM tasks");
    assert_eq!(world.state(&task), "TIMED_OUT");
    world.settles(&task);
    world.nothing_runs();
}

#[test]
fn row_ready_completed() {
    let world = World::new(QUICK);
    let task = world.script(&["go"], WORK);
    world.reaches(&task, "READY");
    let refs = world.refs("repo");
    let wrong = world.api("POST", &format!("/tasks/{task}/accept"), &json!({"attempt": 7}));
    assert_eq!(wrong["status"], 422, "it names the attempt that it saw: {wrong}");
    assert_eq!(world.state(&task), "READY");
    world.belay(&["accept", &task]).done();
    assert_eq!(world.state(&task), "COMPLETED");
    assert_eq!(world.refs("repo"), refs, "accepting pushes nothing");
}

#[test]
fn row_ready_pending() {
    let world = World::new(QUICK);
    let script = format!("{WORK}; cp $BELAY_PROMPT_FILE told");
    let task = world.script(&["Do it"], &script);
    world.reaches(&task, "READY");
    world.settles(&task);
    world.belay(&["reject", &task, "Use spaces; not tabs."]).done();
    assert_eq!(world.state(&task), "PENDING");
    world.belay(&["resume", &task]).done();
    world.reaches(&task, "READY");
    let told = world.git("repo", &["show", &format!("belay/{task}:told")]);
    assert!(told.contains("Use spaces; not tabs.") && told.contains("Do it"), "{told}");
    assert_eq!(world.git("repo", &["show", &format!("belay/{task}:made.txt")]), "work\nwork");
    world.settles(&task);
    world.belay(&["reject", &task, "Once more.", "--run"]).done();
    wait_for("a third attempt is made", || world.attempts(&task).len() == 3);
    world.reaches(&task, "READY");
}

#[test]
fn row_resting_queued_by_retry() {
    let world = World::new(QUICK);
    let task = world.script(&["go"], &format!("{WORK}; [ $BELAY_ATTEMPT -ge 2 ]"));
    world.reaches(&task, "FAILED");
    world.settles(&task);
    world.belay(&["retry", &task]).done();
    world.reaches(&task, "READY");
    let attempts = world.attempts(&task);
    assert_ne!(attempts[0][4], attempts[1][4], "a new session");
    assert_eq!(world.git("repo", &["show", &format!("belay/{task}:made.txt")]), "work");
}

#[test]
fn row_resting_queued_by_resume() {
    let world = World::new(QUICK);
    let script =
        format!("{WORK}; cp $BELAY_PROMPT_FILE told; [ $BELAY_ATTEMPT -ge 2 ] || sleep 99");
    let task = world.script(&["go", "--timeout", "1s"], &script);
    world.reaches(&task, "TIMED_OUT");
    world.settles(&task);
    world.belay(&["resume", &task, "Hurry up."]).done();
    world.reaches(&task, "READY");
    let attempts = world.attempts(&task);
    assert_eq!(attempts[0][4], attempts[1][4], "the same session");
    assert_eq!(world.git("repo", &["show", &format!("belay/{task}:made.txt")]), "work\nwork");
    let told = world.git("repo", &["show", &format!("belay/{task}:told")]);
    assert!(told.contains("Hurry up."), "{told}");
}

#[test]
fn row_any_cancelled() {
    let world = World::new(&format!("{QUICK}[roles.none]\nworkers = 0\n"));
    let pending = world.script(&["pending"], WORK);
    world.reaches(&pending, "READY");
    world.belay(&["reject", &pending]).done();
    let queued = world.script(&["queued", "--role", "none"], WORK);
    let blocked = world.script(&["blocked"], ASKS);
    let ready = world.script(&["ready"], WORK);
    let failed = world.script(&["failed"], "exit 1");
    let late = world.script(&["late", "--timeout", "1s"], "sleep 99");
    let expected = [
        (&pending, "PENDING"),
        (&queued, "QUEUED"),
        (&blocked, "BLOCKED"),
        (&ready, "READY"),
        (&failed, "FAILED"),
        (&late, "TIMED_OUT"),
    ];
    for (task, state) in expected {
        world.reaches(task, state);
        world.belay(&["cancel", task]).done();
        assert_eq!(world.state(task), "CANCELLED");
        for verb in [&["accept", task][..], &["retry", task], &["answer", task, "x"]] {
            world.belay(verb).refused(3, "CANCELLED");
        }
    }
    // With everything below it.
    let parent = world.script(&["parent"], "reach up; await go");
    world.reached(&parent, "up");
    let child = world.script(&["child", "--parent", &parent], "reach up; await go");
    world.reached(&child, "up");
    world.belay(&["stop", &parent]).done();
    world.reaches(&child, "CANCELLED");
    world.settles(&child);
    world.nothing_runs();
}

#[test]
fn row_any_budget_exceeded() {
    let world = World::new(QUICK);
    let spend = "echo x > made.txt; n=0; while :; do n=$((n+40)); \
        echo '{\"type\":\"agent.usage\",\"input_tokens\":'$n',\"output_tokens\":0}'; \
        sleep 0.05; done";
    world
        .belay(&["run", "spend", "--max-tokens", "100", "--", "sh", "-c", spend])
        .refused(3, "budget");
    let flags = ["spend", "--max-tokens", "100", "--allow-uncounted"];
    let task = world.script(&flags, spend);
    world.reaches(&task, "BUDGET_EXCEEDED");
    world.settles(&task);
    world.nothing_runs();
    assert!(!world.refs("repo").contains("belay/"), "nothing of it is pushed");
    assert!(world.belay(&["diff", &task]).done().out.contains("made.txt"), "but it is kept");
    world.belay(&["retry", &task]).refused(3, "BUDGET_EXCEEDED");
    let money = "echo '{\"type\":\"agent.usage\",\"cost_usd\":0.75}'; sleep 99";
    let task = world.script(&["spend", "--budget-usd", "0.5", "--allow-uncounted"], money);
    world.reaches(&task, "BUDGET_EXCEEDED");
    // A subtask is charged to the same budget.
    let parent =
        world.script(&["parent", "--max-tokens", "100", "--allow-uncounted"], "reach up; await go");
    world.reached(&parent, "up");
    let child = world.script(&["child", "--parent", &parent], spend);
    world.reaches(&child, "BUDGET_EXCEEDED");
    world.reaches(&parent, "BUDGET_EXCEEDED");
    world.settles(&parent);
    world.nothing_runs();
}

#[test]
fn what_follows_a_final_task_is_a_new_one_in_its_session() {
    let world = World::new(QUICK);
    let task = world.script(&["go", "--review", "auto"], "cat $BELAY_PROMPT_FILE >> made.txt");
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    let next = world.belay(&["continue", &task, "Now the rest.", "--json"]).json();
    let next = next["id"].as_str().unwrap().to_owned();
    world.reaches(&next, "COMPLETED");
    assert_eq!(world.state(&task), "COMPLETED");
    assert_eq!(world.attempts(&task)[0][4], world.attempts(&next)[0][4]);
    let made = world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert!(made.contains("go") && made.contains("Now the rest."), "{made}");
    let open = world.script(&["open"], "reach up; await go");
    world.reached(&open, "up");
    world.belay(&["continue", &open, "x"]).refused(3, "RUNNING");
}

#[test]
fn ends_without_progress_are_braked() {
    let world = World::new(QUICK);
    let task = world.script(&["spin", "--max-attempts", "50"], "exit 1");
    world.reaches(&task, "FAILED");
    assert_eq!(world.why(&task), "no_progress");
    assert_eq!(world.attempts(&task).len(), 3);
    world.settles(&task);
    world.belay(&["retry", &task]).done();
    wait_for("a person's retry grants one attempt", || world.attempts(&task).len() == 4);
    world.reaches(&task, "FAILED");
    world.settles(&task);
    assert_eq!(world.attempts(&task).len(), 4);
}
