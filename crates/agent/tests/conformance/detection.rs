//! Detection, on a machine made for the test: programs that answer, lie, hang and are not programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belay_agent::{Agent, Credentials, Known, Machine, detect, detect_one};

struct Made {
    root: PathBuf,
    machine: Machine,
}

impl Made {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("machine-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("home")).unwrap();
        let mut path = root.join("bin").into_os_string();
        path.push(":/usr/bin:/bin");
        let machine = Machine {
            path,
            home: root.join("home"),
            variables: Vec::new(),
            limit: Duration::from_secs(20),
        };
        Self { root, machine }
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.root.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn agents_are_found_with_version_and_credentials() {
    let mut made = Made::new("found");
    made.program("claude", "echo '2.1.325 (Claude Code)'");
    made.program("codex", "echo 'codex-cli 0.1.0'");
    made.program("gemini", "echo no version here");
    fs::write(made.root.join("bin/opencode"), "not executable").unwrap();
    fs::create_dir_all(made.machine.home.join(".codex")).unwrap();
    fs::write(made.machine.home.join(".codex/auth.json"), "secret").unwrap();
    made.machine.variables = vec!["ANTHROPIC_API_KEY".into()];
    let found = detect(&made.machine);
    let facts: Vec<_> = found.iter().map(|f| (f.agent, f.known, f.credentials.clone())).collect();
    assert_eq!(
        facts,
        [
            (Agent::Claude, Known::Tested, Credentials::Variable("ANTHROPIC_API_KEY")),
            (Agent::Codex, Known::Older, Credentials::File(".codex/auth.json")),
            (Agent::Gemini, Known::Unknown, Credentials::NotSeen),
        ]
    );
    assert!(!format!("{found:?}").contains("secret"));
}

#[test]
fn a_program_that_hangs_is_ended_and_found_without_a_version() {
    let mut made = Made::new("hangs");
    made.machine.limit = Duration::from_millis(300);
    made.program("claude", "echo $$ > \"$HOME/pid\"; exec sleep 600");
    let before = Instant::now();
    let found = detect_one(Agent::Claude, &made.machine).unwrap();
    assert!(before.elapsed() < Duration::from_secs(20));
    assert_eq!((found.version, found.known), (None, Known::Unknown));
    let pid = fs::read_to_string(made.machine.home.join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the program is gone");
}

#[test]
fn what_was_asked_for_its_version_sees_no_secret() {
    let made = Made::new("environment");
    made.program("claude", "env > \"$HOME/seen\"; echo 2.1.325");
    detect_one(Agent::Claude, &made.machine).unwrap();
    let seen = fs::read_to_string(made.machine.home.join("seen")).unwrap();
    let names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    let allowed = ["PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
}
