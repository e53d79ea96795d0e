//! The simulator from here: planted bugs are found, and fresh worlds hold.

use crate::run::{Outcome, Workspace, output, passes};
use crate::tidy;

/// How many worlds are lived through that nobody has seen before.
const FRESH: &str = "400";

/// The simulator finds every bug that is planted in the real code. The whole workspace is selected,
/// so that what others wrote is compiled with the features that it has already been compiled with.
pub fn planted_bugs(workspace: &Workspace) -> Outcome {
    let mut words = match workspace.has("cargo-nextest") {
        true => vec!["nextest", "run"],
        false => vec!["test"],
    };
    words.extend(["--workspace", "--features", "belay-sim/planted", "--test", "bites"]);
    words.push("--no-fail-fast");
    passes(&mut workspace.cargo(&words))
}

/// Worlds from a seed that the commit gives: new ones with every change, and the same ones whenever
/// that change is looked at again.
pub fn fresh_worlds(workspace: &Workspace) -> Outcome {
    let built = passes(&mut workspace.cargo(&["build", "--workspace", "--bin", "belay"]));
    if built != Outcome::Passed {
        return built;
    }
    match tidy::target_directory(workspace) {
        Ok(target) => {
            let belay = target.join("debug/belay").display().to_string();
            let seed = seed_of_commit(workspace).to_string();
            passes(workspace.command(&belay).args(["sim", "--seeds", FRESH, "--seed", &seed]))
        }
        Err(why) => Outcome::Failed(why),
    }
}

/// The first digits of the commit's name; nothing, where there is no git.
fn seed_of_commit(workspace: &Workspace) -> u64 {
    let name = output(workspace.command("git").args(["rev-parse", "HEAD"])).unwrap_or_default();
    name.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
