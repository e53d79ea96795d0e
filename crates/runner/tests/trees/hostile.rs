//! What an agent writes into its repository is never run, and leads nowhere.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use belay_kernel::publish::Push;
use belay_runner::{Import, Publisher, Said};

use crate::{Machine, git, script, show, write};

/// Everything in an agent's repository that git would run, pointed at a canary.
fn plant(tree: &Path, canary: &Path) {
    let touch = format!("touch {}", canary.display());
    for (key, value) in [
        ("core.fsmonitor", &touch),
        ("core.sshCommand", &touch),
        ("core.pager", &touch),
        ("core.editor", &touch),
        ("diff.external", &touch),
        ("filter.evil.clean", &touch),
        ("filter.evil.smudge", &touch),
        ("credential.helper", &format!("!{touch}")),
        ("uploadpack.packObjectsHook", &touch),
        ("remote.origin.pushurl", &"/elsewhere".to_owned()),
        ("alias.add", &format!("!{touch}")),
    ] {
        git(tree, &["config", key, value]);
    }
    write(&tree.join(".gitattributes"), "* filter=evil diff=evil\n");
    git(tree, &["config", "diff.evil.textconv", &touch]);
    for hook in
        ["pre-commit", "post-checkout", "pre-push", "reference-transaction", "post-index-change"]
    {
        script(&tree.join(".git/hooks").join(hook), &format!("#!/bin/sh\n{touch}\n"));
    }
}

#[tokio::test]
async fn nothing_that_the_agent_wrote_runs_when_its_work_is_taken_and_pushed() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    let canary = machine.root.path().join("canary");
    write(&tree.path.join("work.txt"), "w");
    plant(&tree.path, &canary);
    let kept = machine.keep(&tree).await;
    machine.trees.diff(&tree, kept.commit).await.unwrap();
    let base = machine.base().display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &base, "belay/x");
    let push = Push { commit: kept.commit, expected: None };
    assert_eq!(publisher.push(push).await.unwrap(), Said::Landed);
    assert!(!canary.exists(), "something that the agent wrote was run");
    assert_eq!(show(&machine.base(), kept.commit, "work.txt"), "w");

    // The canary works: git run inside the tree would have set it off.
    let _ = Command::new("git").args(["status"]).current_dir(&tree.path).output().unwrap();
    assert!(canary.exists(), "the trap is real");
}

/// A repository that no agent was shown, and its only commit.
fn secret(machine: &Machine) -> (PathBuf, String) {
    let path = machine.root.path().join("secret");
    std::fs::create_dir_all(&path).unwrap();
    git(&path, &["init", "--quiet"]);
    write(&path.join("key"), "s3cr3t");
    git(&path, &["add", "."]);
    git(&path, &["commit", "--quiet", "-m", "secret"]);
    let hidden = git(&path, &["rev-parse", "HEAD"]);
    (path, hidden)
}

#[tokio::test]
async fn a_repository_that_was_pointed_elsewhere_gives_files_only() {
    let machine = Machine::new();
    let (secret, hidden) = secret(&machine);
    let tree = machine.tree().await;
    let dot_git = tree.path.join(".git");
    let saved = tree.path.with_extension("saved");
    std::fs::rename(&dot_git, &saved).unwrap();
    let restore = || {
        let _ = std::fs::remove_file(&dot_git).or_else(|_| std::fs::remove_dir_all(&dot_git));
        assert!(Command::new("cp").arg("-a").arg(&saved).arg(&dot_git).status().unwrap().success());
    };
    let gitdir = format!("gitdir: {}\n", secret.join(".git").display());
    type Way<'a> = (&'static str, Box<dyn Fn() + 'a>);
    let point: [Way<'_>; 5] = [
        (
            "gitdir",
            Box::new(|| {
                std::fs::remove_dir_all(&dot_git).unwrap();
                write(&dot_git, &gitdir);
            }),
        ),
        (
            "link",
            Box::new(|| {
                std::fs::remove_dir_all(&dot_git).unwrap();
                symlink(secret.join(".git"), &dot_git).unwrap();
            }),
        ),
        (
            "commondir",
            Box::new(|| {
                let common = secret.join(".git").display().to_string();
                write(&dot_git.join("commondir"), &format!("{common}\n"));
                write(&dot_git.join("HEAD"), &format!("{hidden}\n"));
            }),
        ),
        (
            "alternates",
            Box::new(|| {
                let objects = secret.join(".git/objects").display().to_string();
                write(&dot_git.join("objects/info/alternates"), &format!("{objects}\n"));
                write(&dot_git.join("HEAD"), &format!("{hidden}\n"));
            }),
        ),
        (
            "linked objects",
            Box::new(|| {
                let name = &hidden[..2];
                let _ = std::fs::remove_dir_all(dot_git.join("objects").join(name));
                symlink(secret.join(".git/objects").join(name), dot_git.join("objects").join(name))
                    .unwrap();
                write(&dot_git.join("HEAD"), &format!("{hidden}\n"));
            }),
        ),
    ];
    for (way, point) in point {
        restore();
        write(&tree.path.join("work.txt"), way);
        point();
        let kept = machine.keep(&tree).await;
        assert!(matches!(kept.import, Import::Refused(_)), "{way}: {:?}", kept.import);
        assert_eq!(show(&tree.mirror, kept.commit, "work.txt"), way, "the files are kept");
        let found = Command::new("git")
            .args(["cat-file", "-e", &hidden])
            .current_dir(&tree.mirror)
            .status()
            .unwrap();
        assert!(!found.success(), "{way}: the secret reached our repository");
    }
}
