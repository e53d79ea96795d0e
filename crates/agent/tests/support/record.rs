//! Recordings: what a real agent printed, kept as a fixture with its version, when
//! `BELAY_RECORD_FIXTURES` is set. Paths and ports of the machine are taken out.

use std::fs;
use std::path::Path;

use belay_agent::{Agent, Exit, Launch, Permissions};
use serde::{Deserialize, Serialize};

use super::case::Place;
use super::drive::Run;

/// Where fixtures are.
pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// What a reader must be told beside the stream.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) agent: Agent,
    /// The conversation that was resumed, if one was.
    pub(crate) resumed: Option<String>,
    /// Whether the agent was to ask for permission.
    pub(crate) asks: bool,
    pub(crate) exit: Exit,
}

/// Keeps the run as a fixture, if recordings are asked for.
pub(crate) fn record(place: &Place, launch: &Launch, scenario: &str, run: &Run) {
    if std::env::var_os("BELAY_RECORD_FIXTURES").is_none() {
        return;
    }
    let directory = Path::new(FIXTURES).join(place.case.label());
    fs::create_dir_all(&directory).unwrap();
    let setting = Setting {
        agent: place.case.agent(),
        resumed: launch.conversation.resumed().map(ToString::to_string),
        asks: launch.permissions == Permissions::Ask,
        exit: run.exit,
    };
    let setting = serde_json::to_string(&setting).unwrap();
    fs::write(directory.join(format!("{scenario}.json")), format!("{setting}\n")).unwrap();
    let stream = scrub(place, &String::from_utf8_lossy(&run.stdout));
    fs::write(directory.join(format!("{scenario}.stream")), stream).unwrap();
}

fn scrub(place: &Place, stream: &str) -> String {
    let root = place.root.to_str().unwrap();
    let slug: String =
        root.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let programs = super::programs().unwrap().parent().unwrap().parent().unwrap();
    // The longest first: each holds the ones after it.
    let mut text = stream.replace(root, "/sandbox").replace(&slug, "-sandbox");
    text = text.replace(programs.to_str().unwrap(), "/programs");
    text = text.replace(super::BASE, "/shared");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    text = text.replace(workspace.to_str().unwrap(), "/workspace");
    let relative = place.root.strip_prefix(workspace).unwrap().to_str().unwrap();
    text = text.replace(relative, "sandbox");
    let address = place.server.url();
    text.replace(address.trim_start_matches("http://"), "127.0.0.1:4000")
}
