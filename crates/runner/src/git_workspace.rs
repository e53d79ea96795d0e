//! The workspace of a real runner: trees and remotes of git.

use std::path::Path;
use std::time::Duration;

use belay_kernel::publish::{CommitId, Push, Remote};
use belay_kernel::{AttemptNumber, SessionId, Span, TaskId};

use crate::git::Git;
use crate::publish::{Publisher, Said};
use crate::tree::Trees;
use crate::workspace::{Kept, Tree, TreeError, TreeRequest, Workspace};

/// Trees and remotes of git.
#[derive(Clone, Debug)]
pub struct GitWorkspace {
    git: Git,
    trees: Trees,
}

impl GitWorkspace {
    /// Keeps mirrors and trees below `root`; no call of git takes longer than `limit`.
    pub fn open(root: &Path, limit: Duration) -> Result<Self, TreeError> {
        let git = Git::new(root, limit)?;
        Ok(Self { trees: Trees::new(root, git.clone())?, git })
    }
}

fn publisher<'a>(git: &'a Git, tree: &'a Tree) -> Result<Publisher<'a>, TreeError> {
    let remote = tree.remote.as_deref().ok_or(TreeError::NoRemote)?;
    Ok(Publisher::new(git, &tree.mirror, remote, &tree.branch))
}

impl Workspace for GitWorkspace {
    async fn prepare(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.trees.prepare(want).await
    }

    async fn find(&self, session: SessionId) -> Result<Option<Tree>, TreeError> {
        self.trees.find(session)
    }

    async fn locate(&self, want: &TreeRequest) -> Result<Tree, TreeError> {
        self.trees.locate(want).await
    }

    async fn keep(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
        since: Option<CommitId>,
    ) -> Result<Kept, TreeError> {
        self.trees.keep(tree, task, attempt, since).await
    }

    async fn diff(&self, tree: &Tree, commit: CommitId) -> Result<Vec<u8>, TreeError> {
        self.trees.diff(tree, commit).await
    }

    async fn look(&self, tree: &Tree) -> Result<Option<CommitId>, TreeError> {
        Ok(publisher(&self.git, tree)?.look().await?)
    }

    async fn push(&self, tree: &Tree, push: Push, within: Span) -> Result<Said, TreeError> {
        let git = self.git.within(Duration::from_millis(within.as_millis()));
        Ok(publisher(&git, tree)?.push(push).await?)
    }

    async fn remote_of(&self, tree: &Tree, push: Push) -> Remote {
        match publisher(&self.git, tree) {
            Ok(publisher) => publisher.remote_of(push).await,
            Err(_) => Remote::Unreachable,
        }
    }

    async fn fence(&self, tree: &Tree, push: Push) -> Result<Said, TreeError> {
        Ok(publisher(&self.git, tree)?.fence(push, tree.base).await?)
    }

    async fn remove(&self, session: SessionId) -> Result<(), TreeError> {
        self.trees.forget(session).await
    }
}
