//! Where objects lie: a directory, a bucket or memory, behind four verbs that never half succeed.
//!
//! *Put* creates an object whole or finds its place taken; nothing is ever overwritten. *Get*,
//! *list* and *delete* are what they say. All four may be repeated, so a failed connection is
//! tried again, with growing pauses, until the deadline.
//!
//! A directory answers a put only when the file and its folder are fsynced. What another process
//! put there before it was killed may be visible without being durable, so [`Backend::settle`]
//! fsyncs the folders before anyone builds on what they hold.

use std::fmt;
use std::fs::{DirEntry, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, RetryConfig,
};
use tokio::time::Instant;

use super::S3Config;
use super::error::{BlobError, io_kind, is_transient};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How old a half-written file must be before nobody can be writing it any more.
const HALF_WRITTEN: Duration = Duration::from_secs(600);

/// What became of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// The object is there, durably.
    Done,
    /// There is an object of that name already: another's, or ours from a lost answer.
    Taken,
}

enum Ground {
    Memory,
    Directory(PathBuf),
    Bucket,
}

/// A place for objects.
pub(crate) struct Backend {
    store: Arc<dyn ObjectStore>,
    place: String,
    ground: Ground,
    deadline: Duration,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.place)
    }
}

impl Backend {
    pub(crate) fn memory() -> Self {
        Self {
            store: Arc::new(InMemory::new()),
            place: "memory".into(),
            ground: Ground::Memory,
            deadline: Duration::MAX,
        }
    }

    pub(crate) fn directory(root: &FilePath) -> Result<Self, BlobError> {
        let place = root.display().to_string();
        let failed = |source| BlobError::Io { place: place.clone(), source };
        std::fs::create_dir_all(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        for folder in root.ancestors().take(2) {
            sync_folder(folder).map_err(failed)?;
        }
        let store = LocalFileSystem::new_with_prefix(&root)
            .map_err(|source| BlobError::Configuration { place: place.clone(), source })?
            .with_fsync(true);
        Ok(Self {
            store: Arc::new(store),
            place,
            ground: Ground::Directory(root),
            deadline: Duration::MAX,
        })
    }

    pub(crate) fn bucket(config: &S3Config) -> Result<Self, BlobError> {
        // Refused only if another provider was installed before, which then serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let place = config.to_string();
        let wrong = |source| BlobError::Configuration { place: place.clone(), source };
        if config.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"))
            && !config.allow_http
        {
            let source = "an endpoint without TLS must be allowed explicitly".into();
            return Err(wrong(Error::NotSupported { source }));
        }
        let store = s3_builder(config).build().map_err(wrong)?;
        let store: Arc<dyn ObjectStore> = match &config.prefix {
            Some(prefix) => {
                let prefix = Path::parse(prefix).map_err(|error| wrong(error.into()))?;
                Arc::new(PrefixStore::new(store, prefix))
            }
            None => Arc::new(store),
        };
        Ok(Self { store, place, ground: Ground::Bucket, deadline: config.deadline })
    }

    /// Proves that objects can be listed and put here, and that none can be overwritten.
    pub(crate) async fn check(&self) -> Result<(), BlobError> {
        let folder = Path::from("probe");
        let probe = folder.clone().join(format!("{:016x}", draw()));
        self.list(&folder).await?;
        self.settle(&folder).await?;
        let body = || [Bytes::from_static(b"belay"), Bytes::new()];
        self.put(&probe, body()).await?;
        let second = self.put(&probe, body()).await;
        self.delete(vec![probe]).await?;
        match second? {
            Put::Taken => Ok(()),
            Put::Done => Err(BlobError::NoConditionalPut { place: self.place.clone() }),
        }
    }

    /// Creates an object, durably, unless there is one of that name.
    pub(crate) async fn put(&self, path: &Path, body: [Bytes; 2]) -> Result<Put, BlobError> {
        let payload: PutPayload = body.into_iter().filter(|part| !part.is_empty()).collect();
        let put = || {
            let options = PutOptions::from(PutMode::Create);
            self.store.put_opts(path, payload.clone(), options)
        };
        match self.repeat(put).await? {
            Ok(_) => Ok(Put::Done),
            Err(Error::AlreadyExists { .. }) => Ok(Put::Taken),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// An object's bytes, if there is such an object.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>, BlobError> {
        let get = || async { self.store.get(path).await?.bytes().await };
        match self.repeat(get).await? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Whether there is such an object.
    pub(crate) async fn exists(&self, path: &Path) -> Result<bool, BlobError> {
        match self.repeat(|| self.store.head(path)).await? {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// The objects under a folder.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, BlobError> {
        let list = || self.store.list(Some(folder)).try_collect::<Vec<_>>();
        match self.repeat(list).await? {
            Ok(objects) => Ok(objects),
            // A file that vanished while a directory was walked: it is looked at again.
            Err(Error::NotFound { .. }) if !matches!(self.ground, Ground::Bucket) => {
                self.repeat(list).await?.map_err(|error| self.failure(error))
            }
            Err(error) => Err(self.diagnose(error).await?),
        }
    }

    /// What a failed list means. The client hides the status of a refused list, so the bucket is
    /// asked for an object that cannot be: if even that question is answered “not found” where a
    /// list is refused, then there is no bucket.
    async fn diagnose(&self, refused: Error) -> Result<BlobError, BlobError> {
        if !matches!(self.ground, Ground::Bucket) {
            return Ok(self.failure(refused));
        }
        let nothing = Path::from("probe/none");
        Ok(match self.repeat(|| self.store.head(&nothing)).await? {
            Err(Error::NotFound { .. }) => {
                BlobError::BucketMissing { place: self.place.clone(), source: refused }
            }
            Err(error @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => {
                self.failure(error)
            }
            Ok(_) | Err(_) => self.failure(refused),
        })
    }

    /// Deletes objects; those that are gone already do not matter.
    pub(crate) async fn delete(&self, paths: Vec<Path>) -> Result<(), BlobError> {
        let delete = || async {
            let paths = stream::iter(paths.clone()).map(Ok).boxed();
            let mut answers = self.store.delete_stream(paths);
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        self.repeat(delete).await?.map_err(|error| self.failure(error))
    }

    /// Makes what a folder holds durable, whoever put it there; makes the folder if need be.
    pub(crate) async fn settle(&self, folder: &Path) -> Result<(), BlobError> {
        self.on_disk(folder, |root, folder| {
            std::fs::create_dir_all(folder)?;
            let within = |above: &&FilePath| above.starts_with(root);
            folder.ancestors().take_while(within).try_for_each(sync_folder)
        })
        .await
    }

    /// Removes a folder with all that a killed writer may have left in it, and its empty parents.
    pub(crate) async fn clear(&self, folder: &Path) -> Result<(), BlobError> {
        self.on_disk(folder, |root, folder| {
            match std::fs::remove_dir_all(folder) {
                Ok(()) => {}
                // A writer that knows nothing of the deletion yet will withdraw what it put.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                    ) => {}
                Err(error) => return Err(error),
            }
            // A parent that is not empty stays, and nobody minds one that does.
            let mut parents = folder.ancestors().skip(1).take_while(|above| *above != root);
            while parents.next().is_some_and(|parent| std::fs::remove_dir(parent).is_ok()) {}
            Ok(())
        })
        .await
    }

    /// Removes the half-written files that killed writers left in a folder. Young ones stay: they
    /// may belong to a writer that lives.
    pub(crate) async fn tidy(&self, folder: &Path) -> Result<(), BlobError> {
        self.on_disk(folder, |_, folder| {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().contains('#') {
                    match remove_if_old(&entry) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
            }
            sync_folder(folder)
        })
        .await
    }

    async fn on_disk(
        &self,
        folder: &Path,
        act: impl FnOnce(&FilePath, &FilePath) -> io::Result<()> + Send + 'static,
    ) -> Result<(), BlobError> {
        let Ground::Directory(root) = &self.ground else { return Ok(()) };
        let (root, folder) = (root.clone(), root.join(folder.as_ref()));
        let done = tokio::task::spawn_blocking(move || act(&root, &folder)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|source| {
            match source.kind() {
                kind if is_full(kind) => self
                    .failure(Error::Generic { store: "LocalFileSystem", source: Box::new(source) }),
                _ => BlobError::Io { place: self.place.clone(), source },
            }
        })
    }

    /// Does what may be done twice until the store answers, or the deadline is over.
    async fn repeat<T, F>(&self, act: impl Fn() -> F) -> Result<Result<T, Error>, BlobError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if !matches!(self.ground, Ground::Bucket) {
            return Ok(act().await);
        }
        let end = Instant::now() + self.deadline;
        let mut pause = FIRST_PAUSE;
        let mut last = None;
        loop {
            match tokio::time::timeout_at(end, act()).await {
                Ok(Err(error)) if is_transient(&error) => last = Some(error),
                Ok(answer) => return Ok(answer),
                Err(_) => return Err(self.unreachable(last)),
            }
            if Instant::now() + pause >= end {
                return Err(self.unreachable(last));
            }
            // Between half the pause and all of it, so that many do not return at once.
            tokio::time::sleep(pause / 2 + pause.mul_f64(draw() as f64 / u64::MAX as f64 / 2.0))
                .await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn unreachable(&self, source: Option<Error>) -> BlobError {
        BlobError::Unreachable { place: self.place.clone(), after: self.deadline, source }
    }

    fn failure(&self, source: Error) -> BlobError {
        let place = self.place.clone();
        let bucket = matches!(self.ground, Ground::Bucket);
        match &source {
            Error::NotFound { .. } if bucket => BlobError::BucketMissing { place, source },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                BlobError::Denied { place, source }
            }
            _ => match io_kind(&source) {
                Some(kind) if is_full(kind) => BlobError::DiskFull { place, source },
                Some(io::ErrorKind::PermissionDenied) => BlobError::Denied { place, source },
                _ => BlobError::Storage { place, source },
            },
        }
    }
}

fn s3_builder(config: &S3Config) -> AmazonS3Builder {
    let client = ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_connect_timeout(config.deadline / 2)
        .with_timeout(config.deadline);
    // The deadline is ours; the client repeats what the server answered in error until then.
    let retry = RetryConfig {
        backoff: BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, base: 2.0 },
        max_retries: usize::MAX,
        retry_timeout: config.deadline * 2,
    };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&config.bucket)
        .with_client_options(client)
        .with_retry(retry)
        .with_conditional_put(S3ConditionalPut::ETagMatch);
    if let Some(region) = &config.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
    }
    if let Some(credentials) = &config.credentials {
        builder = builder
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key);
    }
    builder
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn remove_if_old(file: &DirEntry) -> io::Result<()> {
    // A clock that was set back makes a file look young, which is harmless.
    match file.metadata()?.modified()?.elapsed() {
        Ok(age) if age > HALF_WRITTEN => std::fs::remove_file(file.path()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn sync_folder(folder: &FilePath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A number that no other process draws: for pauses and the names of probes, never for decisions.
fn draw() -> u64 {
    RandomState::new().build_hasher().finish()
}
