//! `belay up`: everything in one process.
//!
//! ```text
//!  server ──► control ──► store, blobs
//!               ▲
//!  runner ──────┘ ──► providers: process, Docker
//! ```

use std::net::{Ipv4Addr, SocketAddr};

use belay_sandbox::Report;
use belay_server::{Access, Service, Token, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Up;
use crate::compose::compose;
use crate::config::{Config, Sources};
use crate::data::{Data, ServerFile};
use crate::doctor::engine_sockets;
use crate::fault::{Exit, Fault};
use crate::process::{self, Process};
use crate::screen::{note, say};

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
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let config = Config::load(&Sources { port: up.port, ..Sources::here(None) })?;
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
    let listener = match listen(config.file.server.port).await {
        // Whoever started this one finds it by its file, whatever its port.
        Err(_) if up.detached && up.port.is_none() => listen(0).await?,
        listener => listener?,
    };
    compose(data, up, &config, listener, &token).await
}

async fn listen(port: u16) -> Result<TcpListener, Fault> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Fault::refused(format!(
            "port {port} is taken by something else; say another with --port, `port` in [server], \
             or BELAY_SERVER_PORT (0 takes any that is free)"
        )),
        _ => Fault::failed(format!("{address} cannot be listened on: {error}")),
    })
}

pub(crate) async fn serve_until_stopped<S: Service>(
    data: &Data,
    listener: TcpListener,
    service: S,
    token: &str,
) -> Result<Exit, Fault> {
    let address = listener
        .local_addr()
        .map_err(|error| Fault::failed(format!("the address cannot be told: {error}")))?;
    let own = || Fault::failed("/proc does not show this process");
    let server = ServerFile {
        process: Process::own().ok_or_else(own)?,
        url: format!("http://{address}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let wrong = |error| Fault::failed(format!("signals cannot be caught: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(wrong)?;
    data.write_server(&server)?;
    greet(data, &server);
    let stop = async {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    };
    let access = Access::new(Token::new(token), address);
    let served = serve(listener, service, access, stop).await;
    data.remove_server(&server);
    served.map_err(|error| Fault::failed(format!("the server failed: {error}")))?;
    note("belay: the server is stopped; agents that run go on until their lease is over");
    Ok(Exit::Done)
}

/// Says where it is, and what isolation there is.
fn greet(data: &Data, server: &ServerFile) {
    say(&format!("Belay is up at {}", server.url));
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
