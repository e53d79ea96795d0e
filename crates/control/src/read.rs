//! Reading what happened: events, transcripts, diffs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_api::{
    Announcement, Ask, Backup, Code, EventView, Events, Health, Problem, Ready, TranscriptPiece,
};
use belay_kernel::termination::Step;
use belay_kernel::{AttemptNumber, TaskId};
use belay_store::blob::{BlobKey, Piece};
use belay_store::{Commit, Cursor, EventFilter, LeaseKind, Store};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::Control;
use crate::refuse::{Outcome, Refused};

/// How much of a transcript, and how many events, one answer holds.
const PIECE: u64 = 1 << 20;
const EVENTS: usize = 500;
/// How often what has no hint of its own is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same, where somebody waits for it.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// How long a diff is waited for whose tree is being saved.
const SAVED_WITHIN: Duration = Duration::from_secs(10);

impl<S: Store> Control<S> {
    /// Events after a cursor: at once if there are any, else after at most `wait`.
    pub async fn events(
        &self,
        task: Option<TaskId>,
        after: Option<String>,
        wait: Duration,
    ) -> Result<Events, Problem> {
        Ok(self.read_events(task, after, wait).await?)
    }

    async fn read_events(
        &self,
        task: Option<TaskId>,
        after: Option<String>,
        wait: Duration,
    ) -> Outcome<Events> {
        let mut cursor: Cursor = match after {
            Some(text) => text.parse().map_err(belay_store::Failure::Refused)?,
            None => self.store().oldest().await?,
        };
        let filter = EventFilter { task, ..EventFilter::default() };
        let until = Instant::now() + wait;
        loop {
            let read = self.store().events(cursor, filter, EVENTS).await?;
            let left = until.saturating_duration_since(Instant::now());
            let more = read.cursor != cursor;
            cursor = read.cursor;
            if !read.events.is_empty() || left.is_zero() {
                let events = read.events.into_iter().map(|event| view(cursor.epoch, event));
                let events = events.collect();
                return Ok(Events { events, cursor: cursor.to_string() });
            }
            if !more {
                let patience = left.min(LOOK_AGAIN);
                let awaited = self.store().await_events(cursor, patience);
                let _ = timeout(patience, awaited).await;
            }
        }
    }

    /// Where the log of events begins and ends: before its oldest event, and after its newest.
    pub async fn log_ends(&self) -> Result<(Cursor, Cursor), Problem> {
        let oldest = self.store().oldest().await.map_err(Refused::from)?;
        let newest = self.store().latest().await.map_err(Refused::from)?;
        Ok((oldest, newest))
    }

    /// At most `limit` events of the log after a cursor, as they are stored.
    pub async fn read_log(
        &self,
        after: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<belay_store::Events, Problem> {
        Ok(self.store().events(after, filter, limit).await.map_err(Refused::from)?)
    }

    /// Waits until the log may have grown, or for at most `patience`.
    pub async fn await_log(&self, after: Cursor, patience: Duration) {
        let _ = timeout(patience, self.store().await_events(after, patience)).await;
    }

    /// A piece of a transcript: at once if there is any, else after at most `wait`.
    pub async fn transcript(
        &self,
        task: TaskId,
        attempt: Option<u32>,
        from: u64,
        wait: Duration,
    ) -> Result<TranscriptPiece, Problem> {
        let until = Instant::now() + wait;
        loop {
            let grown = self.inner.output.notified();
            let piece = self.read_transcript(task, attempt, from).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !piece.bytes.is_empty() || piece.ended || left.is_zero() {
                return Ok(piece);
            }
            let _ = timeout(left.min(LOOK_AGAIN), grown).await;
        }
    }

    async fn read_transcript(
        &self,
        task: TaskId,
        attempt: Option<u32>,
        from: u64,
    ) -> Outcome<TranscriptPiece> {
        let look = self.look_at(task, attempt.map(AttemptNumber)).await?;
        let Some(stored) = &look.attempt else {
            let ended = look.task.row.task.state.group().is_at_rest();
            let none = TranscriptPiece { attempt: AttemptNumber(0), from, bytes: vec![], ended };
            return match attempt {
                Some(number) => Err(no_attempt(task, number)),
                None => Ok(none),
            };
        };
        let number = stored.row.attempt.number;
        let durable = stored.row.transcript_length;
        let sealed = stored.row.transcript_hash.is_some();
        if from >= durable {
            return Ok(TranscriptPiece { attempt: number, from, bytes: vec![], ended: sealed });
        }
        let key = BlobKey::Transcript(task, number);
        let read = self.inner.blobs.read(key, from..durable.min(from + PIECE)).await?;
        let (mut bytes, mut start) = (Vec::new(), from);
        for piece in read.pieces {
            match piece {
                Piece::Bytes { bytes: more, .. } => bytes.extend_from_slice(&more),
                Piece::Missing(range) if bytes.is_empty() => start = range.end,
                Piece::Missing(_) => break,
            }
        }
        let end = start + bytes.len() as u64;
        Ok(TranscriptPiece { attempt: number, from: start, bytes, ended: sealed && end >= durable })
    }

    /// What an attempt changed, as a patch.
    pub async fn diff(&self, task: TaskId, attempt: Option<u32>) -> Result<Vec<u8>, Problem> {
        Ok(self.read_diff(task, attempt).await?)
    }

    async fn read_diff(&self, task: TaskId, attempt: Option<u32>) -> Outcome<Vec<u8>> {
        let until = Instant::now() + SAVED_WITHIN;
        let stored = loop {
            let cursor = self.store().latest().await?;
            let look = self.look_at(task, attempt.map(AttemptNumber)).await?;
            let Some(stored) = look.attempt else {
                return Err(match attempt {
                    Some(number) => no_attempt(task, number),
                    None => {
                        Refused::new(Code::NotFound, "no attempt was made yet: nothing changed")
                    }
                });
            };
            if stored.row.kept_commit.is_some() {
                break stored;
            }
            // A task is at rest a moment before the tree of its last attempt is saved, and whoever
            // was just told so asks at once.
            let being_saved =
                stored.row.termination.is_some_and(|saga| saga.step <= Step::SaveTree);
            if !being_saved || Instant::now() >= until {
                let detail = "the attempt's work is not saved yet; ask again when it has ended";
                return Err(Refused::new(Code::NotFound, detail));
            }
            let _ = timeout(LOOK_SOON, self.store().await_events(cursor, LOOK_SOON)).await;
        };
        let key = BlobKey::Diff(task, stored.row.attempt.number);
        let status = self.inner.blobs.status(key).await;
        let Ok(status) = status else { return Ok(Vec::new()) };
        let mut patch = Vec::new();
        while (patch.len() as u64) < status.length {
            let from = patch.len() as u64;
            let read = self.inner.blobs.read(key, from..status.length).await?;
            for piece in read.pieces {
                if let Piece::Bytes { bytes, .. } = piece {
                    patch.extend_from_slice(&bytes);
                }
            }
            if patch.len() as u64 == from {
                break;
            }
        }
        Ok(patch)
    }

    /// Whether the node is well.
    pub async fn health(&self) -> Result<Health, Problem> {
        let leases = self.store().leases(LeaseKind::Attempt).await.map_err(Refused::from)?;
        Ok(Health {
            status: "ok".to_owned(),
            version: self.settings().version.clone(),
            pid: std::process::id(),
            started_at: self.started_at(),
            store: self.settings().store.clone(),
            attempts: u32::try_from(leases.len()).unwrap_or(u32::MAX),
        })
    }

    /// Whether work can be taken: the database answers.
    pub async fn ready(&self) -> Result<Ready, Problem> {
        self.store().latest().await.map_err(Refused::from)?;
        Ok(Ready { status: "ready".to_owned() })
    }

    /// Backs the database up, to a path on this machine that does not exist yet. Whoever asks again
    /// with the same key is told of the backup that was made; if it was made and that could not be
    /// noted, that there is something at the path.
    pub async fn backup(&self, ask: impl Into<Ask>, path: String) -> Result<Backup, Problem> {
        let asked = self.asked(ask.into(), &format!("backup {path}"));
        if let Some(before) = self.replayed_answer(&asked).await? {
            let bytes = before["bytes"].as_u64().unwrap_or_default();
            return Ok(Backup { path, bytes });
        }
        let Some(back_up) = &self.inner.back_up else {
            let detail = "this database is not backed up by Belay; use its own tools (pg_dump)";
            return Err(Problem::new(Code::Refused, detail));
        };
        if !Path::new(&path).is_absolute() {
            let detail = format!("`{path}` is not an absolute path");
            return Err(Problem::new(Code::BadRequest, detail));
        }
        let bytes = back_up(PathBuf::from(&path)).await;
        let bytes = bytes.map_err(|why| Problem::new(Code::Refused, why))?;
        let now = self.now().await.map_err(Refused::from)?;
        let request = asked.request_answered(&json!({ "bytes": bytes }), now);
        let noted = self.store().commit(Commit::new().request(request)).await;
        noted.map_err(Refused::from)?;
        Ok(Backup { path, bytes })
    }
}

fn view(epoch: u64, event: belay_store::Event) -> EventView {
    let announces = Announcement::of(&event.event.kind, &event.event.body);
    EventView {
        cursor: Cursor { epoch, number: event.number }.to_string(),
        task: event.event.task,
        attempt: event.event.attempt,
        workflow: event.event.workflow,
        kind: event.event.kind,
        announces,
        body: serde_json::from_str(&event.event.body).unwrap_or_default(),
        at: event.event.at,
    }
}

fn no_attempt(task: TaskId, number: u32) -> Refused {
    let detail = format!("task {task} has no attempt {number}; show it to see those that it has");
    Refused::new(Code::NotFound, detail)
}
