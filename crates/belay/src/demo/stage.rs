//! The demo's stage: a directory, a repository, settings and a server of its own, and the proof
//! that nothing of it is left.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belay_api::{Client, ListTasks};
use belay_kernel::{Limit, Span};

use crate::data::Data;
use crate::fault::Fault;

/// How long the server may take to come up, and to end.
const SERVER_LIMIT: Duration = Duration::from_secs(30);
/// How long the stop of one task may take.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long what was killed may still be seen.
const GONE_LIMIT: Duration = Duration::from_secs(5);
/// How often something that will happen is looked for.
const LOOK: Duration = Duration::from_millis(25);
/// How many agents run at once.
const WORKERS: u32 = 12;

/// The limits that are shorter than they are by default, so that nobody has to wait.
pub(super) const SCALED: [(Limit, Span); 9] = [
    (Limit::Inactivity, Span::from_secs(5)),
    (Limit::InactivityQuiet, Span::from_secs(5)),
    (Limit::Idle, Span::from_secs(6)),
    (Limit::StuckRunning, Span::from_secs(8)),
    (Limit::StopGrace, Span::from_secs(1)),
    (Limit::BackoffFirst, Span::from_secs(1)),
    (Limit::HeartbeatInterval, Span::from_secs(1)),
    (Limit::HeartbeatTimeout, Span::from_secs(20)),
    // Should the demo itself be killed, its agents are gone when this is over.
    (Limit::AttemptLeaseEmbedded, Span::from_secs(45)),
];

/// What the demo stands on.
pub(super) struct Stage {
    root: PathBuf,
    /// What every process of the demo has in its command line or environment.
    pub(super) mark: String,
    server: Child,
    client: Client,
}

impl Stage {
    /// Makes the directory, the repository and the settings, and starts the server.
    pub(super) async fn set() -> Result<Self, Fault> {
        let key = crate::connect::key(None)?;
        let mark = format!("belay-demo-{}", &key[..12]);
        let root = std::env::temp_dir().join(&mark);
        let made = fs::DirBuilder::new().mode(0o700).create(&root);
        made.map_err(|error| Fault::file(&root, &error))?;
        let set = async {
            make_repository(&root.join("repository"))?;
            write_settings(&root)?;
            let mut server = start(&root)?;
            match wait_for(&root, &mut server).await {
                Ok(client) => Ok((server, client)),
                Err(fault) => {
                    end(&mut server).await;
                    Err(fault)
                }
            }
        };
        match set.await {
            Ok((server, client)) => Ok(Self { root, mark, server, client }),
            Err(fault) => {
                remove(&root);
                Err(fault)
            }
        }
    }

    /// Everything is in here.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The repository that is worked on.
    pub(super) fn repository(&self) -> PathBuf {
        self.root.join("repository")
    }

    /// Speaks to the server.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Stops what still runs and the server, and looks for what is left: processes that live on.
    pub(super) async fn strike(mut self, keep: bool) -> Vec<u32> {
        stop_tasks(&self.client).await;
        end(&mut self.server).await;
        let until = Instant::now() + GONE_LIMIT;
        let mut left = marked(&self.mark, "");
        while !left.is_empty() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            left = marked(&self.mark, "");
        }
        if !keep && left.is_empty() {
            remove(&self.root);
        }
        left
    }
}

fn make_repository(path: &Path) -> Result<(), Fault> {
    let wrong = |error: std::io::Error| Fault::file(path, &error);
    fs::create_dir(path).map_err(wrong)?;
    fs::write(path.join("README.md"), "# A repository for the demo\n").map_err(wrong)?;
    let person = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost"];
    let plain = ["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"];
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "README.md"],
        &["commit", "--quiet", "--message=Begin"],
    ] {
        let mut git = Command::new("git");
        git.arg("-C").arg(path).args(person).args(plain).args(arguments).stdin(Stdio::null());
        let output = git
            .output()
            .map_err(|error| Fault::failed(format!("git cannot be started: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Fault::failed(format!("git {}: {said}", arguments.join(" "))));
        }
    }
    Ok(())
}

/// Settings of the demo alone: the person's own do not reach it.
fn write_settings(root: &Path) -> Result<(), Fault> {
    let directory = root.join("config/belay");
    fs::create_dir_all(&directory).map_err(|error| Fault::file(&directory, &error))?;
    let mut text = format!("[roles.default]\nworkers = {WORKERS}\n\n[limits]\n");
    for (limit, span) in SCALED {
        text.push_str(&format!("{} = \"{span}\"\n", limit.key()));
    }
    let path = directory.join(crate::config::NAME);
    fs::write(&path, text).map_err(|error| Fault::file(&path, &error))
}

fn start(root: &Path) -> Result<Child, Fault> {
    let log = root.join("server.log");
    let file = fs::File::create(&log).map_err(|error| Fault::file(&log, &error))?;
    let again = file.try_clone().map_err(|error| Fault::file(&log, &error))?;
    let program = std::env::current_exe()
        .map_err(|error| Fault::failed(format!("this program cannot be found: {error}")))?;
    let mut up = Command::new(&program);
    up.args(["up", "--port", "0", "--with-parent", "--data-dir"]).arg(root.join("data"));
    let foreign = |name: &str| name.starts_with("BELAY_") || name.starts_with("AGENT_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(foreign) {
            up.env_remove(name);
        }
    }
    up.env("XDG_CONFIG_HOME", root.join("config")).current_dir(root).stdin(Stdio::null());
    // Ctrl-C reaches the demo alone, which then ends the server in good order.
    up.stdout(file).stderr(again).process_group(0);
    up.spawn().map_err(|error| Fault::file(&program, &error))
}

async fn wait_for(root: &Path, server: &mut Child) -> Result<Client, Fault> {
    let data = Data::find(Some(&root.join("data")))?;
    let until = Instant::now() + SERVER_LIMIT;
    while Instant::now() < until {
        if let Some(found) = data.server() {
            let client = Client::new(&found.url, &data.token()?);
            if client.health().await.is_ok() {
                return Ok(client);
            }
        }
        if !matches!(server.try_wait(), Ok(None)) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let log = fs::read_to_string(root.join("server.log")).unwrap_or_default();
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(Fault::failed(format!("the demo's server did not come up: {last}")))
}

/// Stops every task that is under way. What cannot be stopped is seen later, as what is left.
async fn stop_tasks(client: &Client) {
    let state = "PENDING,QUEUED,CLAIMED,RUNNING,BLOCKED".to_owned();
    let which = ListTasks { state, limit: Some(100), ..ListTasks::default() };
    let Ok(page) = client.list(&which).await else { return };
    let mut stops = tokio::task::JoinSet::new();
    for task in page.tasks {
        let client = client.clone();
        stops.spawn(async move { client.stop(&task.id.to_string(), STOP_LIMIT, None).await });
    }
    stops.join_all().await;
}

/// Ends the server: asked first, then killed.
async fn end(server: &mut Child) {
    if let Some(process) = crate::process::Process::of(server.id()) {
        // One that cannot be asked is killed below.
        let _ = process.terminate();
    }
    let until = Instant::now() + SERVER_LIMIT;
    while matches!(server.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            let _ = server.kill();
            let _ = server.wait();
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn remove(root: &Path) {
    if let Err(error) = fs::remove_dir_all(root) {
        crate::screen::note(&format!("belay: {} was not removed: {error}", root.display()));
    }
}

/// The processes, other than this one, that carry the mark in their command line or environment,
/// and `word` as one of their arguments unless it is empty.
pub(super) fn marked(mark: &str, word: &str) -> Vec<u32> {
    let own = std::process::id();
    let contains = |bytes: &[u8], text: &str| {
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let is_ours = |pid: &u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let line = read("cmdline");
        let named = word.is_empty() || line.split(|b| *b == 0).any(|arg| arg == word.as_bytes());
        named && (contains(&line, mark) || contains(&read("environ"), mark))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != own).filter(is_ours).collect()
}

#[cfg(test)]
mod tests {
    use belay_kernel::Limits;

    use super::*;

    #[test]
    fn the_demos_limits_fit_together() {
        let mut limits = Limits::default();
        for (limit, span) in SCALED {
            limits.set(limit, span);
        }
        assert_eq!(limits.check(), []);
    }

    #[test]
    fn a_marked_process_is_found_and_then_it_is_not() {
        let mark = format!("mark-{}", std::process::id());
        let mut child = Command::new("sleep").arg("60").env("DEMO", &mark).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while marked(&mark, "60") != [child.id()] {
            assert!(Instant::now() < until, "the child is not found");
        }
        assert_eq!(marked(&mark, "61"), [0; 0]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(marked(&mark, ""), [0; 0]);
    }
}
