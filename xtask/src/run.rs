//! Running other programs: always in the workspace, never with a stdin, tools found first.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How something that was run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is as it should be.
    Passed,
    /// It is not, and this is why.
    Failed(String),
    /// It could not be looked at, and this is why.
    Skipped(String),
    /// The command line was not understood.
    Misused(String),
}

impl Outcome {
    /// Passed, if `findings` is empty; else failed, naming how many there are.
    pub(crate) fn of_findings(findings: &[String]) -> Self {
        match findings.len() {
            0 => Self::Passed,
            1 => Self::Failed("1 finding".to_owned()),
            count => Self::Failed(format!("{count} findings")),
        }
    }
}

/// The checkout this program was built from.
pub struct Workspace {
    root: PathBuf,
    tools: PathBuf,
}

impl Workspace {
    /// The workspace around this crate.
    pub fn find() -> Self {
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.parent().map_or(manifest_dir.clone(), Path::to_path_buf);
        let tools = tools_root(&root);
        Self { root, tools }
    }

    /// Where its top-level `Cargo.toml` is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where tools that were not on the path are installed, once for all checkouts.
    pub(crate) fn tools(&self) -> &Path {
        &self.tools
    }

    /// A program that a build for development made.
    pub(crate) fn built(&self, program: &str) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        target.unwrap_or_else(|| self.root.join("target")).join("debug").join(program)
    }

    /// A program to be run here, without stdin, with our tools on its path.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null()).env("PATH", self.path());
        command
    }

    /// `cargo` with these arguments, as a person runs it: what cargo told us of our own package
    /// would have build scripts run again, and with them all that stands on them.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("cargo");
        command.args(arguments);
        let ours =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(ours) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Whether `program` is on the path, or in the places that only root's path has.
    pub(crate) fn has(&self, program: &str) -> bool {
        let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        std::env::split_paths(&self.path()).chain(system).any(|dir| dir.join(program).is_file())
    }

    fn path(&self) -> std::ffi::OsString {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let ours = self.tools.join("bin");
        let all = std::env::split_paths(&before).chain([ours]);
        std::env::join_paths(all).unwrap_or(before)
    }
}

/// The cache directory of the person, else the build directory.
fn tools_root(root: &Path) -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map_or_else(|| root.join("target/tools"), |cache| cache.join("belay/tools"))
}

/// Runs `command` to its end, its output passed through.
pub(crate) fn passes(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => {
            let program = command.get_program().display().to_string();
            Outcome::Failed(format!("`{program}` could not be run: {error}"))
        }
    }
}

/// Runs `command` to its end and returns what it printed, or why that cannot be had.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output =
        command.output().map_err(|error| format!("`{program}` could not be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{program}` ended with {}: {}", output.status, errors.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_missing_says_so() {
        let workspace = Workspace::find();
        assert_eq!(passes(&mut workspace.command("true")), Outcome::Passed);
        assert!(matches!(passes(&mut workspace.command("false")), Outcome::Failed(_)));
        let missing = passes(&mut workspace.command("belay-no-such-program"));
        assert!(
            matches!(&missing, Outcome::Failed(why) if why.contains("could not be run")),
            "{missing:?}"
        );
        assert!(workspace.has("cargo") && !workspace.has("belay-no-such-program"));
        assert!(workspace.root().join("Cargo.lock").is_file());
    }

    #[test]
    fn a_child_has_no_stdin_to_wait_for() {
        assert_eq!(output(&mut Workspace::find().command("cat")).as_deref(), Ok(""));
    }
}
