//! The seal as it is stored: what a blob is, for ever, and which objects hold it.

use std::ops::Range;

use belay_kernel::receipt::TranscriptSeal;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The hash of a blob's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobHash(blake3::Hash);

impl BlobHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    pub(crate) fn finish(hasher: &blake3::Hasher) -> Self {
        Self(hasher.finalize())
    }
}

impl std::fmt::Display for BlobHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl From<BlobHash> for String {
    fn from(hash: BlobHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for BlobHash {
    type Error = blake3::HexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        blake3::Hash::from_hex(text).map(Self)
    }
}

/// What a sealed blob is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Its length in bytes, missing ones included.
    pub length: u64,
    /// BLAKE3 of the bytes that are there, in order; what is missing adds nothing.
    pub hash: BlobHash,
    /// The bytes that could not be had, in order; none, if the blob is complete.
    pub missing: Vec<Range<u64>>,
}

impl Seal {
    /// Whether every byte is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// What a stop receipt says of a transcript.
impl From<Seal> for TranscriptSeal {
    fn from(seal: Seal) -> Self {
        Self {
            length: seal.length,
            hash: seal.hash.to_string(),
            missing: seal.missing.into_iter().map(|range| (range.start, range.end)).collect(),
        }
    }
}

/// An object that holds a part of a sealed blob.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) object: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Part {
    pub(crate) const fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// The seal and the objects that hold the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) length: u64,
    pub(crate) hash: BlobHash,
    pub(crate) missing: Vec<(u64, u64)>,
    pub(crate) parts: Vec<Part>,
}

impl Manifest {
    pub(crate) fn seal(&self) -> Seal {
        let missing = self.missing.iter().map(|(start, end)| *start..*end).collect();
        Seal { length: self.length, hash: self.hash, missing }
    }

    /// The hash of the text in hexadecimal, a line feed, the text.
    pub(crate) fn encode(&self) -> [Bytes; 2] {
        let text = serde_json::to_string(self).expect("numbers and texts can be written as JSON");
        let hash = BlobHash::of(text.as_bytes());
        [Bytes::from(format!("{hash}\n")), Bytes::from(text)]
    }

    pub(crate) fn decode(object: &Bytes) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(object).map_err(|_| "is not text")?;
        let (hash, text) = text.split_once('\n').ok_or("was cut short")?;
        if BlobHash::of(text.as_bytes()).to_string() != hash {
            return Err("does not match its hash");
        }
        serde_json::from_str(text).map_err(|_| "cannot be read by this version")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_survives_being_stored_and_no_altered_byte_passes() {
        let manifest = Manifest {
            length: 9,
            hash: BlobHash::of(b"hello"),
            missing: vec![(5, 9)],
            parts: vec![Part { object: "part".into(), start: 0, end: 5 }],
        };
        let object = Bytes::from(manifest.encode().concat());
        assert_eq!(Manifest::decode(&object), Ok(manifest.clone()));
        for at in 0..object.len() {
            let mut altered = object.to_vec();
            altered[at] ^= 1;
            assert!(Manifest::decode(&Bytes::from(altered)).is_err(), "byte {at} altered");
            assert!(Manifest::decode(&object.slice(..at)).is_err(), "cut at {at}");
        }
        let kept = TranscriptSeal::from(manifest.seal());
        assert_eq!((kept.length, kept.missing), (9, vec![(5, 9)]));
    }
}
