//! Random lives of a blob, compared with the plainest model: a vector of bytes, some missing.

use belay_store::blob::{BlobError, BlobHash, BlobKey, Blobs, Piece, Refusal};
use proptest::prelude::*;

use crate::world::{World, fresh};

#[derive(Clone, Debug)]
enum Step {
    /// Send `len` bytes that begin `back` before the end.
    Append { back: u64, len: u64, wrong: bool },
    /// Send bytes beyond the end.
    Leap { ahead: u64 },
    /// Declare bytes missing, from `back` before the end on.
    Lose { back: u64, len: u64 },
    /// Read a range, given in thousandths of the length.
    Read { from: u64, to: u64 },
    /// Go on as another process.
    Reopen,
    /// Seal with what is known.
    Seal,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..50u64, 0..300u64, prop::bool::weighted(0.1))
            .prop_map(|(back, len, wrong)| Step::Append { back, len, wrong }),
        4 => (0..300u64).prop_map(|len| Step::Append { back: 0, len, wrong: false }),
        1 => (1..9u64).prop_map(|ahead| Step::Leap { ahead }),
        1 => (0..9u64, 1..40u64).prop_map(|(back, len)| Step::Lose { back, len }),
        4 => (0..1_000u64, 0..1_100u64).prop_map(|(from, to)| Step::Read { from, to }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Seal),
    ]
}

/// What the blob should be: each byte, or nothing where it is missing.
#[derive(Default)]
struct Model {
    bytes: Vec<Option<u8>>,
    sealed: bool,
    drawn: u64,
}

impl Model {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn draw(&mut self) -> u8 {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.drawn >> 40) as u8
    }

    /// Bytes to send at `start`: what is there, then new ones.
    fn sent(&mut self, start: u64, len: u64) -> Vec<u8> {
        (start..start + len)
            .map(|at| self.bytes.get(at as usize).copied().flatten().unwrap_or_else(|| self.draw()))
            .collect()
    }

    /// What an append of these bytes (or of missing ones) must come to.
    fn extend(&mut self, key: BlobKey, start: u64, sent: &[Option<u8>]) -> Result<u64, Refusal> {
        let length = self.length();
        if self.sealed {
            return Err(Refusal::Sealed { key, length });
        }
        if start > length {
            return Err(Refusal::Gap { key, offset: start, length });
        }
        for (at, byte) in (start..).zip(sent) {
            match self.bytes.get(at as usize) {
                Some(stored) if stored != byte => {
                    return Err(Refusal::Conflict { key, at, length });
                }
                Some(_) => {}
                None => self.bytes.push(*byte),
            }
        }
        Ok(self.length())
    }

    fn missing(&self) -> Vec<std::ops::Range<u64>> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for (at, _) in (0..).zip(&self.bytes).filter(|(_, byte)| byte.is_none()) {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => ranges.push(at..at + 1),
            }
        }
        ranges
    }
}

fn flat(pieces: &[Piece]) -> Vec<Option<u8>> {
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes { bytes, .. } => all.extend(bytes.iter().copied().map(Some)),
            Piece::Missing(range) => all.extend(range.clone().map(|_| None)),
        }
    }
    all
}

fn judged(answer: Result<u64, BlobError>) -> Result<u64, Refusal> {
    answer.map_err(|error| error.refusal().unwrap_or_else(|| panic!("{error:?}")).clone())
}

async fn live(world: &World, steps: Vec<Step>) {
    let (key, mut model) = (fresh(), Model::default());
    let mut blobs: Blobs = world.another().await;
    // So that there is something to read before the first append.
    assert_eq!(blobs.append(key, 0, vec![7]).await.unwrap(), 1);
    model.bytes.push(Some(7));
    for step in steps {
        let length = model.length();
        match step {
            Step::Append { back, len, wrong } => {
                let start = length.saturating_sub(back);
                let mut sent = model.sent(start, len);
                if let (true, Some(first)) = (wrong, sent.first_mut()) {
                    *first ^= 0x55;
                }
                let expected =
                    model.extend(key, start, &sent.iter().copied().map(Some).collect::<Vec<_>>());
                assert_eq!(judged(blobs.append(key, start, sent).await), expected);
            }
            Step::Leap { ahead } => {
                let expected = model.extend(key, length + ahead, &[Some(1)]);
                assert_eq!(judged(blobs.append(key, length + ahead, vec![1]).await), expected);
            }
            Step::Lose { back, len } => {
                let start = length.saturating_sub(back);
                let expected = model.extend(key, start, &vec![None; len as usize]);
                let answer = blobs.append_missing(key, start..start + len).await;
                assert_eq!(judged(answer), expected);
            }
            Step::Read { from, to } => {
                let (from, to) = (length * from / 1_000, length * to / 1_000);
                let (from, to) = (from.min(to), to.max(from));
                let read = blobs.read(key, from..to).await.unwrap();
                let expected = &model.bytes[from as usize..to.min(length) as usize];
                assert_eq!(flat(&read.pieces), expected);
                assert_eq!((read.length, read.closed), (length, model.sealed));
            }
            Step::Reopen => blobs = world.another().await,
            Step::Seal => {
                let seal = blobs.seal_with_missing(key, length, &model.missing()).await.unwrap();
                let bytes: Vec<u8> = model.bytes.iter().copied().flatten().collect();
                assert_eq!(seal.hash, BlobHash::of(&bytes));
                assert_eq!(blobs.verify(key).await.unwrap(), seal);
                model.sealed = true;
            }
        }
    }
    let read = world.another().await.read(key, 0..u64::MAX).await.unwrap();
    assert_eq!(flat(&read.pieces), model.bytes);
}

fn check(cases: u32, world: impl AsyncFn() -> World) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let world = runtime.block_on(world());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..40))| {
        runtime.block_on(live(&world, steps));
    });
    drop(world);
}

#[test]
fn in_memory_a_blob_is_its_model() {
    check(300, World::memory);
}

#[test]
fn in_a_directory_a_blob_is_its_model() {
    check(40, World::directory);
}

#[test]
fn in_a_bucket_a_blob_is_its_model() {
    check(25, World::bucket);
}
