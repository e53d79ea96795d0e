//! A server whose disk is full, and one whose clock is set back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_kernel::TaskId;
use belay_store::{Commit, Failure, Postgres, PostgresOptions, Store};

use super::complete;
use crate::place::clock::{after_the_clock_was_set_back, armed};
use crate::place::{MovedClock, SmallDisk};
use crate::server::{Place, Server};
use crate::suite::make::*;

async fn open(url: &str, patience: Duration) -> Arc<Postgres> {
    let mut options = PostgresOptions::new(url);
    options.patience = patience;
    Arc::new(Postgres::open(options).await.unwrap())
}

/// A task with a wide spec, its event, and the id by which it is found again.
fn wide() -> (TaskId, Commit) {
    let row = task("builder");
    let mut wide = spec(row.task.id);
    // Not to be compressed away.
    wide.prompt = (0..1_200).map(|_| format!("{:032x}", fresh())).collect::<String>().into();
    let told = event(row.task.id, "task.created");
    (row.task.id, Commit::new().insert(&row).insert(&wide).event(told))
}

/// Writes until it fails; what was acknowledged, and the failure.
async fn write_until_full(store: &Postgres) -> (Vec<TaskId>, Failure) {
    let mut acknowledged = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        assert!(Instant::now() < deadline, "the disk fills");
        let (id, commit) = wide();
        match store.commit(commit).await {
            Ok(committed) => {
                assert!(committed.is_done(), "{committed:?}");
                acknowledged.push(id);
            }
            Err(why) => return (acknowledged, why),
        }
    }
}

/// Tables cannot grow: the server goes on, decisions fail with a failure of their own, and what is
/// there can be read.
pub(super) async fn a_full_data_disk_loses_nothing_that_was_acknowledged(_: &mut Server) {
    let disk = SmallDisk::mount(160);
    let log = tempfile::tempdir().unwrap();
    let place = Place {
        data: Some(disk.path().to_owned()),
        log: Some(log.path().to_owned()),
        ..Place::default()
    };
    open_up(log.path());
    let server = Server::start_in(place);
    let (_, url) = server.database();
    let store = open(&url, Duration::from_secs(20)).await;
    let ballast = disk.fill_but(6_000);
    let (mut acknowledged, why) = write_until_full(&store).await;
    assert!(matches!(why, Failure::Full), "{why:?}");
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    let found = store.load::<belay_store::rows::TaskRow>(&acknowledged).await.unwrap();
    assert!(found.iter().all(Option::is_some));
    std::fs::remove_file(&ballast).unwrap();
    // No one has to do more than make room.
    let (id, commit) = wide();
    done(&*store, commit).await;
    acknowledged.push(id);
    complete(&store, &acknowledged).await;
}

/// The log of changes cannot grow: PostgreSQL falls, and cannot come up again. Whoever waits is
/// told that it is away; once there is room and it is started, the same store goes on.
pub(super) async fn a_full_log_disk_loses_nothing_that_was_acknowledged(_: &mut Server) {
    let disk = SmallDisk::mount(80);
    let mut server =
        Server::start_in(Place { log: Some(disk.path().to_owned()), ..Place::default() });
    let (_, url) = server.database();
    let store = open(&url, Duration::from_secs(2)).await;
    let ballast = disk.fill_but(0);
    let (mut acknowledged, why) = write_until_full(&store).await;
    let told = matches!(why, Failure::Full | Failure::Unreachable(_) | Failure::Unknown);
    assert!(told, "{why:?}");
    std::fs::remove_file(&ballast).unwrap();
    tokio::task::block_in_place(|| server.crash_and_restart());
    let (id, commit) = wide();
    done(&*store, commit).await;
    acknowledged.push(id);
    complete(&store, &acknowledged).await;
}

/// Lets the server's own user through to what is below.
fn open_up(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The database's clock is everyone's. The node that numbers events falls in the same moment, with
/// a lease that by the new clock is a day long.
pub(super) async fn a_clock_set_back_under_the_server_stops_and_shortens_nothing(_: &mut Server) {
    let directory = tempfile::tempdir().unwrap();
    open_up(directory.path());
    let clock = MovedClock::new(directory.path());
    let environment = clock.environment().to_vec();
    let server = Server::start_in(Place { environment, ..Place::default() });
    let (database, url) = server.database();
    let patience = Duration::from_secs(20);
    let fallen = open(&url, patience).await;
    done(&*fallen, creation(&task("builder"))).await;
    crate::suite::following::settle(&*fallen).await;
    let holder = server.psql(&database, "SELECT holder FROM sequencer").unwrap();
    assert_eq!(holder, fallen.sequencer_name());
    let store = open(&url, patience).await;
    let timer = armed(&*store, Duration::from_millis(1_500)).await;
    let seconds = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    let read = || server.psql(&database, seconds).unwrap().parse::<i64>().unwrap();
    let before = read();
    drop(fallen);
    clock.set("-1d");
    let deadline = Instant::now() + patience;
    while read() > before - 3_600 {
        assert!(Instant::now() < deadline, "the clock is set back under the server");
    }
    after_the_clock_was_set_back(&*store, timer).await;
    let last = store.now().await.unwrap();
    // One that is opened only now counts on from what the others remember.
    let late = open(&url, patience).await;
    let now = late.now().await.unwrap();
    assert!(now.as_millis() > last.as_millis() - 5_000, "{now:?} after {last:?}");
    let timer = armed(&*late, Duration::from_millis(300)).await;
    after_the_clock_was_set_back(&*late, timer).await;
}
