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

mod base;
mod index;
mod keep;

use std::path::{Path, PathBuf};

use belay_kernel::SessionId;
use belay_kernel::publish::CommitId;

use crate::git::{Git, GitError};
use crate::inspect::alternates_for;
use crate::workspace::{Base, Tree, TreeError, TreeRequest};
use base::Point;
use index::{Index, clear_indexes};

/// The file beside a mirror that names the commit with nothing in it.
const EMPTY: &str = "belay-empty";

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
        self.check_branch(&want.branch).await?;
        let making = self.root.join("trees").join(format!(".making-{}", want.session));
        clear(&making)?;
        std::fs::create_dir_all(&making).map_err(at(&making))?;
        // On a machine with more than one core the waits for git are not one after the other: the
        // repository is made while the base is fetched, and laid out while the base's files are
        // compared.
        let init = async {
            match want.base {
                Some(_) => self.init(&making, &want.branch).await,
                None => Ok(()),
            }
        };
        let (arrived, begun) = tokio::join!(self.arrive(want), init);
        let (mut tree, head) = arrived?;
        begun?;
        let start = match want.kept {
            Some(kept) => self.begin_from(&tree, kept).await?,
            None => tree.base,
        };
        let (base, laid) = tokio::join!(
            self.begins_with(want, &tree, head.as_ref()),
            self.lay(&making, &tree, start)
        );
        tree.base = base?;
        laid?;
        let start = want.kept.unwrap_or(tree.base);
        if want.kept.is_none() && head.as_ref().is_some_and(|head| head.commit != start) {
            self.lay(&making, &tree, start).await?;
        }
        if tree.remote.is_some() {
            let laid_out = self.laid_out(want.session, start);
            let copied = std::fs::copy(making.join(".git/index"), &laid_out);
            copied.map_err(at(&laid_out))?;
        }
        self.write_record(&tree)?;
        std::fs::rename(&making, &tree.path).map_err(at(&tree.path))?;
        Ok(tree)
    }

    /// Refuses what cannot be a branch. Git is asked only about names that are not plain.
    async fn check_branch(&self, name: &str) -> Result<(), TreeError> {
        if is_plain_branch(name) {
            return Ok(());
        }
        let checked = self.git.ours(&self.root).args(["check-ref-format", "--branch"]);
        match name.starts_with('-') || checked.arg(name).text().await.is_err() {
            true => Err(TreeError::BadBranch(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Where the session's work comes from and goes to; its tree need not be here.
    pub async fn locate(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        if let Some(tree) = self.recorded(want.session)? {
            return Ok(tree);
        }
        let (tree, head) = self.arrive(want).await?;
        let base = self.begins_with(want, &tree, head.as_ref()).await?;
        Ok(Tree { base, ..tree })
    }

    /// The session's tree as its record has it, or with what its base has committed.
    async fn arrive(&self, want: &TreeRequest) -> Result<(Tree, Option<Point>), TreeError> {
        if let Some(tree) = self.recorded(want.session)? {
            return Ok((tree, None));
        }
        let location = want.base.as_ref().map(Base::location);
        let mirror = self.mirror(location.as_deref(), want.session).await?;
        let head = match &want.base {
            Some(base) => Some(self.fetch(&mirror, base, want).await?),
            None => None,
        };
        let base = match &head {
            Some(head) => head.commit,
            None => self.empty_commit(&mirror).await?,
        };
        let tree = Tree {
            session: want.session,
            path: self.path(want.session),
            mirror,
            base,
            branch: want.branch.clone(),
            remote: location,
        };
        Ok((tree, head))
    }

    /// The commit that the session starts from, with what is not committed, if that is wanted.
    async fn begins_with(
        &self,
        want: &TreeRequest,
        tree: &Tree,
        head: Option<&Point>,
    ) -> Result<CommitId, TreeError> {
        match head {
            Some(head) => self.with_uncommitted(&tree.mirror, want, head).await,
            None => Ok(tree.base),
        }
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

    /// The empty commit that a session without a repository starts from; always the same one. It
    /// is kept by a ref, and named in a file, so that git is asked for it once.
    async fn empty_commit(&self, mirror: &Path) -> Result<CommitId, TreeError> {
        let known = mirror.join(EMPTY);
        if let Some(commit) = std::fs::read_to_string(&known).ok().and_then(|id| id.parse().ok()) {
            return Ok(commit);
        }
        let write = ["hash-object", "-t", "tree", "-w", "/dev/null"];
        let tree = self.git.ours(mirror).args(write).text().await?;
        let mut call = self.git.ours(mirror);
        for name in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            call = call.env(name, "2000-01-01T00:00:00Z");
        }
        let commit = call.args(["commit-tree", &tree, "-m", "Nothing"]).commit().await?;
        let keep = ["update-ref", "refs/belay/empty", &commit.to_string()];
        self.git.ours(mirror).args(keep).text().await?;
        std::fs::write(&known, commit.to_string()).map_err(at(&known))?;
        Ok(commit)
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

    /// An empty repository, on the session's own branch.
    async fn init(&self, path: &Path, branch: &str) -> Result<(), TreeError> {
        let branch = format!("--initial-branch={branch}");
        self.git.ours(path).args(["init", "--quiet", &branch]).text().await?;
        Ok(())
    }

    /// Lays the files of a commit out.
    async fn lay(&self, path: &Path, tree: &Tree, at_: CommitId) -> Result<(), TreeError> {
        match tree.remote {
            Some(_) => self.check_out(path, tree, at_).await,
            None => self.lay_out(path, tree, at_).await,
        }
    }

    /// A repository of its own, on its own branch.
    async fn check_out(&self, path: &Path, tree: &Tree, at_: CommitId) -> Result<(), TreeError> {
        let alternates = path.join(".git/objects/info/alternates");
        std::fs::write(&alternates, alternates_for(&tree.mirror)).map_err(at(&alternates))?;
        let reset = ["reset", "--quiet", "--hard", &at_.to_string()];
        self.git.ours(path).args(reset).text().await?;
        Ok(())
    }

    /// Plain files, without a repository.
    async fn lay_out(&self, path: &Path, tree: &Tree, at_: CommitId) -> Result<(), TreeError> {
        if at_ == self.empty_commit(&tree.mirror).await? {
            return Ok(());
        }
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

    /// Removes a session's tree, whose work is kept: the mirror keeps the refs, and the record says
    /// where they are.
    pub fn remove(&self, session: SessionId) -> Result<(), TreeError> {
        self.forget_layouts(session)?;
        clear(&self.path(session))
    }

    /// Removes a session's tree, what it began with, and its record. The mirror still keeps its
    /// work, under the refs that say whose it is.
    pub async fn forget(&self, session: SessionId) -> Result<(), TreeError> {
        let recorded = self.recorded(session)?;
        self.remove(session)?;
        let Some(tree) = recorded else { return Ok(()) };
        let pin = format!("refs/belay/base/{session}");
        self.git.ours(&tree.mirror).args(["update-ref", "-d", &pin]).text().await?;
        let record = self.record(session);
        std::fs::remove_file(&record).map_err(at(&record))
    }

    /// Removes the indexes with which a tree was laid out.
    fn forget_layouts(&self, session: SessionId) -> Result<(), TreeError> {
        let trees = self.root.join("trees");
        let prefix = format!("{session}.");
        for entry in std::fs::read_dir(&trees).map_err(at(&trees))? {
            let path = entry.map_err(at(&trees))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&prefix) && name.ends_with(".index") {
                std::fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }
}

/// Whether a name is one that git takes for a branch without being asked: the names that Belay
/// gives, and most that people do.
fn is_plain_branch(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    let parts = || name.split('/');
    name.chars().all(plain)
        && parts().all(|part| !part.is_empty() && !part.starts_with('-'))
        && name != "HEAD"
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
    fn plain_names_need_no_question() {
        for (name, plain) in [
            ("belay/0123456789abcdef", true),
            ("feature/x_1", true),
            ("-x", false),
            ("a/-x", false),
            ("a//b", false),
            ("/a", false),
            ("a/", false),
            ("", false),
            ("HEAD", false),
            ("a.lock", false),
            ("a..b", false),
        ] {
            assert_eq!(is_plain_branch(name), plain, "{name}");
        }
    }
}
