//! The conformance suite on PostgreSQL, and what can go wrong with it.
//!
//! One binary without a harness: all its tests share one server, which ends with it. To a test
//! runner it is one test.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use belay_store::{Postgres, PostgresOptions};
use futures_util::FutureExt as _;

mod postgres_faults;
mod server;
mod suite;

use server::Server;
use suite::*;

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {
        async fn conformance(server: &Server, chosen: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
            let mut failed = Vec::new();
            $(
                let name = stringify!($case);
                if chosen(name) {
                    let (database, url) = server.database();
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

#[allow(clippy::print_stdout, reason = "this binary is a test runner")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        if !has("--ignored") {
            println!("on_postgresql: test");
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-') && *argument != "on_postgresql")
        .collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|want| name.contains(*want));
    let mut server = Server::start();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let failed = runtime.block_on(async {
        let mut failed = conformance(&server, &chosen).await;
        failed.extend(postgres_faults::all(&mut server, &chosen).await);
        failed
    });
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
