//! The reader: an agent's output in, observations out. It does no I/O and reads no clock; what is
//! to be written to the agent comes out as data, and time comes in as `now`.
//!
//! ```text
//!  bytes ──► lines ──► dialect ──► notes ──► observations
//!            (whole,   (one per    (open tools, usage,
//!             counted)  agent)      turn, drift)
//! ```
//!
//! The same bytes give the same observations however they are cut, so a reader that was lost with
//! its process is had again by reading the transcript from the start.
//!
//! Rejected: a reader that is handed whole events by an async stream. It would tie the rules of
//! eight agents to one runtime and could not be fuzzed byte by byte.

use belay_kernel::{HeartbeatStatus, Timestamp, Usage};

use crate::judge::{Exit, Judgement, judge};
use crate::lines::{Content, Line, Lines};
use crate::notes::{Books, Notes, Turn};
use crate::observation::{ConversationId, Drift, Question, QuestionKey, Seen, TurnEnd};

/// The longest line that is read, unless a caller says otherwise. Agents print lines of 10 MB.
pub const LINE_LIMIT: usize = 16 << 20;

/// How one agent speaks.
pub(crate) trait Dialect: Send {
    /// Reads a line that is not blank.
    fn line(&mut self, line: &str, notes: &mut Notes<'_>);

    /// The stream is over: what was put off is said now.
    fn finish(&mut self, _notes: &mut Notes<'_>) {}

    /// What the process's exit adds to, or changes of, how the turn ended.
    fn at_exit(&self, _books: &Books, _exit: Exit) -> Option<TurnEnd> {
        None
    }

    /// The bytes that answer a held question.
    fn answer(&mut self, _question: &Question, _answer: &str) -> Option<Vec<u8>> {
        None
    }

    /// The bytes that begin another turn of the same process.
    fn next_turn(&mut self, _prompt: &str) -> Option<Vec<u8>> {
        None
    }

    /// The bytes that ask the agent to end its turn.
    fn interrupt(&mut self, _books: &Books) -> Option<Vec<u8>> {
        None
    }
}

/// Why a question cannot be answered through the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerRefusal {
    /// It was answered, withdrawn, or never asked.
    #[error("no such question is held open")]
    NotHeld,
    /// The answer is not among the options, and only they are answers.
    #[error("the answer is not one of the options")]
    NotAnOption,
}

impl AnswerRefusal {
    /// The refusal's stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotHeld => "question_not_held",
            Self::NotAnOption => "not_an_option",
        }
    }
}

/// Reads one agent's output.
pub struct Reader {
    lines: Lines,
    dialect: Box<dyn Dialect>,
    books: Books,
}

impl Reader {
    pub(crate) fn new(dialect: Box<dyn Dialect>, line_limit: usize) -> Self {
        Self { lines: Lines::new(line_limit), dialect, books: Books::default() }
    }

    /// Takes bytes in, received at `now`, and adds what is seen in them to `seen`.
    pub fn push(&mut self, now: Timestamp, bytes: &[u8], seen: &mut Vec<Seen>) {
        let Self { lines, dialect, books } = self;
        lines.push(bytes, |line| take(now, line, dialect.as_mut(), books, seen));
    }

    /// The stream is over and the process ended with `exit`: reads what is left and judges.
    pub fn finish(&mut self, now: Timestamp, exit: Exit, seen: &mut Vec<Seen>) -> Judgement {
        let Self { lines, dialect, books } = self;
        lines.finish(|line| {
            Notes::new(now, line.at.clone(), books, seen).drift(Drift::HalfLine);
            take(now, line, dialect.as_mut(), books, seen);
        });
        let end_of_stream = lines.taken()..lines.taken();
        dialect.finish(&mut Notes::new(now, end_of_stream.clone(), books, seen));
        if let Some(end) = dialect.at_exit(books, exit)
            && books.turn != Turn::Ended(end.clone())
        {
            // The exit corrects the stream; that is no second end.
            books.turn = Turn::Open;
            Notes::new(now, end_of_stream, books, seen).turn_ended(end);
        }
        judge(&books.turn, exit)
    }

    /// The bytes that answer a held question. They are to be written at once: the question counts
    /// as answered.
    pub fn answer(&mut self, key: &QuestionKey, answer: &str) -> Result<Vec<u8>, AnswerRefusal> {
        let question = self.books.questions.get(key).ok_or(AnswerRefusal::NotHeld)?;
        if question.closed && option_named(question, answer).is_none() {
            return Err(AnswerRefusal::NotAnOption);
        }
        let bytes = self.dialect.answer(question, answer).ok_or(AnswerRefusal::NotHeld)?;
        self.books.questions.remove(key);
        Ok(bytes)
    }

    /// The bytes that begin another turn, for an agent whose process stays when a turn is over;
    /// nothing for the others. They are to be written at once: the turn counts as open.
    pub fn next_turn(&mut self, prompt: &str) -> Option<Vec<u8>> {
        let bytes = self.dialect.next_turn(prompt)?;
        self.books.turn = Turn::Open;
        Some(bytes)
    }

    /// The bytes that ask the agent to end its turn; nothing for agents that only a signal reaches.
    pub fn interrupt(&mut self) -> Option<Vec<u8>> {
        self.dialect.interrupt(&self.books)
    }

    /// Where the turn stands.
    pub const fn turn(&self) -> &Turn {
        &self.books.turn
    }

    /// How the agent last said it is; nothing for those that do not say.
    pub const fn status(&self) -> Option<HeartbeatStatus> {
        self.books.status
    }

    /// The conversation's id, once the agent said it.
    pub const fn conversation(&self) -> Option<&ConversationId> {
        self.books.conversation.as_ref()
    }

    /// What the attempt has used so far.
    pub const fn usage(&self) -> Usage {
        self.books.usage
    }

    /// The open tool calls: id and name.
    pub fn open_tools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.books.tools.iter().map(|(id, tool)| (&**id, &*tool.name))
    }

    /// The questions held open.
    pub fn questions(&self) -> impl Iterator<Item = &Question> {
        self.books.questions.values()
    }

    /// How often each kind of drift was seen.
    pub fn drift(&self) -> impl Iterator<Item = (&Drift, u64)> {
        self.books.drift.iter().map(|(drift, count)| (drift, *count))
    }

    /// Bytes taken in; every one of them is in exactly one line.
    pub const fn taken(&self) -> u64 {
        self.lines.taken()
    }

    /// Bytes held because their line is not complete.
    pub const fn held(&self) -> usize {
        self.lines.held()
    }
}

/// The index of the option that an answer names, by its text or by its number from 1.
pub(crate) fn option_named(question: &Question, answer: &str) -> Option<usize> {
    let answer = answer.trim();
    let by_text = question.options.iter().position(|option| option.eq_ignore_ascii_case(answer));
    let by_number = || {
        let number: usize = answer.parse().ok()?;
        (1..=question.options.len()).contains(&number).then(|| number - 1)
    };
    by_text.or_else(by_number)
}

fn take(
    now: Timestamp,
    line: Line<'_>,
    dialect: &mut dyn Dialect,
    books: &mut Books,
    seen: &mut Vec<Seen>,
) {
    let mut notes = Notes::new(now, line.at, books, seen);
    let bytes = match line.content {
        Content::Whole(bytes) => bytes.trim_ascii(),
        Content::TooLong => return notes.drift(Drift::TooLong),
    };
    if bytes.is_empty() {
        return;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => dialect.line(text, &mut notes),
        Err(_) => {
            notes.drift(Drift::NotUtf8);
            dialect.line(&String::from_utf8_lossy(bytes), &mut notes);
        }
    }
}
