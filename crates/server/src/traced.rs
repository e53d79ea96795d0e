//! The span of a request: within the trace that the client names, or the first of one.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, Method};
use axum::response::Response;
use belay_control::trace::{Context, Status, TraceSpan, Tracer};

use crate::service::Service;
use crate::table::Matched;

/// A request that is traced.
pub(crate) struct Traced {
    tracer: Tracer,
    own: Context,
    parent: Option<u64>,
    method: String,
    from_ns: u128,
}

fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

impl Traced {
    /// Begins, if anybody traces.
    pub(crate) fn begin<S: Service>(
        service: &S,
        headers: &HeaderMap,
        method: &Method,
    ) -> Option<Self> {
        let tracer = service.tracer()?;
        let given = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let parent = given.and_then(|text| text.parse::<Context>().ok());
        let own = tracer.begin(parent);
        let parent = parent.map(|parent| parent.span);
        Some(Self { tracer, own, parent, method: method.to_string(), from_ns: now_ns() })
    }

    /// What happens within it.
    pub(crate) const fn context(&self) -> Context {
        self.own
    }

    /// It was answered.
    pub(crate) fn end(self, response: &Response, request: &str) {
        let route = response.extensions().get::<Matched>().map_or("no route", |matched| matched.0);
        let status = response.status();
        self.tracer.record(TraceSpan {
            own: self.own,
            parent: self.parent,
            name: format!("{} {route}", self.method),
            serves: true,
            from_ns: self.from_ns,
            until_ns: now_ns(),
            attributes: vec![
                ("http.request.method", self.method),
                ("http.route", route.to_owned()),
                ("http.response.status_code", status.as_u16().to_string()),
                ("belay.request", request.to_owned()),
            ],
            status: match status.is_server_error() {
                true => Status::Failed(status.as_u16().to_string()),
                false => Status::Fine,
            },
        });
    }
}
