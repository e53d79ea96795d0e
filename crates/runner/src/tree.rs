//! Working trees: what an agent works in, and how its work is taken out again.
//!
//! ```text
//!  base (a path or a URL) ─fetch─► mirror (bare, ours) ─alternates─► tree (the agent's)
//!                                    ▲  refs/belay/base/<task>          │
//!                                    └─ refs/belay/kept/<task>/<attempt> ◄──save
//! ```
//!
//! A tree is a repository of its own on its own branch, never a worktree of the base: a worktree
//! shares refs, so that the agent's own commit would already be a publish. Objects are shared
//! through `alternates` with the mirror, which the sandbox sees read-only; never by hard links,
//! which could be written through.
//!
//! Work is saved with the *mirror's* configuration and a temporary index, so that nothing the
//! agent wrote into `.git/config`, attributes or hooks runs. The agent's own commits are taken
//! only from a `.git` that is what we made: one that was pointed elsewhere (a `gitdir:` file,
//! `commondir`, other `alternates`, links) could publish a repository that the agent never saw.
//! Then only files are kept.
//!
//! Rejected: cloning with `--shared` from the base itself (the person's `gc` may remove what a tree
//! needs), and `git stash` inside the tree (runs the agent's filters).

use std::path::{Path, PathBuf};

use belay_kernel::publish::CommitId;
use belay_kernel::{AttemptNumber, TaskId};

use crate::git::{Call, Git, GitError};

/// What a task's work starts from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// A repository on this machine.
    Path(PathBuf),
    /// A repository elsewhere.
    Url(String),
}

impl Base {
    /// How git is told about it.
    pub fn location(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Url(url) => url.clone(),
        }
    }
}

/// What to do with changes in a local base that are not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dirty {
    /// Refuse to start from it.
    Refuse,
    /// Start from the files as they are.
    Include,
}

/// A tree that is wanted.
#[derive(Clone, Debug)]
pub struct TreeRequest {
    /// For this task.
    pub task: TaskId,
    /// From there.
    pub base: Base,
    /// From this branch, tag or commit; the base's own HEAD if it is not said.
    pub from: Option<String>,
    /// On this branch.
    pub branch: String,
    /// With changes that are not committed, or not.
    pub dirty: Dirty,
}

/// Where a tree starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseCommit(pub CommitId);

/// A tree that an agent can work in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Its task.
    pub task: TaskId,
    /// The working directory.
    pub path: PathBuf,
    /// The repository of ours that it borrows objects from; the sandbox sees it read-only.
    pub mirror: PathBuf,
    /// Where it started.
    pub base: BaseCommit,
}

/// What became of the agent's own commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Import {
    /// They were taken.
    Taken,
    /// They were not, because the repository is not what we made; files were.
    Refused(&'static str),
}

/// Work that was saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The commit that holds all of it.
    pub commit: CommitId,
    /// Whether anything differs from where the tree started.
    pub changed: bool,
    /// What became of the agent's own commits.
    pub import: Import,
}

/// Why a tree cannot be had or saved.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The base is no repository.
    #[error("`{0}` is not a git repository; name one with --repo, or run `git init` there")]
    NotARepository(String),
    /// The base has no commit.
    #[error("`{0}` has no commit to start from; make one first")]
    Empty(String),
    /// There is no such branch, tag or commit.
    #[error("`{name}` is not a branch, tag or commit of `{base}`")]
    NoSuchRef {
        /// What was asked for.
        name: String,
        /// In which base.
        base: String,
    },
    /// The base has changes that are not committed.
    #[error("`{0}` has changes that are not committed; commit them, or include them on purpose")]
    Dirty(String),
    /// The name cannot be a branch.
    #[error("`{0}` cannot be a branch name")]
    BadBranch(String),
    /// Git failed.
    #[error("the working tree could not be handled")]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("{path}: cannot be used")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// All trees of a runner, below one directory.
#[derive(Clone, Debug)]
pub struct Trees {
    root: PathBuf,
    git: Git,
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> TreeError + '_ {
    move |source| TreeError::File { path: path.into(), source }
}

impl Trees {
    /// Trees below `root`, which is the runner's own.
    pub fn new(root: &Path, git: Git) -> Result<Self, TreeError> {
        for part in ["mirrors", "trees"] {
            let path = root.join(part);
            std::fs::create_dir_all(&path).map_err(at(&path))?;
        }
        Ok(Self { root: root.into(), git })
    }

    /// Makes the tree of a task.
    pub async fn prepare(&self, request: &TreeRequest) -> Result<Tree, TreeError> {
        let checked = self.git.ours(&self.root).args(["check-ref-format", "--branch"]);
        if request.branch.starts_with('-') || checked.arg(&request.branch).text().await.is_err() {
            return Err(TreeError::BadBranch(request.branch.clone()));
        }
        let mirror = self.mirror(&request.base).await?;
        let head = self.fetch(&mirror, request).await?;
        let base = match &request.base {
            Base::Path(path) if request.from.is_none() => {
                self.with_uncommitted(&mirror, path, head, request.dirty).await?
            }
            Base::Path(_) | Base::Url(_) => head,
        };
        let pin = format!("refs/belay/base/{}", request.task);
        self.git.ours(&mirror).args(["update-ref", &pin, &base.to_string()]).text().await?;
        let path = self.root.join("trees").join(request.task.to_string());
        self.check_out(&path, &mirror, &request.branch, base).await?;
        Ok(Tree { task: request.task, path, mirror, base: BaseCommit(base) })
    }

    /// Our bare repository for a base, made when it is first needed.
    async fn mirror(&self, base: &Base) -> Result<PathBuf, TreeError> {
        let location = base.location();
        let name: String = location
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let tail: String =
            name.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
        let path = self.root.join("mirrors").join(format!("{tail}-{:016x}.git", fnv(&location)));
        if !path.join("HEAD").exists() {
            std::fs::create_dir_all(&path).map_err(at(&path))?;
            self.git.ours(&path).args(["init", "--quiet", "--bare"]).text().await?;
        }
        Ok(path)
    }

    /// Brings what the tree starts from into the mirror.
    async fn fetch(&self, mirror: &Path, request: &TreeRequest) -> Result<CommitId, TreeError> {
        let location = request.base.location();
        let listed = self.git.persons(mirror).args(["ls-remote", "--quiet", "--", &location]);
        let Ok(refs) = listed.text().await else {
            return Err(TreeError::NotARepository(location));
        };
        let wanted = match &request.from {
            None => "HEAD".to_owned(),
            Some(name) => {
                let full = |prefix: &str| format!("{prefix}{name}");
                let known =
                    |full: &String| refs.lines().any(|line| line.ends_with(&format!("\t{full}")));
                let named = [full("refs/heads/"), full("refs/tags/"), name.clone()];
                match named.into_iter().find(known) {
                    Some(found) => found,
                    None if name.parse::<CommitId>().is_ok() => name.clone(),
                    None => {
                        let (name, base) = (name.clone(), location);
                        return Err(TreeError::NoSuchRef { name, base });
                    }
                }
            }
        };
        if wanted == "HEAD" && !refs.lines().any(|line| line.ends_with("\tHEAD")) {
            return Err(TreeError::Empty(location));
        }
        let into = format!("+{wanted}:refs/belay/base/{}", request.task);
        let fetch =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", &location, &into];
        self.git.persons(mirror).args(fetch).text().await?;
        let pinned = format!("refs/belay/base/{}^{{commit}}", request.task);
        Ok(self.git.ours(mirror).args(["rev-parse", "--verify", &pinned]).commit().await?)
    }

    /// The base's files as they are, as a commit in the mirror, if they differ from its HEAD.
    async fn with_uncommitted(
        &self,
        mirror: &Path,
        base: &Path,
        head: CommitId,
        dirty: Dirty,
    ) -> Result<CommitId, TreeError> {
        let bare = self.git.ours(base).args(["rev-parse", "--is-bare-repository"]).text().await?;
        if bare == "true" {
            return Ok(head);
        }
        let top = self.git.ours(base).args(["rev-parse", "--show-toplevel"]).text().await?;
        let saved = self.save(mirror, Path::new(&top), head, "Uncommitted changes").await?;
        match dirty {
            _ if saved == head => Ok(head),
            Dirty::Include => Ok(saved),
            Dirty::Refuse => Err(TreeError::Dirty(top)),
        }
    }

    async fn check_out(
        &self,
        path: &Path,
        mirror: &Path,
        branch: &str,
        base: CommitId,
    ) -> Result<(), TreeError> {
        std::fs::create_dir_all(path).map_err(at(path))?;
        self.git.ours(path).args(["init", "--quiet"]).text().await?;
        let alternates = path.join(".git/objects/info/alternates");
        std::fs::write(&alternates, alternates_for(mirror)).map_err(at(&alternates))?;
        let reference = format!("refs/heads/{branch}");
        let base = base.to_string();
        self.git.ours(path).args(["symbolic-ref", "HEAD", &reference]).text().await?;
        self.git.ours(path).args(["update-ref", &reference, &base]).text().await?;
        self.git.ours(path).args(["reset", "--quiet", "--hard"]).text().await?;
        Ok(())
    }

    /// Saves everything that a tree holds, committed or not, under the attempt's kept ref. The
    /// agent's processes are gone by now.
    pub async fn keep(&self, tree: &Tree, attempt: AttemptNumber) -> Result<Kept, TreeError> {
        let (head, import) = match inspect(&tree.path, &tree.mirror) {
            Ok(()) => match self.import(tree, attempt).await {
                Ok(head) => (head, Import::Taken),
                Err(_) => (tree.base.0, Import::Refused("its HEAD cannot be read")),
            },
            Err(why) => (tree.base.0, Import::Refused(why)),
        };
        let message = format!("Work of task {}, attempt {attempt}", tree.task);
        let commit = self.save(&tree.mirror, &tree.path, head, &message).await?;
        let kept = format!("refs/belay/kept/{}/{attempt}", tree.task);
        let keep = ["update-ref", &kept, &commit.to_string()];
        self.git.ours(&tree.mirror).args(keep).text().await?;
        Ok(Kept { commit, changed: commit != tree.base.0, import })
    }

    /// Brings the agent's own commits into the mirror.
    async fn import(&self, tree: &Tree, attempt: AttemptNumber) -> Result<CommitId, GitError> {
        let reference = format!("refs/belay/import/{}/{attempt}", tree.task);
        let into = format!("+HEAD:{reference}");
        let mut fetch = self.git.ours(&tree.mirror).args(["fetch", "--quiet", "--no-tags"]);
        fetch = fetch.args(["--no-write-fetch-head", "--no-auto-gc", "--"]);
        fetch.arg(&tree.path).arg(&into).text().await?;
        let commit = format!("{reference}^{{commit}}");
        self.git.ours(&tree.mirror).args(["rev-parse", "--verify", &commit]).commit().await
    }

    /// Commits the files below `files` on top of `head`, with the mirror's configuration and an
    /// index of its own. The same files give `head` itself.
    async fn save(
        &self,
        mirror: &Path,
        files: &Path,
        head: CommitId,
        message: &str,
    ) -> Result<CommitId, TreeError> {
        let index = mirror.join(format!("index-{:016x}", fnv(&files.display().to_string())));
        let call = |words: &[&str]| -> Call {
            let call = self.git.ours(files).env("GIT_INDEX_FILE", &index);
            call.env("GIT_DIR", mirror).env("GIT_WORK_TREE", files).args(words)
        };
        let head_text = head.to_string();
        let saved = async {
            call(&["read-tree", &head_text]).text().await?;
            call(&["add", "--all", "--", "."]).text().await?;
            let tree = call(&["write-tree"]).text().await?;
            let before = format!("{head_text}^{{tree}}");
            if tree == call(&["rev-parse", &before]).text().await? {
                return Ok(head);
            }
            call(&["commit-tree", &tree, "-p", &head_text, "-m", message]).commit().await
        };
        let saved = saved.await;
        match std::fs::remove_file(&index) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(TreeError::File { path: index, source });
            }
            Ok(()) | Err(_) => {}
        }
        Ok(saved?)
    }

    /// What changed from where the tree started to `commit`, as a patch.
    pub async fn diff(&self, tree: &Tree, commit: CommitId) -> Result<String, TreeError> {
        let (from, to) = (tree.base.0.to_string(), commit.to_string());
        let words = ["diff", "--no-ext-diff", "--no-textconv", "--binary", &from, &to];
        Ok(self.git.ours(&tree.mirror).args(words).text().await?)
    }

    /// Removes a tree whose work is kept. The mirror keeps the refs.
    pub async fn remove(&self, tree: &Tree) -> Result<(), TreeError> {
        match tokio::fs::remove_dir_all(&tree.path).await {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TreeError::File { path: tree.path.clone(), source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn alternates_for(mirror: &Path) -> String {
    format!("{}\n", mirror.join("objects").display())
}

/// Whether a tree's `.git` is still the kind of thing that we made.
fn inspect(tree: &Path, mirror: &Path) -> Result<(), &'static str> {
    let git = tree.join(".git");
    let is_plain = |path: &Path, file: bool| {
        path.symlink_metadata().is_ok_and(|meta| if file { meta.is_file() } else { meta.is_dir() })
    };
    if !is_plain(&git, false) {
        return Err("`.git` is not a directory");
    }
    if git.join("commondir").symlink_metadata().is_ok() {
        return Err("`.git` borrows another repository");
    }
    let info = git.join("objects/info");
    if !is_plain(&git.join("objects"), false) || !is_plain(&info, false) {
        return Err("`.git/objects` is not a directory");
    }
    let alternates = info.join("alternates");
    let expected = alternates_for(mirror);
    let ours = is_plain(&alternates, true)
        && std::fs::read_to_string(&alternates).is_ok_and(|text| text == expected);
    if !ours || info.join("http-alternates").symlink_metadata().is_ok() {
        return Err("`.git` borrows objects from elsewhere");
    }
    if has_links(&git.join("objects"), 3) || has_links(&git.join("refs"), 64) {
        return Err("`.git` holds links");
    }
    let plain = |name: &str| is_plain(&git.join(name), true);
    let packed = git.join("packed-refs").symlink_metadata().is_err() || plain("packed-refs");
    if !plain("HEAD") || !packed {
        return Err("`.git/HEAD` or `packed-refs` is not a file");
    }
    Ok(())
}

/// Whether anything below `directory` is a link, or deeper than git makes it.
fn has_links(directory: &Path, depth: u32) -> bool {
    let Ok(entries) = directory.read_dir() else { return true };
    entries.into_iter().any(|entry| {
        let Ok(kind) = entry.as_ref().map_err(drop).and_then(|e| e.file_type().map_err(drop))
        else {
            return true;
        };
        match entry {
            Ok(entry) if kind.is_dir() => depth == 0 || has_links(&entry.path(), depth - 1),
            Ok(_) => kind.is_symlink(),
            Err(_) => true,
        }
    })
}

/// A short, stable name for a long text (FNV-1a).
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
