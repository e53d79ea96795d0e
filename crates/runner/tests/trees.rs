//! Working trees and publishing, on real repositories, judged from outside.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use belay_kernel::publish::{CommitId, Push, PushOutcome, Remote, Settling, settle};
use belay_kernel::{AttemptNumber, SessionId, TaskId};
use belay_runner::{
    Base, Dirty, Git, Import, Kept, Publisher, Said, Tree, TreeError, TreeRequest, Trees,
};

const TASK: TaskId = TaskId::from_bits(42);
const SESSION: SessionId = SessionId::from_bits(7);
const ONE: AttemptNumber = AttemptNumber(1);

/// A machine with a person's repository and a runner's directory.
struct Machine {
    root: tempfile::TempDir,
    git: Git,
    trees: Trees,
}

/// Runs git as a person would, and returns what it printed.
fn git(directory: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=P", "-c", "user.email=p@example.com"])
        .args(words)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {words:?} in {}: {said}", directory.display());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn script(path: &Path, text: &str) {
    write(path, text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let runner = root.path().join("runner");
        let git = Git::new(&runner, Duration::from_secs(60)).unwrap();
        let trees = Trees::new(&runner, git.clone()).unwrap();
        let machine = Self { root, git, trees };
        let base = machine.base();
        std::fs::create_dir_all(&base).unwrap();
        self::git(&base, &["init", "--quiet", "--initial-branch=trunk"]);
        write(&base.join("a.txt"), "a\n");
        write(&base.join("dir/b.txt"), "b\n");
        write(&base.join(".gitignore"), "ignored\n");
        self::git(&base, &["add", "."]);
        self::git(&base, &["commit", "--quiet", "-m", "first"]);
        machine
    }

    fn base(&self) -> PathBuf {
        self.root.path().join("base")
    }

    fn request(&self) -> TreeRequest {
        TreeRequest {
            session: SESSION,
            base: Some(Base::Path(self.base())),
            from: None,
            beside: None,
            branch: format!("belay/{TASK}"),
            dirty: Dirty::Refuse,
            kept: None,
        }
    }

    async fn tree(&self) -> Tree {
        self.trees.prepare(&self.request()).await.unwrap()
    }

    async fn keep(&self, tree: &Tree) -> Kept {
        self.trees.keep(tree, TASK, ONE, None).await.unwrap()
    }

    fn refs(&self) -> String {
        git(&self.base(), &["for-each-ref", "--format=%(refname) %(objectname)"])
    }
}

/// The files of a commit, with their modes.
fn files(repository: &Path, commit: CommitId) -> String {
    let listed =
        git(repository, &["ls-tree", "-r", "--format=%(objectmode) %(path)", &commit.to_string()]);
    listed.lines().collect::<Vec<_>>().join(", ")
}

fn show(repository: &Path, commit: CommitId, path: &str) -> String {
    git(repository, &["show", &format!("{commit}:{path}")])
}

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

/// A bare remote, with a `pre-receive` hook.
fn remote(machine: &Machine, hook: &str) -> PathBuf {
    let path = machine.root.path().join("remote.git");
    git(machine.root.path(), &["clone", "--quiet", "--bare", "base", "remote.git"]);
    script(&path.join("hooks/pre-receive"), &format!("#!/bin/sh\n{hook}\n"));
    path
}

async fn work(machine: &Machine) -> (Tree, Kept) {
    let tree = machine.tree().await;
    write(&tree.path.join("work.txt"), "w");
    let kept = machine.keep(&tree).await;
    (tree, kept)
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

#[tokio::test]
async fn a_base_elsewhere_is_fetched_by_its_url() {
    let machine = Machine::new();
    let url = format!("file://{}", machine.base().display());
    let request = TreeRequest { base: Some(Base::Url(url)), ..machine.request() };
    let tree = machine.trees.prepare(&request).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.path.join("a.txt")).unwrap(), "a\n");
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
