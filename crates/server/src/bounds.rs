//! How much the server takes, in number and in time. What is too large is the same everywhere.

use std::time::Duration;

/// What a server takes of its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How many connections are open at a time, streams apart; further ones wait to be accepted.
    pub connections: usize,
    /// How long a client may take to send the head of a request.
    pub head: Duration,
    /// How long a request may take, with everything that it waits for.
    pub request: Duration,
}

impl Bounds {
    /// What a server takes if nothing else is said.
    pub const USUAL: Self = Self {
        connections: 1_024,
        head: Duration::from_secs(10),
        request: Duration::from_secs(110),
    };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::USUAL
    }
}
