//! One turn of the shim: wait for whatever happens first, then deal with everything that did.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belay_kernel::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::clients::Waiting;
use super::{Hold, Stage};
use crate::error::Refusal;
use crate::os::cgroup::Group;
use crate::os::clock;
use crate::output::{EndReason, Exit, Stream};
use crate::plan::Moment;
use crate::provider::Signal;
use crate::shim::ending::Observer;
use crate::shim::init::Report;
use crate::shim::wire::{Reply, Request};

/// How often the proof of a kill is looked for.
const KILL_TICK: Span = Span::from_millis(1);
/// How often a log that could not be written is tried again.
const RETRY_TICK: Span = Span::from_millis(200);
/// How long the last output is waited for once nobody is left who could write any.
const DRAIN_LIMIT: Span = Span::from_millis(500);
/// How often a freeze is looked for, a millisecond apart.
const FREEZE_TRIES: usize = 500;
/// After how long a stop that cannot be proven is answered so; the kill goes on.
const PROOF_LIMIT: Span = Span::from_secs(5);

/// What `poll` watches, and what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Timer,
    Status,
    Output(Stream),
    Growth,
    Input,
    Listener,
    Client(usize),
}

impl Hold {
    pub(super) fn run(&mut self) {
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        );
        let Ok(timer) = timer else {
            // Without a clock there can be no lease.
            self.begin_kill(EndReason::LeaseOver);
            return;
        };
        loop {
            let ready = self.wait(&timer);
            for source in ready {
                self.handle(source);
            }
            self.reap();
            self.check_lease();
            self.answer_watchers();
            if self.advance() {
                self.clients.answer_all(&Reply::Done, |_| true);
                return;
            }
        }
    }

    /// When something is due even if nothing happens.
    fn due(&self) -> Option<Moment> {
        let now = clock::moment();
        let stage = match self.stage {
            Stage::Prepared | Stage::Running => self.lease.kill_at(),
            Stage::Ending { kill_at, .. } => Some(kill_at),
            Stage::Killing { .. } => Some(now.after(KILL_TICK)),
        };
        let watchers = self.clients.list.iter().filter_map(|client| match client.waiting {
            Waiting::Output { until, .. } => Some(until),
            Waiting::Request | Waiting::Started | Waiting::End => None,
        });
        let retry = self.copy.is_stalled().then(|| now.after(RETRY_TICK));
        let (_, look_at) = self.copy.growth();
        stage.into_iter().chain(watchers).chain(retry).chain(look_at).min()
    }

    fn wait(&self, timer: &OwnedFd) -> Vec<Source> {
        arm(timer, self.due());
        let mut watched: Vec<(Source, BorrowedFd<'_>, PollFlags)> = vec![
            (Source::Timer, timer.as_fd(), PollFlags::IN),
            (Source::Listener, self.clients.listener.as_fd(), PollFlags::IN),
        ];
        if let Some(status) = self.child.status() {
            watched.push((Source::Status, status.as_fd(), PollFlags::IN));
        }
        for (stream, pipe) in self.copy.readable() {
            watched.push((Source::Output(stream), pipe.as_fd(), PollFlags::IN));
        }
        if let (Some(notices), _) = self.copy.growth() {
            watched.push((Source::Growth, notices.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self.copy.writable() {
            watched.push((Source::Input, pipe.as_fd(), PollFlags::OUT));
        }
        for (index, client) in self.clients.list.iter().enumerate() {
            watched.push((Source::Client(index), client.stream().as_fd(), PollFlags::IN));
        }
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = self.child.has_report().then_some(&none);
        if poll(&mut fds, limit).is_err() {
            return Vec::new();
        }
        let happened = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut ready: Vec<Source> = watched
            .iter()
            .zip(happened)
            .filter_map(|((source, _, _), happened)| happened.then_some(*source))
            .collect();
        if self.child.has_report() && !ready.contains(&Source::Status) {
            ready.push(Source::Status);
        }
        // Later connections first, so that removing one does not move those still to be handled.
        ready.sort_by_key(|source| match source {
            Source::Client(index) => usize::MAX - index,
            _ => 0,
        });
        ready
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Timer => {
                self.copy.retry();
                self.copy.follow();
            }
            Source::Growth => self.copy.follow(),
            Source::Status => self.hear_report(),
            Source::Output(stream) => self.copy.read(stream),
            Source::Input => self.copy.write(),
            Source::Listener => self.clients.accept(),
            Source::Client(index) => self.serve(index),
        }
    }

    fn hear_report(&mut self) {
        match self.child.next_report() {
            Ok(Some(Report::Ready)) => {}
            Ok(Some(Report::Started)) => {
                self.exit = Exit::Unknown;
                self.clients.answer_all(&Reply::Done, |waiting| *waiting == Waiting::Started);
            }
            Ok(Some(Report::ExecFailed(number))) => {
                let reply = Reply::Refused(Refusal::of_exec(number, &self.launch.plan.argv));
                self.clients.answer_all(&reply, |waiting| *waiting == Waiting::Started);
                self.begin_kill(EndReason::StartFailed);
            }
            Ok(Some(Report::Exited(code))) => self.agent_ended(Exit::Code(code)),
            Ok(Some(Report::Signalled(signal))) => self.agent_ended(Exit::Signal(signal)),
            Ok(None) | Err(_) => self.inside_lost(),
        }
    }

    /// The agent ended; what it left behind ends with it, after its grace if it was asked to end.
    fn agent_ended(&mut self, exit: Exit) {
        self.exit = exit;
        match self.stage {
            Stage::Prepared | Stage::Running => self.begin_kill(EndReason::Exited),
            Stage::Ending { .. } | Stage::Killing { .. } => {}
        }
    }

    /// `init` ended without a word: it was killed, and with it everything that it held.
    fn inside_lost(&mut self) {
        match self.stage {
            Stage::Prepared | Stage::Running => self.begin_kill(EndReason::Exited),
            Stage::Ending { reason, .. } => self.begin_kill(reason),
            Stage::Killing { .. } => {}
        }
    }

    fn check_lease(&mut self) {
        let running = matches!(self.stage, Stage::Prepared | Stage::Running);
        if running && self.lease.is_over(clock::moment()) {
            self.begin_end(EndReason::LeaseOver, self.lease.margins().grace);
        }
    }

    fn answer_watchers(&mut self) {
        let (now, length) = (clock::moment(), self.copy.length());
        self.clients.answer_all(&Reply::Done, |waiting| match *waiting {
            Waiting::Output { offset, until } => length > offset || now >= until,
            Waiting::Request | Waiting::Started | Waiting::End => false,
        });
    }

    /// Takes the end one step further; true when it is recorded.
    fn advance(&mut self) -> bool {
        let now = clock::moment();
        match self.stage {
            Stage::Prepared | Stage::Running => false,
            Stage::Ending { reason, kill_at } => {
                let over = now >= kill_at || self.agent_is_alone_and_gone();
                if over {
                    self.begin_kill(reason);
                }
                false
            }
            Stage::Killing { reason, since } => {
                let kills = self.reach.group.as_ref().map_or(0, Group::memory_kills);
                self.copy.memory_kills = self.copy.memory_kills.max(kills);
                let Some(proof) = self.reach.gone(Observer::Shim) else {
                    // Where the kernel keeps them together one kill is enough; elsewhere some may
                    // have come since.
                    if now >= self.kill_again_at || !self.reach.is_contained() {
                        self.begin_kill(reason);
                    }
                    if now.since(since) > PROOF_LIMIT {
                        let count = self.reach.members(Observer::Shim).len();
                        let reply = Reply::StillAlive { count };
                        self.clients.answer_all(&reply, |waiting| *waiting == Waiting::End);
                    }
                    return false;
                };
                self.drain();
                // A pipe may be held open by somebody outside; a file ends where it ends.
                let late = now.since(since) > DRAIN_LIMIT && !self.copy.is_following();
                (late || self.copy.is_drained()) && self.finish(reason, proof)
            }
        }
    }

    /// Reads what is left in the pipes and in the file; their writers are gone.
    fn drain(&mut self) {
        self.copy.follow_to_the_end();
        for _ in 0..64 {
            let open: Vec<Stream> = self.copy.readable().map(|(stream, _)| stream).collect();
            if open.is_empty() {
                return;
            }
            for stream in open {
                self.copy.read(stream);
            }
        }
    }

    /// During the grace: whether the agent has ended and left nobody behind.
    fn agent_is_alone_and_gone(&self) -> bool {
        matches!(self.exit, Exit::Code(_) | Exit::Signal(_))
            && self
                .reach
                .members(Observer::Shim)
                .iter()
                .all(|member| self.reach.is_ours(member.pid))
    }

    fn serve(&mut self, index: usize) {
        let Some(client) = self.clients.list.get_mut(index) else { return };
        let (request, body) = match client.receive() {
            Ok(Some(request)) if client.waiting == Waiting::Request => request,
            Ok(_) => return,
            Err(_) => {
                self.clients.list.swap_remove(index);
                return;
            }
        };
        let answer = self.obey(&request, &body);
        let Some(client) = self.clients.list.get_mut(index) else { return };
        match answer {
            Answer::Now(reply) => {
                client.answer(&reply);
                self.clients.list.swap_remove(index);
            }
            Answer::When(waiting) => client.waiting = waiting,
        }
    }

    fn obey(&mut self, request: &Request, body: &[u8]) -> Answer {
        match self.try_obey(request, body) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Now(Reply::Refused(refusal)),
        }
    }

    fn try_obey(&mut self, request: &Request, body: &[u8]) -> Result<Answer, Refusal> {
        self.check_epoch(request)?;
        let now = clock::moment();
        match *request {
            Request::Status => {
                let started = self.exit != Exit::NotStarted;
                Ok(Answer::Now(Reply::Status { started, paused: self.paused }))
            }
            Request::Watch { offset, wait } => {
                Ok(Answer::When(Waiting::Output { offset, until: now.after(wait) }))
            }
            Request::Stop { grace, .. } => {
                self.begin_end(EndReason::Stopped, grace);
                Ok(Answer::When(Waiting::End))
            }
            Request::Start { until, .. } => self.start(until, now),
            Request::Renew { until, .. } => {
                self.refuse_ending()?;
                self.lease.renew(until, now)?;
                Ok(Answer::Now(Reply::Done))
            }
            Request::Write { offset, more, .. } => {
                self.refuse_ending()?;
                let next = self.copy.take_input(offset, body, more)?;
                Ok(Answer::Now(Reply::Written { next }))
            }
            Request::Signal { signal, .. } => self.send(signal),
            Request::Pause { .. } => self.pause(),
            Request::Resume { until, .. } => self.resume(until, now),
        }
    }

    fn check_epoch(&mut self, request: &Request) -> Result<(), Refusal> {
        let asked = match *request {
            Request::Status | Request::Watch { .. } => return Ok(()),
            Request::Start { epoch, .. }
            | Request::Renew { epoch, .. }
            | Request::Write { epoch, .. }
            | Request::Signal { epoch, .. }
            | Request::Pause { epoch }
            | Request::Resume { epoch, .. }
            | Request::Stop { epoch, .. } => epoch,
        };
        if asked < self.epoch {
            return Err(Refusal::Fenced { asked, seen: self.epoch });
        }
        self.epoch = asked;
        Ok(())
    }

    const fn refuse_ending(&self) -> Result<(), Refusal> {
        match self.stage {
            Stage::Prepared | Stage::Running => Ok(()),
            Stage::Ending { .. } | Stage::Killing { .. } => {
                Err(Refusal::Ended { sandbox: self.launch.sandbox })
            }
        }
    }

    /// Lets the agent be executed, once.
    fn start(&mut self, until: Moment, now: Moment) -> Result<Answer, Refusal> {
        self.refuse_ending()?;
        self.lease.renew(until, now)?;
        if self.stage == Stage::Prepared {
            if self.child.go().is_err() {
                self.inside_lost();
                return Err(Refusal::Ended { sandbox: self.launch.sandbox });
            }
            self.stage = Stage::Running;
        }
        match self.exit {
            Exit::NotStarted => Ok(Answer::When(Waiting::Started)),
            _ => Ok(Answer::Now(Reply::Done)),
        }
    }

    /// Freezes everything, and only then stops the lease: what is frozen cannot act.
    fn pause(&mut self) -> Result<Answer, Refusal> {
        self.refuse_ending()?;
        if self.paused {
            return Ok(Answer::Now(Reply::Done));
        }
        let unsupported =
            |why: &str| Refusal::Unsupported { operation: "pause".into(), why: why.into() };
        let group = self.launch.group.as_ref().filter(|group| group.can_kill());
        let group = group.ok_or_else(|| unsupported("there is no writable cgroup v2"))?;
        for _ in 0..FREEZE_TRIES {
            if group.freeze(true).unwrap_or(false) {
                self.lease.park();
                self.paused = true;
                return Ok(Answer::Now(Reply::Done));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = group.freeze(false);
        Err(unsupported("a process could not be frozen within 500 ms"))
    }

    /// Brings the new lease into force, and only then lets everything go on.
    fn resume(&mut self, until: Moment, now: Moment) -> Result<Answer, Refusal> {
        self.refuse_ending()?;
        if !self.paused {
            self.lease.renew(until, now)?;
            return Ok(Answer::Now(Reply::Done));
        }
        self.lease.unpark(until, now)?;
        self.paused = false;
        match self.launch.group.as_ref().map(|group| group.freeze(false)) {
            Some(Err(error)) => Ok(Answer::Now(Reply::Failed { message: error.to_string() })),
            Some(Ok(_)) | None => Ok(Answer::Now(Reply::Done)),
        }
    }

    fn send(&mut self, signal: Signal) -> Result<Answer, Refusal> {
        self.refuse_ending()?;
        if self.exit == Exit::NotStarted {
            return Err(Refusal::NotStarted { sandbox: self.launch.sandbox });
        }
        match self.child.signal(signal.number()) {
            Ok(()) => Ok(Answer::Now(Reply::Done)),
            Err(_) => Err(Refusal::Ended { sandbox: self.launch.sandbox }),
        }
    }
}

/// A reply, or what must happen before there is one.
enum Answer {
    Now(Reply),
    When(Waiting),
}

/// Sets the timer to a moment, or off.
fn arm(timer: &OwnedFd, due: Option<Moment>) {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A moment of zero would switch the timer off instead of letting it fire at once.
    let value = due.map_or(zero, |due| Timespec {
        tv_sec: i64::try_from(due.as_millis() / 1_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(due.as_millis() % 1_000).unwrap_or(0) * 1_000_000 + 1,
    });
    let setting = Itimerspec { it_interval: zero, it_value: value };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting);
}
