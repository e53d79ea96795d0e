//! A bounded, repeatable fuzz run of every reader: kept streams, broken in the ways that streams
//! break, and grammar-free bytes. No reader panics, loses count of a byte, or holds more memory
//! than its limit. `fuzz/` holds the unbounded one.

use crate::common::{Kept, NOW, Setting, kept, launch};
use belay_agent::{Agent, Exit, Observation};

/// How often each kept stream is broken.
const ROUNDS: usize = 60;
/// The longest line that the readers take here, so that the bound is met often.
const LIMIT: usize = 32 << 10;

/// SplitMix64: the same numbers every time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

/// Breaks a stream once.
fn break_one(bytes: &mut Vec<u8>, others: &[Kept], chance: &mut Chance) {
    let at = chance.below(bytes.len() + 1);
    let end = (at + chance.below(64)).min(bytes.len());
    match chance.below(9) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.insert(at, u8::try_from(chance.below(256)).unwrap()),
        3 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
        4 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        5 => {
            let other = &others[chance.below(others.len())].stream;
            let from = chance.below(other.len() + 1);
            let to = (from + chance.below(2_000)).min(other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
        6 => bytes.splice(at..at, std::iter::repeat_n(b'[', chance.below(5_000))).for_each(drop),
        7 => bytes.splice(at..at, std::iter::repeat_n(b'x', LIMIT + 10)).for_each(drop),
        _ => {
            let tokens: [&[u8]; 6] =
                [b"\n", b"null", b"-1e999", b"\"type\":", b"18446744073709551616", b"\\ud800"];
            bytes.splice(at..at, tokens[chance.below(tokens.len())].iter().copied());
        }
    }
}

/// Reads `bytes` in pieces of chance, answers what is asked, and checks what must always hold.
fn survive(setting: &Setting, bytes: &[u8], chance: &mut Chance) {
    let launch = belay_agent::Launch { line_limit: LIMIT, ..launch(setting) };
    let mut reader = setting.agent.reader(&launch);
    let (mut seen, mut rest, mut taken) = (Vec::new(), bytes, 0);
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(1 + chance.below(rest.len().min(9_000)));
        rest = tail;
        taken += piece.len() as u64;
        reader.push(NOW, piece, &mut seen);
        assert_eq!(reader.taken(), taken, "every byte is accounted for");
        assert!(reader.held() <= 2 * LIMIT + (64 << 10), "{} bytes are held", reader.held());
        let held = reader.questions().next().map(|question| question.key.clone());
        if let Some(key) = held {
            // Whether the answer is taken or refused is as it may be.
            let _ = reader.answer(&key, "1");
        }
        let _ = reader.interrupt();
    }
    let exits = [Exit::Code(0), Exit::Code(1), Exit::Signal(9), Exit::Ended, Exit::Unseen];
    let judgement = reader.finish(NOW, exits[chance.below(exits.len())], &mut seen);
    assert_eq!(reader.taken(), bytes.len() as u64);
    assert!(seen.iter().all(|seen| seen.at.end <= bytes.len() as u64));
    let writes = seen.iter().filter_map(|seen| match &seen.what {
        Observation::Write(write) => Some(&write.bytes),
        _ => None,
    });
    for write in writes {
        assert!(write.ends_with(b"\n"), "what is written is whole lines");
    }
    drop(judgement);
}

#[test]
fn broken_streams_are_survived_by_every_reader() {
    let all = kept();
    let mut chance = Chance(20_261_115);
    let mut total = 0;
    for kept in &all {
        for round in 0..ROUNDS {
            let mut bytes = kept.stream[..kept.stream.len().min(200_000)].to_vec();
            for _ in 0..=chance.below(6) {
                break_one(&mut bytes, &all, &mut chance);
            }
            let mut setting = kept.setting.clone();
            if round % 5 == 0 {
                // The stream of another agent, as after a wrong configuration.
                setting.agent = Agent::ALL[chance.below(Agent::ALL.len())];
            }
            setting.asks = chance.below(2) == 0;
            total += bytes.len();
            survive(&setting, &bytes, &mut chance);
        }
    }
    assert!(total > 1_000_000, "the run was long enough: {total}");
}

#[test]
fn random_bytes_are_survived_by_every_reader() {
    let mut chance = Chance(7);
    for agent in Agent::ALL {
        for asks in [false, true] {
            let setting = Setting { agent, resumed: None, asks, exit: Exit::Code(0) };
            for _ in 0..20 {
                let length = chance.below(20_000);
                let bytes: Vec<u8> = (0..length).map(|_| chance.next() as u8).collect();
                survive(&setting, &bytes, &mut chance);
            }
        }
    }
}

/// A stream that never ends its line, and one that opens tools for ever, hold a bounded memory.
#[test]
fn endless_streams_hold_a_bounded_memory() {
    let setting = Setting { agent: Agent::Claude, resumed: None, asks: true, exit: Exit::Code(0) };
    let mut reader = setting.agent.reader(&launch(&setting));
    let chunk = vec![b'a'; 1 << 20];
    for _ in 0..64 {
        let mut seen = Vec::new();
        reader.push(NOW, &chunk, &mut seen);
        assert!(reader.held() <= 2 * belay_agent::LINE_LIMIT, "{}", reader.held());
    }
    reader.push(NOW, b"\n", &mut Vec::new());
    for number in 0..20_000 {
        let call = serde_json::json!({"type": "tool_use", "id": number.to_string()});
        let line = serde_json::json!({"type": "assistant", "message": {"content": [call]}});
        reader.push(NOW, format!("{line}\n").as_bytes(), &mut Vec::new());
    }
    assert!(reader.open_tools().count() <= 1_024);
}

/// A line of ten megabytes, in pieces of odd sizes, is one message, and what follows is still read.
#[test]
fn a_line_of_ten_megabytes_is_read_whole() {
    let setting = Setting { agent: Agent::Claude, resumed: None, asks: true, exit: Exit::Code(0) };
    let mut reader = setting.agent.reader(&launch(&setting));
    let text = serde_json::json!({"type": "text", "text": "x".repeat(10 << 20)});
    let long = serde_json::json!({"type": "assistant", "message": {"content": [text]}});
    let call = serde_json::json!({"type": "tool_use", "id": "after", "name": "Bash", "input": {}});
    let next = serde_json::json!({"type": "assistant", "message": {"content": [call]}});
    let bytes = format!("{long}\n{next}\n").into_bytes();
    let mut seen = Vec::new();
    for piece in bytes.chunks(65_521) {
        reader.push(NOW, piece, &mut seen);
    }
    assert_eq!(reader.taken(), bytes.len() as u64, "every byte is accounted for");
    assert_eq!(reader.open_tools().count(), 1, "the line after it was read");
    let drift = seen.iter().any(|seen| matches!(seen.what, Observation::Drift { .. }));
    assert!(!drift, "the long line was not cut");
}
