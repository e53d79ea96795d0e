//! Whether the sessions are our own, or a pooler's that gives each transaction another one.
//!
//! In a session of one's own a statement is parsed and planned once, and a listener hears. In a
//! shared one a named statement may be somebody else's, with the same name and another meaning, and
//! what is left behind is found by others. So this is not left to a setting that can be forgotten:
//! the database is asked from which port it is being called, and unless that is the port we call
//! from, somebody stands between. Whoever translates addresses looks like a pooler, which costs
//! speed and nothing else.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whether every host that may be called is the database itself.
pub(super) async fn is_direct(config: &Config, connector: &MakeRustlsConnect) -> bool {
    if config.get_hosts().is_empty() {
        return false;
    }
    for (index, host) in config.get_hosts().iter().enumerate() {
        let Host::Tcp(name) = host else { return false };
        let ports = config.get_ports();
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5_432);
        let address = config.get_hostaddrs().get(index);
        let address = address.map_or_else(|| name.clone(), ToString::to_string);
        let patience = config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        let look = look(config, connector, name, (address, port));
        if !matches!(tokio::time::timeout(patience, look).await, Ok(Some(true))) {
            return false;
        }
    }
    true
}

/// Whether the database sees the port that we call from.
async fn look(
    config: &Config,
    connector: &MakeRustlsConnect,
    name: &str,
    address: (String, u16),
) -> Option<bool> {
    let stream = TcpStream::connect(address).await.ok()?;
    let ours = i64::from(stream.local_addr().ok()?.port());
    let mut connector = connector.clone();
    let tls = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut connector, name).ok()?;
    let (client, connection) = config.connect_raw(stream, tls).await.ok()?;
    let asked = async {
        let rows = client.query_typed("SELECT inet_client_port()::bigint", &[]).await.ok()?;
        let seen: Option<i64> = rows.first()?.try_get(0).ok()?;
        Some(seen == Some(ours))
    };
    match futures_util::future::select(Box::pin(asked), Box::pin(connection)).await {
        futures_util::future::Either::Left((direct, _)) => direct,
        futures_util::future::Either::Right(_) => None,
    }
}
