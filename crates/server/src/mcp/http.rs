//! The tools over streamable HTTP, at `/mcp`: each request stands for itself, and an answer that
//! takes its time is a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use belay_api::port::Who;
use belay_api::{
    Accept, Answer, Ask, Asking, Code, Comment, Continue, ListTasks, NewQuestion, NewTask,
    Principal, Problem, Progress, Scope, Stopping, Submission, TaskPage, TaskView,
};
use belay_kernel::QuestionId;
use futures_util::StreamExt;
use rmcp::ErrorData;
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::backend::Backend;
use super::tools::{Caller, Host, Offer, Tools};
use crate::BODY_LIMIT;
use crate::answer::Failed;
use crate::gate::Closing;
use crate::service::Service;
use crate::table::{Reach, Table, VIEWER};

/// How long a stream may go on when the server stops: its call is told so, and ends.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often an answer that waits shows that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The endpoint.
pub(crate) fn routes<S: Service>(table: &mut Table<S>) {
    let says = "Speaks MCP (streamable HTTP): the tools of people's assistants and of agents.";
    table
        .post("/mcp", VIEWER.attempt(Reach::Handled), says, answer::<S>)
        .repeatable()
        .answers_bytes(200, Some("text/event-stream"));
}

/// Answers one request. A stream that goes on ends when the server stops.
async fn answer<S: Service>(State(service): State<S>, request: Request) -> Response {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_LIMIT)
        // The gate before this knows the names of this server; pages of other origins get nothing.
        .disable_allowed_hosts()
        .enforce_origin_validation();
    let tools = move || Ok(Tools::new(Http { service: service.clone() }));
    let sessions = Arc::new(NeverSessionManager::default());
    let closing = request.extensions().get::<Closing>().cloned();
    let response = StreamableHttpService::new(tools, sessions, config).handle(request).await;
    let (parts, body) = response.into_parts();
    let says_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.contains("json")));
    if parts.status.is_client_error() && !says_json {
        return refused(parts.status, Body::new(body)).await;
    }
    let closed = async move {
        match closing {
            Some(mut closing) => closing.wait().await,
            None => std::future::pending().await,
        }
        tokio::time::sleep(LAST_WORDS).await;
    };
    let stream = Body::new(body).into_data_stream().take_until(Box::pin(closed));
    Response::from_parts(parts, Body::from_stream(stream))
}

/// A refusal of the protocol's, as a problem document.
async fn refused(status: StatusCode, body: Body) -> Response {
    let said = axum::body::to_bytes(body, 4_096).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let code = match status {
        StatusCode::FORBIDDEN => Code::Forbidden,
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        _ => Code::BadRequest,
    };
    Failed(Problem { status: status.as_u16(), ..Problem::new(code, said) }).into_response()
}

/// The service, as a host of the tools.
struct Http<S> {
    service: S,
}

impl<S: Service> Host for Http<S> {
    type Backend = Speaking<S>;

    async fn caller(&self, request: &Extensions) -> Result<Caller<Speaking<S>>, ErrorData> {
        let parts = request.get::<Parts>();
        let principal = parts.and_then(|parts| parts.extensions.get::<Principal>()).cloned();
        let (Some(parts), Some(principal)) = (parts, principal) else {
            return Err(ErrorData::invalid_request("this needs a token", None));
        };
        let query = parts.uri.query().unwrap_or_default();
        let offer = match principal.scope() {
            Scope::Admin | Scope::Operator => Offer::People,
            Scope::Viewer | Scope::Runner => Offer::Looking,
            Scope::Attempt => {
                Offer::Agent { ask_person: query.split('&').any(|one| one == "ask=ask_person") }
            }
        };
        let closing = parts.extensions.get::<Closing>().cloned();
        let service = self.service.clone();
        Ok(Caller { offer, backend: Speaking { service, principal, closing } })
    }
}

/// The service, asked by somebody.
#[derive(Clone)]
struct Speaking<S> {
    service: S,
    principal: Principal,
    closing: Option<Closing>,
}

impl<S: Service> Speaking<S> {
    fn by(&self) -> Ask {
        Ask::by(self.principal.name())
    }

    /// The attempt that speaks.
    fn who(&self) -> Result<Who, Problem> {
        let who = self.principal.who();
        who.ok_or_else(|| Problem::new(Code::Forbidden, "this takes the token of an attempt"))
    }
}

type Later<T> = Result<T, Problem>;

impl<S: Service> Backend for Speaking<S> {
    async fn closed(&self) {
        match self.closing.clone() {
            Some(mut closing) => closing.wait().await,
            None => std::future::pending().await,
        }
    }

    async fn create(&self, task: NewTask) -> Later<TaskView> {
        match self.principal.who() {
            Some(who) => self.service.add_subtask(who, task, None).await,
            None => self.service.create(self.by(), task).await,
        }
    }

    async fn list(&self, which: ListTasks) -> Later<TaskPage> {
        self.service.list(which).await
    }

    async fn show(&self, id: &str) -> Later<TaskView> {
        self.service.show(self.service.find(id).await?).await
    }

    async fn stop(&self, id: &str, wait: Duration) -> Later<Stopping> {
        self.service.stop(self.by(), self.service.find(id).await?, wait).await
    }

    async fn answer(&self, id: &str, answer: Answer) -> Later<TaskView> {
        self.service.answer(self.by(), self.service.find(id).await?, answer).await
    }

    async fn accept(&self, id: &str, accept: Accept) -> Later<TaskView> {
        self.service.accept(self.by(), self.service.find(id).await?, accept).await
    }

    async fn reject(&self, id: &str, comment: Comment) -> Later<TaskView> {
        self.service.reject(self.by(), self.service.find(id).await?, comment).await
    }

    async fn follow(&self, id: &str, message: Continue) -> Later<TaskView> {
        self.service.follow(self.by(), self.service.find(id).await?, message).await
    }

    async fn ask(&self, question: NewQuestion) -> Later<Asking> {
        self.service.ask(self.who()?, question).await
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
