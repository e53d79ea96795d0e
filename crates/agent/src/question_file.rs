//! The question file: how an agent without a question tool asks, or says what it did.
//!
//! An agent writes `{"text": "…?", "options": ["…"]}` to `$BELAY_QUESTION_FILE` and exits with 0.
//! What neither ends in a question mark nor offers options is a summary of finished work, not a
//! question: asking a person to answer it would block the task for nothing.

use belay_kernel::question::{self, Said};
use serde::Deserialize;

/// The longest file that is read.
pub const QUESTION_FILE_LIMIT: usize = 64 << 10;

/// What a question file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuestionFile {
    /// A question, with the options that it offers.
    Question {
        /// What is asked.
        text: String,
        /// Possible answers.
        options: Vec<String>,
    },
    /// What the agent did.
    Summary(String),
    /// Nothing.
    Empty,
    /// More than is read.
    TooLong,
}

#[derive(Deserialize)]
struct Written {
    text: String,
    #[serde(default)]
    options: Vec<String>,
}

/// Reads a question file. One that is not the expected JSON is read as plain text.
pub fn read_question_file(bytes: &[u8]) -> QuestionFile {
    if bytes.len() > QUESTION_FILE_LIMIT {
        return QuestionFile::TooLong;
    }
    let written = serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        Written { text, options: Vec::new() }
    });
    let text = written.text.trim().to_owned();
    let options: Vec<String> = written
        .options
        .iter()
        .map(|option| option.trim())
        .filter(|option| !option.is_empty() && option.len() <= question::MAX_OPTION)
        .take(question::MAX_OPTIONS)
        .map(str::to_owned)
        .collect();
    match question::classify(&text, options.len()) {
        _ if text.is_empty() => QuestionFile::Empty,
        Said::Question => QuestionFile::Question { text, options },
        Said::Summary => QuestionFile::Summary(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str, options: &[&str]) -> QuestionFile {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        QuestionFile::Question { text: text.into(), options }
    }

    #[test]
    fn a_question_mark_or_options_make_a_question() {
        for (file, expected) in [
            (r#"{"text":"Which port?","options":[]}"#, question("Which port?", &[])),
            (r#"{"text":"Which port?"}"#, question("Which port?", &[])),
            (
                r#"{"text":"Pick one.","options":["a"," b ",""]}"#,
                question("Pick one.", &["a", "b"]),
            ),
            (r#"{"text":"どれですか？"}"#, question("どれですか？", &[])),
            ("Shall I go on?\n", question("Shall I go on?", &[])),
            (r#"{"text":"He asked \"why?\""}"#, question("He asked \"why?\"", &[])),
        ] {
            assert_eq!(read_question_file(file.as_bytes()), expected, "{file}");
        }
    }

    #[test]
    fn all_else_is_a_summary_or_nothing() {
        let summary = |text: &str| QuestionFile::Summary(text.into());
        for (file, expected) in [
            (r#"{"text":"I fixed the bug.","options":[]}"#, summary("I fixed the bug.")),
            ("Done; all tests pass.", summary("Done; all tests pass.")),
            (r#"{"text":"  ","options":["a"]}"#, QuestionFile::Empty),
            ("", QuestionFile::Empty),
        ] {
            assert_eq!(read_question_file(file.as_bytes()), expected, "{file}");
        }
        let long = vec![b'?'; QUESTION_FILE_LIMIT + 1];
        assert_eq!(read_question_file(&long), QuestionFile::TooLong);
    }

    #[test]
    fn invalid_utf8_is_still_read() {
        assert!(matches!(
            read_question_file(b"what \xff now?"),
            QuestionFile::Question { text, .. } if text == "what \u{fffd} now?"
        ));
    }
}
