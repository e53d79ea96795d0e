//! The short paths, without a version, that earlier designs of the same verbs had: programs that
//! were written for them go on. They are the verbs of today, but for `run`, which begins a failed
//! task again, and for `PATCH`, which stops one.

use axum::extract::State;
use belay_api::{Accept, Act, Action, Answer, Code, Comment, Continue, Resume, Stopping, TaskView};

use super::{Answered, tasks, verbs};
use crate::answer::{Failed, json, task};
use crate::read::{Body, Caller, Id, wait};
use crate::service::Service;
use crate::table::{OPERATOR, Table};

/// How long a stop waits for its receipt, if nothing is said.
const STOP_WAIT_MS: u64 = 10_000;

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    let who = OPERATOR;
    table
        .post("/api/tasks/{id}/run", who, "Queues a task; a failed one begins again.", run::<S>)
        .answers::<TaskView>(200);
    table
        .post("/api/tasks/{id}/cancel", who, "Ends a task for good.", verbs::cancel::<S>)
        .answers::<Stopping>(200);
    table
        .post("/api/tasks/{id}/accept", who, "Takes the work.", verbs::accept::<S>)
        .body::<Accept>()
        .answers::<TaskView>(200);
    table
        .post("/api/tasks/{id}/reject", who, "Sends the work back.", verbs::reject::<S>)
        .body::<Comment>()
        .answers::<TaskView>(200);
    table
        .post("/api/tasks/{id}/answer", who, "Answers a question.", verbs::answer::<S>)
        .body::<Answer>()
        .answers::<TaskView>(200);
    table
        .post("/api/tasks/{id}/resume", who, "Goes on where it was.", verbs::resume::<S>)
        .body::<Resume>()
        .answers::<TaskView>(200);
    table
        .post("/api/tasks/{id}/continue", who, "Follows a task that is over.", verbs::follow::<S>)
        .body::<Continue>()
        .answers::<TaskView>(200);
    table
        .patch("/api/tasks/{id}", who, "Stops a task, and waits for the receipt.", act::<S>)
        .body::<Act>()
        .answers::<Stopping>(200);
    table
        .delete("/api/tasks/{id}", who, "Removes a task not under way.", tasks::delete::<S>)
        .answers_bytes(204, None);
}

async fn run<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let id = service.find(&id).await?;
    let failed = service.show(id).await?.failure.is_some();
    match failed {
        true => task(&service.retry(caller.ask, id).await?),
        false => task(&service.run(caller.ask, id).await?),
    }
}

async fn act<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(act): Body<Option<Act>>,
) -> Answered {
    let Some(Act { action: Action::Stop, wait_ms }) = act else {
        return Err(Failed::new(Code::BadRequest, "say what to do: `{\"action\": \"stop\"}`"));
    };
    let id = service.find(&id).await?;
    let waits = wait(wait_ms.unwrap_or(STOP_WAIT_MS));
    json(&service.stop(caller.ask, id, waits).await?)
}
