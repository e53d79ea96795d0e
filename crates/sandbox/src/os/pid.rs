//! A process, named so that a recycled number is never mistaken for it.
//!
//! A [`ProcessRef`] is a PID with its start time and, where the kernel has them (6.9 and later),
//! the number of its pidfd, which is unique until reboot: start times count in hundredths of a
//! second, and a small PID namespace can use a number again within one. A signal goes through a
//! pidfd that was opened first and checked after, so the process that is checked is the one that is
//! signalled.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::procfs;

/// The magic number of the file system whose inodes are unique pidfds.
const PIDFS_MAGIC: u64 = 0x5049_4446;

/// One process for all time, or at least until reboot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessRef {
    pub(crate) pid: u32,
    pub(crate) started: u64,
    pub(crate) unique: Option<u64>,
}

/// What became of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// The process got it.
    Delivered,
    /// The process is gone; whoever has its number now was not touched.
    Gone,
    /// We may not signal it. That is not “gone”.
    Denied,
}

impl ProcessRef {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let fd = open(pid)?;
        let stat = procfs::stat(pid)?;
        Some(Self { pid, started: stat.started, unique: unique(&fd) })
    }

    /// A pidfd, if the process is still the one that was meant and has not ended.
    pub(crate) fn pidfd(&self) -> Option<OwnedFd> {
        let fd = open(self.pid)?;
        let stat = procfs::stat(self.pid)?;
        if stat.started != self.started || has_ended(&fd) {
            return None;
        }
        match (self.unique, unique(&fd)) {
            (Some(then), Some(now)) if then != now => None,
            _ => Some(fd),
        }
    }

    /// Whether it is there and has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.pidfd().is_some()
    }

    /// Sends a signal to this process and to no other.
    pub(crate) fn signal(&self, signal: Signal) -> Sent {
        let Some(fd) = self.pidfd() else { return Sent::Gone };
        match pidfd_send_signal(&fd, signal) {
            Ok(()) => Sent::Delivered,
            Err(Errno::SRCH) => Sent::Gone,
            Err(_) => Sent::Denied,
        }
    }
}

/// A pidfd; never for process ids of 1 and below.
fn open(pid: u32) -> Option<OwnedFd> {
    if pid <= 1 {
        return None;
    }
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

/// Whether every thread of the process has ended: a zombie is gone. The state in `/proc` would not
/// do, because it is that of the first thread, which may have ended while others go on.
fn has_ended(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(count) if count > 0)
}

/// Whether the process that has this number now, whichever it is, has ended.
pub(crate) fn number_has_ended(pid: u32) -> bool {
    open(pid).is_none_or(|fd| has_ended(&fd))
}

/// The pidfd's own number, where it is unique.
fn unique(fd: impl AsFd) -> Option<u64> {
    let fs = rustix::fs::fstatfs(&fd).ok()?;
    let unique = u64::try_from(fs.f_type).ok()? == PIDFS_MAGIC;
    unique.then(|| rustix::fs::fstat(&fd).ok().map(|stat| stat.st_ino)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_and_nothing_are_never_signalled() {
        for pid in [0, 1] {
            let process = ProcessRef { pid, started: 0, unique: None };
            assert_eq!(process.signal(Signal::CONT), Sent::Gone);
            assert_eq!(ProcessRef::of(pid), None);
        }
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = ProcessRef::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        let other = ProcessRef { started: me.started + 1, ..me };
        assert_eq!(other.signal(Signal::KILL), Sent::Gone);
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = ProcessRef::of(child.id()).unwrap();
        let mut tries = 0;
        while procfs::stat(child.id()).unwrap().state != 'Z' {
            tries += 1;
            assert!(tries < 5_000, "the child never ended");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!process.is_alive());
        assert_eq!(process.signal(Signal::KILL), Sent::Gone);
        child.wait().unwrap();
    }

    /// Runs this test again inside a PID namespace of its own, where numbers can be chosen.
    #[test]
    fn a_recycled_number_is_never_touched() {
        const INSIDE: &str = "BELAY_TEST_PID_NAMESPACE";
        if std::env::var_os(INSIDE).is_some() {
            return recycle();
        }
        let mut command = std::process::Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let name = "os::pid::tests::a_recycled_number_is_never_touched";
        let output = command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{failed}");
        assert!(said.contains("1 passed"), "{said}");
    }

    fn recycle() {
        let sleeper = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut first = sleeper();
        let process = ProcessRef::of(first.id()).unwrap();
        assert!(process.is_alive());
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(process.signal(Signal::KILL), Sent::Gone);
        // The next process gets the same number, perhaps within the same hundredth of a second.
        let mut second = None;
        for _ in 0..100 {
            let before = (process.pid - 1).to_string();
            std::fs::write("/proc/sys/kernel/ns_last_pid", before).unwrap();
            let mut child = sleeper();
            if child.id() == process.pid {
                second = Some(child);
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut second = second.expect("the number came again");
        assert!(!process.is_alive());
        assert_eq!(process.signal(Signal::KILL), Sent::Gone);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(second.try_wait().unwrap().is_none(), "a stranger was killed");
        second.kill().unwrap();
        second.wait().unwrap();
    }
}
