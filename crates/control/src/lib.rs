//! The control plane's side: what is asked is admitted, decided by the kernel, committed, and
//! performed.
//!
//! ```text
//!  a person's verb ─┐                                     ┌─► events (people, programs)
//!  a runner's word ─┼─► look ─► decide (kernel) ─► commit ─┼─► effects, performed at least once
//!  a passed clock  ─┘     ▲          overtaken │          └─► duties of runners
//!                         └────────────────────┘
//! ```
//!
//! Nothing here remembers what the database does not: a node that is killed loses nothing, and a
//! second one on the same database is as good as the first. What is kept in memory are hints.

mod absent;
mod admit;
mod alert;
mod ask;
mod assignment;
mod beat;
mod claim;
mod clock;
mod commit;
mod condemn;
mod finish;
mod follow;
mod frozen;
mod ingest;
mod look;
mod mailbox;
mod mask;
pub mod metrics;
mod orphan;
mod perform;
mod port;
mod prompt;
mod publish;
mod read;
mod refuse;
mod remove;
mod report;
mod sandbox;
mod settings;
mod show;
mod speak;
mod sweep;
mod tell;
mod terminate;
#[cfg(test)]
mod testing;
mod token;
pub mod trace;
mod vault;
mod verb;
mod webhook;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use belay_api::Chance;
use belay_kernel::{AttemptNumber, NodeId, RunnerId, TaskId, Timestamp};
use belay_store::blob::Blobs;
use belay_store::{Failure, Store};
use tokio::sync::Notify;

use mailbox::Mailboxes;
pub use settings::{RoleSettings, Settings};
pub use vault::{FileVault, MemoryVault, Vault, VaultError};
pub use webhook::{Courier, Delivery, HookSettings, HttpCourier, Parcel, Undelivered};

/// The control plane of one node. Clones are the same one.
pub struct Control<S> {
    inner: Arc<Inner<S>>,
}

impl<S> Clone for Control<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

/// What a control plane is made of.
pub struct Parts<S> {
    /// What is remembered.
    pub store: S,
    /// What is too long for a row.
    pub blobs: Blobs,
    /// The values of variables, which are in no row.
    pub vault: Arc<dyn Vault>,
    /// Where ids and jitter come from.
    pub chance: Arc<dyn Chance>,
    /// The numbers, and what roles mean.
    pub settings: Settings,
    /// The runner inside this process, whose attempts have the embedded lease.
    pub embedded: Option<RunnerId>,
    /// How the database is backed up while it runs, where that is ours to do.
    pub back_up: Option<BackUp>,
    /// Who carries letters to webhooks; without one, another node does.
    pub courier: Option<Arc<dyn Courier>>,
}

/// Backs a database up to a path, and tells how many bytes that took; or a sentence why not.
pub type BackUp =
    Box<dyn Fn(PathBuf) -> Pin<Box<dyn Future<Output = Result<u64, String>> + Send>> + Send + Sync>;

struct Inner<S> {
    store: S,
    blobs: Blobs,
    vault: Arc<dyn Vault>,
    chance: Arc<dyn Chance>,
    settings: Settings,
    embedded: Option<RunnerId>,
    back_up: Option<BackUp>,
    courier: Option<Arc<dyn Courier>>,
    node: NodeId,
    started_at: Timestamp,
    /// Since when this node could commit without a break: silence before is not evidence.
    up_since: AtomicI64,
    /// When it last showed that it can, by its own clock.
    stayed: Mutex<tokio::time::Instant>,
    /// Whether the store's clock goes as ours does.
    watch: clock::Watch,
    /// The attempts whose runners have reported since then: what they have not told has not
    /// happened.
    heard: Mutex<BTreeSet<(TaskId, AttemptNumber)>>,
    mailboxes: Mailboxes,
    /// There may be effects to perform.
    effects: Notify,
    /// A transcript may have grown.
    output: Notify,
    /// Webhooks or their letters may have changed.
    letters: Notify,
    /// What runners' providers had when they were last asked.
    sightings: Mutex<BTreeMap<RunnerId, alert::Sighting>>,
    /// What this process counts of itself.
    gauges: metrics::Gauges,
    /// Something was committed here: whoever waits for a row looks again.
    committed: Notify,
}

impl<S: Store> Control<S> {
    /// A control plane over a store. Its sweeps begin with [`Control::tend`].
    pub async fn open(parts: Parts<S>) -> Result<Self, Failure> {
        let asked = tokio::time::Instant::now();
        #[expect(clippy::disallowed_methods, reason = "the first reading is compared with none")]
        let started_at = parts.store.now().await?;
        let inner = Inner {
            node: NodeId::from_bits(parts.chance.draw()),
            store: parts.store,
            blobs: parts.blobs,
            vault: parts.vault,
            chance: parts.chance,
            settings: parts.settings,
            embedded: parts.embedded,
            back_up: parts.back_up,
            courier: parts.courier,
            started_at,
            up_since: AtomicI64::new(started_at.as_millis()),
            stayed: Mutex::new(asked),
            watch: clock::Watch::begun(asked, started_at),
            heard: Mutex::default(),
            mailboxes: Mailboxes::default(),
            effects: Notify::new(),
            output: Notify::new(),
            letters: Notify::new(),
            sightings: Mutex::default(),
            gauges: metrics::Gauges::default(),
            committed: Notify::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// When this node was opened.
    pub fn started_at(&self) -> Timestamp {
        self.inner.started_at
    }

    fn store(&self) -> &S {
        &self.inner.store
    }

    fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}
