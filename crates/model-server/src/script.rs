//! What the model shall do, one step per request: as values, and as a small text.
//!
//! ```text
//! usage input=1200 output=40 cached=200    # of every step after it
//! call Bash {"command":"echo hi > note"}   # ask for a tool
//! say Done.                                # end the turn
//! huge 1000000                             # say that many bytes
//! fail 429 retry-after=30 times=2          # an HTTP error; for ever, or so many times
//! fail 429 reset=1794740000                # an allowance used up until that second of Unix time
//! hang                                     # never answer; `hang after=TEXT` begins to
//! drop                                     # break the connection; `drop after=TEXT` begins to
//! ```
//!
//! What succeeds is used up by the request it answers. What fails stays, because agents try again
//! and the retry is part of the same failure; `times=` bounds it.

use std::str::FromStr;

use serde_json::Value;

/// Tokens that a reply says it used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tokens {
    /// Tokens of the request, those read from the cache included.
    pub input: u64,
    /// Tokens of the reply.
    pub output: u64,
    /// Tokens of the request that were read from the cache.
    pub cached: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { input: 100, output: 10, cached: 0 }
    }
}

/// What one request is answered with.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// The model says this and ends its turn.
    Say(String),
    /// The model asks for a tool.
    Call {
        /// The tool's name, as the agent offered it.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// The model refuses.
    Refuse,
    /// The server never answers; with some text, it begins to.
    Hang(Option<String>),
    /// The connection breaks; with some text, after the answer began.
    Drop(Option<String>),
    /// An HTTP error.
    Fail {
        /// The status, like 429.
        status: u16,
        /// Seconds for a `retry-after` header.
        retry_after: Option<u64>,
        /// When the account's allowance is there again, in seconds of Unix time.
        reset: Option<u64>,
    },
}

impl Act {
    /// Whether a request uses it up.
    const fn is_reply(&self) -> bool {
        matches!(self, Self::Say(_) | Self::Call { .. } | Self::Refuse)
    }
}

/// One step of a script.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// What to do.
    pub act: Act,
    /// What to report as used.
    pub tokens: Tokens,
    /// How many requests it still answers; nothing means for ever.
    pub times: Option<u32>,
}

impl Step {
    /// A step with the default usage.
    pub fn new(act: Act) -> Self {
        let times = act.is_reply().then_some(1);
        Self { act, tokens: Tokens::default(), times }
    }
}

/// The steps still to do.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    steps: std::collections::VecDeque<Step>,
}

impl Script {
    /// The step that answers the next request; after the last one the model says `Done.`
    pub fn take(&mut self) -> Step {
        let Some(first) = self.steps.front_mut() else {
            return Step::new(Act::Say("Done.".into()));
        };
        let step = first.clone();
        if let Some(times) = &mut first.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.steps.pop_front();
            }
        }
        step
    }

    /// How many steps are left.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl FromIterator<Step> for Script {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Self {
        Self { steps: steps.into_iter().collect() }
    }
}

/// Why a text is not a script.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the script: {problem}")]
pub struct ScriptError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut tokens = Tokens::default();
        let mut steps = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = read_line(line, &mut tokens);
            let step = read.map_err(|problem| ScriptError { line: index + 1, problem })?;
            steps.extend(step);
        }
        Ok(steps.into_iter().collect())
    }
}

fn read_line(line: &str, tokens: &mut Tokens) -> Result<Option<Step>, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let mut times = None;
    let act = match verb {
        "usage" => {
            *tokens = read_tokens(rest, *tokens)?;
            return Ok(None);
        }
        "say" => Act::Say(rest.into()),
        "refuse" => Act::Refuse,
        "huge" => {
            let bytes = rest.parse().map_err(|_| format!("`{rest}` is not a number of bytes"))?;
            Act::Say(filler(bytes))
        }
        "call" => {
            let (tool, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
            let input = serde_json::from_str(input).map_err(|error| error.to_string())?;
            Act::Call { tool: tool.into(), input }
        }
        "hang" | "drop" => {
            let after = rest.strip_prefix("after=").map(str::to_owned);
            if after.is_none() && !rest.is_empty() {
                return Err(format!("`{rest}` is not `after=TEXT`"));
            }
            if verb == "hang" { Act::Hang(after) } else { Act::Drop(after) }
        }
        "fail" => {
            let (status, options) = rest.split_once(' ').unwrap_or((rest, ""));
            let status = status.parse().map_err(|_| format!("`{status}` is not a status"))?;
            let (mut retry_after, mut reset) = (None, None);
            for (name, value) in pairs(options)? {
                match name {
                    "retry-after" => retry_after = Some(value),
                    "reset" => reset = Some(value),
                    "times" => times = u32::try_from(value).ok(),
                    _ => return Err(format!("`{name}` is not known")),
                }
            }
            Act::Fail { status, retry_after, reset }
        }
        _ => return Err(format!("`{verb}` is not known")),
    };
    let step = Step { tokens: *tokens, ..Step::new(act) };
    Ok(Some(Step { times: times.or(step.times), ..step }))
}

fn read_tokens(text: &str, mut tokens: Tokens) -> Result<Tokens, String> {
    for (name, value) in pairs(text)? {
        match name {
            "input" => tokens.input = value,
            "output" => tokens.output = value,
            "cached" => tokens.cached = value,
            _ => return Err(format!("`{name}` is not known")),
        }
    }
    Ok(tokens)
}

fn pairs(text: &str) -> Result<Vec<(&str, u64)>, String> {
    text.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or(format!("`{pair}` has no value"))?;
            Ok((name, value.parse().map_err(|_| format!("`{value}` is not a number"))?))
        })
        .collect()
}

/// Text of exactly `bytes` bytes, in lines that differ, so that it looks like output and not like a
/// model that repeats itself, which agents look out for.
fn filler(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    let mut number: u64 = 0;
    while text.len() < bytes {
        number += 1;
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text.push_str(&format!("{number}. {word:016x} leads to {:x}.\n", word.rotate_left(17)));
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_in_order_with_its_usage() {
        let mut script: Script = "
            # a comment
            usage input=7 output=3 cached=2
            call Bash {\"command\":\"true\"}
            fail 429 retry-after=30 times=2
            say All done, a=b."
            .parse()
            .unwrap();
        assert_eq!(script.len(), 3);
        let call = script.take();
        assert_eq!(call.tokens, Tokens { input: 7, output: 3, cached: 2 });
        assert!(matches!(call.act, Act::Call { tool, .. } if tool == "Bash"));
        let fail = Act::Fail { status: 429, retry_after: Some(30), reset: None };
        assert_eq!(script.take().act, fail);
        assert_eq!(script.take().act, fail);
        assert_eq!(script.take().act, Act::Say("All done, a=b.".into()));
        assert!(script.is_empty());
        assert_eq!(script.take().act, Act::Say("Done.".into()));
    }

    #[test]
    fn a_failure_without_a_number_of_times_stays() {
        let mut script: Script = "drop after=some text\nsay never".parse().unwrap();
        for _ in 0..100 {
            assert_eq!(script.take().act, Act::Drop(Some("some text".into())));
        }
    }

    #[test]
    fn what_is_not_a_script_is_refused_with_its_line() {
        for (text, problem) in [
            ("say hi\nsing", "line 2 of the script: `sing` is not known"),
            ("fail many", "line 1 of the script: `many` is not a status"),
            ("fail 500 often=1", "line 1 of the script: `often` is not known"),
            ("usage input", "line 1 of the script: `input` has no value"),
            ("hang on", "line 1 of the script: `on` is not `after=TEXT`"),
        ] {
            assert_eq!(text.parse::<Script>().unwrap_err().to_string(), problem);
        }
        assert!("call Bash {".parse::<Script>().is_err());
    }

    #[test]
    fn huge_says_exactly_so_many_bytes() {
        let mut script: Script = "huge 1000001".parse().unwrap();
        assert!(matches!(script.take().act, Act::Say(text) if text.len() == 1_000_001));
    }
}
