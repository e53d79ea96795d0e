//! Masks secrets in what an agent prints, byte for byte, so that offsets stay what they are.
//!
//! A secret may lie across two pieces of output. What could be the beginning of one is held back
//! until the next piece, or the end, tells: never more than the longest secret less one byte.

use std::collections::BTreeMap;

use belay_agent::Agent;
use memchr::memmem;
use serde_json::Value;

/// What is shorter is no secret, and masking it would hide ordinary words.
const SHORTEST: usize = 8;

/// The secrets of one attempt.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// The attempt's token, and the variables that look like credentials.
    pub(crate) fn of(agent: Agent, variables: &BTreeMap<String, String>, token: &str) -> Self {
        let secret = variables.iter().filter(|(name, _)| agent.is_secret(name));
        let values = secret.map(|(_, value)| &**value);
        let mut secrets = Vec::new();
        for value in values.chain([token]).map(str::trim).filter(|value| value.len() >= SHORTEST) {
            secrets.push(value.as_bytes().to_vec());
            // Agents print JSON, in which a secret may look otherwise.
            let quoted = Value::from(value).to_string();
            let inner = quoted.as_bytes()[1..quoted.len() - 1].to_vec();
            if inner != value.as_bytes() {
                secrets.push(inner);
            }
        }
        secrets.sort_unstable();
        secrets.dedup();
        Self(secrets)
    }

    /// Marks every byte of `bytes` that belongs to a secret.
    fn mark(&self, bytes: &[u8], marks: &mut [bool]) {
        for secret in &self.0 {
            let finder = memmem::Finder::new(secret);
            let mut from = 0;
            while let Some(found) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
                let begin = from + found;
                marks[begin..begin + secret.len()].fill(true);
                from = begin + 1;
            }
        }
    }

    /// How many bytes at the end of `bytes` could be the beginning of a secret.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = |secret: &Vec<u8>| {
            let most = (secret.len() - 1).min(bytes.len());
            (1..=most).rev().find(|&length| bytes.ends_with(&secret[..length]))
        };
        self.0.iter().filter_map(longest).max().unwrap_or(0)
    }

    /// A text with its secrets masked.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut marks = vec![false; bytes.len()];
        self.mark(text.as_bytes(), &mut marks);
        hide(&mut bytes, &marks);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A value with the secrets in its texts masked.
    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn hide(bytes: &mut [u8], marks: &[bool]) {
    for (byte, _) in bytes.iter_mut().zip(marks).filter(|(_, marked)| **marked) {
        *byte = b'*';
    }
}

/// Masks one stream.
pub(crate) struct Masker {
    secrets: Secrets,
    held: Vec<u8>,
    marks: Vec<bool>,
}

impl Masker {
    pub(crate) const fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new(), marks: Vec::new() }
    }

    /// Takes bytes in and gives those back that are decided, in order.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.marks.resize(self.held.len(), false);
        self.secrets.mark(&self.held, &mut self.marks);
        let decided = self.held.len() - self.secrets.open_end(&self.held);
        self.give(decided)
    }

    /// The stream is over: gives back what was held.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.give(self.held.len())
    }

    fn give(&mut self, count: usize) -> Vec<u8> {
        let mut given: Vec<u8> = self.held.drain(..count).collect();
        let marks: Vec<bool> = self.marks.drain(..count).collect();
        hide(&mut given, &marks);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        let named = |(index, value): (usize, &&str)| (format!("X_TOKEN_{index}"), (*value).into());
        Secrets::of(Agent::Command, &values.iter().enumerate().map(named).collect(), "")
    }

    /// The stream as it is masked when it is cut into pieces of this length.
    fn masked(values: &[&str], stream: &str, piece: usize) -> String {
        let mut masker = Masker::new(secrets(values));
        let mut out = Vec::new();
        for bytes in stream.as_bytes().chunks(piece) {
            out.extend(masker.push(bytes));
        }
        out.extend(masker.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_masked_however_the_stream_is_cut() {
        let values = ["hunter22hunter22", "22hunter-and-more", "aaaaaaaa"];
        let stream = "x hunter22hunter22 y hunter22hunter-and-more z aaaaaaaaaaaa hunter22hunter2";
        let expected = "x **************** y ******************* z ************ hunter22hunter2";
        let expected = expected.replace("y *******************", "y hunter*****************");
        for piece in 1..=stream.len() {
            assert_eq!(masked(&values, stream, piece), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn only_what_could_be_a_secret_is_held_back() {
        let mut masker = Masker::new(secrets(&["sesame-open-now"]));
        assert_eq!(masker.push(b"Enter: "), b"Enter: ");
        assert_eq!(masker.push(b"a sesame"), b"a ");
        assert_eq!(masker.push(b" seed"), b"sesame seed");
        assert_eq!(masker.push(b"sesame-open-no"), b"");
        assert_eq!(masker.push(b"w!"), b"***************!");
    }

    #[test]
    fn what_looks_like_a_credential_is_one_and_short_words_are_not() {
        let variables = [
            ("ANTHROPIC_API_KEY", "sk-one-two"),
            ("db_password", "correct\"horse"),
            ("EDITOR", "emacs-editor"),
            ("SHORT_TOKEN", "abc"),
            ("CURSOR_API_KEY", "cursor-cursor"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secrets = Secrets::of(Agent::Cursor, &variables, "token-of-attempt");
        let text = "sk-one-two correct\"horse correct\\\"horse emacs-editor abc token-of-attempt";
        let expected = "********** ************* ************** emacs-editor abc ****************";
        assert_eq!(secrets.text(text), expected);
        let mut value = serde_json::json!({"a": ["x sk-one-two"], "b": 1});
        secrets.value(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["x **********"], "b": 1}));
    }
}
