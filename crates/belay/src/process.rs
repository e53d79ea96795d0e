//! A process that can be told from a later one with the same id: by when it was started.

use std::fs;

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use serde::{Deserialize, Serialize};

/// A process of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: u32,
    /// When it was started, in ticks since the boot.
    #[serde(rename = "start_time")]
    pub(crate) start: u64,
    /// The boot in which it was started.
    pub(crate) boot: String,
}

/// Lets this process open as many files as it may: each stream is one, and the usual soft limit
/// holds a thousand. Where it cannot be raised, fewer streams can be open.
pub(crate) fn raise_file_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Process {
    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this id now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may hold anything; the fields after the last one count.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        // A zombie is gone.
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let start = fields.nth(18)?.parse().ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Some(Self { pid, start, boot: boot.trim().to_owned() })
    }

    /// Whether it is still there.
    pub(crate) fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Asks it to end. Nothing is sent to a process that only has the same id.
    pub(crate) fn terminate(&self) -> std::io::Result<()> {
        let raw = i32::try_from(self.pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
        let Some(pid) = raw else { return Err(std::io::Error::other("not a process id")) };
        // The descriptor holds on to one process; then it is looked at, then it is signalled.
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        if !self.is_alive() {
            return Ok(());
        }
        Ok(pidfd_send_signal(&descriptor, Signal::TERM)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_a_dead_one_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        let later = Process { start: process.start + 1, ..process.clone() };
        assert!(!later.is_alive());
        later.terminate().unwrap();
        assert!(process.is_alive(), "nothing was sent to the one with the same id");
        process.terminate().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
