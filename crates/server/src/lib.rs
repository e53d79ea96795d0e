//! What people and programs reach Belay through: REST over HTTP, and MCP.
//!
//! ```text
//!  connection ──► Host ──► token ──► route ──► rule ──► Service (control)
//!                  403     401, 429  404, 405   401, 403   400, 413, …
//! ```
//!
//! Everything that is not a success is a problem document (RFC 9457) with a stable code. There is
//! no CORS: no page of another origin gets anything, and the `Host` must be a name of ours, so that
//! a name of somebody else's that points here (DNS rebinding) gets nothing either.
//!
//! Agents in containers come in through a socket of the file system, at which nothing is open and
//! nothing but an attempt's token opens anything.
//!
//! Nothing is decided here. A request is read, bounded, and handed to a [`Service`].

mod access;
mod answer;
mod bounds;
mod control;
mod describe;
mod failures;
mod figures;
mod gate;
mod listener;
mod live;
pub mod mcp;
mod patient;
mod read;
mod routes;
mod serve;
mod service;
mod table;
mod ticket;
mod tls;
mod traced;
mod watch;

pub use access::{Access, Token};
pub use bounds::Bounds;
pub use figures::Figures;
pub use listener::{AGENT_SOCKET, Listener, make_agent_directory};
pub use routes::entries;
pub use serve::serve;
pub use service::Service;
pub use table::{Entry, Reach, Rule};
pub use tls::{Tls, TlsError};
pub use watch::Watched;

/// The largest body that is taken, in bytes.
pub const BODY_LIMIT: usize = 2 << 20;
