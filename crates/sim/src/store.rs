//! The store of a world: the in-memory one, on virtual time, with faults.
//!
//! What changes something is done by a task of its own, as a database does it: whoever asked may
//! fall meanwhile, and it is done all the same.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_kernel::{Revision, Span, TaskId, Timestamp};
use belay_store::rows::{DependencyRow, TaskRow};
use belay_store::{
    Answered, Beat, Beaten, Claim, ClaimAsk, Commit, Committed, Cursor, Decide, Due, Effect,
    EventFilter, Events, Failure, Gather, Gathered, Installation, Key, Lease, LeaseKind, Memory,
    Page, Prune, Pruned, Query, Record, Settled, Store, Stored,
};

use crate::Planted;
use crate::oracle::Oracle;
use crate::sim::{Gate, Sim};

/// The store as a node sees it.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) sim: Arc<Sim>,
    pub(crate) memory: Memory,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) gate: Arc<Gate>,
    /// Until when the node does not reach it.
    pub(crate) cut_until: Arc<AtomicU64>,
}

impl SimStore {
    /// Before anything is done: the node may fall, not get through, or be told that it failed.
    async fn begin(&self) -> Result<(), Failure> {
        self.gate.step().await;
        if self.sim.ms() < self.cut_until.load(Ordering::SeqCst) && !self.sim.is_calm() {
            self.sim.wait(200, 4_000).await;
            return Err(Failure::Injected);
        }
        match self.sim.goes_wrong(self.sim.knobs.store_fails) {
            true => Err(Failure::Injected),
            false => Ok(()),
        }
    }

    async fn look<T>(
        &self,
        look: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        self.begin().await?;
        if self.sim.goes_wrong(self.sim.knobs.store_slow) {
            self.sim.wait(1, 40).await;
        }
        self.memory.set_now(self.sim.now());
        look.await
    }

    /// Changes rows, which the oracle looks at at once.
    async fn decide<T, F, Fut>(&self, change: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(Memory) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let oracle = Arc::clone(&self.oracle);
        self.change(move |memory| async move {
            let done = change(memory).await;
            oracle.after_change();
            done
        })
        .await
    }

    async fn change<T, F, Fut>(&self, change: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(Memory) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let sim = &self.sim;
        self.begin().await?;
        let done = if sim.goes_wrong(sim.knobs.store_slow) {
            let most = if sim.rng().permille(50) { 3_000 } else { 60 };
            let ms = sim.rng().between(1, most);
            let this = self.clone();
            let late = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                this.apply(change).await
            });
            late.await.unwrap_or(Err(Failure::Unknown))
        } else {
            self.apply(change).await
        };
        self.gate.step().await;
        if sim.goes_wrong(sim.knobs.store_loses) {
            return Err(Failure::Unknown);
        }
        done
    }

    async fn apply<T, F, Fut>(&self, change: F) -> Result<T, Failure>
    where
        F: FnOnce(Memory) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        self.memory.set_now(self.sim.now());
        change(self.memory.clone()).await
    }

    /// A decision about a task that is to be slow waits for a while, on its way.
    async fn drag(&self, commit: &Commit) {
        let tasks = commit.keys().flat_map(|key| {
            let waited = key.id::<DependencyRow>().map(|(_, on)| on);
            key.id::<TaskRow>().into_iter().chain(waited)
        });
        let tasks: Vec<TaskId> = tasks.collect();
        if self.sim.is_dragged(tasks.into_iter()) {
            self.sim.wait(200, 3_000).await;
        }
    }

    /// Whether a write is acknowledged and forgotten, which no store may do.
    fn forgets(&self) -> bool {
        self.sim.planted == Some(Planted::StoreForgets) && self.sim.goes_wrong(150)
    }
}

impl Store for SimStore {
    async fn load<R: Record>(&self, ids: &[R::Id]) -> Result<Vec<Option<Stored<R>>>, Failure> {
        self.look(self.memory.load(ids)).await
    }

    async fn list<R: Record>(&self, query: Query<R>) -> Result<Page<R>, Failure> {
        self.look(self.memory.list(query)).await
    }

    async fn gather(&self, gather: Gather) -> Result<Gathered, Failure> {
        self.look(Store::gather(&self.memory, gather)).await
    }

    async fn commit_all(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        self.decide(|memory| async move { memory.commit_all(commits).await }).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, Failure> {
        if self.forgets() {
            return Ok(Committed::Done);
        }
        self.drag(&commit).await;
        self.decide(|memory| async move { Store::commit(&memory, commit).await }).await
    }

    async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        self.decide(|memory| async move { Store::claim(&memory, ask, decide).await }).await
    }

    async fn tally<R: Record>(&self, column: &'static str) -> Result<Vec<(String, u64)>, Failure> {
        self.look(Store::tally::<R>(&self.memory, column)).await
    }

    async fn waiting_roles(&self, now: Timestamp) -> Result<Vec<String>, Failure> {
        self.look(Store::waiting_roles(&self.memory, now)).await
    }

    async fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Due>, Failure> {
        self.change(move |memory| async move { Store::take_due(&memory, now, hold, limit).await })
            .await
    }

    async fn rearm(
        &self,
        key: Key,
        revision: Revision,
        due_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        self.change(move |memory| async move { Store::rearm(&memory, key, revision, due_at).await })
            .await
    }

    async fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> Result<Vec<Beaten>, Failure> {
        let oracle = Arc::clone(&self.oracle);
        self.change(move |memory| async move {
            let holders: Vec<_> = beats.iter().map(|beat| beat.holder).collect();
            let beaten = Store::beat(&memory, beats, now).await;
            for (holder, beaten) in holders.iter().zip(beaten.iter().flatten()) {
                oracle.beaten(*holder, *beaten);
            }
            beaten
        })
        .await
    }

    async fn leases(&self, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
        self.look(Store::leases(&self.memory, kind)).await
    }

    async fn extend_leases(&self, kind: LeaseKind, by: Span) -> Result<u64, Failure> {
        self.change(move |memory| async move { Store::extend_leases(&memory, kind, by).await })
            .await
    }

    async fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        self.look(Store::events(&self.memory, cursor, filter, limit)).await
    }

    async fn latest(&self) -> Result<Cursor, Failure> {
        self.look(self.memory.latest()).await
    }

    async fn oldest(&self) -> Result<Cursor, Failure> {
        self.look(self.memory.oldest()).await
    }

    async fn await_events(&self, cursor: Cursor, patience: Duration) {
        let awaited = Store::await_events(&self.memory, cursor, patience);
        let _ = tokio::time::timeout(patience, awaited).await;
    }

    async fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Effect>, Failure> {
        self.change(
            move |memory| async move { Store::take_effects(&memory, now, hold, limit).await },
        )
        .await
    }

    async fn settle_effects(&self, settled: Vec<Settled>) -> Result<Vec<bool>, Failure> {
        self.change(move |memory| async move { Store::settle_effects(&memory, settled).await })
            .await
    }

    async fn answered(&self, principal: &str, key: &str) -> Result<Option<Answered>, Failure> {
        self.look(Store::answered(&self.memory, principal, key)).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, Failure> {
        self.change(move |memory| async move { Store::prune(&memory, prune).await }).await
    }

    fn installation(&self) -> Installation {
        Store::installation(&self.memory)
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        self.memory.set_now(self.sim.now());
        Store::now(&self.memory).await
    }
}
