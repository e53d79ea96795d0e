//! Which agents are installed here, which version, whether it is known to work, and whether
//! credentials seem to be there. This module alone looks at the machine; it prints no secret and
//! reads none: it asks whether a variable or a file exists, not what is in it.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::compatibility::{Known, Version};

/// Where to look. A value, so that tests can look elsewhere.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The search path for programs.
    pub path: OsString,
    /// The person's home, where agents keep their credentials.
    pub home: PathBuf,
    /// Names of the variables that are set and not empty.
    pub variables: Vec<String>,
    /// How long a program may take to say its version.
    pub limit: Duration,
}

impl Machine {
    /// This machine, as this process sees it.
    pub fn here() -> Self {
        let set = |(name, value): (OsString, OsString)| {
            if value.is_empty() { None } else { name.into_string().ok() }
        };
        Self {
            path: std::env::var_os("PATH").unwrap_or_default(),
            home: std::env::home_dir().unwrap_or_default(),
            variables: std::env::vars_os().filter_map(set).collect(),
            limit: Duration::from_secs(10),
        }
    }
}

/// Whether credentials seem to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// This variable is set.
    Variable(&'static str),
    /// This file exists, relative to the home directory.
    File(&'static str),
    /// Neither; the agent may still know another way.
    NotSeen,
}

/// An agent as found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which agent.
    pub agent: Agent,
    /// Its program.
    pub program: PathBuf,
    /// What it says its version is; nothing if it did not say in time.
    pub version: Option<Version>,
    /// Whether that version is known to work.
    pub known: Known,
    /// Whether credentials seem to be there.
    pub credentials: Credentials,
}

/// Looks for every agent that has a usual program.
pub fn detect(machine: &Machine) -> Vec<Found> {
    Agent::ALL.into_iter().filter_map(|agent| detect_one(agent, machine)).collect()
}

/// Looks for one agent.
pub fn detect_one(agent: Agent, machine: &Machine) -> Option<Found> {
    let program = find(agent.program()?, machine)?;
    let version = ask_version(&program, machine);
    let known = agent.known(version.as_ref());
    let credentials = credentials(agent, machine);
    Some(Found { agent, program, version, known, credentials })
}

fn find(name: &str, machine: &Machine) -> Option<PathBuf> {
    std::env::split_paths(&machine.path)
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Asks a program for its version, and ends it if it does not answer. It runs in an empty
/// environment but for what finds its interpreter and home.
fn ask_version(program: &Path, machine: &Machine) -> Option<Version> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .env("PATH", &machine.path)
        .env("HOME", &machine.home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdout = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // A version is short; the rest is not read.
        let read = stdout.by_ref().take(4 << 10).read_to_end(&mut text);
        read.ok().map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let deadline = Instant::now() + machine.limit;
    let exited = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(None) | Err(_) => break false,
        }
    };
    if !exited {
        // It said nothing in time; whether the kill succeeds changes nothing of that.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    Version::find(&reader.join().ok()??)
}

/// The variables and files by which each agent is known to be given credentials.
const fn credential_places(agent: Agent) -> (&'static [&'static str], &'static [&'static str]) {
    match agent {
        Agent::Claude => (
            &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"],
            &[".claude/.credentials.json"],
        ),
        Agent::Codex => (&["OPENAI_API_KEY", "CODEX_API_KEY"], &[".codex/auth.json"]),
        Agent::Gemini => (
            &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"],
            &[".gemini/oauth_creds.json"],
        ),
        Agent::OpenCode => (
            &["OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
            &[".local/share/opencode/auth.json"],
        ),
        Agent::Copilot => (
            &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY"],
            &[".copilot/config.json"],
        ),
        Agent::Cursor => (&["CURSOR_API_KEY"], &[".config/cursor/auth.json"]),
        Agent::Acp | Agent::Command => (&[], &[]),
    }
}

fn credentials(agent: Agent, machine: &Machine) -> Credentials {
    let (variables, files) = credential_places(agent);
    let is_set = |name: &&&'static str| machine.variables.iter().any(|known| known == **name);
    if let Some(name) = variables.iter().find(is_set) {
        return Credentials::Variable(name);
    }
    match files.iter().find(|file| machine.home.join(file).is_file()) {
        Some(file) => Credentials::File(file),
        None => Credentials::NotSeen,
    }
}

impl Agent {
    /// The variables by which the agent takes credentials; a role names those that it passes on.
    pub const fn credential_variables(self) -> &'static [&'static str] {
        credential_places(self).0
    }

    /// Whether the value of a variable with this name is a secret, to be masked in what is kept.
    pub fn is_secret(self, name: &str) -> bool {
        let upper = name.to_ascii_uppercase();
        let parts = ["KEY", "TOKEN", "SECRET", "PASSWORD"];
        self.credential_variables().contains(&name) || parts.iter().any(|part| upper.contains(part))
    }
}
