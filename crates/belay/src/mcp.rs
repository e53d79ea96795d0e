//! `belay mcp`: the tools on standard input and output, for an assistant or for an agent. It speaks
//! to the server as any client does, finds it again when it was restarted, and starts none unless
//! it is told to.

use std::future::Future;
use std::time::{Duration, Instant};

use belay_api::{
    ATTEMPT_TOKEN, Accept, Answer, Asking, Client, ClientError, Code, Comment, Continue, ListTasks,
    NewQuestion, NewTask, Problem, Progress, Stopping, Submission, TaskPage, TaskView,
};
use belay_kernel::QuestionId;
use belay_kernel::task::Review;
use belay_server::mcp::{Backend, Caller, Host, Offer, Tools};
use rmcp::model::Extensions;
use rmcp::{ErrorData, ServiceExt};

use crate::cli::{self, Run};
use crate::connect::{Link, Start, key};
use crate::data::Data;
use crate::fault::{Exit, Fault};
use crate::run::task_of;

/// How long a server that does not answer is asked again, for a tool that does not wait.
const PATIENCE: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Serves until standard input ends.
pub(crate) async fn mcp(data: &Data, mcp: &cli::Mcp) -> Result<Exit, Fault> {
    let token = std::env::var("BELAY_TOKEN").unwrap_or_default();
    let offer = match token.starts_with(ATTEMPT_TOKEN) {
        true => Offer::Agent { ask_person: mcp.ask_person },
        false => Offer::People,
    };
    let start = if mcp.start { Start::Always } else { Start::Never };
    let host = Stdio(Caller { offer, backend: Remote { data: data.clone(), start, offer } });
    let served = Tools::new(host).serve(rmcp::transport::stdio()).await;
    match served {
        // An error means that a task of the library panicked, which it has said.
        Ok(served) => drop(served.waiting().await),
        // Whoever started it said nothing and left.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => return Err(Fault::failed(format!("MCP could not begin: {error}"))),
    }
    Ok(Exit::Done)
}

/// One client, on standard input and output.
struct Stdio(Caller<Remote>);

impl Host for Stdio {
    type Backend = Remote;

    async fn caller(&self, _: &Extensions) -> Result<Caller<Remote>, ErrorData> {
        Ok(self.0.clone())
    }
}

/// A server that is reached over HTTP, wherever it is at the moment.
#[derive(Clone, Debug)]
struct Remote {
    data: Data,
    start: Start,
    offer: Offer,
}

type Later<T> = Result<T, Problem>;

impl Remote {
    /// Asks until there is an answer, at most for some seconds.
    async fn ask_server<T, F>(&self, request: impl Fn(Client) -> F + Send + Sync) -> Later<T>
    where
        F: Future<Output = Result<T, ClientError>> + Send,
    {
        let mut link = Link::open(&self.data, self.start).await.map_err(unreachable)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let problem = match request(link.client().clone()).await {
                Ok(answer) => return Ok(answer),
                Err(ClientError::Problem(problem)) if problem.code != Code::Unavailable => {
                    return Err(problem);
                }
                Err(ClientError::Problem(problem)) => problem,
                Err(ClientError::Unanswered(unanswered)) => unreachable(unanswered.into()),
            };
            if Instant::now() > until {
                return Err(problem);
            }
            tokio::time::sleep(ASK_AGAIN).await;
            link.refresh();
        }
    }

    /// The same for a change, whose key makes asking twice asking once.
    async fn change<T, F>(&self, request: impl Fn(Client, String) -> F + Send + Sync) -> Later<T>
    where
        F: Future<Output = Result<T, ClientError>> + Send,
    {
        let key = key(None).map_err(|fault| Problem::new(Code::Internal, fault.text))?;
        self.ask_server(|client| request(client, key.clone())).await
    }
}

fn unreachable(fault: Fault) -> Problem {
    Problem::new(Code::Unavailable, fault.text)
}

impl Backend for Remote {
    async fn closed(&self) {
        std::future::pending::<()>().await;
    }

    async fn create(&self, task: NewTask) -> Later<TaskView> {
        let task = match self.offer {
            Offer::Agent { .. } => task,
            Offer::People | Offer::Looking => composed(task)?,
        };
        let task = &task;
        self.change(|client, key| async move { client.create(task, Some(&key)).await }).await
    }

    async fn list(&self, which: ListTasks) -> Later<TaskPage> {
        let which = &which;
        self.ask_server(|client| async move { client.list(which).await }).await
    }

    async fn show(&self, id: &str) -> Later<TaskView> {
        self.ask_server(|client| async move { client.show(id).await }).await
    }

    async fn stop(&self, id: &str, wait: Duration) -> Later<Stopping> {
        self.change(|client, key| async move { client.stop(id, wait, Some(&key)).await }).await
    }

    async fn answer(&self, id: &str, answer: Answer) -> Later<TaskView> {
        let answer = &answer;
        self.change(|client, key| async move { client.answer(id, answer, Some(&key)).await }).await
    }

    async fn accept(&self, id: &str, accept: Accept) -> Later<TaskView> {
        let accept = &accept;
        self.change(|client, key| async move { client.accept(id, accept, Some(&key)).await }).await
    }

    async fn reject(&self, id: &str, comment: Comment) -> Later<TaskView> {
        let comment = &comment;
        self.change(|client, key| async move { client.reject(id, comment, Some(&key)).await }).await
    }

    async fn follow(&self, id: &str, message: Continue) -> Later<TaskView> {
        let message = &message;
        self.change(|client, key| async move { client.follow(id, message, Some(&key)).await }).await
    }

    async fn ask(&self, question: NewQuestion) -> Later<Asking> {
        let question = &question;
        self.ask_server(|client| async move { client.ask(question).await }).await
    }

    async fn await_answer(&self, question: QuestionId, wait: Duration) -> Later<Asking> {
        self.ask_server(|client| async move { client.await_answer(question, wait).await }).await
    }

    async fn handed_over(&self, question: QuestionId) -> Later<()> {
        self.ask_server(|client| async move { client.handed_over(question).await }).await
    }

    async fn report_progress(&self, progress: Progress) -> Later<()> {
        let progress = &progress;
        self.ask_server(|client| async move { client.report_progress(progress).await }).await
    }

    async fn submit_result(&self, result: Submission) -> Later<()> {
        let result = &result;
        self.ask_server(|client| async move { client.submit_result(result).await }).await
    }
}

/// The task as `belay run` would make it here: with the settings, the agent that is installed, its
/// credentials, and the repository of this directory.
fn composed(task: NewTask) -> Later<NewTask> {
    let refused = |fault: Fault| {
        let code = if fault.exit == Exit::Usage { Code::BadRequest } else { Code::Refused };
        Problem::new(code, fault.text)
    };
    let timeout = match task.limits.get("absolute").map(|limit| limit.parse()) {
        None => None,
        Some(Ok(span)) => Some(span),
        Some(Err(_)) => {
            let detail = "the timeout is not a duration such as 30m";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    let run = Run {
        // The text itself is no flag: a single dash in it would mean standard input.
        prompt: Some(format!("{} ", task.prompt)),
        agent: task.agent,
        model: task.model,
        repo: task.repository,
        base: task.base,
        branch: task.branch,
        review: (task.review == Review::Auto).then_some(cli::Review::Auto),
        timeout,
        budget_usd: task.budget_usd,
        max_tokens: task.max_tokens,
        max_attempts: task.max_attempts,
        priority: Some(task.priority),
        ..Run::default()
    };
    let made = task_of(&run).map_err(refused)?;
    Ok(NewTask { prompt: task.prompt, title: task.title, after: task.after, ..made })
}
