//! Sandboxes, and what their evidence means.

use axum::extract::State;
use belay_api::{Code, ListSandboxes, SandboxPage, SandboxView, VerdictView};
use belay_kernel::SandboxId;

use super::Answered;
use crate::answer::{Failed, json};
use crate::read::{Asked, Id};
use crate::service::Service;
use crate::table::{Table, VIEWER};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .get("/api/v1/sandboxes", VIEWER, "Lists sandboxes, newest first.", list::<S>)
        .query::<ListSandboxes>()
        .answers::<SandboxPage>(200);
    table
        .get("/api/v1/sandboxes/{id}", VIEWER, "Shows a sandbox.", show::<S>)
        .answers::<SandboxView>(200);
    table
        .get("/api/v1/sandboxes/{id}/verdict", VIEWER, "What its evidence means.", verdict::<S>)
        .answers::<VerdictView>(200);
}

async fn list<S: Service>(
    State(service): State<S>,
    Asked(which): Asked<ListSandboxes>,
) -> Answered {
    json(&service.sandboxes(which).await?)
}

async fn show<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    json(&service.sandbox(named(&id)?).await?)
}

async fn verdict<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    json(&service.verdict(named(&id)?).await?)
}

/// The sandbox that a path names, in full.
fn named(id: &str) -> Result<SandboxId, Failed> {
    id.parse().map_err(|_| Failed::new(Code::NotFound, "there is no such sandbox"))
}
