//! The shim as PID 1 of a container: holds the lease, runs the agent, and writes its output to the
//! engine's log in a form that survives it.
//!
//! Its orders come through a directory that is mounted read-only, so that the agent, which may run
//! as the same user, cannot give any: `orders.json` (lease, signals, the end) and `stdin`. Both are
//! looked at every few hundredths of a second; there is no socket that somebody inside could reach.
//!
//! Engines keep logs as lines of text, split long ones and replace what is not UTF-8. So each piece
//! of output is one line of its own, with its offset and time: a JSON array of kind, offset, time
//! and text, or hexadecimal digits where it is not text. Whoever reads the log again knows by the
//! offset what it has already. The process cannot be traced or looked into by the agent: it is not
//! dumpable.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use belay_kernel::{Epoch, Span};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open,
    pidfd_send_signal, set_dumpable_behavior, wait,
};
use serde::{Deserialize, Serialize};

use super::growing::Growing;
use super::init::kill_below;
use super::lease::Lease;
use super::wire::STDOUT;
use crate::files;
use crate::os::{cgroup, clock, pid::ProcessRef, procfs};
use crate::output::{EndReason, Exit, Stream};
use crate::plan::{Margins, Moment, Stdout};

/// The orders' file, and that of standard input.
pub(crate) const ORDERS: &str = "orders.json";
pub(crate) const STDIN: &str = "stdin";

const TICK: Duration = Duration::from_millis(25);
/// Where a regular file as the agent's standard output is made.
pub(crate) const OUT: &str = "/.belay/out";

/// As much as fits into a line that no engine splits, even as hexadecimal digits.
const PIECE: usize = 4 << 10;

/// What the container is told, in a file that it cannot change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) epoch: Epoch,
    pub(crate) until: Moment,
    pub(crate) margins: Margins,
    /// Whether the agent may be executed.
    pub(crate) go: bool,
    /// End it, with this grace.
    pub(crate) end: Option<Span>,
    /// The last signals, numbered.
    pub(crate) signals: Vec<(u64, u8)>,
    /// Where standard input ends.
    pub(crate) stdin_end: Option<u64>,
    /// What the agent's standard output is.
    #[serde(default)]
    pub(crate) stdout: Stdout,
}

impl Orders {
    pub(crate) const fn lease(&self) -> Lease {
        Lease::new(self.until, self.margins)
    }
}

/// One line in the engine's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Output: stream, offset, time, text.
    #[serde(rename = "t")]
    Text(Stream, u64, i64, String),
    /// Output that is not text: stream, offset, time, hexadecimal digits.
    #[serde(rename = "b")]
    Bytes(Stream, u64, i64, String),
    /// The agent was executed.
    #[serde(rename = "started")]
    Started,
    /// The agent could not be executed, for this error number.
    #[serde(rename = "failed")]
    ExecFailed(i32),
    /// The kernel killed something for want of memory, so often. Not every engine says so.
    #[serde(rename = "memory")]
    MemoryKills(u64),
    /// The end: how, why, and after how many bytes.
    #[serde(rename = "end")]
    End(Exit, EndReason, u64),
}

impl Record {
    /// The bytes of a piece of output.
    pub(crate) fn bytes(self) -> Option<(Stream, u64, i64, Vec<u8>)> {
        match self {
            Self::Text(stream, offset, at, text) => Some((stream, offset, at, text.into_bytes())),
            Self::Bytes(stream, offset, at, digits) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let pairs = digits.as_bytes().chunks_exact(2);
                let bytes = pairs.map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8));
                Some((stream, offset, at, bytes.collect::<Option<Vec<u8>>>()?))
            }
            Self::Started | Self::ExecFailed(_) | Self::MemoryKills(_) | Self::End(..) => None,
        }
    }
}

/// Writes records, and counts what was printed.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<u64>>);

impl Log {
    fn output(&self, stream: Stream, bytes: &[u8]) {
        let mut offset = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = clock::now().as_millis();
        let record = match std::str::from_utf8(bytes) {
            Ok(text) if escaped(text) <= 2 * PIECE => {
                Record::Text(stream, *offset, at, text.to_owned())
            }
            _ => Record::Bytes(stream, *offset, at, hexadecimal(bytes)),
        };
        put(&record);
        *offset += bytes.len() as u64;
    }

    fn length(&self) -> u64 {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = |byte: &u8| {
        [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
    };
    bytes.iter().flat_map(digits).collect()
}

/// How long a text is as JSON, at most.
fn escaped(text: &str) -> usize {
    text.bytes()
        .map(|byte| {
            if byte < 0x20 {
                6
            } else if byte == b'"' {
                2
            } else {
                1
            }
        })
        .sum()
}

fn put(record: &Record) {
    if let Ok(mut line) = serde_json::to_vec(record) {
        line.push(b'\n');
        let _ = io::stdout().lock().write_all(&line).and_then(|()| io::stdout().flush());
    }
}

pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(mailbox) = args.next().map(PathBuf::from) else { return ExitCode::from(64) };
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let orders: Option<Orders> = files::get(&mailbox.join(ORDERS)).ok().flatten();
    let allowed = orders.as_ref().is_some_and(|orders| {
        orders.go && orders.end.is_none() && !orders.lease().is_over(clock::moment())
    });
    if !allowed {
        put(&Record::End(Exit::NotStarted, EndReason::LeaseOver, 0));
        return ExitCode::from(75);
    }
    let argv: Vec<OsString> = args.collect();
    let mut command = Command::new(argv.first().cloned().unwrap_or_default());
    command.args(argv.iter().skip(1)).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let stdout = orders.map(|orders| orders.stdout).unwrap_or_default();
    match stdout_file(stdout) {
        Ok(None) => run(mailbox, command, None),
        Ok(Some((growing, file))) => {
            command.stdout(file);
            run(mailbox, command, Some(growing))
        }
        // Nothing was executed and the fault is ours, so there is no record that fits.
        Err(_) => ExitCode::from(74),
    }
}

/// The file that is to be the agent's standard output. It has no name by which somebody inside
/// could find it.
fn stdout_file(stdout: Stdout) -> io::Result<Option<(Growing, File)>> {
    match stdout {
        Stdout::Pipe => Ok(None),
        Stdout::File => {
            let path = Path::new(OUT).join(STDOUT);
            let made = Growing::create(&path)?;
            fs::remove_file(&path)?;
            Ok(Some(made))
        }
    }
}

/// The threads come first, and wait for what they are to work on: an agent that forks to its limit
/// would leave no room for them.
fn run(mailbox: PathBuf, mut command: Command, file: Option<Growing>) -> ExitCode {
    let log = Log::default();
    let reason = Arc::new(Mutex::new(EndReason::Exited));
    let stdin_end = Arc::new(AtomicU64::new(u64::MAX));
    let (stdout, first) = spawn_reader(log.clone(), Stream::Stdout);
    let (stderr, second) = spawn_reader(log.clone(), Stream::Stderr);
    let follower = file.map(|growing| Follower::spawn(log.clone(), growing));
    let (stdin, input) = mpsc::channel::<ChildStdin>();
    let (path, end) = (mailbox.join(STDIN), Arc::clone(&stdin_end));
    std::thread::spawn(move || input.recv().map(|pipe| feed(&path, pipe, &end)));
    let (pidfd, agent_fd) = mpsc::channel::<Option<OwnedFd>>();
    let why = Arc::clone(&reason);
    std::thread::spawn(move || {
        agent_fd.recv().map(|agent| obey(&mailbox, agent.as_ref(), &why, &stdin_end))
    });
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            put(&Record::ExecFailed(error.raw_os_error().unwrap_or(0)));
            return ExitCode::from(127);
        }
    };
    put(&Record::Started);
    let agent = child.id();
    let number = i32::try_from(agent).ok().and_then(Pid::from_raw);
    let _ = pidfd.send(number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()));
    let _ = child.stdin.take().map(|pipe| stdin.send(pipe));
    let _ = child.stdout.take().map(|pipe| stdout.send(pipe.into()));
    let _ = child.stderr.take().map(|pipe| stderr.send(pipe.into()));
    // A reader that has got no pipe by now will get none.
    drop((stdout, stderr));
    let status = reap_until(agent);
    // What it left behind is ended; then its output is complete.
    kill_below(std::process::id(), Duration::from_secs(5));
    for reader in [first, second] {
        let _ = reader.join();
    }
    if let Some(follower) = follower {
        follower.finish();
    }
    let exit = match status {
        Some(status) => match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Exit::Signal(signal),
            (None, Some(code)) => Exit::Code(code),
            (None, None) => Exit::Unknown,
        },
        None => Exit::Unknown,
    };
    let reason = *reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let memory_kills = cgroup::own_memory_kills();
    if memory_kills > 0 {
        put(&Record::MemoryKills(memory_kills));
    }
    put(&Record::End(exit, reason, log.length()));
    match exit {
        Exit::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(255)),
        Exit::Signal(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(255)),
        Exit::NotStarted | Exit::Unknown => ExitCode::from(255),
    }
}

/// Reaps everything that is left to PID 1, until the agent itself ends.
fn reap_until(agent: u32) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == agent => {
                return Some(status);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn spawn_reader(log: Log, stream: Stream) -> (mpsc::Sender<OwnedFd>, std::thread::JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel::<OwnedFd>();
    let reader = std::thread::spawn(move || {
        let Ok(mut pipe) = receiver.recv().map(File::from) else { return };
        let mut buffer = [0; PIECE];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => log.output(stream, &buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    (sender, reader)
}

/// The thread that copies a file while it grows.
struct Follower {
    complete: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Follower {
    fn spawn(log: Log, mut growing: Growing) -> Self {
        let complete = Arc::new(AtomicBool::new(false));
        let nobody_writes = Arc::clone(&complete);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; PIECE];
            loop {
                // Asked before the read: then what the read does not find does not come.
                let last = nobody_writes.load(Ordering::Acquire);
                match growing.read(&mut buffer) {
                    Ok(0) if last => return,
                    Ok(0) => std::thread::park_timeout(TICK),
                    Ok(count) => log.output(Stream::Stdout, &buffer[..count]),
                    Err(_) => return,
                }
            }
        });
        Self { complete, thread }
    }

    /// Copies the rest, now that nobody is left who could write more.
    fn finish(self) {
        self.complete.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

/// Gives the agent what is appended to a file, up to where it is said to end.
fn feed(path: &Path, mut pipe: ChildStdin, end: &AtomicU64) {
    let mut buffer = [0; PIECE];
    let mut offset = 0;
    loop {
        let read = File::open(path).and_then(|file| file.read_at(&mut buffer, offset));
        match read {
            Ok(count) if count > 0 => {
                if pipe.write_all(&buffer[..count]).is_err() {
                    return;
                }
                offset += count as u64;
            }
            _ if offset >= end.load(Ordering::Acquire) => return,
            _ => std::thread::sleep(TICK),
        }
    }
}

/// Follows orders until the end: signals, and the end itself, ordered or because the lease is over.
fn obey(mailbox: &Path, agent: Option<&OwnedFd>, reason: &Mutex<EndReason>, stdin_end: &AtomicU64) {
    let mut signalled = 0;
    let mut known: Option<Orders> = None;
    loop {
        if let Ok(Some(orders)) = files::get::<Orders>(&mailbox.join(ORDERS)) {
            known = Some(orders);
        }
        if let Some(orders) = &known {
            for &(number, signal) in &orders.signals {
                if number > signalled
                    && let (Some(fd), Some(signal)) =
                        (agent, Signal::from_named_raw(i32::from(signal)))
                {
                    signalled = number;
                    let _ = pidfd_send_signal(fd, signal);
                }
            }
            stdin_end.store(orders.stdin_end.unwrap_or(u64::MAX), Ordering::Release);
            let over = orders.lease().is_over(clock::moment());
            let ordered = orders.end.map(|grace| (EndReason::Stopped, grace));
            let lost = over.then_some((EndReason::LeaseOver, orders.margins.grace));
            if let Some((why, grace)) = ordered.or(lost) {
                *reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = why;
                return end(grace);
            }
        }
        std::thread::sleep(TICK);
    }
}

/// Asks everything below to end, and kills it after the grace. The main thread sees the agent's
/// end.
fn end(grace: Span) {
    for signal in [Signal::TERM, Signal::CONT] {
        for stat in procfs::below(std::process::id()) {
            if let Some(process) = ProcessRef::of(stat.pid) {
                process.signal(signal);
            }
        }
    }
    let kill_at = clock::moment().after(grace);
    while clock::moment() < kill_at {
        std::thread::sleep(TICK.min(Duration::from_millis(grace.as_millis())));
    }
    kill_below(std::process::id(), Duration::from_secs(3_600));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_every_byte() {
        for bytes in [&b"plain\n"[..], &[0, 255, 1], "é".as_bytes(), &[0xc3]] {
            let record = match std::str::from_utf8(bytes) {
                Ok(text) => Record::Text(Stream::Stdout, 3, 4, text.into()),
                Err(_) => Record::Bytes(Stream::Stdout, 3, 4, hexadecimal(bytes)),
            };
            let line = serde_json::to_string(&record).unwrap();
            let back: Record = serde_json::from_str(&line).unwrap();
            assert_eq!(back.bytes(), Some((Stream::Stdout, 3, 4, bytes.to_vec())));
        }
    }
}
