//! The process beside a process sandbox: makes it, copies its output, holds its lease, ends it.
//!
//! One thread, one `poll`, no timers but one on the clock that counts suspend. Prepared → Running →
//! Ending (asked politely) → Killing → ended; there is no way back. It exits when the end is
//! recorded.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use belay_kernel::{Epoch, Span, Timestamp};
use rustix::process::{Pid, Signal, WaitOptions, set_child_subreaper, setsid, wait};

use super::ending::{Observer, Reach};
use super::lease::Lease;
use super::wire::{END, HELD, Held, IDENTITY, LAUNCH, Launch, Ready};
use crate::files::{self, Durability};
use crate::log::LogWriter;
use crate::os::{clock, pid::ProcessRef, procfs};
use crate::output::{End, EndReason, Exit};
use crate::plan::Moment;
use crate::receipt::{Proof, Receipt};

mod child;
mod clients;
mod copy;
mod follow;
mod turn;

use child::Child;
use clients::Clients;
use copy::Copy;

/// Where the sandbox stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Everything is there but the agent.
    Prepared,
    /// The agent was let go.
    Running,
    /// It was asked to end, and is killed at this moment.
    Ending { reason: EndReason, kill_at: Moment },
    /// It is being killed.
    Killing { reason: EndReason, since: Moment },
}

/// The state of the shim.
struct Hold {
    launch: Launch,
    child: Child,
    reach: Reach,
    lease: Lease,
    epoch: Epoch,
    stage: Stage,
    exit: Exit,
    paused: bool,
    copy: Copy,
    clients: Clients,
    receipt: Receipt,
    kill_again_at: Moment,
}

/// How often a kill whose proof is not there yet is repeated.
const KILL_AGAIN: Span = Span::from_millis(25);

pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(directory) = args.next().map(PathBuf::from) else { return ExitCode::from(64) };
    let _ = setsid();
    let prepared = std::env::set_current_dir(&directory).and_then(|()| Hold::prepare());
    match prepared {
        Ok(mut hold) => {
            announce(&Ready::Ready);
            hold.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            announce(&Ready::Failed { message: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Says on standard output whether the sandbox could be made, then lets go of it.
fn announce(ready: &Ready) {
    use std::io::Write;
    let mut line = serde_json::to_vec(ready).unwrap_or_default();
    line.push(b'\n');
    let _ = io::stdout().write_all(&line);
    let _ = io::stdout().flush();
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

impl Hold {
    /// Makes the sandbox in the current directory. What fails here leaves nothing behind.
    fn prepare() -> io::Result<Self> {
        let launch: Launch = files::get(LAUNCH.as_ref())
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("there is no launch.json"))?;
        set_child_subreaper(Pid::from_raw(1))?;
        let shim = ProcessRef::of(std::process::id())
            .ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        let held = Held { shim, wrapper: None, init: None, namespace: None };
        // The socket first: whoever finds the record may rely on it.
        let clients = Clients::listen()?;
        put_held(&held)?;
        let mut child = Child::spawn(&launch)?;
        let reach =
            Reach { sandbox: launch.sandbox, group: launch.group.clone(), held: Some(held) };
        let now = clock::now();
        let mut hold = Self {
            lease: Lease::new(launch.until, launch.plan.margins),
            epoch: launch.epoch,
            stage: Stage::Prepared,
            exit: Exit::NotStarted,
            paused: false,
            copy: Copy::new(LogWriter::create(".".as_ref())?, child.take_pipes()),
            clients,
            receipt: Receipt::empty(launch.sandbox, now, Proof::NoneFound),
            kill_again_at: clock::moment(),
            launch,
            child,
            reach,
        };
        match hold.place() {
            Ok(()) => Ok(hold),
            Err(error) => {
                hold.child.abandon();
                hold.reach.kill(Observer::Shim);
                let said = hold.copy.last_words();
                Err(io::Error::other(format!("{error}: {}", said.trim())))
            }
        }
    }

    /// Waits for the first process inside, and puts it into its cgroup before it may do anything.
    /// The first move into a cgroup takes the kernel some milliseconds, in which bubblewrap goes
    /// on.
    fn place(&mut self) -> io::Result<()> {
        if let Some(group) = &self.launch.group {
            group.enter(self.child.id())?;
        }
        self.child.await_ready()?;
        let (wrapper, init) = (self.child.wrapper(), self.child.init());
        if let Some(group) = &self.launch.group
            && let Some(init) = init
        {
            group.enter(init.pid)?;
        }
        if let Some(held) = &mut self.reach.held {
            held.wrapper = wrapper;
            held.init = init;
            held.namespace = self
                .launch
                .bubblewrap
                .is_some()
                .then(|| init.and_then(|init| procfs::pid_namespace(init.pid)))
                .flatten();
            put_held(held)?;
        }
        Ok(())
    }

    /// Begins the end, once: the first reason stays.
    fn begin_end(&mut self, reason: EndReason, grace: Span) {
        let now = clock::moment();
        match self.stage {
            Stage::Prepared | Stage::Running => self.receipt.began = clock::now(),
            // A second stop may shorten the grace, never lengthen it.
            Stage::Ending { reason, kill_at } => {
                self.stage = Stage::Ending { reason, kill_at: kill_at.min(now.after(grace)) };
                return;
            }
            Stage::Killing { .. } => return,
        }
        if self.stage == Stage::Prepared || self.paused || grace.is_zero() {
            self.begin_kill(reason);
        } else {
            self.note_members();
            self.reach.terminate(Observer::Shim);
            self.stage = Stage::Ending { reason, kill_at: now.after(grace) };
        }
    }

    /// Notes who is there, and kills.
    fn begin_kill(&mut self, reason: EndReason) {
        if !matches!(self.stage, Stage::Killing { .. }) {
            if !matches!(self.stage, Stage::Ending { .. }) {
                self.receipt.began = clock::now();
            }
            self.stage = Stage::Killing { reason, since: clock::moment() };
        }
        self.kill_again_at = clock::moment().after(KILL_AGAIN);
        self.note_members();
        self.reach.kill(Observer::Shim);
    }

    /// Puts who is there into the receipt.
    fn note_members(&mut self) {
        let members = self.reach.members(Observer::Shim);
        let seen = members.iter().filter(|stat| !self.reach.is_ours(stat.pid));
        self.receipt.add(seen.map(procfs::Stat::seen));
    }

    /// Reaps whatever was left to us, ours and the agent's.
    fn reap(&self) {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }

    /// Records the end. What could not be written is tried again, because nobody else may say that
    /// this sandbox is over before it is recorded.
    fn finish(&mut self, reason: EndReason, proof: Proof) -> bool {
        let at: Timestamp = clock::now();
        self.receipt.proven = at;
        self.receipt.proof = proof;
        // `init` fell to the same kill as the agent and could not report; but the kill is known.
        let ours = matches!(reason, EndReason::Stopped | EndReason::LeaseOver);
        if ours && self.exit == Exit::Unknown {
            self.exit = Exit::Signal(Signal::KILL.as_raw());
        }
        let end = End {
            sandbox: self.launch.sandbox,
            exit: self.exit,
            reason,
            out_of_memory: self.copy.memory_kills > 0,
            at,
            output_bytes: self.copy.length(),
            receipt: self.receipt.clone(),
        };
        // Without its directory there is nobody left to tell.
        files::put_once(END.as_ref(), &end).is_ok() || !Path::new(IDENTITY).exists()
    }
}

fn put_held(held: &Held) -> io::Result<()> {
    files::put(HELD.as_ref(), held, Durability::Crash).map_err(io::Error::other)
}
