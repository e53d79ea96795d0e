//! Writing to the terminal: results to standard output, notes to standard error, colours only
//! where a person sees them.

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;

/// What a text stands for, and hence its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ink {
    /// Went well.
    Good,
    /// Went wrong.
    Bad,
    /// Somebody has to look.
    Attention,
    /// Goes on.
    Active,
    /// Beside the point.
    Faint,
    /// A heading.
    Strong,
}

/// Whether colours are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Palette {
    on: bool,
}

impl Palette {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self { on: wanted() && std::io::stdout().is_terminal() }
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self { on: wanted() && std::io::stderr().is_terminal() }
    }

    /// No colours at all.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { on: false }
    }

    /// The text in its colour.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Good => "32",
            Ink::Bad => "31",
            Ink::Attention => "33",
            Ink::Active => "36",
            Ink::Faint => "2",
            Ink::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// A state in its colour.
    pub(crate) fn state(self, state: &str) -> String {
        let ink = match state {
            "COMPLETED" => Ink::Good,
            "READY" | "BLOCKED" => Ink::Attention,
            "FAILED" | "TIMED_OUT" | "BUDGET_EXCEEDED" => Ink::Bad,
            "QUEUED" | "CLAIMED" | "RUNNING" => Ink::Active,
            _ => Ink::Faint,
        };
        self.paint(ink, state)
    }
}

fn wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether a person is at both ends: can see what is asked, and can type.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Writes bytes to standard output. Whoever closed the other end has seen enough.
pub(crate) fn put(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        let code = if error.kind() == ErrorKind::BrokenPipe { 0 } else { 1 };
        std::process::exit(code);
    }
}

/// Writes a line, or several, to standard output.
pub(crate) fn say(text: &str) {
    put(format!("{text}\n").as_bytes());
}

/// Writes a value as the API tells it.
pub(crate) fn say_json<T: Serialize>(value: &T) {
    // What came as JSON can be written as JSON.
    say(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// Writes a line to standard error.
pub(crate) fn note(text: &str) {
    // Where even standard error is closed, there is nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Text from elsewhere, made safe to print: no control characters but line breaks and tabs, so that
/// no title and no agent can move the cursor or change the terminal.
pub(crate) fn clean(text: &str) -> String {
    let safe = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().map(|c| if safe(c) { c } else { '\u{fffd}' }).collect()
}

/// The first line of a text, clean and cut to a width.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let line = clean(text.trim().lines().next().unwrap_or(""));
    if line.chars().count() <= width {
        return line;
    }
    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\rc\n\td"), "a\u{fffd}[2Jb\u{fffd}c\n\td");
        assert_eq!(one_line("  first \x07line\nsecond", 40), "first \u{fffd}line");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("abcd", 4), "abcd");
    }
}
