//! Reading requests: every bound and every bad value becomes a problem that says what is wrong.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use belay_api::{Ask, Code, Principal};
use belay_kernel::Revision;
use serde::de::DeserializeOwned;

use crate::answer::Failed;
use crate::gate::needs_token;

/// The longest that a request may wait for something to happen.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest idempotency key.
pub(crate) const KEY_LIMIT: usize = 200;

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
            return Failed::new(Code::TooLarge, "the body is larger than this takes");
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

/// Who asks for a change, and on which conditions.
pub(crate) struct Caller {
    /// The principal, which the gate has put there.
    pub(crate) principal: Principal,
    /// Its name, its key, and what it expects.
    pub(crate) ask: Ask,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failed> {
        let principal = parts.extensions.get::<Principal>().cloned().ok_or_else(needs_token)?;
        let key = match parts.headers.get("idempotency-key") {
            None => None,
            Some(value) => Some(key(value)?),
        };
        let expects = parts.headers.get(header::IF_MATCH).and_then(expected);
        let ask = Ask { by: principal.name().to_owned(), key, expects };
        Ok(Self { principal, ask })
    }
}

fn key(value: &HeaderValue) -> Result<String, Failed> {
    match value.to_str() {
        Ok(key) if (1..=KEY_LIMIT).contains(&key.len()) && !key.contains([' ', '\t']) => {
            Ok(key.to_owned())
        }
        Ok(_) | Err(_) => {
            let detail =
                format!("an idempotency key is 1 to {KEY_LIMIT} plain characters, without spaces");
            Err(Failed::new(Code::BadRequest, detail))
        }
    }
}

/// The revisions that an `If-Match` names. A tag that is not one of ours, or is weak, matches no
/// revision; `*` matches all.
fn expected(value: &HeaderValue) -> Option<Vec<Revision>> {
    let text = value.to_str().unwrap_or_default().trim();
    let number = |tag: &str| tag.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok();
    (text != "*").then(|| text.split(',').filter_map(number).map(Revision).collect())
}

/// How long a request waits, bounded.
pub(crate) fn wait(ms: u64) -> Duration {
    Duration::from_millis(ms).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_revision_or_nothing() {
        let read = |text| expected(&HeaderValue::from_static(text));
        assert_eq!(read("*"), None);
        assert_eq!(read("\"7\""), Some(vec![Revision(7)]));
        assert_eq!(read("\"7\", \"8\""), Some(vec![Revision(7), Revision(8)]));
        for never in ["7", "W/\"7\"", "\"x\"", "", "\"-1\""] {
            assert_eq!(read(never), Some(vec![]), "{never}");
        }
    }
}
