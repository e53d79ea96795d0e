//! The first process inside a process sandbox, and the only one that is not the agent's.
//!
//! It says that it is ready, waits to be let go, executes the agent, and then only reaps: the
//! agent, whose end it reports exactly, and the orphans that the kernel gives it. Its two pipes
//! come from `hold`; if the control pipe closes, `hold` is dead, and everything ends with it. In a
//! PID namespace its own end is the end of all; without one it kills what is below it first.
//!
//! It waits in two threads, one for children and one for orders, because that needs neither a
//! signal handler nor a timer. The agent is started by the main thread.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, pidfd_open, pidfd_send_signal,
    set_child_subreaper, setrlimit, setsid, wait,
};
use serde::{Deserialize, Serialize};

use crate::os::pid::ProcessRef;
use crate::os::procfs;

/// Orders on the control pipe.
pub(crate) const GO: u8 = b'g';
pub(crate) const SIGNAL: u8 = b's';

/// How long a kill is repeated.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// What `init` needs to know besides the command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InitSpec {
    pub(crate) control: RawFd,
    pub(crate) status: RawFd,
    /// The program's own file, to be closed.
    pub(crate) program: RawFd,
    /// Whether this is PID 1 of its own namespace.
    pub(crate) namespace: bool,
    /// Where to write to kill the whole cgroup.
    pub(crate) kill_file: Option<String>,
    pub(crate) processes: Option<u64>,
    pub(crate) memory: Option<u64>,
    pub(crate) file: Option<u64>,
}

/// What `init` reports, a line of JSON each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    Ready,
    Started,
    ExecFailed(i32),
    Exited(i32),
    Signalled(i32),
}

pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let spec = args.next().and_then(|text| serde_json::from_str::<InitSpec>(text.to_str()?).ok());
    let Some(spec) = spec else { return ExitCode::from(64) };
    let [control, status, program] = [spec.control, spec.status, spec.program].map(|fd| {
        // SAFETY: `hold` passed exactly these descriptors to this process for its own use, each
        // once, and nothing else in it has touched them.
        unsafe { OwnedFd::from_raw_fd(fd) }
    });
    drop(program);
    for fd in [&control, &status] {
        let _ = fcntl_setfd(fd, FdFlags::CLOEXEC);
    }
    let _ = setsid();
    if !spec.namespace {
        let _ = set_child_subreaper(Pid::from_raw(1));
    }
    let mut status = File::from(status);
    let mut control = File::from(control);
    report(&mut status, Report::Ready);
    let mut order = [0];
    if control.read_exact(&mut order).is_err() || order[0] != GO {
        return ExitCode::SUCCESS;
    }
    run(&spec, args.collect(), control, status)
}

fn report(status: &mut File, report: Report) {
    if let Ok(mut line) = serde_json::to_vec(&report) {
        line.push(b'\n');
        let _ = status.write_all(&line);
    }
}

fn run(spec: &InitSpec, argv: Vec<OsString>, control: File, mut status: File) -> ExitCode {
    limit(spec);
    let mut command = Command::new(argv.first().cloned().unwrap_or_default());
    command.args(argv.iter().skip(1)).process_group(0);
    // The thread first: an agent that forks to its limit would leave no room for one.
    let pidfd = Arc::new(OnceLock::new());
    let (guard, agent_fd) = (spec.clone(), Arc::clone(&pidfd));
    std::thread::spawn(move || obey(&guard, control, &agent_fd));
    // The kernel shall choose the agent before us when memory runs out.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    let spawned = command.spawn();
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            report(&mut status, Report::ExecFailed(error.raw_os_error().unwrap_or(0)));
            return ExitCode::FAILURE;
        }
    };
    let agent = child.id();
    let number = i32::try_from(agent).ok().and_then(Pid::from_raw);
    if let Some(fd) = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        let _ = pidfd.set(fd);
    }
    report(&mut status, Report::Started);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid.as_raw_nonzero().get().unsigned_abs() == agent => {
                let signal = ended.terminating_signal().map(Report::Signalled);
                let code = ended.exit_status().map(Report::Exited);
                report(&mut status, signal.or(code).unwrap_or(Report::Exited(255)));
                // Without a namespace our own end would set free what the agent left behind.
                if !spec.namespace {
                    kill_below(std::process::id(), KILL_LIMIT);
                }
                return ExitCode::SUCCESS;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// Limits of each process, for where no controller limits the sandbox as a whole. The number of
/// processes is counted by user *and* user namespace, so it holds inside bubblewrap, for all but
/// root.
fn limit(spec: &InitSpec) {
    let set = |resource, value: Option<u64>| {
        if value.is_some() {
            let _ = setrlimit(resource, Rlimit { current: value, maximum: value });
        }
    };
    set(Resource::Nproc, spec.processes);
    set(Resource::As, spec.memory);
    set(Resource::Fsize, spec.file);
    set(Resource::Core, Some(0));
}

/// Follows orders until the pipe closes, then ends everything.
fn obey(spec: &InitSpec, mut control: File, agent: &OnceLock<OwnedFd>) {
    let mut order = [0; 2];
    while control.read_exact(&mut order).is_ok() {
        let signal = Signal::from_named_raw(i32::from(order[1]));
        if let (SIGNAL, Some(signal), Some(agent)) = (order[0], signal, agent.get()) {
            let _ = pidfd_send_signal(agent, signal);
        }
    }
    if !spec.namespace {
        if let Some(path) = &spec.kill_file {
            let _ = fs::write(path, "1");
        }
        kill_below(std::process::id(), KILL_LIMIT);
    }
    std::process::exit(0);
}

/// Kills everything below `root`: first stops all, so that none can fork away, then kills.
pub(crate) fn kill_below(root: u32, limit: Duration) {
    let deadline = Instant::now() + limit;
    loop {
        let living: Vec<ProcessRef> = procfs::below(root)
            .into_iter()
            .filter(|stat| !stat.is_zombie())
            .filter_map(|stat| ProcessRef::of(stat.pid))
            .collect();
        if living.is_empty() || Instant::now() >= deadline {
            return;
        }
        for signal in [Signal::STOP, Signal::KILL] {
            for process in &living {
                process.signal(signal);
            }
        }
    }
}
