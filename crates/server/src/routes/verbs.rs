//! What a person does with a task: each verb is a route of its own.

use axum::extract::State;
use belay_api::{Accept, Answer, Comment, Continue, Resume, Stop, Stopping, TaskView};

use super::Answered;
use crate::answer::{json, task};
use crate::read::{Body, Caller, Id, wait};
use crate::service::Service;
use crate::table::{OPERATOR, Table};

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .post("/api/v1/tasks/{id}/run", OPERATOR, "Queues a task that waits for it.", run::<S>)
        .answers::<TaskView>(200);
    table
        .post(
            "/api/v1/tasks/{id}/stop",
            OPERATOR,
            "Ends a task for good, and waits for the receipt.",
            stop::<S>,
        )
        .body::<Stop>()
        .answers::<Stopping>(200);
    table
        .post(
            "/api/v1/tasks/{id}/cancel",
            OPERATOR,
            "Ends a task for good, and does not wait.",
            cancel::<S>,
        )
        .answers::<Stopping>(200);
    table
        .post("/api/v1/tasks/{id}/answer", OPERATOR, "Answers a question.", answer::<S>)
        .body::<Answer>()
        .answers::<TaskView>(200);
    table
        .post("/api/v1/tasks/{id}/accept", OPERATOR, "Takes the work.", accept::<S>)
        .body::<Accept>()
        .answers::<TaskView>(200);
    table
        .post("/api/v1/tasks/{id}/reject", OPERATOR, "Sends the work back.", reject::<S>)
        .body::<Comment>()
        .answers::<TaskView>(200);
    table
        .post("/api/v1/tasks/{id}/retry", OPERATOR, "Begins again, from the base.", retry::<S>)
        .answers::<TaskView>(200);
    table
        .post(
            "/api/v1/tasks/{id}/resume",
            OPERATOR,
            "Goes on where it was; a task that is over is followed by a new one.",
            resume::<S>,
        )
        .body::<Resume>()
        .answers::<TaskView>(200);
    table
        .post(
            "/api/v1/tasks/{id}/continue",
            OPERATOR,
            "Follows a task that is over with a new one in the same session.",
            follow::<S>,
        )
        .body::<Continue>()
        .answers::<TaskView>(200);
}

async fn run<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let id = service.find(&id).await?;
    task(&service.run(caller.ask, id).await?)
}

async fn stop<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(stop): Body<Stop>,
) -> Answered {
    let id = service.find(&id).await?;
    json(&service.stop(caller.ask, id, wait(stop.wait_ms)).await?)
}

pub(super) async fn cancel<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
) -> Answered {
    let id = service.find(&id).await?;
    json(&service.stop(caller.ask, id, wait(0)).await?)
}

pub(super) async fn answer<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(answer): Body<Answer>,
) -> Answered {
    let id = service.find(&id).await?;
    task(&service.answer(caller.ask, id, answer).await?)
}

pub(super) async fn accept<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(accept): Body<Accept>,
) -> Answered {
    let id = service.find(&id).await?;
    task(&service.accept(caller.ask, id, accept).await?)
}

pub(super) async fn reject<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(comment): Body<Comment>,
) -> Answered {
    let id = service.find(&id).await?;
    task(&service.reject(caller.ask, id, comment).await?)
}

async fn retry<S: Service>(State(service): State<S>, Id(id): Id, caller: Caller) -> Answered {
    let id = service.find(&id).await?;
    task(&service.retry(caller.ask, id).await?)
}

pub(super) async fn resume<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(resume): Body<Resume>,
) -> Answered {
    let id = service.find(&id).await?;
    task(&service.resume(caller.ask, id, resume).await?)
}

pub(super) async fn follow<S: Service>(
    State(service): State<S>,
    Id(id): Id,
    caller: Caller,
    Body(message): Body<Continue>,
) -> Answered {
    let id = service.find(&id).await?;
    task(&service.follow(caller.ask, id, message).await?)
}
