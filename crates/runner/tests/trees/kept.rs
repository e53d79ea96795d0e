//! What is kept of a tree, and how it comes back.

use std::os::unix::fs::symlink;
use std::time::Duration;

use belay_kernel::AttemptNumber;
use belay_kernel::publish::{CommitId, Push};
use belay_runner::{Git, Import, Publisher, Said, TreeError, TreeRequest, Trees};

use crate::{Machine, SESSION, TASK, files, git, script, show, work, write};

#[tokio::test]
async fn committed_and_uncommitted_work_is_kept_with_modes_and_links() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    write(&tree.path.join("committed.txt"), "1");
    git(&tree.path, &["add", "."]);
    git(&tree.path, &["commit", "--quiet", "-m", "one"]);
    script(&tree.path.join("run.sh"), "#!/bin/sh\n");
    symlink("a.txt", tree.path.join("link")).unwrap();
    std::fs::remove_file(tree.path.join("dir/b.txt")).unwrap();
    write(&tree.path.join("ignored"), "no");
    let before = machine.refs();

    let kept = machine.keep(&tree).await;
    assert_eq!((kept.changed, &kept.import), (true, &Import::Taken));
    assert_eq!(
        files(&tree.mirror, kept.commit),
        "100644 .gitignore, 100644 a.txt, 100644 committed.txt, 120000 link, 100755 run.sh"
    );
    let log = git(&tree.mirror, &["log", "--format=%s", &kept.commit.to_string()]);
    assert_eq!(log, format!("Work of task {TASK}, attempt 1\none\nfirst"));
    let reference = format!("refs/belay/kept/{TASK}/1");
    assert_eq!(git(&tree.mirror, &["rev-parse", &reference]), kept.commit.to_string());
    assert_eq!(machine.refs(), before, "the base knows nothing of it");

    machine.trees.remove(tree.session).unwrap();
    assert!(!tree.path.exists());
    assert_eq!(show(&tree.mirror, kept.commit, "committed.txt"), "1", "it outlives its tree");
}

#[tokio::test]
async fn a_tree_without_changes_keeps_its_base_commit() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    let kept = machine.keep(&tree).await;
    assert_eq!((kept.commit, kept.changed), (tree.base, false));
    assert_eq!(machine.trees.diff(&tree, kept.commit).await.unwrap(), b"");
}

#[tokio::test]
async fn the_diff_is_read_without_the_agents_configuration() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    write(&tree.path.join("a.txt"), "changed\n");
    let kept = machine.keep(&tree).await;
    let diff = machine.trees.diff(&tree, kept.commit).await.unwrap();
    let diff = String::from_utf8(diff).unwrap();
    assert!(diff.contains("-a\n+changed"), "{diff}");
}

#[tokio::test]
async fn a_file_changed_without_a_trace_in_its_size_is_kept_changed() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    write(&tree.path.join("a.txt"), "b\n");
    let path = tree.path.join("a.txt");
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let kept = machine.keep(&tree).await;
    assert!(kept.changed);
    assert_eq!(show(&tree.mirror, kept.commit, "a.txt"), "b");
}

#[tokio::test]
async fn work_is_kept_as_the_same_commit_however_often_it_is_kept() {
    let machine = Machine::new();
    let (tree, kept) = work(&machine).await;
    // A commit that is made again would carry another time, once the second is another.
    let second = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let first = second();
    while second() == first {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(machine.keep(&tree).await, kept);
    let second = AttemptNumber(2);
    let again = machine.trees.keep(&tree, TASK, second, Some(kept.commit)).await.unwrap();
    assert_eq!((again.changed, again.moved), (true, false), "the second attempt did nothing");
    write(&tree.path.join("work.txt"), "more");
    let more = machine.trees.keep(&tree, TASK, second, Some(kept.commit)).await.unwrap();
    assert!(more.moved && more.commit != again.commit);
    git(&tree.path, &["add", "."]);
    git(&tree.path, &["commit", "--quiet", "-m", "the agent's own"]);
    let third = AttemptNumber(3);
    let committed = machine.trees.keep(&tree, TASK, third, Some(more.commit)).await.unwrap();
    assert!(committed.moved, "a commit is a change, also of the same files");
}

#[tokio::test]
async fn a_sessions_tree_is_found_again_with_what_is_in_it() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    write(&tree.path.join("work.txt"), "w");
    // The base moves on, and somebody else opens the directory.
    write(&machine.base().join("later.txt"), "l");
    git(&machine.base(), &["add", "."]);
    git(&machine.base(), &["commit", "--quiet", "-m", "later"]);
    let trees = Trees::new(&machine.root.path().join("runner"), machine.git.clone()).unwrap();
    assert_eq!(trees.prepare(&machine.request()).await.unwrap(), tree);
    assert_eq!(std::fs::read_to_string(tree.path.join("work.txt")).unwrap(), "w");
    assert!(!tree.path.join("later.txt").exists());
}

#[tokio::test]
async fn a_crash_while_a_tree_is_made_leaves_nothing_half_made() {
    let machine = Machine::new();
    let tree = machine.tree().await;
    let expected = files(&tree.mirror, tree.base);
    let trees = machine.root.path().join("runner/trees");
    let making = trees.join(format!(".making-{SESSION}"));
    let record = trees.join(format!("{SESSION}.json"));
    let recorded = std::fs::read(&record).unwrap();
    // Before the record, and between the record and the rename; each with half a tree beside.
    for has_record in [false, true] {
        std::fs::remove_dir_all(&tree.path).unwrap();
        match has_record {
            true => std::fs::write(&record, &recorded).unwrap(),
            false => std::fs::remove_file(&record).unwrap(),
        }
        write(&making.join("a.txt"), "half");
        write(&making.join(".git/HEAD"), "");
        assert_eq!(machine.trees.find(SESSION).unwrap(), None, "half a tree is none");
        let again = machine.tree().await;
        assert_eq!(again, tree);
        assert_eq!(std::fs::read_to_string(tree.path.join("a.txt")).unwrap(), "a\n");
        assert_eq!(git(&tree.path, &["status", "--porcelain"]), "");
        assert_eq!(files(&tree.path, tree.base), expected);
        assert!(!making.exists());
    }
}

#[tokio::test]
async fn a_tree_that_is_gone_is_made_again_of_what_was_kept_or_refused() {
    let machine = Machine::new();
    let (tree, kept) = work(&machine).await;
    machine.trees.remove(SESSION).unwrap();
    let request = TreeRequest { kept: Some(kept.commit), ..machine.request() };
    let again = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(again.base, tree.base, "its base is what it was");
    assert_eq!(std::fs::read_to_string(again.path.join("work.txt")).unwrap(), "w");

    let elsewhere: CommitId = "ab".repeat(20).parse().unwrap();
    machine.trees.remove(SESSION).unwrap();
    let request = TreeRequest { kept: Some(elsewhere), ..machine.request() };
    let refused = machine.trees.prepare(&request).await.unwrap_err();
    assert!(matches!(refused, TreeError::NotHere(commit) if commit == elsewhere), "{refused}");
    assert!(!tree.path.exists(), "and nothing else is put in its place");
}

#[tokio::test]
async fn what_was_published_brings_a_tree_back_on_another_machine() {
    let machine = Machine::new();
    let (tree, kept) = work(&machine).await;
    let base = machine.base().display().to_string();
    let publisher = Publisher::new(&machine.git, &tree.mirror, &base, &tree.branch);
    let push = Push { commit: kept.commit, expected: None };
    assert_eq!(publisher.push(push).await.unwrap(), Said::Landed);

    let other = machine.root.path().join("other");
    let git = Git::new(&other, Duration::from_secs(60)).unwrap();
    let trees = Trees::new(&other, git).unwrap();
    let request = TreeRequest { kept: Some(kept.commit), ..machine.request() };
    let again = trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(again.path.join("work.txt")).unwrap(), "w");
}

#[tokio::test]
async fn a_tree_that_was_left_behind_is_set_aside_when_its_session_comes_back() {
    let machine = Machine::new();
    let (tree, kept) = work(&machine).await;
    let base = machine.base().display().to_string();
    let first = Publisher::new(&machine.git, &tree.mirror, &base, &tree.branch);
    first.push(Push { commit: kept.commit, expected: None }).await.unwrap();
    write(&tree.path.join("unsaved.txt"), "u");

    let other = machine.root.path().join("other");
    let git = Git::new(&other, Duration::from_secs(60)).unwrap();
    let trees = Trees::new(&other, git.clone()).unwrap();
    let request = |kept: CommitId| TreeRequest { kept: Some(kept), ..machine.request() };
    let there = trees.prepare(&request(kept.commit)).await.unwrap();
    write(&there.path.join("more.txt"), "m");
    let newer = trees.keep(&there, TASK, AttemptNumber(2), None).await.unwrap();
    let second = Publisher::new(&git, &there.mirror, &base, &there.branch);
    let push = Push { commit: newer.commit, expected: Some(kept.commit) };
    assert_eq!(second.push(push).await.unwrap(), Said::Landed);

    let back = machine.trees.prepare(&request(newer.commit)).await.unwrap();
    assert_eq!(std::fs::read_to_string(back.path.join("more.txt")).unwrap(), "m");
    assert!(!back.path.join("unsaved.txt").exists());
    let beside = back.path.parent().unwrap().read_dir().unwrap().flatten();
    let left = beside.map(|entry| entry.path()).find(|path| path.join("unsaved.txt").exists());
    assert!(left.is_some(), "what nobody saved is still there");

    write(&back.path.join("next.txt"), "n");
    let again = machine.trees.prepare(&request(newer.commit)).await.unwrap();
    assert!(again.path.join("next.txt").exists(), "and a tree that leads on is left alone");
}

#[tokio::test]
async fn a_session_without_a_repository_keeps_its_files() {
    let machine = Machine::new();
    let request = TreeRequest { base: None, ..machine.request() };
    let tree = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(tree.path.read_dir().unwrap().count(), 0);
    assert!(!machine.keep(&tree).await.changed);
    write(&tree.path.join("dir/new.txt"), "n");
    let kept = machine.keep(&tree).await;
    assert!(kept.changed);
    assert_eq!(files(&tree.mirror, kept.commit), "100644 dir/new.txt");
    let diff = machine.trees.diff(&tree, kept.commit).await.unwrap();
    assert!(String::from_utf8(diff).unwrap().contains("+n"));
    machine.trees.remove(SESSION).unwrap();
    let request = TreeRequest { kept: Some(kept.commit), ..request };
    let again = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(again.path.join("dir/new.txt")).unwrap(), "n");
}
