//! Reading by ranges, across objects, also while the blob grows or is being sealed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::Blobs;
use super::chain::{Chain, Folder, Holds, LOOKS, PAUSE, View, slot};
use super::error::{BlobError, Refusal};
use super::key::BlobKey;
use super::manifest::{Manifest, Seal};

/// How many objects of one range are fetched at once.
const AT_ONCE: usize = 8;

/// A stretch of a blob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Bytes, checked against their hash.
    Bytes {
        /// Where in the blob they begin.
        offset: u64,
        /// The bytes, at least one.
        bytes: Bytes,
    },
    /// Bytes that are recorded as missing.
    Missing(Range<u64>),
}

impl Piece {
    /// Where in the blob it lies.
    pub const fn range(&self) -> Range<u64> {
        match self {
            Self::Bytes { offset, bytes } => *offset..*offset + bytes.len() as u64,
            Self::Missing(range) => range.start..range.end,
        }
    }
}

/// The answer to a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// What lies in the range, without gaps from its beginning on. It ends early at the blob's end
    /// or at the limit for one answer.
    pub pieces: Vec<Piece>,
    /// How long the blob was.
    pub length: u64,
    /// Whether it cannot grow any more.
    pub closed: bool,
}

impl Read {
    /// The bytes alone, without what is missing.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &self.pieces {
            if let Piece::Bytes { bytes, .. } = piece {
                all.extend_from_slice(bytes);
            }
        }
        all
    }
}

/// How a blob stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlobStatus {
    /// How long it is, missing bytes included.
    pub length: u64,
    /// The bytes that are recorded as missing.
    pub missing: Vec<Range<u64>>,
    /// The seal, if it has one.
    pub seal: Option<Seal>,
}

/// A stretch that is to be fetched: from which object, or none where bytes are missing.
struct Stretch {
    object: Option<(String, Range<u64>)>,
    wanted: Range<u64>,
}

impl Blobs {
    /// Reads what lies in `range`. Beyond the blob's end there is nothing, which is not an error.
    pub async fn read(&self, key: BlobKey, range: Range<u64>) -> Result<Read, BlobError> {
        if range.start > range.end {
            return Err(Refusal::BadRange { start: range.start, end: range.end }.into());
        }
        let end = range.end.min(range.start.saturating_add(self.limits().read));
        let range = range.start..end;
        let folder = self.folder(key);
        for look in 1..=LOOKS {
            let (stretches, length, closed) = self.plan(key, &range).await?;
            let fetched = stream::iter(stretches)
                .map(|stretch| fetch(&folder, stretch))
                .buffered(AT_ONCE)
                .try_collect::<Vec<_>>()
                .await?;
            if let Some(pieces) = fetched.into_iter().collect::<Option<Vec<_>>>() {
                return Ok(Read { pieces, length, closed });
            }
            // An object vanished: the blob was sealed or deleted meanwhile.
            self.forget_seal(key);
            tokio::time::sleep(PAUSE * (look - 1)).await;
        }
        Err(folder.damaged("one of its objects", "is listed but not there"))
    }

    /// How the blob stands.
    pub async fn status(&self, key: BlobKey) -> Result<BlobStatus, BlobError> {
        self.forget_seal(key); // It is asked how the blob stands, not how it stood.
        Ok(match self.view(key).await? {
            Seen::Chain(chain) => {
                BlobStatus { length: chain.length(), missing: chain.missing(), seal: None }
            }
            Seen::Sealed(manifest) => {
                let seal = manifest.seal();
                BlobStatus { length: seal.length, missing: seal.missing.clone(), seal: Some(seal) }
            }
        })
    }

    /// Reads all of a sealed blob and proves that it is what the seal says.
    pub async fn verify(&self, key: BlobKey) -> Result<Seal, BlobError> {
        self.forget_seal(key);
        let manifest = match self.view(key).await? {
            Seen::Chain(chain) => {
                return Err(Refusal::Open { key, length: chain.length() }.into());
            }
            Seen::Sealed(manifest) => manifest,
        };
        let folder = self.folder(key);
        let mut hasher = blake3::Hasher::new();
        let mut parts = stream::iter(&manifest.parts)
            .map(|part| {
                let folder = &folder;
                async move { (part, folder.data(&part.object, &part.range()).await) }
            })
            .buffered(AT_ONCE / 2);
        while let Some((part, data)) = parts.next().await {
            match data? {
                Some(bytes) => hasher.update(&bytes),
                None => return Err(folder.damaged(&part.object, "is not there")),
            };
        }
        if super::BlobHash::finish(&hasher) != manifest.hash {
            return Err(folder.damaged("the whole", "does not match its hash"));
        }
        Ok(manifest.seal())
    }

    async fn view(&self, key: BlobKey) -> Result<Seen, BlobError> {
        if let Some(manifest) = self.remembered_seal(key) {
            return Ok(Seen::Sealed(manifest));
        }
        match self.folder(key).look().await? {
            View::Absent => Err(Refusal::Unknown { key }.into()),
            View::Chain(chain) => Ok(Seen::Chain(chain)),
            View::Sealed(manifest) => {
                let manifest = Arc::new(manifest);
                self.remember_seal(key, &manifest);
                Ok(Seen::Sealed(manifest))
            }
        }
    }

    async fn plan(
        &self,
        key: BlobKey,
        range: &Range<u64>,
    ) -> Result<(Vec<Stretch>, u64, bool), BlobError> {
        Ok(match self.view(key).await? {
            Seen::Chain(chain) => (plan_chain(&chain, range), chain.length(), chain.closed),
            Seen::Sealed(manifest) => (plan_parts(&manifest, range), manifest.length, true),
        })
    }
}

enum Seen {
    Chain(Chain),
    Sealed(Arc<Manifest>),
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn plan_chain(chain: &Chain, range: &Range<u64>) -> Vec<Stretch> {
    let from = chain.stretches.partition_point(|stretch| stretch.range.end <= range.start);
    let within =
        chain.stretches[from..].iter().take_while(|stretch| stretch.range.start < range.end);
    within
        .map(|stretch| Stretch {
            object: (stretch.holds == Holds::Data)
                .then(|| (slot(stretch.range.start), stretch.range.clone())),
            wanted: overlap(&stretch.range, range),
        })
        .filter(|stretch| !stretch.wanted.is_empty())
        .collect()
}

fn plan_parts(manifest: &Manifest, range: &Range<u64>) -> Vec<Stretch> {
    let parts = manifest.parts.iter().map(|part| (part.range(), Some(part.object.clone())));
    let missing = manifest.missing.iter().map(|(start, end)| (*start..*end, None));
    let mut stretches: Vec<Stretch> = parts
        .chain(missing)
        .map(|(whole, object)| Stretch {
            wanted: overlap(&whole, range),
            object: object.map(|object| (object, whole)),
        })
        .filter(|stretch| !stretch.wanted.is_empty())
        .collect();
    stretches.sort_by_key(|stretch| stretch.wanted.start);
    stretches
}

/// Fetches a stretch; nothing, if its object is gone.
async fn fetch(folder: &Folder<'_>, stretch: Stretch) -> Result<Option<Piece>, BlobError> {
    let wanted = stretch.wanted;
    let Some((object, whole)) = stretch.object else { return Ok(Some(Piece::Missing(wanted))) };
    let Some(bytes) = folder.data(&object, &whole).await? else { return Ok(None) };
    let place = |at: u64| usize::try_from(at - whole.start).unwrap_or(usize::MAX);
    let bytes = bytes.slice(place(wanted.start)..place(wanted.end));
    Ok(Some(Piece::Bytes { offset: wanted.start, bytes }))
}
