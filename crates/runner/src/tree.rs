//! Working trees: what an agent works in, and how its work is taken out again.
//!
//! ```text
//!  base (a path or a URL) ─fetch─► mirror (bare, ours) ─alternates─► trees/<session> (the agent's)
//!                                    ▲  refs/belay/base/<session>       │
//!                                    └─ refs/belay/kept/<task>/<attempt> ◄──save
//! ```
//!
//! A tree is a repository of its own on its own branch, never a worktree of the base: a worktree
//! shares refs, so that the agent's own commit would already be a publish. Objects are shared
//! through `alternates` with the mirror, which the sandbox sees read-only; never by hard links,
//! which could be written through.
//!
//! A tree is made beside its place and renamed, after a record of where it came from was written
//! next to it: a tree that is in its place is whole, and its base can be found after a restart.
//!
//! Work is saved with the *mirror's* configuration and a temporary index, so that nothing the
//! agent wrote into `.git/config`, attributes or hooks runs. The agent's own commits are taken
//! only from a `.git` that is what we made ([`crate::inspect`]); else only files are kept.
//!
//! A session without a repository has a plain directory as its tree; its work is kept on top of an
//! empty commit, in a mirror of its own.
//!
//! Rejected: cloning with `--shared` from the base itself (the person's `gc` may remove what a tree
//! needs), and `git stash` inside the tree (runs the agent's filters).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use belay_kernel::publish::CommitId;
use belay_kernel::{AttemptNumber, SessionId, TaskId};

use crate::git::{Call, Git, GitError};
use crate::inspect::{alternates_for, inspect};
use crate::workspace::{Base, Dirty, Import, Kept, Tree, TreeError, TreeRequest};

/// How the names of temporary indexes begin, and how many there were.
const INDEX: &str = "index-";
static INDEXES: AtomicU64 = AtomicU64::new(0);

/// How long a patch may be.
const DIFF_LIMIT: usize = 8 << 20;

/// All trees of a runner, below one directory.
#[derive(Clone, Debug)]
pub struct Trees {
    pub(crate) root: PathBuf,
    pub(crate) git: Git,
}

pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> TreeError + '_ {
    move |source| TreeError::File { path: path.into(), source }
}

/// Removes a directory with everything in it; one that is not there is removed.
fn clear(path: &Path) -> Result<(), TreeError> {
    match std::fs::remove_dir_all(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(TreeError::File { path: path.into(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes temporary indexes that a crash left; one that stays costs a little space only.
fn clear_indexes(mirrors: &Path) {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    for mirror in entries(mirrors) {
        for file in entries(&mirror.path()) {
            if file.file_name().to_string_lossy().starts_with(INDEX) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

impl Trees {
    /// Trees below `root`, which is the runner's own.
    pub fn new(root: &Path, git: Git) -> Result<Self, TreeError> {
        for part in ["mirrors", "trees"] {
            let path = root.join(part);
            std::fs::create_dir_all(&path).map_err(at(&path))?;
        }
        let root = root.canonicalize().map_err(at(root))?;
        clear_indexes(&root.join("mirrors"));
        Ok(Self { root, git })
    }

    fn record(&self, session: SessionId) -> PathBuf {
        self.root.join("trees").join(format!("{session}.json"))
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.root.join("trees").join(session.to_string())
    }

    /// The record of a session's tree, whether or not the tree is there.
    fn recorded(&self, session: SessionId) -> Result<Option<Tree>, TreeError> {
        let path = self.record(session);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let unreadable = |error: serde_json::Error| at(&path)(error.into());
                serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// The session's tree, if it is on this machine.
    pub fn find(&self, session: SessionId) -> Result<Option<Tree>, TreeError> {
        Ok(self.recorded(session)?.filter(|tree| tree.path.is_dir()))
    }

    /// Makes the session's tree, or finds it made.
    pub async fn prepare(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        if let Some(tree) = self.find(want.session)? {
            match want.kept {
                Some(kept) if !self.leads_to(&tree, kept).await? => {
                    self.have(&tree, kept).await?;
                    self.set_aside(&tree, kept)?;
                }
                Some(_) | None => return Ok(tree),
            }
        }
        let checked = self.git.ours(&self.root).args(["check-ref-format", "--branch"]);
        if want.branch.starts_with('-') || checked.arg(&want.branch).text().await.is_err() {
            return Err(TreeError::BadBranch(want.branch.clone()));
        }
        let tree = self.locate(want).await?;
        let start = match want.kept {
            Some(kept) => self.begin_from(&tree, kept).await?,
            None => tree.base,
        };
        let making = self.root.join("trees").join(format!(".making-{}", want.session));
        clear(&making)?;
        std::fs::create_dir_all(&making).map_err(at(&making))?;
        match tree.remote {
            Some(_) => self.check_out(&making, &tree, start).await?,
            None => self.lay_out(&making, &tree, start).await?,
        }
        self.write_record(&tree)?;
        std::fs::rename(&making, &tree.path).map_err(at(&tree.path))?;
        Ok(tree)
    }

    /// Where the session's work comes from and goes to; its tree need not be here.
    pub async fn locate(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        if let Some(tree) = self.recorded(want.session)? {
            return Ok(tree);
        }
        let location = want.base.as_ref().map(Base::location);
        let mirror = self.mirror(location.as_deref(), want.session).await?;
        let base = match &want.base {
            Some(base) => self.base(&mirror, base, want).await?,
            None => self.empty_commit(&mirror).await?,
        };
        let pin = format!("refs/belay/base/{}", want.session);
        self.git.ours(&mirror).args(["update-ref", &pin, &base.to_string()]).text().await?;
        Ok(Tree {
            session: want.session,
            path: self.path(want.session),
            mirror,
            base,
            branch: want.branch.clone(),
            remote: location,
        })
    }

    fn write_record(&self, tree: &Tree) -> Result<(), TreeError> {
        let path = self.record(tree.session);
        let making = path.with_extension("making");
        let text = serde_json::to_vec(tree).map_err(|error| at(&making)(error.into()))?;
        std::fs::write(&making, text).map_err(at(&making))?;
        std::fs::rename(&making, &path).map_err(at(&path))
    }

    /// Our bare repository for a base, or for everything that has none; made when it is needed.
    async fn mirror(&self, base: Option<&str>, asker: SessionId) -> Result<PathBuf, TreeError> {
        let name = base.map_or_else(
            || "without-repository.git".to_owned(),
            |location| {
                let plain =
                    |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
                let name: Vec<char> = location.chars().map(plain).collect();
                let tail: String = name[name.len().saturating_sub(40)..].iter().collect();
                format!("{tail}-{:016x}.git", fnv(location))
            },
        );
        let path = self.root.join("mirrors").join(name);
        if path.join("HEAD").exists() {
            return Ok(path);
        }
        let making = self.root.join("mirrors").join(format!(".making-{asker}"));
        clear(&making)?;
        std::fs::create_dir_all(&making).map_err(at(&making))?;
        self.git.ours(&making).args(["init", "--quiet", "--bare"]).text().await?;
        match std::fs::rename(&making, &path) {
            // Another session made it meanwhile.
            Err(_) if path.join("HEAD").exists() => clear(&making)?,
            renamed => renamed.map_err(at(&path))?,
        }
        Ok(path)
    }

    /// The commit that a session with a repository starts from, in the mirror.
    async fn base(
        &self,
        mirror: &Path,
        base: &Base,
        want: &TreeRequest,
    ) -> Result<CommitId, TreeError> {
        let head = self.fetch(mirror, base, want).await?;
        match base {
            Base::Path(path) if want.from.is_none() => {
                self.with_uncommitted(mirror, path, head, want.dirty).await
            }
            Base::Path(_) | Base::Url(_) => Ok(head),
        }
    }

    /// The empty commit that a session without a repository starts from; always the same one.
    async fn empty_commit(&self, mirror: &Path) -> Result<CommitId, TreeError> {
        let write = ["hash-object", "-t", "tree", "-w", "/dev/null"];
        let tree = self.git.ours(mirror).args(write).text().await?;
        let mut call = self.git.ours(mirror);
        for name in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            call = call.env(name, "2000-01-01T00:00:00Z");
        }
        Ok(call.args(["commit-tree", &tree, "-m", "Nothing"]).commit().await?)
    }

    /// Brings what the tree starts from into the mirror.
    async fn fetch(
        &self,
        mirror: &Path,
        base: &Base,
        want: &TreeRequest,
    ) -> Result<CommitId, TreeError> {
        let location = base.location();
        let listed = self.git.persons(mirror).args(["ls-remote", "--quiet", "--", &location]);
        let refs = match (listed.text().await, base) {
            (Ok(refs), _) => refs,
            (Err(_), Base::Path(_)) => return Err(TreeError::NotARepository(location)),
            (Err(_), Base::Url(url)) => return Err(TreeError::Unreachable(without_secret(url))),
        };
        let wanted = match &want.from {
            None => "HEAD".to_owned(),
            Some(name) => wanted_ref(&refs, name, &location)?,
        };
        if wanted == "HEAD" && !refs.lines().any(|line| line.ends_with("\tHEAD")) {
            return Err(TreeError::Empty(without_secret(&location)));
        }
        let pin = format!("refs/belay/base/{}", want.session);
        let into = format!("+{wanted}:{pin}");
        let fetch =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", &location, &into];
        self.git.persons(mirror).args(fetch).text().await?;
        let pinned = format!("{pin}^{{commit}}");
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
        let files = self.files(mirror, Path::new(&top), head).await?;
        match dirty {
            _ if files == self.tree_of(mirror, head).await? => Ok(head),
            Dirty::Include => {
                Ok(self.commit_tree(mirror, &files, head, "Uncommitted changes").await?)
            }
            Dirty::Refuse => Err(TreeError::Dirty(top)),
        }
    }

    /// The commit, which is in the mirror or can be had from where the session publishes.
    pub(crate) async fn have(&self, tree: &Tree, commit: CommitId) -> Result<CommitId, TreeError> {
        if self.has(&tree.mirror, commit).await? {
            return Ok(commit);
        }
        if let Some(remote) = &tree.remote {
            let reference = format!("refs/heads/{}", tree.branch);
            let words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", remote];
            // The branch need not be there; whether the commit came with it is asked below.
            let _ = self.git.persons(&tree.mirror).args(words).arg(reference).output().await?;
        }
        match self.has(&tree.mirror, commit).await? {
            true => Ok(commit),
            false => Err(TreeError::NotHere(commit)),
        }
    }

    async fn has(&self, mirror: &Path, commit: CommitId) -> Result<bool, GitError> {
        let asked = format!("{commit}^{{commit}}");
        let output = self.git.ours(mirror).args(["cat-file", "-e", &asked]).output().await?;
        Ok(output.status.success())
    }

    /// A repository of its own, on its own branch.
    async fn check_out(&self, path: &Path, tree: &Tree, at_: CommitId) -> Result<(), TreeError> {
        self.git.ours(path).args(["init", "--quiet"]).text().await?;
        let alternates = path.join(".git/objects/info/alternates");
        std::fs::write(&alternates, alternates_for(&tree.mirror)).map_err(at(&alternates))?;
        let reference = format!("refs/heads/{}", tree.branch);
        self.git.ours(path).args(["symbolic-ref", "HEAD", &reference]).text().await?;
        self.git.ours(path).args(["update-ref", &reference, &at_.to_string()]).text().await?;
        self.git.ours(path).args(["reset", "--quiet", "--hard"]).text().await?;
        Ok(())
    }

    /// Plain files, without a repository.
    async fn lay_out(&self, path: &Path, tree: &Tree, at_: CommitId) -> Result<(), TreeError> {
        let index = Index::new(&tree.mirror, path);
        let call = |words: &[&str]| index.call(&self.git, words);
        let laid = async {
            call(&["read-tree", &at_.to_string()]).text().await?;
            call(&["checkout-index", "--all", "--force"]).text().await.map(drop)
        };
        let laid = laid.await;
        index.remove()?;
        Ok(laid?)
    }

    /// Saves everything that a tree holds, committed or not, under the attempt's kept ref. The
    /// agent's processes are gone by now. Repeated, it finds the commit that it made.
    pub async fn keep(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
        since: Option<CommitId>,
    ) -> Result<Kept, TreeError> {
        let mirror = &tree.mirror;
        let (head, import) = match inspect(&tree.path, mirror) {
            Ok(()) => match self.import(tree, task, attempt).await {
                Ok(head) => (head, Import::Taken),
                Err(_) => (tree.base, Import::Refused("its HEAD cannot be read")),
            },
            Err(why) => (tree.base, Import::Refused(why)),
        };
        let files = self.files(mirror, &tree.path, head).await?;
        let reference = format!("refs/belay/kept/{task}/{attempt}");
        let commit = match self.kept_before(mirror, &reference, head, &files).await? {
            Some(commit) => commit,
            None if files == self.tree_of(mirror, head).await? => head,
            None => {
                let message = format!("Work of task {task}, attempt {attempt}");
                self.commit_tree(mirror, &files, head, &message).await?
            }
        };
        let keep = ["update-ref", &reference, &commit.to_string()];
        self.git.ours(mirror).args(keep).text().await?;
        let moved = self.moved(mirror, since.unwrap_or(tree.base), head, &files).await?;
        Ok(Kept { commit, reference, changed: commit != tree.base, moved, import })
    }

    /// The commit that an earlier call made of the same files on top of the same head.
    async fn kept_before(
        &self,
        mirror: &Path,
        reference: &str,
        head: CommitId,
        files: &str,
    ) -> Result<Option<CommitId>, GitError> {
        let asked = format!("{reference}^{{commit}}");
        let parse = ["rev-parse", "--verify", "--quiet", &asked];
        let output = self.git.ours(mirror).args(parse).output().await?;
        let Ok(kept) = String::from_utf8_lossy(&output.stdout).trim().parse::<CommitId>() else {
            return Ok(None);
        };
        let same_files = files == self.tree_of(mirror, kept).await?;
        let on_head = kept == head || self.parent(mirror, kept).await? == Some(head);
        Ok((same_files && on_head).then_some(kept))
    }

    /// Whether files or commits are others than those of `before`.
    async fn moved(
        &self,
        mirror: &Path,
        before: CommitId,
        head: CommitId,
        files: &str,
    ) -> Result<bool, GitError> {
        if !self.has(mirror, before).await? {
            return Ok(true);
        }
        let same_files = files == self.tree_of(mirror, before).await?;
        let same_head = head == before || self.parent(mirror, before).await? == Some(head);
        Ok(!(same_files && same_head))
    }

    async fn tree_of(&self, mirror: &Path, commit: CommitId) -> Result<String, GitError> {
        let asked = format!("{commit}^{{tree}}");
        self.git.ours(mirror).args(["rev-parse", "--verify", &asked]).text().await
    }

    async fn parent(&self, mirror: &Path, commit: CommitId) -> Result<Option<CommitId>, GitError> {
        let asked = format!("{commit}^1");
        let parse = ["rev-parse", "--verify", "--quiet", &asked];
        let output = self.git.ours(mirror).args(parse).output().await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
    }

    /// Brings the agent's own commits into the mirror.
    async fn import(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
    ) -> Result<CommitId, GitError> {
        let reference = format!("refs/belay/import/{task}/{attempt}");
        let into = format!("+HEAD:{reference}");
        let mut fetch = self.git.ours(&tree.mirror).args(["fetch", "--quiet", "--no-tags"]);
        fetch = fetch.args(["--no-write-fetch-head", "--no-auto-gc", "--"]);
        fetch.arg(&tree.path).arg(&into).text().await?;
        let commit = format!("{reference}^{{commit}}");
        self.git.ours(&tree.mirror).args(["rev-parse", "--verify", &commit]).commit().await
    }

    /// The files below `files` as a git tree in the mirror, with the mirror's configuration and an
    /// index of its own that starts from `head`.
    async fn files(
        &self,
        mirror: &Path,
        files: &Path,
        head: CommitId,
    ) -> Result<String, TreeError> {
        let index = Index::new(mirror, files);
        let call = |words: &[&str]| index.call(&self.git, words);
        let saved = async {
            call(&["read-tree", &head.to_string()]).text().await?;
            call(&["add", "--all", "--", "."]).text().await?;
            call(&["write-tree"]).text().await
        };
        let saved = saved.await;
        index.remove()?;
        Ok(saved?)
    }

    async fn commit_tree(
        &self,
        mirror: &Path,
        tree: &str,
        parent: CommitId,
        message: &str,
    ) -> Result<CommitId, GitError> {
        let words = ["commit-tree", tree, "-p", &parent.to_string(), "-m", message];
        self.git.ours(mirror).args(words).commit().await
    }

    /// What changed from where the tree started to `commit`, as a patch of bounded length.
    pub async fn diff(&self, tree: &Tree, commit: CommitId) -> Result<Vec<u8>, TreeError> {
        let (from, to) = (tree.base.to_string(), commit.to_string());
        let words = ["diff", "--no-ext-diff", "--no-textconv", "--binary", &from, &to];
        let diff = self.git.ours(&tree.mirror).args(words).bounded(DIFF_LIMIT).await?;
        Ok(cut_at_line(diff, DIFF_LIMIT))
    }

    /// Removes a session's tree, whose work is kept. The mirror keeps the refs, and the record says
    /// where they are.
    pub fn remove(&self, session: SessionId) -> Result<(), TreeError> {
        clear(&self.path(session))
    }
}

/// An index beside a mirror, for files that git must not read with a configuration but ours.
struct Index<'a> {
    mirror: &'a Path,
    files: &'a Path,
    path: PathBuf,
}

impl<'a> Index<'a> {
    fn new(mirror: &'a Path, files: &'a Path) -> Self {
        // Sessions of one base look at the same files at the same time, and a git that a killed
        // runner left behind may still write: no two indexes are one.
        let number = INDEXES.fetch_add(1, Ordering::Relaxed);
        let path = mirror.join(format!("{INDEX}{}-{number}", std::process::id()));
        // An earlier process with this number may have left one, or its lock.
        let _ = std::fs::remove_file(path.with_extension("lock"));
        let _ = std::fs::remove_file(&path);
        Self { mirror, files, path }
    }

    fn call(&self, git: &Git, words: &[&str]) -> Call {
        let call = git.ours(self.files).env("GIT_INDEX_FILE", &self.path);
        call.env("GIT_DIR", self.mirror).env("GIT_WORK_TREE", self.files).args(words)
    }

    fn remove(self) -> Result<(), TreeError> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TreeError::File { path: self.path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The full name of a ref that a base was listed to have, or the commit itself.
fn wanted_ref(refs: &str, name: &str, location: &str) -> Result<String, TreeError> {
    let known = |full: &String| refs.lines().any(|line| line.ends_with(&format!("\t{full}")));
    let named = [format!("refs/heads/{name}"), format!("refs/tags/{name}"), name.to_owned()];
    match named.into_iter().find(known) {
        Some(found) => Ok(found),
        None if name.parse::<CommitId>().is_ok() => Ok(name.to_owned()),
        None => Err(TreeError::NoSuchRef { name: name.into(), base: without_secret(location) }),
    }
}

/// A location as it can be told: without a name and password in it.
fn without_secret(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else { return location.into() };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => location.into(),
    }
}

/// Cuts a patch that is too long after a whole line, and says so.
fn cut_at_line(mut diff: Vec<u8>, limit: usize) -> Vec<u8> {
    if diff.len() > limit {
        let end = diff[..limit].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        diff.truncate(end);
        diff.extend_from_slice(b"# Belay: the patch is longer than 8 MiB and ends here.\n");
    }
    diff
}

/// A short, stable name for a long text (FNV-1a).
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_told_without_its_password() {
        for (location, told) in [
            ("https://me:pass@host/x@y.git", "https://host/x@y.git"),
            ("https://host/x.git", "https://host/x.git"),
            ("git@host:x.git", "git@host:x.git"),
            ("/srv/x@y", "/srv/x@y"),
        ] {
            assert_eq!(without_secret(location), told);
        }
    }

    #[test]
    fn a_long_patch_is_cut_after_a_whole_line_and_says_so() {
        let cut = cut_at_line(b"one\ntwo\nthree\n".to_vec(), 10);
        let text = String::from_utf8(cut).unwrap();
        assert_eq!(text, "one\ntwo\n# Belay: the patch is longer than 8 MiB and ends here.\n");
        assert_eq!(cut_at_line(b"one\n".to_vec(), 4), b"one\n");
    }
}
