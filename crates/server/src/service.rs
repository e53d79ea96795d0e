//! What the server asks of control: one method for each thing that a person or program can do.

use std::future::Future;
use std::time::Duration;

use belay_api::port::Who;
use belay_api::{
    Accept, AgentEvent, Answer, Ask, Asking, Backup, Comment, Continue, Events, EventsTaken,
    Health, Heartbeat, HeartbeatTaken, ListSandboxes, ListTasks, ListTokens, MadeToken,
    NewQuestion, NewTask, NewToken, Principal, Problem, Progress, Ready, ReceiptView, Resume,
    SandboxPage, SandboxView, Stopping, Submission, TaskPage, TaskView, TokenPage, TokenView,
    TranscriptPiece, VerdictView, WhyView,
};
use belay_kernel::{QuestionId, SandboxId, TaskId};
use belay_store::{Cursor, EventFilter};

use crate::watch::Watched;

/// What is answered later.
type Later<T> = Result<T, Problem>;

/// What can be asked for. A change is asked for with an [`Ask`]: by whom, and only if what.
pub trait Service: Watched {
    /// The task with this id, which may be shortened to what is unique.
    fn find(&self, id: &str) -> impl Future<Output = Later<TaskId>> + Send;

    /// Makes a task.
    fn create(&self, ask: Ask, task: NewTask) -> impl Future<Output = Later<TaskView>> + Send;

    /// Whose token this is, as long as it opens anything.
    fn principal(&self, token: &str) -> impl Future<Output = Later<Option<Principal>>> + Send;

    /// What whoever speaks for an attempt that is over is told.
    fn over(&self, token: &str) -> impl Future<Output = Later<Option<Problem>>> + Send;

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

    /// Asks the person for the agent that speaks, and says how the question stands.
    fn ask(
        &self,
        speaker: Who,
        question: NewQuestion,
    ) -> impl Future<Output = Later<Asking>> + Send;

    /// How a question of the agent that speaks stands: at once if it is answered, else after at
    /// most `wait`.
    fn await_answer(
        &self,
        speaker: Who,
        question: QuestionId,
        wait: Duration,
    ) -> impl Future<Output = Later<Asking>> + Send;

    /// The agent that speaks has the answer.
    fn handed_over(
        &self,
        speaker: Who,
        question: QuestionId,
    ) -> impl Future<Output = Later<()>> + Send;

    /// The agent that speaks tells how far it is.
    fn report_progress(
        &self,
        speaker: Who,
        progress: Progress,
    ) -> impl Future<Output = Later<()>> + Send;

    /// The agent that speaks tells what came of its work.
    fn submit_result(
        &self,
        speaker: Who,
        result: Submission,
    ) -> impl Future<Output = Later<()>> + Send;

    /// Lists tasks.
    fn list(&self, which: ListTasks) -> impl Future<Output = Later<TaskPage>> + Send;

    /// Shows a task.
    fn show(&self, task: TaskId) -> impl Future<Output = Later<TaskView>> + Send;

    /// Explains a task.
    fn why(&self, task: TaskId) -> impl Future<Output = Later<WhyView>> + Send;

    /// Queues a task that waits for it.
    fn run(&self, ask: Ask, task: TaskId) -> impl Future<Output = Later<TaskView>> + Send;

    /// Stops a task, and waits for the receipt at most so long; a cancel does not wait.
    fn stop(
        &self,
        ask: Ask,
        task: TaskId,
        wait: Duration,
    ) -> impl Future<Output = Later<Stopping>> + Send;

    /// Answers a question.
    fn answer(
        &self,
        ask: Ask,
        task: TaskId,
        answer: Answer,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Takes the work.
    fn accept(
        &self,
        ask: Ask,
        task: TaskId,
        accept: Accept,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Sends the work back.
    fn reject(
        &self,
        ask: Ask,
        task: TaskId,
        comment: Comment,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Begins again, from the base.
    fn retry(&self, ask: Ask, task: TaskId) -> impl Future<Output = Later<TaskView>> + Send;

    /// Goes on where it was.
    fn resume(
        &self,
        ask: Ask,
        task: TaskId,
        resume: Resume,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// Follows a task that is over with a new one.
    fn follow(
        &self,
        ask: Ask,
        task: TaskId,
        message: Continue,
    ) -> impl Future<Output = Later<TaskView>> + Send;

    /// The receipt of a stop.
    fn receipt(&self, task: TaskId) -> impl Future<Output = Later<ReceiptView>> + Send;

    /// Removes a task, named as it was written, and what is kept of it.
    fn delete(&self, ask: Ask, id: &str) -> impl Future<Output = Later<()>> + Send;

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

    /// Lists sandboxes.
    fn sandboxes(&self, which: ListSandboxes) -> impl Future<Output = Later<SandboxPage>> + Send;

    /// Shows a sandbox.
    fn sandbox(&self, id: SandboxId) -> impl Future<Output = Later<SandboxView>> + Send;

    /// What a sandbox's evidence means now.
    fn verdict(&self, id: SandboxId) -> impl Future<Output = Later<VerdictView>> + Send;

    /// Makes a token.
    fn make_token(&self, ask: Ask, new: NewToken) -> impl Future<Output = Later<MadeToken>> + Send;

    /// Lists tokens.
    fn tokens(&self, which: ListTokens) -> impl Future<Output = Later<TokenPage>> + Send;

    /// Revokes a token, by its id or its name.
    fn revoke_token(&self, ask: Ask, named: &str) -> impl Future<Output = Later<TokenView>> + Send;

    /// Whether everything is well.
    fn health(&self) -> impl Future<Output = Later<Health>> + Send;

    /// Whether work can be taken.
    fn ready(&self) -> impl Future<Output = Later<Ready>> + Send;

    /// Backs the database up, to a path on this machine.
    fn backup(&self, ask: Ask, path: String) -> impl Future<Output = Later<Backup>> + Send;
}
