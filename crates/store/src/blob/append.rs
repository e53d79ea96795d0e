//! Growing: an append names its offset, and what is there already must be the same.

use std::time::Duration;

use bytes::Bytes;
use std::ops::Range;

use super::backend::Put;
use super::chain::{Folder, PAUSE, View, slot};
use super::error::{BlobError, Refusal};
use super::key::BlobKey;
use super::link::Link;
use super::read::Piece;
use super::{BlobLimits, Blobs};

/// How often a place may turn out to be taken before we give up.
const TRIES: u32 = 32;
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl Blobs {
    /// Stores `bytes` at `offset` and answers the blob's length, up to which everything is durable.
    ///
    /// What is stored already must be the same; only what goes beyond is added. A gap, other bytes,
    /// a seal or a passed limit is a refusal with the current length, and nothing is stored.
    /// After a failure it is not known whether the bytes arrived: send them again.
    pub async fn append(
        &self,
        key: BlobKey,
        offset: u64,
        bytes: impl Into<Bytes>,
    ) -> Result<u64, BlobError> {
        let (bytes, max) = (bytes.into(), self.limits().append);
        if bytes.len() as u64 > max {
            return Err(Refusal::TooLarge { bytes: bytes.len() as u64, max }.into());
        }
        if offset.checked_add(bytes.len() as u64).is_none() {
            return Err(Refusal::BadRange { start: offset, end: u64::MAX }.into());
        }
        self.extend(key, &Link::Data { start: offset, bytes }).await
    }

    /// Records that the bytes of `range` cannot be had, so that what comes after them can be
    /// stored. Bytes that are stored cannot be declared missing.
    pub async fn append_missing(&self, key: BlobKey, range: Range<u64>) -> Result<u64, BlobError> {
        if range.start >= range.end {
            return Err(Refusal::BadRange { start: range.start, end: range.end }.into());
        }
        self.extend(key, &Link::Missing(range)).await
    }

    async fn extend(&self, key: BlobKey, addition: &Link) -> Result<u64, BlobError> {
        let folder = self.folder(key);
        let tail = self.tail(key);
        let mut tail = tail.lock().await;
        for attempt in 1..=TRIES {
            // Taken, so that whatever ends this early leaves nothing to believe in.
            let length = match tail.take() {
                Some(length) => length,
                None => open_length(&folder).await?,
            };
            let range = addition.range();
            if range.start > length {
                *tail = Some(length);
                return Err(Refusal::Gap { key, offset: range.start, length }.into());
            }
            if range.start < length && !range.is_empty() {
                self.compare(key, addition, length).await?;
            }
            if range.end <= length {
                *tail = Some(length);
                return Ok(length);
            }
            check_total(self.limits(), key, range.end, length)?;
            let link = addition_from(addition, length);
            match folder.backend.put(&folder.object(&slot(length)), link.encode()).await? {
                Put::Done if folder.is_open().await? => {
                    *tail = Some(range.end);
                    return Ok(range.end);
                }
                Put::Done => self.withdraw(&folder, length).await?,
                Put::Taken => tokio::time::sleep((PAUSE * (attempt - 1)).min(LONGEST_PAUSE)).await,
            }
        }
        Err(BlobError::Contended { key })
    }

    /// Removes a link that was put where a sealed or deleted blob had been.
    async fn withdraw(&self, folder: &Folder<'_>, start: u64) -> Result<(), BlobError> {
        match folder.manifest().await? {
            Some(manifest) => folder.sweep(&manifest).await,
            None if folder.is_open().await? => Ok(()),
            None => folder.backend.delete(vec![folder.object(&slot(start))]).await,
        }
    }

    /// Refuses an addition that differs from what is stored below `length`.
    async fn compare(&self, key: BlobKey, addition: &Link, length: u64) -> Result<(), BlobError> {
        let range = addition.range();
        let (mut at, end) = (range.start, range.end.min(length));
        let conflict = |at| Err(Refusal::Conflict { key, at, length }.into());
        while at < end {
            let stored = self.read(key, at..end).await?;
            if stored.pieces.is_empty() {
                return conflict(at);
            }
            for piece in stored.pieces {
                match (&piece, addition) {
                    (Piece::Missing(_), Link::Missing(_)) => {}
                    (Piece::Bytes { bytes, .. }, Link::Data { start, bytes: sent }) => {
                        let from = usize::try_from(at - start).unwrap_or(usize::MAX);
                        let sent = &sent[from..from + bytes.len()];
                        if let Some(differs) = (0..sent.len()).find(|i| sent[*i] != bytes[*i]) {
                            return conflict(at + differs as u64);
                        }
                    }
                    _ => return conflict(at),
                }
                at = piece.range().end;
            }
        }
        Ok(())
    }
}

/// The length of a blob that can grow, with everything up to it made durable.
async fn open_length(folder: &Folder<'_>) -> Result<u64, BlobError> {
    let sealed = |length| Err(Refusal::Sealed { key: folder.key, length }.into());
    let length = match folder.look().await? {
        View::Absent => 0,
        View::Chain(chain) if chain.closed => return sealed(chain.length()),
        View::Chain(chain) => chain.length(),
        View::Sealed(manifest) => return sealed(manifest.length),
    };
    folder.backend.settle(&folder.path()).await?;
    Ok(length)
}

/// Refuses a blob that would be larger than blobs may be.
pub(crate) fn check_total(
    limits: &BlobLimits,
    key: BlobKey,
    bytes: u64,
    length: u64,
) -> Result<(), BlobError> {
    if bytes > limits.total {
        return Err(Refusal::Full { key, bytes, max: limits.total, length }.into());
    }
    Ok(())
}

/// What of an addition lies at `length` and beyond.
fn addition_from(addition: &Link, length: u64) -> Link {
    match addition {
        Link::Data { start, bytes } => {
            let stored = usize::try_from(length - start).unwrap_or(usize::MAX);
            Link::Data { start: length, bytes: bytes.slice(stored..) }
        }
        Link::Missing(range) => Link::Missing(length..range.end),
        Link::End(at) => Link::End(*at),
    }
}
