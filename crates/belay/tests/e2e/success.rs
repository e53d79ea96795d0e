//! Work that succeeds: it is shown, taken, merged, published.

use std::fs;

use crate::world::{QUICK, World};

/// An agent that does some work.
const EDIT: &str = "cat > was; echo 'a line' >> README; echo new > made.txt; rm was";

#[test]
fn work_is_shown_accepted_and_merged() {
    let world = World::new(QUICK);
    let said = world.belay(&["run", "Write a line", "--", "sh", "-c", EDIT]).done();
    assert!(said.err.contains("READY"), "{said:?}");
    let task = world.cell("SELECT id FROM tasks");
    assert_eq!(world.state(&task), "READY");
    let diff = world.belay(&["diff", &task]).done().out;
    for line in ["+a line", "+++ b/made.txt", "+new"] {
        assert!(diff.contains(line), "{diff}");
    }
    let branch = format!("belay/{task}");
    assert_eq!(world.git("repo", &["show", &format!("{branch}:made.txt")]), "new");
    assert!(!world.path("repo/made.txt").exists(), "nothing is merged before it is accepted");
    let before = world.git("repo", &["rev-parse", "main"]);

    world.belay(&["accept", "--merge", &task]).done();
    assert_eq!(world.state(&task), "COMPLETED");
    assert_eq!(fs::read_to_string(world.path("repo/README")).unwrap(), "hello\na line\n");
    assert!(world.git_holds("repo", &["merge-base", "--is-ancestor", &branch, "main"]));
    assert!(world.git_holds("repo", &["merge-base", "--is-ancestor", &before, "main"]));
    assert_eq!(world.git("repo", &["status", "--porcelain"]), "");
    world.nothing_runs();

    world.belay(&["accept", &task]).refused(3, "COMPLETED");
}

#[test]
fn work_for_a_url_is_pushed_there() {
    let world = World::new(QUICK);
    let url = world.remote();
    let flags = ["go", "--repo", &url, "--branch", "topic/x", "--review", "auto"];
    let task = world.script(&flags, EDIT);
    world.reaches(&task, "COMPLETED");
    world.settles(&task);
    assert_eq!(world.git("remote.git", &["show", "topic/x:made.txt"]), "new");
    assert_eq!(world.attempts(&task)[0][1..4], ["ENDED", "succeeded", "pushed"]);
    let pushed = world.cell(&format!("SELECT push_commit FROM attempts WHERE task = '{task}'"));
    assert_eq!(world.git("remote.git", &["rev-parse", "topic/x"]), pushed);
    assert!(!world.refs("repo").contains("belay/"), "the person's own clone is not touched");
}

#[test]
fn what_is_not_to_be_published_is_kept_only() {
    let world = World::new(QUICK);
    let url = world.remote();
    let (refs, remote) = (world.refs("repo"), world.refs("remote.git"));
    for repository in [url.as_str(), "."] {
        let task = world.script(&["go", "--publish", "none", "--repo", repository], EDIT);
        world.reaches(&task, "READY");
        assert!(world.belay(&["diff", &task]).done().out.contains("+new"));
        world.belay(&["accept", &task]).done();
        world.settles(&task);
        let kept = world.cell(&format!("SELECT kept_ref FROM attempts WHERE task = '{task}'"));
        assert_eq!(kept, format!("refs/belay/kept/{task}/1"));
    }
    assert_eq!(world.refs("remote.git"), remote);
    assert_eq!(world.refs("repo"), refs);
}

#[test]
fn what_a_program_is_told_arrives_letter_for_letter() {
    let world = World::new(QUICK);
    let prompt = "$HOME `id` \\n \"quoted\" 'single' ; rm -rf / && ünï \u{1f9d7} $(x)\nsecond line";
    let task = world.start(&[prompt, "--review", "auto", "--", "tee", "told"]);
    world.reaches(&task, "COMPLETED");
    let told = world.git("repo", &["show", &format!("belay/{task}:told")]);
    assert!(told.contains(prompt), "{told}");
    assert!(world.transcript(&task, 1).contains(prompt));
}
