//! What every part of a world shares: virtual time, chance, the trace and the first thing that was
//! found wrong; and the gate that every step of a process passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_kernel::{TaskId, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::haste::Moment;
use crate::knobs::Knobs;
use crate::rng::{Rng, mix};
use crate::{Options, Planted};

/// The wall clock when a world begins.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// More steps than this no world takes that comes to rest.
const MOST_STEPS: u64 = 5_000_000;

/// What is drawn from the seed beside the rest is drawn from this with it.
const LATE: u64 = 0x1A7E;

/// What can fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Node(usize),
    Runner(usize),
}

/// What was found wrong, by the number of the invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which of the fourteen; 0 for what has no number.
    pub invariant: u8,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.what)
    }
}

/// What happened, line by line, and a hash of all lines.
#[derive(Debug)]
struct Trace {
    lines: Vec<String>,
    hash: u64,
}

/// What every part shares.
#[derive(Debug)]
pub(crate) struct Sim {
    origin: Instant,
    /// By how much the store's clock was set ahead.
    ahead_ms: AtomicI64,
    rng: Mutex<Rng>,
    trace: Mutex<Trace>,
    calm: AtomicBool,
    blown: Mutex<Vec<Part>>,
    found: Mutex<Option<Violation>>,
    pub(crate) knobs: Knobs,
    pub(crate) planted: Option<Planted>,
    /// What is left out.
    without: BTreeSet<&'static str>,
    steps: AtomicU64,
    /// What went wrong, and what people did.
    counts: Mutex<BTreeMap<String, u64>>,
    /// Moments that are seized, and that there is one.
    moments: Mutex<VecDeque<(Moment, TaskId)>>,
    seized: Notify,
    /// Tasks of which the next decision is slow to be written.
    dragged: Mutex<BTreeSet<TaskId>>,
    /// Something happened that the world must look at.
    pub(crate) alarm: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sim {
    pub(crate) fn new(mut rng: Rng, options: &Options) -> Self {
        let mut knobs = Knobs::draw(&mut rng, &mut Rng::new(mix(options.seed ^ LATE)));
        options.less.apply(&mut knobs);
        Self {
            origin: Instant::now(),
            ahead_ms: AtomicI64::new(0),
            rng: Mutex::new(rng),
            trace: Mutex::new(Trace { lines: Vec::new(), hash: 0xCBF2_9CE4_8422_2325 }),
            calm: AtomicBool::new(false),
            blown: Mutex::default(),
            found: Mutex::default(),
            knobs,
            planted: options.planted,
            without: options.less.without.clone(),
            steps: AtomicU64::new(0),
            counts: Mutex::default(),
            moments: Mutex::default(),
            seized: Notify::new(),
            dragged: Mutex::default(),
            alarm: Notify::new(),
        }
    }

    /// Milliseconds since the world began.
    pub(crate) fn ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall clock, as nobody but the world knows it.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN_MS + i64::try_from(self.ms()).unwrap_or(i64::MAX))
    }

    /// The store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        let ahead = self.ahead_ms.load(Ordering::SeqCst);
        Timestamp::from_millis(self.wall().as_millis() + ahead)
    }

    /// The store's clock is set.
    pub(crate) fn set_clock(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        lock(&self.rng)
    }

    /// Whether something goes wrong that does so many times in a thousand, while there is trouble.
    #[track_caller]
    pub(crate) fn goes_wrong(&self, permille: u64) -> bool {
        let wrong = permille > 0 && !self.is_calm() && self.rng().permille(permille);
        if wrong {
            let file = std::path::Path::new(Location::caller().file());
            self.count(file.file_stem().map_or("?".into(), |part| part.to_string_lossy()));
        }
        wrong
    }

    /// One more of these.
    pub(crate) fn count(&self, what: impl Into<String>) {
        *lock(&self.counts).entry(what.into()).or_default() += 1;
    }

    /// How often what went wrong.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.counts).clone()
    }

    /// Whether people do this; what is left out they do once everything is healed.
    pub(crate) fn does(&self, act: &str) -> bool {
        let does = self.is_calm() || !self.without.contains(act);
        if does {
            self.count(format!("person {act}"));
        }
        does
    }

    /// How many steps were taken.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// A wait between both, in milliseconds.
    pub(crate) async fn wait(&self, least: u64, most: u64) {
        let ms = self.rng().between(least, most);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// From now on nothing goes wrong.
    pub(crate) fn heal(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub(crate) fn note(&self, line: impl fmt::Display) {
        let (ms, step) = (self.ms(), self.steps());
        let line = format!("{:>5}.{:03} {step:>6}  {line}", ms / 1_000, ms % 1_000);
        let mut trace = lock(&self.trace);
        for byte in line.bytes() {
            trace.hash = (trace.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        trace.lines.push(line);
    }

    /// The lines, and their hash.
    pub(crate) fn trace(&self) -> (Vec<String>, u64) {
        let mut trace = lock(&self.trace);
        (std::mem::take(&mut trace.lines), trace.hash)
    }

    /// Something is wrong; the first of these ends the world.
    pub(crate) fn violate(&self, invariant: u8, what: impl Into<String>) {
        let violation = Violation { invariant, what: what.into() };
        self.note(format_args!("VIOLATION {violation}"));
        lock(&self.found).get_or_insert(violation);
        self.alarm.notify_one();
    }

    pub(crate) fn found(&self) -> Option<Violation> {
        lock(&self.found).clone()
    }

    /// A moment is seized.
    pub(crate) fn seize(&self, moment: Moment, task: TaskId) {
        lock(&self.moments).push_back((moment, task));
        self.seized.notify_one();
    }

    /// The next moment that is seized.
    pub(crate) async fn next_moment(&self) -> (Moment, TaskId) {
        loop {
            let next = lock(&self.moments).pop_front();
            match next {
                Some(moment) => return moment,
                None => self.seized.notified().await,
            }
        }
    }

    /// The next decision about a task is slow to be written.
    pub(crate) fn drag(&self, task: TaskId) {
        lock(&self.dragged).insert(task);
    }

    /// Whether a decision about these tasks is slow, which it is once.
    pub(crate) fn is_dragged(&self, mut tasks: impl Iterator<Item = TaskId>) -> bool {
        let mut dragged = lock(&self.dragged);
        !self.is_calm() && !dragged.is_empty() && tasks.any(|task| dragged.remove(&task))
    }

    /// A process falls now, wherever it is.
    pub(crate) fn fall(&self, part: Part) {
        if !self.is_calm() {
            lock(&self.blown).push(part);
            self.alarm.notify_one();
        }
    }

    /// What fell since this was last asked.
    pub(crate) fn blown(&self) -> Vec<Part> {
        std::mem::take(&mut lock(&self.blown))
    }
}

/// What every step of one process passes: where it falls, and where it stands still.
#[derive(Debug)]
pub(crate) struct Gate {
    sim: Arc<Sim>,
    part: Part,
    fuse: Mutex<Option<u64>>,
    paused_until: AtomicU64,
}

impl Gate {
    pub(crate) fn new(sim: &Arc<Sim>, part: Part) -> Arc<Self> {
        let (fuse, paused_until) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { sim: Arc::clone(sim), part, fuse, paused_until })
    }

    /// The process falls after so many more steps.
    pub(crate) fn light(&self, steps: u64) {
        *lock(&self.fuse) = Some(steps);
    }

    /// The process stands still until then, wherever it is, and then goes on.
    pub(crate) fn pause_until(&self, ms: u64) {
        self.paused_until.fetch_max(ms, Ordering::SeqCst);
    }

    /// One step. It does not come back from the one at which the process falls.
    pub(crate) async fn step(&self) {
        let steps = self.sim.steps.fetch_add(1, Ordering::SeqCst);
        if steps >= MOST_STEPS {
            // Whoever goes round in circles while no time passes is not let through any more.
            if steps == MOST_STEPS {
                self.sim.violate(7, format!("{:?} goes round in circles", self.part));
            }
            return std::future::pending().await;
        }
        let left = || self.paused_until.load(Ordering::SeqCst).saturating_sub(self.sim.ms());
        while left() > 0 && !self.sim.is_calm() {
            tokio::time::sleep(Duration::from_millis(left().min(1_000))).await;
        }
        let blown = {
            let mut fuse = lock(&self.fuse);
            match *fuse {
                _ if self.sim.is_calm() => false,
                Some(0) => {
                    *fuse = None;
                    true
                }
                Some(left) => {
                    *fuse = Some(left - 1);
                    false
                }
                None => false,
            }
        };
        if blown {
            lock(&self.sim.blown).push(self.part);
            self.sim.alarm.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
