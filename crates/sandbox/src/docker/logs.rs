//! Output from the engine's log. Every record carries its offset, so a log that is read again from
//! some moment on, after a lost connection or a restart, loses and doubles nothing.

use std::pin::Pin;
use std::time::Duration;

use belay_kernel::{SandboxId, Span, Timestamp};
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures_util::{Stream, StreamExt};

use super::{DockerProvider, Inner};
use crate::error::{Refusal, Result};
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

impl Inner {
    pub(super) fn positions(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<SandboxId, Positions>> {
        self.positions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The records of a log, whole again where the engine split a line.
pub(super) struct Records {
    stream: Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, bollard::errors::Error>> + Send>>,
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

    pub(super) async fn read(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max: usize,
        wait: Span,
    ) -> Result<Output> {
        if self.inner.home.identity(sandbox)?.is_none() {
            return Err(Refusal::NotFound { sandbox }.into());
        }
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
        let mut records = self.records(sandbox, offset, follow);
        let (mut chunks, mut next, mut left) = (Vec::new(), offset, max.max(1));
        while left > 0 {
            let patience = match chunks.is_empty() {
                true => duration(deadline.since(clock::moment())).max(BATCH),
                false => BATCH,
            };
            let Ok(Some(record)) = tokio::time::timeout(patience, records.next()).await else {
                break;
            };
            let record = record.map_err(self.inner.engine.failed("read the log"))?;
            if matches!(record, Record::End(..)) {
                break;
            }
            let Some((stream, start, at, bytes)) = record.bytes() else { continue };
            self.inner.positions().entry(sandbox).or_default().note(start, at);
            let end = start + bytes.len() as u64;
            if end <= next {
                continue;
            }
            let skip = usize::try_from(next - start.min(next)).unwrap_or(0);
            let take = left.min(bytes.len() - skip);
            let bytes = bytes[skip..skip + take].to_vec();
            let at = Timestamp::from_millis(at);
            chunks.push(Chunk { offset: next, at, stream, bytes });
            next += take as u64;
            left -= take;
        }
        Ok(chunks)
    }

    /// How it ended and how much it printed, as far as the log of an ended container tells.
    pub(super) async fn last_record(
        &self,
        sandbox: SandboxId,
    ) -> Result<(Option<(Exit, EndReason)>, u64)> {
        let mut records = self.records(sandbox, u64::MAX, false);
        let (mut end, mut length) = (None, 0);
        while let Some(record) = records.next().await {
            match record.map_err(self.inner.engine.failed("read the log"))? {
                Record::End(exit, reason, bytes) => {
                    end = Some((exit, reason));
                    length = length.max(bytes);
                }
                Record::ExecFailed(_) => end = Some((Exit::NotStarted, EndReason::StartFailed)),
                Record::Started => {}
                output => {
                    if let Some((_, offset, _, bytes)) = output.bytes() {
                        length = length.max(offset + bytes.len() as u64);
                    }
                }
            }
        }
        Ok((end, length))
    }
}
