//! Where connections come in: an address of the network, or a socket of the file system.
//!
//! The second is for agents whose sandbox has a network of its own. Its directory is shown there,
//! not the socket: the socket of the next server is another file, and has to be found again by
//! agents that were there before it. So nothing else lies in that directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::Path;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::gate::Peer;

/// The name of the socket for agents, in its directory.
pub const AGENT_SOCKET: &str = "belay.sock";

/// What the socket is called while it is made.
const MAKING: &str = "belay.sock.making";

/// Where connections come in.
#[derive(Debug)]
pub enum Listener {
    /// An address of the network.
    Network(TcpListener),
    /// A socket of the file system.
    Socket(UnixListener),
}

/// A connection that came in.
pub(crate) enum Stream {
    Network(TcpStream),
    Socket(UnixStream),
}

impl Listener {
    /// The socket for agents in `directory`, in place of what an earlier server left there. To be
    /// called by the one server that the directory belongs to.
    ///
    /// Any user may connect, because an agent's is not the server's; the directory lies in one that
    /// keeps others out, and nothing is open without an attempt's token.
    pub fn for_agents(directory: &Path) -> io::Result<Self> {
        make_agent_directory(directory)?;
        let making = directory.join(MAKING);
        match fs::remove_file(&making) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // A socket's path may have 108 bytes at most; a directory's own descriptor is always short.
        let place = File::open(directory)?;
        let short = format!("/proc/self/fd/{}/{MAKING}", place.as_raw_fd());
        let listener = BlockingListener::bind(short)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&making, Permissions::from_mode(0o666))?;
        // Whoever looks finds the old one, where nobody listens, or this one.
        fs::rename(&making, directory.join(AGENT_SOCKET))?;
        Ok(Self::Socket(UnixListener::from_std(listener)?))
    }

    pub(crate) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Network(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Stream::Network(stream), Peer(address.ip())))
            }
            Self::Socket(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Socket(stream), Peer(IpAddr::V4(Ipv4Addr::LOCALHOST))))
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Network(listener)
    }
}

/// Makes the directory for the socket, so that any user can look into it and none but its owner
/// can change it. It is shown in sandboxes before there is a server to listen.
pub fn make_agent_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}
