//! The simulator's part of CI: planted bugs are found, and fresh worlds hold.

use crate::run::{Outcome, Workspace, passes};
use crate::tidy;

/// For how many minutes CI lives through worlds that nobody has seen before.
const MINUTES: &str = "2";

/// The simulator finds every bug that is planted in the real code. The whole workspace is selected,
/// so that what others wrote is compiled with the features that it has already been compiled with.
pub(crate) fn planted_bugs(workspace: &Workspace) -> Outcome {
    let mut words = match workspace.has("cargo-nextest") {
        true => vec!["nextest", "run"],
        false => vec!["test"],
    };
    words.extend(["--workspace", "--features", "belay-sim/planted", "--test", "bites"]);
    words.push("--no-fail-fast");
    passes(&mut workspace.cargo(&words))
}

/// Worlds from a seed that the clock gives, which is printed.
pub(crate) fn fresh_worlds(workspace: &Workspace) -> Outcome {
    let built = passes(&mut workspace.cargo(&["build", "--workspace", "--bin", "belay"]));
    if built != Outcome::Passed {
        return built;
    }
    match tidy::target_directory(workspace) {
        Ok(target) => {
            let belay = target.join("debug/belay").display().to_string();
            passes(workspace.command(&belay).args(["sim", "--minutes", MINUTES]))
        }
        Err(why) => Outcome::Failed(why),
    }
}
