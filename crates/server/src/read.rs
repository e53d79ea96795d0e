//! Reading requests: every bound and every bad value becomes a problem that says what is wrong.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use belay_api::Code;
use belay_api::port::Who;
use serde::de::DeserializeOwned;

use crate::BODY_LIMIT;
use crate::answer::Failed;

/// The longest that a request may wait for something to happen.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest idempotency key.
const KEY_LIMIT: usize = 200;

/// A JSON body. One that is empty, or `null`, is read as the default.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        let bytes = whole(request, state).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(T::default()));
        }
        let value: Option<T> = serde_json::from_slice(&bytes).map_err(|error| {
            Failed::new(Code::BadRequest, format!("the body is not what is taken: {error}"))
        })?;
        Ok(Self(value.unwrap_or_default()))
    }
}

/// The whole body of a request, bounded.
pub(crate) async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Failed> {
    Bytes::from_request(request, state).await.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let detail = format!("the body is larger than {} MiB", BODY_LIMIT >> 20);
            return Failed::new(Code::TooLarge, detail);
        }
        Failed::new(Code::BadRequest, format!("the body cannot be read: {rejection}"))
    })
}

/// The query of a request.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let detail = format!("the query is not what is taken: {}", rejection.body_text());
                Err(Failed::new(Code::BadRequest, detail))
            }
        }
    }
}

/// The id in a path, as it was written.
pub(crate) struct Id(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) if id.len() <= 64 => Ok(Self(id)),
            Ok(_) | Err(_) => Err(Failed::new(Code::BadRequest, "the path names no task")),
        }
    }
}

/// Who asks, and the key of the request.
pub(crate) struct Caller {
    /// The principal, which the gate has put there.
    pub(crate) by: Principal,
    /// The idempotency key.
    pub(crate) key: Option<String>,
}

/// The principal of a request, put into its extensions by the gate.
#[derive(Clone, Copy)]
pub(crate) enum Principal {
    /// Whoever has the installation's token.
    Admin,
    /// An agent, with its attempt's own token.
    Attempt(Who),
}

impl Principal {
    /// The name under which a person's requests are known.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Attempt(_) => "attempt",
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failed> {
        let Some(by) = parts.extensions.get::<Principal>().copied() else {
            return Err(Failed::new(Code::Unauthorized, "this needs a token"));
        };
        let bad = || {
            let detail = format!("an idempotency key is 1 to {KEY_LIMIT} plain characters");
            Failed::new(Code::BadRequest, detail)
        };
        let key = match parts.headers.get("idempotency-key") {
            None => None,
            Some(value) => Some(value.to_str().map_err(|_| bad())?.to_owned()),
        };
        match &key {
            Some(key) if key.is_empty() || key.len() > KEY_LIMIT => Err(bad()),
            Some(_) | None => Ok(Self { by, key }),
        }
    }
}

/// How long a request waits, bounded.
pub(crate) fn wait(ms: u64) -> Duration {
    Duration::from_millis(ms).min(LONGEST_WAIT)
}
