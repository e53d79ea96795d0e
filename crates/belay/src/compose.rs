//! The one place where store, blobs, vault, providers, control, runner and server meet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belay_agent::Agent;
use belay_api::Chance;
use belay_control::trace::Tracer;
use belay_control::{
    BackUp, Control, Courier, FileVault, HookSettings, HttpCourier, Parts, RoleSettings, Settings,
};
use belay_kernel::RunnerId;
use belay_runner::{AnyProvider, GitWorkspace, Inside, Runner, RunnerConfig};
use belay_sandbox::{
    AGENTS, DockerConfig, DockerProvider, Installation, ProcessConfig, ProcessProvider,
    ShimProgram, Use,
};
use belay_server::{AGENT_SOCKET, make_agent_directory};
use belay_store::blob::{BlobLimits, Blobs};
use belay_store::rows::Secret;
use belay_store::{Postgres, PostgresOptions, Sqlite, Store};

use crate::cli::Up;
use crate::config::{Config, Webhook};
use crate::data::Data;
use crate::doctor::engine_sockets;
use crate::fault::{Exit, Fault};
use crate::up::{Door, serve_until_stopped};

/// No call of git takes longer than this.
const GIT_LIMIT: Duration = Duration::from_secs(600);
/// Who agents are in containers, where the tree belongs to root.
const NOBODY: (u32, u32) = (65_534, 65_534);
/// The role of tasks that name none.
const DEFAULT_ROLE: &str = "default";

/// The system's source of randomness.
#[derive(Debug)]
struct Random;

impl Chance for Random {
    fn draw(&self) -> u128 {
        let mut bytes = [0; 16];
        // The kernel's source does not fail once it is up; without it there are no ids.
        getrandom::fill(&mut bytes).expect("the system has a source of randomness");
        u128::from_le_bytes(bytes)
    }
}

/// Opens the store that was asked for, and everything on top of it, and serves.
pub(crate) async fn compose(
    data: &Data,
    up: &Up,
    config: &Config,
    door: Door,
) -> Result<Exit, Fault> {
    let parts = Composition { data, config, door };
    let wrong = |error: belay_store::OpenError| Fault::failed(error_chain(&error));
    match &up.database_url {
        Some(url) => {
            let store = Postgres::open(PostgresOptions::new(url)).await.map_err(wrong)?;
            parts.run(store, "PostgreSQL", None).await
        }
        None => {
            let store = Sqlite::open(data.root()).map_err(wrong)?;
            let backups = store.backups();
            let back_up: BackUp = Box::new(move |path: PathBuf| {
                let backups = backups.clone();
                Box::pin(async move {
                    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
                        let parent = parent.display();
                        return Err(format!(
                            "there is no directory {parent} on the server's machine; make it first"
                        ));
                    }
                    backups.write(&path).await.map_err(|error| error_chain(&error))?;
                    let bytes = std::fs::metadata(&path).map_err(|error| error.to_string())?;
                    Ok(bytes.len())
                })
            });
            parts.run(store, "SQLite", Some(back_up)).await
        }
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

struct Composition<'a> {
    data: &'a Data,
    config: &'a Config,
    door: Door,
}

impl Composition<'_> {
    async fn run<S: Store>(
        self,
        store: S,
        name: &str,
        back_up: Option<BackUp>,
    ) -> Result<Exit, Fault> {
        let (data, failed) =
            (self.data, |error: &dyn std::error::Error| Fault::failed(error_chain(error)));
        let installation =
            Installation { id: store.installation().id, epoch: store.installation().epoch };
        let chance: Arc<dyn Chance> = Arc::new(Random);
        let runner_id = runner_id(data, chance.as_ref())?;
        let blob_directory = data.path("blobs");
        let blobs = Blobs::in_directory(&blob_directory, BlobLimits::default());
        let vault = FileVault::open(data.path("vault"));
        let control = Control::open(Parts {
            store,
            blobs: blobs.await.map_err(|error| failed(&error))?,
            vault: Arc::new(vault.map_err(|error| Fault::failed(error.to_string()))?),
            chance: Arc::clone(&chance),
            settings: Settings { tracer: tracer(self.config)?, ..settings(self.config, name) },
            embedded: Some(runner_id),
            back_up,
            courier: Some(courier(self.config)?),
        })
        .await
        .map_err(|error| failed(&error))?;
        let url = self.door.url()?;
        let workspace = GitWorkspace::open(&data.path("work"), GIT_LIMIT);
        let workspace = workspace.map_err(|error| failed(&error))?;
        let providers = providers(data, installation)?;
        let containers = containers(&providers);
        let settings = runner_config(data, self.config, runner_id, url, containers);
        let runner = Runner::new(settings, control.clone(), providers, workspace, chance);
        let serve = serve_until_stopped(data, self.door, control.clone());
        tokio::select! {
            served = serve => served,
            () = control.tend() => Err(Fault::failed("control ended by itself")),
            () = runner.run(std::future::pending()) => {
                Err(Fault::failed("the runner ended by itself"))
            }
        }
    }
}

/// The runner's id, which it keeps over restarts.
fn runner_id(data: &Data, chance: &dyn Chance) -> Result<RunnerId, Fault> {
    let path = data.path("runner.id");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let bad = |_| Fault::failed(format!("{} holds no id", path.display()));
            text.trim().parse().map_err(bad)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = RunnerId::from_bits(chance.draw());
            // A server that fell in the middle of this must not leave an id that is none.
            data.write("runner.id", format!("{id}\n").as_bytes())?;
            Ok(id)
        }
        Err(error) => Err(Fault::file(&path, &error)),
    }
}

fn providers(
    data: &Data,
    installation: Installation,
) -> Result<BTreeMap<String, AnyProvider>, Fault> {
    let failed = |error: belay_sandbox::Error| Fault::failed(error_chain(&error));
    let own = std::env::current_exe();
    let path = own.map_err(|error| Fault::failed(format!("/proc/self/exe: {error}")))?;
    let shim = ShimProgram { path, leading: vec!["shim".to_owned()] };
    let process = ProcessProvider::open(ProcessConfig {
        root: data.path("sandboxes"),
        installation,
        shim: shim.clone(),
        hidden: vec![data.root().to_owned()],
        bubblewrap: Use::WherePossible,
        cgroups: Use::WherePossible,
    })
    .map_err(failed)?;
    let mut providers = BTreeMap::from([("process".to_owned(), AnyProvider::Process(process))]);
    if let Some(socket) = engine_sockets().into_iter().find(|socket| socket.exists()) {
        let agents = data.agents();
        make_agent_directory(&agents).map_err(|error| Fault::file(&agents, &error))?;
        let docker = DockerProvider::open(DockerConfig {
            root: data.path("containers"),
            installation,
            shim,
            socket,
            user: NOBODY,
            agents: Some(agents),
        })
        .map_err(failed)?;
        providers.insert("docker".to_owned(), AnyProvider::Docker(docker));
    }
    Ok(providers)
}

/// How agents in containers reach this server: at its socket, with its own program, which is there
/// as their shim.
fn containers(providers: &BTreeMap<String, AnyProvider>) -> BTreeMap<String, Inside> {
    let url = format!("unix:{AGENTS}/{AGENT_SOCKET}");
    let inside = |provider: &AnyProvider| match provider {
        AnyProvider::Docker(docker) => {
            Some(Inside { belay: docker.program().to_vec(), url: url.clone() })
        }
        AnyProvider::Process(_) => None,
    };
    let named = providers.iter().filter_map(|(name, of)| Some((name.clone(), inside(of)?)));
    named.collect()
}

fn settings(config: &Config, store: &str) -> Settings {
    let file = &config.file;
    let roles = file.roles.iter().map(|(name, role)| {
        let settings = RoleSettings {
            agent: role.agent.clone(),
            model: role.model.clone(),
            provider: role.provider.map(|provider| provider.name().to_owned()),
            image: None,
            limits: role.limits.iter().map(|(l, v)| (l.key().to_owned(), v.0)).collect(),
            environment: role.environment.clone(),
        };
        (name.as_str().to_owned(), settings)
    });
    let mut roles: BTreeMap<_, _> = roles.collect();
    let default = roles.entry(DEFAULT_ROLE.to_owned()).or_default();
    default.environment.extend(file.defaults.environment.iter().cloned());
    Settings {
        limits: config.limits(),
        caps: file.caps,
        switches: file.switches,
        roles,
        environment: std::env::vars().collect(),
        agent: file.defaults.agent.clone().unwrap_or_else(|| Agent::Claude.name().to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.to_owned(),
        webhooks: file.webhooks.iter().map(|(name, hook)| hook_settings(name, hook)).collect(),
        tracer: None,
    }
}

fn hook_settings(name: &str, hook: &Webhook) -> HookSettings {
    let variable = |name: &String| std::env::var(name).ok();
    let secret = hook.secret.clone().or_else(|| hook.secret_env.as_ref().and_then(variable));
    HookSettings {
        name: name.to_owned(),
        url: Secret(hook.url.clone()),
        shape: hook.shape,
        kinds: hook.kinds.clone(),
        secret: secret.map(Secret),
    }
}

/// Who sends traces, if they are to be sent anywhere.
fn tracer(config: &Config) -> Result<Option<Tracer>, Fault> {
    let Some(url) = &config.file.watch.traces else { return Ok(None) };
    let tracer = Tracer::new(url, env!("CARGO_PKG_VERSION"), || Random.draw());
    tracer.map(Some).map_err(|error| Fault::usage(format!("watch.traces: {}", error.0)))
}

/// Who carries letters to webhooks: nowhere but to public addresses, and to what is allowed.
fn courier(config: &Config) -> Result<Arc<dyn Courier>, Fault> {
    let allowed = config.file.watch.webhook_allow.iter().filter_map(|text| text.parse().ok());
    let courier = HttpCourier::new(allowed.collect());
    let courier = courier.map_err(|error| Fault::failed(error_chain(&error)))?;
    Ok(Arc::new(courier))
}

fn runner_config(
    data: &Data,
    config: &Config,
    runner: RunnerId,
    url: String,
    containers: BTreeMap<String, Inside>,
) -> RunnerConfig {
    let file = &config.file;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = u32::try_from(cores).unwrap_or(1);
    let mut workers: BTreeMap<String, u32> = file
        .roles
        .iter()
        .map(|(name, role)| (name.as_str().to_owned(), role.workers.unwrap_or(1)))
        .collect();
    let default = file.roles.iter().find(|(name, _)| name.as_str() == DEFAULT_ROLE);
    let default = default.and_then(|(_, role)| role.workers).unwrap_or(cores);
    workers.insert(DEFAULT_ROLE.to_owned(), default);
    RunnerConfig {
        runner,
        name: "embedded".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        root: data.path("runner"),
        // Zero workers means none: what is queued for such a role waits.
        workers: workers.into_iter().filter(|(_, count)| *count > 0).collect(),
        url,
        // Found once: after an upgrade in place, the name of the old program leads nowhere.
        belay: std::env::current_exe().ok(),
        containers,
        path: std::env::var("PATH").unwrap_or_default(),
        hidden: vec![data.root().to_owned()],
        sandbox: belay_sandbox::Limits::default(),
        limits: config.limits(),
        publish_without_isolation: false,
    }
}
