//! The node itself: whether it is well, what it can do, and its backup.

use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use belay_api::{Backup, Code, Health, NewBackup, Principal, Ready, Version};
use serde::Serialize;
use utoipa::ToSchema;

use super::Answered;
use crate::answer::{Failed, bytes, json};
use crate::describe::document;
use crate::read::{Body, Caller};
use crate::service::Service;
use crate::table::{ADMIN, ANYONE, OPEN, Table};

/// What the page may do.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// A backup copies the whole database.
const BACKUP_LIMIT: Duration = Duration::from_secs(590);

pub(super) fn routes<S: Service>(table: &mut Table<S>) {
    table
        .get("/api/v1/health", OPEN, "Tells whether the server is well.", health::<S>)
        .answers::<HealthAnswer>(200);
    table
        .get("/api/v1/ready", OPEN, "Tells whether work can be taken.", ready::<S>)
        .answers::<Ready>(200);
    table
        .get("/api/v1/version", ANYONE, "Tells the version.", version::<S>)
        .answers::<Version>(200);
    table
        .get("/api/v1/openapi.json", OPEN, "This document.", openapi::<S>)
        .answers_bytes(200, Some("application/json"));
    table
        .get("/api/v1/reference", OPEN, "This document, as a page.", page)
        .answers_bytes(200, Some("text/html; charset=utf-8"));
    table
        .get("/api/v1/reference.js", OPEN, "What draws the page.", script)
        .answers_bytes(200, Some("text/javascript; charset=utf-8"));
    table
        .post("/api/v1/backup", ADMIN, "Backs the database up, to a new path.", backup::<S>)
        .body::<NewBackup>()
        .answers::<Backup>(200)
        .lasts(BACKUP_LIMIT);
}

/// How the server is; to whoever has no token, in a word.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum HealthAnswer {
    Whole(Health),
    Word(Word),
}

/// A word.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Word {
    /// `ok`, or what is wrong.
    status: String,
}

async fn health<S: Service>(
    State(service): State<S>,
    principal: Option<Extension<Principal>>,
) -> Answered {
    let health = service.health().await?;
    json(&match principal {
        Some(_) => HealthAnswer::Whole(health),
        None => HealthAnswer::Word(Word { status: health.status }),
    })
}

async fn ready<S: Service>(State(service): State<S>) -> Answered {
    json(&service.ready().await?)
}

async fn version<S: Service>(State(service): State<S>) -> Answered {
    let version = service.health().await?.version;
    json(&Version { version, api: "v1".to_owned() })
}

async fn openapi<S: Service>() -> Answered {
    json(&document(&super::table::<S>()))
}

/// The page loads nothing from elsewhere, and may not.
async fn page() -> Response {
    let mut response =
        bytes("text/html; charset=utf-8", include_bytes!("../reference.html").to_vec());
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

async fn script() -> Response {
    let script = include_bytes!("../reference.js").to_vec();
    bytes("text/javascript; charset=utf-8", script)
}

async fn backup<S: Service>(
    State(service): State<S>,
    caller: Caller,
    Body(NewBackup { path }): Body<NewBackup>,
) -> Answered {
    if !path.starts_with('/') {
        let detail = "a backup needs an absolute path on the server's machine";
        return Err(Failed::new(Code::BadRequest, detail));
    }
    json(&service.backup(caller.ask, path).await?)
}
