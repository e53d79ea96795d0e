//! Publishing from a repository that the runner owns, and finding out what became of a push.
//!
//! The kernel decides ([`belay_kernel::publish::settle`]); this file looks at the remote, pushes,
//! and moves the ref away when it has to be certain that a late push cannot land any more.

use std::path::Path;

use belay_kernel::publish::{CommitId, Push, Remote};

use crate::git::{Git, GitError};

/// What a push said of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// The remote took it.
    Landed,
    /// The remote refused it, because the ref is not what was expected or by a rule of its own.
    Refused,
    /// It ended without an answer: nothing is known.
    Nothing,
}

/// Pushes from one repository of ours to one branch of one remote.
#[derive(Clone, Debug)]
pub struct Publisher<'a> {
    git: &'a Git,
    mirror: &'a Path,
    remote: &'a str,
    reference: String,
}

impl<'a> Publisher<'a> {
    /// Publishes to the branch `branch` of `remote` from `mirror`.
    pub fn new(git: &'a Git, mirror: &'a Path, remote: &'a str, branch: &str) -> Self {
        Self { git, mirror, remote, reference: format!("refs/heads/{branch}") }
    }

    /// What the remote's branch is now: X for the next push.
    pub async fn look(&self) -> Result<Option<CommitId>, GitError> {
        let words = ["ls-remote", "--quiet", "--", self.remote, &self.reference];
        let listed = self.git.persons(self.mirror).args(words).text().await?;
        let ours = listed.lines().find_map(|line| {
            let (commit, name) = line.split_once('\t')?;
            (name == self.reference).then(|| commit.to_owned())
        });
        let unexpected = |printed| GitError::Unexpected { command: "ls-remote".into(), printed };
        ours.map(|commit| commit.parse().map_err(|_| unexpected(commit))).transpose()
    }

    /// Pushes W where X is. Only after the commit that opened the gate.
    pub async fn push(&self, push: Push) -> Result<Said, GitError> {
        self.push_commit(push.commit, push.expected).await
    }

    async fn push_commit(
        &self,
        commit: CommitId,
        expected: Option<CommitId>,
    ) -> Result<Said, GitError> {
        let expected = expected.map(|commit| commit.to_string()).unwrap_or_default();
        let lease = format!("--force-with-lease={}:{expected}", self.reference);
        let refspec = format!("{commit}:{}", self.reference);
        let words =
            ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"];
        let call = self.git.persons(self.mirror).args(words).arg(lease);
        let output = match call.arg("--").arg(self.remote).arg(refspec).output().await {
            Ok(output) => output,
            Err(GitError::Timeout { .. }) => return Ok(Said::Nothing),
            Err(error) => return Err(error),
        };
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(match output.status.success() {
            true => Said::Landed,
            false if refused(&printed) => Said::Refused,
            false => Said::Nothing,
        })
    }

    /// What the remote shows of a push whose outcome is unknown.
    pub async fn remote_of(&self, push: Push) -> Remote {
        let Ok(now) = self.look().await else { return Remote::Unreachable };
        match now {
            Some(commit) if commit == push.commit => Remote::HasCommit,
            now if now == push.expected => Remote::AsExpected,
            None => Remote::MovedOn,
            Some(commit) => match self.contains(commit, push.commit).await {
                Ok(true) => Remote::HasCommit,
                Ok(false) => Remote::MovedOn,
                Err(_) => Remote::Unreachable,
            },
        }
    }

    /// Brings the remote's branch into the mirror.
    async fn fetch(&self) -> Result<(), GitError> {
        let words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", self.remote];
        self.git.persons(self.mirror).args(words).arg(&self.reference).text().await.map(drop)
    }

    async fn contains(&self, tip: CommitId, commit: CommitId) -> Result<bool, GitError> {
        self.fetch().await?;
        let asked = format!("{commit}^{{commit}}");
        let known = self.git.ours(self.mirror).args(["cat-file", "-e", &asked]).output().await?;
        if !known.status.success() {
            // What came with the tip would be here.
            return Ok(false);
        }
        let (tip, commit) = (tip.to_string(), commit.to_string());
        let asked = ["merge-base", "--is-ancestor", &commit, &tip];
        let output = self.git.ours(self.mirror).args(asked).output().await?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(GitError::Unexpected {
                command: "merge-base".into(),
                printed: String::from_utf8_lossy(&output.stderr).into(),
            }),
        }
    }

    /// Moves the ref from X to a commit with X's content, or the base's, so that a push that
    /// expects X can never land.
    pub async fn fence(&self, push: Push, base: CommitId) -> Result<Said, GitError> {
        if push.expected.is_some() {
            self.fetch().await?;
        }
        let parent = push.expected.unwrap_or(base).to_string();
        let tree = format!("{parent}^{{tree}}");
        let message = format!("Belay: {} was not published", push.commit);
        let words = ["commit-tree", &tree, "-p", &parent, "-m", &message];
        let fence = self.git.ours(self.mirror).args(words).commit().await?;
        self.push_commit(fence, push.expected).await
    }
}

/// Whether a push was refused for certain, by its porcelain: one line per ref, `!` for a failure.
/// A failure without an answer of the remote (`[remote failure]`) is none: it may still land.
fn refused(printed: &str) -> bool {
    let mut answers = printed.lines().filter_map(|line| line.strip_prefix("!\t"));
    answers.any(|answer| {
        let summary = answer.split('\t').nth(1).unwrap_or_default();
        summary.starts_with("[rejected]") || summary.starts_with("[remote rejected]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_a_refusal() {
        let line = |summary: &str| format!("To x\n!\tabc:refs/heads/b\t{summary}\nDone");
        assert!(refused(&line("[rejected] (stale info)")));
        assert!(refused(&line("[remote rejected] (pre-receive hook declined)")));
        assert!(!refused(&line("[remote failure] (remote failed to report status)")));
        assert!(!refused("To x\n*\tabc:refs/heads/b\t[new branch]\nDone"));
    }
}
