//! The processes that `hold` starts: bubblewrap, if there is one, and `init` inside it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;

use super::copy::Pipes;
use super::follow::Follow;
use crate::os::bwrap::Bubblewrap;
use crate::os::pid::ProcessRef;
use crate::plan::{MARKER, Stdout};
use crate::shim::init::{GO, InitSpec, Report, SIGNAL};
use crate::shim::wire::Launch;

/// How long namespaces and mounts may take.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// The child of `hold`, its pipes, and what it has reported.
pub(super) struct Child {
    process: std::process::Child,
    pipes: Option<Pipes>,
    control: Option<File>,
    status: BufReader<File>,
    status_open: bool,
    /// Where bubblewrap writes the process id of what it started.
    info: Option<File>,
    wrapper: Option<ProcessRef>,
    init: Option<ProcessRef>,
}

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: u32,
}

impl Child {
    pub(super) fn spawn(launch: &Launch) -> io::Result<Self> {
        let program = File::open("/proc/self/exe")?;
        let (control_read, control) = pipe_with(PipeFlags::CLOEXEC)?;
        let (status, status_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (info, info_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let spec = InitSpec {
            control: control_read.as_raw_fd(),
            status: status_write.as_raw_fd(),
            program: program.as_raw_fd(),
            ..limits(launch)
        };
        let spec = serde_json::to_string(&spec).map_err(io::Error::other)?;
        let program_path = format!("/proc/self/fd/{}", program.as_raw_fd());
        let mut command = match &launch.bubblewrap {
            Some(path) => {
                let mut command = Command::new(path);
                let bubblewrap = Bubblewrap { program: path.clone() };
                command.args(bubblewrap.arguments(&launch.plan, &launch.hidden));
                command.arg("--info-fd").arg(info_write.as_raw_fd().to_string());
                command.arg("--").arg(program_path);
                command
            }
            None => {
                let mut command = Command::new(program_path);
                command.arg0("belay-shim").current_dir(&launch.plan.tree);
                command
            }
        };
        command.args(&launch.leading).arg("init").arg(spec).args(&launch.plan.argv);
        command.env_clear().envs(&launch.plan.env).env(MARKER, launch.sandbox.to_string());
        let (follow, stdout) = match launch.plan.stdout {
            Stdout::Pipe => (None, Stdio::piped()),
            Stdout::File => {
                let (follow, file) = Follow::create()?;
                (Some(follow), file.into())
            }
        };
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        // Only what the child needs is inherited; this process has one thread, so nothing else can
        // start a process meanwhile.
        for fd in [&control_read, &status_write] {
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        fcntl_setfd(&program, FdFlags::empty())?;
        if launch.bubblewrap.is_some() {
            fcntl_setfd(&info_write, FdFlags::empty())?;
        }
        let mut process = command.spawn()?;
        let pipes = Pipes::of(&mut process, follow)?;
        Ok(Self {
            process,
            pipes: Some(pipes),
            control: Some(File::from(control)),
            status: BufReader::new(File::from(status)),
            status_open: true,
            info: launch.bubblewrap.is_some().then(|| File::from(info)),
            wrapper: None,
            init: None,
        })
    }

    /// The process id of what was started: bubblewrap, or `init` itself.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn take_pipes(&mut self) -> Pipes {
        self.pipes.take().unwrap_or_default()
    }

    /// Waits until `init` stands inside everything and says so.
    pub(super) fn await_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while !readable(self.status.get_ref().as_fd(), deadline)? {
            if Instant::now() >= deadline {
                return Err(io::Error::other("the sandbox was not ready within 10 s"));
            }
        }
        if self.next_report()? != Some(Report::Ready) {
            return Err(io::Error::other("the sandbox could not be made"));
        }
        let child = ProcessRef::of(self.process.id());
        if let Some(mut info) = self.info.take() {
            let mut text = String::new();
            info.read_to_string(&mut text)?;
            let info: Info = serde_json::from_str(&text).map_err(io::Error::other)?;
            self.init = ProcessRef::of(info.child_pid);
            self.wrapper = child;
        } else {
            self.init = child;
        }
        match self.init {
            Some(_) => Ok(()),
            None => Err(io::Error::other("the sandbox ended before it was ready")),
        }
    }

    /// Ends what was started, when it could not be made ready.
    pub(super) fn abandon(&mut self) {
        self.control = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(super) fn wrapper(&self) -> Option<ProcessRef> {
        self.wrapper
    }

    pub(super) fn init(&self) -> Option<ProcessRef> {
        self.init
    }

    /// The pipe on which `init` reports, while it is open.
    pub(super) fn status(&self) -> Option<&File> {
        self.status_open.then(|| self.status.get_ref())
    }

    /// The next report; nothing at the end of the pipe. Blocks, so ask `poll` first.
    pub(super) fn next_report(&mut self) -> io::Result<Option<Report>> {
        let mut line = String::new();
        if self.status.read_line(&mut line)? == 0 {
            self.status_open = false;
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    }

    /// Whether another report was read already, so that `poll` would not tell.
    pub(super) fn has_report(&self) -> bool {
        !self.status.buffer().is_empty()
    }

    /// Lets `init` execute the agent.
    pub(super) fn go(&mut self) -> io::Result<()> {
        self.order(&[GO])
    }

    /// Has `init` send a signal to the agent.
    pub(super) fn signal(&mut self, signal: u8) -> io::Result<()> {
        self.order(&[SIGNAL, signal])
    }

    fn order(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.control {
            Some(control) => control.write_all(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// What each process may use, for where no controller limits the sandbox as a whole.
fn limits(launch: &Launch) -> InitSpec {
    let limits = &launch.plan.limits;
    let group = launch.group.as_ref();
    let lacks = |controller| group.is_none_or(|group| !group.limits(controller));
    InitSpec {
        control: -1,
        status: -1,
        program: -1,
        namespace: launch.bubblewrap.is_some(),
        kill_file: group.and_then(|group| group.kill_file()),
        // Counted by user and user namespace: without a namespace of its own, everything else that
        // the user runs would count. `init` itself is counted too.
        processes: limits
            .processes
            .filter(|_| lacks("pids") && launch.bubblewrap.is_some())
            .map(|count| u64::from(count) + 1),
        memory: limits.memory_bytes.filter(|_| lacks("memory")),
        file: limits.file_bytes,
    }
}

fn readable(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    match poll(&mut fds, Some(&left)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes reads and writes return at once.
pub(super) fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}
