/// A session that was just made.
fn session_row(id: SessionId) -> SessionRow {
    SessionRow {
        id,
        epoch: belay_kernel::Epoch(1),
        runner: None,
        owner: None,
        conversation: None,
        keep_alive: false,
        created_at: Timestamp::from_millis(1_500),
        due_at: None,
    }
}

/// A role that runs.
fn role_row(name: &str) -> RoleRow {
    RoleRow { name: name.into(), workers: 1 }
}
