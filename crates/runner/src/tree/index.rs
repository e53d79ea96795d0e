//! An index of our own for files that git must not read with a configuration but ours.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::git::{Call, Git, GitError};
use crate::workspace::TreeError;

/// How the names of temporary indexes begin, and how many there were.
const INDEX: &str = "index-";
static INDEXES: AtomicU64 = AtomicU64::new(0);

/// Removes temporary indexes that a crash left; one that stays costs a little space only.
pub(super) fn clear_indexes(mirrors: &Path) {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    for mirror in entries(mirrors) {
        for file in entries(&mirror.path()) {
            if file.file_name().to_string_lossy().starts_with(INDEX) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// What an index begins with.
pub(super) enum Begin<'a> {
    /// The files of this commit: every file is read again.
    Commit(String),
    /// Another index, which also knows since when its files are as they are. Whatever it says is
    /// checked by git; where git cannot use it, the commit is begun with.
    Index(&'a Path, String),
}

/// An index beside a mirror.
pub(super) struct Index<'a> {
    mirror: &'a Path,
    files: &'a Path,
    path: PathBuf,
}

impl<'a> Index<'a> {
    pub(super) fn new(mirror: &'a Path, files: &'a Path) -> Self {
        // Sessions of one base look at the same files at the same time, and a git that a killed
        // runner left behind may still write: no two indexes are one.
        let number = INDEXES.fetch_add(1, Ordering::Relaxed);
        let path = mirror.join(format!("{INDEX}{}-{number}", std::process::id()));
        // An earlier process with this number may have left one, or its lock.
        let _ = std::fs::remove_file(path.with_extension("lock"));
        let _ = std::fs::remove_file(&path);
        Self { mirror, files, path }
    }

    pub(super) fn call(&self, git: &Git, words: &[&str]) -> Call {
        let call = git.ours(self.files).env("GIT_INDEX_FILE", &self.path);
        call.env("GIT_DIR", self.mirror).env("GIT_WORK_TREE", self.files).args(words)
    }

    pub(super) fn remove(self) -> Result<(), TreeError> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TreeError::File { path: self.path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The files below `files` as a git tree in `mirror`, with the mirror's configuration. What
/// `excludes` names is left out, besides what the files' own `.gitignore` names.
pub(super) async fn files_as_tree(
    git: &Git,
    mirror: &Path,
    files: &Path,
    begin: &Begin<'_>,
    excludes: Option<&Path>,
) -> Result<String, TreeError> {
    let commit = match begin {
        Begin::Commit(commit) => commit,
        Begin::Index(from, commit) => {
            let index = Index::new(mirror, files);
            if std::fs::copy(from, &index.path).is_ok() {
                let saved = add_and_write(git, &index, excludes).await;
                index.remove()?;
                if let Ok(saved) = saved {
                    return Ok(saved);
                }
            }
            commit
        }
    };
    let index = Index::new(mirror, files);
    let saved = async {
        index.call(git, &["read-tree", commit]).text().await?;
        add_and_write(git, &index, excludes).await
    };
    let saved = saved.await;
    index.remove()?;
    Ok(saved?)
}

async fn add_and_write(
    git: &Git,
    index: &Index<'_>,
    excludes: Option<&Path>,
) -> Result<String, GitError> {
    let add = match excludes {
        Some(path) => {
            let setting = format!("core.excludesFile={}", path.display());
            index.call(git, &["-c", &setting, "add", "--all", "--", "."])
        }
        None => index.call(git, &["add", "--all", "--", "."]),
    };
    add.text().await?;
    index.call(git, &["write-tree"]).text().await
}
