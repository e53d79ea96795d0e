//! What can go wrong with the embedded database: kill -9, a full disk, a damaged file, two
//! processes, a clock that is set back.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_kernel::TaskId;
use belay_store::migrate::{MIGRATIONS, NEWEST};
use belay_store::rows::{REFERENCES, TaskRow};
use belay_store::sqlite::{DATABASE, restore};
use belay_store::{EventFilter, Failure, OpenError, Refusal, Sqlite, Store};

mod place;
#[allow(dead_code, reason = "the suite's helpers are used here, not its cases")]
mod suite;

use place::{MovedClock, SmallDisk};
use suite::chance::Chance;
use suite::make::*;

const CHILD: &str = "BELAY_TEST_WRITING_CHILD";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Not a test of its own: what the next one kills. It writes for ever, and says what is done.
#[test]
fn writing_child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let store = Arc::new(Sqlite::open(Path::new(&directory)).unwrap());
    let seed = u64::from(std::process::id());
    runtime().block_on(async move {
        let mut writers = Vec::new();
        for index in 0..4 {
            let store = Arc::clone(&store);
            writers.push(tokio::spawn(async move {
                let mut chance = Chance(seed << 8 | index);
                loop {
                    let bits = u128::from(chance.next()) << 16 | u128::from(chance.below(9));
                    let mut row = task("builder");
                    row.task.id = TaskId::from_bits(bits);
                    row.root = row.task.id;
                    done(&*store, creation(&row)).await;
                    row.priority = 1;
                    done(&*store, belay_store::Commit::new().update(FIRST, &row)).await;
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "did {}", row.task.id).unwrap();
                    out.flush().unwrap();
                }
            }));
        }
        futures_util::future::join_all(writers).await;
    });
}

/// Starts a writing child, kills it after a while, and tells what it said was done.
fn kill_one(directory: &Path, after: Duration) -> Vec<TaskId> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writing_child", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let lines = output.lines().map_while(Result::ok);
        let ids = lines.filter_map(|line| line.split_once("did ")?.1.parse().ok());
        ids.collect::<Vec<TaskId>>()
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn what_was_acknowledged_survives_kill_9_a_hundred_times() {
    let directory = tempfile::tempdir().unwrap();
    let mut chance = Chance(std::process::id().into());
    let mut all = BTreeSet::new();
    let mut busy = 0;
    for round in 0..100 {
        // At random points of opening, checking, writing and syncing alike.
        let said = kill_one(directory.path(), Duration::from_millis(15 + chance.below(120)));
        busy += u32::from(!said.is_empty());
        all.extend(said.iter().copied());
        let store = Sqlite::open(directory.path()).unwrap();
        let found = runtime().block_on(store.load::<TaskRow>(&said)).unwrap();
        for (id, stored) in said.iter().zip(found) {
            let stored = stored.unwrap_or_else(|| panic!("round {round}: {id} is gone"));
            assert_eq!((stored.revision.0, stored.row.priority), (2, 1), "round {round}: {id}");
        }
    }
    assert!(busy > 10, "children wrote before they were killed: {busy}");
    let store = Sqlite::open(directory.path()).unwrap();
    let ids: Vec<_> = all.into_iter().collect();
    runtime().block_on(async {
        for ids in ids.chunks(5_000) {
            assert!(store.load::<TaskRow>(ids).await.unwrap().iter().all(Option::is_some));
        }
        let (mut cursor, mut last) = (store.oldest().await.unwrap(), 0);
        loop {
            let page = store.events(cursor, EventFilter::default(), 5_000).await.unwrap();
            for event in &page.events {
                assert_eq!(event.number, last + 1, "no event is missing");
                last = event.number;
            }
            if page.events.is_empty() {
                break;
            }
            cursor = page.cursor;
        }
        assert!(last >= ids.len() as u64);
    });
}

#[test]
fn the_log_that_a_killed_process_left_is_folded_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let size = || std::fs::metadata(directory.path().join(DATABASE)).map_or(0, |file| file.len());
    while kill_one(directory.path(), Duration::from_millis(200)).is_empty() {}
    let left = size();
    let _store = Sqlite::open(directory.path()).unwrap();
    let begun = Instant::now();
    while size() <= left {
        assert!(begun.elapsed() < Duration::from_secs(30), "the log is still beside the file");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first = Sqlite::open(directory.path()).unwrap();
    let refused = Sqlite::open(directory.path()).err().unwrap();
    let OpenError::InUse { pid, .. } = &refused else { panic!("{refused}") };
    assert_eq!(*pid, std::process::id().to_string());
    assert!(refused.to_string().contains("belay down"), "{refused}");
    drop(first);
    Sqlite::open(directory.path()).unwrap();
}

/// Damages `length` bytes of the database at `offset`.
fn damage(directory: &Path, offset: usize, length: usize) {
    let path = directory.join(DATABASE);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset..offset + length].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
}

fn filled(directory: &Path) {
    let store = Sqlite::open(directory).unwrap();
    runtime().block_on(async {
        for _ in 0..20 {
            let commits = (0..50).map(|_| creation(&task("builder"))).collect();
            store.commit_all(commits).await.unwrap();
        }
    });
}

#[test]
fn a_damaged_file_is_found_at_start_and_the_error_says_what_to_do() {
    for offset in [0, 16 * 4_096, 40 * 4_096] {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path());
        damage(directory.path(), offset, 4_096);
        let refused = Sqlite::open(directory.path()).err().expect("it does not open");
        assert!(matches!(refused, OpenError::Damaged { .. }), "{offset}: {refused:?}");
        assert!(refused.to_string().contains("restore"), "{refused}");
    }
}

#[tokio::test]
async fn a_backup_is_made_while_the_store_writes_and_is_restored_with_a_new_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(&directory.path().join("data")).unwrap());
    let first = task("builder");
    done(&*store, creation(&first)).await;
    let cursor = store.latest().await.unwrap();
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..300 {
                done(&*store, creation(&task("builder"))).await;
            }
        })
    };
    let backup = directory.path().join("backup.db");
    store.backup(&backup).await.unwrap();
    assert!(store.backup(&backup).await.is_err(), "nothing is written over");
    writer.await.unwrap();
    let target = directory.path().join("restored");
    restore(&backup, &target).unwrap();
    let again = Sqlite::open(&target).unwrap();
    assert_eq!(task_of(&again, first.task.id).await.row, first);
    assert_eq!(again.installation().id, store.installation().id);
    let refused = again.events(cursor, EventFilter::default(), 5).await.unwrap_err();
    assert_eq!(refused.refusal().map(Refusal::code), Some("foreign_cursor"));
    drop(again);
    assert!(matches!(restore(&backup, &target), Err(OpenError::Exists(_))));
    let mut bytes = std::fs::read(&backup).unwrap();
    bytes[8_192..16_384].fill(7);
    std::fs::write(&backup, bytes).unwrap();
    let elsewhere = directory.path().join("elsewhere");
    assert!(matches!(restore(&backup, &elsewhere), Err(OpenError::Damaged { .. })));
    assert!(!elsewhere.join(DATABASE).exists(), "nothing is half restored");
}

#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let disk = SmallDisk::mount(6);
    let data = disk.path().join("data");
    let store = Sqlite::open(&data).unwrap();
    let ballast = disk.fill_but(3_000);
    let mut done = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let why = loop {
        assert!(Instant::now() < deadline, "the disk fills");
        let row = task("builder");
        let mut wide = spec(row.task.id);
        wide.prompt = "x".repeat(20_000).into();
        let commit = belay_store::Commit::new().insert(&row).insert(&wide);
        match store.commit(commit).await {
            Ok(committed) => {
                assert!(committed.is_done());
                done.push(row.task.id);
            }
            Err(why) => break why,
        }
    };
    assert!(matches!(why, Failure::Full), "{why:?}");
    assert!(store.load::<TaskRow>(&done).await.unwrap().iter().all(Option::is_some));
    std::fs::remove_file(&ballast).unwrap();
    let after = task("builder");
    suite::make::done(&store, creation(&after)).await;
    done.push(after.task.id);
    drop(store);
    let again = Sqlite::open(&data).unwrap();
    assert!(again.load::<TaskRow>(&done).await.unwrap().iter().all(Option::is_some));
}

const CLOCK_CHILD: &str = "BELAY_TEST_CLOCK_CHILD";

fn wall() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_millis()).unwrap()
}

/// Not a test of its own: what the next one sets the clock for, while it runs.
#[test]
fn clock_child() {
    let Ok(directory) = std::env::var(CLOCK_CHILD) else { return };
    let directory = Path::new(&directory);
    runtime().block_on(async {
        let store = Sqlite::open(&directory.join("data")).unwrap();
        let before = wall();
        let timer = place::clock::armed(&store, Duration::from_millis(1_500)).await;
        std::fs::write(directory.join("ready"), "").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while wall() > before - 3_600_000 {
            assert!(Instant::now() < deadline, "the clock is set back under this process");
            std::thread::sleep(Duration::from_millis(5));
        }
        place::clock::after_the_clock_was_set_back(&store, timer).await;
        let last = store.now().await.unwrap();
        drop(store);
        // And once more for one that is started after it was set: a day is not waited for.
        let store = Sqlite::open(&directory.join("data")).unwrap();
        let now = store.now().await.unwrap();
        assert!(now.as_millis() > last.as_millis() - 1_000, "{now:?} after {last:?}");
        let timer = place::clock::armed(&store, Duration::from_millis(300)).await;
        place::clock::after_the_clock_was_set_back(&store, timer).await;
        std::fs::write(directory.join("passed"), "").unwrap();
    });
}

#[test]
fn a_clock_set_back_under_the_store_stops_and_shortens_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let clock = MovedClock::new(directory.path());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "clock_child", "--nocapture"]).env(CLOCK_CHILD, directory.path());
    let mut child = child.envs(clock.environment()).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !directory.path().join("ready").exists() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    clock.set("-1d");
    assert!(child.wait().unwrap().success(), "what the child saw is on its standard error");
    assert!(directory.path().join("passed").exists());
}

/// The schema of a database, as it describes itself.
fn schema(path: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_master
        ORDER BY type, name";
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn fresh_equals_migrated_and_twice_is_fine() {
    let (fresh, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(Sqlite::open(fresh.path()).unwrap());
    drop(Sqlite::open(fresh.path()).unwrap());
    let path = old.path().join(DATABASE);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let table = "CREATE TABLE IF NOT EXISTS migrations (
            number INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL) STRICT";
    connection.execute_batch(table).unwrap();
    connection.execute_batch(&MIGRATIONS[0].sqlite()).unwrap();
    connection.execute("INSERT INTO migrations VALUES (1, 'work', 0)", []).unwrap();
    drop(connection);
    drop(Sqlite::open(old.path()).unwrap());
    assert_eq!(schema(&fresh.path().join(DATABASE)), schema(&path));
}

/// Rows that are asked for by something else than their key, and the index that each is found by.
#[test]
fn what_is_asked_for_often_has_an_index() {
    let directory = tempfile::tempdir().unwrap();
    drop(Sqlite::open(directory.path()).unwrap());
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE)).unwrap();
    for (asked, index) in [
        ("SELECT * FROM attempts WHERE sandbox IN ('a', 'b')", "attempts_sandbox"),
        ("SELECT * FROM attempts WHERE session IN ('a', 'b')", "attempts_session"),
        ("SELECT * FROM tasks WHERE session IN ('a', 'b')", "tasks_session"),
    ] {
        let plan = format!("EXPLAIN QUERY PLAN {asked}");
        let plan: String = connection.query_row(&plan, [], |row| row.get(3)).unwrap();
        assert!(plan.contains(index), "{asked}: {plan}");
    }
}

#[test]
fn a_newer_database_refuses_an_older_program() {
    let directory = tempfile::tempdir().unwrap();
    drop(Sqlite::open(directory.path()).unwrap());
    let path = directory.path().join(DATABASE);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let newer = NEWEST + 1;
    connection.execute("INSERT INTO migrations VALUES (?1, 'later', 0)", [newer]).unwrap();
    drop(connection);
    let refused = Sqlite::open(directory.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Newer { found, .. } if found == newer), "{refused}");
}

/// What someone else wrote past the typed rows is refused by the database itself.
#[test]
fn the_database_refuses_what_must_not_be() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path()).unwrap();
    let row = task("builder");
    runtime().block_on(done(&store, creation(&row)));
    drop(store);
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE)).unwrap();
    for broken in [
        "UPDATE tasks SET state = 'DREAMING'",
        "UPDATE tasks SET state = 'RUNNING', claim_at = NULL",
        "UPDATE tasks SET plan = NULL",
        "UPDATE tasks SET state = 'BLOCKED', plan = NULL, claim_at = NULL",
        "UPDATE tasks SET cause = 'crash'",
        "UPDATE tasks SET priority = 'high'",
        "UPDATE tasks SET reason = 'whim'",
        "UPDATE ledgers SET cost = -1",
        "UPDATE tasks SET revision = 0",
    ] {
        let refused = connection.execute(broken, []);
        assert!(refused.is_err(), "{broken}");
    }
}

#[test]
fn the_schema_refers_as_the_twin_does() {
    let directory = tempfile::tempdir().unwrap();
    drop(Sqlite::open(directory.path()).unwrap());
    let connection = rusqlite::Connection::open(directory.path().join(DATABASE)).unwrap();
    let sql = "SELECT m.name, f.\"from\", f.\"table\", f.on_delete
        FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'";
    let mut statement = connection.prepare(sql).unwrap();
    let found: BTreeSet<String> = statement
        .query_map([], |row| {
            let (table, column): (String, String) = (row.get(0)?, row.get(1)?);
            let (to, rule): (String, String) = (row.get(2)?, row.get(3)?);
            Ok(format!("{table}.{column} -> {to} {}", rule == "CASCADE"))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let wanted: BTreeSet<String> = REFERENCES
        .iter()
        .map(|one| {
            let cascades = one.on_delete == belay_store::rows::OnDelete::Cascade;
            format!("{}.{} -> {} {cascades}", one.table, one.column, one.to)
        })
        .collect();
    assert_eq!(found, wanted);
}
