//! The tools over streamable HTTP, at `/mcp`: each request stands for itself, and an answer that
//! takes its time is a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use belay_api::port::Who;
use belay_api::{
    Accept, Answer, Asking, Code, Comment, Continue, ListTasks, NewQuestion, NewTask, Problem,
    Progress, Stopping, Submission, TaskPage, TaskView,
};
use belay_kernel::QuestionId;
use rmcp::ErrorData;
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::backend::Backend;
use super::tools::{Caller, Host, Offer, Tools};
use crate::BODY_LIMIT;
use crate::read::{Principal, wait};
use crate::service::Service;

/// How often an answer that waits shows that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The endpoint. Its streams end when `closing` does.
pub(crate) fn endpoint<S: Service>(
    service: S,
    closing: CancellationToken,
) -> StreamableHttpService<Tools<Http<S>>, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_LIMIT)
        .with_cancellation_token(closing)
        // The gate before this knows the names of this server; pages of other origins get nothing.
        .disable_allowed_hosts()
        .enforce_origin_validation();
    let tools = move || Ok(Tools::new(Http { service: service.clone() }));
    StreamableHttpService::new(tools, Arc::new(NeverSessionManager::default()), config)
}

/// The service, as a host of the tools.
#[derive(Clone)]
pub(crate) struct Http<S> {
    service: S,
}

impl<S: Service> Host for Http<S> {
    type Backend = Speaking<S>;

    async fn caller(&self, request: &Extensions) -> Result<Caller<Speaking<S>>, ErrorData> {
        let parts = request.get::<Parts>();
        let principal = parts.and_then(|parts| parts.extensions.get::<Principal>()).copied();
        let (Some(parts), Some(principal)) = (parts, principal) else {
            return Err(ErrorData::invalid_request("this needs a token", None));
        };
        let offer = match principal {
            Principal::Admin => Offer::People,
            Principal::Attempt(_) => {
                let query = parts.uri.query().unwrap_or_default();
                Offer::Agent { ask_person: query.split('&').any(|one| one == "ask=ask_person") }
            }
        };
        Ok(Caller { offer, backend: Speaking { service: self.service.clone(), principal } })
    }
}

/// The service, asked by somebody.
#[derive(Clone)]
pub(crate) struct Speaking<S> {
    service: S,
    principal: Principal,
}

impl<S: Service> Speaking<S> {
    fn by(&self) -> &'static str {
        self.principal.name()
    }

    /// The attempt that speaks.
    fn who(&self) -> Result<Who, Problem> {
        match self.principal {
            Principal::Attempt(who) => Ok(who),
            Principal::Admin => {
                Err(Problem::new(Code::Forbidden, "this takes the token of an attempt"))
            }
        }
    }
}

type Later<T> = Result<T, Problem>;

impl<S: Service> Backend for Speaking<S> {
    async fn create(&self, task: NewTask) -> Later<TaskView> {
        match self.principal {
            Principal::Admin => self.service.create(self.by(), task, None).await,
            Principal::Attempt(who) => self.service.add_subtask(who, task, None).await,
        }
    }

    async fn list(&self, which: ListTasks) -> Later<TaskPage> {
        self.service.list(which).await
    }

    async fn show(&self, id: &str) -> Later<TaskView> {
        self.service.show(self.service.find(id).await?).await
    }

    async fn stop(&self, id: &str, wait: Duration) -> Later<Stopping> {
        self.service.stop(self.by(), self.service.find(id).await?, wait, None).await
    }

    async fn answer(&self, id: &str, answer: Answer) -> Later<TaskView> {
        self.service.answer(self.by(), self.service.find(id).await?, answer, None).await
    }

    async fn accept(&self, id: &str, accept: Accept) -> Later<TaskView> {
        self.service.accept(self.by(), self.service.find(id).await?, accept, None).await
    }

    async fn reject(&self, id: &str, comment: Comment) -> Later<TaskView> {
        self.service.reject(self.by(), self.service.find(id).await?, comment, None).await
    }

    async fn follow(&self, id: &str, message: Continue) -> Later<TaskView> {
        self.service.follow(self.by(), self.service.find(id).await?, message, None).await
    }

    async fn ask(&self, question: NewQuestion) -> Later<Asking> {
        let patience = wait(question.wait_ms);
        self.service.ask(self.who()?, question, patience).await
    }

    async fn await_answer(&self, question: QuestionId, wait: Duration) -> Later<Asking> {
        self.service.await_answer(self.who()?, question, wait).await
    }

    async fn handed_over(&self, question: QuestionId) -> Later<()> {
        self.service.handed_over(self.who()?, question).await
    }

    async fn report_progress(&self, progress: Progress) -> Later<()> {
        self.service.report_progress(self.who()?, progress).await
    }

    async fn submit_result(&self, result: Submission) -> Later<()> {
        self.service.submit_result(self.who()?, result).await
    }
}
