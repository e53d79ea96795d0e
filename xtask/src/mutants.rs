//! `cargo xtask mutants`: small changes to the kernel that its tests must notice.
//!
//! A mutant that survives is a missing test, or it changes nothing that can be seen. Those of the
//! second kind are listed with their reason in `xtask/mutants.txt`, and the list must match: a
//! survivor that is not listed fails the run, and so does a listed one that no longer survives.
//!
//! Only the kernel's unit tests are built and run against each mutant: they decide on their own,
//! and the model checks would take a hundred times as long without judging better. They are built
//! without optimisation and run as threads of one process: nearly all of the time goes into
//! building, once for each of a thousand mutants.

use std::collections::BTreeSet;

use crate::run::{Outcome, Workspace, passes};
use crate::tools;

/// Where the explained survivors are.
const EXPLAINED: &str = "xtask/mutants.txt";
/// Where cargo-mutants leaves its results, below the build directory.
const OUTPUT: &str = "target/mutants";
/// What every build and test run of cargo-mutants adds to its cargo command.
const QUICKLY: [&str; 2] =
    ["--cargo-arg=--lib", "--cargo-arg=--config=profile.dev.package.belay-kernel.opt-level=0"];

/// Runs cargo-mutants, with `arguments` added, and compares its survivors to the explained ones.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    if let Err(why) = tools::MUTANTS.ensure(workspace) {
        return Outcome::Failed(why);
    }
    let mut mutants = workspace.cargo(&["mutants", "--package", "belay-kernel"]);
    mutants.args(["--output", OUTPUT, "--no-shuffle", "--colors", "never"]);
    mutants.args(["--minimum-test-timeout", "30", "--baseline", "run"]);
    mutants.args(QUICKLY).args(arguments);
    // Its exit status tells survivors from faults only by number; the files it leaves tell all.
    let ended = passes(&mut mutants);
    let read = |name: &str| {
        let path = workspace.root().join(OUTPUT).join("mutants.out").join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (missed, timeout) = match (read("missed.txt"), read("timeout.txt")) {
        (Ok(missed), Ok(timeout)) => (missed, timeout),
        (Err(why), _) | (_, Err(why)) => return Outcome::Failed(format!("{ended:?}; {why}")),
    };
    let explained = std::fs::read_to_string(workspace.root().join(EXPLAINED)).unwrap_or_default();
    let survivors = format!("{missed}\n{timeout}");
    let findings = match explained_survivors(&explained) {
        Ok(explained) => compare(&survivors, &explained, arguments.is_empty()),
        Err(findings) => findings,
    };
    for finding in &findings {
        println!("{finding}");
    }
    match (Outcome::of_findings(&findings), ended) {
        (Outcome::Passed, Outcome::Failed(why)) if survivors.trim().is_empty() => {
            Outcome::Failed(why)
        }
        (outcome, _) => outcome,
    }
}

/// The mutants in the list, or its lines that give no reason. A line is `MUTANT  # REASON`.
fn explained_survivors(list: &str) -> Result<BTreeSet<String>, Vec<String>> {
    let mut explained = BTreeSet::new();
    let mut findings = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.rsplit_once("  # ") {
            Some((mutant, reason)) if !reason.trim().is_empty() => {
                explained.insert(mutant.trim().to_owned());
            }
            _ => findings.push(format!("{EXPLAINED}: `{line}` gives no reason after `  # `")),
        }
    }
    if findings.is_empty() { Ok(explained) } else { Err(findings) }
}

/// What differs between the survivors and the explained ones.
fn compare(survivors: &str, explained: &BTreeSet<String>, whole_kernel: bool) -> Vec<String> {
    let survivors: BTreeSet<String> =
        survivors.lines().filter(|line| !line.is_empty()).map(without_position).collect();
    let unexplained = survivors.difference(explained).map(|mutant| format!("survived: {mutant}"));
    let outdated = explained
        .difference(&survivors)
        .filter(|_| whole_kernel)
        .map(|mutant| format!("{EXPLAINED}: no longer survives: {mutant}"));
    unexplained.chain(outdated).collect()
}

/// `path:12:5: what` as `path: what`: positions move with every edit above them.
fn without_position(mutant: &str) -> String {
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(path), Some(_line), Some(_column), Some(what)) => format!("{path}:{what}"),
        _ => mutant.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# why these cannot be told apart\n\
        src/a.rs: replace < with <= in f  # both are zero there\n";

    fn check(survivors: &str, whole_kernel: bool) -> Vec<String> {
        compare(survivors, &explained_survivors(LIST).unwrap(), whole_kernel)
    }

    #[test]
    fn survivors_must_be_explained_and_explanations_must_survive() {
        let listed = "src/a.rs:12:5: replace < with <= in f\n";
        assert_eq!(check(listed, true), [""; 0]);
        assert_eq!(
            check("", true),
            ["xtask/mutants.txt: no longer survives: src/a.rs: replace < with <= in f"]
        );
        assert_eq!(check("", false), [""; 0], "a part of the kernel says nothing about the rest");
        assert_eq!(
            check(&format!("{listed}src/b.rs:1:1: replace g with ()"), true),
            ["survived: src/b.rs: replace g with ()"]
        );
    }

    #[test]
    fn an_explanation_without_a_reason_is_refused() {
        for line in ["src/a.rs: replace f with ()", "src/a.rs: replace f with ()  #  "] {
            assert_eq!(explained_survivors(line).unwrap_err().len(), 1, "{line}");
        }
    }
}
