//! The names of blobs: typed, so that no name can leave its place.
//!
//! A key is made of ids and numbers only and is written by this file alone. There is no way to put
//! a foreign text into a path, hence nothing to sanitise.

use std::fmt;
use std::str::FromStr;

use belay_kernel::{AttemptNumber, Epoch, SessionId, SnapshotId, TaskId};

/// What a blob holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlobKind {
    /// What attempts printed, byte for byte.
    Transcript,
    /// What attempts changed, as patches.
    Diff,
    /// Working trees that were kept, as git bundles.
    Bundle,
    /// Agents' own session files.
    Session,
    /// Snapshots of sandboxes.
    Snapshot,
}

impl BlobKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Transcript, Self::Diff, Self::Bundle, Self::Session, Self::Snapshot];

    /// The kind's stable name, which is also its folder.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transcript => "transcript",
            Self::Diff => "diff",
            Self::Bundle => "bundle",
            Self::Session => "session",
            Self::Snapshot => "snapshot",
        }
    }
}

/// The name of one blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlobKey {
    /// The transcript of an attempt.
    Transcript(TaskId, AttemptNumber),
    /// What an attempt changed, as a patch.
    Diff(TaskId, AttemptNumber),
    /// The working tree that was kept of an attempt.
    Bundle(TaskId, AttemptNumber),
    /// The agent's own session files, as the attempt of this epoch left them.
    Session(SessionId, Epoch),
    /// A snapshot of a sandbox.
    Snapshot(SnapshotId),
}

impl BlobKey {
    /// What the blob holds.
    pub const fn kind(&self) -> BlobKind {
        match self {
            Self::Transcript(..) => BlobKind::Transcript,
            Self::Diff(..) => BlobKind::Diff,
            Self::Bundle(..) => BlobKind::Bundle,
            Self::Session(..) => BlobKind::Session,
            Self::Snapshot(_) => BlobKind::Snapshot,
        }
    }
}

/// `transcript/<task>/<attempt>` and so on: the blob's folder.
impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind().name();
        match self {
            Self::Transcript(task, attempt)
            | Self::Diff(task, attempt)
            | Self::Bundle(task, attempt) => write!(f, "{kind}/{task}/{attempt}"),
            Self::Session(session, epoch) => write!(f, "{kind}/{session}/{epoch}"),
            Self::Snapshot(snapshot) => write!(f, "{kind}/{snapshot}"),
        }
    }
}

/// Why a text is not the name of a blob.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not the name of a blob, such as `transcript/<task>/<attempt>`")]
pub struct KeyError(String);

/// Reads exactly what [`BlobKey`] writes.
impl FromStr for BlobKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let parts: Vec<&str> = text.split('/').collect();
        let key = match parts[..] {
            ["transcript", task, attempt] => numbered(task, attempt).map(make(Self::Transcript)),
            ["diff", task, attempt] => numbered(task, attempt).map(make(Self::Diff)),
            ["bundle", task, attempt] => numbered(task, attempt).map(make(Self::Bundle)),
            ["session", session, epoch] => session
                .parse()
                .ok()
                .zip(epoch.parse().ok())
                .map(|(session, epoch)| Self::Session(session, Epoch(epoch))),
            ["snapshot", snapshot] => snapshot.parse().ok().map(Self::Snapshot),
            _ => None,
        };
        // A number may be written in other ways, such as `+1` or `01`; those name nothing.
        key.filter(|key| key.to_string() == text)
            .ok_or_else(|| KeyError(text.chars().take(80).collect()))
    }
}

fn numbered(task: &str, attempt: &str) -> Option<(TaskId, AttemptNumber)> {
    task.parse().ok().zip(attempt.parse().ok().map(AttemptNumber))
}

fn make(
    of: impl Fn(TaskId, AttemptNumber) -> BlobKey,
) -> impl Fn((TaskId, AttemptNumber)) -> BlobKey {
    move |(task, attempt)| of(task, attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_being_written_and_read() {
        let task = TaskId::from_bits(7);
        for (key, text) in [
            (BlobKey::Transcript(task, AttemptNumber(1)), "transcript/0000000000000007/1"),
            (BlobKey::Diff(task, AttemptNumber(12)), "diff/0000000000000007/12"),
            (BlobKey::Bundle(task, AttemptNumber(3)), "bundle/0000000000000007/3"),
            (BlobKey::Session(SessionId::from_bits(1), Epoch(4)), "session/0000000000000001/4"),
            (BlobKey::Snapshot(SnapshotId::from_bits(2)), "snapshot/0000000000000002"),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse(), Ok(key));
            assert!(text.starts_with(key.kind().name()));
        }
    }

    #[test]
    fn no_text_but_a_key_is_a_key() {
        for text in [
            "",
            "transcript",
            "transcript/../../etc/passwd",
            "transcript/0000000000000007/01",
            "transcript/0000000000000007/+1",
            "transcript/0000000000000007/1/",
            "/transcript/0000000000000007/1",
            "snapshot/..",
            "snapshot/0000000000000002/1",
            "other/0000000000000002",
        ] {
            assert!(text.parse::<BlobKey>().is_err(), "{text}");
        }
    }
}
