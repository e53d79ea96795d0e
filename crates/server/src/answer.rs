//! Answers: JSON, tasks with their revision, raw bytes, and problem documents.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use belay_api::{Code, Problem, TaskView};
use serde::Serialize;
use utoipa::ToSchema;

tokio::task_local! {
    /// The name of the request that is being answered.
    pub(crate) static REQUEST_ID: String;
}

/// After how many seconds something that cannot be done now may be asked for again.
const ASK_AGAIN: u32 = 1;

/// A problem, as it is sent: RFC 9457's members, and ours.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document<'a> {
    /// The code, as a name.
    r#type: String,
    /// The status, in words.
    title: &'a str,
    #[serde(flatten)]
    problem: &'a Problem,
}

/// What a handler refuses or fails with.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Problem);

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl Failed {
    /// A problem of this kind.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let problem = &mut { self.0 };
        problem.request_id = REQUEST_ID.try_with(Clone::clone).ok();
        if problem.code == Code::Unavailable {
            problem.retry_after = problem.retry_after.or(Some(ASK_AGAIN));
        }
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::error!(code = problem.code.name(), "{}", problem.detail);
        }
        let r#type = format!("urn:belay:problem:{}", problem.code.name());
        let title = status.canonical_reason().unwrap_or("Problem");
        let body = serde_json::to_vec(&Document { r#type, title, problem }).unwrap_or_default();
        let mut response = bytes("application/problem+json", body);
        *response.status_mut() = status;
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(seconds) = problem.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A JSON answer.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<Response, Failed> {
    let body = serde_json::to_vec(value).map_err(|error| {
        Failed::new(Code::Internal, format!("the answer cannot be told: {error}"))
    })?;
    Ok(bytes("application/json", body))
}

/// A task, with its revision as its tag: what `If-Match` takes.
pub(crate) fn task(task: &TaskView) -> Result<Response, Failed> {
    let mut response = json(task)?;
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", task.revision)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// An answer of this type.
pub(crate) fn bytes(content_type: &'static str, body: Vec<u8>) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
