//! What a database does for the store: the same operations on cells and keys, without types.
//!
//! The typed face, [`Store`](crate::Store), is written once over this; a database implements this.

use std::future::Future;
use std::time::Duration;

use belay_kernel::{Revision, Span, Timestamp};

use crate::claim::{Claim, ClaimAsk, Decide};
use crate::commit::{Answered, Commit, Committed};
use crate::effect::{Effect, Settled};
use crate::event::{Cursor, EventFilter, Events};
use crate::gather::Read;
use crate::lease::{Beat, Beaten, Lease, LeaseKind};
use crate::query::Scan;
use crate::refusal::Failure;
use crate::row::{Key, RawRow};
use crate::store::{Due, Installation, Prune, Pruned};
use crate::table::Table;

/// What a call to a database answers with, some time.
pub trait Reply<T>: Future<Output = Result<T, Failure>> + Send {}

impl<T, F: Future<Output = Result<T, Failure>> + Send> Reply<T> for F {}

/// A database behind the store. Each method is the one of the same name in
/// [`Store`](crate::Store), with its arguments checked.
pub trait Engine: Send + Sync + 'static {
    /// Rows by key, all of one table.
    fn read(&self, table: &'static Table, keys: Vec<Key>) -> impl Reply<Vec<Option<RawRow>>>;
    /// Rows by conditions.
    fn scan(&self, scan: Scan) -> impl Reply<Vec<RawRow>>;
    /// How many rows of a table have each value of a column of names.
    fn tally(&self, table: &'static Table, column: &'static str) -> impl Reply<Vec<(String, u64)>>;
    /// Several reads, in order.
    fn gather(&self, reads: Vec<Read>) -> impl Reply<Vec<Vec<Option<RawRow>>>> {
        async move {
            let mut found = Vec::with_capacity(reads.len());
            for read in reads {
                found.push(match read {
                    Read::Keys(table, keys) => self.read(table, keys).await?,
                    Read::Scan(scan) => self.scan(scan).await?.into_iter().map(Some).collect(),
                });
            }
            Ok(found)
        }
    }
    /// Commits each of `commits` by itself.
    fn commit(&self, commits: Vec<Commit>) -> impl Reply<Vec<Committed>>;
    /// Candidates, judged and committed.
    fn claim(&self, ask: ClaimAsk, decide: Decide) -> impl Reply<Vec<Claim>>;
    /// Roles with claimable tasks.
    fn waiting_roles(&self, now: Timestamp) -> impl Reply<Vec<String>>;
    /// Rows that are due, put off by `hold`.
    fn take_due(&self, now: Timestamp, hold: Span, limit: usize) -> impl Reply<Vec<Due>>;
    /// Sets when a row is due.
    fn rearm(&self, key: Key, revision: Revision, due_at: Option<Timestamp>) -> impl Reply<()>;
    /// Renews leases.
    fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> impl Reply<Vec<Beaten>>;
    /// Lists leases.
    fn leases(&self, kind: LeaseKind) -> impl Reply<Vec<Lease>>;
    /// Extends leases.
    fn extend_leases(&self, kind: LeaseKind, by: Span) -> impl Reply<u64>;
    /// Reads events after a cursor of this installation.
    fn events(&self, cursor: Cursor, filter: EventFilter, limit: usize) -> impl Reply<Events>;
    /// The numbers of the oldest and of the newest event; `(n + 1, n)` if there is none.
    fn event_range(&self) -> impl Reply<(u64, u64)>;
    /// Waits for an event after `number`.
    fn await_events(&self, number: u64, patience: Duration) -> impl Future<Output = ()> + Send;
    /// Takes effects.
    fn take_effects(&self, now: Timestamp, hold: Span, limit: usize) -> impl Reply<Vec<Effect>>;
    /// Settles effects.
    fn settle_effects(&self, settled: Vec<Settled>) -> impl Reply<Vec<bool>>;
    /// Looks up an answer.
    fn answered(&self, principal: String, key: String) -> impl Reply<Option<Answered>>;
    /// Forgets what is old.
    fn prune(&self, prune: Prune) -> impl Reply<Pruned>;
    /// Which installation this is.
    fn installation(&self) -> Installation;
    /// The time.
    fn now(&self) -> impl Reply<Timestamp>;
}
