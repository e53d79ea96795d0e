//! A machine: sandboxes with their processes, output and leases. It outlives every runner.
//!
//! A shim is a task that holds the sandbox's lease on the machine's clock. Processes are entries in
//! a list; an agent is a task that acts while its process is there. A machine that is switched off
//! and on again has its disk, and no process. One that is lost has nothing, for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_api::port::Who;
use belay_kernel::{AttemptNumber, Epoch, SandboxId, SessionId, TaskId, Timestamp};
use belay_sandbox::{
    Chunk, End, EndReason, Exit, Moment, Phase, Plan, Proof, Receipt, Refusal, Seen, Stream,
};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::Planted;
use crate::agent::{self, Script, Setting};
use crate::net::Net;
use crate::oracle::Oracle;
use crate::remote::Remote;
use crate::sim::Sim;

/// What a process is to its sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kin {
    /// The agent itself.
    Agent,
    /// Of the agent's group.
    Child,
    /// Left the group: only a kill of the whole sandbox reaches it.
    Escapee,
}

/// One process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pid: u32,
    kin: Kin,
    heeds_term: bool,
}

/// One sandbox.
pub(crate) struct Sandbox {
    pub(crate) session: SessionId,
    pub(crate) task: TaskId,
    pub(crate) attempt: AttemptNumber,
    pub(crate) plan: Plan,
    pub(crate) phase: Phase,
    /// The end of its lease, by the machine's clock.
    pub(crate) until: u64,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) printed: u64,
    /// When something was last printed, by the world's clock.
    pub(crate) printed_ms: u64,
    pub(crate) stdin: Vec<u8>,
    pub(crate) stdin_closed: bool,
    pub(crate) end: Option<End>,
    /// Whether nothing in it goes on: then its lease does not run either.
    pub(crate) frozen: bool,
    processes: Vec<Process>,
    /// What is killed, as the receipt will list it.
    killed: Vec<Seen>,
    agent: Option<AbortHandle>,
    /// Moves whenever anything does.
    pub(crate) changed: watch::Sender<u64>,
}

impl Sandbox {
    pub(crate) fn new(session: SessionId, plan: &Plan, until: Moment) -> Self {
        Self {
            session,
            task: plan.task,
            attempt: plan.attempt,
            plan: plan.clone(),
            phase: Phase::Prepared,
            until: until.as_millis(),
            chunks: Vec::new(),
            printed: 0,
            printed_ms: 0,
            stdin: Vec::new(),
            stdin_closed: false,
            end: None,
            frozen: false,
            processes: Vec::new(),
            killed: Vec::new(),
            agent: None,
            changed: watch::Sender::new(0),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.processes.is_empty()
    }

    pub(crate) fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) boxes: BTreeMap<SandboxId, Sandbox>,
    pub(crate) epochs: BTreeMap<SessionId, Epoch>,
    pub(crate) tombs: BTreeSet<SandboxId>,
    /// Everything that was ever printed, by attempt: what the transcripts must be.
    pub(crate) printed: BTreeMap<(TaskId, AttemptNumber), Vec<u8>>,
    /// Attempts whose sandbox vanished, and with it what nobody had read.
    pub(crate) vanished: BTreeSet<(TaskId, AttemptNumber)>,
    /// Processes that nobody ended, of sandboxes that are said to be over.
    strays: Vec<(SessionId, TaskId, AttemptNumber)>,
    /// How often each attempt's agent was executed.
    pub(crate) executed: BTreeMap<(TaskId, AttemptNumber), u32>,
    next_pid: u32,
}

/// What lives where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Alive {
    pub(crate) session: SessionId,
    pub(crate) task: TaskId,
    pub(crate) attempt: AttemptNumber,
    /// Whether it is frozen: it cannot act, and has no lease that could end.
    pub(crate) frozen: bool,
    /// Until when it lives at most if its lease is not renewed, by the world's clock.
    pub(crate) lives_until_ms: u64,
}

/// What an agent knows of where it is.
type Surroundings = (SessionId, Who, BTreeMap<String, String>, watch::Receiver<u64>);

/// A machine.
pub(crate) struct Machine {
    pub(crate) sim: Arc<Sim>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) net: Arc<Net>,
    /// Its number, from 0.
    pub(crate) number: usize,
    /// When it was switched on, by the world's clock.
    booted_ms: AtomicU64,
    /// By how much its clock is too slow, in millionths.
    slow_ppm: u64,
    /// By how much its wall clock is set ahead.
    ahead_ms: AtomicI64,
    is_lost: AtomicBool,
    inside: Mutex<Inside>,
}

impl Machine {
    pub(crate) fn new(sim: &Arc<Sim>, remote: &Arc<Remote>, net: &Arc<Net>, number: usize) -> Self {
        let slow_ppm = sim.rng().below(sim.knobs.drift_ppm + 1);
        Self {
            sim: Arc::clone(sim),
            remote: Arc::clone(remote),
            net: Arc::clone(net),
            number,
            booted_ms: AtomicU64::new(0),
            slow_ppm,
            ahead_ms: AtomicI64::new(0),
            is_lost: AtomicBool::new(false),
            inside: Mutex::default(),
        }
    }

    /// Milliseconds since its boot, by its own clock, which is a little slow.
    pub(crate) fn uptime_ms(&self) -> u64 {
        let booted = self.booted_ms.load(Ordering::SeqCst);
        let ms = self.sim.ms().saturating_sub(booted) + 5_000;
        ms - ms * self.slow_ppm / 1_000_000
    }

    /// How long until its clock shows `at`.
    fn until(&self, at: u64) -> Duration {
        let left = at.saturating_sub(self.uptime_ms());
        let slack = left * self.slow_ppm / 990_000;
        Duration::from_millis(left + slack + u64::from(left > 0))
    }

    /// When it was switched on: what was begun before is not gone on with.
    pub(crate) fn boot(&self) -> u64 {
        self.booted_ms.load(Ordering::SeqCst)
    }

    /// Its wall clock, which nobody should believe.
    pub(crate) fn wall(&self) -> Timestamp {
        let ahead = self.ahead_ms.load(Ordering::SeqCst);
        Timestamp::from_millis(self.sim.wall().as_millis() + ahead)
    }

    /// Its wall clock is set.
    pub(crate) fn set_wall(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::SeqCst);
    }

    /// It is switched off and on again: its disk is as it was, and no process is left.
    pub(crate) fn reboot(&self) {
        let living: Vec<_> = {
            let inside = self.inside();
            let living = inside.boxes.iter().filter(|(_, sandbox)| sandbox.end.is_none());
            living.map(|(id, _)| *id).collect()
        };
        self.booted_ms.store(self.sim.ms(), Ordering::SeqCst);
        for id in living {
            self.finish(id, EndReason::ShimLost, Exit::Unknown);
        }
    }

    /// It is gone for good, with everything on it.
    pub(crate) fn lose(&self) {
        self.reboot();
        self.is_lost.store(true, Ordering::SeqCst);
        self.inside().boxes.clear();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// One of its sandboxes is not there any more, with all that was in it.
    pub(crate) fn vanish(&self, draw: u64) {
        let mut inside = self.inside();
        let living = inside.boxes.iter().filter(|(_, sandbox)| sandbox.end.is_none());
        let living: Vec<_> = living.map(|(id, _)| *id).collect();
        let Some(id) = living.get(usize::try_from(draw).unwrap_or(0) % living.len().max(1)) else {
            return;
        };
        let Some(sandbox) = inside.boxes.remove(id) else { return };
        if let Some(agent) = &sandbox.agent {
            agent.abort();
        }
        sandbox.touch();
        let (task, attempt) = (sandbox.task, sandbox.attempt);
        self.sim.note(format_args!("sandbox {task} #{attempt} vanishes"));
        inside.vanished.insert((task, attempt));
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every sandbox that is not proven over, whose shim at least lives, and every stray.
    pub(crate) fn alive(&self) -> Vec<Alive> {
        let inside = self.inside();
        let boxes =
            inside.boxes.values().filter(|sandbox| sandbox.end.is_none()).map(|sandbox| Alive {
                session: sandbox.session,
                task: sandbox.task,
                attempt: sandbox.attempt,
                frozen: sandbox.frozen,
                lives_until_ms: self.lives_until_ms(sandbox),
            });
        let strays = inside.strays.iter().map(|&(session, task, attempt)| {
            let lives_until_ms = u64::MAX; // nobody will ever end it
            Alive { session, task, attempt, frozen: false, lives_until_ms }
        });
        boxes.chain(strays).collect()
    }

    /// When the shim would have ended a sandbox whose lease is not renewed any more.
    fn lives_until_ms(&self, sandbox: &Sandbox) -> u64 {
        let margins = sandbox.plan.margins;
        let end_at = sandbox.until.saturating_sub(margins.total().as_millis());
        let left = u64::try_from(self.until(end_at).as_millis()).unwrap_or(u64::MAX);
        // Of the time to end politely, some may be over.
        let over = self.uptime_ms().saturating_sub(end_at);
        self.sim.ms() + left + margins.grace.as_millis().saturating_sub(over)
    }

    /// Where an agent finds itself: its session, who it is, its environment, and what moves there.
    pub(crate) fn lives_in(&self, id: SandboxId) -> Option<Surroundings> {
        let inside = self.inside();
        let sandbox = inside.boxes.get(&id)?;
        let epoch = inside.epochs.get(&sandbox.session).copied().unwrap_or_default();
        let who = Who { task: sandbox.task, attempt: sandbox.attempt, epoch };
        Some((sandbox.session, who, sandbox.plan.env.clone(), sandbox.changed.subscribe()))
    }

    /// Executes the agent.
    pub(crate) fn execute(self: &Arc<Self>, id: SandboxId) -> Result<(), Refusal> {
        let mut inside = self.inside();
        let (pid, sandbox) = (inside.next_pid + 1, inside.boxes.get_mut(&id));
        let Some(sandbox) = sandbox else { return Err(Refusal::NotFound { sandbox: id }) };
        let mut rng = self.sim.rng().fork();
        let script = agent::compose(&mut rng, &self.setting(sandbox, 0));
        let heeds_term = !script.ignores_term;
        sandbox.processes.push(Process { pid, kin: Kin::Agent, heeds_term });
        sandbox.phase = Phase::Running;
        sandbox.printed_ms = self.sim.ms();
        sandbox.touch();
        let key = (sandbox.task, sandbox.attempt);
        self.sim.note(format_args!("agent   {} #{} executed: {}", key.0, key.1, script.name));
        let agent = tokio::spawn(agent::live(Arc::clone(self), id, script));
        sandbox.agent = Some(agent.abort_handle());
        inside.next_pid = pid;
        *inside.executed.entry(key).or_default() += 1;
        Ok(())
    }

    /// Where the agent of a sandbox finds itself, after so many turns.
    fn setting<'a>(&self, sandbox: &'a Sandbox, turn: u64) -> Setting<'a> {
        let knobs = &self.sim.knobs;
        let keeps = |oracle: Arc<Oracle>| oracle.keeps(sandbox.task);
        Setting {
            plan: &sandbox.plan,
            now: self.sim.wall(),
            usage_limits: if self.sim.is_calm() { 0 } else { knobs.usage_limits },
            is_kept: knobs.keeps > 0 && self.net.oracle().is_some_and(keeps),
            turn,
        }
    }

    /// What an agent does that was told to go on, in its own sandbox.
    pub(crate) fn next_script(&self, id: SandboxId, turn: u64) -> Option<Script> {
        let inside = self.inside();
        let sandbox = inside.boxes.get(&id)?;
        let mut rng = self.sim.rng().fork();
        let script = agent::compose(&mut rng, &self.setting(sandbox, turn));
        let (task, attempt) = (sandbox.task, sandbox.attempt);
        self.sim.note(format_args!("agent   {task} #{attempt} goes on: {}", script.name));
        Some(script)
    }

    /// Whether a sandbox is frozen.
    pub(crate) fn is_frozen(&self, id: SandboxId) -> bool {
        self.inside().boxes.get(&id).is_some_and(|sandbox| sandbox.frozen)
    }

    /// The agent prints.
    pub(crate) fn print(&self, id: SandboxId, stream: Stream, bytes: &[u8]) {
        let mut inside = self.inside();
        let (at, now) = (self.wall(), self.sim.ms());
        let acts = |sandbox: &&mut Sandbox| sandbox.is_alive() && !sandbox.frozen;
        let Some(sandbox) = inside.boxes.get_mut(&id).filter(acts) else { return };
        sandbox.printed_ms = now;
        let chunk = Chunk { offset: sandbox.printed, at, stream, bytes: bytes.to_vec() };
        sandbox.printed += bytes.len() as u64;
        sandbox.chunks.push(chunk);
        sandbox.touch();
        let key = (sandbox.task, sandbox.attempt);
        inside.printed.entry(key).or_default().extend_from_slice(bytes);
    }

    /// The agent starts another process.
    pub(crate) fn fork(&self, id: SandboxId, kin: Kin, heeds_term: bool) {
        let mut inside = self.inside();
        let pid = inside.next_pid + 1;
        inside.next_pid = pid;
        if let Some(sandbox) = inside.boxes.get_mut(&id).filter(|sandbox| sandbox.is_alive()) {
            sandbox.processes.push(Process { pid, kin, heeds_term });
        }
    }

    /// The agent ends by itself; the shim ends what it leaves behind.
    pub(crate) fn exited(&self, id: SandboxId, exit: Exit) {
        self.finish(id, EndReason::Exited, exit);
    }

    /// Asks every process politely; what heeds that is gone.
    pub(crate) fn terminate(&self, id: SandboxId) {
        let mut inside = self.inside();
        let Some(sandbox) = inside.boxes.get_mut(&id) else { return };
        let gone: Vec<Process> =
            sandbox.processes.iter().filter(|p| p.heeds_term).cloned().collect();
        if gone.iter().any(|process| process.kin == Kin::Agent)
            && let Some(agent) = sandbox.agent.take()
        {
            agent.abort();
        }
        sandbox.processes.retain(|process| !process.heeds_term);
        sandbox.killed.extend(gone.iter().map(seen));
    }

    /// Whether the sandbox has a process left.
    pub(crate) fn has_processes(&self, id: SandboxId) -> bool {
        self.inside().boxes.get(&id).is_some_and(Sandbox::is_alive)
    }

    /// Kills everything and writes the end, once.
    pub(crate) fn finish(&self, id: SandboxId, reason: EndReason, exit: Exit) {
        let leaves_strays = self.sim.planted == Some(Planted::KillMissesEscapees);
        let mut inside = self.inside();
        let now = self.wall();
        let Some(sandbox) = inside.boxes.get_mut(&id).filter(|sandbox| sandbox.end.is_none())
        else {
            return;
        };
        let left = std::mem::take(&mut sandbox.processes);
        let missed = left.iter().filter(|p| leaves_strays && p.kin == Kin::Escapee).count();
        sandbox.killed.extend(left.iter().map(seen));
        let killed = std::mem::take(&mut sandbox.killed);
        let receipt = Receipt {
            killed_count: killed.len() as u64,
            killed,
            proof: Proof::NamespaceGone { namespace: 1 },
            ..Receipt::empty(id, now, Proof::NeverExisted)
        };
        let output_bytes = sandbox.printed;
        sandbox.end = Some(End {
            sandbox: id,
            exit,
            reason,
            out_of_memory: false,
            at: now,
            output_bytes,
            receipt,
        });
        sandbox.phase = Phase::Ended;
        if let Some(agent) = sandbox.agent.take()
            && reason != EndReason::Exited
        {
            agent.abort();
        }
        sandbox.touch();
        let stray = (sandbox.session, sandbox.task, sandbox.attempt);
        self.sim.note(format_args!("sandbox {} #{} ended: {reason:?} {exit:?}", stray.1, stray.2));
        inside.strays.extend(std::iter::repeat_n(stray, missed));
    }

    /// Ends a sandbox: politely, then not. Goes on to its end whoever asked for it.
    pub(crate) async fn end(self: Arc<Self>, id: SandboxId, reason: EndReason, grace: Duration) {
        let was_started = self.has_processes(id);
        if !grace.is_zero() && was_started {
            self.terminate(id);
            let until = tokio::time::Instant::now() + grace;
            while self.has_processes(id) && tokio::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(100).min(grace)).await;
            }
        }
        let exit = match (was_started, self.has_processes(id)) {
            (false, _) => Exit::NotStarted,
            (true, true) => Exit::Signal(9),
            (true, false) => Exit::Signal(15),
        };
        self.finish(id, reason, exit);
    }

    /// The shim: ends its sandbox so early that it is dead when the lease is over.
    pub(crate) async fn hold_lease(self: Arc<Self>, id: SandboxId) {
        let Some(mut changed) = self.inside().boxes.get(&id).map(|b| b.changed.subscribe()) else {
            return;
        };
        loop {
            let is_parked = self.is_frozen(id);
            let kill_at = match self.inside().boxes.get(&id) {
                Some(sandbox) if sandbox.end.is_none() => {
                    let margins = sandbox.plan.margins;
                    (sandbox.until.saturating_sub(margins.total().as_millis()), margins.grace)
                }
                Some(_) | None => return,
            };
            if is_parked {
                if changed.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let wait = self.until(kill_at.0);
            if wait.is_zero() {
                let grace = Duration::from_millis(kill_at.1.as_millis());
                return Arc::clone(&self).end(id, EndReason::LeaseOver, grace).await;
            }
            let _ = tokio::time::timeout(wait, changed.changed()).await;
            if self.sim.planted == Some(Planted::ShimForgetsLease) {
                return;
            }
        }
    }
}

fn seen(process: &Process) -> Seen {
    Seen { pid: process.pid, started: u64::from(process.pid), name: format!("{:?}", process.kin) }
}
