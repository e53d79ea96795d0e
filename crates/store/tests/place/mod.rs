//! Where a database lives: on a disk that can be full, by a clock that can be set.

pub(crate) mod clock;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own; it is unmounted with this value.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn mount(megabytes: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path());
        assert!(mount.status().unwrap().success(), "this test mounts a tmpfs, so it needs root");
        Self(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes up what is free but for `kilobytes`, in a file that can be removed.
    pub(crate) fn fill_but(&self, kilobytes: u64) -> PathBuf {
        use std::io::Write as _;
        let path = self.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(kilobytes * 1_024)).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The wall clock of processes that are started with it. Clocks that count from boot go on.
#[derive(Clone)]
pub(crate) struct MovedClock(PathBuf);

impl MovedClock {
    /// A clock that shows the time, to be kept in `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        let clock = Self(directory.join("clock"));
        clock.set("+0s");
        clock
    }

    /// Sets it, for running processes too: `-1d` is a day back.
    pub(crate) fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{offset}\n")).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }

    /// What puts a process under this clock.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        let library = ["x86_64", "aarch64"]
            .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"))
            .into_iter()
            .find(|path| Path::new(path).exists());
        [
            ("LD_PRELOAD", library.expect("libfaketime is installed (Debian: faketime)")),
            ("FAKETIME_TIMESTAMP_FILE", self.0.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}
