//! The attempts of a task.

use axum::extract::{Path, State};
use belay_api::{AttemptView, Code};
use belay_kernel::AttemptNumber;
use serde::Serialize;
use utoipa::ToSchema;

use super::Answered;
use crate::answer::{Failed, json};
use crate::read::Id;
use crate::service::Service;
use crate::table::{Reach, Table, VIEWER};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let family = VIEWER.attempt(Reach::Family);
    table
        .get("/api/v1/tasks/{id}/attempts", family, "Lists attempts, newest first.", list::<S>)
        .answers::<AttemptList>(200);
    table
        .get("/api/v1/tasks/{id}/attempts/{number}", family, "Shows an attempt.", show::<S>)
        .answers::<AttemptView>(200);
}

/// The attempts of a task: bounded by its effort, so they are told at once.
#[derive(Serialize, ToSchema)]
struct AttemptList {
    /// The attempts, newest first.
    attempts: Vec<AttemptView>,
}

async fn list<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    let id = service.find(&id).await?;
    json(&AttemptList { attempts: service.show(id).await?.attempt_list })
}

async fn show<S: Service>(
    State(service): State<S>,
    Path((id, number)): Path<(String, String)>,
) -> Answered {
    let id = service.find(&id).await?;
    let number = number.parse().map(AttemptNumber).ok();
    let attempts = service.show(id).await?.attempt_list;
    let found = attempts.iter().find(|attempt| Some(attempt.attempt.number) == number);
    let unknown = || Failed::new(Code::NotFound, format!("task {id} has no such attempt"));
    json(found.ok_or_else(unknown)?)
}
