//! The oracle: watches a world from outside, and knows the fourteen invariants by number.
//!
//! It looks after every change of the store, whenever something lands at the remote or a tree is
//! saved, and at everything together every so often. It believes rows only about what is decided;
//! what agents printed, what processes live and what the remote got it knows from the world itself.

mod agree;
mod events;
mod evidence;
mod owed;
mod promises;
mod removed;
mod transcripts;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use belay_api::port::Who;
use belay_control::Control;
use belay_kernel::attempt::Phase;
use belay_kernel::publish::{CommitId, Publish, Push};
use belay_kernel::status::Group;
use belay_kernel::task::{Blocked, Reason, State, Verb};
use belay_kernel::termination::Step;
use belay_kernel::why::LivePath;
use belay_kernel::{AttemptNumber, Cause, Epoch, RunnerId, SessionId, Span, TaskId, Timestamp};
use belay_store::rows::{AttemptRow, SpecRow, TaskRow};
use belay_store::{MAX_BATCH, Memory, Query, Record, Store};

use crate::haste::Moment;
use crate::machine::{Alive, Machine};
use crate::remote::Remote;
use crate::sim::Sim;

/// How often everything is looked at that a change of the store does not show.
const LOOK_EVERY_MS: u64 = 5_000;

/// How long an effect may take that would move a task on, while a node is up.
const STUCK_MS: u64 = 180_000;

/// An attempt, by its task and number.
pub(crate) type Name = (TaskId, AttemptNumber);

/// What was seen before.
#[derive(Default)]
struct Ledger {
    states: BTreeMap<TaskId, (State, Reason)>,
    attempts: BTreeMap<Name, (Phase, Publish)>,
    /// Attempts that ended without the gate having been opened: nothing of them may be published.
    closed: BTreeSet<Name>,
    /// Agents that were started since a person last acted.
    started: BTreeMap<TaskId, u32>,
    /// Tasks whose making was acknowledged.
    made: BTreeSet<TaskId>,
    /// Stops that were acknowledged, and when.
    stopped: BTreeMap<TaskId, Timestamp>,
    sealed: BTreeSet<Name>,
    evidence: evidence::Seen,
    events: events::Consumer,
    agree: agree::Seen,
    removed: removed::Seen,
    /// When everything was last looked at.
    looked_ms: Option<u64>,
    /// Since when nothing moves a task on, while somebody could have noticed.
    stuck: BTreeMap<TaskId, u64>,
}

/// Rows as they were when they were last read, and how often they had changed by then.
struct Read<R>(Mutex<Option<(u64, Arc<[R]>)>>);

impl<R: Record> Read<R> {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The rows as they are: asked for after every commit, and most of those change others.
    fn rows(&self, memory: &Memory) -> Arc<[R]> {
        let changes = memory.changes::<R>();
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rows)) = read.as_ref().filter(|(known, _)| *known == changes) {
            return Arc::clone(rows);
        }
        let rows: Arc<[R]> = rows(memory).into();
        *read = Some((changes, Arc::clone(&rows)));
        rows
    }
}

fn rows<R: Record>(memory: &Memory) -> Vec<R> {
    let page = at_once(memory.list(Query::<R>::first(MAX_BATCH))).and_then(Result::ok);
    page.map(|page| page.rows.into_iter().map(|stored| stored.row).collect()).unwrap_or_default()
}

/// For how long nodes have been up without a break.
#[derive(Clone, Copy)]
pub(crate) struct Up {
    /// Some node.
    pub(crate) some_ms: u64,
    /// Each of them.
    pub(crate) all_ms: u64,
}

/// The oracle.
pub(crate) struct Oracle {
    pub(crate) sim: Arc<Sim>,
    memory: Memory,
    tasks: Read<TaskRow>,
    attempts: Read<AttemptRow>,
    ledger: Mutex<Ledger>,
    /// Set once, when the world is put together.
    pub(crate) machines: OnceLock<Vec<Arc<Machine>>>,
}

/// The answer of something that answers at once.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// The first letters of an id, for people.
pub(crate) fn short(id: impl std::fmt::Display) -> String {
    id.to_string().chars().take(6).collect()
}

impl Oracle {
    pub(crate) fn new(sim: Arc<Sim>, memory: Memory) -> Self {
        Self {
            sim,
            memory,
            tasks: Read::new(),
            attempts: Read::new(),
            ledger: Mutex::default(),
            machines: OnceLock::new(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machines(&self) -> &[Arc<Machine>] {
        self.machines.get().map_or(&[], Vec::as_slice)
    }

    /// Everything that lives, on all machines.
    fn alive(&self) -> Vec<Alive> {
        self.machines().iter().flat_map(|machine| machine.alive()).collect()
    }

    /// What an attempt's agent has printed, wherever that was.
    fn printed(&self, name: Name) -> Vec<u8> {
        let of = |machine: &Arc<Machine>| machine.inside().printed.get(&name).cloned();
        self.machines().iter().find_map(of).unwrap_or_default()
    }

    fn printed_length(&self, name: Name) -> u64 {
        let of = |machine: &Arc<Machine>| machine.inside().printed.get(&name).map(Vec::len);
        self.machines().iter().find_map(of).unwrap_or_default() as u64
    }

    fn rows<R: Record>(&self) -> Vec<R> {
        rows(&self.memory)
    }

    pub(crate) fn tasks(&self) -> Arc<[TaskRow]> {
        self.tasks.rows(&self.memory)
    }

    fn attempts(&self) -> Arc<[AttemptRow]> {
        self.attempts.rows(&self.memory)
    }

    /// When an attempt's time is over.
    pub(crate) fn deadline(&self, who: Who) -> Option<Timestamp> {
        let name = (who.task, who.attempt);
        self.attempts().iter().find(|row| (row.task, row.attempt.number) == name)?.attempt.deadline
    }

    /// The runner that has a task's attempt.
    pub(crate) fn runner_of(&self, task: TaskId) -> Option<RunnerId> {
        let rows = self.attempts();
        rows.iter().find(|row| row.task == task && row.attempt.may_act())?.runner
    }

    /// Whether an attempt is over, and everything about it is settled.
    pub(crate) fn is_over(&self, name: Name) -> bool {
        self.was_removed(name.0)
            || self.attempts().iter().any(|row| {
                let done = row.termination.is_some_and(|saga| saga.step == Step::Done);
                (row.task, row.attempt.number) == name && done
            })
    }

    /// The attempt of a session that has this epoch.
    pub(crate) fn attempt_of(&self, session: SessionId, epoch: Epoch) -> Option<Name> {
        let rows = self.attempts();
        let has = |row: &&AttemptRow| row.session == session && row.attempt.epoch == epoch;
        rows.iter().find(has).map(|row| (row.task, row.attempt.number))
    }

    /// Whether a task asks for its sandbox to be kept.
    pub(crate) fn keeps(&self, task: TaskId) -> bool {
        let spec = at_once(self.memory.load::<SpecRow>(&[task])).and_then(Result::ok);
        spec.is_some_and(|rows| rows.iter().flatten().any(|spec| spec.row.keep_alive))
    }

    /// A person was told that this task was made.
    pub(crate) fn made(&self, task: TaskId) {
        self.ledger().made.insert(task);
    }

    /// A person was told that this task is now in a final state.
    pub(crate) fn told(&self, task: TaskId, state: State) {
        let is_so = |row: &TaskRow| row.task.id == task && row.task.state == state;
        if !self.tasks().iter().any(is_so) && !self.was_removed(task) {
            let name = state.name();
            self.sim.violate(5, format!("{} was acknowledged as {name} and is not", short(task)));
        }
    }

    /// A person was told that this task is stopped.
    pub(crate) fn stopped(&self, task: TaskId) {
        let now = self.sim.now();
        self.sim.note(format_args!("person  stop of {} is acknowledged", short(task)));
        self.ledger().stopped.entry(task).or_insert(now);
        self.after_change();
        self.check_processes();
    }

    /// Something was committed.
    pub(crate) fn after_change(&self) {
        let (tasks, attempts) = (self.tasks(), self.attempts());
        let mut ledger = self.ledger();
        for task in tasks.iter() {
            self.check_task(&mut ledger, task);
        }
        for attempt in attempts.iter() {
            self.check_evidence(&mut ledger, attempt);
            self.check_attempt(&mut ledger, attempt);
        }
        self.check_removed(&mut ledger, &tasks, &attempts);
        for made in ledger.made.iter().filter(|made| !ledger.removed.is_gone(**made)) {
            if !tasks.iter().any(|task| task.task.id == *made) {
                self.sim
                    .violate(5, format!("task {} was acknowledged and is not there", short(made)));
            }
        }
        drop(ledger);
        self.check_agreement(&tasks, &attempts);
        let mut acting: BTreeMap<SessionId, Name> = BTreeMap::new();
        for row in attempts.iter().filter(|row| row.attempt.may_act()) {
            let name = (row.task, row.attempt.number);
            if let Some(other) = acting.insert(row.session, name) {
                let who =
                    format!("{} #{} and {} #{}", short(other.0), other.1, short(name.0), name.1);
                self.sim.violate(2, format!("{who} may act in one session"));
            }
        }
    }

    fn check_task(&self, ledger: &mut Ledger, row: &TaskRow) {
        let (id, state, reason) = (row.task.id, row.task.state, row.task.reason);
        if let Some(parent) = row.task.parent
            && let Some(at) = ledger.stopped.get(&parent)
            && row.created_at > *at
        {
            self.sim.violate(3, format!("{} got a subtask after its stop", short(parent)));
        }
        let before = ledger.states.insert(id, (state, reason));
        if before == Some((state, reason)) {
            return;
        }
        if before.is_none() {
            ledger.removed.born(row);
            self.check_birth(ledger, row);
        }
        let from = before.map_or("nothing", |(state, _)| state.name());
        let line = format!("{} {from} → {} ({})", short(id), state.name(), reason.code());
        self.sim.note(format_args!("task    {line}"));
        if let Some((old, _)) = before
            && old.group() == Group::Final
            && old != state
        {
            let number = if old == State::Completed { 12 } else { 1 };
            self.sim.violate(number, format!("a final state changed: {line}"));
        }
        match state {
            State::Ready { .. } => self.moment(Moment::Ready, id),
            State::Blocked(Blocked::Held { .. }) => self.moment(Moment::Asked, id),
            State::Running { .. } if reason == Reason::Asked(Verb::Answer) => {
                self.moment(Moment::Answered, id);
            }
            State::Running { .. } if reason == Reason::Started => self.moment(Moment::Started, id),
            state if state.group().is_at_rest() => self.rested(id),
            _ => {}
        }
        if matches!(reason, Reason::Asked(_) | Reason::Requeued(_) | Reason::Created) {
            ledger.started.insert(id, 0);
        }
        if reason == Reason::Retrying(Cause::UsageLimit)
            && let Some(started) = ledger.started.get_mut(&id)
        {
            *started = started.saturating_sub(1); // a park uses no try
        }
        if matches!((before, state), (Some((State::Claimed { .. }, _)), State::Running { .. })) {
            let started = ledger.started.entry(id).or_default();
            *started += 1;
            if *started > row.task.max_attempts.max(1) {
                let most = row.task.max_attempts;
                self.sim.violate(8, format!("{} had {started} of {most} attempts", short(id)));
            }
        }
    }

    /// A subtask that an agent asked for: its attempt may have acted until this commit.
    fn check_birth(&self, ledger: &Ledger, row: &TaskRow) {
        let Some(parent) = row.task.parent else { return };
        let spec = at_once(self.memory.load::<SpecRow>(&[row.task.id])).and_then(Result::ok);
        let spec = spec.and_then(|mut rows| rows.pop().flatten());
        let by = spec.map(|spec| spec.row.created_by.to_string()).unwrap_or_default();
        let number = by.strip_prefix("attempt ").and_then(|of| of.rsplit('/').next());
        let Some(number) = number.and_then(|number| number.parse().ok()) else { return };
        let name = (parent, AttemptNumber(number));
        if ledger.attempts.get(&name).is_some_and(|(phase, _)| rank(*phase) >= 3) {
            self.sim
                .violate(2, format!("{} #{number} made a subtask after its end", short(parent)));
        }
    }

    fn check_attempt(&self, ledger: &mut Ledger, row: &AttemptRow) {
        let name = (row.task, row.attempt.number);
        let (phase, publish) = (row.attempt.phase, row.attempt.publish);
        let before = ledger.attempts.insert(name, (phase, publish));
        if before == Some((phase, publish)) {
            return;
        }
        let line = format!("{} #{} {phase:?} {}", short(name.0), name.1, word(publish));
        self.sim.note(format_args!("attempt {line}"));
        if matches!(phase, Phase::Publishing { .. }) {
            self.moment(Moment::Opened, row.task);
        }
        if ledger.stopped.contains_key(&row.task) {
            self.sim.violate(3, format!("an attempt moved after its stop: {line}"));
        }
        let Some((old, published)) = before else { return };
        if rank(phase) < rank(old) || (rank(old) >= 3 && outcome(old) != outcome(phase)) {
            self.sim.violate(1, format!("an attempt went back from {old:?}: {line}"));
        }
        if published.is_settled() && published != Publish::None && published != publish {
            self.sim.violate(1, format!("a settled publish changed: {line}"));
        }
        if rank(old) < 3 && rank(phase) >= 3 && publish == Publish::None {
            ledger.closed.insert(name);
        }
        if ledger.closed.contains(&name) && publish != Publish::None {
            self.sim.violate(4, format!("the gate was opened after the end: {line}"));
        }
    }

    /// A runner pushes.
    pub(crate) fn pushing(&self, push: Push) {
        let opened = self.attempts().iter().any(|row| row.attempt.publish.push() == Some(push));
        if !opened {
            self.sim.violate(4, format!("{} is pushed without a gate", short(push.commit)));
        }
    }

    /// The remote has got a commit.
    pub(crate) fn landed(&self, branch: &str, push: Push) {
        let rows = self.attempts();
        let of = rows.iter().filter(|row| {
            row.attempt.publish.push().is_some_and(|stored| stored.commit == push.commit)
        });
        let settled: Vec<bool> =
            of.map(|row| matches!(row.attempt.publish, Publish::NotPushed(_))).collect();
        let what = format!("{} landed on {branch}", short(push.commit));
        if settled.is_empty() {
            self.sim.violate(4, format!("{what} without a gate"));
        } else if settled.iter().all(|not_pushed| *not_pushed) {
            self.sim.violate(4, format!("{what} after it was recorded as not pushed"));
        }
    }

    /// A tree is being saved.
    pub(crate) fn kept(
        &self,
        machine: usize,
        session: SessionId,
        task: TaskId,
        attempt: AttemptNumber,
    ) {
        let alive = self.machines().get(machine).map(|machine| machine.alive());
        let works = |alive: &Alive| alive.session == session && !alive.frozen;
        if alive.unwrap_or_default().iter().any(works) {
            let what = format!("{} #{attempt}", short(task));
            self.sim
                .violate(10, format!("the tree of {what} is saved while a process works in it"));
        }
    }

    /// A tree is there for the next attempt of a session, and holds this.
    pub(crate) fn prepared(&self, remote: &Remote, session: SessionId, tip: CommitId) {
        let last = self.ledger().agree.last_kept(session);
        let Some((task, attempt, kept)) = last else { return };
        if !remote.holds(tip, kept) {
            let name = format!("{} #{attempt}", short(task));
            self.sim.violate(5, format!("a tree is prepared without what {name} left"));
        }
    }

    /// Processes against what is committed about them.
    fn check_processes(&self) {
        let rows = self.attempts();
        self.note_leases(&rows);
        let mut sessions: BTreeSet<SessionId> = BTreeSet::new();
        for alive in self.alive() {
            let name = format!("{} #{}", short(alive.task), alive.attempt);
            if !alive.frozen && !sessions.insert(alive.session) {
                self.sim.violate(2, format!("two agents live in the session of {name}"));
            }
            let of =
                |row: &&AttemptRow| (row.task, row.attempt.number) == (alive.task, alive.attempt);
            let row = rows.iter().find(of);
            if self.ledger().stopped.contains_key(&alive.task) {
                self.sim.violate(3, format!("a process of {name} lives after its stop"));
            }
            match row {
                // Somebody goes on in what a removed task has left.
                None if alive.frozen && self.has_session(alive.session) => {}
                None => self.sim.violate(5, format!("nobody knows {name}, which lives")),
                // What is frozen cannot act: its attempt is over, and a lease is not needed.
                Some(_) if alive.frozen => {}
                Some(row) if matches!(row.attempt.phase, Phase::Ended(..)) => {
                    let phase = row.attempt.phase;
                    self.sim.violate(3, format!("a process of {name} lives, and it is {phase:?}"));
                }
                Some(row) if self.is_lease_over(row) => {
                    self.sim.violate(3, format!("a process of {name} lives after its lease"));
                }
                Some(row) => self.check_shim(row, alive.lives_until_ms),
            }
        }
        self.check_executed();
    }

    /// No agent is executed twice.
    fn check_executed(&self) {
        for machine in self.machines() {
            for (name, times) in &machine.inside().executed {
                if *times > 1 {
                    let name = format!("{} #{}", short(name.0), name.1);
                    self.sim.violate(2, format!("the agent of {name} was executed {times} times"));
                }
            }
        }
    }

    /// Leases that are over, where somebody could have noticed for so long.
    fn check_recovery(&self, up_ms: u64) {
        let knobs = &self.sim.knobs;
        let store_works = knobs.store_fails + knobs.store_loses == 0 || self.sim.is_calm();
        if !store_works {
            return;
        }
        let sweeps = Span::from_secs(60);
        for row in self.attempts().iter().filter(|row| row.attempt.may_act()) {
            let length = self.lease_length(row);
            let limit = self.sim.now().before(sweeps);
            // A push is settled before its attempt is lost, for as long as that takes.
            let publishing = matches!(row.attempt.phase, Phase::Publishing { .. });
            let noticed = up_ms > length.as_millis() + sweeps.as_millis() && !publishing;
            if noticed && row.attempt.lease_end < limit {
                let name = format!("{} #{}", short(row.task), row.attempt.number);
                self.sim.violate(14, format!("{name} acts a minute after its lease was over"));
            }
        }
    }

    /// Looks at everything.
    pub(crate) async fn look(&self, observer: &Control<Memory>, up: Up) {
        self.memory.set_now(self.sim.now());
        self.after_change();
        self.check_processes();
        let now = self.sim.ms();
        let recently = self.ledger().looked_ms.is_some_and(|at| now < at + LOOK_EVERY_MS);
        if recently {
            return;
        }
        self.ledger().looked_ms = Some(now);
        self.check_recovery(up.some_ms);
        self.check_silence(up);
        self.read_events();
        self.check_words();
        self.check_transcripts(observer).await;
        self.check_paths(observer, up.some_ms).await;
    }

    /// Each task that is not final has a live path. An effect that is not performed yet is one, and
    /// shows in no row: so it is wrong only if it stays so.
    async fn check_paths(&self, observer: &Control<Memory>, up_ms: u64) {
        let now = self.sim.ms();
        for task in self.tasks().iter() {
            let (id, state) = (task.task.id, task.task.state);
            let why = match state.group() {
                Group::Final => None,
                _ => observer.why(id).await.ok(),
            };
            let is_stuck = why.is_some_and(|why| why.why.path == LivePath::None);
            if !is_stuck || up_ms < STUCK_MS {
                self.ledger().stuck.remove(&id);
                continue;
            }
            let since = *self.ledger().stuck.entry(id).or_insert(now);
            if now > since + STUCK_MS {
                self.sim.violate(7, format!("nothing moves {} on: {state:?}", short(id)));
            }
        }
    }
}

const fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::Claimed => 0,
        Phase::Running => 1,
        Phase::Publishing { .. } => 2,
        Phase::Ending(_) => 3,
        Phase::Ended(..) => 4,
    }
}

const fn outcome(phase: Phase) -> Option<belay_kernel::attempt::Outcome> {
    match phase {
        Phase::Ending(outcome) | Phase::Ended(outcome, _) => Some(outcome),
        Phase::Claimed | Phase::Running | Phase::Publishing { .. } => None,
    }
}

const fn word(publish: Publish) -> &'static str {
    match publish {
        Publish::None => "",
        Publish::Open(_) => "(push is open)",
        Publish::Pushed(_) => "(pushed)",
        Publish::NotPushed(_) => "(not pushed)",
    }
}
