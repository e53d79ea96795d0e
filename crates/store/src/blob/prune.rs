//! What is kept, and how it goes.
//!
//! A blob is deleted head first (its seal and first link), durably, then the rest: whatever is left
//! after a crash is not a blob any more, and deleting it again finishes the work.

use std::collections::BTreeMap;

use belay_kernel::Timestamp;
use object_store::path::Path;

use super::Blobs;
use super::chain::{SEALED, slot};
use super::error::BlobError;
use super::key::{BlobKey, BlobKind};

/// A blob as it lies in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobEntry {
    /// Which blob.
    pub key: BlobKey,
    /// How much room its objects take.
    pub stored_bytes: u64,
    /// When it was last added to, by the store's clock.
    pub modified: Timestamp,
    /// Whether it is sealed.
    pub sealed: bool,
}

/// Which blobs are pruned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PruneWhich {
    /// Sealed ones only.
    Sealed,
    /// Those that were never sealed too: nobody will come back for them.
    Abandoned,
}

/// What was pruned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// How many blobs.
    pub blobs: u64,
    /// How much room they took.
    pub stored_bytes: u64,
}

impl Blobs {
    /// All blobs of a kind, by key.
    pub async fn list(&self, kind: BlobKind) -> Result<Vec<BlobEntry>, BlobError> {
        let mut entries: BTreeMap<BlobKey, BlobEntry> = BTreeMap::new();
        for object in self.inner.backend.list(&Path::from(kind.name())).await? {
            let Some((folder, name)) = object.location.as_ref().rsplit_once('/') else { continue };
            let Ok(key) = folder.parse::<BlobKey>() else { continue };
            let modified = Timestamp::from_millis(object.last_modified.timestamp_millis());
            let fresh = BlobEntry { key, stored_bytes: 0, modified, sealed: false };
            let entry = entries.entry(key).or_insert(fresh);
            entry.stored_bytes += object.size;
            entry.modified = entry.modified.max(modified);
            entry.sealed |= name == SEALED;
        }
        Ok(entries.into_values().collect())
    }

    /// Deletes a blob, whether it is sealed, open, damaged or half deleted; says if it was there.
    pub async fn delete(&self, key: BlobKey) -> Result<bool, BlobError> {
        let folder = self.folder(key);
        let tail = self.tail(key);
        let mut tail = tail.lock().await;
        *tail = None;
        self.forget_seal(key);
        let objects = self.inner.backend.list(&folder.path()).await?;
        if objects.is_empty() {
            self.inner.backend.clear(&folder.path()).await?;
            return Ok(false);
        }
        let head = vec![folder.object(SEALED), folder.object(&slot(0))];
        self.inner.backend.delete(head.clone()).await?;
        self.inner.backend.settle(&folder.path()).await?;
        let rest = objects.into_iter().map(|object| object.location);
        let rest: Vec<_> = rest.filter(|path| !head.contains(path)).collect();
        if !rest.is_empty() {
            self.inner.backend.delete(rest).await?;
        }
        self.inner.backend.clear(&folder.path()).await?;
        Ok(true)
    }

    /// Deletes the blobs of a kind that were last added to before `before`.
    pub async fn prune(
        &self,
        kind: BlobKind,
        before: Timestamp,
        which: PruneWhich,
    ) -> Result<Pruned, BlobError> {
        let mut pruned = Pruned::default();
        for entry in self.list(kind).await? {
            let ripe = entry.sealed || which == PruneWhich::Abandoned;
            if ripe && entry.modified < before && self.delete(entry.key).await? {
                pruned.blobs += 1;
                pruned.stored_bytes += entry.stored_bytes;
            }
        }
        Ok(pruned)
    }
}
