//! The log: text or JSON on standard error, with everything masked that looks like a secret.
//!
//! Masking happens on the written line, after formatting, so that no field, no error and no nested
//! value is forgotten. What is masked: secrets that this process knows, and words that look like
//! tokens whoever made them.

use std::io::{self, Write};
use std::sync::{Arc, RwLock};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::{LogFormat, LogLevel};

/// How tokens begin that are known by their beginning.
const BEGINNINGS: [&str; 14] = [
    "belay_attempt_",
    "belay_hook_",
    "belay_token_",
    "belay_",
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "xoxb-",
    "xoxp-",
    "tk_",
    "AIza",
    "glpat-",
];
/// What follows these words is a secret, whatever it looks like.
const BEFORE: [&str; 3] = ["Bearer ", "bearer ", "Basic "];
/// A word that begins like a token is one from this length on.
const SHORTEST: usize = 20;
/// What is shorter is no secret, and masking it would hide ordinary words.
const SHORTEST_KNOWN: usize = 8;

/// The secrets that this process knows. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Mask(Arc<RwLock<Vec<String>>>);

impl Mask {
    /// This is a secret from now on.
    pub(crate) fn hide(&self, secret: &str) {
        let secret = secret.trim();
        if secret.len() >= SHORTEST_KNOWN
            && let Ok(mut known) = self.0.write()
        {
            known.push(secret.to_owned());
        }
    }

    /// A line without secrets.
    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        if let Ok(known) = self.0.read() {
            for secret in known.iter() {
                line = line.replace(secret.as_str(), "***");
            }
        }
        for before in BEFORE {
            line = after(&line, before);
        }
        words(&line)
    }
}

/// Whether a character may be part of a token.
fn of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~+/=".contains(c)
}

/// Masks what follows a word.
fn after(line: &str, before: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(before) {
        let (head, tail) = rest.split_at(at + before.len());
        let end = tail.find(|c| !of_token(c)).unwrap_or(tail.len());
        out.push_str(head);
        out.push_str(if end > 0 { "***" } else { "" });
        rest = &tail[end..];
    }
    out + rest
}

/// Masks words that begin like tokens.
fn words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let word = rest.find(|c| !of_token(c)).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(word);
        out.push_str(&masked(head));
        let between = tail.find(of_token).unwrap_or(tail.len());
        out.push_str(&tail[..between]);
        rest = &tail[between..];
    }
    out
}

/// A word, masked from where a token begins in it: `key=sk-…` is one word.
fn masked(word: &str) -> String {
    let begins = BEGINNINGS.iter().filter_map(|beginning| {
        let at = word.find(beginning)?;
        let fresh = word[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
        (fresh && word.len() - at >= SHORTEST).then_some((at, beginning.len()))
    });
    match begins.min() {
        Some((at, length)) => format!("{}***", &word[..at + length]),
        None => word.to_owned(),
    }
}

/// Writes whole lines to standard error, masked.
pub(crate) struct Masked {
    mask: Mask,
    line: Vec<u8>,
}

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        let line = self.mask.line(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        io::stderr().lock().write_all(line.as_bytes())
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // Nobody can be told that the log cannot be written.
        let _ = self.flush();
    }
}

impl<'a> MakeWriter<'a> for Mask {
    type Writer = Masked;

    fn make_writer(&'a self) -> Masked {
        Masked { mask: self.clone(), line: Vec::new() }
    }
}

/// Begins the log.
pub(crate) fn begin(format: LogFormat, level: LogLevel, mask: &Mask) {
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(mask.clone())
        .with_max_level(level)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_token_is_masked_and_nothing_else() {
        let mask = Mask::default();
        mask.hide("hunter2hunter2");
        mask.hide("short");
        for (line, shown) in [
            ("token hunter2hunter2!", "token ***!"),
            ("a short word", "a short word"),
            ("Authorization: Bearer abc.def-ghi, next", "Authorization: Bearer ***, next"),
            ("\"authorization\":\"Basic dXNlcjpwYXNz\"", "\"authorization\":\"Basic ***\""),
            ("key=sk-ant-api03-0123456789abcdef end", "key=sk-*** end"),
            ("belay_attempt_0123456789abcdef.1.x", "belay_***"),
            ("url=https://x/ghp_0123456789012345678901234567/y", "url=https://x/ghp_***"),
            ("task 0123456789abcdef is RUNNING", "task 0123456789abcdef is RUNNING"),
            ("risk-averse-people-of-the-world", "risk-averse-people-of-the-world"),
            ("belay_tasks 3", "belay_tasks 3"),
            ("„Übung“ — sk-", "„Übung“ — sk-"),
        ] {
            assert_eq!(mask.line(line), shown);
        }
    }

    #[test]
    fn lines_are_written_whole() {
        let mask = Mask::default();
        mask.hide("sesame-open-sesame");
        let mut writer = mask.make_writer();
        writer.write_all(b"it is sesame-open-").unwrap();
        writer.write_all(b"sesame\n").unwrap();
        assert_eq!(mask.line(&String::from_utf8_lossy(&writer.line)), "it is ***\n");
        writer.line.clear();
    }
}
