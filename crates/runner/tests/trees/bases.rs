//! Where trees begin: at a base, on their own branch, with nothing of it shared.

use std::path::Path;

use belay_kernel::SessionId;
use belay_runner::{Base, Dirty, TreeError, TreeRequest};

use crate::{Machine, SESSION, TASK, git, write};

#[tokio::test]
async fn a_tree_starts_at_the_bases_head_on_its_own_branch_and_shares_no_refs() {
    let machine = Machine::new();
    let before = machine.refs();
    let tree = machine.tree().await;
    assert_eq!(std::fs::read_to_string(tree.path.join("dir/b.txt")).unwrap(), "b\n");
    assert_eq!(git(&tree.path, &["branch", "--show-current"]), format!("belay/{TASK}"));
    assert_eq!(
        git(&tree.path, &["rev-parse", "HEAD"]),
        git(&machine.base(), &["rev-parse", "trunk"])
    );
    write(&tree.path.join("new.txt"), "x");
    git(&tree.path, &["add", "."]);
    git(&tree.path, &["commit", "--quiet", "-m", "the agent's own"]);
    assert_eq!(machine.refs(), before, "the agent's commit is no publish");
    assert_eq!(git(&tree.path, &["remote"]), "");
}

#[tokio::test]
async fn nothing_in_the_tree_is_a_hard_link() {
    use std::os::unix::fs::MetadataExt;
    let machine = Machine::new();
    let tree = machine.tree().await;
    let mut open = vec![tree.path];
    while let Some(directory) = open.pop() {
        for entry in directory.read_dir().unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            match meta.is_dir() {
                true => open.push(entry.path()),
                false => assert_eq!(meta.nlink(), 1, "{}", entry.path().display()),
            }
        }
    }
}

#[tokio::test]
async fn a_dirty_base_is_refused_or_included_by_choice() {
    let machine = Machine::new();
    write(&machine.base().join("a.txt"), "dirty\n");
    write(&machine.base().join("untracked.txt"), "u\n");
    let status = git(&machine.base(), &["status", "--porcelain"]);
    let refused = machine.trees.prepare(&machine.request()).await.unwrap_err();
    assert!(matches!(refused, TreeError::Dirty(_)), "{refused}");

    let request = TreeRequest { dirty: Dirty::Include, ..machine.request() };
    let tree = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.path.join("a.txt")).unwrap(), "dirty\n");
    assert_eq!(std::fs::read_to_string(tree.path.join("untracked.txt")).unwrap(), "u\n");
    assert_eq!(git(&machine.base(), &["status", "--porcelain"]), status, "the base is untouched");
    assert_eq!(git(&machine.base(), &["diff", "--cached", "--name-only"]), "");
}

#[tokio::test]
async fn what_the_base_excludes_for_itself_is_no_change() {
    let machine = Machine::new();
    write(&machine.base().join(".git/info/exclude"), "mine\n");
    write(&machine.base().join("mine"), "m\n");
    assert_eq!(git(&machine.base(), &["status", "--porcelain"]), "");
    let tree = machine.tree().await;
    assert_eq!(tree.base.to_string(), git(&machine.base(), &["rev-parse", "HEAD"]));
    assert!(!tree.path.join("mine").exists());
}

#[tokio::test]
async fn what_is_staged_in_the_base_counts_as_it_is_in_the_files() {
    let machine = Machine::new();
    write(&machine.base().join("staged.txt"), "s\n");
    git(&machine.base(), &["add", "staged.txt"]);
    let refused = machine.trees.prepare(&machine.request()).await.unwrap_err();
    assert!(matches!(refused, TreeError::Dirty(_)), "{refused}");
    let request = TreeRequest { dirty: Dirty::Include, ..machine.request() };
    let tree = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.path.join("staged.txt")).unwrap(), "s\n");
    // Put away again, the files are as they were committed, whatever the index says.
    std::fs::remove_file(machine.base().join("staged.txt")).unwrap();
    let request = TreeRequest { session: SessionId::from_bits(8), ..machine.request() };
    machine.trees.prepare(&request).await.unwrap();
}

#[tokio::test]
async fn a_subtasks_tree_begins_with_what_was_committed_last_beside_it() {
    let machine = Machine::new();
    let parent = machine.tree().await;
    write(&parent.path.join("part.txt"), "p\n");
    git(&parent.path, &["add", "part.txt"]);
    git(&parent.path, &["commit", "--quiet", "-m", "part"]);
    write(&parent.path.join("loose.txt"), "l\n");
    let session = SessionId::from_bits(8);
    let want = TreeRequest { session, beside: Some(SESSION), ..machine.request() };
    let tree = machine.trees.prepare(&want).await.unwrap();
    assert_eq!(git(&tree.path, &["rev-parse", "HEAD"]), git(&parent.path, &["rev-parse", "HEAD"]));
    assert!(tree.path.join("part.txt").exists() && !tree.path.join("loose.txt").exists());

    // A repository that was pointed elsewhere gives nothing: the base is begun with.
    write(&parent.path.join(".git/objects/info/alternates"), "/elsewhere\n");
    let session = SessionId::from_bits(9);
    let want = TreeRequest { session, beside: Some(SESSION), ..machine.request() };
    let tree = machine.trees.prepare(&want).await.unwrap();
    assert!(!tree.path.join("part.txt").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_sessions_start_from_one_clean_base_at_once() {
    let machine = Machine::new();
    for number in 0..200 {
        write(&machine.base().join(format!("many/{number}.txt")), &"text\n".repeat(number));
    }
    git(&machine.base(), &["add", "."]);
    git(&machine.base(), &["commit", "--quiet", "-m", "many"]);
    let head = git(&machine.base(), &["rev-parse", "HEAD"]);
    let mut making = tokio::task::JoinSet::new();
    for number in 0..8 {
        let trees = machine.trees.clone();
        let request =
            TreeRequest { session: SessionId::from_bits(100 + number), ..machine.request() };
        making.spawn(async move { trees.prepare(&request).await });
    }
    for made in making.join_all().await {
        let tree = made.expect("a base that nobody changed is clean, whoever else looks at it");
        assert_eq!(tree.base.to_string(), head);
    }
}

#[tokio::test]
async fn a_tree_starts_from_a_branch_a_tag_or_a_commit() {
    let machine = Machine::new();
    let base = machine.base();
    let first = git(&base, &["rev-parse", "HEAD"]);
    git(&base, &["tag", "v1"]);
    git(&base, &["switch", "--quiet", "-c", "other"]);
    write(&base.join("other.txt"), "o");
    git(&base, &["add", "."]);
    git(&base, &["commit", "--quiet", "-m", "other"]);
    let starts = [("trunk", false), ("v1", false), ("other", true), (&*first, false)];
    for (session, (from, has_other)) in (1..).map(SessionId::from_bits).zip(starts) {
        let request = TreeRequest { session, from: Some(from.into()), ..machine.request() };
        let tree = machine.trees.prepare(&request).await.unwrap();
        assert_eq!(tree.path.join("other.txt").exists(), has_other, "{from}");
    }
}

#[tokio::test]
async fn what_cannot_be_a_base_is_refused_with_a_sentence() {
    let machine = Machine::new();
    let nowhere = machine.root.path().join("nowhere");
    let empty = machine.root.path().join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    git(&empty, &["init", "--quiet"]);
    let from = |from: &str| TreeRequest { from: Some(from.into()), ..machine.request() };
    let at = |path: &Path| TreeRequest { base: Some(Base::Path(path.into())), ..machine.request() };
    let branch = |branch: &str| TreeRequest { branch: branch.into(), ..machine.request() };
    for (request, sentence) in [
        (at(&nowhere), "is not a git repository"),
        (at(&empty), "has no commit to start from"),
        (from("no-such-branch"), "`no-such-branch` is not a branch, tag or commit"),
        (branch("bad..name"), "`bad..name` cannot be a branch name"),
        (branch("--upload-pack=x"), "cannot be a branch name"),
    ] {
        let refused = machine.trees.prepare(&request).await.unwrap_err().to_string();
        assert!(refused.contains(sentence), "{refused}");
    }
}

#[tokio::test]
async fn a_base_elsewhere_is_fetched_by_its_url() {
    let machine = Machine::new();
    let url = format!("file://{}", machine.base().display());
    let request = TreeRequest { base: Some(Base::Url(url)), ..machine.request() };
    let tree = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.path.join("a.txt")).unwrap(), "a\n");
}
