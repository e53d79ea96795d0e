//! The in-memory store: the same answers as the databases, deterministic, for simulation.
//!
//! It reads no clock and starts no thread or timer: `now` is what the simulation says, and a future
//! is ready when it is first polled, except where a reply is awaited that a fault took away. Faults
//! are injected by a [`Script`], which is asked before each operation: it can fail before anything
//! is done, and it can lose the reply of something that *was* done.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_kernel::{InstallationId, Revision, Span, Timestamp};

use crate::claim::{Claim, ClaimAsk, Decide, Judged, Related, merge};
use crate::commit::{Answered, Commit, Committed};
use crate::effect::{Effect, Settled};
use crate::engine::Engine;
use crate::event::{Cursor, EventFilter, Events};
use crate::lease::{Beat, Beaten, Lease, LeaseKind};
use crate::query::Scan;
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Record, Stored};
use crate::rows::TaskRow;
use crate::store::{Due, Installation, Prune, Pruned};
use crate::table::Table;

use state::State;

/// What the store is asked to do, as a script of faults sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It changes nothing.
    Look,
    /// It commits decisions.
    Commit,
    /// It claims.
    Claim,
    /// It renews leases.
    Beat,
    /// It takes or settles timers or effects, or prunes.
    Tend,
}

/// What is to go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing is done, and the caller is told.
    Fail,
    /// It is done, but the caller is not told whether.
    LoseReply,
}

/// Decides what goes wrong.
pub type Script = Box<dyn FnMut(Operation) -> Fault + Send>;

/// The in-memory store. Clones share what they remember, as nodes share a database.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
    installation: Installation,
    news: tokio::sync::watch::Sender<u64>,
}

struct Inner {
    state: State,
    now: Timestamp,
    script: Option<Script>,
}

impl Memory {
    /// An empty store of this installation.
    pub fn new(id: InstallationId, epoch: u64) -> Self {
        let inner = Inner { state: State::default(), now: Timestamp::EPOCH, script: None };
        let (news, _) = tokio::sync::watch::channel(0);
        let installation = Installation { id, epoch };
        Self { inner: Arc::new(Mutex::new(inner)), installation, news }
    }

    /// It is `now`. A clock that is set back is not believed.
    pub fn set_now(&self, now: Timestamp) {
        let mut inner = self.lock();
        inner.now = inner.now.max(now);
    }

    /// How often the rows of a kind have changed: whoever watches them reads them again only then.
    pub fn changes<R: Record>(&self) -> u64 {
        self.lock().state.changes(R::table())
    }

    /// From now on, faults follow `script`.
    pub fn set_faults(&self, script: Option<Script>) {
        self.lock().script = script;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut inner = self.lock();
        let fault = inner.script.as_mut().map_or(Fault::None, |script| script(operation));
        if fault == Fault::Fail {
            return Err(Failure::Injected);
        }
        let done = work(&mut inner.state);
        let newest = inner.state.event_range().1;
        drop(inner);
        self.news.send_if_modified(|known| std::mem::replace(known, newest) != newest);
        match fault {
            Fault::LoseReply => Err(Failure::Unknown),
            Fault::None | Fault::Fail => done,
        }
    }
}

fn claim(state: &mut State, ask: &ClaimAsk, decide: &Decide) -> Result<Vec<Claim>, Failure> {
    let entries = merge(state.claimable(ask), ask);
    let candidates: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| {
            let key = Key { table: TaskRow::table(), cells: vec![crate::Cell::Text(entry.id)] };
            let raw = state.row(&key)?;
            let candidate = Stored::<TaskRow>::read(&raw).and_then(|task| {
                let related = Related::of(&task.row);
                related.candidate(task, &|key| state.row(key))
            });
            Some(candidate)
        })
        .collect();
    let judged = Judged::of(candidates, ask.limit, decide)?;
    let committed = judged.commits.iter().map(|commit| state.commit(commit)).collect();
    Ok(judged.answer(committed))
}

impl Engine for Memory {
    async fn read(
        &self,
        _: &'static Table,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<RawRow>>, Failure> {
        self.run(Operation::Look, |state| Ok(keys.iter().map(|key| state.row(key)).collect()))
    }

    async fn scan(&self, scan: Scan) -> Result<Vec<RawRow>, Failure> {
        self.run(Operation::Look, |state| Ok(state.scan(&scan)))
    }

    async fn tally(
        &self,
        table: &'static Table,
        column: &'static str,
    ) -> Result<Vec<(String, u64)>, Failure> {
        self.run(Operation::Look, |state| Ok(state.tally(table, column)))
    }

    async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        self.run(Operation::Commit, |state| {
            Ok(commits.iter().map(|commit| state.commit(commit)).collect())
        })
    }

    async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        self.run(Operation::Claim, |state| claim(state, &ask, &decide))
    }

    async fn waiting_roles(&self, now: Timestamp) -> Result<Vec<String>, Failure> {
        self.run(Operation::Look, |state| Ok(state.waiting_roles(now)))
    }

    async fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Due>, Failure> {
        self.run(Operation::Tend, |state| Ok(state.take_due(now, hold, limit)))
    }

    async fn rearm(
        &self,
        key: Key,
        revision: Revision,
        due_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        self.run(Operation::Tend, |state| {
            state.rearm(&key, revision, due_at);
            Ok(())
        })
    }

    async fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> Result<Vec<Beaten>, Failure> {
        self.run(Operation::Beat, |state| {
            Ok(beats.iter().map(|beat| state.beat(beat, now)).collect())
        })
    }

    async fn leases(&self, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
        self.run(Operation::Look, |state| Ok(state.leases(kind)))
    }

    async fn extend_leases(&self, kind: LeaseKind, by: Span) -> Result<u64, Failure> {
        self.run(Operation::Beat, |state| Ok(state.extend_leases(kind, by)))
    }

    async fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        self.run(Operation::Look, |state| state.events(cursor, filter, limit))
    }

    async fn event_range(&self) -> Result<(u64, u64), Failure> {
        self.run(Operation::Look, |state| Ok(state.event_range()))
    }

    /// Without a timer: it waits for the event alone, and a simulation decides for how long.
    async fn await_events(&self, number: u64, _: Duration) {
        let mut news = self.news.subscribe();
        let _ = news.wait_for(|newest| *newest > number).await;
    }

    async fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Effect>, Failure> {
        self.run(Operation::Tend, |state| Ok(state.take_effects(now, hold, limit)))
    }

    async fn settle_effects(&self, settled: Vec<Settled>) -> Result<Vec<bool>, Failure> {
        self.run(Operation::Tend, |state| {
            Ok(settled.iter().map(|settled| state.settle_effect(settled)).collect())
        })
    }

    async fn answered(&self, principal: String, key: String) -> Result<Option<Answered>, Failure> {
        self.run(Operation::Look, |state| Ok(state.answered(&principal, &key)))
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, Failure> {
        self.run(Operation::Tend, |state| Ok(state.prune(prune)))
    }

    fn installation(&self) -> Installation {
        self.installation
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.lock().now)
    }
}
