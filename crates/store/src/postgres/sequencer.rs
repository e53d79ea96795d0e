//! The sequencer: gives committed events their numbers, in one place at a time.
//!
//! A number that is drawn before the commit can be seen after a higher one, and whoever follows by
//! number skips it. So events are committed without one. The sequencer sees what is committed, and
//! moves it into the table of numbered events, counting on from the last number, in one transaction
//! that holds the counter's row. Two sequencers at once would wait for each other there, so the
//! lease is for thrift, and the row's lock is what makes it right. If a sequencer is killed, its
//! transaction never happened, and the next one begins where the last finished one ended.
//!
//! Within a task, a revision can only be committed after the one before it, so whoever sees the
//! later one sees the earlier one; and the inbox counts in the order of writing. So the order of
//! the inbox is the order of revisions within each task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_postgres::AsyncMessage;

use super::args::Arg;
use super::link::{Link, Session, Trouble};
use crate::open::draw;
use crate::refusal::Failure;

/// How often the inbox is looked at without being told.
const POLL: Duration = Duration::from_millis(25);
/// Those who commit under load share a round.
const BREATH: Duration = Duration::from_millis(3);
/// How often a node that does not hold the lease tries to.
const IDLE: Duration = Duration::from_millis(500);
/// How long the lease is held without being renewed.
const LEASE_MS: i64 = 2_000;
/// At most so many events are moved at once.
const MOVE: i64 = 5_000;
const CHANNEL: &str = "belay_events";

/// The sequencer of one node, which works while it holds the lease.
pub(super) struct Sequencer {
    name: String,
    bell: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Sequencer {
    pub(super) fn start(link: Arc<Link>, newest: watch::Sender<u64>) -> Self {
        let name = format!("{:020x}", draw() >> 48);
        let bell = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        let newest = Arc::new(newest);
        tasks.spawn(sequence(
            Arc::clone(&link),
            name.clone(),
            Arc::clone(&bell),
            Arc::clone(&newest),
        ));
        if link.options.listen && link.is_own() {
            tasks.spawn(listen(link, newest));
        }
        Self { name, bell, _tasks: tasks }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// To be rung when something was committed.
    pub(super) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }
}

fn tell(newest: &watch::Sender<u64>, number: u64) {
    newest.send_if_modified(|known| {
        let later = number > *known;
        *known = number.max(*known);
        later
    });
}

async fn sequence(
    link: Arc<Link>,
    name: String,
    bell: Arc<Notify>,
    newest: Arc<watch::Sender<u64>>,
) {
    let mut pause = POLL;
    loop {
        let _ = tokio::time::timeout(pause, bell.notified()).await;
        // A database that is away is tried again with the next round.
        let moved = match link.client().await {
            Ok(client) => number(&client, link.begin_to_write(), &name).await,
            Err(trouble) => Err(trouble),
        };
        pause = match moved {
            Ok(Moved::Some { last, count }) => {
                tell(&newest, last);
                tokio::time::sleep(BREATH).await;
                if count >= MOVE { Duration::ZERO } else { POLL }
            }
            Ok(Moved::None) => POLL,
            Ok(Moved::NotOurs) | Err(_) => IDLE,
        };
    }
}

enum Moved {
    Some { last: u64, count: i64 },
    None,
    NotOurs,
}

/// One round: renew or take the lease, number what is committed.
async fn number(client: &Session, begin: &str, name: &str) -> Result<Moved, Trouble> {
    // Looking first keeps an idle installation from writing. A lease that ends later than any lease
    // could is from before the clock was set back, and counts as over.
    let look = "SELECT EXISTS (SELECT 1 FROM event_inbox), last_number,
            coalesce(holder = $1, false)
            OR held_until - (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                NOT BETWEEN 0 AND $2
        FROM sequencer";
    let rows = client.query(look, &[Arg::text(name), Arg::int(LEASE_MS)]).await?;
    let row = rows.first().ok_or(Failure::Closed)?;
    if !row.try_get::<_, bool>(2)? {
        return Ok(Moved::NotOurs);
    }
    if !row.try_get::<_, bool>(0)? {
        return Ok(Moved::None);
    }
    let lease = "UPDATE sequencer SET holder = $1,
            held_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2
        WHERE one = 1 AND (holder = $1
            OR held_until - (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                NOT BETWEEN 0 AND $2)";
    let work = "WITH moved AS (
            DELETE FROM event_inbox WHERE EXISTS (SELECT 1 FROM sequencer WHERE holder = $1)
                AND id <= coalesce(
                    (SELECT id FROM event_inbox ORDER BY id OFFSET $2 - 1 LIMIT 1),
                    9223372036854775807)
            RETURNING id, task, revision, attempt, session, workflow, kind, body, at),
        put AS (
            INSERT INTO events (number, task, revision, attempt, session, workflow, kind, body, at)
            SELECT (SELECT last_number FROM sequencer) + row_number() OVER (ORDER BY id),
                task, revision, attempt, session, workflow, kind, body, at
            FROM moved RETURNING 1)
        UPDATE sequencer SET last_number = last_number + (SELECT count(*) FROM put)
        WHERE one = 1 AND holder = $1 RETURNING last_number, (SELECT count(*) FROM put)";
    let lease_args = [Arg::text(name), Arg::int(LEASE_MS)];
    let work_args = [Arg::text(name), Arg::int(MOVE)];
    let lease_ready = client.ready(lease, &lease_args).await?;
    let work_ready = client.ready(work, &work_args).await?;
    // The lease's row is locked by the first statement; the second one sees what it left.
    let (begun, leased, worked, told, committed) = tokio::join!(
        client.batch_execute(begin),
        client.execute_ready(&lease_ready, lease, &lease_args),
        client.query_ready(&work_ready, work, &work_args),
        client.batch_execute(NOTIFY),
        client.batch_execute("COMMIT"),
    );
    begun?;
    let leased = leased?;
    let rows = worked?;
    told?;
    committed?;
    match rows.first() {
        Some(row) if leased == 1 => Ok(Moved::Some {
            last: row.try_get::<_, i64>(0)?.unsigned_abs(),
            count: row.try_get(1)?,
        }),
        _ => Ok(Moved::NotOurs),
    }
}

/// Tells the listeners of all nodes, once a round.
const NOTIFY: &str = "NOTIFY belay_events";

/// Waits for the word that there are new events, on a connection of its own, for ever.
async fn listen(link: Arc<Link>, newest: Arc<watch::Sender<u64>>) {
    let mut pause = Duration::from_millis(100);
    loop {
        if let Ok((client, mut connection)) = link.own_connection().await {
            let (word, mut words) = tokio::sync::mpsc::channel(1);
            let heard = async move {
                // The connection does the work of the client too, so both are polled together.
                while let Some(message) =
                    futures_util::future::poll_fn(|cx| connection.poll_message(cx)).await
                {
                    match message {
                        Ok(AsyncMessage::Notification(_)) => {
                            let _ = word.try_send(());
                        }
                        Ok(_) => {}
                        Err(_) => return,
                    }
                }
            };
            let look = async {
                let sql = format!("LISTEN {CHANNEL}");
                if client.batch_execute(&sql).await.is_err() {
                    return;
                }
                loop {
                    let sql = "SELECT last_number FROM sequencer";
                    let Ok(rows) = client.query_typed(sql, &[]).await else { return };
                    let last = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok());
                    tell(&newest, last.unwrap_or(0).unsigned_abs());
                    if words.recv().await.is_none() {
                        return;
                    }
                }
            };
            futures_util::future::select(Box::pin(heard), Box::pin(look)).await;
            pause = Duration::from_millis(100);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
