//! Taking the work out of a tree: all of it, committed or not, under the attempt's kept ref.

use std::path::{Path, PathBuf};

use belay_kernel::publish::CommitId;
use belay_kernel::{AttemptNumber, SessionId, TaskId};

use super::Trees;
use super::index::{Begin, files_as_tree};
use crate::files::read_plain;
use crate::git::GitError;
use crate::inspect::inspect;
use crate::workspace::{Import, Kept, Tree, TreeError};

/// How long a patch may be.
const DIFF_LIMIT: usize = 8 << 20;

/// What one question to git told about a tree's commits.
struct Known {
    kept: Option<CommitId>,
    kept_tree: Option<String>,
    kept_parent: Option<CommitId>,
    head_tree: Option<String>,
    before: Option<CommitId>,
    before_tree: Option<String>,
    before_parent: Option<CommitId>,
}

impl Trees {
    /// Saves everything that a tree holds, committed or not, under the attempt's kept ref. The
    /// agent's processes are gone by now, or frozen. Repeated, it finds the commit that it made.
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
        let laid_out = self.laid_out(tree.session, head);
        let begin = match laid_out.is_file() {
            true => Begin::Index(&laid_out, head.to_string()),
            false => Begin::Commit(head.to_string()),
        };
        let files = files_as_tree(&self.git, mirror, &tree.path, &begin, None).await?;
        let reference = format!("refs/belay/kept/{task}/{attempt}");
        let known = self.known(mirror, &reference, head, since.unwrap_or(tree.base)).await?;
        let commit = match known.kept_before(head, &files) {
            Some(commit) => commit,
            None if known.head_tree.as_ref() == Some(&files) => head,
            None => {
                let message = format!("Work of task {task}, attempt {attempt}");
                self.commit_tree(mirror, &files, head, &message).await?
            }
        };
        if known.kept != Some(commit) {
            let keep = ["update-ref", &reference, &commit.to_string()];
            self.git.ours(mirror).args(keep).text().await?;
        }
        let moved = known.moved(head, &files);
        Ok(Kept { commit, reference, changed: commit != tree.base, moved, import })
    }

    /// The index with which our own git laid a tree out at a commit, before anybody else touched
    /// it: it knows which files are as they were without reading them.
    pub(super) fn laid_out(&self, session: SessionId, at_: CommitId) -> PathBuf {
        self.root.join("trees").join(format!("{session}.{at_}.index"))
    }

    async fn known(
        &self,
        mirror: &Path,
        reference: &str,
        head: CommitId,
        before: CommitId,
    ) -> Result<Known, GitError> {
        let asked = format!(
            "{reference}^{{commit}}\n{reference}^{{tree}}\n{reference}^1\n{head}^{{tree}}\n\
             {before}^{{commit}}\n{before}^{{tree}}\n{before}^1\n"
        );
        let check = ["cat-file", "--batch-check=%(objectname)"];
        let printed = self.git.ours(mirror).args(check).input(asked).text().await?;
        let mut lines = printed.lines().map(|line| (!line.contains(' ')).then_some(line));
        let mut next = || lines.next().flatten();
        Ok(Known {
            kept: next().and_then(|line| line.parse().ok()),
            kept_tree: next().map(str::to_owned),
            kept_parent: next().and_then(|line| line.parse().ok()),
            head_tree: next().map(str::to_owned),
            before: next().and_then(|line| line.parse().ok()),
            before_tree: next().map(str::to_owned),
            before_parent: next().and_then(|line| line.parse().ok()),
        })
    }

    /// Brings the agent's own commits into the mirror.
    async fn import(
        &self,
        tree: &Tree,
        task: TaskId,
        attempt: AttemptNumber,
    ) -> Result<CommitId, GitError> {
        if plain_head(&tree.path) == Some(tree.base) {
            return Ok(tree.base); // it made none
        }
        let reference = format!("refs/belay/import/{task}/{attempt}");
        let into = format!("+HEAD:{reference}");
        let mut fetch = self.git.ours(&tree.mirror).args(["fetch", "--quiet", "--no-tags"]);
        fetch = fetch.args(["--no-write-fetch-head", "--no-auto-gc", "--"]);
        fetch.arg(&tree.path).arg(&into).text().await?;
        let commit = format!("{reference}^{{commit}}");
        self.git.ours(&tree.mirror).args(["rev-parse", "--verify", &commit]).commit().await
    }

    pub(super) async fn commit_tree(
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
        if commit == tree.base {
            return Ok(Vec::new());
        }
        let (from, to) = (tree.base.to_string(), commit.to_string());
        let words = ["diff", "--no-ext-diff", "--no-textconv", "--binary", &from, &to];
        let diff = self.git.ours(&tree.mirror).args(words).bounded(DIFF_LIMIT).await?;
        Ok(cut_at_line(diff, DIFF_LIMIT))
    }
}

impl Known {
    /// The commit that an earlier call made of the same files on top of the same head.
    fn kept_before(&self, head: CommitId, files: &str) -> Option<CommitId> {
        let kept = self.kept?;
        let on_head = kept == head || self.kept_parent == Some(head);
        (on_head && self.kept_tree.as_deref() == Some(files)).then_some(kept)
    }

    /// Whether files or commits are others than those before.
    fn moved(&self, head: CommitId, files: &str) -> bool {
        let Some(before) = self.before else { return true };
        let same_head = head == before || self.before_parent == Some(head);
        !(same_head && self.before_tree.as_deref() == Some(files))
    }
}

/// The commit that a tree's HEAD stands for, where that can be read off its files.
fn plain_head(tree: &Path) -> Option<CommitId> {
    let git = tree.join(".git");
    let read = |path: &Path| {
        let bytes = read_plain(path, 1024)?;
        Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())
    };
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else { return head.parse().ok() };
    if !name.starts_with("refs/heads/") || name.split('/').any(|part| part == "..") {
        return None;
    }
    read(&git.join(name))?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_patch_is_cut_after_a_whole_line_and_says_so() {
        let cut = cut_at_line(b"one\ntwo\nthree\n".to_vec(), 10);
        let text = String::from_utf8(cut).unwrap();
        assert_eq!(text, "one\ntwo\n# Belay: the patch is longer than 8 MiB and ends here.\n");
        assert_eq!(cut_at_line(b"one\n".to_vec(), 4), b"one\n");
    }
}
