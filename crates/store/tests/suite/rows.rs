//! The rows whose shape the whole suite shares.

use belay_kernel::{SessionId, Timestamp};
use belay_store::rows::{RoleRow, SessionRow};

/// A session that was just made.
pub(crate) fn session_row(id: SessionId) -> SessionRow {
    SessionRow {
        id,
        session: belay_kernel::session::Session::new(),
        runner: None,
        owner: None,
        conversation: None,
        keep_alive: false,
        created_at: Timestamp::from_millis(1_500),
        due_at: None,
    }
}

/// A role that runs.
pub(crate) fn role_row(name: &str) -> RoleRow {
    RoleRow {
        role: belay_kernel::role::Role {
            name: name.parse().unwrap(),
            desired: belay_kernel::role::Desired::Running,
            workers: 1,
        },
        breaker: belay_kernel::breaker::Breaker::default(),
        generation: belay_kernel::restart::Generation(0),
        agent: None,
        model: None,
        provider: None,
        limits: Default::default(),
        environment: Default::default(),
        due_at: None,
    }
}
