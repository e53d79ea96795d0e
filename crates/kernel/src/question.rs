//! Questions of agents, and what is only a summary.

use crate::limits::Limits;
use crate::time::{Span, Timestamp};

/// The longest text of a question or an answer, in bytes.
pub const MAX_TEXT: usize = 16 * 1024;
/// The most options that a question may offer.
pub const MAX_OPTIONS: usize = 20;
/// The longest option, in bytes.
pub const MAX_OPTION: usize = 1024;

/// What an agent left in its question file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// It asks.
    Question,
    /// It tells what it did: nobody is to be waited for.
    Summary,
}

/// Why a question is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuestionDenial {
    /// There is nothing to answer.
    #[error("the question is empty; write what you want to know")]
    Empty,
    /// The text is too long.
    #[error("the question is {0} bytes long; at most {MAX_TEXT} are read")]
    TooLong(usize),
    /// There are too many options.
    #[error("the question has {0} options; at most {MAX_OPTIONS} are offered")]
    TooManyOptions(usize),
    /// An option is empty or too long.
    #[error("option {0} is empty or longer than {MAX_OPTION} bytes")]
    BadOption(usize),
}

/// Tells a question from a completion summary: it ends in a question mark, of any script and
/// whatever quotes or marks close it, or it has options.
pub fn classify(text: &str, options: usize) -> Said {
    let closes = |letter: char| letter.is_whitespace() || "\"'”’)*_`".contains(letter);
    let asks = text.trim_end_matches(closes).ends_with(['?', '？', '؟']);
    if asks || options > 0 { Said::Question } else { Said::Summary }
}

/// Whether a question can be put to a person.
pub fn check(text: &str, options: &[impl AsRef<str>]) -> Result<(), QuestionDenial> {
    if text.trim().is_empty() {
        return Err(QuestionDenial::Empty);
    }
    if text.len() > MAX_TEXT {
        return Err(QuestionDenial::TooLong(text.len()));
    }
    if options.len() > MAX_OPTIONS {
        return Err(QuestionDenial::TooManyOptions(options.len()));
    }
    let bad = |option: &str| option.trim().is_empty() || option.len() > MAX_OPTION;
    match options.iter().position(|option| bad(option.as_ref())) {
        Some(index) => Err(QuestionDenial::BadOption(index + 1)),
        None => Ok(()),
    }
}

/// Until when an attempt is held for the answer; then it ends `question` and compute is released.
pub const fn held_until(asked_at: Timestamp, limits: &Limits) -> Timestamp {
    asked_at.after(limits.linger).after(Span::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Reading};

    #[test]
    fn a_file_that_neither_asks_nor_offers_is_a_summary() {
        for (text, options, said) in [
            ("Which database?", 0, Said::Question),
            ("Which database?\n\n", 0, Said::Question),
            ("Pick one.", 2, Said::Question),
            ("どちらですか？", 0, Said::Question),
            ("**Which one?**", 0, Said::Question),
            ("All tests pass.", 0, Said::Summary),
            ("Why? Because it was null.", 0, Said::Summary),
            ("", 0, Said::Summary),
        ] {
            assert_eq!(classify(text, options), said, "{text}");
        }
    }

    #[test]
    fn questions_are_bounded() {
        let none: [&str; 0] = [];
        assert_eq!(check("Which?", &["a", "b"]), Ok(()));
        assert_eq!(check(" \n", &none), Err(QuestionDenial::Empty));
        assert_eq!(check(&"x".repeat(MAX_TEXT), &none), Ok(()));
        let long = check(&"x".repeat(MAX_TEXT + 1), &none).unwrap_err();
        assert_eq!(long.to_string(), "the question is 16385 bytes long; at most 16384 are read");
        assert_eq!(check("?", &vec!["a"; 20]), Ok(()));
        assert_eq!(check("?", &vec!["a"; 21]), Err(QuestionDenial::TooManyOptions(21)));
        assert_eq!(check("?", &["a", " "]), Err(QuestionDenial::BadOption(2)));
        assert_eq!(check("?", &["y".repeat(1_025)]), Err(QuestionDenial::BadOption(1)));
        assert_eq!(check("?", &["y".repeat(1_024)]), Ok(()));
    }

    #[test]
    fn a_hold_ends_when_the_linger_time_is_passed() {
        let limits = Limits::default();
        let asked = Timestamp::from_millis(7);
        let passes = Reading::passes_at(Clock::Linger, asked, limits.linger);
        assert_eq!(held_until(asked, &limits), passes);
    }
}
