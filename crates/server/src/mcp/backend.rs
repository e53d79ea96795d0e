//! What the tools act through: a client of a server, or the server's own service.

use std::future::Future;
use std::time::Duration;

use belay_api::{
    Accept, Answer, Asking, Comment, Continue, ListTasks, NewQuestion, NewTask, Problem, Progress,
    Stopping, Submission, TaskPage, TaskView,
};
use belay_kernel::QuestionId;

type Later<T> = Result<T, Problem>;

/// What the tools ask for. Tasks are named as people name them, by as much of an id as is unique.
pub trait Backend: Send + Sync {
    /// Over when whoever answers here is about to stop: a call that waits is told to come again.
    /// Never, for what finds a server again by itself.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// Makes a task; for an agent, a subtask of its own.
    fn create(&self, task: NewTask) -> impl Future<Output = Later<TaskView>> + Send;

    /// Lists tasks.
    fn list(&self, which: ListTasks) -> impl Future<Output = Later<TaskPage>> + Send;

    /// Shows a task.
    fn show(&self, id: &str) -> impl Future<Output = Later<TaskView>> + Send;

    /// Stops a task, and waits for the receipt at most so long.
    fn stop(&self, id: &str, wait: Duration) -> impl Future<Output = Later<Stopping>> + Send;

    /// Answers a question.
    fn answer(&self, id: &str, answer: Answer) -> impl Future<Output = Later<TaskView>> + Send;

    /// Takes the work.
    fn accept(&self, id: &str, accept: Accept) -> impl Future<Output = Later<TaskView>> + Send;

    /// Sends the work back.
    fn reject(&self, id: &str, comment: Comment) -> impl Future<Output = Later<TaskView>> + Send;

    /// Follows a task that is over with a new one.
    fn follow(&self, id: &str, message: Continue) -> impl Future<Output = Later<TaskView>> + Send;

    /// Asks the person, and says how the question stands.
    fn ask(&self, question: NewQuestion) -> impl Future<Output = Later<Asking>> + Send;

    /// How a question stands: at once if it is answered, else after at most `wait`.
    fn await_answer(
        &self,
        question: QuestionId,
        wait: Duration,
    ) -> impl Future<Output = Later<Asking>> + Send;

    /// The agent is given the answer.
    fn handed_over(&self, question: QuestionId) -> impl Future<Output = Later<()>> + Send;

    /// Tells how far the agent is.
    fn report_progress(&self, progress: Progress) -> impl Future<Output = Later<()>> + Send;

    /// Tells what came of the agent's work.
    fn submit_result(&self, result: Submission) -> impl Future<Output = Later<()>> + Send;
}
