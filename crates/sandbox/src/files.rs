//! Small files that must be there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Whether a file must survive a power cut, or only the death of every process of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// It is on the disk before the call returns.
    PowerCut,
    /// It is in the kernel before the call returns. Enough for whatever describes processes,
    /// because no process survives a power cut.
    Crash,
}

const PRIVATE: u32 = 0o600;
const SHARED: u32 = 0o644;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Writes `value` as JSON in the place of whatever was there; readers see the old or the new one.
pub(crate) fn put<T: Serialize>(path: &Path, value: &T, durability: Durability) -> Result<()> {
    let placed = beside(path, value, durability, PRIVATE, |temporary| {
        fs::rename(temporary, path)?;
        match durability {
            Durability::PowerCut => sync_directory(path.parent().unwrap_or(Path::new("/"))),
            Durability::Crash => Ok(()),
        }
    });
    placed?.map_err(Error::io("write", path))
}

/// Like [`put`], for a file that a container's user must be able to read.
pub(crate) fn put_shared<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let placed = beside(path, value, Durability::Crash, SHARED, |new| fs::rename(new, path));
    placed?.map_err(Error::io("write", path))
}

/// Writes `value` as JSON if nothing is there yet; what was written first stays.
pub(crate) fn put_once<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    match beside(path, value, Durability::Crash, PRIVATE, |new| fs::hard_link(new, path))? {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io("write", path)(error))
        }
        _ => Ok(()),
    }
}

/// Writes `value` as JSON into a file beside `path`, and lets `place` bring that there.
fn beside<T: Serialize>(
    path: &Path,
    value: &T,
    durability: Durability,
    mode: u32,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<io::Result<()>> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Error::io("encode", path)(io::Error::other(error)))?;
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("new-{}-{unique}", std::process::id()));
    let placed = write_new(&temporary, &bytes, durability, mode).and_then(|()| place(&temporary));
    let _ = fs::remove_file(&temporary); // after a rename there is none any more
    Ok(placed)
}

fn write_new(path: &Path, bytes: &[u8], durability: Durability, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    if durability == Durability::PowerCut {
        file.sync_data()?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads what [`put`] wrote; nothing if it is not there.
pub(crate) fn get<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| Error::io("understand", path)(io::Error::other(error)))
}

/// Makes a directory that only its owner may enter, and its parents.
pub(crate) fn private_directory(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(Error::io("make the directory", path))
}

/// Removes a directory and all in it; one that is not there is removed.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
