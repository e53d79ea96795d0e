//! What a runner needs of working trees and remotes, as a trait: a simulation can stand in for git.
//!
//! A tree belongs to a *session* and outlives its attempts. Every operation may be repeated, and a
//! crash in the middle of one leaves nothing half made.

use std::future::Future;
use std::path::PathBuf;

use belay_kernel::publish::{CommitId, Push, Remote};
use belay_kernel::{AttemptNumber, SessionId, Span, TaskId};
use serde::{Deserialize, Serialize};

use crate::git::GitError;
use crate::publish::Said;

/// What a session's work starts from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// A repository on this machine.
    Path(PathBuf),
    /// A repository elsewhere.
    Url(String),
}

impl Base {
    /// The base with this name: a path if it begins like one or is there, else a URL.
    pub fn named(name: &str) -> Self {
        let path = PathBuf::from(name);
        let looks_like_path = name.starts_with(['/', '.']) || path.is_dir();
        if looks_like_path { Self::Path(path) } else { Self::Url(name.into()) }
    }

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeRequest {
    /// For this session.
    pub session: SessionId,
    /// From there; nothing for an empty tree that is never published.
    pub base: Option<Base>,
    /// From this branch, tag or commit; the base's own HEAD if it is not said.
    pub from: Option<String>,
    /// From what was committed last in this session's tree, if it is here; else as said above.
    pub beside: Option<SessionId>,
    /// On this branch.
    pub branch: String,
    /// With changes that are not committed, or not.
    pub dirty: Dirty,
    /// What the session's last attempt left: what the tree holds if it is not here any more.
    pub kept: Option<CommitId>,
}

/// A session's tree. What is needed to find its work again is written next to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tree {
    /// Its session.
    pub session: SessionId,
    /// The working directory.
    pub path: PathBuf,
    /// The repository of ours that it borrows objects from; the sandbox sees it read-only.
    pub mirror: PathBuf,
    /// Where it started.
    pub base: CommitId,
    /// Its branch, and the one that is pushed to.
    pub branch: String,
    /// Where it is published; nothing for a tree without a repository.
    pub remote: Option<String>,
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
    /// The ref that keeps it.
    pub reference: String,
    /// Whether anything differs from where the tree started: there is something to publish.
    pub changed: bool,
    /// Whether anything differs from what the attempt before left.
    pub moved: bool,
    /// What became of the agent's own commits.
    pub import: Import,
}

/// Why a tree cannot be had or saved.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The base is no repository.
    #[error("`{0}` is not a git repository; name one with --repo, or run `git init` there")]
    NotARepository(String),
    /// The base is elsewhere and does not answer, or is no repository.
    #[error("`{0}` does not answer as a git repository")]
    Unreachable(String),
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
    /// The session's tree is not on this machine, nor is the commit that would bring it back.
    #[error("the session's tree is not on this machine, and neither is {0}, which it was kept as")]
    NotHere(CommitId),
    /// The tree has no repository to be published to.
    #[error("a tree without a repository is never published")]
    NoRemote,
    /// Git failed.
    #[error("the working tree could not be handled: {0}")]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("{path}: cannot be used: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl TreeError {
    /// Whether trying again as it is can only fail the same way.
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::NotARepository(_)
            | Self::Empty(_)
            | Self::NoSuchRef { .. }
            | Self::Dirty(_)
            | Self::BadBranch(_)
            | Self::NotHere(_)
            | Self::NoRemote => true,
            Self::Unreachable(_) | Self::Git(_) | Self::File { .. } => false,
        }
    }
}

/// Working trees, and the remotes they are published to.
pub trait Workspace: Send + Sync + 'static {
    /// Makes the session's tree, or finds it made.
    fn prepare(&self, want: &TreeRequest) -> impl Future<Output = Result<Tree, TreeError>> + Send;

    /// The session's tree, if it is on this machine.
    fn find(
        &self,
        session: SessionId,
    ) -> impl Future<Output = Result<Option<Tree>, TreeError>> + Send;

    /// Where the session's work is published, whether or not its tree is on this machine.
    fn locate(&self, want: &TreeRequest) -> impl Future<Output = Result<Tree, TreeError>> + Send;

    /// Saves everything that a tree holds under the attempt's kept ref. `since` is what the attempt
    /// before left. The attempt's processes are gone by now.
    fn keep(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
        since: Option<CommitId>,
    ) -> impl Future<Output = Result<Kept, TreeError>> + Send;

    /// What changed from where the tree started to `commit`, as a patch of bounded length.
    fn diff(
        &self,
        tree: &Tree,
        commit: CommitId,
    ) -> impl Future<Output = Result<Vec<u8>, TreeError>> + Send;

    /// What the remote's branch is now: X for the next push.
    fn look(&self, tree: &Tree)
    -> impl Future<Output = Result<Option<CommitId>, TreeError>> + Send;

    /// Pushes W where X is. Only after the commit that opened the gate.
    fn push(
        &self,
        tree: &Tree,
        push: Push,
        within: Span,
    ) -> impl Future<Output = Result<Said, TreeError>> + Send;

    /// What the remote shows of a push whose outcome is unknown.
    fn remote_of(&self, tree: &Tree, push: Push) -> impl Future<Output = Remote> + Send;

    /// Moves the remote's branch away from X, so that a push that expects X can never land.
    fn fence(
        &self,
        tree: &Tree,
        push: Push,
    ) -> impl Future<Output = Result<Said, TreeError>> + Send;

    /// Removes a session's tree and its record. Its kept work stays.
    fn remove(&self, session: SessionId) -> impl Future<Output = Result<(), TreeError>> + Send;
}
