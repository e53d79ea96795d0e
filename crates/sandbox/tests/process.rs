//! The conformance suite on the process provider, in every configuration of this machine, and what
//! only process sandboxes have: a shim that can be killed, cgroups, PIDs.

mod suite;

use std::path::{Path, PathBuf};

use belay_kernel::{SandboxId, SnapshotId};
use belay_sandbox::{
    Installation, Plan, ProcessConfig, ProcessProvider, ShimProgram, Use,
};
use suite::world::{Scratch, World, installation};

/// The process provider with a choice of what it may use.
pub(crate) struct ProcessWorld {
    scratch: Scratch,
    installation: Installation,
    bubblewrap: Use,
    cgroups: Use,
}

impl ProcessWorld {
    fn new(bubblewrap: Use, cgroups: Use) -> Self {
        Self { scratch: Scratch::new(), installation: installation(), bubblewrap, cgroups }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("belay")
    }
}

impl World for ProcessWorld {
    type Provider = ProcessProvider;

    fn open(&self) -> ProcessProvider {
        ProcessProvider::open(ProcessConfig {
            root: self.root(),
            installation: self.installation,
            shim: ShimProgram { path: env!("CARGO_BIN_EXE_belay-shim").into(), leading: vec![] },
            hidden: vec![self.scratch.path().to_owned()],
            bubblewrap: self.bubblewrap,
            cgroups: self.cgroups,
        })
        .unwrap()
    }

    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn busybox(&self) -> &str {
        assert!(Path::new("/usr/bin/busybox").exists(), "the tests need busybox: apt-get install busybox-static");
        "/usr/bin/busybox"
    }

    fn complete(&self, _plan: &mut Plan) {}

    fn truncate(&self, snapshot: SnapshotId) {
        let path = self.root().join(format!("snapshots/{snapshot}.tar.zst"));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }

    fn assert_nothing_left(&self, sandbox: SandboxId) {
        let name = sandbox.to_string();
        for hierarchy in ["", "unified", "pids", "memory", "cpu"] {
            let directory = Path::new("/sys/fs/cgroup").join(hierarchy);
            assert_no_directory(&directory, &name, 4);
        }
    }
}

/// No directory below this one has the name in its own.
fn assert_no_directory(directory: &Path, name: &str, depth: usize) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if depth > 0 && path.is_dir() {
            assert!(!path.to_string_lossy().contains(name), "left behind: {}", path.display());
            assert_no_directory(&path, name, depth - 1);
        }
    }
}

#[test]
fn with_everything_that_the_machine_offers() {
    suite::run_all("everything", ProcessWorld::new(Use::WherePossible, Use::WherePossible));
}

#[test]
fn without_bubblewrap() {
    suite::run_all("no bubblewrap", ProcessWorld::new(Use::Never, Use::WherePossible));
}

#[test]
fn without_cgroups() {
    suite::run_all("no cgroups", ProcessWorld::new(Use::WherePossible, Use::Never));
}

#[test]
fn with_neither() {
    suite::run_all("neither", ProcessWorld::new(Use::Never, Use::Never));
}
