//! Roles have workers of their own, and subtasks have their parent's repository.

use std::fs;

use crate::world::{QUICK, World, wait_for};

#[test]
fn a_role_has_its_own_workers_and_takes_no_others() {
    let roles = "[roles.default]\nworkers = 1\n[roles.reviewer]\nworkers = 2\n\
                 [roles.nobody]\nworkers = 0\n";
    let world = World::new(&format!("{QUICK}{roles}"));
    let start = |role: &str| {
        world.script(&["x", "--role", role, "--publish", "none"], "reach up; await go")
    };
    let reviewers = [start("reviewer"), start("reviewer"), start("reviewer")];
    let (busy, waits) = (start("default"), start("default"));
    let unserved = start("nobody");
    let running =
        |tasks: &[String]| tasks.iter().filter(|task| world.state(task) == "RUNNING").count();
    wait_for("every worker works", || {
        running(&reviewers) == 2 && running(&[busy.clone(), waits.clone()]) == 1
    });
    // Another round of claims takes nothing more.
    let other = world.script(&["x", "--role", "reviewer", "--priority", "-9"], "true");
    assert_eq!(world.state(&other), "QUEUED");
    assert_eq!(running(&reviewers), 2);
    assert_eq!(world.state(&unserved), "QUEUED");
    let why = world.belay(&["why", &unserved]).done().out;
    assert!(why.contains("No runner works for the role `nobody`"), "{why}");
    let done = reviewers.iter().find(|task| world.state(task) == "RUNNING").unwrap();
    world.let_go(done, "go");
    wait_for("the next one of the role follows", || {
        world.state(done) == "READY" && running(&reviewers) == 2
    });
    let both = [busy, waits];
    assert_eq!(running(&both), 1, "a free reviewer is no default worker");
}

#[test]
fn a_subtask_from_inside_works_on_the_parents_repository_from_its_last_commit() {
    let world = World::new(&format!("{QUICK}[roles.default]\nworkers = 2\n"));
    let belay = env!("CARGO_BIN_EXE_belay");
    let script = format!(
        "git config user.name A; git config user.email a@b; echo mine > part.txt\n\
         git add part.txt; git commit -qm part; echo loose > loose.txt\n\
         '{belay}' run --parent $BELAY_TASK_ID --detach --review auto -- \
         sh -c 'cat part.txt; ls; echo more >> part.txt' > .git/sub 2> .git/complaint || \
         cat .git/complaint\nreach told; await go"
    );
    let parent = world.script(&["part", "--publish", "none"], &script);
    world.reached(&parent, "told");
    let sub = fs::read_to_string(world.tree(&parent).join(".git/sub")).unwrap();
    let sub = sub.trim();
    assert!(!sub.is_empty(), "{}", world.transcript(&parent, 1));
    world.reaches(sub, "COMPLETED");
    let repository = world.path("repo").canonicalize().unwrap();
    let asked = format!("SELECT repository FROM specs WHERE task = '{sub}'");
    assert_eq!(world.cell(&asked), repository.display().to_string());
    let printed = world.transcript(sub, 1);
    assert!(printed.contains("mine") && !printed.contains("loose"), "{printed}");
    let branch = format!("refs/heads/belay/{sub}");
    assert!(world.refs("repo").contains(&branch), "it is published where its parent is");
    world.let_go(&parent, "go");
    world.reaches(&parent, "READY");
}

#[test]
fn an_agent_names_no_other_repository() {
    let world = World::new(&format!("{QUICK}[roles.default]\nworkers = 2\n"));
    let belay = env!("CARGO_BIN_EXE_belay");
    let script = format!(
        "'{belay}' run --parent $BELAY_TASK_ID --detach --repo . -- true; echo ended with $?"
    );
    let parent = world.script(&["x", "--publish", "none"], &script);
    world.reaches(&parent, "READY");
    let printed = world.transcript(&parent, 1);
    assert!(printed.contains("works on its parent's repository"), "{printed}");
    assert!(printed.contains("ended with 3"), "{printed}");
}
