//! A small disk for the database and the transcripts, and how it becomes full. What agents and
//! runner write is elsewhere: a full disk of theirs is the agents' own trouble.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How large it is.
const SIZE: &str = "size=64m,mode=700";
/// What is not on it.
const ELSEWHERE: [&str; 4] = ["work", "sandboxes", "runner", "containers"];

/// A small disk, mounted for as long as this is there, if that may be done.
pub(crate) struct Small {
    mounts: Vec<PathBuf>,
}

fn mount(words: &[&str], at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(words).arg(at).stdin(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Small {
    pub(crate) fn under(data: &Path) -> Self {
        fs::create_dir_all(data).unwrap();
        let mut small = Self { mounts: Vec::new() };
        if !mount(&["-t", "tmpfs", "-o", SIZE, "belay-chaos"], data) {
            return small;
        }
        small.mounts.push(data.to_owned());
        for name in ELSEWHERE {
            let (there, here) = (data.with_file_name(format!("data-{name}")), data.join(name));
            fs::create_dir_all(&there).unwrap();
            fs::create_dir_all(&here).unwrap();
            let from = there.display().to_string();
            assert!(mount(&["--bind", &from], &here), "{name} is mounted");
            small.mounts.push(here);
        }
        small
    }

    pub(crate) fn is_mounted(&self) -> bool {
        !self.mounts.is_empty()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for mounted in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("--lazy").arg(mounted).status();
        }
    }
}

/// A file that takes all the room, until this is dropped.
pub(crate) struct Full(PathBuf);

impl Full {
    pub(crate) fn fill(data: &Path) -> Self {
        let path = data.join("chaos.fill");
        let mut file = File::create(&path).unwrap();
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
        // The last bytes too.
        while file.write_all(&[0]).is_ok() {}
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
