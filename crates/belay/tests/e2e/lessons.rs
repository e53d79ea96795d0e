//! What broke in systems like this one, as far as a process can show it and no other test does.
//!
//! - stopped stays stopped whatever comes later, a second server is refused: here
//! - what an agent writes into its repository gains it nothing: here
//! - an event type that is not known counts as work, many completions are one end: here
//! - deleting stops, and removes: here
//! - a stop while a tree is prepared, with daemons, while a question waits: `stop`
//! - reaching a limit is no success, a deadline passed while nobody looked: `timeouts`
//! - an answer reaches the agent, a failed subtask fails its parent, the brake: `table`
//! - two restarts, one attempt: `crash`

use std::fs;

use crate::world::{QUICK, World, wait_for};

#[test]
fn lesson_what_an_agent_writes_into_its_repository_gains_it_nothing() {
    let world = World::new(QUICK);
    let url = world.remote();
    let trap = world.path("trapped").display().to_string();
    world.program("trap", &format!("#!/bin/sh\necho \"$0 $@\" >> '{trap}'\nexit 1\n"));
    world.program("other.sh", "true");
    world.git(".", &["init", "-q", "--bare", "other.git"]);
    let program = world.path("trap").display().to_string();
    let other = world.path("other.git").display().to_string();
    let script = format!(
        "git config remote.origin.pushurl '{other}'; git config remote.origin.url '{other}'
         git config core.sshCommand '{program}'; git config credential.helper '!{program}'
         git config core.fsmonitor '{program}'; git config core.hooksPath .git/hooks
         git config core.pager '{program}'; git config diff.external '{program}'
         git config filter.x.clean '{program}'; git config filter.x.smudge '{program}'
         git config url.'{other}'.insteadOf '{url}'
         mkdir -p .git/hooks
         for hook in pre-push pre-commit post-commit post-checkout reference-transaction; do
           printf '#!/bin/sh\\necho hook >> {trap}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
         done
         echo '* filter=x diff=x' > .gitattributes
         echo work > made.txt"
    );
    let task = world.script(&["trap", "--repo", &url, "--review", "auto"], &script);
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    world.belay(&["diff", &task]).done();
    assert!(!world.path("trapped").exists(), "{:?}", fs::read_to_string(world.path("trapped")));
    assert_eq!(world.refs("other.git"), "", "the agent chose no other remote");
    assert_eq!(world.git("remote.git", &["show", &format!("belay/{task}:made.txt")]), "work");
}

#[test]
fn lesson_an_agent_sees_neither_the_persons_files_nor_the_servers() {
    let world = World::new(QUICK);
    fs::write(world.path("home/secret"), "do not tell").unwrap();
    let home = world.path("home/secret").display().to_string();
    let token = world.data().join("token").display().to_string();
    let database = world.data().join("belay.db").display().to_string();
    let repo = world.path("repo/README").display().to_string();
    let script = format!(
        "for f in {home} {token} {database} {repo}; do cat $f && echo SEEN $f; done 2>/dev/null
         echo hi > {repo} 2>/dev/null && echo WRITTEN; ls /proc | grep -c '^[0-9]'; true"
    );
    let task = world.script(&["look"], &script);
    world.reaches(&task, "READY");
    world.settles(&task);
    let seen = world.transcript(&task, 1);
    assert!(!seen.contains("SEEN") && !seen.contains("WRITTEN"), "{seen}");
    assert!(!seen.contains("do not tell"));
    let processes: u32 = seen.lines().last().unwrap().trim().parse().unwrap();
    assert!(processes < 10, "only its own processes: {processes}");
}

#[test]
fn lesson_secrets_are_masked() {
    let world = World::new(QUICK);
    let task = world.script(
        &["tell", "--env", "API_SECRET=hunter2hunter2", "--review", "auto"],
        "echo $API_SECRET; echo token $BELAY_TOKEN; echo ok",
    );
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    let token = world.transcript(&task, 1);
    assert!(token.contains("ok") && !token.contains("hunter2hunter2"), "{token}");
    assert!(!token.contains("belay_attempt_"), "{token}");
    let found = std::process::Command::new("grep")
        .args(["-rl", "hunter2hunter2"])
        .arg(world.data().join("blobs"))
        .output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
}

#[test]
fn lesson_unknown_events_and_many_completions_are_no_end() {
    let world = World::new(QUICK);
    let script = "for i in 1 2 3; do echo '{\"type\":\"agent.completed\"}'; \
                  echo '{\"type\":\"agent.something_new\"}'; echo $i >> made.txt; sleep 0.2; done";
    let task = world.script(&["emit", "--review", "auto"], script);
    world.reaches(&task, "COMPLETED");
    let made = world.git("repo", &["show", &format!("belay/{task}:made.txt")]);
    assert_eq!(made, "1\n2\n3", "it was not ended at the first completion");
}

#[test]
fn lesson_deleting_takes_everything_with_it_and_never_what_runs() {
    let world = World::new(QUICK);
    let task = world.script(&["run"], "echo x > made.txt; reach up; await go");
    world.reached(&task, "up");
    world.belay(&["rm", &task]).refused(3, "under way; stop it first");
    assert!(!world.sandboxed().is_empty());
    world.let_go(&task, "go");
    world.reaches(&task, "READY");
    wait_for("it is removed when its last attempt has ended", || {
        world.belay(&["rm", &task]).code == 0
    });
    assert_eq!(world.cell("SELECT count(*) FROM tasks"), "0");
    world.belay(&["show", &task]).refused(3, "no task");
    world.nothing_runs();
}

#[test]
fn lesson_one_server_for_one_directory() {
    let world = World::new(QUICK);
    world.belay(&["up"]).refused(3, "a server is up already");
    // Also one that does not know of the other.
    fs::remove_file(world.data().join("server.json")).unwrap();
    let said = world.belay(&["up"]);
    assert_ne!(said.code, 0, "{said:?}");
}

#[test]
fn lesson_the_default_branch_is_not_assumed() {
    let world = World::new(QUICK);
    world.git("repo", &["branch", "-m", "main", "trunk"]);
    let task = world.script(&["go"], "git rev-parse --abbrev-ref HEAD > made.txt");
    world.reaches(&task, "READY");
    world.belay(&["accept", "--merge", &task]).done();
    assert_eq!(fs::read_to_string(world.path("repo/made.txt")).unwrap(), format!("belay/{task}\n"));
}

#[test]
fn lesson_a_server_that_is_stopped_leaves_agents_to_the_next() {
    let world = World::new(QUICK);
    let task = world.script(&["go"], "reach up; await go; echo x > made.txt");
    world.reached(&task, "up");
    let agent = world.agent(&task);
    let said = world.belay(&["down"]).done().out;
    assert!(said.contains("1 agent goes on"), "{said}");
    world.crash();
    assert_eq!(world.agent(&task), agent);
    world.up();
    assert_eq!(world.agent(&task), agent);
    world.let_go(&task, "go");
    world.reaches(&task, "READY");
    wait_for("nothing is left", || world.sandboxed().is_empty());
}
