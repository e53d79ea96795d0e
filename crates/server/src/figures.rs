//! What the server counts of requests: by route, never by what a client wrote.
//!
//! Everything that is answered is counted, what is refused before its route is asked included: a
//! request whose token opens nothing counts for the route that it was meant for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use belay_control::metrics::{Exposition, Histogram};

use crate::routes::entries;
use crate::service::Service;

/// The method and the route of a request that no route of ours is for.
const OTHER: &str = "other";

/// What was counted of each route.
#[derive(Debug)]
pub struct Figures {
    /// In the order of the table; the last one is for what no route is for.
    routes: Vec<OfRoute>,
    /// Where the routes of a path are.
    by_path: BTreeMap<&'static str, Vec<usize>>,
}

#[derive(Debug)]
struct OfRoute {
    method: String,
    path: &'static str,
    /// By the first digit of the status.
    answers: [AtomicU64; 6],
    took: Histogram,
}

impl OfRoute {
    fn new(method: &str, path: &'static str) -> Self {
        let took = Histogram::default();
        Self { method: method.to_owned(), path, answers: Default::default(), took }
    }
}

impl Figures {
    /// Nothing was counted yet.
    pub fn new<S: Service>() -> Self {
        let mut routes = Vec::new();
        let mut by_path = BTreeMap::<_, Vec<_>>::new();
        for entry in entries::<S>() {
            by_path.entry(entry.path).or_default().push(routes.len());
            routes.push(OfRoute::new(entry.method.as_str(), entry.path));
        }
        routes.push(OfRoute::new(OTHER, OTHER));
        Self { routes, by_path }
    }

    /// The place of the route with this path and method; the last one, if there is none.
    pub(crate) fn place(&self, path: Option<&str>, method: &Method) -> usize {
        let places = path.and_then(|path| self.by_path.get(path)).into_iter().flatten();
        let mut places = places.copied();
        let place = places.find(|place| self.routes[*place].method == method.as_str());
        place.unwrap_or(self.routes.len() - 1)
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
