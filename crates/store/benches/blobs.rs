//! How fast blobs are on this disk, beside the least that durability costs here: one `write` and
//! one `fsync` to a file that is open already. Every append that is counted is durable.
//!
//! `cargo bench -p belay-store --bench blobs`; the directory is `BELAY_BENCH_DIR`, or the system's
//! place for temporary files.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use belay_kernel::{AttemptNumber, TaskId};
use belay_store::blob::{BlobKey, BlobLimits, Blobs};

/// How long each figure is measured.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

fn main() {
    let within = std::env::var_os("BELAY_BENCH_DIR").unwrap_or_else(|| std::env::temp_dir().into());
    let root = tempfile::tempdir_in(within).expect("a directory to measure in");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for size in [4 << 10, 64 << 10] {
        let bare = bare(&root.path().join(format!("bare-{size}")), size);
        say(&format!("{:>2} KiB  write + fsync, one file", size >> 10), bare, size);
        let files = files(&root.path().join(format!("files-{size}")), size);
        say(&format!("{:>2} KiB  new file + fsync, folder + fsync", size >> 10), files, size);
        for writers in [1, 8] {
            let blobs = root.path().join(format!("blobs-{size}-{writers}"));
            let rate = runtime.block_on(appends(&blobs, size, writers));
            say(&format!("{:>2} KiB  append, {writers} blobs at once", size >> 10), rate, size);
        }
    }
    runtime.block_on(reads(&root.path().join("reads")));
}

#[allow(clippy::print_stdout)]
fn say(what: &str, per_second: f64, size: usize) {
    let mib = per_second * size as f64 / f64::from(1 << 20);
    println!("{what:<48} {per_second:>9.0} /s {mib:>9.1} MiB/s");
}

fn bare(path: &Path, size: usize) -> f64 {
    let mut file = File::create(path).expect("a file");
    let bytes = vec![7; size];
    per_second(|| {
        file.write_all(&bytes).expect("written");
        file.sync_all().expect("synced");
    })
}

/// The least for a durable append that is a file of its own.
fn files(folder: &Path, size: usize) -> f64 {
    std::fs::create_dir(folder).expect("a folder");
    let bytes = vec![7; size];
    let mut next = 0u64;
    per_second(|| {
        next += 1;
        let mut file = File::create(folder.join(next.to_string())).expect("a file");
        file.write_all(&bytes).expect("written");
        file.sync_all().expect("synced");
        File::open(folder).and_then(|folder| folder.sync_all()).expect("synced");
    })
}

fn per_second(mut act: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut count = 0u32;
    while began.elapsed() < LONG_ENOUGH {
        act();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

fn key(number: u64) -> BlobKey {
    BlobKey::Transcript(TaskId::from_bits(u128::from(number)), AttemptNumber(1))
}

async fn open(root: &Path) -> Blobs {
    Blobs::in_directory(root, BlobLimits::default()).await.expect("a directory for blobs")
}

async fn appends(root: &Path, size: usize, writers: u64) -> f64 {
    let blobs = open(root).await;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let blobs = blobs.clone();
        tasks.spawn(async move {
            let (mut at, mut count) = (0, 0u32);
            while began.elapsed() < LONG_ENOUGH {
                at = blobs.append(key(writer), at, vec![7; size]).await.expect("appended");
                count += 1;
            }
            count
        });
    }
    let count: u32 = tasks.join_all().await.into_iter().sum();
    f64::from(count) / began.elapsed().as_secs_f64()
}

async fn reads(root: &Path) {
    const TOTAL: u64 = 256 << 20;
    let blobs = open(root).await;
    let mut at = 0;
    while at < TOTAL {
        let bytes: Vec<u8> = (0..4 << 20).map(|byte| ((byte + at) >> 3) as u8).collect();
        at = blobs.append(key(1), at, bytes).await.expect("appended");
    }
    let began = Instant::now();
    blobs.seal(key(1), TOTAL).await.expect("sealed");
    say("seal of 256 MiB in large appends", began.elapsed().as_secs_f64().recip(), TOTAL as usize);
    for range in [16 << 20, 1 << 20, 64 << 10] {
        let (began, mut from, mut count) = (Instant::now(), 0, 0u32);
        while began.elapsed() < LONG_ENOUGH {
            let read = blobs.read(key(1), from..from + range).await.expect("read");
            assert_eq!(read.bytes().len() as u64, range);
            from = (from + range) % TOTAL;
            count += 1;
        }
        let rate = f64::from(count) / began.elapsed().as_secs_f64();
        say(&format!("read, sealed, ranges of {} KiB", range >> 10), rate, range as usize);
    }
    let mut at = 0;
    for _ in 0..3_000 {
        at = blobs.append(key(2), at, vec![7; 1_000]).await.expect("appended");
    }
    let began = Instant::now();
    let read = blobs.read(key(2), at - 10_000..at).await.expect("read");
    assert_eq!(read.bytes().len(), 10_000);
    say("read the last 10 KB of 3,000 open appends", began.elapsed().as_secs_f64().recip(), 10_000);
    let began = Instant::now();
    blobs.seal(key(2), at).await.expect("sealed");
    say("seal of 3,000 appends of 1 KB", began.elapsed().as_secs_f64().recip(), at as usize);
}
