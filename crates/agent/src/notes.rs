//! The books that every reader keeps while it reads: what is open, what was used, how the turn
//! stands. The dialects write into them; the rules that hold for every agent are kept here, once.

use std::collections::BTreeMap;
use std::ops::Range;

use belay_kernel::{Cause, EventKind, HeartbeatStatus, Money, Timestamp, Usage};

use crate::observation::{
    Clip, ConversationId, Detail, Drift, Event, Failure, Observation, Question, QuestionKey, Seen,
    TurnEnd, Write,
};

/// How many open tool calls and questions are tracked at once.
const OPEN_LIMIT: usize = 1_024;
/// How many different unknown types are counted by name.
const DRIFT_LIMIT: usize = 64;
/// How much of an unknown name is kept.
const NAME_LIMIT: usize = 64;

/// Where the turn stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Turn {
    /// The agent has not begun.
    #[default]
    Waiting,
    /// The agent works.
    Open,
    /// The agent said how it ended.
    Ended(TurnEnd),
}

/// An open tool call.
#[derive(Clone, Debug)]
pub(crate) struct OpenTool {
    pub(crate) name: Box<str>,
    /// Files that it edits, if it succeeds.
    pub(crate) edits: Vec<Box<str>>,
}

/// What a reader knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) conversation: Option<ConversationId>,
    pub(crate) usage: Usage,
    pub(crate) tools: BTreeMap<Box<str>, OpenTool>,
    pub(crate) questions: BTreeMap<QuestionKey, Question>,
    pub(crate) turn: Turn,
    /// How the agent last said it is, if it says so.
    pub(crate) status: Option<HeartbeatStatus>,
    pub(crate) drift: BTreeMap<Drift, u64>,
    /// The last error that the agent reported, whether or not it ended the turn.
    pub(crate) last_error: Option<Failure>,
    writes: u64,
}

/// The books, open at one line.
pub(crate) struct Notes<'a> {
    pub(crate) now: Timestamp,
    at: Range<u64>,
    pub(crate) books: &'a mut Books,
    seen: &'a mut Vec<Seen>,
}

impl<'a> Notes<'a> {
    pub(crate) fn new(
        now: Timestamp,
        at: Range<u64>,
        books: &'a mut Books,
        seen: &'a mut Vec<Seen>,
    ) -> Self {
        Self { now, at, books, seen }
    }

    fn note(&mut self, what: Observation) {
        self.seen.push(Seen { at: self.at.clone(), what });
    }

    pub(crate) fn event(&mut self, kind: EventKind, detail: Detail) {
        self.note(Observation::Event(Event { kind, detail }));
    }

    /// The agent said something; nothing said is no event.
    pub(crate) fn said(&mut self, text: &str) {
        if !text.is_empty() {
            self.event(EventKind::AssistantMessage, Detail::Text(Clip::of(text)));
        }
    }

    pub(crate) fn thought(&mut self, text: &str) {
        self.event(EventKind::Thinking, Detail::Text(Clip::of(text)));
    }

    /// The agent met an error, which need not be its end.
    pub(crate) fn error(&mut self, failure: Failure) {
        self.event(EventKind::Error, Detail::Text(failure.message.clone()));
        self.books.last_error = Some(failure);
    }

    pub(crate) fn conversation(&mut self, id: &str) {
        if self.books.conversation.as_ref().is_some_and(|known| known.as_str() == id) {
            return;
        }
        match ConversationId::new(id) {
            Some(id) => {
                self.books.conversation = Some(id.clone());
                self.note(Observation::Conversation(id));
            }
            None => self.drift(Drift::BadConversation),
        }
    }

    /// Usage so far, in all. A figure that falls is drift, and the higher one stays: a ledger
    /// never falls.
    pub(crate) fn usage(&mut self, usage: Usage) {
        let before = self.books.usage;
        let falls = usage.input_tokens < before.input_tokens
            || usage.output_tokens < before.output_tokens
            || usage.cache_read_tokens < before.cache_read_tokens
            || usage.cache_write_tokens < before.cache_write_tokens
            || (usage.cost.is_some() && usage.cost < before.cost);
        if falls {
            self.drift(Drift::UsageFell);
        }
        let after = Usage {
            input_tokens: usage.input_tokens.max(before.input_tokens),
            output_tokens: usage.output_tokens.max(before.output_tokens),
            cache_read_tokens: usage.cache_read_tokens.max(before.cache_read_tokens),
            cache_write_tokens: usage.cache_write_tokens.max(before.cache_write_tokens),
            cost: usage.cost.max(before.cost),
        };
        if after != before {
            self.books.usage = after;
            self.note(Observation::Usage(after));
        }
    }

    /// Usage so far, from figures that are first estimated and later settled: the higher counts.
    pub(crate) fn usage_at_least(&mut self, usage: Usage) {
        let before = self.books.usage;
        self.usage(Usage {
            input_tokens: usage.input_tokens.max(before.input_tokens),
            output_tokens: usage.output_tokens.max(before.output_tokens),
            cache_read_tokens: usage.cache_read_tokens.max(before.cache_read_tokens),
            cache_write_tokens: usage.cache_write_tokens.max(before.cache_write_tokens),
            cost: usage.cost.max(before.cost),
        });
    }

    /// Adds to what was used.
    pub(crate) fn used_more(&mut self, more: Usage) {
        let sum = plus(self.books.usage, more);
        self.usage(sum);
    }

    pub(crate) fn tool_opened(&mut self, id: &str, name: &str, input: &str, edits: Vec<Box<str>>) {
        self.turn_goes_on();
        self.event(
            EventKind::ToolUse,
            Detail::Tool { id: short(id), name: short(name), input: Clip::of(input) },
        );
        if self.books.tools.len() >= OPEN_LIMIT {
            return self.drift(Drift::TooManyTools);
        }
        let tool = OpenTool { name: short(name), edits };
        if self.books.tools.insert(short(id), tool).is_none() {
            self.note(Observation::ToolOpened { id: short(id), name: short(name) });
        }
    }

    /// A tool call is over. What the tool was is known from its opening.
    pub(crate) fn tool_closed(&mut self, kind: EventKind, id: &str, failed: bool, output: &str) {
        let id = short(id);
        let Some(tool) = self.books.tools.remove(&id) else {
            return self.drift(Drift::UnknownTool);
        };
        let outcome =
            Detail::Outcome { id: id.clone(), name: tool.name, failed, output: Clip::of(output) };
        self.event(kind, outcome);
        self.note(Observation::ToolClosed { id });
        if !failed {
            for path in tool.edits {
                self.event(EventKind::FileEdited, Detail::File(path));
            }
        }
    }

    pub(crate) fn question(&mut self, question: Question) {
        if self.books.questions.len() < OPEN_LIMIT {
            self.books.questions.insert(question.key.clone(), question.clone());
            self.note(Observation::Question(question));
        }
    }

    pub(crate) fn question_closed(&mut self, key: &QuestionKey) {
        if self.books.questions.remove(key).is_some() {
            self.note(Observation::QuestionClosed(key.clone()));
        }
    }

    /// A turn began; also after an end, when the agent goes on by itself.
    pub(crate) fn turn_goes_on(&mut self) {
        if self.books.turn != Turn::Open {
            self.books.turn = Turn::Open;
            self.note(Observation::TurnStarted);
        }
    }

    /// The turn ended. Of two ends the later counts; what was open is over.
    pub(crate) fn turn_ended(&mut self, end: TurnEnd) {
        if matches!(self.books.turn, Turn::Ended(_)) {
            self.drift(Drift::SecondEnd);
        }
        for id in std::mem::take(&mut self.books.tools).into_keys() {
            self.note(Observation::ToolClosed { id });
        }
        for key in std::mem::take(&mut self.books.questions).into_keys() {
            self.note(Observation::QuestionClosed(key));
        }
        match &end {
            TurnEnd::Succeeded => self.event(EventKind::Completed, Detail::Plain),
            TurnEnd::Failed(failure) => {
                self.event(EventKind::Error, Detail::Text(failure.message.clone()));
            }
        }
        self.books.turn = Turn::Ended(end.clone());
        self.note(Observation::TurnEnded(end));
    }

    pub(crate) fn succeeded(&mut self) {
        self.turn_ended(TurnEnd::Succeeded);
    }

    pub(crate) fn failed(&mut self, failure: Failure) {
        self.turn_ended(TurnEnd::Failed(failure));
    }

    pub(crate) fn drift(&mut self, drift: Drift) {
        let known = self.books.drift.contains_key(&drift);
        let drift = if known || self.books.drift.len() < DRIFT_LIMIT {
            drift
        } else {
            Drift::UnknownType("(others)".into())
        };
        *self.books.drift.entry(drift.clone()).or_default() += 1;
        self.note(Observation::Drift(drift));
    }

    /// A type that is not known. It counts as work: an allowlist of work once killed live agents
    /// whenever a new type appeared.
    pub(crate) fn unknown(&mut self, name: &str) {
        let name = short(name);
        self.event(EventKind::Other(format!("agent.{name}").into()), Detail::Plain);
        self.drift(Drift::UnknownType(name));
    }

    pub(crate) fn write(&mut self, bytes: Vec<u8>) {
        let number = self.books.writes;
        self.books.writes += 1;
        self.note(Observation::Write(Write { number, bytes }));
    }
}

/// An id or a name, bounded.
fn short(name: &str) -> Box<str> {
    if name.len() <= 2 * NAME_LIMIT {
        return name.into();
    }
    let mut clip = Clip::of(name).text.into_string();
    let end = (0..=NAME_LIMIT).rev().find(|&at| clip.is_char_boundary(at)).unwrap_or(0);
    clip.truncate(end);
    clip.into()
}

/// The sum of two usages.
pub(crate) fn plus(one: Usage, other: Usage) -> Usage {
    let cost = match (one.cost, other.cost) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    Usage {
        input_tokens: one.input_tokens.saturating_add(other.input_tokens),
        output_tokens: one.output_tokens.saturating_add(other.output_tokens),
        cache_read_tokens: one.cache_read_tokens.saturating_add(other.cache_read_tokens),
        cache_write_tokens: one.cache_write_tokens.saturating_add(other.cache_write_tokens),
        cost,
    }
}

/// What of `one` is not in `other`, at least nothing.
pub(crate) fn minus(one: Usage, other: Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens.saturating_sub(other.input_tokens),
        output_tokens: one.output_tokens.saturating_sub(other.output_tokens),
        cache_read_tokens: one.cache_read_tokens.saturating_sub(other.cache_read_tokens),
        cache_write_tokens: one.cache_write_tokens.saturating_sub(other.cache_write_tokens),
        cost: one.cost.map(|cost| cost.minus(other.cost.unwrap_or(Money::ZERO))),
    }
}

/// The cause that an HTTP status of the model's API stands for.
pub(crate) const fn cause_of_status(status: u16) -> Cause {
    match status {
        401..=403 => Cause::Auth,
        413 => Cause::ContextOverflow,
        429 => Cause::RateLimit,
        408 | 409 | 425 | 500.. => Cause::Network,
        _ => Cause::Configuration,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(act: impl FnOnce(&mut Notes<'_>)) -> (Books, Vec<Observation>) {
        let (mut books, mut seen) = (Books::default(), Vec::new());
        act(&mut Notes::new(Timestamp::EPOCH, 0..1, &mut books, &mut seen));
        (books, seen.into_iter().map(|seen| seen.what).collect())
    }

    fn tokens(input: u64, cost: Option<f64>) -> Usage {
        Usage { input_tokens: input, cost: cost.and_then(Money::from_usd), ..Usage::default() }
    }

    #[test]
    fn a_ledger_never_falls() {
        let (books, seen) = with(|notes| {
            notes.usage(tokens(10, Some(0.5)));
            notes.usage(tokens(7, None));
            notes.usage(tokens(10, Some(0.25)));
            notes.used_more(tokens(5, None));
        });
        assert_eq!(books.usage, tokens(15, Some(0.5)));
        assert_eq!(books.drift[&Drift::UsageFell], 2);
        assert_eq!(seen.len(), 4, "two figures and two drifts: {seen:?}");
    }

    #[test]
    fn the_end_of_a_turn_closes_what_is_open() {
        let (books, seen) = with(|notes| {
            notes.tool_opened("a", "Bash", "{}", Vec::new());
            notes.succeeded();
        });
        assert!(books.tools.is_empty());
        assert!(seen.contains(&Observation::ToolClosed { id: "a".into() }));
        assert_eq!(seen.last(), Some(&Observation::TurnEnded(TurnEnd::Succeeded)));
    }

    #[test]
    fn of_two_ends_the_later_counts() {
        let failure = Failure::new(Cause::Network, "gone");
        let (books, _) = with(|notes| {
            notes.succeeded();
            notes.failed(failure.clone());
        });
        assert_eq!(books.turn, Turn::Ended(TurnEnd::Failed(failure)));
        assert_eq!(books.drift[&Drift::SecondEnd], 1);
    }

    #[test]
    fn the_books_are_bounded() {
        let (books, _) = with(|notes| {
            for number in 0..5_000 {
                notes.tool_opened(&number.to_string(), &"n".repeat(9_000), "", Vec::new());
                notes.unknown(&format!("{number}{}", "x".repeat(500)));
            }
        });
        assert_eq!(books.tools.len(), OPEN_LIMIT);
        assert!(books.drift.len() <= DRIFT_LIMIT + 1);
        assert!(books.tools.values().all(|tool| tool.name.len() <= 2 * NAME_LIMIT));
    }

    #[test]
    fn every_status_has_a_cause() {
        for (status, cause) in [
            (400, Cause::Configuration),
            (401, Cause::Auth),
            (404, Cause::Configuration),
            (413, Cause::ContextOverflow),
            (429, Cause::RateLimit),
            (500, Cause::Network),
            (529, Cause::Network),
        ] {
            assert_eq!(cause_of_status(status), cause, "{status}");
        }
    }
}
