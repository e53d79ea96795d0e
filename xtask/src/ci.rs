//! `cargo xtask ci`: every check, in order, as a table of steps.
//!
//! A step that fails does not hide the others: all run, all are reported, and one failure fails the
//! whole. A step that cannot look says why in the summary; it never looks like a pass.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::run::{Outcome, Workspace, passes};
use crate::{api, tidy, tools, worlds};

/// One thing that is checked.
struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Outcome,
}

/// Everything that is checked, cheapest first where the order is free.
const STEPS: &[Step] = &[
    Step { name: "packages", run: tools::packages },
    Step { name: "format", run: |w| passes(&mut w.cargo(&["fmt", "--all", "--check"])) },
    Step { name: "tidy", run: tidy::run },
    Step { name: "clippy", run: clippy },
    Step { name: "tests", run: tests },
    Step { name: "planted bugs", run: worlds::planted_bugs },
    Step { name: "fresh worlds", run: worlds::fresh_worlds },
    Step { name: "doctests", run: |w| passes(&mut w.cargo(&["test", "--workspace", "--doc"])) },
    Step { name: "documentation", run: documentation },
    Step { name: "the API as described", run: api::run },
    Step { name: "licences, bans, sources", run: licences },
    Step { name: "advisories", run: advisories },
    Step { name: "unused dependencies", run: unused_dependencies },
];

/// Runs all steps.
pub fn run(workspace: &Workspace) -> Outcome {
    run_steps(STEPS, workspace)
}

fn run_steps(steps: &[Step], workspace: &Workspace) -> Outcome {
    let mut results = Vec::new();
    for step in steps {
        println!("\n──── {} ────", step.name);
        let started = Instant::now();
        let outcome = (step.run)(workspace);
        let took = started.elapsed();
        println!("──── {}: {} in {}", step.name, word(&outcome), seconds(took));
        results.push((step.name, outcome, took));
    }
    println!("\n{}", summary(&results));
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_) | Outcome::Misused(_)))
        .map(|(name, ..)| *name)
        .collect();
    if failed.is_empty() { Outcome::Passed } else { Outcome::Failed(failed.join("; ")) }
}

fn clippy(workspace: &Workspace) -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    passes(&mut workspace.cargo(&arguments))
}

/// nextest where it is present: a process per test, and a clear summary. Else `cargo test`.
fn tests(workspace: &Workspace) -> Outcome {
    if workspace.has("cargo-nextest") {
        return passes(&mut workspace.cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]));
    }
    println!("cargo-nextest is not there; using cargo test");
    passes(&mut workspace.cargo(&["test", "--workspace", "--all-targets", "--no-fail-fast"]))
}

fn documentation(workspace: &Workspace) -> Outcome {
    let mut doc = workspace.cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    passes(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn licences(workspace: &Workspace) -> Outcome {
    if let Err(why) = tools::DENY.ensure(workspace) {
        return Outcome::Failed(why);
    }
    let arguments = ["deny", "--workspace", "check", "licenses", "bans", "sources"];
    passes(&mut workspace.cargo(&arguments))
}

/// The database is fetched first and by itself: only that tells “unreachable” from “found one”.
fn advisories(workspace: &Workspace) -> Outcome {
    if let Err(why) = tools::DENY.ensure(workspace) {
        return Outcome::Failed(why);
    }
    if passes(&mut workspace.cargo(&["deny", "fetch", "db"])) != Outcome::Passed {
        return Outcome::Skipped("the advisory database cannot be reached".to_owned());
    }
    let arguments = ["deny", "--workspace", "check", "--disable-fetch", "advisories"];
    passes(&mut workspace.cargo(&arguments))
}

fn unused_dependencies(workspace: &Workspace) -> Outcome {
    if let Err(why) = tools::MACHETE.ensure(workspace) {
        return Outcome::Failed(why);
    }
    // Called by its own name: below `cargo run` it takes the word `machete` for a directory.
    passes(&mut workspace.command("cargo-machete"))
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) | Outcome::Misused(_) => "FAILED",
        Outcome::Skipped(_) => "skipped",
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// One line per step: its name, how it ended, how long it took, and why it did not pass.
fn summary(results: &[(&str, Outcome, Duration)]) -> String {
    let mut text = String::new();
    for (name, outcome, took) in results {
        let why = match outcome {
            Outcome::Passed => "",
            Outcome::Failed(why) | Outcome::Skipped(why) | Outcome::Misused(why) => why,
        };
        let line = format!("{name:<24} {:<8} {:>9}  {why}", word(outcome), seconds(*took));
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_failing_step_hides_no_other_and_fails_the_whole() {
        static RAN: AtomicU32 = AtomicU32::new(0);
        fn count(outcome: Outcome) -> Outcome {
            RAN.fetch_add(1, Ordering::Relaxed);
            outcome
        }
        let steps = [
            Step { name: "one", run: |_| count(Outcome::Failed("broken".to_owned())) },
            Step { name: "two", run: |_| count(Outcome::Skipped("no root".to_owned())) },
            Step { name: "three", run: |_| count(Outcome::Failed("also".to_owned())) },
            Step { name: "four", run: |_| count(Outcome::Passed) },
        ];
        let whole = run_steps(&steps, &Workspace::find());
        assert_eq!(whole, Outcome::Failed("one; three".to_owned()));
        assert_eq!(RAN.load(Ordering::Relaxed), 4);
        assert_eq!(run_steps(&steps[1..2], &Workspace::find()), Outcome::Passed);
    }

    #[test]
    fn the_summary_says_why() {
        let took = Duration::from_millis(1_234);
        let results = [
            ("format", Outcome::Passed, took),
            ("tests", Outcome::Failed("exit status: 100".to_owned()), took),
            ("advisories", Outcome::Skipped("unreachable".to_owned()), took),
        ];
        let lines = [
            "format                   passed       1.2 s",
            "tests                    FAILED       1.2 s  exit status: 100",
            "advisories               skipped      1.2 s  unreachable",
        ];
        assert_eq!(summary(&results).lines().collect::<Vec<_>>(), lines);
    }
}
