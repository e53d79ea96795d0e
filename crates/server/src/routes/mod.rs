//! The routes, by resource. Adding one is a line in its resource's table, and a handler.

mod agents;
mod attempt;
mod attempts;
mod live;
mod node;
mod reading;
mod sandboxes;
mod short;
mod tasks;
mod tickets;
mod tokens;
mod verbs;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::http::{Method, Uri};
use axum::response::Response;
use belay_api::{Code, Principal};

use crate::answer::Failed;
use crate::bounds::Bounds;
use crate::figures::Figures;
use crate::gate::needs_token;
use crate::service::Service;
use crate::table::{Entry, Table};

/// What a handler answers.
pub(crate) type Answered = Result<Response, Failed>;

/// Every route.
pub(crate) fn table<S: Service>() -> Table<S> {
    let mut table = Table::new();
    node::routes(&mut table);
    tasks::routes(&mut table);
    verbs::routes(&mut table);
    reading::routes(&mut table);
    live::routes(&mut table);
    tickets::routes(&mut table);
    agents::routes(&mut table);
    attempt::routes(&mut table);
    crate::mcp::routes(&mut table);
    attempts::routes(&mut table);
    sandboxes::routes(&mut table);
    tokens::routes(&mut table);
    short::routes(&mut table);
    watch::routes(&mut table);
    table
}

/// Every route, and who may call it.
pub fn entries<S: Service>() -> Vec<Entry> {
    table::<S>().routes().iter().map(|route| route.entry.clone()).collect()
}

/// The router of every route; what is asked of them is counted.
pub(crate) fn router<S: Service>(service: S, bounds: Bounds, figures: &Arc<Figures>) -> Router {
    let routes = table().router(service, bounds, figures);
    routes.fallback(no_route).method_not_allowed_fallback(no_method)
}

async fn no_route(uri: Uri, principal: Option<Extension<Principal>>) -> Failed {
    if principal.is_none() {
        return needs_token();
    }
    let path: String = uri.path().chars().take(200).collect();
    Failed::new(Code::NotFound, format!("there is nothing at `{path}`"))
}

async fn no_method(method: Method, uri: Uri, principal: Option<Extension<Principal>>) -> Failed {
    if principal.is_none() {
        return needs_token();
    }
    let path: String = uri.path().chars().take(200).collect();
    Failed::new(Code::MethodNotAllowed, format!("`{path}` does not take {method}"))
}
