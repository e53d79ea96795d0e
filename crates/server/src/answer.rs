//! Answers: JSON, raw bytes, and problem documents.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use belay_api::{Code, Problem};
use serde::Serialize;

/// A problem, as it is sent: RFC 9457's members, and ours.
#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
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
        let problem = &self.0;
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

/// An answer of this type.
pub(crate) fn bytes(content_type: &'static str, body: Vec<u8>) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}
