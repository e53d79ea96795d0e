//! The shared store: PostgreSQL, for several nodes.
//!
//! ```text
//!  callers ──► queue ──► committers: lock · plan · write · COMMIT, many decisions in one
//! transaction                                        │ events, unnumbered
//!                                        ▼
//!                        sequencer (one node, under a lease) gives numbers ──NOTIFY──► followers
//! ```
//!
//! READ COMMITTED, and every row that a decision read is locked in one order before it is compared.
//! Behind a transaction pooler nothing is kept in a database session: no named statements, no
//! listener, no settings beyond a transaction. Where the sessions are our own, which is found out
//! at start, statements are parsed and planned once, and followers are told instead of looking.

mod args;
mod batch;
mod bold;
mod claims;
mod group;
mod link;
mod misc;
mod route;
mod schema;
mod sequencer;
mod text;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belay_kernel::{Revision, Span, Timestamp};
use tokio::sync::watch;

use crate::claim::{Claim, ClaimAsk, Decide};
use crate::commit::{Answered, Commit, Committed};
use crate::effect::{Effect, Settled};
use crate::engine::Engine;
use crate::event::{Cursor, EventFilter, Events};
use crate::lease::{Beat, Beaten, Lease, LeaseKind};
use crate::open::{OpenError, Steady};
use crate::query::Scan;
use crate::refusal::Failure;
use crate::row::{Key, RawRow};
use crate::store::{Due, Installation, Prune, Pruned};
use crate::table::Table;

use claims::Claimers;
use group::Committers;
use link::{Link, transact};
use sequencer::Sequencer;
pub(crate) use text::Many;

/// How PostgreSQL is reached.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=…`
    pub url: String,
    /// Certificates that are trusted besides the system's, in PEM.
    pub root_certificates: Option<PathBuf>,
    /// At most so many connections, besides the listener's.
    pub connections: usize,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long to go on trying when the database is away.
    pub patience: Duration,
    /// Whether a listener is kept; behind a transaction pooler it never is.
    pub listen: bool,
    /// Whose the sessions are.
    pub sessions: Sessions,
}

/// Whose the database's sessions are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sessions {
    /// Found out when the store is opened.
    #[default]
    FindOut,
    /// Our own: what is kept in one is there with the next transaction.
    Own,
    /// A transaction pooler's: the next transaction may be in another one.
    Shared,
}

impl PostgresOptions {
    /// The usual settings for the database at `url`.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            root_certificates: None,
            connections: 8,
            statement_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(15),
            listen: true,
            sessions: Sessions::FindOut,
        }
    }
}

/// The shared store.
pub struct Postgres {
    link: Arc<Link>,
    committers: Committers,
    claimers: Claimers,
    sequencer: Sequencer,
    installation: Installation,
    newest: watch::Receiver<u64>,
    steady: Steady,
}

impl Postgres {
    /// Opens the store, and brings its schema up to date under a lock.
    pub async fn open(options: PostgresOptions) -> Result<Self, OpenError> {
        let mut link = Link::new(options)?;
        schema::migrate(&link, crate::migrate::NEWEST).await?;
        let installation = schema::installation(&link).await?;
        let floor = schema::newest_moment(&link).await?;
        link.find_route().await?;
        let link = Arc::new(link);
        let (tell, newest) = watch::channel(0);
        let sequencer = Sequencer::start(Arc::clone(&link), tell);
        let committers = Committers::start(Arc::clone(&link), sequencer.bell());
        let claimers = Claimers::start(Arc::clone(&link), sequencer.bell());
        let steady = Steady::after(floor);
        Ok(Self { link, committers, claimers, sequencer, installation, newest, steady })
    }

    /// Whether its sessions are shared with others, as behind a transaction pooler.
    pub fn is_pooled(&self) -> bool {
        !self.link.is_own()
    }

    /// The name under which this node's sequencer holds its lease.
    pub fn sequencer_name(&self) -> &str {
        self.sequencer.name()
    }
}

impl Engine for Postgres {
    async fn read(
        &self,
        table: &'static Table,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<RawRow>>, Failure> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        transact!(self.link, close, |client| misc::rows(client, table, &keys))
    }

    async fn scan(&self, scan: Scan) -> Result<Vec<RawRow>, Failure> {
        transact!(self.link, close, |client| misc::scan(client, &scan))
    }

    async fn tally(
        &self,
        table: &'static Table,
        column: &'static str,
    ) -> Result<Vec<(String, u64)>, Failure> {
        transact!(self.link, close, |client| misc::tally(client, table, column))
    }

    async fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        self.committers.commit(commits).await
    }

    async fn claim(&self, ask: ClaimAsk, decide: Decide) -> Result<Vec<Claim>, Failure> {
        self.claimers.claim(ask, decide).await
    }

    async fn waiting_roles(&self, now: Timestamp) -> Result<Vec<String>, Failure> {
        transact!(self.link, close, |client| claims::waiting_roles(client, now))
    }

    async fn take_due(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Due>, Failure> {
        transact!(self.link, close, |client| misc::take_due(client, now, hold, limit))
    }

    async fn rearm(
        &self,
        key: Key,
        revision: Revision,
        due_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        transact!(self.link, close, |client| misc::rearm(client, &key, revision, due_at))
    }

    async fn beat(&self, beats: Vec<Beat>, now: Timestamp) -> Result<Vec<Beaten>, Failure> {
        transact!(self.link, close, |client| misc::beat(client, &beats, now))
    }

    async fn leases(&self, kind: LeaseKind) -> Result<Vec<Lease>, Failure> {
        transact!(self.link, close, |client| misc::leases(client, kind))
    }

    async fn extend_leases(&self, kind: LeaseKind, by: Span) -> Result<u64, Failure> {
        transact!(self.link, close_once, |client| misc::extend_leases(client, kind, by))
    }

    async fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        transact!(self.link, close, |client| misc::events(client, cursor, filter, limit))
    }

    async fn event_range(&self) -> Result<(u64, u64), Failure> {
        transact!(self.link, close, |client| misc::event_range(client))
    }

    async fn await_events(&self, number: u64, patience: Duration) {
        let mut newest = self.newest.clone();
        let told = newest.wait_for(|newest| *newest > number);
        let polled = async {
            // What a listener would have told, in case there is none.
            let mut pause = Duration::from_millis(50);
            loop {
                tokio::time::sleep(pause).await;
                let range = self.event_range().await;
                if range.is_ok_and(|(_, newest)| newest > number) {
                    return;
                }
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        };
        let either = futures_util::future::select(Box::pin(told), Box::pin(polled));
        let _ = tokio::time::timeout(patience, either).await;
    }

    async fn take_effects(
        &self,
        now: Timestamp,
        hold: Span,
        limit: usize,
    ) -> Result<Vec<Effect>, Failure> {
        transact!(self.link, close, |client| misc::take_effects(client, now, hold, limit))
    }

    async fn settle_effects(&self, settled: Vec<Settled>) -> Result<Vec<bool>, Failure> {
        transact!(self.link, close_once, |client| misc::settle_effects(client, &settled))
    }

    async fn answered(&self, principal: String, key: String) -> Result<Option<Answered>, Failure> {
        transact!(self.link, close, |client| misc::answered(client, &principal, &key))
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned, Failure> {
        transact!(self.link, close, |client| misc::prune(client, prune))
    }

    fn installation(&self) -> Installation {
        self.installation
    }

    /// The database's clock is the authority of all nodes.
    async fn now(&self) -> Result<Timestamp, Failure> {
        let now = transact!(self.link, close, |client| misc::clock(client))?;
        Ok(self.steady.show(now))
    }
}
