//! The tools that are offered over MCP: to people's assistants, and to the agents themselves.
//!
//! ```text
//!  assistant, agent ──stdio──► `belay mcp` ─┐
//!                                           ├─► Tools ─► Backend: a client, or the service itself
//!                   ──HTTP /mcp──► server ──┘
//! ```
//!
//! The tools are written once, against [`Backend`]. Which of them are offered follows from the
//! token: a person's for tasks and their verbs, an attempt's for the agent's own. Nothing is kept
//! between two calls, so that a client may speak to one server today and to its successor tomorrow.
//!
//! Rejected: MCP sessions in the server's memory. They would be forgotten with every restart, and
//! with them the calls that wait for a person.

mod agents;
mod backend;
mod call;
mod http;
mod inputs;
mod people;
mod tools;

pub use backend::Backend;
pub(crate) use http::routes;
pub use tools::{Caller, Host, Offer, Tools};
