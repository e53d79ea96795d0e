//! The `Store` trait: what is remembered, in the domain's words.
//!
//! Look (`load`, `list`) → decide (elsewhere, pure) → `commit` → perform. Every answer is durable
//! before it is given. A lost compare-and-set is an outcome, not an error.

use std::future::Future;

use belay_kernel::{InstallationId, Span, Timestamp};

use crate::claim::{Claim, ClaimAsk, Decide};
use crate::commit::{Answered, Commit, Committed};
use crate::effect::{Effect, Settled};
use crate::engine::Engine;
use crate::event::{Cursor, EventFilter, Events};
use crate::gather::{Gather, Gathered};
use crate::lease::{Beat, Beaten, Lease, LeaseKind};
use crate::query::{Page, Query};
use crate::refusal::{Failure, Refusal};
use crate::row::{Key, Record, Stored};

/// The most commits, keys, beats or rows in one call.
pub const MAX_BATCH: usize = 10_000;

/// Which installation this is, and since which restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Installation {
    /// Its id, which its sandboxes are labelled with.
    pub id: InstallationId,
    /// Drawn when it was made, and anew with every restore of a backup.
    pub epoch: u64,
}

/// A row whose time has come.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Due {
    /// When it was due.
    pub at: Timestamp,
    /// Which row.
    pub key: Key,
}

/// What is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prune {
    /// Events before then, as far as no later event stands before them.
    pub events_before: Timestamp,
    /// Answers to requests from before then.
    pub requests_before: Timestamp,
}

/// How much was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// So many events.
    pub events: u64,
    /// So many answers.
    pub requests: u64,
}

/// What is remembered.
pub trait Store: Send + Sync + 'static {
    /// The rows with these ids, in order; nothing for those that are not there.
    fn load<R: Record>(
        &self,
        ids: &[R::Id],
    ) -> impl Future<Output = Result<Vec<Option<Stored<R>>>, Failure>> + Send;

    /// A page of rows, newest first.
    fn list<R: Record>(
        &self,
        query: Query<R>,
    ) -> impl Future<Output = Result<Page<R>, Failure>> + Send;

    /// How many rows have each value of a column of names, such as a state.
    fn tally<R: Record>(
        &self,
        column: &'static str,
    ) -> impl Future<Output = Result<Vec<(String, u64)>, Failure>> + Send;
    /// Several reads in one trip.
    fn gather(&self, gather: Gather) -> impl Future<Output = Result<Gathered, Failure>> + Send;

    /// Commits each decision by itself: all of it or nothing of it. The answers are in order; one
    /// that is overtaken or refused does not touch the others.
    fn commit_all(
        &self,
        commits: Vec<Commit>,
    ) -> impl Future<Output = Result<Vec<Committed>, Failure>> + Send;

    /// Commits one decision.
    fn commit(&self, commit: Commit) -> impl Future<Output = Result<Committed, Failure>> + Send;

    /// Looks at the tasks of a role that can be claimed, in the order of their effective priority,
    /// lets `decide` judge each with what a claim reads, and commits what it decides, in one turn.
    fn claim(
        &self,
        ask: ClaimAsk,
        decide: Decide,
    ) -> impl Future<Output = Result<Vec<Claim>, Failure>> + Send;

    /// The roles that have tasks which could be claimed now.
    fn waiting_roles(
        &self,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Takes rows that are due, earliest first; nobody else is given them for `hold`. No revision
    /// moves: a row that is not changed meanwhile is due again after that.
    fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Due>, Failure>> + Send;

    /// Sets when a row is due, unless it was changed since `revision`. No revision moves.
    fn rearm(
        &self,
        key: Key,
        revision: belay_kernel::Revision,
        due_at: Option<Timestamp>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Renews leases. Answered after the commit, in order.
    fn beat(
        &self,
        beats: Vec<Beat>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Beaten>, Failure>> + Send;

    /// The leases of one kind: who is present.
    fn leases(&self, kind: LeaseKind) -> impl Future<Output = Result<Vec<Lease>, Failure>> + Send;

    /// Extends all open leases of a kind by `by`: our own downtime is no one's silence.
    fn extend_leases(
        &self,
        kind: LeaseKind,
        by: Span,
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Events after `cursor`, in order.
    fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> impl Future<Output = Result<Events, Failure>> + Send;

    /// The cursor after the last event.
    fn latest(&self) -> impl Future<Output = Result<Cursor, Failure>> + Send;

    /// The cursor before the oldest event that is kept.
    fn oldest(&self) -> impl Future<Output = Result<Cursor, Failure>> + Send;

    /// Waits until there may be events after `cursor`, or for at most `patience`. A hint: whoever
    /// needs to be sure reads. The in-memory store has no timer and waits for the event alone.
    fn await_events(
        &self,
        cursor: Cursor,
        patience: std::time::Duration,
    ) -> impl Future<Output = ()> + Send;

    /// Takes effects that are due; nobody else is given them for `hold`.
    fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Effect>, Failure>> + Send;

    /// Settles effects. Tells, in order, whether each was still held with these tries.
    fn settle_effects(
        &self,
        settled: Vec<Settled>,
    ) -> impl Future<Output = Result<Vec<bool>, Failure>> + Send;

    /// The answer that was given to a request, if one was.
    fn answered(
        &self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<Answered>, Failure>> + Send;

    /// Forgets what is old, a bounded amount at a time; asked again until nothing is forgotten.
    fn prune(&self, prune: Prune) -> impl Future<Output = Result<Pruned, Failure>> + Send;

    /// Which installation this is.
    fn installation(&self) -> Installation;

    /// The time that decisions are made by: the database's with several nodes. Within a process it
    /// never goes back.
    fn now(&self) -> impl Future<Output = Result<Timestamp, Failure>> + Send;
}

fn bounded(asked: usize) -> Result<(), Failure> {
    let max = MAX_BATCH;
    if asked > max { Err(Refusal::TooMany { asked, max }.into()) } else { Ok(()) }
}

impl<E: Engine> Store for E {
    async fn load<R: Record>(&self, ids: &[R::Id]) -> Result<Vec<Option<Stored<R>>>, Failure> {
        bounded(ids.len())?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = ids.iter().map(Key::of::<R>).collect();
        let rows = self.read(R::table(), keys).await?;
        rows.iter().map(|row| row.as_ref().map(Stored::read).transpose()).collect()
    }

    async fn list<R: Record>(&self, query: Query<R>) -> Result<Page<R>, Failure> {
        bounded(query.limit)?;
        let scan = query.scan()?;
        let rows = self.scan(scan).await?;
        Page::read(&rows, query.limit)
    }

    async fn tally<R: Record>(&self, column: &'static str) -> Result<Vec<(String, u64)>, Failure> {
        assert!(R::table().column(column).is_some(), "{} has no {column}", R::table().name);
        Engine::tally(self, R::table(), column).await
    }

    async fn gather(&self, gather: Gather) -> Result<Gathered, Failure> {
        bounded(gather.reads.len())?;
        Ok(Gathered(Engine::gather(self, gather.reads).await?))
    }

    async fn commit_all(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        bounded(commits.len())?;
        let mut answers: Vec<Option<Committed>> = Vec::with_capacity(commits.len());
        let mut sound = Vec::with_capacity(commits.len());
        for commit in commits {
            match commit.check() {
                Ok(()) => {
                    answers.push(None);
                    sound.push(commit);
                }
                Err(refusal) => answers.push(Some(Committed::Refused(refusal))),
            }
        }
        if sound.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        let mut done = Engine::commit(self, sound).await?.into_iter();
        Ok(answers.into_iter().filter_map(|answer| answer.or_else(|| done.next())).collect())
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, Failure> {
        if let Err(refusal) = commit.check() {
            return Ok(Committed::Refused(refusal));
        }
        let mut done = Engine::commit(self, vec![commit]).await?;
        done.pop().ok_or(Failure::Closed)
    }

    async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        bounded(ask.limit)?;
        Engine::claim(self, ask, decide).await
    }

    async fn waiting_roles(&self, now: Timestamp) -> Result<Vec<String>, Failure> {
        Engine::waiting_roles(self, now).await
    }

    async fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Due>, Failure> {
        bounded(limit)?;
        let mut due = Engine::take_due(self, now, hold, limit).await?;
        due.sort();
        Ok(due)
    }

    async fn rearm(
        &self,
        key: Key,
        revision: belay_kernel::Revision,
        due_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        Engine::rearm(self, key, revision, due_at).await
    }

    async fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> Result<Vec<Beaten>, Failure> {
        bounded(beats.len())?;
        Engine::beat(self, beats, now).await
    }

    async fn leases(&self, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
        Engine::leases(self, kind).await
    }

    async fn extend_leases(&self, kind: LeaseKind, by: Span) -> Result<u64, Failure> {
        Engine::extend_leases(self, kind, by).await
    }

    async fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        bounded(limit)?;
        if cursor.epoch != Engine::installation(self).epoch {
            return Err(Refusal::ForeignCursor.into());
        }
        Engine::events(self, cursor, filter, limit).await
    }

    async fn latest(&self) -> Result<Cursor, Failure> {
        let (_, newest) = self.event_range().await?;
        Ok(Cursor { epoch: Engine::installation(self).epoch, number: newest })
    }

    async fn oldest(&self) -> Result<Cursor, Failure> {
        let (oldest, _) = self.event_range().await?;
        Ok(Cursor { epoch: Engine::installation(self).epoch, number: oldest.saturating_sub(1) })
    }

    async fn await_events(&self, cursor: Cursor, patience: std::time::Duration) {
        Engine::await_events(self, cursor.number, patience).await;
    }

    async fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Effect>, Failure> {
        bounded(limit)?;
        Engine::take_effects(self, now, hold, limit).await
    }

    async fn settle_effects(&self, settled: Vec<Settled>) -> Result<Vec<bool>, Failure> {
        bounded(settled.len())?;
        Engine::settle_effects(self, settled).await
    }

    async fn answered(&self, principal: &str, key: &str) -> Result<Option<Answered>, Failure> {
        if principal.contains('\0') || key.contains('\0') {
            return Ok(None);
        }
        Engine::answered(self, principal.to_owned(), key.to_owned()).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, Failure> {
        Engine::prune(self, prune).await
    }

    fn installation(&self) -> Installation {
        Engine::installation(self)
    }

    async fn now(&self) -> Result<Timestamp, Failure> {
        Engine::now(self).await
    }
}
