//! Running git so that nothing an agent wrote decides what runs.
//!
//! Every call has an environment of its own: no system configuration, no hooks, no prompts. Two
//! kinds of call are told apart. *Ours* sees no configuration but our own file. *The person's* is
//! for talking to a remote from a repository that we own: it may use the person's credential
//! helpers and keys, and never touches a directory that an agent could write to.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// A call of git that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// Git could not be started.
    #[error("git could not be started; is it installed and on the PATH?")]
    Start(#[source] std::io::Error),
    /// Git ended with a failure.
    #[error("`git {command}` failed ({status}): {message}")]
    Failed {
        /// What was asked, without secrets: the subcommand only.
        command: String,
        /// How it ended.
        status: String,
        /// The last of what it said.
        message: String,
    },
    /// Git took too long and was killed.
    #[error("`git {command}` took longer than {limit:?} and was killed")]
    Timeout {
        /// What was asked.
        command: String,
        /// How long it could take.
        limit: Duration,
    },
    /// A file of ours could not be read or written.
    #[error("{path}: cannot be used")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Git printed something else than was expected.
    #[error("`git {command}` printed `{printed}`, which was not expected")]
    Unexpected {
        /// What was asked.
        command: String,
        /// What it printed.
        printed: String,
    },
}

/// Our configuration: nothing of a repository's own can run, and any owner is read.
const CONFIG: &str = "[core]
\thooksPath = /dev/null
\tfsmonitor = false
\taskPass =
[safe]
\tdirectory = *
[protocol \"ext\"]
\tallow = never
[gc]
\tauto = 0
[maintenance]
\tauto = false
[init]
\tdefaultBranch = main
[user]
\tname = Belay
\temail = belay@localhost
[advice]
\tdetachedHead = false
[submodule]
\trecurse = false
";

/// Variables through which a person's keys and credential helpers are found.
const CREDENTIALS: [&str; 7] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "GIT_CONFIG_GLOBAL",
];

/// Git, as a runner calls it.
#[derive(Clone, Debug)]
pub struct Git {
    home: PathBuf,
    limit: Duration,
}

impl Git {
    /// Keeps our configuration in `home`; no call takes longer than `limit`.
    pub fn new(home: &Path, limit: Duration) -> Result<Self, GitError> {
        let file = |source| GitError::File { path: home.into(), source };
        std::fs::create_dir_all(home).map_err(file)?;
        let git = Self { home: home.into(), limit };
        std::fs::write(git.config(), CONFIG).map_err(file)?;
        Ok(git)
    }

    /// The same git with another limit.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self { limit, ..self.clone() }
    }

    fn config(&self) -> PathBuf {
        self.home.join("gitconfig")
    }

    /// A call that sees no configuration but ours.
    pub fn ours(&self, directory: &Path) -> Call {
        let mut call = Call::new(directory, self.limit);
        call.command.env("HOME", &self.home).env("GIT_CONFIG_GLOBAL", self.config());
        call
    }

    /// A call that may use the person's credentials, in a repository that is ours.
    pub fn persons(&self, repository: &Path) -> Call {
        let mut call = Call::new(repository, self.limit);
        for name in CREDENTIALS {
            if let Some(value) = std::env::var_os(name) {
                call.command.env(name, value);
            }
        }
        call.arg("-c").arg("core.hooksPath=/dev/null")
    }
}

/// One call, being put together.
#[derive(Debug)]
pub struct Call {
    command: Command,
    words: Vec<OsString>,
    input: Option<Vec<u8>>,
    limit: Duration,
}

impl Call {
    fn new(directory: &Path, limit: Duration) -> Self {
        let mut command = Command::new("git");
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).current_dir(directory).kill_on_drop(true);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        command.env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, words: Vec::new(), input: None, limit }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().into());
        self.command.arg(word);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(self, words: I) -> Self {
        words.into_iter().fold(self, Self::arg)
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives it this to read; little enough to fit into a pipe.
    #[must_use]
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.command.stdin(Stdio::piped());
        self.input = Some(text.into());
        self
    }

    /// The subcommand, for messages; arguments may hold secrets.
    fn name(&self) -> String {
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("-c" | "--git-dir") => drop(words.next()),
                Some(word) if word.starts_with("--") => {}
                Some(word) => return word.into(),
                None => break,
            }
        }
        "?".into()
    }

    /// Runs it, however it ends.
    pub async fn output(mut self) -> Result<Output, GitError> {
        let mut child = self.command.spawn().map_err(GitError::Start)?;
        if let (Some(input), Some(mut stdin)) = (self.input.take(), child.stdin.take()) {
            // A git that does not read it says why by how it ends.
            let _ = stdin.write_all(&input).await;
        }
        match tokio::time::timeout(self.limit, child.wait_with_output()).await {
            Ok(output) => output.map_err(GitError::Start),
            Err(_) => Err(GitError::Timeout { command: self.name(), limit: self.limit }),
        }
    }

    /// Runs it and returns the first `limit` bytes that it prints, and one more if there are more.
    pub async fn bounded(mut self, limit: usize) -> Result<Vec<u8>, GitError> {
        let command = self.name();
        let mut child = self.command.spawn().map_err(GitError::Start)?;
        let mut printed = Vec::new();
        let read = async {
            if let Some(stdout) = child.stdout.take() {
                stdout.take(limit as u64 + 1).read_to_end(&mut printed).await?;
            }
            if printed.len() > limit {
                child.start_kill()?;
            }
            child.wait_with_output().await
        };
        let output = match tokio::time::timeout(self.limit, read).await {
            Ok(output) => output.map_err(GitError::Start)?,
            Err(_) => return Err(GitError::Timeout { command, limit: self.limit }),
        };
        match output.status.success() || printed.len() > limit {
            true => Ok(printed),
            false => Err(failed(command, &output)),
        }
    }

    /// Runs it and returns what it printed, without the last line's end.
    pub async fn text(self) -> Result<String, GitError> {
        let command = self.name();
        let output = self.output().await?;
        if !output.status.success() {
            return Err(failed(command, &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').into())
    }

    /// Runs it and returns the one commit that it printed.
    pub async fn commit(self) -> Result<belay_kernel::publish::CommitId, GitError> {
        let command = self.name();
        let printed = self.text().await?;
        printed.parse().map_err(|_| GitError::Unexpected { command, printed })
    }
}

/// A failure, with the last of what git said.
fn failed(command: String, output: &Output) -> GitError {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().rev().take(3).collect();
    let message = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    GitError::Failed { command, status: output.status.to_string(), message }
}
