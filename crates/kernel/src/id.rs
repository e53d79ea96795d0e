//! Names of things: ids, attempt numbers, epochs, revisions.
//!
//! An id is 80 bits that its maker drew at random, written as 16 characters of Crockford's base 32.
//! Rejected: time-ordered ids (UUIDv7), because ids made in the same minute share their first
//! letters, and people type the first letters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LETTERS: usize = 16;
const MASK: u128 = (1 << 80) - 1;

/// Why a text is not an id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an id: 16 letters and digits without i, l, o, u")]
pub struct IdError(String);

fn write_bits(bits: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; LETTERS];
    for (index, letter) in text.iter_mut().enumerate() {
        let shift = 5 * (LETTERS - 1 - index);
        *letter = ALPHABET[((bits >> shift) & 31) as usize];
    }
    f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

fn read_bits(text: &str) -> Result<u128, IdError> {
    let fail = || IdError(text.chars().take(40).collect());
    if text.len() != LETTERS {
        return Err(fail());
    }
    text.bytes().try_fold(0u128, |bits, letter| {
        let value = ALPHABET.iter().position(|&known| known == letter).ok_or_else(fail)?;
        Ok((bits << 5) + value as u128)
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The id made of the low 80 of `bits`, which the caller draws.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits & MASK)
            }

            /// The 80 bits.
            pub const fn as_bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_bits(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                read_bits(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        crate::schema::text!($name, "^[0-9a-hjkmnp-tv-z]{16}$");
    )*};
}

ids! {
    /// A unit of work with a prompt.
    TaskId,
    /// The durable conversation and working tree behind tasks.
    SessionId,
    /// One incarnation of compute that an agent runs in.
    SandboxId,
    /// Whoever claims tasks of a role.
    WorkerId,
    /// One connection of a worker; a newer one supersedes it.
    ConnectionId,
    /// The daemon on a machine that hosts sandboxes and workers.
    RunnerId,
    /// One control-plane process.
    NodeId,
    /// A goal made of tasks.
    WorkflowId,
    /// A question that an agent asked.
    QuestionId,
    /// A result that an agent submitted to a workflow.
    ResultId,
    /// A stored snapshot of a sandbox.
    SnapshotId,
    /// A command to a runner, such as a start of a role.
    CommandId,
    /// A receiver of events.
    WebhookId,
    /// One installation of Belay: what its sandboxes and containers are labelled with.
    InstallationId,
    /// A token with a scope that a person made.
    TokenId,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ty)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub struct $name(pub $inner);

        impl $name {
            /// The number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

numbers! {
    /// An attempt's number within its task: 1, 2, …; numbers only grow. 0 is “none yet”.
    AttemptNumber(u32),
    /// A session's fencing number; every attempt and provider operation takes the next one.
    Epoch(u64),
    /// A row's revision; grows by one with each commit that changes the row.
    Revision(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_being_written_and_read() {
        for bits in [0, 1, 31, 32, MASK, 0x1234_5678_9abc_def0_1234] {
            let id = TaskId::from_bits(bits);
            assert_eq!(id.to_string().len(), LETTERS);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.as_bits(), bits);
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<TaskId>(&json).unwrap(), id);
        }
        assert_eq!(TaskId::from_bits(33).to_string(), "0000000000000011");
        assert_eq!(TaskId::from_bits(u128::MAX), TaskId::from_bits(MASK));
        assert_eq!(format!("{:?}", NodeId::from_bits(31)), "NodeId(000000000000000z)");
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "0", "000000000000000i", "00000000000000000", "000000000000000Z", "é"] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
        assert_eq!(
            "mine".parse::<TaskId>().unwrap_err().to_string(),
            "`mine` is not an id: 16 letters and digits without i, l, o, u"
        );
    }

    #[test]
    fn numbers_grow() {
        assert_eq!(AttemptNumber::default().next(), AttemptNumber(1));
        assert_eq!(Epoch(u64::MAX).next(), Epoch(u64::MAX));
        assert_eq!(Revision(7).to_string(), "7");
    }
}
