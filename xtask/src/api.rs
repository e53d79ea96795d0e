//! `cargo xtask api`: the server, tried with everything that its own description allows and much
//! that it does not, by schemathesis.
//!
//! The server is the real one, with a data directory of its own and no workers: what is made is
//! never run. Requests are drawn from the OpenAPI document, and walks follow its links from what
//! was made to what can be asked of it; what comes back must be as described, and never a fault of
//! the server's own. Backups are left out: they write to whatever path they are given; so are
//! streams, which do not end, and MCP, which has a protocol of its own: tests of their own try
//! those.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Outcome, Workspace, passes};
use crate::tools;

/// How long the server may take to come up.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The seed: the same requests every time, so that what fails fails again.
const SEED: &str = "7425";
/// How many requests are drawn for a route.
const EXAMPLES: &str = "30";
/// What is tried by tests of its own.
const APART: &[&str] = &["/api/v1/backup", "/api/v1/events/stream", "/api/v1/events/ws", "/mcp"];
/// How walks from answer to answer go: along the links that the document has, and no others.
const WALKS: &str = "[phases.stateful]\nmax-steps = 20\ngeneration.max-examples = 100\n\
                     inference.algorithms = []\n";
/// What is done to the bodies that are drawn.
const HOOKS: &str = "xtask/src/hooks.py";
/// What is not checked, and why not.
const LEFT_OUT: &[&str] = &[
    // What makes sense is more than a schema can say: a task needs a prompt or a command.
    "positive_data_acceptance",
    // Whoever guesses is answered 429 after a while; a test of its own tries every route.
    "ignored_auth",
];

/// Builds the server, starts it, and has it tried.
pub fn run(workspace: &Workspace) -> Outcome {
    let program = match tools::schemathesis(workspace) {
        Ok(program) => program,
        Err(why) => return Outcome::Failed(why),
    };
    match passes(&mut workspace.cargo(&["build", "--package", "belay"])) {
        Outcome::Passed => {}
        other => return other,
    }
    let place = std::env::temp_dir().join(format!("belay-api-{}", std::process::id()));
    let outcome = match Server::start(workspace, &place) {
        Ok(server) => passes(&mut attempt(workspace, &program, &server)),
        Err(why) => Outcome::Failed(why),
    };
    if outcome == Outcome::Passed {
        // What stays behind after a failure says why.
        let _ = fs::remove_dir_all(&place);
    } else {
        println!("the server's log and data are in {}", place.display());
    }
    outcome
}

fn attempt(workspace: &Workspace, program: &Path, server: &Server) -> Command {
    let mut command = workspace.command(&program.display().to_string());
    command
        .arg("run")
        .arg(format!("{}/api/v1/openapi.json", server.url))
        .args(["--header", &format!("Authorization: Bearer {}", server.token)])
        .args(["--checks", "all", "--exclude-checks", &LEFT_OUT.join(",")])
        .args(APART.iter().flat_map(|path| ["--exclude-path", path]))
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--no-color"])
        .args(["--request-timeout", "30", "--continue-on-failure"])
        .env("SCHEMATHESIS_HOOKS", workspace.root().join(HOOKS))
        .current_dir(&server.place);
    command
}

/// A server with a directory of its own; ended when it is dropped.
struct Server {
    child: Child,
    place: PathBuf,
    url: String,
    token: String,
}

impl Server {
    fn start(workspace: &Workspace, place: &Path) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", place.display());
        let (data, config) = (place.join("data"), place.join("config/belay"));
        fs::create_dir_all(&config).map_err(wrong)?;
        let settings = "[server]\nport = 0\n\n[roles.default]\nworkers = 0\n\n\
                        [watch]\nwebhook_allow = [\"127.0.0.1\"]\n";
        fs::write(config.join("belay.toml"), settings).map_err(wrong)?;
        fs::write(place.join("schemathesis.toml"), WALKS).map_err(wrong)?;
        let log = fs::File::create(place.join("server.log")).map_err(wrong)?;
        let program = workspace.built("belay");
        let mut command = workspace.command(&program.display().to_string());
        command
            .args(["up", "--with-parent", "--data-dir"])
            .arg(&data)
            .env("XDG_CONFIG_HOME", place.join("config"))
            .stdout(log.try_clone().map_err(wrong)?)
            .stderr(Stdio::from(log));
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let mut server =
            Self { child, place: place.to_owned(), url: String::new(), token: String::new() };
        let until = Instant::now() + START_LIMIT;
        while Instant::now() < until {
            let file = fs::read(data.join("server.json")).unwrap_or_default();
            let file: serde_json::Value = serde_json::from_slice(&file).unwrap_or_default();
            if let Some(url) = file["url"].as_str() {
                server.url = url.to_owned();
                let token = fs::read_to_string(data.join("token")).map_err(wrong)?;
                server.token = token.trim().to_owned();
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("the server ended with {status}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the server did not come up".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
