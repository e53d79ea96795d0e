//! Blobs: what is too long for a row. Transcripts, raw logs, kept trees, session files, snapshots.
//!
//! A blob grows by appends that name their offset, is read by ranges also while it grows, and is
//! sealed once, with its length and hash. An append that was answered is durable: fsynced, or put
//! into the bucket. The same layout lies in a directory, in a bucket and in memory; `chain` draws
//! it.
//!
//! - Bytes that were acknowledged are never replaced, reordered or lost, whoever else writes.
//! - Sending the same bytes to the same place again changes nothing and is acknowledged again.
//! - What is read has been checked against its hash; damage is an error that names the blob.
//! - Nothing half-written can be seen: an append is one object, created whole or not at all.
//!
//! Rejected: a file that is appended to in place (a bucket has no such thing, and a torn write must
//! be told from a whole one); names with length and hash (two writers could both extend the same
//! point); multipart uploads (nothing is visible, hence nothing is durable, until they complete).

mod append;
mod backend;
mod chain;
mod error;
mod key;
mod link;
mod manifest;
mod prune;
mod read;
mod seal;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use backend::Backend;
use chain::Folder;
use manifest::Manifest;

pub use error::{BlobError, Refusal};
pub use key::{BlobKey, BlobKind, KeyError};
pub use manifest::{BlobHash, Seal};
pub use prune::{BlobEntry, PruneWhich, Pruned};
pub use read::{BlobStatus, Piece, Read};

/// How many blobs' ends and seals are remembered in this process.
const REMEMBERED: usize = 4096;

/// How large things may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobLimits {
    /// Bytes in one append.
    pub append: u64,
    /// Bytes in one blob, missing ones included.
    pub total: u64,
    /// Bytes in one answer to a read; a longer range is answered in part.
    pub read: u64,
    /// Bytes in one object that a seal merges small appends into.
    pub part: u64,
}

impl Default for BlobLimits {
    fn default() -> Self {
        Self { append: 8 << 20, total: 16 << 30, read: 32 << 20, part: 4 << 20 }
    }
}

/// The keys to a bucket.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Credentials {
    /// The access key's id.
    pub access_key: String,
    /// The secret that belongs to it.
    pub secret_key: String,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Where a bucket is and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Config {
    /// The bucket's name.
    pub bucket: String,
    /// Its region; what the environment says, if it is not given.
    pub region: Option<String>,
    /// The server, if it is not AWS itself; the bucket is then named in the path.
    pub endpoint: Option<String>,
    /// A folder in the bucket, for buckets that hold other things too.
    pub prefix: Option<String>,
    /// The credentials; what the environment or the machine's role gives, if they are not given.
    pub credentials: Option<S3Credentials>,
    /// Whether an endpoint without TLS is spoken to.
    pub allow_http: bool,
    /// How long an operation may take with all its retries.
    pub deadline: Duration,
}

impl S3Config {
    /// A bucket on AWS, with everything else taken from the environment.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            region: None,
            endpoint: None,
            prefix: None,
            credentials: None,
            allow_http: false,
            deadline: Duration::from_secs(20),
        }
    }
}

/// `bucket belay at https://…`: as errors name it.
impl fmt::Display for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket {}", self.bucket)?;
        self.endpoint.iter().try_for_each(|endpoint| write!(f, " at {endpoint}"))
    }
}

/// Where a blob ends, if it is known; held while it is extended, so that appends queue up here
/// instead of racing in the store.
type Tail = Arc<AsyncMutex<Option<u64>>>;

#[derive(Debug)]
struct Inner {
    backend: Backend,
    limits: BlobLimits,
    tails: Mutex<BTreeMap<BlobKey, Tail>>,
    seals: Mutex<BTreeMap<BlobKey, Arc<Manifest>>>,
}

/// All blobs of an installation. Clones share everything.
#[derive(Clone, Debug)]
pub struct Blobs {
    inner: Arc<Inner>,
}

impl Blobs {
    /// Blobs in memory, for simulation; they are gone with the last clone.
    pub fn in_memory(limits: BlobLimits) -> Self {
        Self::new(Backend::memory(), limits)
    }

    /// Blobs in a directory, which is made if need be.
    pub async fn in_directory(root: &Path, limits: BlobLimits) -> Result<Self, BlobError> {
        Self::checked(Backend::directory(root)?, limits).await
    }

    /// Blobs in a bucket of an S3-compatible store that honours conditional writes.
    pub async fn in_bucket(config: &S3Config, limits: BlobLimits) -> Result<Self, BlobError> {
        Self::checked(Backend::bucket(config)?, limits).await
    }

    async fn checked(backend: Backend, limits: BlobLimits) -> Result<Self, BlobError> {
        backend.check().await?;
        Ok(Self::new(backend, limits))
    }

    fn new(backend: Backend, limits: BlobLimits) -> Self {
        let (tails, seals) = (Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { backend, limits, tails, seals }) }
    }

    /// The limits that hold here.
    pub fn limits(&self) -> &BlobLimits {
        &self.inner.limits
    }

    fn folder(&self, key: BlobKey) -> Folder<'_> {
        Folder { backend: &self.inner.backend, key }
    }

    fn tail(&self, key: BlobKey) -> Tail {
        let mut tails = self.inner.tails.lock().unwrap_or_else(PoisonError::into_inner);
        if tails.len() >= REMEMBERED && !tails.contains_key(&key) {
            // What nobody holds can be looked up again.
            tails.retain(|_, tail| Arc::strong_count(tail) > 1);
        }
        Arc::clone(tails.entry(key).or_default())
    }

    fn remembered_seal(&self, key: BlobKey) -> Option<Arc<Manifest>> {
        self.inner.seals.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn remember_seal(&self, key: BlobKey, manifest: &Arc<Manifest>) {
        let mut seals = self.inner.seals.lock().unwrap_or_else(PoisonError::into_inner);
        if seals.len() >= REMEMBERED {
            seals.clear();
        }
        seals.insert(key, Arc::clone(manifest));
    }

    fn forget_seal(&self, key: BlobKey) {
        self.inner.seals.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}
