//! What a reader sees in an agent's output, each thing with its place in the raw stream.
//!
//! Observations are facts, not decisions: nothing here says what the task becomes.

use std::fmt;
use std::ops::Range;

use belay_kernel::{Cause, EventKind, Timestamp, Usage};
use serde::{Deserialize, Serialize};

/// The agent's own name for its conversation; what `resume` needs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationId(Box<str>);

impl ConversationId {
    /// The longest id that is taken.
    const LIMIT: usize = 256;

    /// The id with this text, if it can be one: it travels in arguments and names files, so it is
    /// made of letters, digits, `-`, `_`, `.` and `:`, and does not begin with `-` or `.`.
    pub fn new(text: &str) -> Option<Self> {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let fits = !text.is_empty() && text.len() <= Self::LIMIT && text.bytes().all(sound);
        (fits && !text.starts_with(['-', '.'])).then(|| Self(text.into()))
    }

    /// The id of a conversation whose id Belay chooses: a UUID made of bits that the caller draws.
    pub fn chosen(bits: u128) -> Self {
        let version = bits & !(0xf << 76) | (0x4 << 76);
        let bits = version & !(0x3 << 62) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Self(parts.join("-").into())
    }

    /// Whether the text is a UUID, which some agents insist on.
    pub fn is_uuid(&self) -> bool {
        let bytes = self.0.as_bytes();
        bytes.len() == 36
            && bytes.iter().enumerate().all(|(index, byte)| match index {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of a text. All of it is in the transcript, at the observation's place.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clip {
    /// At most [`Clip::LIMIT`] bytes.
    pub text: Box<str>,
    /// How long the whole text is.
    pub bytes: usize,
}

impl Clip {
    /// How much of a text is kept beside the transcript.
    pub const LIMIT: usize = 4 << 10;

    /// Clips `text`.
    pub fn of(text: &str) -> Self {
        let end = (0..=Self::LIMIT.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        Self { text: text[..end.unwrap_or(0)].into(), bytes: text.len() }
    }

    /// Whether some of the text is only in the transcript.
    pub const fn is_cut(&self) -> bool {
        self.text.len() < self.bytes
    }
}

impl fmt::Debug for Clip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)?;
        if self.is_cut() { write!(f, "… of {} bytes", self.bytes) } else { Ok(()) }
    }
}

/// What an event is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Nothing more than its kind.
    Plain,
    /// Something said, thought or complained of.
    Text(Clip),
    /// A tool and what it was given.
    Tool {
        /// The call's id.
        id: Box<str>,
        /// The tool's name.
        name: Box<str>,
        /// Its input as JSON.
        input: Clip,
    },
    /// A tool and what came of it.
    Outcome {
        /// The call's id.
        id: Box<str>,
        /// The tool's name, where it is known.
        name: Box<str>,
        /// Whether the tool failed.
        failed: bool,
        /// What it returned.
        output: Clip,
    },
    /// A file.
    File(Box<str>),
    /// A model.
    Model(Box<str>),
}

/// Something the agent did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// What kind of thing.
    pub kind: EventKind,
    /// What it is about.
    pub detail: Detail,
}

/// The key by which a held question is answered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionKey(pub(crate) Box<str>);

impl fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A question that the agent holds open: it waits, inside its turn, until it is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// How to name it when answering.
    pub key: QuestionKey,
    /// What is asked.
    pub text: Box<str>,
    /// Answers that the agent offers.
    pub options: Vec<Box<str>>,
    /// Whether only one of the options is an answer.
    pub closed: bool,
}

/// Why a turn failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The cause, in Belay's taxonomy.
    pub cause: Cause,
    /// What the agent said about it.
    pub message: Clip,
    /// When a limit resets, where the agent says.
    pub resets_at: Option<Timestamp>,
    /// Whether the conversation to resume was not there.
    pub conversation_lost: bool,
}

impl Failure {
    /// A failure for `cause`, in the agent's words.
    pub fn new(cause: Cause, message: &str) -> Self {
        Self { cause, message: Clip::of(message), resets_at: None, conversation_lost: false }
    }
}

/// How a turn ended, by the agent's own word.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The agent said that it succeeded.
    Succeeded,
    /// It said that it failed, or its words amount to that.
    Failed(Failure),
}

/// Something in the stream that the reader does not know or expect. It is kept in the transcript
/// and counted; it is never fatal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// A type of event that is not known.
    UnknownType(Box<str>),
    /// A line that is not JSON, or not an object.
    NotJson,
    /// A line that is not UTF-8; it was read with replacement characters.
    NotUtf8,
    /// A line longer than the limit; it was not read.
    TooLong,
    /// The stream ended inside a line.
    HalfLine,
    /// A figure of usage that fell, or is absurd; it was ignored.
    UsageFell,
    /// The result of a tool call that was never opened.
    UnknownTool,
    /// More tool calls are open at once than are tracked.
    TooManyTools,
    /// A second end of the same turn.
    SecondEnd,
    /// An id of a conversation that cannot be one.
    BadConversation,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(name) => write!(f, "unknown type {name}"),
            Self::NotJson => f.write_str("not JSON"),
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::TooLong => f.write_str("line too long"),
            Self::HalfLine => f.write_str("half a line at the end"),
            Self::UsageFell => f.write_str("usage fell"),
            Self::UnknownTool => f.write_str("result of an unknown tool call"),
            Self::TooManyTools => f.write_str("too many open tool calls"),
            Self::SecondEnd => f.write_str("a second end of the turn"),
            Self::BadConversation => f.write_str("a bad conversation id"),
        }
    }
}

/// Bytes to write to the agent's standard input, in reaction to what was read.
///
/// The same stream always asks for the same writes, with the same numbers. Whoever reads a
/// transcript again after a crash skips the writes that it knows were done.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Counts the reader's writes from 0.
    pub number: u64,
    /// What to write.
    pub bytes: Vec<u8>,
}

/// Without the bytes: a token can be among them.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Write(#{}, {} bytes)", self.number, self.bytes.len())
    }
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// The agent did something.
    Event(Event),
    /// The agent's conversation has this id; store it at once.
    Conversation(ConversationId),
    /// What the attempt has used so far, in all.
    Usage(Usage),
    /// A tool call is open; while one is, silence is not idleness.
    ToolOpened {
        /// The call's id.
        id: Box<str>,
        /// The tool's name.
        name: Box<str>,
    },
    /// That tool call is over.
    ToolClosed {
        /// The call's id.
        id: Box<str>,
    },
    /// The agent holds a question open.
    Question(Question),
    /// That question needs no answer any more.
    QuestionClosed(QuestionKey),
    /// A turn began.
    TurnStarted,
    /// The turn ended; the terminal event, not the process's exit, says so.
    TurnEnded(TurnEnd),
    /// Something that is not known or expected.
    Drift(Drift),
    /// The agent is to be sent this.
    Write(Write),
}

/// An observation and its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// The bytes of the stream that it was seen in.
    pub at: Range<u64>,
    /// What was seen.
    pub what: Observation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_conversation_is_a_uuid() {
        for bits in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = ConversationId::chosen(bits);
            assert!(id.is_uuid(), "{id}");
            assert_eq!(ConversationId::new(id.as_str()), Some(id));
        }
        assert_eq!(ConversationId::chosen(0).as_str(), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn what_could_be_an_option_or_a_path_is_no_conversation() {
        for text in ["", "--help", "..", "a/b", "a b", "a\nb", "ü", &"x".repeat(300)] {
            assert_eq!(ConversationId::new(text), None, "{text:?}");
        }
        assert!(ConversationId::new("ses_e2182adaaffeLRRa2ty0Pue7YF").is_some());
    }

    #[test]
    fn a_clip_is_cut_between_letters_and_knows_the_whole_length() {
        let clip = Clip::of(&"ä".repeat(Clip::LIMIT));
        assert!(clip.is_cut());
        assert_eq!(clip.text.len(), Clip::LIMIT);
        assert_eq!(clip.bytes, 2 * Clip::LIMIT);
        assert!(!Clip::of("short").is_cut());
    }
}
