//! Git, as a person would call it in their own repository: with their settings and their hooks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fault::Fault;

/// A repository of the person's.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    top: PathBuf,
}

/// What git answered.
pub(crate) struct Answer {
    /// Whether it succeeded.
    pub(crate) ok: bool,
    /// What it printed, without the last line break.
    pub(crate) out: String,
    /// What it complained of.
    pub(crate) complaint: String,
}

impl Repository {
    /// The repository whose tree `directory` is in; nothing, if it is in none.
    pub(crate) fn around(directory: &Path) -> Option<Self> {
        let here = Self::at(directory);
        let answer = here.ask(&["rev-parse", "--show-toplevel"]).ok()?;
        (answer.ok && !answer.out.is_empty()).then(|| Self { top: PathBuf::from(answer.out) })
    }

    /// What may be a repository, at this path.
    pub(crate) fn at(path: &Path) -> Self {
        Self { top: path.to_owned() }
    }

    /// Its top level.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Runs git; a failure of git is an answer.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Answer, Fault> {
        let output = Command::new("git")
            .arg("-C")
            .arg(&self.top)
            .args(arguments)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_MERGE_AUTOEDIT", "no")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Fault::failed(format!("git cannot be started: {error}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let complaint = match text(&output.stderr) {
            empty if empty.is_empty() => text(&output.stdout),
            said => said,
        };
        Ok(Answer { ok: output.status.success(), out: text(&output.stdout), complaint })
    }

    /// What git prints, if it succeeds with something.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Option<String>, Fault> {
        let answer = self.ask(arguments)?;
        Ok((answer.ok && !answer.out.is_empty()).then_some(answer.out))
    }
}
