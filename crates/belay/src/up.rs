//! `belay up`: everything in one process.
//!
//! ```text
//!  server ──► control ──► store, blobs
//!               ▲
//!  runner ──────┘ ──► providers: process, Docker
//! ```

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_sandbox::Report;
use belay_server::{Access, Figures, Listener, Service, Token, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::Up;
use crate::compose::compose;
use crate::config::{Config, Sources};
use crate::data::{Data, ServerFile};
use crate::doctor::engine_sockets;
use crate::fault::{Exit, Fault};
use crate::log::{self, Mask};
use crate::process::{self, Process};
use crate::screen::{note, say};
use crate::tls::Reach;

/// How long a port may be held by what is left of a server that was killed.
const PORT_PATIENCE: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
pub(crate) async fn up(data: &Data, up: &Up) -> Result<Exit, Fault> {
    if up.detached {
        // Fails only where this process leads a group already, and then it has one of its own.
        let _ = rustix::process::setsid();
    }
    if up.with_parent {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(|error| Fault::failed(format!("it cannot end with its parent: {error}")))?;
    }
    process::raise_file_limit();
    let config = Config::load(&Sources { port: up.port, ..Sources::here(None) })?;
    let mask = mask(&config);
    let watch = &config.file.watch;
    log::begin(up.log_format.unwrap_or(watch.log), watch.log_level, &mask);
    data.make()?;
    if let Some(server) = data.server() {
        return Err(Fault::refused(format!(
            "a server is up already for {}: {} (process {}); `belay down` stops it",
            data.root().display(),
            server.url,
            server.process.pid
        )));
    }
    let token = data.make_token()?;
    mask.hide(&token);
    let reach = Reach::new(up, &config)?;
    let listener = match listen(reach.listen, config.file.server.port).await {
        // Whoever started this one finds it by its file, whatever its port.
        Err(_) if up.detached && up.port.is_none() => listen(reach.listen, 0).await?,
        listener => listener?,
    };
    let local = match reach.tls {
        Some(_) => Some(listen(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).await?),
        None => None,
    };
    let door = Door { listener, local, reach, token };
    compose(data, up, &config, door).await
}

/// What must not be in the log: secrets of webhooks, and variables that look like credentials.
fn mask(config: &Config) -> Mask {
    let mask = Mask::default();
    for hook in config.file.webhooks.values() {
        mask.hide(&hook.url);
        hook.secret.iter().for_each(|secret| mask.hide(secret));
    }
    let parts = ["KEY", "TOKEN", "SECRET", "PASSWORD", "DATABASE_URL"];
    for (name, value) in std::env::vars() {
        let upper = name.to_ascii_uppercase();
        if parts.iter().any(|part| upper.contains(part)) {
            mask.hide(&value);
        }
    }
    mask
}

/// Where requests come in.
pub(crate) struct Door {
    listener: TcpListener,
    /// Where programs of this machine come in, if the other one is encrypted: a certificate is for
    /// the names that others use.
    local: Option<TcpListener>,
    reach: Reach,
    token: String,
}

impl Door {
    /// Where programs of this machine find the server. One that listens at every address is found
    /// at the loopback one.
    pub(crate) fn url(&self) -> Result<String, Fault> {
        let address = address(self.local.as_ref().unwrap_or(&self.listener))?;
        let host = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        Ok(format!("http://{}", SocketAddr::new(host, address.port())))
    }

    /// Serves here and at the socket for agents until `stop` says so.
    async fn serve<S: Service>(
        self,
        agents: Listener,
        service: S,
        stop: watch::Receiver<bool>,
    ) -> Result<(), Fault> {
        let failed = |error| Fault::failed(format!("the server failed: {error}"));
        // A sender that is gone says stop, too.
        let stopped = || {
            let mut stop = stop.clone();
            async move { drop(stop.wait_for(|stop| *stop).await) }
        };
        let figures = Arc::new(Figures::new::<S>());
        let access = |listener| {
            let access = Access::new(Token::new(&self.token), address(listener)?);
            Ok::<_, Fault>(access.counted_in(&figures))
        };
        let agents_access = Access::for_agents().counted_in(&figures);
        let local_access = self.local.as_ref().map(access).transpose()?;
        let mut access = access(&self.listener)?;
        for name in &self.reach.names {
            access = access.known_as(name);
        }
        if let Some(tls) = self.reach.tls {
            access = access.encrypted(tls);
        }
        let local = async {
            let Some((listener, access)) = self.local.zip(local_access) else { return Ok(()) };
            serve(listener, service.clone(), access, stopped()).await.map_err(failed)
        };
        let agents = serve(agents, service.clone(), agents_access, stopped());
        let served = serve(self.listener, service.clone(), access, stopped());
        let (served, local, agents) = tokio::join!(served, local, agents);
        served.map_err(failed).and(local).and(agents.map_err(failed))
    }
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Fault> {
    let told = listener.local_addr();
    told.map_err(|error| Fault::failed(format!("the address cannot be told: {error}")))
}

async fn listen(ip: IpAddr, port: u16) -> Result<TcpListener, Fault> {
    let address = SocketAddr::from((ip, port));
    let until = Instant::now() + PORT_PATIENCE;
    let bound = loop {
        match TcpListener::bind(address).await {
            // A child of a server that was killed may hold its socket until it is executed.
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(PORT_PATIENCE / 20).await;
            }
            bound => break bound,
        }
    };
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Fault::refused(format!(
            "port {port} is taken by something else; say another with --port, `port` in [server], \
             or BELAY_SERVER_PORT (0 takes any that is free)"
        )),
        _ => Fault::failed(format!("{address} cannot be listened on: {error}")),
    })
}

pub(crate) async fn serve_until_stopped<S: Service>(
    data: &Data,
    door: Door,
    service: S,
) -> Result<Exit, Fault> {
    let own = || Fault::failed("/proc does not show this process");
    let server = ServerFile {
        process: Process::own().ok_or_else(own)?,
        url: door.url()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let wrong = |error| Fault::failed(format!("signals cannot be caught: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(wrong)?;
    // Not before the store is open, which is this server's alone then: so is the socket.
    let agents = Listener::for_agents(&data.agents());
    let agents = agents.map_err(|error| Fault::file(&data.agents(), &error))?;
    data.write_server(&server)?;
    let public = door.reach.tls.is_some().then(|| address(&door.listener)).transpose()?;
    greet(data, &server, public);
    let (stop, stopped) = watch::channel(false);
    let told = async {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        // Whoever serves no more does not have to be told.
        let _ = stop.send(true);
        std::future::pending::<()>().await;
    };
    let served = tokio::select! {
        served = door.serve(agents, service, stopped) => served,
        () = told => Ok(()),
    };
    data.remove_server(&server);
    served?;
    note("belay: the server is stopped; agents that run go on until their lease is over");
    Ok(Exit::Done)
}

/// Says where it is, and what isolation there is.
fn greet(data: &Data, server: &ServerFile, public: Option<SocketAddr>) {
    say(&format!("Belay is up at {}", server.url));
    if let Some(address) = public {
        say(&format!("others      https://{address}"));
    }
    say(&format!("data        {}", data.root().display()));
    let report = Report::examine(&engine_sockets());
    for ability in ["isolate", "kill", "containers"] {
        let Some(finding) = report.findings.iter().find(|found| found.ability == ability) else {
            continue;
        };
        let cost = finding.cost.as_deref().map_or(String::new(), |cost| format!(" ({cost})"));
        say(&format!("{ability:<12}{}{cost}", finding.found));
    }
    say("Ctrl-C stops the server and leaves agents running; `belay doctor` says more");
}
