//! Finding the server, and starting one in the background where there is none.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belay_api::{Client, ClientError, Code};

use crate::data::Data;
use crate::fault::Fault;
use crate::screen::note;

/// How long a server may take to come up.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a request is repeated that got no answer although somebody listened.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where nobody listens: as long as a restart takes.
const RESTART: Duration = Duration::from_secs(3);
/// How often something that will happen is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Whether a server is started where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Always.
    Always,
    /// Only if there is something that it would serve.
    IfUsed,
    /// Never.
    Never,
}

/// A connection that finds the server again when it was restarted.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    data: Data,
    client: Client,
}

impl Link {
    /// Finds the server, or starts one.
    pub(crate) async fn open(data: &Data, start: Start) -> Result<Self, Fault> {
        if let Some(client) = find(data)? {
            return Ok(Self { data: data.clone(), client });
        }
        let wanted = match start {
            Start::Always => true,
            Start::IfUsed => data.is_used(),
            Start::Never => false,
        };
        if !wanted {
            return Err(Fault::unreachable(format!(
                "no server is up for {}; `belay up` starts one",
                data.root().display()
            )));
        }
        let client = start_server(data).await?;
        Ok(Self { data: data.clone(), client })
    }

    /// The client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Looks for the server again: it may have been restarted elsewhere.
    pub(crate) fn refresh(&mut self) {
        if let Ok(Some(client)) = find(&self.data) {
            self.client = client;
        }
    }

    /// Asks until there is an answer, at most for some seconds. What changes something carries a
    /// key, so that asking twice is asking once.
    pub(crate) async fn ask<T>(
        &mut self,
        request: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        loop {
            let error = match request(&self.client).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let patience = match &error {
                // It is being stopped, or cannot answer now.
                ClientError::Problem(problem) if problem.code == Code::Unavailable => PATIENCE,
                ClientError::Problem(_) => return Err(error.into()),
                ClientError::Unanswered(unanswered) if unanswered.nobody_listens() => RESTART,
                ClientError::Unanswered(_) => PATIENCE,
            };
            if began.elapsed() > patience {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            self.refresh();
        }
    }
}

/// A key that no other request has.
pub(crate) fn key(given: Option<&str>) -> Result<String, Fault> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits)
        .map_err(|error| Fault::failed(format!("there is no randomness: {error}")))?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The server that is up: the one that the environment names, else this machine's.
fn find(data: &Data) -> Result<Option<Client>, Fault> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(url) = variable("BELAY_URL") {
        if !["http://", "https://", "unix:"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(Fault::usage(format!(
                "$BELAY_URL is `{url}`; it takes an address such as https://belay.example.org:7425"
            )));
        }
        let token = match variable("BELAY_TOKEN") {
            Some(token) => token,
            None => data.token()?,
        };
        return client(&url, &token).map(Some);
    }
    match data.server() {
        Some(server) => client(&server.url, &data.token()?).map(Some),
        None => Ok(None),
    }
}

/// A client that trusts what this machine trusts, and what `BELAY_CA_FILE` holds.
pub(crate) fn client(url: &str, token: &str) -> Result<Client, Fault> {
    let Some(path) = std::env::var_os("BELAY_CA_FILE").filter(|path| !path.is_empty()) else {
        return Ok(Client::new(url, token));
    };
    let path = std::path::PathBuf::from(path);
    let pem = fs::read(&path).map_err(|error| Fault::file(&path, &error))?;
    Client::trusting(url, token, &pem)
        .map_err(|error| Fault::usage(format!("{} holds no certificate: {error}", path.display())))
}

async fn start_server(data: &Data) -> Result<Client, Fault> {
    data.make()?;
    let log = data.path("server.log");
    let before = fs::metadata(&log).map_or(0, |found| found.len());
    let mut child = spawn(data, &log)?;
    let until = Instant::now() + START_LIMIT;
    // Another command may start one at the same time; then ours ends, and theirs is as good.
    let mut ours_ended: Option<Instant> = None;
    while Instant::now() < until {
        if let Some(client) = find(data)?
            && client.health().await.is_ok()
        {
            let log = log.display();
            note(&format!("belay: started a server at {} (log: {log})", client.url()));
            return Ok(client);
        }
        if ours_ended.is_none() && child.try_wait().is_ok_and(|status| status.is_some()) {
            ours_ended = Some(Instant::now());
        }
        if ours_ended.is_some_and(|at| at.elapsed() > Duration::from_secs(3)) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let said = last_line(&log, before);
    let text = match said {
        Some(said) => format!("the server did not come up: {said}"),
        None => format!("the server did not come up; see {}", log.display()),
    };
    Err(Fault::unreachable(text))
}

fn spawn(data: &Data, log: &std::path::Path) -> Result<Child, Fault> {
    let wrong = |error: std::io::Error| Fault::file(log, &error);
    let file = fs::OpenOptions::new().create(true).append(true).open(log).map_err(wrong)?;
    let program = std::env::current_exe()
        .map_err(|error| Fault::failed(format!("this program cannot be found: {error}")))?;
    Command::new(&program)
        .args(["up", "--detached", "--data-dir"])
        .arg(data.root())
        .current_dir(data.root())
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(wrong)?)
        .stderr(file)
        .spawn()
        .map_err(|error| Fault::file(&program, &error))
}

/// The last line that was written after `from`.
fn last_line(path: &std::path::Path, from: u64) -> Option<String> {
    let mut file = fs::File::open(path).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut text = Vec::new();
    file.take(64 << 10).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim_start_matches("belay: ").to_owned())
}
