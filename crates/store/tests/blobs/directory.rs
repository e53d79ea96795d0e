//! What can only go wrong on a disk: processes killed while they write, and no room.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use belay_kernel::{AttemptNumber, TaskId};
use belay_store::blob::{BlobHash, BlobKey, BlobLimits, Blobs};

use crate::world::{LIMITS, fresh, names, pattern, read_all};

const ROOT: &str = "BELAY_TEST_BLOB_ROOT";
const SEAL_AT: &str = "BELAY_TEST_BLOB_SEAL_AT";
const KEY: BlobKey = BlobKey::Transcript(TaskId::from_bits(9), AttemptNumber(1));

/// The length of the append that begins at `at`: anything from one byte to a few thousand.
fn length_at(at: u64) -> u64 {
    let drawn = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if drawn.is_multiple_of(4) { 1 + drawn % 4_000 } else { 1 + drawn % 60 }
}

/// Not a test by itself: the process that the tests below start, read and kill.
#[tokio::test]
async fn child_that_writes_until_it_is_killed() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let seal_at: u64 = std::env::var(SEAL_AT).unwrap().parse().unwrap();
    let limits = BlobLimits { total: u64::MAX, ..LIMITS };
    let blobs = Blobs::in_directory(Path::new(&root), limits).await.unwrap();
    let mut at = 0;
    while at < seal_at {
        at = blobs.append(KEY, at, pattern(at, at + length_at(at))).await.unwrap();
        writeln!(std::io::stdout(), "acknowledged {at}").unwrap();
    }
    blobs.seal(KEY, at).await.unwrap();
    writeln!(std::io::stdout(), "sealed {at}").unwrap();
}

fn start_child(root: &Path, seal_at: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["directory::child_that_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(ROOT, root)
        .env(SEAL_AT, seal_at.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads a child's lines, kills it after `lines` of them and a little while, and answers the last
/// length that was acknowledged, and whether it said that it was sealed.
fn kill_after(mut child: Child, lines: usize, micros: u64) -> (u64, bool) {
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (mut acknowledged, mut sealed, mut seen) = (0, false, 0);
    let mut note = |line: &str| match line.split_once(' ') {
        Some(("acknowledged", at)) => {
            acknowledged = at.parse().unwrap();
            seen += 1;
            seen
        }
        Some(("sealed", _)) => {
            sealed = true;
            usize::MAX
        }
        _ => seen,
    };
    for line in output.by_ref() {
        if note(&line) >= lines {
            break;
        }
    }
    // The point of the kill is drawn, not a condition that is waited for.
    std::thread::sleep(Duration::from_micros(micros));
    child.kill().unwrap();
    child.wait().unwrap();
    for line in output {
        note(&line);
    }
    (acknowledged, sealed)
}

async fn reopened(root: &Path) -> Blobs {
    Blobs::in_directory(root, BlobLimits { total: u64::MAX, ..LIMITS }).await.unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_survives_fifty_kills() {
    for round in 0..50u64 {
        let root = tempfile::tempdir().unwrap();
        let child = start_child(root.path(), u64::MAX);
        let lines = 1 + (round as usize * 7) % 23;
        let (acknowledged, _) = kill_after(child, lines, (round * 397) % 3_000);
        let blobs = reopened(root.path()).await;
        let stored = read_all(&blobs, KEY).await.unwrap();
        let length = stored.len() as u64;
        assert!(length >= acknowledged, "round {round}: {length} of {acknowledged}");
        assert_eq!(stored, pattern(0, length), "round {round}");
        // At least once: the next process sends again what it does not know to be there.
        let end = acknowledged + 5_000;
        let again = blobs.append(KEY, acknowledged, pattern(acknowledged, end)).await.unwrap();
        assert_eq!(again, end.max(length));
        let seal = blobs.seal(KEY, again).await.unwrap();
        assert_eq!(seal.hash, BlobHash::of(&pattern(0, again)), "round {round}");
    }
}

#[tokio::test]
async fn a_seal_that_is_killed_loses_nothing_and_can_be_finished() {
    let mut finished = 0;
    for round in 0..30u64 {
        let root = tempfile::tempdir().unwrap();
        let child = start_child(root.path(), 12_000);
        // The child acknowledges its last append and goes on to seal; it is killed meanwhile.
        let lines = appends_until(12_000);
        let (acknowledged, sealed) = kill_after(child, lines, (round * 1_151) % 40_000);
        finished += u32::from(sealed);
        let blobs = reopened(root.path()).await;
        assert_eq!(read_all(&blobs, KEY).await.unwrap(), pattern(0, acknowledged));
        let seal = blobs.seal(KEY, acknowledged).await.unwrap();
        assert_eq!(seal.hash, BlobHash::of(&pattern(0, acknowledged)), "round {round}");
        assert_eq!(blobs.verify(KEY).await.unwrap(), seal);
        let folder = root.path().join(KEY.to_string());
        assert!(objects(&folder) <= 6, "round {round}: {:?}", names(&folder));
        assert_eq!(
            read_all(&reopened(root.path()).await, KEY).await.unwrap().len() as u64,
            acknowledged
        );
    }
    assert!(finished < 30, "some must have been killed before they had sealed");
}

/// How many whole objects there are.
fn objects(folder: &Path) -> usize {
    names(folder).iter().filter(|name| !name.contains('#')).count()
}

fn appends_until(end: u64) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < end {
        at += length_at(at);
        count += 1;
    }
    count
}

/// A small file system of its own, unmounted when this is dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    /// None, if we may not mount.
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "belay-test"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Self(folder))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_loses_nothing() {
    let Some(mount) = Mount::new("256k") else {
        writeln!(std::io::stderr(), "skipped: no right to mount a small file system").unwrap();
        return;
    };
    let blobs = Blobs::in_directory(&mount.0.path().join("blobs"), LIMITS).await.unwrap();
    let (key, spare) = (fresh(), fresh());
    blobs.append(spare, 0, pattern(0, 10_000)).await.unwrap();
    let mut at = 0;
    let error = loop {
        assert!(at < 300_000, "it must fill up");
        match blobs.append(key, at, pattern(at, at + 7_000)).await {
            Ok(end) => at = end,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "blob_disk_full", "{error:?}");
    assert!(error.to_string().starts_with("no room is left in "), "{error}");
    assert_eq!(read_all(&blobs, key).await.unwrap(), pattern(0, at), "nothing half-written");
    let half: Vec<_> = names(&mount.0.path().join("blobs").join(key.to_string()));
    assert!(!half.iter().any(|name| name.contains('#')), "{half:?}");
    // With room again it simply goes on.
    assert!(blobs.delete(spare).await.unwrap());
    assert_eq!(blobs.append(key, at, pattern(at, at + 7_000)).await.unwrap(), at + 7_000);
    assert_eq!(read_all(&blobs, key).await.unwrap(), pattern(0, at + 7_000));
    drop(blobs);
}

#[tokio::test]
async fn a_place_that_is_no_directory_is_refused_at_start() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = Blobs::in_directory(&file, LIMITS).await.unwrap_err();
    assert_eq!(error.code(), "blob_storage");
    assert_eq!(error.to_string(), format!("{} cannot be used", file.display()));
}

/// Names of foreign files in the directory are not blobs and do not disturb.
#[tokio::test]
async fn foreign_files_do_not_disturb() {
    let root = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_directory(root.path(), LIMITS).await.unwrap();
    blobs.append(KEY, 0, &b"mine"[..]).await.unwrap();
    let folder = root.path().join(KEY.to_string());
    let half = [folder.join("00000000000000000004#1"), folder.join("00000000000000000004#2")];
    half.iter().for_each(|path| std::fs::write(path, "half").unwrap());
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    std::fs::File::options().write(true).open(&half[1]).unwrap().set_modified(long_ago).unwrap();
    std::fs::write(folder.join("note.txt"), "hello").unwrap();
    std::fs::write(root.path().join("transcript/README"), "hello").unwrap();
    let blobs = reopened(root.path()).await;
    assert_eq!(blobs.append(KEY, 4, &b" too"[..]).await.unwrap(), 8);
    assert_eq!(blobs.list(KEY.kind()).await.unwrap().len(), 1);
    assert_eq!(blobs.seal(KEY, 8).await.unwrap().hash, BlobHash::of(b"mine too"));
    assert!(half[0].exists() && !half[1].exists(), "only what nobody can be writing is removed");
    assert!(blobs.delete(KEY).await.unwrap());
    assert!(!folder.exists(), "everything goes with the blob");
}
