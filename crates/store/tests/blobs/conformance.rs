//! What holds wherever blobs lie.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belay_kernel::Timestamp;
use belay_store::blob::{
    BlobError, BlobHash, BlobKey, BlobKind, Blobs, Piece, PruneWhich, Pruned, Refusal,
};

use crate::world::{LIMITS, World, bytes, fresh, names, pattern, read_all, refusal};

macro_rules! conformance {
    ($($test:ident),* $(,)?) => {
        conformance!(@ memory $($test)*);
        conformance!(@ directory $($test)*);
        conformance!(@ bucket $($test)*);
    };
    (@ $place:ident $($test:ident)*) => {
        mod $place {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(&super::World::$place().await).await;
                }
            )*
        }
    };
}

conformance!(
    ranges_are_read_across_appends,
    the_same_bytes_again_change_nothing,
    a_gap_and_other_bytes_are_refused_with_the_length,
    what_is_too_large_is_refused_and_nothing_is_stored,
    a_seal_says_length_and_hash_and_is_final,
    a_seal_merges_small_appends,
    missing_ranges_are_named,
    a_seal_that_does_not_agree_is_refused,
    an_empty_blob_can_be_sealed,
    what_is_not_there_is_unknown,
    a_long_read_is_answered_in_part,
    writers_that_race_never_mix,
    an_append_and_a_seal_race_for_the_same_place,
    sealers_that_race_agree,
    readers_see_everything_while_it_is_sealed,
    a_stale_writer_after_the_seal_is_refused,
    a_stale_writer_after_deletion_leaves_nothing,
    deleted_is_gone,
    pruning_goes_by_age_and_seal,
    damage_is_an_error_that_names_the_blob,
);

async fn write(blobs: &Blobs, key: BlobKey, sizes: &[u64]) -> u64 {
    let mut at = 0;
    for size in sizes {
        assert_eq!(blobs.append(key, at, pattern(at, at + size)).await.unwrap(), at + size);
        at += size;
    }
    at
}

async fn ranges_are_read_across_appends(world: &World) {
    let key = fresh();
    let blobs = &world.blobs;
    let length = write(blobs, key, &[1, 10, 1_000, 7, 9_999]).await;
    for other in [blobs.clone(), world.another().await] {
        for range in [0..1, 0..11, 5..700, 1_010..1_012, 1_018..length, 3..3, length..length + 9] {
            let read = other.read(key, range.clone()).await.unwrap();
            let end = range.end.min(length).max(range.start);
            assert_eq!(read.bytes(), pattern(range.start, end), "{range:?}");
            assert_eq!((read.length, read.closed), (length, false));
        }
        assert_eq!(read_all(&other, key).await.unwrap(), pattern(0, length));
    }
    // What is appended by one is read by the other at once.
    let other = world.another().await;
    blobs.append(key, length, &b"more"[..]).await.unwrap();
    let read = other.read(key, length..u64::MAX).await.unwrap();
    assert_eq!(read.pieces, [bytes(length, b"more")]);
}

async fn the_same_bytes_again_change_nothing(world: &World) {
    let key = fresh();
    let length = write(&world.blobs, key, &[100, 200, 300]).await;
    let before = world.objects(key);
    for other in [world.blobs.clone(), world.another().await] {
        for (from, to) in [(0, 100), (300, 600), (50, 350), (0, 600), (599, 600), (600, 600)] {
            let answer = other.append(key, from, pattern(from, to)).await.unwrap();
            assert_eq!(answer, length, "{from}..{to}");
        }
    }
    assert_eq!(world.objects(key), before);
    // Half old, half new: only the new half is added.
    assert_eq!(world.blobs.append(key, 250, pattern(250, 700)).await.unwrap(), 700);
    assert_eq!(read_all(&world.blobs, key).await.unwrap(), pattern(0, 700));
}

async fn a_gap_and_other_bytes_are_refused_with_the_length(world: &World) {
    let key = fresh();
    let gap = refusal(world.blobs.append(key, 1, &b"x"[..]).await);
    assert_eq!(gap, Refusal::Gap { key, offset: 1, length: 0 });
    let length = write(&world.blobs, key, &[100, 100]).await;
    for other in [world.blobs.clone(), world.another().await] {
        let gap = refusal(other.append(key, 201, &b"x"[..]).await);
        assert_eq!(gap, Refusal::Gap { key, offset: 201, length });
        let mut wrong = pattern(90, 250);
        wrong[20] ^= 1;
        let conflict = refusal(other.append(key, 90, wrong).await);
        assert_eq!(conflict, Refusal::Conflict { key, at: 110, length });
        let missing = refusal(other.append_missing(key, 150..300).await);
        assert_eq!(missing, Refusal::Conflict { key, at: 150, length });
    }
    assert_eq!(read_all(&world.blobs, key).await.unwrap(), pattern(0, 200));
    assert_eq!(refusal(world.blobs.append(key, 500, &b""[..]).await).code(), "blob_gap");
}

async fn what_is_too_large_is_refused_and_nothing_is_stored(world: &World) {
    let key = fresh();
    let blobs = &world.blobs;
    let many = refusal(blobs.append(key, 0, vec![0; 10_001]).await);
    assert_eq!(many, Refusal::TooLarge { bytes: 10_001, max: LIMITS.append });
    assert_eq!(refusal(blobs.status(key).await), Refusal::Unknown { key });
    assert_eq!(blobs.append_missing(key, 0..999_999).await.unwrap(), 999_999);
    let full = refusal(blobs.append(key, 999_999, &b"ab"[..]).await);
    let expected = Refusal::Full { key, bytes: 1_000_001, max: LIMITS.total, length: 999_999 };
    assert_eq!(full, expected);
    assert_eq!(blobs.append(key, 999_999, &b"a"[..]).await.unwrap(), 1_000_000);
    assert_eq!(refusal(blobs.append(key, u64::MAX, &b"ab"[..]).await).code(), "blob_bad_range");
    assert_eq!(refusal(blobs.append_missing(key, backwards()).await).code(), "blob_bad_range");
    assert_eq!(refusal(blobs.read(key, backwards()).await).code(), "blob_bad_range");
    assert_eq!(refusal(blobs.seal(key, 1_000_001).await).code(), "blob_full");
}

fn backwards() -> Range<u64> {
    Range { start: 9, end: 5 }
}

async fn a_seal_says_length_and_hash_and_is_final(world: &World) {
    let key = fresh();
    let length = write(&world.blobs, key, &[100, 9_000, 9_000, 50]).await;
    let seal = world.blobs.seal(key, length).await.unwrap();
    assert_eq!((seal.length, seal.is_complete()), (length, true));
    assert_eq!(seal.hash, BlobHash::of(&pattern(0, length)));
    for other in [world.blobs.clone(), world.another().await] {
        assert_eq!(other.seal(key, length).await.unwrap(), seal, "again");
        assert_eq!(other.verify(key).await.unwrap(), seal);
        assert_eq!(other.status(key).await.unwrap().seal, Some(seal.clone()));
        let sealed = Refusal::Sealed { key, length };
        assert_eq!(refusal(other.append(key, length, &b"x"[..]).await), sealed);
        assert_eq!(refusal(other.append(key, 0, pattern(0, 100)).await), sealed);
        assert_eq!(refusal(other.append_missing(key, length..length + 1).await), sealed);
        assert_eq!(refusal(other.seal(key, length - 1).await).code(), "blob_seal_differs");
        assert_eq!(read_all(&other, key).await.unwrap(), pattern(0, length));
        let read = other.read(key, 90..110).await.unwrap();
        assert_eq!((read.bytes(), read.closed), (pattern(90, 110), true));
    }
}

async fn a_seal_merges_small_appends(world: &World) {
    let key = fresh();
    let length = write(&world.blobs, key, &[100; 90]).await;
    world.blobs.seal(key, length).await.unwrap();
    if world.files(key).is_some() {
        // 90 appends of 100 bytes are 3 parts of at most 4,000, and the seal.
        let objects = world.objects(key);
        assert_eq!(objects.len(), 4, "{objects:?}");
    }
    assert_eq!(read_all(&world.another().await, key).await.unwrap(), pattern(0, length));
}

async fn missing_ranges_are_named(world: &World) {
    let key = fresh();
    let blobs = &world.blobs;
    blobs.append(key, 0, &b"abc"[..]).await.unwrap();
    assert_eq!(blobs.append_missing(key, 3..5).await.unwrap(), 5);
    assert_eq!(blobs.append_missing(key, 3..5).await.unwrap(), 5, "again");
    assert_eq!(blobs.append_missing(key, 4..8).await.unwrap(), 8, "overlapping");
    let late = refusal(world.another().await.append(key, 2, &b"cde"[..]).await);
    assert_eq!(late, Refusal::Conflict { key, at: 3, length: 8 });
    blobs.append(key, 8, &b"ij"[..]).await.unwrap();
    let expected = [bytes(0, b"abc"), Piece::Missing(3..5), Piece::Missing(5..8), bytes(8, b"ij")];
    assert_eq!(blobs.read(key, 0..99).await.unwrap().pieces, expected);
    // The end is missing too: that is said when it is sealed.
    let unsaid = refusal(blobs.seal(key, 20).await);
    assert_eq!(unsaid, Refusal::SealDiffers { key, length: 10, missing: one(3..8) });
    let seal = blobs.seal_with_missing(key, 20, &[3..8, 10..20]).await.unwrap();
    assert_eq!(seal.missing, [3..8, 10..20]);
    assert_eq!((seal.length, seal.hash), (20, BlobHash::of(b"abcij")));
    let other = world.another().await;
    let pieces = other.read(key, 2..99).await.unwrap().pieces;
    let expected = [bytes(2, b"c"), Piece::Missing(3..8), bytes(8, b"ij"), Piece::Missing(10..20)];
    assert_eq!(pieces, expected);
    assert_eq!(other.verify(key).await.unwrap(), seal);
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

async fn a_seal_that_does_not_agree_is_refused(world: &World) {
    let key = fresh();
    let length = write(&world.blobs, key, &[10, 10]).await;
    let differs = Refusal::SealDiffers { key, length, missing: vec![] };
    for (said, missing) in [(19, vec![]), (21, vec![]), (20, one(0..5)), (30, one(21..30))] {
        let answer = world.blobs.seal_with_missing(key, said, &missing).await;
        assert_eq!(refusal(answer), differs, "{said} {missing:?}");
    }
    let open = refusal(world.blobs.verify(key).await);
    assert_eq!(open, Refusal::Open { key, length });
    assert_eq!(world.blobs.append(key, 20, pattern(20, 30)).await.unwrap(), 30, "it goes on");
    assert_eq!(read_all(&world.blobs, key).await.unwrap(), pattern(0, 30));
}

async fn an_empty_blob_can_be_sealed(world: &World) {
    let key = fresh();
    let seal = world.blobs.seal(key, 0).await.unwrap();
    assert_eq!((seal.length, seal.hash), (0, BlobHash::of(b"")));
    let other = world.another().await;
    assert_eq!(refusal(other.append(key, 0, &b"x"[..]).await).code(), "blob_sealed");
    assert!(other.read(key, 0..9).await.unwrap().pieces.is_empty());
}

async fn what_is_not_there_is_unknown(world: &World) {
    let key = fresh();
    let unknown = Refusal::Unknown { key };
    assert_eq!(refusal(world.blobs.read(key, 0..1).await), unknown);
    assert_eq!(refusal(world.blobs.status(key).await), unknown);
    assert_eq!(refusal(world.blobs.verify(key).await), unknown);
    assert!(!world.blobs.delete(key).await.unwrap());
    assert_eq!(world.blobs.list(BlobKind::Snapshot).await.unwrap(), []);
    assert_eq!(unknown.to_string(), format!("there is no blob {key}"));
}

async fn a_long_read_is_answered_in_part(world: &World) {
    let key = fresh();
    let length = write(&world.blobs, key, &[10_000; 21]).await;
    let read = world.blobs.read(key, 5..u64::MAX).await.unwrap();
    assert_eq!(read.bytes(), pattern(5, 5 + LIMITS.read));
    assert_eq!(read.length, length);
    assert_eq!(read_all(&world.blobs, key).await.unwrap(), pattern(0, length));
}

/// Writers that do not know of each other append records of their own wherever the end is.
async fn writers_that_race_never_mix(world: &World) {
    const RECORD: u64 = 40;
    let key = fresh();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4u8 {
        let blobs = world.another().await;
        writers.spawn(async move {
            let mut acknowledged = Vec::new();
            let mut at = 0;
            for record in 0..12u8 {
                let line = vec![writer * 16 + record; RECORD as usize];
                loop {
                    match blobs.append(key, at, line.clone()).await {
                        Ok(end) => {
                            acknowledged.push((at, line[0]));
                            at = end;
                            break;
                        }
                        Err(BlobError::Refused(
                            Refusal::Conflict { length, .. } | Refusal::Gap { length, .. },
                        )) => at = length,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
            acknowledged
        });
    }
    let mut acknowledged = writers.join_all().await.concat();
    acknowledged.sort_unstable();
    let stored = read_all(&world.another().await, key).await.unwrap();
    let places: Vec<u64> = acknowledged.iter().map(|(at, _)| *at).collect();
    assert_eq!(places, (0..48).map(|record| record * RECORD).collect::<Vec<_>>());
    for (at, mark) in acknowledged {
        let at = at as usize;
        assert_eq!(stored[at..at + RECORD as usize], [mark; RECORD as usize]);
    }
    assert_eq!(stored.len() as u64, 48 * RECORD);
}

async fn an_append_and_a_seal_race_for_the_same_place(world: &World) {
    let (one, two) = (world.another().await, world.another().await);
    for _ in 0..10 {
        let key = fresh();
        write(&one, key, &[10, 10]).await;
        let (appended, sealed) =
            tokio::join!(one.append(key, 20, pattern(20, 30)), two.seal(key, 20));
        let stored = read_all(&world.another().await, key).await.unwrap();
        match (appended, sealed) {
            (Ok(30), Err(BlobError::Refused(Refusal::SealDiffers { .. }))) => {
                assert_eq!(stored, pattern(0, 30));
            }
            (Err(BlobError::Refused(Refusal::Sealed { length: 20, .. })), Ok(seal)) => {
                assert_eq!(stored, pattern(0, 20));
                assert_eq!(seal.hash, BlobHash::of(&stored));
            }
            other => panic!("both or neither: {other:?}"),
        }
    }
}

async fn sealers_that_race_agree(world: &World) {
    let (one, two) = (world.another().await, world.another().await);
    for _ in 0..5 {
        let key = fresh();
        let length = write(&one, key, &[300; 40]).await;
        let (first, second) = tokio::join!(one.seal(key, length), two.seal(key, length));
        let expected = BlobHash::of(&pattern(0, length));
        assert_eq!((first.unwrap().hash, second.unwrap().hash), (expected, expected));
        let fresh_eyes = world.another().await;
        assert_eq!(fresh_eyes.verify(key).await.unwrap().hash, expected);
    }
}

async fn readers_see_everything_while_it_is_sealed(world: &World) {
    for _ in 0..3 {
        let key = fresh();
        let length = write(&world.blobs, key, &[200; 60]).await;
        let done = Arc::new(AtomicBool::new(false));
        let (reader, stop) = (world.another().await, Arc::clone(&done));
        let reading = tokio::spawn(async move {
            let mut reads = 0;
            while !stop.load(Ordering::Relaxed) || reads < 3 {
                let read = reader.read(key, 0..length).await.unwrap();
                assert_eq!(read.bytes(), pattern(0, length), "read {reads}");
                reads += 1;
            }
        });
        world.another().await.seal(key, length).await.unwrap();
        done.store(true, Ordering::Relaxed);
        reading.await.unwrap();
    }
}

async fn a_stale_writer_after_the_seal_is_refused(world: &World) {
    let (stale, early, other) =
        (world.another().await, world.another().await, world.another().await);
    let key = fresh();
    write(&early, key, &[10]).await;
    stale.append(key, 10, pattern(10, 20)).await.unwrap();
    other.append(key, 20, pattern(20, 30)).await.unwrap();
    let seal = other.seal(key, 30).await.unwrap();
    let objects = world.objects(key);
    // Both remember an end that was merged and deleted since.
    for (writer, at) in [(&early, 10), (&stale, 20)] {
        let answer = writer.append(key, at, &b"late"[..]).await;
        assert_eq!(refusal(answer), Refusal::Sealed { key, length: 30 });
    }
    assert_eq!(world.objects(key), objects, "nothing is left behind");
    assert_eq!(world.another().await.verify(key).await.unwrap(), seal);
}

async fn a_stale_writer_after_deletion_leaves_nothing(world: &World) {
    if world.files(fresh()).is_none() {
        return; // There is only one process with this memory, hence nobody stale.
    }
    let (stale, other) = (world.another().await, world.another().await);
    let key = fresh();
    write(&stale, key, &[10, 10]).await;
    assert!(other.delete(key).await.unwrap());
    let answer = refusal(stale.append(key, 20, &b"late"[..]).await);
    assert_eq!(answer, Refusal::Gap { key, offset: 20, length: 0 });
    assert_eq!(refusal(other.status(key).await), Refusal::Unknown { key });
    assert_eq!(world.objects(key), [""; 0]);
}

async fn deleted_is_gone(world: &World) {
    let (open, sealed) = (fresh(), fresh());
    write(&world.blobs, open, &[10; 5]).await;
    let length = write(&world.blobs, sealed, &[10, 9_000, 10, 10]).await;
    world.blobs.seal(sealed, length).await.unwrap();
    for key in [open, sealed] {
        assert!(world.blobs.delete(key).await.unwrap());
        assert!(!world.blobs.delete(key).await.unwrap());
        assert_eq!(refusal(world.blobs.read(key, 0..1).await), Refusal::Unknown { key });
        assert_eq!(world.objects(key), [""; 0]);
        assert_eq!(world.blobs.append(key, 0, &b"anew"[..]).await.unwrap(), 4);
        assert_eq!(read_all(&world.another().await, key).await.unwrap(), b"anew");
    }
}

async fn pruning_goes_by_age_and_seal(world: &World) {
    let (open, sealed) = (fresh(), fresh());
    write(&world.blobs, open, &[10]).await;
    write(&world.blobs, sealed, &[20]).await;
    world.blobs.seal(sealed, 20).await.unwrap();
    let entries = world.blobs.list(BlobKind::Transcript).await.unwrap();
    let seen: Vec<_> = entries.iter().map(|entry| (entry.key, entry.sealed)).collect();
    assert_eq!(seen, [(open, false), (sealed, true)]);
    let newest = entries.iter().map(|entry| entry.modified).max().unwrap();
    let prune = |before, which| world.blobs.prune(BlobKind::Transcript, before, which);
    let none = prune(Timestamp::EPOCH, PruneWhich::Abandoned).await.unwrap();
    assert_eq!(none, Pruned::default());
    assert_eq!(prune(Timestamp::MAX, PruneWhich::Sealed).await.unwrap().blobs, 1);
    assert_eq!(refusal(world.blobs.status(sealed).await).code(), "unknown_blob");
    assert_eq!(world.blobs.status(open).await.unwrap().length, 10);
    let later = Timestamp::from_millis(newest.as_millis() + 1);
    assert_eq!(prune(later, PruneWhich::Abandoned).await.unwrap().blobs, 1);
    assert_eq!(world.blobs.list(BlobKind::Transcript).await.unwrap(), []);
}

/// Alters a blob's files and demands an error that names the blob.
async fn damage_is_an_error_that_names_the_blob(world: &World) {
    type Harm = (&'static str, bool, fn(&Path));
    let harms: [Harm; 11] = [
        ("flip", false, |f| alter(f, &slot(100), |bytes| bytes[70] ^= 1)),
        ("cut in the middle", false, |f| alter(f, &slot(100), |bytes| bytes.truncate(99))),
        ("cut at the end", false, |f| alter(f, &slot(200), |bytes| bytes.truncate(99))),
        ("emptied", false, |f| alter(f, &slot(200), Vec::clear)),
        ("lost", false, |f| std::fs::remove_file(f.join(slot(100))).unwrap()),
        ("first lost", false, |f| std::fs::remove_file(f.join(slot(0))).unwrap()),
        ("seal", true, |f| alter(f, "sealed", |bytes| bytes[80] ^= 1)),
        ("seal cut", true, |f| alter(f, "sealed", |bytes| bytes.truncate(80))),
        ("part", true, |f| alter(f, &part(f), |bytes| bytes[70] ^= 1)),
        ("part cut", true, |f| alter(f, &part(f), |bytes| bytes.truncate(99))),
        ("part lost", true, |f| std::fs::remove_file(f.join(part(f))).unwrap()),
    ];
    for (harm, sealed, act) in harms {
        let key = fresh();
        let Some(folder) = world.files(key) else { return };
        let length = write(&world.blobs, key, &[100; 3]).await;
        if sealed {
            world.blobs.seal(key, length).await.unwrap();
        }
        act(&folder);
        let fresh_eyes = world.another().await;
        let error = read_all(&fresh_eyes, key).await.expect_err(harm);
        assert_eq!(error.code(), "blob_damaged", "{harm}: {error}");
        assert!(error.to_string().contains(&key.to_string()), "{harm}: {error}");
        let proof = match sealed {
            true => fresh_eyes.verify(key).await,
            false => fresh_eyes.seal(key, length).await,
        };
        assert_eq!(proof.expect_err(harm).code(), "blob_damaged");
        assert!(fresh_eyes.delete(key).await.unwrap(), "{harm}: it can be deleted");
    }
}

fn alter(folder: &Path, name: &str, act: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(folder.join(name)).unwrap();
    act(&mut bytes);
    std::fs::write(folder.join(name), bytes).unwrap();
}

fn slot(start: u64) -> String {
    format!("{start:020}")
}

fn part(folder: &Path) -> String {
    names(folder).into_iter().find(|name| name.starts_with("part-")).unwrap()
}
