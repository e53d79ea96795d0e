//! What an agent prints and says, without its secrets, masked byte for byte, so that offsets stay
//! what they are.
//!
//! A secret may lie across two pieces of output. What could be the beginning of one is held back
//! until the next piece, or the end, tells: never more than the longest secret less one byte.

use std::fmt;

use memchr::memmem;
use serde_json::Value;

/// What is shorter is no secret, and masking it would hide ordinary words.
const SHORTEST: usize = 8;

/// Values that are masked in what is kept and shown.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// These values, but for those that are too short to be secrets.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut secrets = Vec::new();
        let long_enough = |value: &&str| value.len() >= SHORTEST;
        for value in values.into_iter().map(str::trim).filter(long_enough) {
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
    pub fn text(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut marks = vec![false; bytes.len()];
        self.mark(text.as_bytes(), &mut marks);
        hide(&mut bytes, &marks);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A value with the secrets in its texts masked.
    pub fn value(&self, value: &mut Value) {
        each_text(value, &|text| self.text(text));
    }
}

/// Changes every text in a value, the names of its fields among them.
pub fn each_text(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                each_text(&mut value, change);
                fields.insert(change(&name), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn hide(bytes: &mut [u8], marks: &[bool]) {
    for (byte, _) in bytes.iter_mut().zip(marks).filter(|(_, marked)| **marked) {
        *byte = b'*';
    }
}

/// Masks one stream.
pub struct Masker {
    secrets: Secrets,
    held: Vec<u8>,
    marks: Vec<bool>,
}

impl Masker {
    /// Masks a stream from its beginning.
    pub const fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new(), marks: Vec::new() }
    }

    /// Takes bytes in and gives those back that are decided, in order.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.marks.resize(self.held.len(), false);
        self.secrets.mark(&self.held, &mut self.marks);
        let decided = self.held.len() - self.secrets.open_end(&self.held);
        self.give(decided)
    }

    /// The stream is over: gives back what was held.
    pub fn finish(&mut self) -> Vec<u8> {
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

    /// The stream as it is masked when it is cut into pieces of this length.
    fn masked(values: &[&str], stream: &str, piece: usize) -> String {
        let mut masker = Masker::new(Secrets::new(values.iter().copied()));
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
        let mut masker = Masker::new(Secrets::new(["sesame-open-now"]));
        assert_eq!(masker.push(b"Enter: "), b"Enter: ");
        assert_eq!(masker.push(b"a sesame"), b"a ");
        assert_eq!(masker.push(b" seed"), b"sesame seed");
        assert_eq!(masker.push(b"sesame-open-no"), b"");
        assert_eq!(masker.push(b"w!"), b"***************!");
    }

    #[test]
    fn texts_are_masked_however_json_spells_them_and_short_words_are_not() {
        let secrets = Secrets::new(["sk-one-two", " correct\"horse\n", "abc", "sk-one-two-more"]);
        let text = "sk-one-two correct\"horse correct\\\"horse abc sk-one-two-more";
        let expected = "********** ************* ************** abc ***************";
        assert_eq!(secrets.text(text), expected);
        let mut value = serde_json::json!({"a": ["x sk-one-two"], "b": 1, "sk-one-two": null});
        secrets.value(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["x **********"], "b": 1, "**********": null}));
        assert_eq!(format!("{secrets:?}"), "Secrets(4)");
    }
}
