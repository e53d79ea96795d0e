//! What the tests of control share: a node in memory whose time they set, and what a person and a
//! runner say to it. Each uses what it needs, and adds what only it needs.
#![allow(dead_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_api::port::{Assignment, ClaimRequest, Found, Hello, Port, Report, Start, Stepped, Who};
use belay_api::{Chance, NewTask};
use belay_control::{Control, MemoryVault, Parts, Settings};
use belay_kernel::attempt::Phase;
use belay_kernel::publish::CommitId;
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_kernel::{InstallationId, RunnerId, Span, TaskId, Timestamp};
use belay_store::blob::{BlobLimits, Blobs};
use belay_store::rows::AttemptRow;
use belay_store::{Memory, Store};

/// The runner that claims where a test names no other.
pub(crate) const RUNNER: RunnerId = RunnerId::from_bits(7);

const BEGINNING: i64 = 1_000_000;

/// Chance without chance: each draw is another one, and the same ones come again.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU64);

impl Chance for Counting {
    fn draw(&self) -> u128 {
        let next = u128::from(self.0.fetch_add(1, Ordering::SeqCst) + 1);
        next.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

/// A store whose clock stands where every test begins.
pub(crate) fn memory() -> Memory {
    let store = Memory::new(InstallationId::from_bits(1), 1);
    store.set_now(Timestamp::from_millis(BEGINNING));
    store
}

/// A node over this store, with nothing beside it. `drawn` makes its ids other ones than those of
/// its predecessor.
pub(crate) fn parts(store: &Memory, blobs: &Blobs, drawn: u64) -> Parts<Memory> {
    Parts {
        store: store.clone(),
        blobs: blobs.clone(),
        vault: Arc::new(MemoryVault::default()),
        chance: Arc::new(Counting(AtomicU64::new(drawn))),
        settings: Settings { agent: "claude".into(), ..Settings::default() },
        embedded: None,
        back_up: None,
        courier: None,
    }
}

/// Runs a test whose waits take no time.
pub(crate) fn test<F: Future<Output = ()>>(body: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(body);
}

/// A node that a runner has joined, over a store whose clock the test sets.
pub(crate) struct World {
    pub(crate) store: Memory,
    pub(crate) blobs: Blobs,
    pub(crate) control: Control<Memory>,
    embedded: Option<RunnerId>,
    now: Cell<i64>,
}

impl World {
    /// A node with its runner in the same process: leases are long.
    pub(crate) async fn new() -> Self {
        Self::of(Some(RUNNER)).await
    }

    /// A node whose runners are on other machines: leases are short.
    pub(crate) async fn remote() -> Self {
        Self::of(None).await
    }

    async fn of(embedded: Option<RunnerId>) -> Self {
        let (store, blobs) = (memory(), Blobs::in_memory(BlobLimits::default()));
        let parts = Parts { embedded, ..parts(&store, &blobs, 0) };
        let control = Control::open(parts).await.unwrap();
        let world = Self { store, blobs, control, embedded, now: Cell::new(BEGINNING) };
        assert_eq!(world.join(RUNNER).await, []);
        world
    }

    /// Another node over the same store.
    pub(crate) async fn another_node(&self) -> Control<Memory> {
        let parts = parts(&self.store, &self.blobs, 1_000);
        Control::open(Parts { embedded: self.embedded, ..parts }).await.unwrap()
    }

    pub(crate) async fn join(&self, runner: RunnerId) -> Vec<Assignment> {
        let hello = Hello {
            runner,
            name: runner.to_string(),
            slots: 8,
            roles: vec!["default".into()],
            providers: vec!["process".into()],
            version: "1".into(),
        };
        self.control.join(hello).await.unwrap()
    }

    /// What the store's clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.get())
    }

    /// The store's clock goes on, and time does not.
    pub(crate) fn set_ahead(&self, span: Span) {
        self.now.set(self.now.get() + i64::try_from(span.as_millis()).unwrap());
        self.store.set_now(self.now());
    }

    /// Lets time pass, and lets control look at what is due.
    pub(crate) async fn pass(&self, span: Span) {
        self.set_ahead(span);
        tokio::time::advance(Duration::from_millis(span.as_millis())).await;
        self.tend().await;
    }

    /// Lets control do what there is to do now, and no more.
    pub(crate) async fn tend(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(1_500), self.control.tend()).await;
    }

    pub(crate) async fn make(&self, new: NewTask) -> TaskId {
        self.control.create("ada", new).await.unwrap().summary.id
    }

    /// What this runner is given, if there is anything.
    pub(crate) async fn claim_by(&self, runner: RunnerId) -> Option<Assignment> {
        let ask = ClaimRequest { runner, role: "default".into(), slots: 1 };
        let mut claimed = self.control.claim(ask).await.unwrap();
        assert!(claimed.len() <= 1, "{claimed:?}");
        claimed.pop()
    }

    pub(crate) async fn claim(&self) -> Assignment {
        self.claim_by(RUNNER).await.expect("something can be claimed")
    }

    /// Claims what is next, and starts its agent, which prints while it thinks.
    pub(crate) async fn start(&self) -> Assignment {
        self.start_as(true).await
    }

    pub(crate) async fn start_as(&self, partial_output: bool) -> Assignment {
        let run = self.claim().await;
        let start = Start { token_hash: "h".into(), partial_output };
        self.control.start(run.who, start).await.unwrap();
        run
    }

    pub(crate) async fn print(&self, who: Who, from: u64, text: &str) -> u64 {
        let report = Report { from, bytes: text.into(), seen: vec![] };
        self.control.report(who, report).await.unwrap().next
    }

    /// The runner ends an attempt: its processes are gone, and its tree is kept.
    pub(crate) async fn terminate(&self, who: Who) {
        self.step_through(who).await;
        self.tend().await;
    }

    /// The same; what follows for others does not happen yet.
    pub(crate) async fn step_through(&self, who: Who) {
        let mut saga = Termination::begin(Storage::Outlives);
        while saga.step != Step::Done {
            let found = match saga.step {
                Step::Kill => Found::Dead { processes: 3 },
                Step::SaveTree => Found::Tree {
                    reference: "refs/belay/kept/x/1".into(),
                    commit: kept(who),
                    diff: b"--- a\n+++ b\n".to_vec(),
                },
                _ => Found::Nothing,
            };
            let stepped = Stepped { step: saga.step, went: Went::Done, found };
            saga = self.control.stepped(who, stepped).await.unwrap();
        }
    }

    /// Where an attempt is in its life.
    pub(crate) async fn phase(&self, who: Who) -> Phase {
        let rows = self.store.load::<AttemptRow>(&[(who.task, who.attempt)]).await.unwrap();
        rows[0].as_ref().unwrap().row.attempt.phase
    }

    /// The state of a task, with its reason.
    pub(crate) async fn state(&self, task: TaskId) -> String {
        let view = self.control.show(task).await.unwrap();
        format!("{} {}", view.summary.state, view.summary.reason)
    }
}

pub(crate) fn task(prompt: &str) -> NewTask {
    NewTask { prompt: prompt.into(), ..NewTask::default() }
}

pub(crate) fn commit(n: u8) -> CommitId {
    format!("{n:040x}").parse().unwrap()
}

/// What an attempt leaves.
pub(crate) fn kept(who: Who) -> CommitId {
    format!("{:040x}", 0xface_0000 + who.epoch.0).parse().unwrap()
}
