//! Where the server listens, and what it is encrypted with: anything but loopback needs a
//! certificate, or a person who says that it does not.

use std::net::IpAddr;
use std::path::PathBuf;

use belay_server::Tls;

use crate::cli::Up;
use crate::config::Config;
use crate::fault::Fault;

/// How the server is reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// The address that it listens at.
    pub(crate) listen: IpAddr,
    /// Further names by which it is reached.
    pub(crate) names: Vec<String>,
    /// What connections are encrypted with.
    pub(crate) tls: Option<Tls>,
}

impl Reach {
    /// What flags say, else what the settings say.
    pub(crate) fn new(up: &Up, config: &Config) -> Result<Self, Fault> {
        let server = &config.file.server;
        let listen = up.listen.unwrap_or(server.listen);
        let files = match (&up.tls_cert, &up.tls_key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => match (&server.tls_cert, &server.tls_key) {
                (Some(cert), Some(key)) => Some((cert, key)),
                (None, None) => None,
                _ => return Err(Fault::usage("tls_cert and tls_key are said together")),
            },
        };
        let tls = files.map(|(cert, key)| read(cert, key)).transpose()?;
        if !listen.is_loopback() && tls.is_none() && !up.insecure {
            return Err(Fault::usage(format!(
                "{listen} is reached from other machines, and nothing would be encrypted; say \
                 --tls-cert and --tls-key, or --insecure if something before it encrypts"
            )));
        }
        Ok(Self { listen, names: server.names.clone(), tls })
    }
}

fn read(cert: &PathBuf, key: &PathBuf) -> Result<Tls, Fault> {
    let text = |path: &PathBuf| std::fs::read(path).map_err(|error| Fault::file(path, &error));
    Tls::from_pem(&text(cert)?, &text(key)?).map_err(|error| {
        let files = format!("{} and {}", cert.display(), key.display());
        let why = std::error::Error::source(&error).map_or(String::new(), |why| format!(": {why}"));
        Fault::usage(format!("{files}: {error}{why}"))
    })
}
