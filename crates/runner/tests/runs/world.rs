//! A machine with a person's repository, real sandboxes and git, and a runner that can be dropped
//! and made again.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belay_api::Chance;
use belay_api::port::{Assignment, Prompt, Who, Work};
use belay_kernel::attempt::Phase;
use belay_kernel::budget::Budget;
use belay_kernel::publish::Publish;
use belay_kernel::task::Plan;
use belay_kernel::{
    AttemptNumber, Epoch, InstallationId, Limits, RunnerId, SandboxId, SessionId, Span, TaskId,
};
use belay_runner::{AnyProvider, GitWorkspace, Runner, RunnerConfig};
use belay_sandbox::{
    Fence, Installation, MARKER, ProcessConfig, ProcessProvider, Provider, ShimProgram, Use,
};
use tokio::task::JoinHandle;

use crate::control::{Control, Row};
use crate::person::git;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other process on this machine draws meanwhile.
fn unique() -> u128 {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let count = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    (nanos.as_nanos() << 24) ^ (u128::from(std::process::id()) << 8) ^ count
}

#[derive(Debug)]
struct Drawn;

impl Chance for Drawn {
    fn draw(&self) -> u128 {
        unique()
    }
}

pub(crate) struct World {
    root: tempfile::TempDir,
    installation: Installation,
    pub(crate) control: Control,
    pub(crate) bubblewrap: Use,
    pub(crate) limits: Limits,
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits {
            heartbeat_interval: Span::from_millis(100),
            renewal_retry: Span::from_millis(100),
            stop_grace: Span::from_millis(300),
            quiet_exit: Span::from_millis(300),
            ..Limits::default()
        };
        let world = Self {
            root,
            installation: Installation { id: InstallationId::from_bits(unique()), epoch: 1 },
            control: Control::default(),
            bubblewrap: Use::WherePossible,
            limits,
        };
        let base = world.base();
        std::fs::create_dir_all(&base).unwrap();
        git(&base, &["init", "--quiet", "--initial-branch=trunk"]);
        std::fs::write(base.join("a.txt"), "a\n").unwrap();
        git(&base, &["add", "."]);
        git(&base, &["commit", "--quiet", "-m", "first"]);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.path("base")
    }

    /// An executable script below the world's root, which sandboxes hide.
    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        let path = self.path("programs").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// An attempt that runs a script, on the person's repository.
    pub(crate) fn assignment(&self, script: &str) -> Assignment {
        let number = unique();
        let task = TaskId::from_bits(number);
        Assignment {
            who: Who { task, attempt: AttemptNumber(1), epoch: Epoch(1) },
            role: "default".into(),
            session: SessionId::from_bits(number),
            sandbox: SandboxId::from_bits(number),
            plan: Plan::Fresh,
            phase: Phase::Claimed,
            publish: Publish::None,
            termination: None,
            work: Work {
                agent: "command".into(),
                command: ["/bin/sh", "-c", script].map(String::from).into(),
                model: None,
                provider: "process".into(),
                image: None,
                repository: Some(self.base().display().to_string()),
                base: None,
                beside: None,
                branch: format!("belay/{task}"),
                publish: false,
                include_uncommitted: false,
                environment: BTreeMap::new(),
                budget: Budget::default(),
                keep_alive: false,
            },
            prompt: Prompt { whole: "Do it.".into(), next: "Go on.".into() },
            conversation: None,
            kept: None,
            thaw: None,
            acknowledged: 0,
            lease: Span::from_secs(60),
            limits: self.limits,
        }
    }

    fn provider(&self) -> ProcessProvider {
        let config = ProcessConfig {
            root: self.path("runner/process"),
            installation: self.installation,
            shim: ShimProgram {
                path: env!("CARGO_BIN_EXE_belay-runner-test-shim").into(),
                leading: vec![],
            },
            hidden: vec![self.root.path().into()],
            bubblewrap: self.bubblewrap,
            cgroups: Use::WherePossible,
        };
        ProcessProvider::open(config).unwrap()
    }

    /// Ends a sandbox and removes every trace of it, as no part of Belay would.
    pub(crate) async fn forget_sandbox(&self, assignment: &Assignment) {
        let fence = Fence {
            session: assignment.session,
            sandbox: assignment.sandbox,
            epoch: assignment.who.epoch,
        };
        self.provider().destroy(&fence).await.unwrap();
        std::fs::remove_dir_all(self.path("runner/process/tombstones")).unwrap();
    }

    /// A runner on this machine; every one is the same runner again.
    pub(crate) fn runner(&self) -> JoinHandle<()> {
        let root = self.path("runner");
        let provider = AnyProvider::Process(self.provider());
        let workspace = GitWorkspace::open(&root.join("git"), Duration::from_secs(60)).unwrap();
        let config = RunnerConfig {
            runner: RunnerId::from_bits(1),
            name: "here".into(),
            version: "0".into(),
            root: root.join("runs"),
            workers: BTreeMap::from([("default".to_owned(), 2)]),
            url: "http://127.0.0.1:1".into(),
            belay: None,
            containers: BTreeMap::new(),
            path: std::env::var("PATH").unwrap(),
            hidden: vec![self.root.path().into()],
            sandbox: belay_sandbox::Limits::default(),
            limits: self.limits,
            publish_without_isolation: false,
        };
        let providers = BTreeMap::from([("process".to_owned(), provider)]);
        let control = self.control.clone();
        let runner = Runner::new(config, control, providers, workspace, Arc::new(Drawn));
        tokio::spawn(runner.run(std::future::pending()))
    }

    /// Waits until a row is as wanted.
    pub(crate) async fn see(&self, who: Who, what: &str, is: impl Fn(&Row) -> bool) -> Row {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let row = self.control.row(who);
            match row {
                Some(row) if is(&row) => return row,
                row => assert!(Instant::now() < deadline, "never seen: {what}; {row:#?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Gives an attempt to a runner, and waits until its agent has said this.
    pub(crate) async fn runner_of(&self, assignment: &Assignment, word: &str) -> JoinHandle<()> {
        self.control.queue(assignment.clone());
        let runner = self.runner();
        self.see(assignment.who, "the agent's word", |row| row.text().contains(word)).await;
        runner
    }

    /// Runs an attempt to the end of its termination.
    pub(crate) async fn run(&self, assignment: Assignment) -> Row {
        let who = assignment.who;
        self.control.queue(assignment);
        let runner = self.runner();
        let row = self.see(who, "the end", Row::is_over).await;
        runner.abort();
        row
    }
}

/// Every process but zombies that carries the sandbox's marker, as `/proc` shows it.
pub(crate) fn marked(sandbox: SandboxId) -> Vec<String> {
    let wanted = format!("{MARKER}={sandbox}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let Ok(environment) = std::fs::read(path.join("environ")) else { continue };
        if environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
            if !stat.is_empty() && !stat.contains(") Z ") && !stat.contains(") X ") {
                found.push(stat);
            }
        }
    }
    found
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
