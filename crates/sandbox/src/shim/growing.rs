//! A regular file as an agent's standard output, read while it grows.
//!
//! Some agents exit before they have written everything into a pipe, and lose the end of their
//! output. What they write to a file is there when the call returns.
//!
//! Nobody has a right to open the file: a shell that is told to write to `/dev/stdout` would empty
//! it first, and what was not read by then would be lost. So that is refused, as far as the kernel
//! refuses the agent's user anything.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The file, and how far it was read.
pub(super) struct Growing {
    file: File,
    position: u64,
}

impl Growing {
    /// Makes the file, which must not be there. Returns the reader, and what the agent writes to.
    pub(super) fn create(path: &Path) -> io::Result<(Self, File)> {
        let agents = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        let file = File::open(path)?;
        file.set_permissions(Permissions::from_mode(0o0))?;
        Ok((Self { file, position: 0 }, agents))
    }

    /// Reads what comes next; nothing at the end that the file has now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, self.position) {
                // Somebody emptied it after all; what is written then stands at its beginning.
                Ok(0) if self.file.metadata()?.len() < self.position => self.position = 0,
                Ok(count) => {
                    self.position += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
