//! The OpenAPI document, made from the table of routes and from the types that they name.
//!
//! What all routes have in common is said once: the token, the request's id, the problems. A route
//! that changes a task takes an idempotency key, and `If-Match` where it names the task. Whatever
//! makes a task, a token or a webhook links to every route of it, so that a program can walk from
//! one answer to the next request.

use std::collections::BTreeMap;

use axum::http::Method;
use belay_api::Scope;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{
    AllOfBuilder, AnyOfBuilder, ArrayBuilder, ComponentsBuilder, Schema, Type,
};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, Header, InfoBuilder, ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
    Required,
};
use utoipa::{IntoParams, ToSchema};

use crate::answer::Document;
use crate::read::KEY_LIMIT;
use crate::service::Service;
use crate::table::{Entry, Table};

/// The longest id that a path may hold.
const LONGEST_ID: usize = 64;
/// The header by which a request is known again.
const KEY: &str = "Idempotency-Key";
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
/// Every status that a problem can have, but those that no route has of itself.
const PROBLEMS: &[u16] = &[400, 401, 403, 404, 409, 410, 412, 413, 422, 429, 500, 503];
/// The answer that is a task, which carries its revision as its tag.
const TASK: &str = "TaskView";
/// Where the making of something leads: what it is answered with, and with what the paths begin
/// that take its id. Other answers lead nowhere: a test that walks would begin with them, and with
/// ids that it made up.
const LEADS: &[(&str, &str)] = &[
    (TASK, "/api/v1/tasks/{id}"),
    ("MadeToken", "/api/v1/tokens/{id}"),
    ("MadeWebhook", "/api/v1/webhooks/{id}"),
];
/// The status of an answer that tells of something that was made.
const MADE: u16 = 201;

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// What one status is answered with.
struct Answer {
    content: Option<(String, RefOr<Schema>)>,
    /// The name of the type, if it is JSON.
    name: Option<String>,
}

/// What is said of a route.
pub(crate) struct Description {
    says: &'static str,
    parameters: Vec<Parameter>,
    body: Option<RefOr<Schema>>,
    answers: BTreeMap<u16, Answer>,
    schemas: Schemas,
}

impl Description {
    /// What can be said of a route by its path and method alone.
    pub(crate) fn new(entry: &Entry, says: &'static str) -> Self {
        let names = entry.path.split('/').filter_map(|part| part.strip_prefix('{'));
        let names = names.map(|name| name.trim_end_matches('}').trim_start_matches('*'));
        let parameters = names.map(path_parameter).collect();
        let mut new = Self {
            says,
            parameters,
            body: None,
            answers: BTreeMap::new(),
            schemas: Schemas::new(),
        };
        if entry.method != Method::GET {
            let key = ObjectBuilder::new().min_length(Some(1)).max_length(Some(KEY_LIMIT));
            new.parameters.push(header(
                KEY,
                "The same request with the same key is done once, and answered alike.",
                key.pattern(Some("^[!-~]+$")),
            ));
            if entry.path.contains("/tasks/{id}") {
                let says = "The `ETag` that was seen: it is done only if the task is still that.";
                new.parameters.push(header("If-Match", says, ObjectBuilder::new()));
            }
        }
        new
    }

    /// It takes no key: done twice, it is the same, or something else on purpose.
    pub(crate) fn repeatable(&mut self) {
        self.parameters.retain(|parameter| parameter.name != KEY);
    }

    pub(crate) fn query<Q: IntoParams>(&mut self) {
        self.parameters.extend(Q::into_params(|| Some(ParameterIn::Query)));
    }

    pub(crate) fn body<B: ToSchema>(&mut self) {
        self.body = Some(self.refer::<B>());
    }

    /// The body needs this text, which is not blank, or else this list, which is not empty.
    pub(crate) fn needs_either(&mut self, text: &str, list: &str) {
        let Some(body) = self.body.take() else { return };
        let word = || ObjectBuilder::new().schema_type(Type::String);
        let said = word().pattern(Some(r"\S"));
        let said = ObjectBuilder::new().property(text, said).required(text);
        let listed = ArrayBuilder::new().min_items(Some(1)).items(word());
        let listed = ObjectBuilder::new().property(list, listed).required(list);
        let either = AnyOfBuilder::new().item(said).item(listed);
        let both = AllOfBuilder::new().item(body).item(either);
        self.body = Some(Schema::from(both.build()).into());
    }

    pub(crate) fn answers<A: ToSchema>(&mut self, status: u16) {
        let content = Some((JSON.to_owned(), self.refer::<A>()));
        self.answers.insert(status, Answer { content, name: Some(A::name().into_owned()) });
    }

    pub(crate) fn answers_bytes(&mut self, status: u16, content: Option<&str>) {
        let bytes = || ObjectBuilder::new().schema_type(Type::String).into();
        let content = content.map(|kind| (kind.to_owned(), bytes()));
        self.answers.insert(status, Answer { content, name: None });
    }

    /// The reference to a type, which is described with everything that it is made of.
    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let mut all = Vec::new();
        T::schemas(&mut all);
        self.schemas.extend(all);
        self.schemas.insert(T::name().into_owned(), T::schema());
        Ref::from_schema_name(T::name()).into()
    }
}

/// The whole document.
pub(crate) fn document<S: Service>(table: &Table<S>) -> OpenApi {
    let mut schemas = Schemas::new();
    let mut all = Vec::new();
    Document::schemas(&mut all);
    schemas.extend(all);
    schemas.insert("Problem".to_owned(), <Document<'_> as utoipa::PartialSchema>::schema());
    let mut paths = PathsBuilder::new();
    let mut items: BTreeMap<&str, PathItem> = BTreeMap::new();
    for route in table.routes() {
        schemas.extend(route.description.schemas.clone());
        let operation = operation(&route.entry, &route.description, table);
        let item = PathItem::new(http_method(&route.entry.method), operation);
        match items.get_mut(route.entry.path) {
            Some(before) => before.merge_operations(item),
            None => {
                items.insert(route.entry.path, item);
            }
        }
    }
    for (path, item) in items {
        paths = paths.path(path, item);
    }
    let mut token = Http::new(HttpAuthScheme::Bearer);
    token.description = Some("A token, as `belay token create` prints it.".to_owned());
    let mut components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("token", SecurityScheme::Http(token));
    for (from, _) in LEADS {
        for (name, link) in links(table, from) {
            components = components.link(name, link);
        }
    }
    for status in PROBLEMS {
        components = components.response(format!("Problem{status}"), problem(*status));
    }
    let components = components.build();
    let info = InfoBuilder::new()
        .title("Belay")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Runs AI coding agents unattended, and makes every stop final."))
        .build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build()
}

fn operation<S: Service>(
    entry: &Entry,
    description: &Description,
    table: &Table<S>,
) -> OperationBuilder {
    let scopes: Vec<_> = entry.rule.scopes().map(Scope::name).collect();
    let who = match entry.rule.is_open() {
        true => "For anybody.".to_owned(),
        false => format!("For {}.", scopes.join(", ")),
    };
    let mut operation = OperationBuilder::new()
        .tag(tag(entry.path))
        .operation_id(Some(operation_id(entry)))
        .summary(Some(description.says))
        .description(Some(who))
        .parameters(Some(description.parameters.clone()));
    if let Some(body) = &description.body {
        let content = Content::new(Some(body.clone()));
        let body = RequestBodyBuilder::new().content(JSON, content);
        operation = operation.request_body(Some(body.required(Some(Required::False)).build()));
    }
    for (status, answer) in &description.answers {
        let mut response = ResponseBuilder::new().description(meaning(*status));
        if let Some((kind, schema)) = &answer.content {
            response = response.content(kind, Content::new(Some(schema.clone())));
        }
        response = response.header("X-Request-Id", Header::default());
        if answer.name.as_deref() == Some(TASK) {
            response = response.header("ETag", Header::default());
        }
        let made = answer.name.as_deref().filter(|_| *status == MADE);
        for (name, _) in links(table, made.unwrap_or_default()) {
            let link = Ref::new(format!("#/components/links/{name}"));
            response = response.link(name, RefOr::Ref(link));
        }
        operation = operation.response(status.to_string(), response.build());
    }
    for status in problems(entry, description) {
        let problem = Ref::from_response_name(format!("Problem{status}"));
        operation = operation.response(status.to_string(), RefOr::Ref(problem));
    }
    if !entry.rule.is_open() {
        operation = operation.security(SecurityRequirement::new("token", [""; 0]));
    }
    operation
}

/// The answer that tells of a problem.
fn problem(status: u16) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    let response = ResponseBuilder::new().description(meaning(status)).content(PROBLEM, content);
    let seconds = || Header::new(ObjectBuilder::new().schema_type(Type::Integer));
    match status {
        429 | 503 => response.header("Retry-After", seconds()).build(),
        _ => response.build(),
    }
}

/// From this answer to everything that can be asked of what it tells of.
fn links<S: Service>(table: &Table<S>, from: &str) -> Vec<(String, Link)> {
    let mut links = Vec::new();
    for (_, begins) in LEADS.iter().filter(|(answer, _)| *answer == from) {
        // What agents alone may ask leads nobody else anywhere.
        let of_it = |entry: &&Entry| {
            let one_id = entry.path.matches('{').count() == 1;
            entry.path.starts_with(begins) && one_id && entry.rule.allows(Scope::Admin)
        };
        for entry in table.routes().iter().map(|route| &route.entry).filter(of_it) {
            let id = operation_id(entry);
            let link = Link::builder().operation_id(id.clone());
            links.push((id, link.parameter("id", "$response.body#/id").build()));
        }
    }
    links
}

/// The problems that a route can have.
fn problems(entry: &Entry, description: &Description) -> Vec<u16> {
    let mut problems = vec![400, 403, 429, 500, 503];
    if !entry.rule.is_open() {
        problems.push(401);
    }
    if entry.path.contains('{') {
        problems.extend([404, 409]);
    }
    if description.body.is_some() {
        problems.push(413);
    }
    if entry.method != Method::GET {
        problems.extend([404, 409, 410, 412, 422]);
    }
    problems.sort_unstable();
    problems.dedup();
    problems
}

const fn meaning(status: u16) -> &'static str {
    match status {
        200 => "Done.",
        201 => "Made.",
        202 => "Taken.",
        204 => "Removed.",
        400 => "The request makes no sense.",
        401 => "No token, or one that opens nothing.",
        403 => "The token is not for this, or the host is not this server's.",
        404 => "There is no such thing.",
        409 => "Not from the state that it is in, or an id that stands for several.",
        410 => "It is over.",
        412 => "It was changed since it was seen.",
        413 => "It is larger than is taken.",
        422 => "A rule forbids it, or the key was used for something else.",
        429 => "Too many tokens from this address opened nothing.",
        500 => "A fault of Belay's own.",
        503 => "Not now; ask again.",
        _ => "An answer.",
    }
}

fn path_parameter(name: &str) -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(LONGEST_ID));
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The id, or the first letters of it that are unique."))
        .schema(Some(schema))
        .build()
}

fn header(name: &str, says: &str, text: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .description(Some(says))
        .schema(Some(text.schema_type(Type::String)))
        .build()
}

/// `GET /api/v1/tasks/{id}/why` is `get_tasks_id_why`.
pub(crate) fn operation_id(entry: &Entry) -> String {
    let path = entry.path.strip_prefix("/api/v1").unwrap_or(entry.path);
    let words = path.split(['/', '.']).map(|word| word.trim_matches(['{', '}', '*']));
    let words = words.filter(|word| !word.is_empty());
    let method = entry.method.as_str().to_ascii_lowercase();
    [method.as_str()].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

/// The resource that a path is about.
fn tag(path: &str) -> &str {
    let rest = path.strip_prefix("/api/v1").or(path.strip_prefix("/api")).unwrap_or(path);
    rest.split('/').find(|word| !word.is_empty()).unwrap_or("node")
}

fn http_method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        Method::PUT => HttpMethod::Put,
        _ => HttpMethod::Get,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_known_by_its_method_and_path() {
        for (method, path, id, resource) in [
            (Method::GET, "/api/v1/tasks/{id}/why", "get_tasks_id_why", "tasks"),
            (Method::POST, "/api/v1/tasks", "post_tasks", "tasks"),
            (Method::GET, "/api/v1/openapi.json", "get_openapi_json", "openapi.json"),
            (Method::POST, "/api/tasks/{id}/run", "post_api_tasks_id_run", "tasks"),
        ] {
            let entry = Entry { method, path, rule: crate::table::OPEN };
            assert_eq!((operation_id(&entry).as_str(), tag(path)), (id, resource));
        }
    }
}
