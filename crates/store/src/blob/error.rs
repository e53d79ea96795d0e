//! What blobs refuse, as values with stable codes, and what fails.

use std::error::Error as _;
use std::io::ErrorKind;
use std::ops::Range;
use std::time::Duration;

use object_store::client::HttpError;

use super::key::BlobKey;

/// Why an operation on a blob is not done; nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such blob.
    #[error("there is no blob {key}")]
    Unknown {
        /// Which blob.
        key: BlobKey,
    },
    /// Bytes would be missing between the blob's end and what was sent.
    #[error("{key} is {length} bytes long; bytes from {offset} on would leave a gap")]
    Gap {
        /// Which blob.
        key: BlobKey,
        /// Where the bytes should go.
        offset: u64,
        /// How long the blob is.
        length: u64,
    },
    /// Other bytes are stored at that place.
    #[error("{key} has other bytes at {at}; it is {length} bytes long")]
    Conflict {
        /// Which blob.
        key: BlobKey,
        /// The first byte that differs, or the first one recorded as missing.
        at: u64,
        /// How long the blob is.
        length: u64,
    },
    /// The blob is sealed.
    #[error("{key} is sealed at {length} bytes")]
    Sealed {
        /// Which blob.
        key: BlobKey,
        /// How long the blob is, for ever.
        length: u64,
    },
    /// What is stored is not what the seal says.
    #[error("{key} is {length} bytes long with {missing:?} missing: not what the seal says")]
    SealDiffers {
        /// Which blob.
        key: BlobKey,
        /// How long it is.
        length: u64,
        /// What is recorded as missing.
        missing: Vec<Range<u64>>,
    },
    /// The blob is not sealed yet.
    #[error("{key} is not sealed; it is {length} bytes long so far")]
    Open {
        /// Which blob.
        key: BlobKey,
        /// How long it is.
        length: u64,
    },
    /// More bytes at once than are taken.
    #[error("{bytes} bytes at once; at most {max} are taken")]
    TooLarge {
        /// How many were sent.
        bytes: u64,
        /// How many are taken.
        max: u64,
    },
    /// The blob would be larger than blobs may be.
    #[error("{key} would be {bytes} bytes long; at most {max} are kept")]
    Full {
        /// Which blob.
        key: BlobKey,
        /// How long it would be.
        bytes: u64,
        /// How long it may be.
        max: u64,
        /// How long it is.
        length: u64,
    },
    /// A range that ends before it begins.
    #[error("bytes {start} to {end} are not a range")]
    BadRange {
        /// Where it begins.
        start: u64,
        /// Where it ends.
        end: u64,
    },
}

impl Refusal {
    /// The refusal's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_blob",
            Self::Gap { .. } => "blob_gap",
            Self::Conflict { .. } => "blob_conflict",
            Self::Sealed { .. } => "blob_sealed",
            Self::SealDiffers { .. } => "blob_seal_differs",
            Self::Open { .. } => "blob_open",
            Self::TooLarge { .. } => "blob_append_too_large",
            Self::Full { .. } => "blob_full",
            Self::BadRange { .. } => "blob_bad_range",
        }
    }
}

/// What a blob operation came to, if it did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It was refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What is stored is not what was written.
    #[error("{key} is damaged: {object} {what}; restore it from a backup or delete it")]
    Damaged {
        /// Which blob.
        key: BlobKey,
        /// Which of its objects.
        object: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Other writers came first, again and again.
    #[error("{key} is being written by too many at once; try again")]
    Contended {
        /// Which blob.
        key: BlobKey,
    },
    /// There is no room.
    #[error("no room is left in {place}; free some and try again")]
    DiskFull {
        /// The directory.
        place: String,
        /// What was seen.
        #[source]
        source: object_store::Error,
    },
    /// The bucket does not exist.
    #[error("{place} does not exist; create the bucket or correct its name")]
    BucketMissing {
        /// The bucket.
        place: String,
        /// What was seen.
        #[source]
        source: object_store::Error,
    },
    /// We may not do that there.
    #[error("{place} refused our credentials; check the access key and its rights")]
    Denied {
        /// The bucket or directory.
        place: String,
        /// What was seen.
        #[source]
        source: object_store::Error,
    },
    /// The store did not answer in time, all retries included. What was sent may still arrive.
    #[error("{place} did not answer properly within {}s", after.as_secs())]
    Unreachable {
        /// The bucket.
        place: String,
        /// How long it was tried.
        after: Duration,
        /// The last thing that was seen, if anything was.
        #[source]
        source: Option<object_store::Error>,
    },
    /// The store overwrites what it was told to keep, so two writers could destroy each other.
    #[error("{place} ignores conditional writes (If-None-Match); use a store that honours them")]
    NoConditionalPut {
        /// The bucket.
        place: String,
    },
    /// The configuration cannot be used.
    #[error("{place} cannot be opened with this configuration")]
    Configuration {
        /// The bucket or directory.
        place: String,
        /// What is wrong with it.
        #[source]
        source: object_store::Error,
    },
    /// A file operation failed.
    #[error("{place} cannot be used")]
    Io {
        /// The directory.
        place: String,
        /// What was seen.
        #[source]
        source: std::io::Error,
    },
    /// Anything else that the store answered.
    #[error("{place} failed")]
    Storage {
        /// The bucket or directory.
        place: String,
        /// What was seen.
        #[source]
        source: object_store::Error,
    },
}

impl BlobError {
    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The stable code of the refusal or failure.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Damaged { .. } => "blob_damaged",
            Self::Contended { .. } => "blob_contended",
            Self::DiskFull { .. } => "blob_disk_full",
            Self::BucketMissing { .. } => "blob_bucket_missing",
            Self::Denied { .. } => "blob_denied",
            Self::Unreachable { .. } => "blob_unreachable",
            Self::NoConditionalPut { .. } => "blob_no_conditional_put",
            Self::Configuration { .. } => "blob_configuration",
            Self::Io { .. } | Self::Storage { .. } => "blob_storage",
        }
    }
}

/// Finds the error of type `E` that lies under an object store's error.
fn beneath<E: std::error::Error + 'static>(error: &object_store::Error) -> Option<&E> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Whether the connection failed, so that trying again may help. What the server *answered* in
/// error (5xx, slow down) is retried by the client itself.
pub(crate) fn is_transient(error: &object_store::Error) -> bool {
    beneath::<HttpError>(error).is_some()
}

/// The kind of the file error beneath.
pub(crate) fn io_kind(error: &object_store::Error) -> Option<ErrorKind> {
    beneath::<std::io::Error>(error).map(std::io::Error::kind)
}
