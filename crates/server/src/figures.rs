//! What the server counts of requests: by route, never by what a client wrote.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use belay_control::metrics::{Exposition, Histogram};

use crate::table::Entry;

/// What was counted of each route.
#[derive(Debug)]
pub(crate) struct Figures {
    routes: Vec<OfRoute>,
}

#[derive(Debug)]
struct OfRoute {
    method: String,
    path: &'static str,
    /// By the first digit of the status.
    answers: [AtomicU64; 6],
    took: Histogram,
}

impl Figures {
    /// Nothing was counted of these routes yet.
    pub(crate) fn new<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let of = |entry: &Entry| OfRoute {
            method: entry.method.to_string(),
            path: entry.path,
            answers: Default::default(),
            took: Histogram::default(),
        };
        Self { routes: entries.map(of).collect() }
    }

    /// The route at this place of the table answered so.
    pub(crate) fn answered(&self, place: usize, status: StatusCode, took: Duration) {
        let Some(route) = self.routes.get(place) else { return };
        let class = usize::from(status.as_u16() / 100).min(5);
        route.answers[class].fetch_add(1, Ordering::Relaxed);
        route.took.add(took);
    }

    /// Writes down what was counted of the routes that were asked for.
    pub(crate) fn tell(&self, page: &mut Exposition) {
        let asked =
            |route: &&OfRoute| route.answers.iter().any(|count| count.load(Ordering::Relaxed) > 0);
        let asked: Vec<_> = self.routes.iter().filter(asked).collect();
        let name = "belay_http_requests_total";
        page.family(name, "counter", "Requests to this node, by route and class of status.");
        for route in &asked {
            for (class, count) in route.answers.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let status = format!("{class}xx");
                    let labels = [
                        ("method", route.method.as_str()),
                        ("route", route.path),
                        ("status", &status),
                    ];
                    page.value(name, &labels, count);
                }
            }
        }
        let name = "belay_http_request_seconds";
        page.family(name, "histogram", "How long requests to this node took, by route.");
        for route in &asked {
            let labels = [("method", route.method.as_str()), ("route", route.path)];
            page.histogram(name, &labels, &route.took);
        }
    }
}
