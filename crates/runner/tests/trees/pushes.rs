//! Pushes: where they land, and what is known of one whose answer never came.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belay_kernel::publish::{Push, PushOutcome, Remote, Settling, settle};
use belay_runner::{Publisher, Said, Tree};

use crate::{Machine, git, script, show, work, write};

/// A bare remote, with a `pre-receive` hook.
fn remote(machine: &Machine, hook: &str) -> PathBuf {
    let path = machine.root.path().join("remote.git");
    git(machine.root.path(), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    script(&path.join("hooks/pre-receive"), &format!("#!/bin/sh\n{hook}\n"));
    path
}

#[tokio::test]
async fn a_push_lands_only_where_it_expects_to() {
    let machine = Machine::new();
    let remote = remote(&machine, "exit 0").display().to_string();
    let (tree, kept) = work(&machine).await;
    let publisher = Publisher::new(&machine.git, &tree.mirror, &remote, "belay/x");
    assert_eq!(publisher.look().await.unwrap(), None);
    let push = Push { commit: kept.commit, expected: None };
    assert_eq!(publisher.push(push).await.unwrap(), Said::Landed);
    assert_eq!(publisher.look().await.unwrap(), Some(kept.commit));
    assert_eq!(publisher.remote_of(push).await, Remote::HasCommit);

    let late = Push { commit: tree.base, expected: None };
    assert_eq!(publisher.push(late).await.unwrap(), Said::Refused);
    assert_eq!(publisher.look().await.unwrap(), Some(kept.commit));
}

#[tokio::test]
async fn a_remote_that_refuses_or_is_away_is_told_apart() {
    let machine = Machine::new();
    let refusing = remote(&machine, "exit 1").display().to_string();
    let (tree, kept) = work(&machine).await;
    let push = Push { commit: kept.commit, expected: None };
    let publisher = Publisher::new(&machine.git, &tree.mirror, &refusing, "belay/x");
    assert_eq!(publisher.push(push).await.unwrap(), Said::Refused);
    assert_eq!(publisher.remote_of(push).await, Remote::AsExpected);

    let away = machine.root.path().join("away.git").display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &away, "belay/x");
    assert_eq!(publisher.push(push).await.unwrap(), Said::Nothing);
    assert_eq!(publisher.remote_of(push).await, Remote::Unreachable);
}

#[tokio::test]
async fn a_push_that_takes_longer_than_it_may_says_nothing() {
    let machine = Machine::new();
    let remote = remote(&machine, "exit 0").display().to_string();
    let (tree, kept) = work(&machine).await;
    let git = machine.git.within(Duration::ZERO);
    let publisher = Publisher::new(&git, &tree.mirror, &remote, "belay/x");
    let push = Push { commit: kept.commit, expected: None };
    assert_eq!(publisher.push(push).await.unwrap(), Said::Nothing);
    assert_eq!(publisher.remote_of(push).await, Remote::Unreachable);
}

/// Waits until `done`, for at most ten seconds.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a file is there.
async fn appears(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A push that is killed while the remote's hook waits for a file named `go`.
async fn killed_push(machine: &Machine) -> (Tree, Push, PathBuf, PathBuf) {
    let (entered, go) = (machine.root.path().join("entered"), machine.root.path().join("go"));
    let hook = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.01; done",
        entered.display(),
        go.display()
    );
    let path = remote(machine, &hook);
    let (tree, kept) = work(machine).await;
    let push = Push { commit: kept.commit, expected: None };
    let location = path.display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &location, "belay/x");
    // Dropping the call kills git; the remote's side is another process, and lives on.
    tokio::select! {
        said = publisher.push(push) => panic!("the push ended: {said:?}"),
        () = appears(&entered) => {}
    }
    (tree, push, path, go)
}

#[tokio::test]
async fn a_push_killed_in_the_remotes_hook_lands_later_so_its_absence_proves_nothing() {
    let machine = Machine::new();
    let (tree, push, path, go) = killed_push(&machine).await;
    let location = path.display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &location, "belay/x");
    assert_eq!(publisher.remote_of(push).await, Remote::AsExpected);
    write(&go, "");
    let landed = || {
        let listed = git(&path, &["for-each-ref", "refs/heads/belay/x"]);
        listed.contains(&push.commit.to_string())
    };
    wait_until("the killed push has landed", landed);
    assert_eq!(publisher.remote_of(push).await, Remote::HasCommit);
}

#[tokio::test]
async fn after_a_fence_push_the_killed_push_can_never_land() {
    let machine = Machine::new();
    let (tree, push, path, go) = killed_push(&machine).await;
    let location = path.display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &location, "belay/x");
    assert_eq!(
        settle(push, publisher.remote_of(push).await),
        Settling::FencePush { expected: None }
    );
    // The hook of the fence push must not wait: only the late one does.
    script(&path.join("hooks/pre-receive"), "#!/bin/sh\nexit 0\n");
    assert_eq!(publisher.fence(push, tree.base).await.unwrap(), Said::Landed);
    let settled = settle(push, publisher.remote_of(push).await);
    assert_eq!(settled, Settling::Settled(PushOutcome::NotPushed));

    let fenced = git(&path, &["rev-parse", "refs/heads/belay/x"]);
    write(&go, "");
    let hooks_end = || {
        let quarantine = path.join("objects").read_dir().unwrap();
        !quarantine.flatten().any(|e| e.file_name().to_string_lossy().starts_with("tmp_objdir"))
    };
    wait_until("the late push has ended", hooks_end);
    assert_eq!(git(&path, &["rev-parse", "refs/heads/belay/x"]), fenced, "it did not land");
    assert_eq!(show(&path, fenced.parse().unwrap(), "a.txt"), "a");
}

#[tokio::test]
async fn a_ref_that_moved_on_from_the_commit_still_has_it() {
    let machine = Machine::new();
    let remote = remote(&machine, "exit 0");
    let (tree, kept) = work(&machine).await;
    let location = remote.display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &location, "belay/x");
    let push = Push { commit: kept.commit, expected: None };
    publisher.push(push).await.unwrap();
    let parent = kept.commit.to_string();
    let tip = git(
        &remote,
        &["commit-tree", &format!("{parent}^{{tree}}"), "-p", &parent, "-m", "on top"],
    );
    git(&remote, &["update-ref", "refs/heads/belay/x", &tip]);
    assert_eq!(publisher.remote_of(push).await, Remote::HasCommit);
    let other = git(&remote, &["rev-parse", "trunk"]);
    git(&remote, &["update-ref", "refs/heads/belay/x", &other]);
    assert_eq!(publisher.remote_of(push).await, Remote::MovedOn);
}
