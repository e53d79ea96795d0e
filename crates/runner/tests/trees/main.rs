//! Working trees and publishing, on real repositories, judged from outside.

mod bases;
mod hostile;
mod kept;
mod pushes;

#[path = "../support/person.rs"]
mod person;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_kernel::publish::CommitId;
use belay_kernel::{AttemptNumber, SessionId, TaskId};
use belay_runner::{Base, Dirty, Git, Kept, Tree, TreeRequest, Trees};
use person::git;

const TASK: TaskId = TaskId::from_bits(42);
const SESSION: SessionId = SessionId::from_bits(7);
const ONE: AttemptNumber = AttemptNumber(1);

/// A machine with a person's repository and a runner's directory.
struct Machine {
    root: tempfile::TempDir,
    git: Git,
    trees: Trees,
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

async fn work(machine: &Machine) -> (Tree, Kept) {
    let tree = machine.tree().await;
    write(&tree.path.join("work.txt"), "w");
    let kept = machine.keep(&tree).await;
    (tree, kept)
}
