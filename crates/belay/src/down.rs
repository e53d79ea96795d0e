//! `belay down`: stops the server, and says what goes on.

use std::time::{Duration, Instant};

use belay_api::ListTasks;

use crate::cli::Down;
use crate::connect::{Link, Start, key};
use crate::data::Data;
use crate::fault::{Exit, Fault};
use crate::screen::{note, say, say_json};
use crate::verbs::stop_task;

/// How long a server may take to end.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the stop of one task is waited for.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Stops the server.
pub(crate) async fn down(data: &Data, down: &Down, json: bool) -> Result<Exit, Fault> {
    let Some(server) = data.server() else {
        if json {
            say_json(&serde_json::json!({ "stopped": false }));
        } else {
            say(&format!("no server is up for {}", data.root().display()));
        }
        return Ok(Exit::Done);
    };
    let mut going_on = 0;
    match Link::open(data, Start::Never).await {
        Ok(mut link) if down.stop_tasks => stop_all(&mut link).await?,
        Ok(link) => going_on = link.client().health().await.map_or(0, |health| health.attempts),
        Err(fault) if down.stop_tasks => return Err(fault),
        Err(_) => {}
    }
    server.process.terminate().map_err(|error| {
        Fault::failed(format!("process {} cannot be stopped: {error}", server.process.pid))
    })?;
    let until = Instant::now() + LIMIT;
    while server.process.is_alive() {
        if Instant::now() >= until {
            let pid = server.process.pid;
            return Err(Fault::failed(format!("process {pid} has not ended after {LIMIT:?}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if json {
        say_json(&serde_json::json!({ "stopped": true, "attempts": going_on }));
    } else {
        say("the server is stopped");
        if going_on > 0 {
            let agents =
                if going_on == 1 { "1 agent goes" } else { &format!("{going_on} agents go") };
            say(&format!(
                "{agents} on without the server until the lease is over; `belay up` goes on with \
                 them, `belay down --stop-tasks` stops them first"
            ));
        }
    }
    Ok(Exit::Done)
}

/// Stops everything that is under way.
async fn stop_all(link: &mut Link) -> Result<(), Fault> {
    loop {
        let state = "QUEUED,CLAIMED,RUNNING,BLOCKED".to_owned();
        let which = ListTasks { state, limit: Some(100), ..ListTasks::default() };
        let page = link.ask(async |client| client.list(&which).await).await?;
        if page.tasks.is_empty() {
            return Ok(());
        }
        for task in page.tasks {
            let id = task.id.to_string();
            note(&format!("belay: stopping {id}"));
            stop_task(link, &id, STOP_LIMIT, &key(None)?).await?;
        }
    }
}
