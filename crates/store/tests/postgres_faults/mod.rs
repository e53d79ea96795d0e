//! What can go wrong with PostgreSQL: killed connections, a crash, a killed sequencer, an old
//! program, a full disk, a clock that is set back. And the two ways of numbering events that do not
//! work.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belay_kernel::TaskId;
use belay_store::rows::TaskRow;
use belay_store::{EventFilter, NewEvent, OpenError, Postgres, PostgresOptions, Store};

use place::{
    a_clock_set_back_under_the_server_stops_and_shortens_nothing,
    a_full_data_disk_loses_nothing_that_was_acknowledged,
    a_full_log_disk_loses_nothing_that_was_acknowledged,
};

use super::passes;
use super::server::Server;
use super::suite::make::*;

macro_rules! run {
    ($failed:ident, $server:ident, $chosen:ident: $($case:ident,)*) => {$(
        let name = stringify!($case);
        if $chosen(name) && !passes(name, $case($server)).await {
            $failed.push(name);
        }
    )*};
}

pub(crate) async fn all(server: &mut Server, chosen: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut failed = Vec::new();
    run! { failed, server, chosen:
        killed_connections_lose_and_double_nothing,
        a_crash_of_the_server_loses_and_doubles_nothing,
        a_killed_sequencer_is_succeeded,
        a_plain_sequence_skips_events,
        a_horizon_over_a_sequence_skips_events,
        numbers_given_after_the_commit_skip_nothing,
        two_nodes_migrate_at_once,
        fresh_equals_migrated,
        a_newer_database_refuses_an_older_program,
        tls_is_verified,
        a_full_data_disk_loses_nothing_that_was_acknowledged,
        a_full_log_disk_loses_nothing_that_was_acknowledged,
        a_clock_set_back_under_the_server_stops_and_shortens_nothing,
    }
    failed
}

async fn open(url: &str) -> Arc<Postgres> {
    let mut options = PostgresOptions::new(url);
    options.patience = Duration::from_secs(40);
    Arc::new(Postgres::open(options).await.unwrap())
}

/// Writers that go on until they are told to stop, and tell what was acknowledged.
fn writers(
    store: &Arc<Postgres>,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<Vec<TaskId>>> {
    let spawn = |_| {
        let (store, stop) = (Arc::clone(store), Arc::clone(stop));
        tokio::spawn(async move {
            let mut done = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let row = task("builder");
                let committed = store.commit(creation(&row)).await.unwrap();
                assert!(committed.is_done(), "nobody else writes this task: {committed:?}");
                done.push(row.task.id);
            }
            done
        })
    };
    (0..8).map(spawn).collect()
}

/// Every acknowledged task is there, and its one event is told exactly once.
async fn complete(store: &Postgres, done: &[TaskId]) {
    for ids in done.chunks(5_000) {
        assert!(store.load::<TaskRow>(ids).await.unwrap().iter().all(Option::is_some));
    }
    super::suite::following::settle(store).await;
    let mut told: BTreeMap<TaskId, u32> = BTreeMap::new();
    let mut cursor = store.oldest().await.unwrap();
    loop {
        let page = store.events(cursor, EventFilter::default(), 5_000).await.unwrap();
        if page.events.is_empty() {
            break;
        }
        let mut last = cursor.number;
        for event in page.events {
            assert_eq!(event.number, last + 1);
            last = event.number;
            *told.entry(event.event.task.unwrap()).or_default() += 1;
        }
        cursor = page.cursor;
    }
    assert!(told.values().all(|count| *count == 1), "an event was told twice");
    assert!(done.iter().all(|id| told.contains_key(id)), "an event was skipped");
}

async fn killed_connections_lose_and_double_nothing(server: &mut Server) {
    let (database, url) = server.database();
    let store = open(&url).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&store, &stop);
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = '{database}' AND application_name = 'belay'"
    );
    let mut killed = 0;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        killed += server.psql("postgres", &kill).unwrap().parse::<u32>().unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    let mut done = Vec::new();
    for writer in writers {
        done.extend(writer.await.unwrap());
    }
    assert!(killed > 15 && done.len() > 50, "{killed} killed, {} done", done.len());
    complete(&store, &done).await;
    server.drop_database(&database);
}

async fn a_crash_of_the_server_loses_and_doubles_nothing(server: &mut Server) {
    let (database, url) = server.database();
    let store = open(&url).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&store, &stop);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(|| server.crash_and_restart());
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    stop.store(true, Ordering::SeqCst);
    let mut done = Vec::new();
    for writer in writers {
        done.extend(writer.await.unwrap());
    }
    assert!(done.len() > 20, "{} done", done.len());
    complete(&store, &done).await;
    server.drop_database(&database);
}

/// Two nodes; the one that numbers events is taken away, again and again, while others write.
async fn a_killed_sequencer_is_succeeded(server: &mut Server) {
    let (database, url) = server.database();
    let follower = open(&url).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&follower, &stop);
    let mut nodes = vec![open(&url).await, open(&url).await];
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Whoever holds the lease is made to be a node that is then dropped, as a killed one is.
        let name = nodes[0].sequencer_name().to_owned();
        let seize =
            format!("UPDATE sequencer SET holder = '{name}', held_until = held_until + 500");
        server.psql(&database, &seize).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        nodes.remove(0);
        nodes.push(open(&url).await);
    }
    stop.store(true, Ordering::SeqCst);
    let mut done = Vec::new();
    for writer in writers {
        done.extend(writer.await.unwrap());
    }
    complete(&follower, &done).await;
    server.drop_database(&database);
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn read(client: &tokio_postgres::Client, sql: &str) -> Vec<i64> {
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// A twin that fails: the later number is committed first, and the follower's cursor is past the
/// earlier one before it can be seen.
async fn a_plain_sequence_skips_events(server: &mut Server) {
    let (database, url) = server.database();
    let (one, two, follower) = (connect(&url).await, connect(&url).await, connect(&url).await);
    one.batch_execute("CREATE TABLE twin (number BIGSERIAL PRIMARY KEY, told TEXT)").await.unwrap();
    one.batch_execute("BEGIN; INSERT INTO twin (told) VALUES ('early')").await.unwrap();
    two.batch_execute("INSERT INTO twin (told) VALUES ('late')").await.unwrap();
    let mut seen = read(&follower, "SELECT number FROM twin WHERE number > 0").await;
    let cursor = *seen.last().unwrap();
    one.batch_execute("COMMIT").await.unwrap();
    let next = format!("SELECT number FROM twin WHERE number > {cursor} ORDER BY number");
    seen.extend(read(&follower, &next).await);
    assert_eq!(seen, [2], "event 1 was skipped for ever");
    server.drop_database(&database);
}

/// Another twin that fails: reading only below the oldest running transaction, by number.
async fn a_horizon_over_a_sequence_skips_events(server: &mut Server) {
    let (database, url) = server.database();
    let (one, two, follower) = (connect(&url).await, connect(&url).await, connect(&url).await);
    let table = "CREATE TABLE twin (number BIGSERIAL PRIMARY KEY,
        by xid8 DEFAULT pg_current_xact_id())";
    one.batch_execute(table).await.unwrap();
    // The first transaction has the lower id and draws the higher number.
    one.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    two.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    two.batch_execute("INSERT INTO twin DEFAULT VALUES").await.unwrap();
    one.batch_execute("INSERT INTO twin DEFAULT VALUES; COMMIT").await.unwrap();
    let below = |cursor: i64| {
        format!(
            "SELECT number FROM twin WHERE number > {cursor}
             AND by < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY number"
        )
    };
    let mut seen = read(&follower, &below(0)).await;
    assert_eq!(seen, [2]);
    two.batch_execute("COMMIT").await.unwrap();
    seen.extend(read(&follower, &below(2)).await);
    assert_eq!(seen, [2], "event 1 was skipped for ever");
    server.drop_database(&database);
}

/// The same interleaving, as it is done here: nothing is skipped.
async fn numbers_given_after_the_commit_skip_nothing(server: &mut Server) {
    let (database, url) = server.database();
    let store = open(&url).await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let tell = |kind: &str| {
        format!(
            "INSERT INTO event_inbox (revision, kind, body, at) VALUES (0, '{kind}', '{{}}', 1)"
        )
    };
    one.batch_execute(&format!("BEGIN; {}", tell("early"))).await.unwrap();
    two.batch_execute(&tell("late")).await.unwrap();
    let start = store.oldest().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut cursor, mut seen) = (start, Vec::new());
    while seen.len() < 2 {
        assert!(Instant::now() < deadline, "{seen:?}");
        let page = store.events(cursor, EventFilter::default(), 10).await.unwrap();
        cursor = page.cursor;
        seen.extend(page.events.into_iter().map(|event| event.event.kind));
        if seen == ["late"] {
            one.batch_execute("COMMIT").await.unwrap();
        }
        store.await_events(cursor, Duration::from_millis(50)).await;
    }
    assert_eq!(seen, ["late", "early"]);
    server.drop_database(&database);
}

async fn two_nodes_migrate_at_once(server: &mut Server) {
    let (database, url) = server.database();
    let nodes = tokio::join!(open(&url), open(&url), open(&url));
    let ids: BTreeSet<_> =
        [&nodes.0, &nodes.1, &nodes.2].map(|node| node.installation().epoch).into();
    assert_eq!(ids.len(), 1, "one installation");
    let event = NewEvent::task(task_id(), "hello", "{}".into(), at(1));
    done(&*nodes.0, belay_store::Commit::new().event(event)).await;
    server.drop_database(&database);
}

fn schema(server: &Server, database: &str) -> String {
    let sql = "SELECT string_agg(line, chr(10) ORDER BY line) FROM (
        SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable AS line
            FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace) lines";
    server.psql(database, sql).unwrap()
}

async fn fresh_equals_migrated(server: &mut Server) {
    let (fresh, fresh_url) = server.database();
    let (old, old_url) = server.database();
    drop(open(&fresh_url).await);
    drop(open(&fresh_url).await);
    let client = connect(&old_url).await;
    let table = "CREATE TABLE migrations (
        number BIGINT PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL)";
    client.batch_execute(table).await.unwrap();
    client.batch_execute(&belay_store::migrate::MIGRATIONS[0].postgres()).await.unwrap();
    client.batch_execute("INSERT INTO migrations VALUES (1, 'work', 0)").await.unwrap();
    drop(open(&old_url).await);
    assert_eq!(schema(server, &fresh), schema(server, &old));
    server.drop_database(&fresh);
    server.drop_database(&old);
}

async fn a_newer_database_refuses_an_older_program(server: &mut Server) {
    let (database, url) = server.database();
    drop(open(&url).await);
    server.psql(&database, "INSERT INTO migrations VALUES (999, 'later', 0)").unwrap();
    let refused = Postgres::open(PostgresOptions::new(&url)).await.err().unwrap();
    assert!(matches!(refused, OpenError::Newer { found: 999, .. }), "{refused}");
    server.drop_database(&database);
}

async fn tls_is_verified(server: &mut Server) {
    let Some(certificate) = server.certificate() else { return };
    let (database, url) = server.database();
    let secure = url.replace("sslmode=disable", "sslmode=require");
    let mut options = PostgresOptions::new(&secure);
    options.patience = Duration::from_secs(3);
    let refused = Postgres::open(options.clone()).await.err().expect("nobody vouches for it");
    assert!(matches!(refused, OpenError::Unreachable(..)), "{refused}");
    options.root_certificates = Some(certificate);
    let store = Postgres::open(options).await.unwrap();
    done(&store, creation(&task("builder"))).await;
    let sql = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE s.ssl AND a.application_name = 'belay'";
    assert!(server.psql(&database, sql).unwrap().parse::<u32>().unwrap() > 0);
    drop(store);
    server.drop_database(&database);
}
