//! The conformance suite: what every provider must hold, whatever the agent does.
//!
//! Each case is a function over a [`World`], which knows how to open a provider and how to look at
//! its processes from outside. The agents are scripts for busybox, so that the same ones run in a
//! process sandbox and in a container.

pub(crate) mod basics;
pub(crate) mod hostile;
pub(crate) mod input;
pub(crate) mod stdout;
pub(crate) mod world;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use world::World;

/// One case: its name, and what it does.
type Case<W> = (&'static str, for<'a> fn(&'a W) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>);

/// Makes a list of cases out of the functions of the suite.
macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        fn cases<W: World>() -> Vec<Case<W>> {
            vec![$((stringify!($name), |world| Box::pin($module::$name(world)))),*]
        }
    };
}

/// How many cases run at a time.
const AT_A_TIME: usize = 4;
/// No case takes longer.
const CASE_LIMIT: Duration = Duration::from_secs(90);

/// Runs every case in this world, and fails with the names of those that failed. With `BELAY_CASE`
/// set, only the cases whose name contains it.
pub(crate) fn run_all<W: World>(title: &str, world: W) {
    let filter = std::env::var("BELAY_CASE").unwrap_or_default();
    let waiting: Vec<Case<W>> =
        cases().into_iter().filter(|(name, _)| name.contains(&filter)).rev().collect();
    assert!(!waiting.is_empty(), "no case is called `{filter}`");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(AT_A_TIME)
        .enable_all()
        .build()
        .unwrap();
    let (world, waiting) = (Arc::new(world), Arc::new(Mutex::new(waiting)));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (world, waiting) = (Arc::clone(&world), Arc::clone(&waiting));
            let (failed, title) = (Arc::clone(&failed), title.to_owned());
            runtime.spawn(async move {
                loop {
                    let Some((name, case)) = waiting.lock().unwrap().pop() else { break };
                    let began = Instant::now();
                    let fine = run_one(case(&world)).await;
                    let verdict = if fine { "ok" } else { "FAILED" };
                    let seconds = began.elapsed().as_secs_f64();
                    say(&format!("{title}: {name} … {verdict} ({seconds:.2} s)"));
                    if !fine {
                        failed.lock().unwrap().push(name);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        runtime.block_on(worker).unwrap();
    }
    let failed = failed.lock().unwrap();
    assert!(failed.is_empty(), "{title}: failed: {failed:?}");
}

/// Tells whoever reads the test's output.
#[allow(clippy::print_stdout)]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

async fn run_one(case: Pin<Box<dyn Future<Output = ()> + Send + '_>>) -> bool {
    use futures_util::FutureExt;
    let case = AssertUnwindSafe(case).catch_unwind();
    matches!(tokio::time::timeout(CASE_LIMIT, case).await, Ok(Ok(())))
}

cases! {
    basics::an_agent_runs_and_its_output_and_exit_are_known,
    basics::nothing_runs_before_start,
    basics::every_call_may_be_repeated,
    basics::a_lower_epoch_is_refused,
    basics::a_stop_before_creation_leaves_a_tombstone,
    basics::standard_input_is_written_once,
    basics::signals_reach_the_agent,
    basics::exit_signals_are_told_from_exit_codes,
    basics::a_sandbox_whose_lease_is_not_renewed_dies_before_it_ends,
    basics::a_sandbox_that_is_never_started_dies_with_its_lease,
    basics::renewals_keep_it_alive,
    basics::pause_freezes_and_resume_goes_on,
    basics::what_is_kept_frozen_goes_on_for_the_next_attempt,
    basics::a_snapshot_gives_the_files_back,
    basics::a_new_provider_reattaches,
    basics::list_and_inspect_see_it,
    basics::the_environment_is_only_what_the_plan_says,
    basics::the_rest_of_the_machine_is_hidden,
    basics::the_network_can_be_cut,
    hostile::daemons_that_ignore_signals,
    hostile::a_fork_bomb,
    hostile::ten_thousand_lines_a_second,
    hostile::a_line_of_ten_megabytes,
    hostile::binary_output,
    hostile::closes_its_output_and_runs_on,
    hostile::fills_its_disk,
    hostile::eats_memory,
    hostile::stops_itself,
    hostile::leaves_zombies,
    hostile::changes_its_title,
    hostile::a_child_in_a_new_mount_namespace,
    stdout::a_file_arrives_whole_and_in_order,
    stdout::a_file_that_grows_is_read_while_it_grows,
    stdout::what_children_left_in_the_file_arrives,
    stdout::the_file_cannot_be_emptied,
    input::a_tree_that_does_not_exist,
    input::a_program_that_is_missing,
    input::a_program_that_is_not_executable,
    input::an_environment_variable_with_nul,
    input::a_truncated_snapshot,
}
