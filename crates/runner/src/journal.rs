//! The journal of an agent's standard input: what is to be written is recorded before it is.
//!
//! ```text
//! {"what":"initial","at":0,"length":12}\n<12 bytes>\n
//! {"what":{"write":0},…}\n…     {"what":{"answer":{…}},…}\n…
//! ```
//!
//! Standard input is the records' bytes in order, so offsets are the same after a restart, and a
//! sandbox skips what it has had. What the reader asks for is found by its number. Answers and
//! further turns are applied to a reader that is had again at the place where they were applied
//! first. A sandbox has one journal, whichever attempts go on in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use belay_agent::QuestionKey;
use belay_api::port::Who;
use serde::{Deserialize, Serialize};

/// Why something was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// What the plan begins with.
    Initial,
    /// What the reader asked for, by its number.
    Write(u64),
    /// The answer to a held question.
    Answer {
        /// The question.
        key: QuestionKey,
        /// The answer.
        text: String,
    },
    /// A later attempt went on in the same sandbox: by another turn, or by an answer alone.
    Turn {
        /// The attempt.
        who: Who,
        /// What the turn began with.
        prompt: Option<String>,
    },
    /// An answer that the agent would not have understood; nothing was written.
    Refused {
        /// The question.
        key: QuestionKey,
    },
}

/// The head of a record; its bytes follow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) what: What,
    /// How many bytes of standard output the reader had taken.
    pub(crate) at: u64,
    length: usize,
}

/// One attempt's journal, open.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    entries: Vec<Entry>,
    stdin: Vec<u8>,
}

impl Journal {
    /// Opens the journal, and drops a last record that a crash cut short.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (mut entries, mut stdin, mut end) = (Vec::new(), Vec::new(), 0);
        while let Some((entry, body, next)) = record(&bytes, end) {
            stdin.extend_from_slice(body);
            entries.push(entry);
            end = next;
        }
        file.set_len(end as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, entries, stdin })
    }

    /// Records what is to be written next.
    pub(crate) fn add(&mut self, what: What, at: u64, bytes: &[u8]) -> io::Result<()> {
        let entry = Entry { what, at, length: bytes.len() };
        let mut record = serde_json::to_vec(&entry)?;
        record.push(b'\n');
        record.extend_from_slice(bytes);
        record.push(b'\n');
        self.file.write_all(&record)?;
        self.stdin.extend_from_slice(bytes);
        self.entries.push(entry);
        Ok(())
    }

    /// Everything that is to be written, from the start.
    pub(crate) fn stdin(&self) -> &[u8] {
        &self.stdin
    }

    /// Whether this was recorded.
    pub(crate) fn has(&self, what: &What) -> bool {
        self.entries.iter().any(|entry| entry.what == *what)
    }

    /// How many answers to this question were refused.
    pub(crate) fn refused(&self, key: &QuestionKey) -> usize {
        let refused = What::Refused { key: key.clone() };
        self.entries.iter().filter(|entry| entry.what == refused).count()
    }

    /// Whether this attempt has gone on in the sandbox.
    pub(crate) fn has_turn_of(&self, speaker: Who) -> bool {
        let is_of = |what: &What| matches!(what, What::Turn { who, .. } if *who == speaker);
        self.entries.iter().any(|entry| is_of(&entry.what))
    }

    /// What a reader that is had again has to be told at its place, in order.
    pub(crate) fn told(&self) -> Vec<Entry> {
        let is_told = |entry: &&Entry| match entry.what {
            What::Answer { .. } | What::Turn { .. } => true,
            What::Initial | What::Write(_) | What::Refused { .. } => false,
        };
        self.entries.iter().filter(is_told).cloned().collect()
    }
}

/// The record that begins at `from`, its bytes, and where the next one begins.
fn record(bytes: &[u8], from: usize) -> Option<(Entry, &[u8], usize)> {
    let rest = bytes.get(from..)?;
    let head = rest.iter().position(|&byte| byte == b'\n')?;
    let entry: Entry = serde_json::from_slice(&rest[..head]).ok()?;
    let begin = from + head + 1;
    let end = begin.checked_add(entry.length)?;
    let body = bytes.get(begin..end)?;
    (bytes.get(end) == Some(&b'\n')).then_some((entry, body, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_there_again_and_a_torn_record_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let key: QuestionKey = serde_json::from_str("\"q-1\"").unwrap();
        let answer = What::Answer { key: key.clone(), text: "yes".into() };
        let mut journal = Journal::open(&path).unwrap();
        journal.add(What::Initial, 0, b"hello\n\n").unwrap();
        journal.add(What::Write(0), 9, b"{}\n").unwrap();
        journal.add(What::Refused { key: key.clone() }, 11, b"").unwrap();
        journal.add(answer.clone(), 12, b"yes\n").unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in (whole.len() - 20)..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            assert_eq!(journal.stdin(), b"hello\n\n{}\n", "cut at {cut}");
            assert!(!journal.has(&answer) && journal.told().is_empty());
            journal.add(answer.clone(), 12, b"yes\n").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole, "the torn end is written over");
        }
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.stdin(), b"hello\n\n{}\nyes\n");
        assert!(journal.has(&What::Initial) && journal.has(&What::Write(0)));
        assert!(!journal.has(&What::Write(1)));
        assert_eq!((journal.refused(&key), journal.told()[0].at), (1, 12));
    }
}
