//! The conformance suite on PostgreSQL, directly and behind a transaction pooler, and what can go
//! wrong with it.
//!
//! One binary without a harness: all its tests share one server, which ends with it. To a test
//! runner it is three tests.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use belay_store::{Postgres, PostgresOptions};
use futures_util::FutureExt as _;

mod place;
mod postgres_faults;
mod postgres_pooled;
mod server;
mod suite;

use server::Server;
use server::pooler::Pooler;
use suite::*;

/// What a test runner sees.
const PARTS: [&str; 3] = ["on_postgresql", "behind_a_pooler", "postgresql_faults"];

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {
        /// Every case in a database of its own, reached as `route` says.
        async fn conformance(
            server: &Server,
            route: &dyn Fn(&str, &str) -> String,
            chosen: &dyn Fn(&str) -> bool,
        ) -> Vec<&'static str> {
            let mut failed = Vec::new();
            $(
                let name = stringify!($case);
                if chosen(name) {
                    let (database, url) = server.database();
                    let url = route(&database, &url);
                    let store = Postgres::open(PostgresOptions::new(&url)).await.unwrap();
                    let run = $module::$case(Arc::new(store));
                    if !passes(name, run).await {
                        failed.push(name);
                    }
                    server.drop_database(&database);
                }
            )*
            failed
        }
    };
}

for_every_case!(cases);

/// Runs one test and says how it went, also when it panics.
#[allow(clippy::print_stdout, reason = "this binary is a test runner")]
async fn passes(name: &str, run: impl Future<Output = ()>) -> bool {
    let began = Instant::now();
    let run = AssertUnwindSafe(tokio::time::timeout(std::time::Duration::from_secs(120), run));
    let passed = matches!(run.catch_unwind().await, Ok(Ok(())));
    let verdict = if passed { "ok" } else { "FAILED" };
    println!("test {name} ... {verdict} ({} ms)", began.elapsed().as_millis());
    passed
}

/// Runs the parts in `parts`, and of their cases those that are `chosen`.
async fn run(parts: &[&str], chosen: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut server = Server::start();
    let mut failed = Vec::new();
    if parts.contains(&PARTS[0]) {
        failed.extend(conformance(&server, &|_, url| url.to_owned(), chosen).await);
    }
    if parts.contains(&PARTS[1])
        && let Some(pooler) = Pooler::start(&server)
    {
        let route = |database: &str, _: &str| pooler.url_of(database);
        failed.extend(conformance(&server, &route, chosen).await);
        failed.extend(postgres_pooled::all(&server, &pooler, chosen).await);
    }
    if parts.contains(&PARTS[2]) {
        failed.extend(postgres_faults::all(&mut server, chosen).await);
    }
    failed
}

#[allow(clippy::print_stdout, reason = "this binary is a test runner")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        if !has("--ignored") {
            PARTS.iter().for_each(|part| println!("{part}: test"));
        }
        return ExitCode::SUCCESS;
    }
    let named = |part: &&str| arguments.iter().any(|argument| argument == *part);
    let parts: Vec<&str> = PARTS.into_iter().filter(named).collect();
    let parts = if parts.is_empty() { PARTS.to_vec() } else { parts };
    let wanted: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-') && !PARTS.contains(&argument.as_str()))
        .collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|want| name.contains(*want));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let failed = runtime.block_on(run(&parts, &chosen));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
