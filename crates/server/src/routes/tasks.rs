//! Tasks: made, listed, shown, explained, removed.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use belay_api::{ListTasks, NewTask, TaskPage, TaskView, WhyView};

use super::Answered;
use crate::answer::{json, task};
use crate::read::{Asked, Body, Caller, Id};
use crate::service::Service;
use crate::table::{OPERATOR, Reach, Table, VIEWER};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .get("/api/v1/tasks", VIEWER, "Lists tasks, newest first.", list::<S>)
        .query::<ListTasks>()
        .answers::<TaskPage>(200);
    // What an agent makes is a subtask of its own task.
    let maker = OPERATOR.attempt(Reach::Handled);
    table
        .post("/api/v1/tasks", maker, "Makes a task.", create::<S>)
        .body::<NewTask>()
        .needs_either("prompt", "command")
        .answers::<TaskView>(201);
    let family = VIEWER.attempt(Reach::Family);
    table.get("/api/v1/tasks/{id}", family, "Shows a task.", show::<S>).answers::<TaskView>(200);
    table
        .get("/api/v1/tasks/{id}/why", family, "Explains where a task is, and why.", why::<S>)
        .answers::<WhyView>(200);
    table
        .delete(
            "/api/v1/tasks/{id}",
            OPERATOR,
            "Removes a task that is not under way.",
            delete::<S>,
        )
        .answers_bytes(204, None);
}

async fn list<S: Service>(State(service): State<S>, Asked(which): Asked<ListTasks>) -> Answered {
    json(&service.list(which).await?)
}

async fn create<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(new): Body<NewTask>,
) -> Answered {
    let made = match caller.principal.who() {
        Some(who) => service.add_subtask(who, new, caller.ask.key).await?,
        None => service.create(caller.ask, new).await?,
    };
    let mut response = task(&made)?;
    *response.status_mut() = StatusCode::CREATED;
    let location = format!("/api/v1/tasks/{}", made.summary.id);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn show<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    // Whether a whole id is a task's is found out by showing it.
    let id = match id.parse() {
        Ok(id) => id,
        Err(_) => service.find(&id).await?,
    };
    task(&service.show(id).await?)
}

async fn why<S: Service>(State(service): State<S>, Id(id): Id) -> Answered {
    let id = service.find(&id).await?;
    json(&service.why(id).await?)
}

pub(super) async fn delete<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
) -> Answered {
    service.delete(caller.ask, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
