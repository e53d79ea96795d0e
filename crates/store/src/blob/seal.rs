//! Sealing: closing the chain, merging its small links, and saying what the blob is.
//!
//! 1. The *end* is put into the next place of the chain. From here on nothing can be appended.
//! 2. All links are read and checked; runs of small ones are merged into parts, large ones stay.
//! 3. `sealed` is put: length, hash, missing ranges, the list of parts. Now it alone counts.
//! 4. What it does not list is deleted.
//!
//! A crash after any step is repaired by sealing again, which finds out by itself where to go on.
//! Two that seal at once make the same parts under the same names, and one puts `sealed`. Readers
//! see the chain until step 3 and the parts after it, never a mixture.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};

use super::Blobs;
use super::append::check_total;
use super::backend::Put;
use super::chain::{Chain, Folder, Holds, LOOKS, SEALED, View, slot};
use super::error::{BlobError, Refusal};
use super::key::BlobKey;
use super::link::Link;
use super::manifest::{BlobHash, Manifest, Part, Seal};

/// How many links are fetched ahead while they are merged.
const AHEAD: usize = 8;

impl Blobs {
    /// Seals a blob that is complete and `length` bytes long. Sealing again gives the same seal.
    pub async fn seal(&self, key: BlobKey, length: u64) -> Result<Seal, BlobError> {
        self.seal_with_missing(key, length, &[]).await
    }

    /// Seals a blob of which the bytes of `missing` could not be had; what is missing at its end is
    /// recorded by this call, what is missing before must have been recorded when it was passed.
    ///
    /// If what is stored is not exactly what is said here, that is a refusal and nothing changes.
    pub async fn seal_with_missing(
        &self,
        key: BlobKey,
        length: u64,
        missing: &[Range<u64>],
    ) -> Result<Seal, BlobError> {
        let folder = self.folder(key);
        let tail = self.tail(key);
        let mut tail = tail.lock().await;
        *tail = None;
        check_total(self.limits(), key, length, 0)?;
        for _ in 0..LOOKS {
            let chain = match folder.look().await? {
                View::Absent => Chain::default(),
                View::Chain(chain) => chain,
                View::Sealed(manifest) => {
                    agree(key, manifest.length, manifest.seal().missing, length, missing)?;
                    folder.backend.settle(&folder.path()).await?;
                    folder.sweep(&manifest).await?;
                    return Ok(self.sealed(key, manifest));
                }
            };
            folder.backend.settle(&folder.path()).await?;
            let Some(chain) = self.close(&folder, chain, length, missing).await? else { continue };
            let Some(manifest) = self.merge(&folder, &chain).await? else { continue };
            // Whoever put it: the next look finds it, and ends this.
            folder.backend.put(&folder.object(SEALED), manifest.encode()).await?;
        }
        Err(BlobError::Contended { key })
    }

    fn sealed(&self, key: BlobKey, manifest: Manifest) -> Seal {
        let seal = manifest.seal();
        self.remember_seal(key, &Arc::new(manifest));
        seal
    }

    /// Puts the end, if what is stored is what is said; nothing, if another came first.
    async fn close(
        &self,
        folder: &Folder<'_>,
        mut chain: Chain,
        length: u64,
        missing: &[Range<u64>],
    ) -> Result<Option<Chain>, BlobError> {
        let mut stored = chain.clone();
        let lost = chain.length()..length;
        if !chain.closed && !lost.is_empty() {
            stored.push(&Link::Missing(lost.clone()));
        }
        agree(folder.key, chain.length(), chain.missing(), length, missing)
            .or_else(|_| agree(folder.key, stored.length(), stored.missing(), length, missing))
            .map_err(|_| differs(folder.key, chain.length(), chain.missing()))?;
        let mut links = Vec::new();
        if !chain.closed {
            links.extend((!lost.is_empty()).then_some(Link::Missing(lost)));
            links.push(Link::End(length));
        }
        for link in links {
            let place = folder.object(&slot(link.start()));
            match folder.backend.put(&place, link.encode()).await? {
                Put::Done => chain.push(&link),
                Put::Taken => return Ok(None),
            }
        }
        Ok(Some(chain))
    }

    /// Reads and checks all links, merges the small ones; nothing, if a link vanished because
    /// another has sealed the blob.
    async fn merge(
        &self,
        folder: &Folder<'_>,
        chain: &Chain,
    ) -> Result<Option<Manifest>, BlobError> {
        let mut hasher = blake3::Hasher::new();
        let mut merger =
            Merger { folder, part: self.limits().part, run: Run::default(), parts: vec![] };
        let mut links = stream::iter(chain.stretches.clone())
            .map(|stretch| async move {
                match stretch.holds {
                    Holds::Missing => (stretch, Ok(None)),
                    Holds::Data => {
                        let name = slot(stretch.range.start);
                        let data = folder.data(&name, &stretch.range).await;
                        (stretch, data)
                    }
                }
            })
            .buffered(AHEAD);
        while let Some((stretch, data)) = links.next().await {
            match (stretch.holds, data?) {
                (Holds::Missing, _) => merger.flush().await?,
                (Holds::Data, None) => return Ok(None),
                (Holds::Data, Some(bytes)) => {
                    hasher.update(&bytes);
                    merger.add(stretch.range.start, &bytes).await?;
                }
            }
        }
        merger.flush().await?;
        let missing = chain.missing().into_iter().map(|range| (range.start, range.end)).collect();
        let (length, hash) = (chain.length(), BlobHash::finish(&hasher));
        Ok(Some(Manifest { length, hash, missing, parts: merger.parts }))
    }
}

impl Folder<'_> {
    /// Deletes what a sealed blob does not need.
    pub(crate) async fn sweep(&self, manifest: &Manifest) -> Result<(), BlobError> {
        let needed =
            |name: &str| name == SEALED || manifest.parts.iter().any(|part| part.object == name);
        let objects = self.backend.list(&self.path()).await?;
        let rubbish: Vec<_> = objects
            .into_iter()
            .map(|object| object.location)
            .filter(|path| !path.filename().is_some_and(needed))
            .collect();
        if !rubbish.is_empty() {
            self.backend.delete(rubbish).await?;
        }
        self.backend.tidy(&self.path()).await
    }
}

fn differs(key: BlobKey, length: u64, missing: Vec<Range<u64>>) -> BlobError {
    Refusal::SealDiffers { key, length, missing }.into()
}

/// Refuses if what is stored is not what is said.
fn agree(
    key: BlobKey,
    length: u64,
    missing: Vec<Range<u64>>,
    said_length: u64,
    said_missing: &[Range<u64>],
) -> Result<(), BlobError> {
    if length == said_length && missing == said_missing {
        return Ok(());
    }
    Err(differs(key, length, missing))
}

/// Neighbouring links that are to become one part.
#[derive(Default)]
struct Run {
    start: u64,
    links: u32,
    bytes: BytesMut,
}

struct Merger<'a> {
    folder: &'a Folder<'a>,
    part: u64,
    run: Run,
    parts: Vec<Part>,
}

impl Merger<'_> {
    async fn add(&mut self, start: u64, bytes: &Bytes) -> Result<(), BlobError> {
        let added = bytes.len() as u64;
        if self.run.links > 0 && self.run.bytes.len() as u64 + added > self.part {
            self.flush().await?;
        }
        if self.run.links == 0 {
            self.run.start = start;
        }
        self.run.links += 1;
        self.run.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the run: a single link stays as it is, several become a part.
    async fn flush(&mut self) -> Result<(), BlobError> {
        let Run { start, links, bytes } = std::mem::take(&mut self.run);
        if links == 0 {
            return Ok(());
        }
        let end = start + bytes.len() as u64;
        let mut object = slot(start);
        if links > 1 {
            let body = Link::Data { start, bytes: bytes.freeze() }.encode();
            let hash = BlobHash::of(&body[0]).to_string();
            object = format!("part-{start:020}-{}", &hash[..32]);
            // If it is taken, then by the same bytes: its name is their hash.
            self.folder.backend.put(&self.folder.object(&object), body).await?;
        }
        self.parts.push(Part { object, start, end });
        Ok(())
    }
}
