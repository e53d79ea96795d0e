//! What is only so behind a transaction pooler: nobody has to say that it is there, nothing is left
//! in the sessions that others are given, and followers are woken by looking.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_store::{Commit, EventFilter, NewEvent, Postgres, PostgresOptions, Store};

use super::passes;
use super::server::Server;
use super::server::pooler::Pooler;
use super::suite::make::*;

macro_rules! run {
    ($failed:ident, $server:ident, $pooler:ident, $chosen:ident: $($case:ident,)*) => {$(
        let name = stringify!($case);
        if $chosen(name) && !passes(name, $case($server, $pooler)).await {
            $failed.push(name);
        }
    )*};
}

pub(crate) async fn all(
    server: &Server,
    pooler: &Pooler,
    chosen: &dyn Fn(&str) -> bool,
) -> Vec<&'static str> {
    let mut failed = Vec::new();
    run! { failed, server, pooler, chosen:
        a_pooler_is_noticed_and_nothing_is_left_in_its_sessions,
        several_nodes_share_the_sessions_of_a_pooler,
        a_follower_behind_a_pooler_is_woken_by_looking,
    }
    failed
}

async fn open(url: &str) -> Arc<Postgres> {
    Arc::new(Postgres::open(PostgresOptions::new(url)).await.unwrap())
}

/// Runs some of everything, so that whatever would be left in a session is.
async fn work(store: &Postgres, rounds: usize) {
    for _ in 0..rounds {
        let row = task("builder");
        done(store, creation(&row)).await;
        let claims = store.claim(ask("builder", 5), claimer()).await.unwrap();
        assert!(claims.iter().all(|claim| claim.committed.is_done()), "{claims:?}");
        assert_eq!(task_of(store, row.task.id).await.row.task.id, row.task.id);
    }
}

/// What statement and channel each session of the pooler was left with is seen from its inside: a
/// plain client is given one session after the other.
async fn left_behind(url: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut held = Vec::new();
    for _ in 0..3 {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        // An open transaction keeps its session, so the next client is given another one.
        client.batch_execute("BEGIN").await.unwrap();
        let look = "SELECT name FROM pg_prepared_statements
            UNION ALL SELECT pg_listening_channels()
            UNION ALL SELECT name FROM pg_settings WHERE source = 'session'
                AND name NOT IN ('application_name', 'client_encoding')
            UNION ALL SELECT locktype FROM pg_locks
                WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        for message in client.simple_query(look).await.unwrap() {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                left.extend(row.get(0).map(ToOwned::to_owned));
            }
        }
        held.push(client);
    }
    left
}

async fn a_pooler_is_noticed_and_nothing_is_left_in_its_sessions(server: &Server, pooler: &Pooler) {
    let (database, direct) = server.database();
    let before = pooler.transactions().unwrap();
    let store = open(&pooler.url_of(&database)).await;
    assert!(store.is_pooled(), "nobody said that there is a pooler");
    assert!(!open(&direct).await.is_pooled(), "and here there is none");
    work(&store, 20).await;
    drop(store);
    assert_eq!(left_behind(&pooler.url_of(&database)).await, [""; 0]);
    // The console counts every few moments.
    let deadline = Instant::now() + Duration::from_secs(90);
    while pooler.transactions().unwrap() < before + 40 {
        assert!(Instant::now() < deadline, "the work went through the pooler");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.drop_database(&database);
}

async fn several_nodes_share_the_sessions_of_a_pooler(server: &Server, pooler: &Pooler) {
    let (database, _) = server.database();
    let url = pooler.url_of(&database);
    let nodes = tokio::join!(open(&url), open(&url), open(&url));
    tokio::join!(work(&nodes.0, 30), work(&nodes.1, 30), work(&nodes.2, 30));
    let start = nodes.0.oldest().await.unwrap();
    super::suite::following::settle(&*nodes.0).await;
    let page = nodes.1.events(start, EventFilter::default(), 1_000).await.unwrap();
    let created = page.events.iter().filter(|one| one.event.kind == "task.created").count();
    assert_eq!(created, 90);
    server.drop_database(&database);
}

/// The other node's sequencer gives the number, and nothing tells of it: the follower looks.
async fn a_follower_behind_a_pooler_is_woken_by_looking(server: &Server, pooler: &Pooler) {
    let (database, direct) = server.database();
    let writer = open(&direct).await;
    let marker = NewEvent::task(task_id(), "marker", "{}".into(), at(1));
    done(&*writer, Commit::new().event(marker.clone())).await;
    // Only now, so that the sequencer is the writer's.
    super::suite::following::settle(&*writer).await;
    let follower = open(&pooler.url_of(&database)).await;
    let here = follower.latest().await.unwrap();
    let began = Instant::now();
    let patience = Duration::from_secs(30);
    let woken = follower.await_events(here, patience);
    let told = done(&*writer, Commit::new().event(marker));
    tokio::join!(woken, told);
    assert!(began.elapsed() < patience / 2, "{:?}", began.elapsed());
    assert!(follower.latest().await.unwrap().number > here.number);
    server.drop_database(&database);
}
