//! Control as a service: each thing that can be asked for is control's own.

use std::time::Duration;

use belay_api::port::Who;
use belay_api::{
    Accept, AgentEvent, Answer, Backup, Comment, Continue, Events, EventsTaken, Health, Heartbeat,
    HeartbeatTaken, ListTasks, NewTask, Problem, ReceiptView, Resume, Stopping, TaskPage, TaskView,
    TranscriptPiece, WhyView,
};
use belay_control::Control;
use belay_kernel::{SandboxId, TaskId};
use belay_store::{Cursor, EventFilter, Store};

use crate::service::Service;

type Key = Option<String>;

impl<S: Store> Service for Control<S> {
    async fn find(&self, id: &str) -> Result<TaskId, Problem> {
        Self::find(self, id).await
    }

    async fn create(&self, by: &str, task: NewTask, key: Key) -> Result<TaskView, Problem> {
        Self::create(self, by, task, key).await
    }

    async fn speaker(&self, token: &str) -> Result<Option<Who>, Problem> {
        Self::speaker(self, token).await
    }

    async fn voice(&self, token: &str) -> Result<Option<Who>, Problem> {
        Self::voice(self, token).await
    }

    async fn take_events(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: Vec<AgentEvent>,
        key: Key,
    ) -> Result<EventsTaken, Problem> {
        Self::take_events(self, who, sandbox, events, key).await
    }

    async fn take_heartbeat(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        beat: Heartbeat,
    ) -> Result<HeartbeatTaken, Problem> {
        Self::take_heartbeat(self, who, sandbox, beat).await
    }

    async fn add_subtask(
        &self,
        speaker: Who,
        task: NewTask,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::add_subtask(self, speaker, task, key).await
    }

    async fn list(&self, which: ListTasks) -> Result<TaskPage, Problem> {
        Self::list(self, which).await
    }

    async fn show(&self, task: TaskId) -> Result<TaskView, Problem> {
        Self::show(self, task).await
    }

    async fn why(&self, task: TaskId) -> Result<WhyView, Problem> {
        Self::why(self, task).await
    }

    async fn run(&self, by: &str, task: TaskId, key: Key) -> Result<TaskView, Problem> {
        Self::run(self, by, task, key).await
    }

    async fn stop(
        &self,
        by: &str,
        task: TaskId,
        wait: Duration,
        key: Key,
    ) -> Result<Stopping, Problem> {
        Self::stop(self, by, task, wait, key).await
    }

    async fn answer(
        &self,
        by: &str,
        task: TaskId,
        answer: Answer,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::answer(self, by, task, answer, key).await
    }

    async fn accept(
        &self,
        by: &str,
        task: TaskId,
        accept: Accept,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::accept(self, by, task, accept, key).await
    }

    async fn reject(
        &self,
        by: &str,
        task: TaskId,
        comment: Comment,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::reject(self, by, task, comment, key).await
    }

    async fn retry(&self, by: &str, task: TaskId, key: Key) -> Result<TaskView, Problem> {
        Self::retry(self, by, task, key).await
    }

    async fn resume(
        &self,
        by: &str,
        task: TaskId,
        resume: Resume,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::resume(self, by, task, resume, key).await
    }

    async fn follow(
        &self,
        by: &str,
        task: TaskId,
        message: Continue,
        key: Key,
    ) -> Result<TaskView, Problem> {
        Self::follow(self, by, task, message, key).await
    }

    async fn receipt(&self, task: TaskId) -> Result<ReceiptView, Problem> {
        Self::receipt(self, task).await
    }

    async fn delete(&self, by: &str, task: TaskId) -> Result<(), Problem> {
        Self::delete(self, by, task).await
    }

    async fn events(
        &self,
        task: Option<TaskId>,
        after: Option<String>,
        wait: Duration,
    ) -> Result<Events, Problem> {
        Self::events(self, task, after, wait).await
    }

    async fn log_ends(&self) -> Result<(Cursor, Cursor), Problem> {
        Self::log_ends(self).await
    }

    async fn read_log(
        &self,
        after: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<belay_store::Events, Problem> {
        Self::read_log(self, after, filter, limit).await
    }

    async fn await_log(&self, after: Cursor, patience: Duration) {
        Self::await_log(self, after, patience).await;
    }

    async fn transcript(
        &self,
        task: TaskId,
        attempt: Option<u32>,
        from: u64,
        wait: Duration,
    ) -> Result<TranscriptPiece, Problem> {
        Self::transcript(self, task, attempt, from, wait).await
    }

    async fn diff(&self, task: TaskId, attempt: Option<u32>) -> Result<Vec<u8>, Problem> {
        Self::diff(self, task, attempt).await
    }

    async fn health(&self) -> Result<Health, Problem> {
        Self::health(self).await
    }

    async fn backup(&self, path: String) -> Result<Backup, Problem> {
        Self::backup(self, path).await
    }
}
