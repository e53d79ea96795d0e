//! The values of the variables that tasks name. They are in no row, no event and no backup: only
//! in a private file until the task is removed.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use belay_kernel::TaskId;

type Values = BTreeMap<String, String>;

/// A vault that cannot be used.
#[derive(Debug)]
pub struct VaultError(pub io::Error);

impl std::fmt::Display for VaultError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the values of a task's variables cannot be kept: {}", self.0)
    }
}

/// Keeps the values of variables.
pub trait Vault: Send + Sync {
    /// Keeps the values of a task, once.
    fn put(&self, task: TaskId, values: &Values) -> Result<(), VaultError>;
    /// The values of a task; none, if none were kept.
    fn get(&self, task: TaskId) -> Result<Values, VaultError>;
    /// Forgets the values of a task.
    fn forget(&self, task: TaskId) -> Result<(), VaultError>;
}

/// A vault of private files in one directory.
#[derive(Debug)]
pub struct FileVault {
    directory: PathBuf,
}

impl FileVault {
    /// A vault in `directory`, which is made for its owner alone.
    pub fn open(directory: PathBuf) -> Result<Self, VaultError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory).map_err(VaultError)?;
        Ok(Self { directory })
    }

    fn file(&self, task: TaskId) -> PathBuf {
        self.directory.join(format!("{task}.json"))
    }
}

impl Vault for FileVault {
    fn put(&self, task: TaskId, values: &Values) -> Result<(), VaultError> {
        if values.is_empty() {
            // A file for nothing would cost every task a synced write.
            return self.forget(task);
        }
        let draft = self.directory.join(format!(".{task}"));
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec(values)?)?;
            file.sync_all()?;
            std::fs::rename(&draft, self.file(task))
        };
        write().map_err(VaultError)
    }

    fn get(&self, task: TaskId) -> Result<Values, VaultError> {
        match std::fs::read(self.file(task)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| VaultError(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Values::new()),
            Err(error) => Err(VaultError(error)),
        }
    }

    fn forget(&self, task: TaskId) -> Result<(), VaultError> {
        match std::fs::remove_file(self.file(task)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VaultError(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A vault in memory, for simulation.
#[derive(Debug, Default)]
pub struct MemoryVault(Mutex<BTreeMap<TaskId, Values>>);

impl Vault for MemoryVault {
    fn put(&self, task: TaskId, values: &Values) -> Result<(), VaultError> {
        if values.is_empty() {
            return self.forget(task);
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task, values.clone());
        Ok(())
    }

    fn get(&self, task: TaskId) -> Result<Values, VaultError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(&task).cloned().unwrap_or_default())
    }

    fn forget(&self, task: TaskId) -> Result<(), VaultError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&task);
        Ok(())
    }
}
