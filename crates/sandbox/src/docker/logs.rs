//! Output from the engine's log. Every record carries its offset, so a log that is read again from
//! some moment on, after a lost connection or a restart, loses and doubles nothing.

use std::pin::Pin;
use std::time::Duration;

use belay_kernel::{SandboxId, Span, Timestamp};
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures_util::{Stream, StreamExt};

use super::{DockerProvider, Inner};
use crate::error::Result;
use crate::os::clock;
use crate::output::{Chunk, EndReason, Exit, Output};
use crate::plan::Moment;
use crate::process::duration;
use crate::provider::Phase;
use crate::shim::container::Record;

/// How long to wait for more once there is something to give.
const BATCH: Duration = Duration::from_millis(3);
/// How often a container that is not started is looked at.
const START_TICK: Span = Span::from_millis(20);
const MAX_MARKS: usize = 64;

/// Some offsets of a log, with the times of their records.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions(Vec<(u64, i64)>);

impl Positions {
    fn note(&mut self, offset: u64, at: i64) {
        if self.0.last().is_none_or(|last| last.0 < offset && last.1 / 1_000 < at / 1_000) {
            self.0.push((offset, at));
            if self.0.len() > MAX_MARKS {
                self.0 = self.0.iter().copied().step_by(2).collect();
            }
        }
    }

    /// A second before which nothing from `offset` on was written.
    fn since(&self, offset: u64) -> i32 {
        let mark = self.0.iter().rev().find(|mark| mark.0 <= offset);
        mark.map_or(0, |mark| i32::try_from(mark.1 / 1_000 - 1).unwrap_or(0))
    }
}

/// What the log of an ended container tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    /// How and why it ended; nothing if PID 1 could not say.
    pub(super) end: Option<(Exit, EndReason)>,
    /// How many bytes it printed.
    pub(super) length: u64,
    /// Whether the kernel killed something in it for want of memory.
    pub(super) out_of_memory: bool,
}

/// A log that is being read, and where it stands.
pub(super) struct Reader {
    next: u64,
    /// Whether it goes on when it comes to the end of what is there.
    follows: bool,
    /// The rest of a piece that was too long for the last read.
    pending: Option<Piece>,
    records: Records,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("next", &self.next).finish_non_exhaustive()
    }
}

/// One record of output.
struct Piece {
    stream: crate::output::Stream,
    offset: u64,
    at: i64,
    bytes: Vec<u8>,
}

impl Reader {
    /// The next piece of output; nothing at the end.
    async fn piece(&mut self) -> std::result::Result<Option<Piece>, bollard::errors::Error> {
        if let Some(piece) = self.pending.take() {
            return Ok(Some(piece));
        }
        while let Some(record) = self.records.next().await {
            let record = record?;
            if matches!(record, Record::End(..)) {
                return Ok(None);
            }
            if let Some((stream, offset, at, bytes)) = record.bytes() {
                return Ok(Some(Piece { stream, offset, at, bytes }));
            }
        }
        Ok(None)
    }

    /// The part of a piece that was not read yet, at most `max` bytes; the rest is kept.
    fn take(&mut self, piece: Piece, max: usize) -> Option<Chunk> {
        let skip = usize::try_from(self.next.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
        if skip >= piece.bytes.len() {
            return None;
        }
        let end = piece.bytes.len().min(skip.saturating_add(max));
        let (at, stream) = (Timestamp::from_millis(piece.at), piece.stream);
        let bytes = piece.bytes[skip..end].to_vec();
        // What the engine lost shows as a gap between offsets, never as other bytes.
        let offset = self.next.max(piece.offset);
        let chunk = Chunk { offset, at, stream, bytes };
        self.next = offset + chunk.bytes.len() as u64;
        if end < piece.bytes.len() {
            self.pending = Some(piece);
        }
        Some(chunk)
    }
}

impl Inner {
    pub(super) fn followed(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<SandboxId, Reader>> {
        self.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn positions(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<SandboxId, Positions>> {
        self.positions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The records of a log, whole again where the engine split a line.
pub(super) struct Records {
    stream:
        Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, bollard::errors::Error>> + Send>>,
    partial: Vec<u8>,
}

impl Records {
    pub(super) async fn next(
        &mut self,
    ) -> Option<std::result::Result<Record, bollard::errors::Error>> {
        loop {
            if let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(record) => return Some(Ok(record)),
                    // Not a record: something else wrote to the log, the loader for instance.
                    Err(_) => continue,
                }
            }
            match self.stream.next().await? {
                Ok(output) => self.partial.extend_from_slice(&output.into_bytes()),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl DockerProvider {
    /// The log's records, from before those of `offset` on.
    pub(super) fn records(&self, sandbox: SandboxId, offset: u64, follow: bool) -> Records {
        let since = self.inner.positions().get(&sandbox).map_or(0, |marks| marks.since(offset));
        let options =
            LogsOptions { follow, stdout: true, since, tail: "all".into(), ..Default::default() };
        let api = self.inner.engine.api.clone();
        let stream = api.logs(&self.name(sandbox), Some(options)).boxed();
        Records { stream, partial: Vec::new() }
    }

    fn reader(&self, sandbox: SandboxId, offset: u64, follows: bool) -> Reader {
        let records = self.records(sandbox, offset, follows);
        Reader { next: offset, follows, pending: None, records }
    }

    pub(super) async fn read(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max: usize,
        wait: Span,
    ) -> Result<Output> {
        self.inner.home.known(sandbox)?;
        let deadline = clock::moment().after(wait);
        loop {
            let ended = self.known_end(sandbox).await?;
            if let Some(end) = &ended
                && offset >= end.output_bytes
            {
                return Ok(Output { chunks: Vec::new(), next: offset, end: ended });
            }
            let state = self.inner.engine.state(&self.name(sandbox)).await?;
            let started = state.is_some_and(|state| state.phase != Phase::Prepared);
            if started {
                let chunks = self.chunks(sandbox, offset, max, deadline, ended.is_none()).await?;
                let next = chunks.last().map_or(offset, |c| c.offset + c.bytes.len() as u64);
                let end = ended.filter(|end| next >= end.output_bytes);
                if !chunks.is_empty() || end.is_some() {
                    return Ok(Output { chunks, next, end });
                }
            }
            let left = deadline.since(clock::moment());
            if left.is_zero() {
                return Ok(Output { chunks: Vec::new(), next: offset, end: None });
            }
            tokio::time::sleep(duration(START_TICK.min(left))).await;
        }
    }

    /// What there is from `offset` on, or what comes before the deadline.
    async fn chunks(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max: usize,
        deadline: Moment,
        follow: bool,
    ) -> Result<Vec<Chunk>> {
        let followed = self.inner.followed().remove(&sandbox);
        let mut reader = match followed {
            Some(reader) if reader.next == offset => reader,
            _ => self.reader(sandbox, offset, follow),
        };
        let (mut chunks, mut left) = (Vec::new(), max.max(1));
        while left > 0 {
            let patience = match chunks.is_empty() {
                true => duration(deadline.since(clock::moment())).max(BATCH),
                false => BATCH,
            };
            let Ok(piece) = tokio::time::timeout(patience, reader.piece()).await else {
                // Nothing more for now; the log goes on.
                self.inner.followed().insert(sandbox, reader);
                return Ok(chunks);
            };
            let Some(piece) = piece.map_err(self.inner.engine.failed("read the log"))? else {
                return Ok(chunks);
            };
            // A gap in a log that is followed, as Podman once left one, need not be in the log
            // itself: it is read as it stands before anything counts as lost.
            if reader.follows && piece.offset > reader.next {
                reader = self.reader(sandbox, reader.next, false);
                continue;
            }
            self.inner.positions().entry(sandbox).or_default().note(piece.offset, piece.at);
            if let Some(chunk) = reader.take(piece, left) {
                left -= chunk.bytes.len();
                chunks.push(chunk);
            }
        }
        self.inner.followed().insert(sandbox, reader);
        Ok(chunks)
    }

    /// What the log of an ended container tells.
    pub(super) async fn told(&self, sandbox: SandboxId) -> Result<Told> {
        let mut records = self.records(sandbox, u64::MAX, false);
        let mut told = Told::default();
        while let Some(record) = records.next().await {
            match record.map_err(self.inner.engine.failed("read the log"))? {
                Record::End(exit, reason, bytes) => {
                    told.end = Some((exit, reason));
                    told.length = told.length.max(bytes);
                }
                Record::ExecFailed(_) => {
                    told.end = Some((Exit::NotStarted, EndReason::StartFailed));
                }
                Record::MemoryKills(count) => told.out_of_memory = count > 0,
                Record::Started => {}
                output => {
                    if let Some((_, offset, _, bytes)) = output.bytes() {
                        told.length = told.length.max(offset + bytes.len() as u64);
                    }
                }
            }
        }
        Ok(told)
    }
}
