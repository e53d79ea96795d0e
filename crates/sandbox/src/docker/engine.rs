//! The Engine API, as far as it is needed, with its answers as our own types.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use belay_kernel::{AttemptNumber, Epoch, SandboxId, Span, Timestamp};
use bollard::Docker;
use bollard::errors::Error as ApiError;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CommitContainerOptions, CreateContainerOptions, KillContainerOptions, RemoveContainerOptions,
    RemoveImageOptions,
};

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::error::{Error, Refusal, Result};
use crate::provider::{Installation, Listed, Phase};

/// The labels by which a sweep finds what is ours.
pub(super) const INSTALLATION: &str = "belay.installation";
pub(super) const INSTALLATION_EPOCH: &str = "belay.installation-epoch";
pub(super) const SANDBOX: &str = "belay.sandbox";
pub(super) const SESSION: &str = "belay.session";
pub(super) const TASK: &str = "belay.task";
pub(super) const ATTEMPT: &str = "belay.attempt";
pub(super) const CREATED: &str = "belay.created";

/// Where engines let programs be searched if an image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// No single request takes longer, except those that follow something.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// A connection to an engine.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) api: Docker,
    address: String,
}

/// A container as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) id: String,
    pub(super) phase: Phase,
    /// Its first process, as the engine's machine sees it.
    pub(super) pid: Option<u32>,
    pub(super) out_of_memory: bool,
}

impl Engine {
    pub(super) fn new(socket: &Path) -> Result<Self> {
        let address = socket.display().to_string();
        // The oldest version that has everything used here; engines speak old versions for long.
        let version = bollard::ClientVersion { major_version: 1, minor_version: 41 };
        let api = Docker::connect_with_unix(&address, REQUEST_LIMIT.as_secs(), &version);
        match api {
            Ok(api) => Ok(Self { api, address }),
            Err(error) => Err(Error::EngineDown { address, source: Box::new(error) }),
        }
    }

    /// Sorts an error: an answer of the engine, or none at all.
    pub(super) fn failed(&self, operation: &'static str) -> impl FnOnce(ApiError) -> Error {
        let address = self.address.clone();
        move |error| match error {
            ApiError::DockerResponseServerError { .. } | ApiError::JsonDataError { .. } => {
                Error::Engine { operation, source: Box::new(error) }
            }
            other => Error::EngineDown { address, source: Box::new(other) },
        }
    }

    /// The status and the body of the engine's answer.
    async fn get(&self, path: &str, operation: &'static str) -> Result<(u16, Vec<u8>)> {
        match tokio::time::timeout(REQUEST_LIMIT, get(&self.address, path)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let address = self.address.clone();
                Err(Error::EngineDown { address, source: Box::new(error) })
            }
            Err(_) => {
                let after = Span::from_secs(REQUEST_LIMIT.as_secs());
                Err(Error::TimedOut { operation, after })
            }
        }
    }

    /// The container, if there is one. Asked for by hand: engines have more words for a state than
    /// the client library knows (Podman says `stopped`), and one unknown word must not hide the
    /// rest.
    pub(super) async fn state(&self, name: &str) -> Result<Option<State>> {
        let operation = "inspect the container";
        let answer = self.get(&format!("containers/{name}/json"), operation).await?;
        match answer {
            (404 | 410, _) => Ok(None),
            (200, body) => match serde_json::from_slice::<Inspected>(&body) {
                Ok(found) => Ok(Some(found.into())),
                Err(error) => Err(Error::Engine { operation, source: Box::new(error) }),
            },
            (code, body) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                Err(Error::Engine { operation, source: format!("{code}: {text}").into() })
            }
        }
    }

    /// Makes a container; one with this name that is there already is fine.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<()> {
        let image = body.image.clone().unwrap_or_default();
        let options = CreateContainerOptions { name: Some(name.into()), ..Default::default() };
        match self.api.create_container(Some(options), body).await {
            Ok(_) => Ok(()),
            Err(error) if status(&error) == Some(409) => Ok(()),
            Err(error) if status(&error) == Some(404) => Err(missing(&image).into()),
            Err(error) => Err(self.failed("create the container")(error)),
        }
    }

    /// Where programs are searched in a container of this image. Refuses one that is not there.
    pub(super) async fn search_path(&self, image: &str) -> Result<String> {
        match self.api.inspect_image(image).await {
            Ok(found) => {
                let variables = found.config.and_then(|config| config.env).unwrap_or_default();
                let path = variables.iter().find_map(|variable| variable.strip_prefix("PATH="));
                Ok(path.unwrap_or(USUAL_PATH).to_owned())
            }
            Err(error) if status(&error) == Some(404) => Err(missing(image).into()),
            Err(error) => Err(self.failed("inspect the image")(error)),
        }
    }

    pub(super) async fn has_image(&self, image: &str) -> Result<bool> {
        match self.search_path(image).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn start(&self, name: &str, sandbox: SandboxId) -> Result<()> {
        match self.api.start_container(name, None).await {
            Ok(()) => Ok(()),
            Err(error) if status(&error) == Some(304) => Ok(()),
            Err(error) if status(&error) == Some(404) => Err(Refusal::Ended { sandbox }.into()),
            Err(error) => Err(self.failed("start the container")(error)),
        }
    }

    /// Kills PID 1, and with it everything. Gone, or not running, is what was wanted.
    pub(super) async fn kill(&self, name: &str) -> Result<()> {
        let options = KillContainerOptions { signal: "KILL".into() };
        match self.api.kill_container(name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if matches!(status(&error), Some(404 | 409 | 410)) => Ok(()),
            Err(error) => Err(self.failed("kill the container")(error)),
        }
    }

    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        match self.api.remove_container(name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if matches!(status(&error), Some(404 | 409 | 410)) => Ok(()),
            Err(error) => Err(self.failed("remove the container")(error)),
        }
    }

    pub(super) async fn pause(&self, name: &str, sandbox: SandboxId) -> Result<()> {
        let done = self.api.pause_container(name).await;
        self.paused_as(name, sandbox, Phase::Paused, done).await
    }

    pub(super) async fn unpause(&self, name: &str, sandbox: SandboxId) -> Result<()> {
        let done = self.api.unpause_container(name).await;
        self.paused_as(name, sandbox, Phase::Running, done).await
    }

    /// A pause or unpause that found it done is done; one that found it over says so.
    async fn paused_as(
        &self,
        name: &str,
        sandbox: SandboxId,
        wanted: Phase,
        done: std::result::Result<(), ApiError>,
    ) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        match self.state(name).await? {
            Some(state) if state.phase == wanted => Ok(()),
            Some(State { phase: Phase::Prepared, .. }) => {
                Err(Refusal::NotStarted { sandbox }.into())
            }
            None | Some(State { phase: Phase::Ended, .. }) => {
                Err(Refusal::Ended { sandbox }.into())
            }
            Some(_) => Err(self.failed("pause or resume the container")(error)),
        }
    }

    /// Keeps a container's own layer as an image.
    pub(super) async fn commit(&self, name: &str, repository: &str, tag: &str) -> Result<()> {
        let options = CommitContainerOptions {
            container: Some(name.into()),
            repo: Some(repository.into()),
            tag: Some(tag.into()),
            pause: true,
            ..Default::default()
        };
        let config = bollard::models::ContainerConfig::default();
        self.api.commit_container(options, config).await.map_err(self.failed("commit"))?;
        Ok(())
    }

    pub(super) async fn remove_image(&self, image: &str) -> Result<()> {
        let options = RemoveImageOptions { force: true, ..Default::default() };
        match self.api.remove_image(image, Some(options), None).await {
            Ok(_) => Ok(()),
            Err(error) if status(&error) == Some(404) => Ok(()),
            Err(error) => Err(self.failed("remove the image")(error)),
        }
    }

    /// Everything with the installation's label.
    pub(super) async fn list(&self, installation: Installation) -> Result<Vec<Listed>> {
        let operation = "list containers";
        // Letters, digits and these few signs are all there is in the filter.
        let filter = format!(r#"{{"label":["{INSTALLATION}={}"]}}"#, installation.id);
        let filter: String = filter.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("containers/json?all=1&filters={filter}");
        let (code, body) = self.get(&path, operation).await?;
        if code != 200 {
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(Error::Engine { operation, source: format!("{code}: {text}").into() });
        }
        let found: Vec<Summary> = serde_json::from_slice(&body)
            .map_err(|error| Error::Engine { operation, source: Box::new(error) })?;
        let mut listed = Vec::new();
        for container in found {
            if let Some(entry) = from_labels(&container.labels) {
                listed.push(Listed { phase: phase_of(&container.state), ..entry });
            }
        }
        listed.sort_by_key(|listed| listed.sandbox);
        Ok(listed)
    }
}

/// What is read of the engine's answer about a container.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    state: InspectedState,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct InspectedState {
    status: String,
    running: bool,
    paused: bool,
    pid: i64,
    #[serde(rename = "OOMKilled")]
    oom_killed: bool,
    finished_at: String,
}

impl From<Inspected> for State {
    fn from(found: Inspected) -> Self {
        let state = found.state;
        let pid = u32::try_from(state.pid).ok().filter(|&pid| pid > 1);
        let phase = match state.status.as_str() {
            _ if state.paused => Phase::Paused,
            "paused" => Phase::Paused,
            _ if state.running => Phase::Running,
            "running" | "restarting" | "stopping" => Phase::Running,
            _ if pid.is_none() && is_never(&state.finished_at) => Phase::Prepared,
            _ => Phase::Ended,
        };
        Self { id: found.id, phase, pid, out_of_memory: state.oom_killed }
    }
}

/// What is read of the engine's list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Summary {
    state: String,
    #[serde(default)]
    labels: HashMap<String, String>,
}

/// How far a container has come, by the engine's word for it; Docker and Podman have several.
fn phase_of(word: &str) -> Phase {
    match word {
        "created" | "configured" | "initialized" => Phase::Prepared,
        "running" | "restarting" | "stopping" => Phase::Running,
        "paused" => Phase::Paused,
        _ => Phase::Ended,
    }
}

/// Asks the engine something: the status and the body of its answer.
async fn get(socket: &str, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("GET /v1.41/{path} HTTP/1.0\r\nHost: engine\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let unclear = || std::io::Error::other("the answer is not HTTP");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(unclear)?;
    let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    let status = status.and_then(|digits| digits.parse().ok()).ok_or_else(unclear)?;
    Ok((status, answer.split_off(end + 4)))
}

/// The time that engines write for “never”.
fn is_never(time: &str) -> bool {
    time.starts_with("0001-") || time.is_empty()
}

fn missing(image: &str) -> Refusal {
    let command = format!("docker pull {image}");
    Refusal::ImageMissing { image: image.into(), command }
}

pub(super) const fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn from_labels(labels: &HashMap<String, String>) -> Option<Listed> {
    let label = |name: &str| labels.get(name);
    Some(Listed {
        sandbox: label(SANDBOX)?.parse().ok()?,
        session: label(SESSION)?.parse().ok()?,
        task: label(TASK)?.parse().ok()?,
        attempt: AttemptNumber(label(ATTEMPT)?.parse().ok()?),
        epoch: Epoch::default(),
        installation_epoch: label(INSTALLATION_EPOCH)?.parse().ok()?,
        created: Timestamp::from_millis(label(CREATED)?.parse().ok()?),
        phase: Phase::Prepared,
    })
}
