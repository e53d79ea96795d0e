//! Control as a service: each thing that can be asked for is control's own.

use std::time::Duration;

use belay_api::port::Who;
use belay_api::{
    Accept, AgentEvent, Answer, Ask, Asking, Backup, Comment, Continue, Events, EventsTaken,
    Health, Heartbeat, HeartbeatTaken, ListSandboxes, ListTasks, ListTokens, MadeToken,
    NewQuestion, NewTask, NewToken, Principal, Problem, Progress, Ready, ReceiptView, Resume,
    SandboxPage, SandboxView, Stopping, Submission, TaskPage, TaskView, TokenPage, TokenView,
    TranscriptPiece, VerdictView, WhyView,
};
use belay_control::Control;
use belay_kernel::{QuestionId, SandboxId, TaskId};
use belay_store::{Cursor, EventFilter, Store};

use crate::service::Service;

impl<S: Store> Service for Control<S> {
    async fn find(&self, id: &str) -> Result<TaskId, Problem> {
        Self::find(self, id).await
    }

    async fn create(&self, ask: Ask, task: NewTask) -> Result<TaskView, Problem> {
        Self::create(self, ask, task).await
    }

    async fn principal(&self, token: &str) -> Result<Option<Principal>, Problem> {
        Self::principal(self, token).await
    }

    async fn over(&self, token: &str) -> Result<Option<Problem>, Problem> {
        Self::over(self, token).await
    }

    async fn take_events(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: Vec<AgentEvent>,
        key: Option<String>,
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
        key: Option<String>,
    ) -> Result<TaskView, Problem> {
        Self::add_subtask(self, speaker, task, key).await
    }

    async fn ask(&self, speaker: Who, question: NewQuestion) -> Result<Asking, Problem> {
        Self::ask_person(self, speaker, question).await
    }

    async fn await_answer(
        &self,
        speaker: Who,
        question: QuestionId,
        wait: Duration,
    ) -> Result<Asking, Problem> {
        Self::await_answer(self, speaker, question, wait).await
    }

    async fn handed_over(&self, speaker: Who, question: QuestionId) -> Result<(), Problem> {
        Self::handed_over(self, speaker, question).await
    }

    async fn report_progress(&self, speaker: Who, progress: Progress) -> Result<(), Problem> {
        Self::report_progress(self, speaker, progress).await
    }

    async fn submit_result(&self, speaker: Who, result: Submission) -> Result<(), Problem> {
        Self::submit_result(self, speaker, result).await
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

    async fn run(&self, ask: Ask, task: TaskId) -> Result<TaskView, Problem> {
        Self::run(self, ask, task).await
    }

    async fn stop(&self, ask: Ask, task: TaskId, wait: Duration) -> Result<Stopping, Problem> {
        Self::stop(self, ask, task, wait).await
    }

    async fn answer(&self, ask: Ask, task: TaskId, answer: Answer) -> Result<TaskView, Problem> {
        Self::answer(self, ask, task, answer).await
    }

    async fn accept(&self, ask: Ask, task: TaskId, accept: Accept) -> Result<TaskView, Problem> {
        Self::accept(self, ask, task, accept).await
    }

    async fn reject(&self, ask: Ask, task: TaskId, comment: Comment) -> Result<TaskView, Problem> {
        Self::reject(self, ask, task, comment).await
    }

    async fn retry(&self, ask: Ask, task: TaskId) -> Result<TaskView, Problem> {
        Self::retry(self, ask, task).await
    }

    async fn resume(&self, ask: Ask, task: TaskId, resume: Resume) -> Result<TaskView, Problem> {
        Self::resume(self, ask, task, resume).await
    }

    async fn follow(&self, ask: Ask, task: TaskId, message: Continue) -> Result<TaskView, Problem> {
        Self::follow(self, ask, task, message).await
    }

    async fn receipt(&self, task: TaskId) -> Result<ReceiptView, Problem> {
        Self::receipt(self, task).await
    }

    async fn delete(&self, ask: Ask, id: &str) -> Result<(), Problem> {
        Self::delete(self, ask, id).await
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

    async fn sandboxes(&self, which: ListSandboxes) -> Result<SandboxPage, Problem> {
        Self::sandboxes(self, which).await
    }

    async fn sandbox(&self, id: SandboxId) -> Result<SandboxView, Problem> {
        Self::sandbox(self, id).await
    }

    async fn verdict(&self, id: SandboxId) -> Result<VerdictView, Problem> {
        self.verdict_of(id).await
    }

    async fn make_token(&self, ask: Ask, new: NewToken) -> Result<MadeToken, Problem> {
        Self::make_token(self, ask, new).await
    }

    async fn tokens(&self, which: ListTokens) -> Result<TokenPage, Problem> {
        Self::tokens(self, which).await
    }

    async fn revoke_token(&self, ask: Ask, named: &str) -> Result<TokenView, Problem> {
        Self::revoke_token(self, ask, named).await
    }

    async fn health(&self) -> Result<Health, Problem> {
        Self::health(self).await
    }

    async fn ready(&self) -> Result<Ready, Problem> {
        Self::ready(self).await
    }

    async fn backup(&self, ask: Ask, path: String) -> Result<Backup, Problem> {
        Self::backup(self, ask, path).await
    }
}
