//! How a blob lies in its folder, and how it is looked at.
//!
//! ```text
//!   open    00000000000000000000 ─ 00000000000000004096 ─ 00000000000000004200 ─ …
//!           a chain: each link is named by where it begins, the next begins where it ends
//!   closed  … ─ an *end* in the next place: nothing can follow any more
//!   sealed  `sealed` lists the objects that hold the bytes; all others are rubbish
//! ```
//!
//! Because a link's name is its place and a name can be created only once, two writers can never
//! both extend the chain at the same point: one wins, the other finds the place taken, looks again
//! and decides again. The end is a link like any other, so a seal and an append race for the same
//! place and exactly one of them is there.
//!
//! Looking is not atomic: links may be added, merged and deleted while a folder is listed. A look
//! that does not add up is repeated; only what stays wrong is called damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;

use super::backend::Backend;
use super::error::BlobError;
use super::key::BlobKey;
use super::link::{HEADER, Link};
use super::manifest::Manifest;

/// How often a look is repeated before what it sees is believed to be damage.
pub(crate) const LOOKS: u32 = 6;
/// The pause after the first look that did not add up; later ones are longer.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// The name of the object that lists a sealed blob's parts.
pub(crate) const SEALED: &str = "sealed";

/// The name of the link that begins at `start`.
pub(crate) fn slot(start: u64) -> String {
    format!("{start:020}")
}

fn slot_start(name: &str) -> Option<u64> {
    (name.len() == 20 && name.bytes().all(|digit| digit.is_ascii_digit()))
        .then(|| name.parse().ok())
        .flatten()
}

/// What a stretch of a chain holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    Data,
    Missing,
}

/// One stretch of a chain: where it begins and ends, and what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) range: Range<u64>,
    pub(crate) holds: Holds,
}

/// A chain of links, from the blob's first byte on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) stretches: Vec<Stretch>,
    /// Whether the end is there.
    pub(crate) closed: bool,
}

impl Chain {
    pub(crate) fn length(&self) -> u64 {
        self.stretches.last().map_or(0, |last| last.range.end)
    }

    pub(crate) fn missing(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for stretch in self.stretches.iter().filter(|stretch| stretch.holds == Holds::Missing) {
            match ranges.last_mut() {
                Some(last) if last.end == stretch.range.start => last.end = stretch.range.end,
                _ => ranges.push(stretch.range.clone()),
            }
        }
        ranges
    }

    pub(crate) fn push(&mut self, link: &Link) {
        match link {
            Link::Data { .. } => {
                self.stretches.push(Stretch { range: link.range(), holds: Holds::Data });
            }
            Link::Missing(range) => {
                self.stretches.push(Stretch { range: range.clone(), holds: Holds::Missing });
            }
            Link::End(_) => self.closed = true,
        }
    }
}

/// What a look at a blob's folder showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// Nothing.
    Absent,
    /// A chain of links.
    Chain(Chain),
    /// A sealed blob.
    Sealed(Manifest),
}

/// A look that did not add up.
enum Look {
    View(View),
    Torn { object: String, what: &'static str },
}

/// A blob's folder.
pub(crate) struct Folder<'a> {
    pub(crate) backend: &'a Backend,
    pub(crate) key: BlobKey,
}

impl Folder<'_> {
    pub(crate) fn path(&self) -> Path {
        Path::from(self.key.to_string())
    }

    pub(crate) fn object(&self, name: &str) -> Path {
        self.path().join(name)
    }

    /// Looks until what is seen adds up.
    pub(crate) async fn look(&self) -> Result<View, BlobError> {
        let mut looks = 0;
        loop {
            looks += 1;
            match self.look_once().await? {
                Look::View(view) => return Ok(view),
                Look::Torn { object, what } if looks == LOOKS => {
                    return Err(self.damaged(object, what));
                }
                Look::Torn { .. } => tokio::time::sleep(PAUSE * looks).await,
            }
        }
    }

    async fn look_once(&self) -> Result<Look, BlobError> {
        let objects = self.backend.list(&self.path()).await?;
        let mut slots = BTreeMap::new();
        for object in &objects {
            let name = object.location.filename().unwrap_or_default();
            if name == SEALED {
                return Ok(match self.manifest().await? {
                    Some(manifest) => Look::View(View::Sealed(manifest)),
                    None => Look::Torn { object: SEALED.into(), what: "vanished" },
                });
            }
            if let Some(start) = slot_start(name) {
                slots.insert(start, object.size);
            }
        }
        if slots.is_empty() {
            // A folder that is listed while it is sealed may show neither links nor seal.
            return Ok(match self.backend.exists(&self.object(SEALED)).await? {
                false => Look::View(View::Absent),
                true => Look::Torn { object: SEALED.into(), what: "was not listed" },
            });
        }
        self.walk(&slots).await
    }

    /// Follows the chain through the links that were listed.
    async fn walk(&self, slots: &BTreeMap<u64, u64>) -> Result<Look, BlobError> {
        let mut chain = Chain::default();
        let last = slots.last_key_value().map(|(start, _)| *start);
        while !chain.closed {
            let at = chain.length();
            let torn = |what| Ok(Look::Torn { object: slot(at), what });
            let Some(size) = slots.get(&at).copied() else {
                if last.is_some_and(|last| last > at) {
                    return torn("is missing");
                }
                break;
            };
            let body = size.saturating_sub(HEADER as u64);
            if body > 0 && Some(at) != last {
                let range = at..at.saturating_add(body);
                chain.stretches.push(Stretch { range, holds: Holds::Data });
                continue;
            }
            // The last link is read whole: a cut would otherwise only shorten the blob.
            match self.link(&slot(at)).await? {
                Some(link) if link.start() == at => chain.push(&link),
                Some(_) => return torn("holds the bytes of another place"),
                None => return torn("vanished"),
            }
        }
        if chain.closed && last.is_some_and(|last| last > chain.length()) {
            return Ok(Look::Torn { object: slot(chain.length()), what: "ends before its links" });
        }
        Ok(Look::View(View::Chain(chain)))
    }

    /// The link in an object, if the object is there.
    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, BlobError> {
        let Some(object) = self.backend.get(&self.object(name)).await? else { return Ok(None) };
        Link::decode(&object).map(Some).map_err(|what| self.damaged(name, what))
    }

    /// The seal, if it is there.
    pub(crate) async fn manifest(&self) -> Result<Option<Manifest>, BlobError> {
        let Some(object) = self.backend.get(&self.object(SEALED)).await? else { return Ok(None) };
        Manifest::decode(&object).map(Some).map_err(|what| self.damaged(SEALED, what))
    }

    /// The bytes in an object that must hold exactly `range`; none, if it is gone.
    pub(crate) async fn data(
        &self,
        name: &str,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>, BlobError> {
        match self.link(name).await? {
            None => Ok(None),
            Some(Link::Data { start, bytes })
                if start == range.start && bytes.len() as u64 == range.end - range.start =>
            {
                Ok(Some(bytes))
            }
            Some(_) => Err(self.damaged(name, "holds other bytes than it should")),
        }
    }

    /// Whether the blob can still grow: what was just put was put into a chain, not into the
    /// remains of one that was sealed or deleted meanwhile.
    pub(crate) async fn is_open(&self) -> Result<bool, BlobError> {
        let (first, sealed) = (self.object(&slot(0)), self.object(SEALED));
        let (first, sealed) =
            tokio::try_join!(self.backend.exists(&first), self.backend.exists(&sealed))?;
        Ok(first && !sealed)
    }

    pub(crate) fn damaged(&self, object: impl Into<String>, what: &'static str) -> BlobError {
        BlobError::Damaged { key: self.key, object: object.into(), what }
    }
}
