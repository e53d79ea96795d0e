//! The bytes of one object: a header that says what it is, then what it holds.
//!
//! ```text
//!   0      4     5    8         16        24              56
//!   | magic | kind | 0 | start u64 | len u64 | BLAKE3 (32) | bytes …
//! ```
//!
//! The hash covers the header's first 24 bytes and what follows it, so that an object that was cut
//! short, altered or put in another's place does not pass. Numbers are big-endian.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The length of the header.
pub(crate) const HEADER: usize = 56;
const FIELDS: usize = 24;
const MAGIC: &[u8; 4] = b"BLY1";

/// One link of a blob's chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Bytes.
    Data {
        /// Where they belong.
        start: u64,
        /// The bytes, at least one.
        bytes: Bytes,
    },
    /// Bytes that could not be had.
    Missing(Range<u64>),
    /// The end: nothing can follow.
    End(u64),
}

impl Link {
    /// Where the link begins.
    pub(crate) const fn start(&self) -> u64 {
        match self {
            Self::Data { start, .. } | Self::End(start) => *start,
            Self::Missing(range) => range.start,
        }
    }

    /// The bytes of the blob that it stands for.
    pub(crate) const fn range(&self) -> Range<u64> {
        match self {
            Self::Data { start, bytes } => *start..*start + bytes.len() as u64,
            Self::Missing(range) => range.start..range.end,
            Self::End(at) => *at..*at,
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => b'd',
            Self::Missing(_) => b'm',
            Self::End(_) => b'e',
        }
    }

    /// The object's bytes: the header, and what follows it.
    pub(crate) fn encode(&self) -> [Bytes; 2] {
        let range = self.range();
        let body = match self {
            Self::Data { bytes, .. } => bytes.clone(),
            Self::Missing(_) | Self::End(_) => Bytes::new(),
        };
        let mut header = BytesMut::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&[self.kind(), 0, 0, 0]);
        header.extend_from_slice(&range.start.to_be_bytes());
        header.extend_from_slice(&(range.end - range.start).to_be_bytes());
        let hash = hash(&header, &body);
        header.extend_from_slice(hash.as_bytes());
        [header.freeze(), body]
    }

    /// Reads an object's bytes, or says what is wrong with them.
    pub(crate) fn decode(object: &Bytes) -> Result<Self, &'static str> {
        if object.len() < HEADER {
            return Err("was cut short");
        }
        let (fields, rest) = object.split_at(FIELDS);
        let number = |at: usize| {
            fields[at..at + 8].iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        let (start, len) = (number(8), number(16));
        let end = start.checked_add(len).ok_or("has an impossible length")?;
        if &fields[..4] != MAGIC {
            return Err("is not one of ours");
        }
        let body = object.slice(HEADER..);
        let link = match fields[4] {
            b'd' if (body.len() as u64) < len => return Err("was cut short"),
            b'd' if len > 0 => Self::Data { start, bytes: body.clone() },
            b'm' if len > 0 => Self::Missing(start..end),
            b'e' if len == 0 => Self::End(start),
            _ => return Err("has a header that makes no sense"),
        };
        if hash(fields, &body).as_bytes()[..] != rest[..HEADER - FIELDS] {
            return Err("does not match its hash");
        }
        Ok(link)
    }
}

fn hash(fields: &[u8], body: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(fields).update(body).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(link: &Link) -> Bytes {
        Bytes::from(link.encode().concat())
    }

    #[test]
    fn links_survive_being_written_and_read() {
        for link in [
            Link::Data { start: 0, bytes: Bytes::from_static(b"x") },
            Link::Data { start: u64::MAX / 2, bytes: Bytes::from(vec![7; 100_000]) },
            Link::Missing(5..9),
            Link::End(0),
            Link::End(u64::MAX),
        ] {
            assert_eq!(Link::decode(&object(&link)), Ok(link));
        }
    }

    #[test]
    fn no_altered_byte_and_no_cut_passes() {
        let whole = object(&Link::Data { start: 3, bytes: Bytes::from_static(b"hello") });
        for at in 0..whole.len() {
            let mut altered = whole.to_vec();
            altered[at] ^= 0x10;
            assert!(Link::decode(&Bytes::from(altered)).is_err(), "byte {at} altered");
            assert_eq!(Link::decode(&whole.slice(..at)), Err("was cut short"), "cut at {at}");
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert_eq!(Link::decode(&Bytes::from(longer)), Err("does not match its hash"));
    }
}
