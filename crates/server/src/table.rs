//! The table of routes. Each line names a path, who may call it, what it is for, and its handler:
//! a route without a rule cannot be written down.
//!
//! ```text
//!  table.get("/api/v1/tasks", VIEWER, "Lists tasks, newest first.", list::<S>)
//!      .query::<ListTasks>()
//!      .answers::<TaskPage>(200);
//! ```
//!
//! From the same lines come the router, the check of the rule before each handler, the OpenAPI
//! document, and the test that tries every route with every kind of token.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, RawPathParams, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use belay_api::port::Who;
use belay_api::{Code, Principal, Scope};
use belay_kernel::TaskId;
use utoipa::{IntoParams, ToSchema};

use crate::BODY_LIMIT;
use crate::answer::Failed;
use crate::bounds::Bounds;
use crate::describe::Description;
use crate::figures::Figures;
use crate::gate::needs_token;
use crate::service::Service;

/// What of a route an agent gets with its attempt's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Its own task and its subtasks, which the path names by `{id}`.
    Family,
    /// What the handler lets it have.
    Handled,
}

/// Who may call a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    scopes: u8,
    attempt: Reach,
    open: bool,
}

/// Anybody, with or without a token.
pub(crate) const OPEN: Rule = Rule { open: true, ..ANYONE };
/// Whoever has a token of any kind.
pub(crate) const ANYONE: Rule = VIEWER.also(Scope::Runner).attempt(Reach::Handled);
/// Whoever may read.
pub(crate) const VIEWER: Rule = OPERATOR.also(Scope::Viewer);
/// Whoever may change tasks.
pub(crate) const OPERATOR: Rule = ADMIN.also(Scope::Operator);
/// Whoever may do everything.
pub(crate) const ADMIN: Rule = NOBODY.also(Scope::Admin);
/// An agent, for its own attempt, and nobody else.
pub(crate) const AGENT: Rule = NOBODY.attempt(Reach::Handled);
const NOBODY: Rule = Rule { scopes: 0, attempt: Reach::Nothing, open: false };

impl Rule {
    /// The same, for this scope too.
    pub(crate) const fn also(self, scope: Scope) -> Self {
        Self { scopes: self.scopes | 1 << scope as u8, ..self }
    }

    /// The same, for agents too.
    pub(crate) const fn attempt(self, attempt: Reach) -> Self {
        Self { attempt, ..self.also(Scope::Attempt) }
    }

    /// Whether a token of this scope may call it.
    pub const fn allows(self, scope: Scope) -> bool {
        self.scopes & 1 << scope as u8 != 0
    }

    /// What an agent gets of it.
    pub const fn reach(self) -> Reach {
        self.attempt
    }

    /// Whether it is answered without a token.
    pub const fn is_open(self) -> bool {
        self.open
    }

    /// The scopes that it is for.
    pub fn scopes(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.allows(*scope))
    }
}

/// A route, without its handler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The method.
    pub method: Method,
    /// The path, with the names of its parameters in braces.
    pub path: &'static str,
    /// Who may call it.
    pub rule: Rule,
}

/// A line of the table.
pub(crate) struct Route<S> {
    pub(crate) entry: Entry,
    pub(crate) description: Description,
    /// How long it may take, if that is not what others may.
    limit: Option<Duration>,
    handler: MethodRouter<S>,
}

impl<S> Route<S> {
    /// It takes this query.
    pub(crate) fn query<Q: IntoParams>(&mut self) -> &mut Self {
        self.description.query::<Q>();
        self
    }

    /// It takes this body.
    pub(crate) fn body<B: ToSchema>(&mut self) -> &mut Self {
        self.description.body::<B>();
        self
    }

    /// Its body needs this text, which is not blank, or else this list, which is not empty.
    pub(crate) fn needs_either(&mut self, text: &str, list: &str) -> &mut Self {
        self.description.needs_either(text, list);
        self
    }

    /// It answers so.
    pub(crate) fn answers<A: ToSchema>(&mut self, status: u16) -> &mut Self {
        self.description.answers::<A>(status);
        self
    }

    /// It answers with nothing but a status, or with bytes of this type.
    pub(crate) fn answers_bytes(&mut self, status: u16, content: Option<&str>) -> &mut Self {
        self.description.answers_bytes(status, content);
        self
    }

    /// It takes no key: done twice, it is the same, or something else on purpose.
    pub(crate) fn repeatable(&mut self) -> &mut Self {
        self.description.repeatable();
        self
    }

    /// It may take so long, instead of what others may.
    pub(crate) fn lasts(&mut self, limit: Duration) -> &mut Self {
        self.limit = Some(limit);
        self
    }
}

/// The table.
pub(crate) struct Table<S> {
    routes: Vec<Route<S>>,
}

impl<S: Service> Table<S> {
    /// A table without a line.
    pub(crate) const fn new() -> Self {
        Self { routes: Vec::new() }
    }

    /// A route that reads.
    pub(crate) fn get<H: Handler<T, S>, T: 'static>(
        &mut self,
        path: &'static str,
        rule: Rule,
        says: &'static str,
        handler: H,
    ) -> &mut Route<S> {
        self.add(Method::GET, path, rule, says, on(MethodFilter::GET, handler))
    }

    /// A route that changes something.
    pub(crate) fn post<H: Handler<T, S>, T: 'static>(
        &mut self,
        path: &'static str,
        rule: Rule,
        says: &'static str,
        handler: H,
    ) -> &mut Route<S> {
        self.add(Method::POST, path, rule, says, on(MethodFilter::POST, handler))
    }

    /// A route that changes a part.
    pub(crate) fn patch<H: Handler<T, S>, T: 'static>(
        &mut self,
        path: &'static str,
        rule: Rule,
        says: &'static str,
        handler: H,
    ) -> &mut Route<S> {
        self.add(Method::PATCH, path, rule, says, on(MethodFilter::PATCH, handler))
    }

    /// A route that removes something.
    pub(crate) fn delete<H: Handler<T, S>, T: 'static>(
        &mut self,
        path: &'static str,
        rule: Rule,
        says: &'static str,
        handler: H,
    ) -> &mut Route<S> {
        self.add(Method::DELETE, path, rule, says, on(MethodFilter::DELETE, handler))
    }

    fn add(
        &mut self,
        method: Method,
        path: &'static str,
        rule: Rule,
        says: &'static str,
        handler: MethodRouter<S>,
    ) -> &mut Route<S> {
        let entry = Entry { method, path, rule };
        let description = Description::new(&entry, says);
        self.routes.push(Route { entry, description, limit: None, handler });
        let last = self.routes.len() - 1;
        &mut self.routes[last]
    }

    /// Every line.
    pub(crate) fn routes(&self) -> &[Route<S>] {
        &self.routes
    }

    /// The router, each handler behind the check of its rule.
    pub(crate) fn router(self, service: S, bounds: Bounds, figures: &Arc<Figures>) -> Router {
        let mut router = Router::new();
        for (place, route) in self.routes.into_iter().enumerate() {
            let (rule, limit) = (route.entry.rule, route.limit.unwrap_or(bounds.request));
            let figures = Arc::clone(figures);
            let (path, service) = (route.entry.path, service.clone());
            let check = Check { rule, limit, service, path, place, figures };
            let handler = route
                .handler
                .layer(DefaultBodyLimit::max(BODY_LIMIT))
                .layer(middleware::from_fn_with_state(check, pass::<S>));
            router = router.route(route.entry.path, handler);
        }
        router.with_state(service)
    }
}

/// What stands before a handler.
#[derive(Clone)]
struct Check<S> {
    rule: Rule,
    limit: Duration,
    service: S,
    path: &'static str,
    place: usize,
    figures: Arc<Figures>,
}

/// The route that answered, in the extensions of its answer: its path, and its place in the table.
#[derive(Clone, Copy)]
pub(crate) struct Matched(pub(crate) &'static str, pub(crate) usize);

/// Lets those pass that the rule names, and bounds how long their request may take.
async fn pass<S: Service>(
    State(check): State<Check<S>>,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(check.figures.clone());
    let mut response = admitted(&check, &params, request, next).await;
    response.extensions_mut().insert(Matched(check.path, check.place));
    response
}

async fn admitted<S: Service>(
    check: &Check<S>,
    params: &RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let principal = request.extensions().get::<Principal>();
    if let Err(failed) = check.admits(principal, params).await {
        return failed.into_response();
    }
    let limit = check.limit;
    tokio::time::timeout(limit, next.run(request)).await.unwrap_or_else(|_| {
        let detail = format!("no answer within {limit:?}; it may have been done: look again");
        Failed::new(Code::Unavailable, detail).into_response()
    })
}

impl<S: Service> Check<S> {
    async fn admits(
        &self,
        principal: Option<&Principal>,
        params: &RawPathParams,
    ) -> Result<(), Failed> {
        let Some(principal) = principal else {
            return if self.rule.open { Ok(()) } else { Err(needs_token()) };
        };
        let scope = principal.scope();
        if !self.rule.allows(scope) {
            let scopes: Vec<_> = self.rule.scopes().map(Scope::name).collect();
            let detail = format!("this takes a token for {}, not {scope}", scopes.join(" or "));
            return Err(Failed::new(Code::Forbidden, detail));
        }
        match (principal.who(), self.rule.attempt) {
            (Some(who), Reach::Family) => {
                let named = params.iter().find(|(name, _)| *name == "id").map(|(_, id)| id);
                self.is_family(who, named.unwrap_or_default()).await
            }
            (Some(_), Reach::Handled | Reach::Nothing) | (None, _) => Ok(()),
        }
    }

    /// Whether an attempt names its own task or a subtask of it. What is not its own is not told
    /// from what does not exist.
    async fn is_family(&self, who: Who, named: &str) -> Result<(), Failed> {
        if let Ok(id) = named.parse::<TaskId>()
            && (id == who.task || self.is_subtask(who, id).await)
        {
            return Ok(());
        }
        let detail = "an attempt's token reads its own task and its subtasks, and nothing else";
        Err(Failed::new(Code::Forbidden, detail))
    }

    async fn is_subtask(&self, who: Who, id: TaskId) -> bool {
        self.service.show(id).await.is_ok_and(|task| task.summary.parent == Some(who.task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_scope_may_what_a_lower_one_may() {
        for (rule, scopes) in [
            (ADMIN, "admin"),
            (OPERATOR, "operator admin"),
            (VIEWER, "viewer operator admin"),
            (ANYONE, "viewer operator admin runner attempt"),
            (OPERATOR.attempt(Reach::Family), "operator admin attempt"),
        ] {
            let names: Vec<_> = rule.scopes().map(Scope::name).collect();
            assert_eq!(names.join(" "), scopes);
            assert!(!rule.is_open());
        }
        assert!(OPEN.is_open());
    }
}
