//! Publishing: what is pushed, and how it is found out what became of a push.
//!
//! A push is `--force-with-lease=<ref>:<X>` of the result commit W. If its outcome is unknown,
//! “the remote has W” is final, and “the remote has not W” proves nothing: a push killed during
//! the server's hook has been seen to land seconds later. So *not pushed* is recorded only after
//! the ref is known to have moved away from X, because from then on the late push cannot land.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A git commit's name, SHA-1 or SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId {
    length: u8,
    bytes: [u8; 32],
}

impl CommitId {
    /// The commit with this SHA-1.
    pub const fn from_sha1(sha1: [u8; 20]) -> Self {
        let mut bytes = [0; 32];
        let (head, _) = bytes.split_at_mut(20);
        head.copy_from_slice(&sha1);
        Self { length: 20, bytes }
    }

    /// The commit with this SHA-256.
    pub const fn from_sha256(bytes: [u8; 32]) -> Self {
        Self { length: 32, bytes }
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes[..usize::from(self.length)].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitId({self})")
    }
}

/// Why a text is not a commit's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a commit: 40 or 64 hexadecimal digits")]
pub struct CommitIdError(String);

impl FromStr for CommitId {
    type Err = CommitIdError;

    fn from_str(text: &str) -> Result<Self, CommitIdError> {
        let fail = || CommitIdError(text.chars().take(80).collect());
        let length = match text.len() {
            40 => 20,
            64 => 32,
            _ => return Err(fail()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |letter: u8| (letter as char).to_digit(16).ok_or_else(fail);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self { length, bytes })
    }
}

impl Serialize for CommitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CommitId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
crate::schema::text!(CommitId, "^([0-9a-f]{40}|[0-9a-f]{64})$");

/// One push, as it was stored before it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Push {
    /// W: what is pushed.
    pub commit: CommitId,
    /// X: what the remote ref must be for the push to land; nothing if it must not exist.
    pub expected: Option<CommitId>,
}

impl Push {
    /// The record of this push once its outcome is known.
    pub const fn settled(self, outcome: PushOutcome) -> Publish {
        match outcome {
            PushOutcome::Pushed => Publish::Pushed(self),
            PushOutcome::NotPushed => Publish::NotPushed(self),
        }
    }
}

/// What became of a push.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushOutcome {
    /// The remote has the commit.
    Pushed,
    /// The remote has it not and can never get it from this push.
    NotPushed,
}

/// What was published of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Publish {
    /// The gate was never opened.
    None,
    /// The gate was opened; the outcome is not known yet.
    Open(Push),
    /// The remote has it.
    Pushed(Push),
    /// The remote has it not and never will.
    NotPushed(Push),
}

impl Publish {
    /// Whether nothing is open any more.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::None | Self::Pushed(_) | Self::NotPushed(_) => true,
            Self::Open(_) => false,
        }
    }

    /// The push, if the gate was ever opened.
    pub const fn push(self) -> Option<Push> {
        match self {
            Self::None => None,
            Self::Open(push) | Self::Pushed(push) | Self::NotPushed(push) => Some(push),
        }
    }
}

/// What was seen of the remote while settling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Remote {
    /// The ref is W or contains it.
    HasCommit,
    /// The ref is still X.
    AsExpected,
    /// The ref is neither X nor contains W: it moved away from X.
    MovedOn,
    /// The remote did not answer.
    Unreachable,
}

/// The next step of settling a push whose outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Settling {
    /// It is known.
    Settled(PushOutcome),
    /// Move the ref from X to a fence commit, with X as the lease; then look again.
    FencePush {
        /// X.
        expected: Option<CommitId>,
    },
    /// Nothing was learnt; look again later.
    LookAgain,
}

/// Decides what follows from one look at the remote.
///
/// After a successful fence push the next look shows [`Remote::MovedOn`]; after one that was
/// refused because the late push landed first, [`Remote::HasCommit`].
pub const fn settle(push: Push, remote: Remote) -> Settling {
    match remote {
        Remote::HasCommit => Settling::Settled(PushOutcome::Pushed),
        Remote::AsExpected => Settling::FencePush { expected: push.expected },
        Remote::MovedOn => Settling::Settled(PushOutcome::NotPushed),
        Remote::Unreachable => Settling::LookAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: CommitId = CommitId::from_sha1([0xab; 20]);
    const X: CommitId = CommitId::from_sha256([1; 32]);

    #[test]
    fn commits_survive_being_written_and_read() {
        for commit in [W, X] {
            assert_eq!(commit.to_string().parse(), Ok(commit));
            let json = serde_json::to_string(&commit).unwrap();
            assert_eq!(serde_json::from_str::<CommitId>(&json).unwrap(), commit);
        }
        assert_eq!(W.to_string(), "ab".repeat(20));
        assert_eq!(format!("{W:?}"), format!("CommitId({W})"));
        for text in ["", "ab", &"g".repeat(40), &"é".repeat(20)] {
            assert!(text.parse::<CommitId>().is_err(), "{text}");
        }
        assert_eq!(
            "HEAD".parse::<CommitId>().unwrap_err().to_string(),
            "`HEAD` is not a commit: 40 or 64 hexadecimal digits"
        );
    }

    #[test]
    fn not_pushed_is_recorded_only_after_the_ref_left_x() {
        let push = Push { commit: W, expected: Some(X) };
        assert_eq!(settle(push, Remote::HasCommit), Settling::Settled(PushOutcome::Pushed));
        assert_eq!(
            settle(push, Remote::AsExpected),
            Settling::FencePush { expected: Some(X) },
            "“the remote has not W” proves nothing"
        );
        assert_eq!(settle(push, Remote::MovedOn), Settling::Settled(PushOutcome::NotPushed));
        assert_eq!(settle(push, Remote::Unreachable), Settling::LookAgain);
    }

    #[test]
    fn a_publish_is_settled_unless_it_is_open() {
        let push = Push { commit: W, expected: None };
        assert!(Publish::None.is_settled());
        assert!(!Publish::Open(push).is_settled());
        assert!(push.settled(PushOutcome::Pushed).is_settled());
        assert_eq!(push.settled(PushOutcome::NotPushed), Publish::NotPushed(push));
        assert_eq!(Publish::None.push(), None);
        assert_eq!(Publish::Open(push).push(), Some(push));
    }
}
