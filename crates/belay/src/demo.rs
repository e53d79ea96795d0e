//! `belay demo`: ten short tasks with real processes, in a directory and with a server of its own.
//!
//! ```text
//!  stage (directory, repository, `belay up`) ──► ten scenes at once ──► strike, proof, table
//! ```
//!
//! The agents are this program again, as plain commands. The demo is the person: it answers,
//! accepts and stops through the API, and believes only what the API and /proc show.

mod agent;
mod row;
mod scene;
mod stage;
mod watch;

use std::sync::Arc;
use std::time::Instant;

use belay_api::Publishing;
use belay_kernel::Limits;
use belay_sandbox::Report;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

pub(crate) use agent::agent;

use crate::cli::Demo;
use crate::fault::{Exit, Fault};
use crate::screen::{Palette, note, say, say_json};
use row::{Row, table};
use scene::Scene;
use stage::{SCALED, Stage};
use watch::Cast;

/// The whole, as `--json` tells it.
#[derive(Serialize)]
struct Told {
    as_expected: bool,
    seconds: f64,
    rows: Vec<Row>,
    /// Processes that were still there at the end.
    processes_left: Vec<u32>,
    /// The data directory, if it was kept.
    kept: Option<String>,
}

/// Plays the demo; succeeds only if all ten tasks ended as they should and nothing is left.
pub(crate) async fn demo(demo: &Demo, json: bool) -> Result<Exit, Fault> {
    let began = Instant::now();
    let wrong = |error: std::io::Error| Fault::failed(format!("signals cannot be caught: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(wrong)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(wrong)?;
    // A signal meanwhile is heard below: half a stage cannot be struck.
    let stage = Stage::set().await?;
    if !json {
        greet(&stage);
    }
    let cast = Arc::new(cast(&stage, began, json)?);
    let rows = tokio::select! {
        rows = play(&cast) => Some(rows),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
        _ = hung_up.recv() => None,
    };
    if rows.is_none() {
        note("belay: interrupted; stopping everything");
    }
    let root = stage.root().display().to_string();
    let left = stage.strike(demo.keep).await;
    let kept = (demo.keep || !left.is_empty()).then_some(root);
    let Some(rows) = rows else {
        tell_left(&left);
        return Ok(Exit::Interrupted);
    };
    let fine = left.is_empty() && rows.iter().all(Row::is_as_expected);
    let seconds = began.elapsed().as_secs_f64();
    if json {
        say_json(&Told { as_expected: fine, seconds, rows, processes_left: left, kept });
    } else {
        note("");
        say(&table(&rows, Palette::stdout()));
        tell_end(&rows, seconds, kept.as_deref());
        tell_left(&left);
    }
    Ok(if fine { Exit::Done } else { Exit::Failed })
}

fn cast(stage: &Stage, began: Instant, silent: bool) -> Result<Cast, Fault> {
    let program = std::env::current_exe()
        .map_err(|error| Fault::failed(format!("this program cannot be found: {error}")))?;
    Ok(Cast {
        client: stage.client().clone(),
        program: program.display().to_string(),
        mark: stage.mark.clone(),
        repository: stage.repository().display().to_string(),
        publish: if is_isolated() { Publishing::Branch } else { Publishing::None },
        began,
        silent,
    })
}

/// Whether agents can be kept from the person's files here: without that nothing is published.
fn is_isolated() -> bool {
    let report = Report::examine(&[]);
    report.findings.iter().any(|finding| finding.ability == "isolate" && finding.works)
}

/// All scenes at once.
async fn play(cast: &Arc<Cast>) -> Vec<Row> {
    let mut playing = JoinSet::new();
    for scene in Scene::ALL {
        let cast = Arc::clone(cast);
        playing.spawn(async move {
            let played = scene.play(&cast).await;
            played.unwrap_or_else(|fault| {
                cast.tell(scene, &fault.text);
                Row::broken(scene, &fault.text)
            })
        });
    }
    let rows = playing.join_all().await;
    let place = |row: &Row| Scene::ALL.iter().position(|scene| scene.name() == row.name);
    let mut rows = rows;
    rows.sort_by_key(place);
    rows
}

/// Says what will be seen, and what is not as usual.
fn greet(stage: &Stage) {
    let usual = Limits::default();
    note("Ten tasks at once, each with real processes; the agents are this program again.");
    note(&format!("Server   {} with data in {}", stage.client().url(), stage.root().display()));
    if !is_isolated() {
        note("Isolation is missing here (`belay doctor` says why): nothing is published.");
    }
    let scaled: Vec<_> = SCALED
        .iter()
        .map(|(limit, span)| format!("{} {span} (default {})", limit.key(), usual.get(*limit)))
        .collect();
    note(&format!("Limits are shortened, so that nobody has to wait:\n  {}", scaled.join("\n  ")));
    for scene in Scene::ALL {
        note(&format!("  {:<9} {}", scene.name(), scene.shows()));
    }
}

fn tell_end(rows: &[Row], seconds: f64, kept: Option<&str>) {
    let fine = rows.iter().filter(|row| row.is_as_expected()).count();
    say(&format!("\n{fine} of {} ended as expected, in {seconds:.0} s", rows.len()));
    match kept {
        Some(root) => say(&format!("kept: {root}; look at it with --data-dir {root}/data")),
        None => say("no process and no file is left"),
    }
}

fn tell_left(left: &[u32]) {
    if !left.is_empty() {
        let pids: Vec<_> = left.iter().map(ToString::to_string).collect();
        note(&format!("belay: these processes are still there: {}", pids.join(", ")));
    }
}
