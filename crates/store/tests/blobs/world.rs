//! The places that blobs are tested in: memory, a directory, a real S3 server.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_kernel::{AttemptNumber, TaskId};
use belay_store::blob::{
    BlobError, BlobKey, BlobLimits, Blobs, Piece, Refusal, S3Config, S3Credentials,
};
use tempfile::TempDir;

use crate::server::Server;

/// Small, so that tests reach them.
pub(crate) const LIMITS: BlobLimits =
    BlobLimits { append: 10_000, total: 1_000_000, read: 200_000, part: 4_000 };

enum Ground {
    Memory,
    Directory(TempDir),
    Bucket(Server),
}

/// A place with blobs in it.
pub(crate) struct World {
    pub(crate) blobs: Blobs,
    ground: Ground,
}

impl World {
    pub(crate) async fn memory() -> Self {
        Self { blobs: Blobs::in_memory(LIMITS), ground: Ground::Memory }
    }

    pub(crate) async fn directory() -> Self {
        let root = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_directory(&root.path().join("blobs"), LIMITS).await.unwrap();
        Self { blobs, ground: Ground::Directory(root) }
    }

    pub(crate) async fn bucket() -> Self {
        let server = Server::start().await;
        let blobs = Blobs::in_bucket(&s3(&server), LIMITS).await.unwrap();
        Self { blobs, ground: Ground::Bucket(server) }
    }

    /// The same blobs as another process would see them, with nothing remembered.
    pub(crate) async fn another(&self) -> Blobs {
        match &self.ground {
            Ground::Memory => self.blobs.clone(),
            Ground::Directory(root) => {
                Blobs::in_directory(&root.path().join("blobs"), LIMITS).await.unwrap()
            }
            Ground::Bucket(server) => Blobs::in_bucket(&s3(server), LIMITS).await.unwrap(),
        }
    }

    /// The folder in which the blob's objects lie as files, if they do.
    pub(crate) fn files(&self, key: BlobKey) -> Option<PathBuf> {
        let root = match &self.ground {
            Ground::Memory => return None,
            Ground::Directory(root) => root.path().join("blobs"),
            Ground::Bucket(server) => server.bucket(),
        };
        Some(root.join(key.to_string()))
    }

    /// The names of the blob's objects.
    pub(crate) fn objects(&self, key: BlobKey) -> Vec<String> {
        self.files(key).map(|folder| names(&folder)).unwrap_or_default()
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// How the test server is reached.
pub(crate) fn s3(server: &Server) -> S3Config {
    S3Config {
        region: Some("us-east-1".into()),
        endpoint: Some(server.url()),
        credentials: Some(S3Credentials {
            access_key: "belay".into(),
            secret_key: "secret".into(),
        }),
        allow_http: true,
        deadline: Duration::from_secs(20),
        ..S3Config::new("blobs")
    }
}

/// A key that no other test uses.
pub(crate) fn fresh() -> BlobKey {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let task = TaskId::from_bits(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    BlobKey::Transcript(task, AttemptNumber(1))
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Everything in the blob, in as many reads as it takes.
pub(crate) async fn read_all(blobs: &Blobs, key: BlobKey) -> Result<Vec<u8>, BlobError> {
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let read = blobs.read(key, at..u64::MAX).await?;
        let Some(last) = read.pieces.last() else { return Ok(all) };
        for piece in &read.pieces {
            assert_eq!(piece.range().start, at, "no gap and no double");
            at = piece.range().end;
        }
        assert_eq!(last.range().end, at);
        all.extend(read.bytes());
    }
}

pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, BlobError>) -> Refusal {
    answer.expect_err("it should be refused").refusal().expect("a refusal").clone()
}

pub(crate) fn bytes(offset: u64, bytes: &'static [u8]) -> Piece {
    Piece::Bytes { offset, bytes: bytes.into() }
}
