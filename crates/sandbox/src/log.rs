//! The output of a sandbox as files: an append-only log of bytes, and an index that says for each
//! piece of it when it came and on which stream.
//!
//! ```text
//! output.log   the bytes of both streams, in the order in which they were read
//! output.idx   24 bytes a piece, little endian: offset u64 · time i64 · length u32 · stream u8 · 0
//! ```
//!
//! Bytes are written before their index entry, so an entry never speaks of bytes that are not
//! there. Bytes without an entry can only be the last ones of a shim that was killed between the
//! two writes; once the sandbox has ended they are read as one more piece.
//!
//! Nothing is synced: the files survive the death of every process of ours, and what must survive
//! the machine is what the runner has acknowledged to the store, by offset. A power cut ends the
//! agent too, and what was printed last may be missing then.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use belay_kernel::Timestamp;

use crate::output::{Chunk, Stream};

const ENTRY: usize = 24;

/// Appends output.
#[derive(Debug)]
pub(crate) struct LogWriter {
    log: File,
    index: File,
    length: u64,
}

impl LogWriter {
    /// Makes the two files, which must not be there.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let open = |name: &str| {
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(directory.join(name))
        };
        Ok(Self { log: open("output.log")?, index: open("output.idx")?, length: 0 })
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Appends a piece: all of it, or an error that says how much less is in the log now.
    pub(crate) fn append(
        &mut self,
        stream: Stream,
        at: Timestamp,
        bytes: &[u8],
    ) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        let mut failed = None;
        while written < bytes.len() {
            match self.log.write(&bytes[written..]) {
                Ok(0) => failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => failed = Some(error),
            }
            if failed.is_some() {
                break;
            }
        }
        if written > 0 {
            // An index entry that cannot be written is not an error of its own: the next one covers
            // nothing of these bytes, but the reader gives uncovered bytes to the piece after them.
            let _ = self.index.write_all(&entry(self.length, at, written, stream));
            self.length += written as u64;
        }
        failed.map_or(Ok(()), |error| Err((written, error)))
    }
}

fn entry(offset: u64, at: Timestamp, length: usize, stream: Stream) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&at.as_millis().to_le_bytes());
    bytes[16..20].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes[20] = match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    bytes
}

struct Entry {
    at: Timestamp,
    end: u64,
    stream: Stream,
}

fn parse(bytes: &[u8; ENTRY]) -> Entry {
    let word = |from: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[from..from + 8]);
        eight
    };
    let offset = u64::from_le_bytes(word(0));
    let length = u64::from_le_bytes(word(16)) & 0xffff_ffff;
    Entry {
        at: Timestamp::from_millis(i64::from_le_bytes(word(8))),
        end: offset.saturating_add(length),
        stream: if bytes[20] == 2 { Stream::Stderr } else { Stream::Stdout },
    }
}

/// Whether bytes without an index entry can still get one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    /// The writer lives: what it has not indexed yet comes later.
    Open,
    /// The writer is gone: what it did not index is read as it is.
    Closed,
}

/// Reads pieces from `offset` on, about `max` bytes of them; nothing if there is no log.
pub(crate) fn read(
    directory: &Path,
    offset: u64,
    max: usize,
    tail: Tail,
) -> io::Result<Vec<Chunk>> {
    let (log, index) = match (
        File::open(directory.join("output.log")),
        File::open(directory.join("output.idx")),
    ) {
        (Ok(log), Ok(index)) => (log, index),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let mut chunks = Vec::new();
    let mut next = offset;
    let mut left = max.max(1) as u64;
    let count = index.metadata()?.len() / ENTRY as u64;
    let mut position = first_after(&index, count, offset)?;
    while left > 0 && position < count {
        let entry = read_entry(&index, position)?;
        position += 1;
        if entry.end <= next {
            continue;
        }
        let bytes = read_range(&log, next, entry.end.min(next.saturating_add(left)))?;
        left -= bytes.len() as u64;
        let chunk = Chunk { offset: next, at: entry.at, stream: entry.stream, bytes };
        next += chunk.bytes.len() as u64;
        chunks.push(chunk);
    }
    let end = log.metadata()?.len();
    if tail == Tail::Closed && left > 0 && next < end {
        let bytes = read_range(&log, next, end.min(next.saturating_add(left)))?;
        let at = log.metadata()?.modified()?.duration_since(std::time::UNIX_EPOCH);
        let at = at.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let at = Timestamp::from_millis(at);
        chunks.push(Chunk { offset: next, at, stream: Stream::Stdout, bytes });
    }
    Ok(chunks)
}

/// The first entry that ends after `offset`; entries are in order.
fn first_after(index: &File, count: u64, offset: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if read_entry(index, middle)?.end <= offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

fn read_entry(index: &File, position: u64) -> io::Result<Entry> {
    let mut bytes = [0; ENTRY];
    index.read_exact_at(&mut bytes, position * ENTRY as u64)?;
    Ok(parse(&bytes))
}

fn read_range(log: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
    log.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// How many bytes are in the log.
pub(crate) fn length(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("output.log")).map_or(0, |metadata| metadata.len())
}
