//! What the server asks of control: one method for each thing that a person or program can do.

use std::future::Future;
use std::time::Duration;

use belay_api::port::Who;
use belay_api::{
    Accept, AgentEvent, Answer, Backup, Comment, Continue, Events, EventsTaken, Health, Heartbeat,
    HeartbeatTaken, ListTasks, NewTask, Problem, ReceiptView, Resume, Stopping, TaskPage, TaskView,
    TranscriptPiece, WhyView,
};
use belay_kernel::{SandboxId, TaskId};
use belay_store::{Cursor, EventFilter};

/// What is answered later.
type Later<T> = Result<T, Problem>;

/// What can be asked for. `by` is the principal that asks; `key` makes a repeated request the same
/// request.
pub trait Service: Clone + Send + Sync + 'static {
    /// The task with this id, which may be shortened to what is unique.
    fn find(&self, id: &str) -> impl Future<Output = Later<TaskId>> + Send;

    /// Makes a task.
    fn create(
        &self,
        by: &str,
        task: NewTask,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// The attempt whose token this is, as long as it may act.
    fn speaker(&self, token: &str) -> impl Future<Output = Later<Option<Who>>> + Send;

    /// The attempt whose token this is, whatever became of it.
    fn voice(&self, token: &str) -> impl Future<Output = Later<Option<Who>>> + Send;

    /// Takes events of the agent in a sandbox, its own unless one is named: all of them or none.
    fn take_events(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: Vec<AgentEvent>,
        key: Option<String>,
    ) -> impl Future<Output = Later<EventsTaken>> + Send;

    /// Takes a beat of the agent in a sandbox, its own unless one is named.
    fn take_heartbeat(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        beat: Heartbeat,
    ) -> impl Future<Output = Later<HeartbeatTaken>> + Send;

    /// Makes a subtask for the agent that speaks.
    fn add_subtask(
        &self,
        speaker: Who,
        task: NewTask,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Lists tasks.
    fn list(&self, which: ListTasks) -> impl Future<Output = Later<TaskPage>> + Send;

    /// Shows a task.
    fn show(&self, task: TaskId) -> impl Future<Output = Later<TaskView>> + Send;

    /// Explains a task.
    fn why(&self, task: TaskId) -> impl Future<Output = Later<WhyView>> + Send;

    /// Queues a task that waits for it.
    fn run(
        &self,
        by: &str,
        task: TaskId,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Stops a task, and waits for the receipt at most so long; a cancel does not wait.
    fn stop(
        &self,
        by: &str,
        task: TaskId,
        wait: Duration,
        key: Option<String>,
    ) -> impl Future<Output = Later<Stopping>> + Send;

    /// Answers a question.
    fn answer(
        &self,
        by: &str,
        task: TaskId,
        answer: Answer,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Takes the work.
    fn accept(
        &self,
        by: &str,
        task: TaskId,
        accept: Accept,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Sends the work back.
    fn reject(
        &self,
        by: &str,
        task: TaskId,
        comment: Comment,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Begins again, from the base.
    fn retry(
        &self,
        by: &str,
        task: TaskId,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Goes on where it was.
    fn resume(
        &self,
        by: &str,
        task: TaskId,
        resume: Resume,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Follows a task that is over with a new one.
    fn follow(
        &self,
        by: &str,
        task: TaskId,
        message: Continue,
        key: Option<String>,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// The receipt of a stop.
    fn receipt(&self, task: TaskId) -> impl Future<Output = Later<ReceiptView>> + Send;

    /// Removes a task and what is kept of it.
    fn delete(&self, by: &str, task: TaskId) -> impl Future<Output = Later<()>> + Send;

    /// Events after a cursor, of one task if it is named: at once if there are any, else after at
    /// most `wait`.
    fn events(
        &self,
        task: Option<TaskId>,
        after: Option<String>,
        wait: Duration,
    ) -> impl Future<Output = Later<Events>> + Send;

    /// Where the log of events begins and ends.
    fn log_ends(&self) -> impl Future<Output = Later<(Cursor, Cursor)>> + Send;

    /// At most `limit` events of the log after a cursor, as they are stored.
    fn read_log(
        &self,
        after: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> impl Future<Output = Later<belay_store::Events>> + Send;

    /// Waits until the log may have grown, or for at most `patience`.
    fn await_log(&self, after: Cursor, patience: Duration) -> impl Future<Output = ()> + Send;

    /// A piece of a transcript: at once if there is any, else after at most `wait`.
    fn transcript(
        &self,
        task: TaskId,
        attempt: Option<u32>,
        from: u64,
        wait: Duration,
    ) -> impl Future<Output = Later<TranscriptPiece>> + Send;

    /// What an attempt changed, as a patch.
    fn diff(
        &self,
        task: TaskId,
        attempt: Option<u32>,
    ) -> impl Future<Output = Later<Vec<u8>>> + Send;

    /// Whether everything is well.
    fn health(&self) -> impl Future<Output = Later<Health>> + Send;

    /// Backs the database up, to a path on this machine.
    fn backup(&self, path: String) -> impl Future<Output = Later<Backup>> + Send;
}
