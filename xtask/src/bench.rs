//! `cargo xtask bench [NAME [WORDS]]`: the measurements of one crate, or of all that have any. What
//! follows the name is handed to the measurement.

use crate::run::{Outcome, Workspace, passes};
use crate::tidy;

/// The crates that are measured.
const MEASURED: &[&str] = &["kernel", "store", "sandbox", "agent", "run", "api"];

/// The package that holds a measurement: the whole is measured where the binary is, and what is
/// said over the wire where it is listened to.
fn package(name: &str) -> String {
    match name {
        "run" => "belay".to_owned(),
        "api" => "belay-server".to_owned(),
        name => format!("belay-{name}"),
    }
}

/// Runs the benches that `arguments` name.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    let there = match tidy::crate_names(workspace) {
        Ok(names) => names,
        Err(why) => return Outcome::Failed(why),
    };
    let chosen = match choose(arguments, &there) {
        Ok(chosen) => chosen,
        Err(sentence) => return Outcome::Misused(sentence),
    };
    let failed: Vec<_> = chosen
        .into_iter()
        .filter(|name| {
            let package = package(name);
            let mut bench = workspace.cargo(&["bench", "--package", &package]);
            if arguments.len() > 1 {
                bench.arg("--").args(&arguments[1..]);
            }
            passes(&mut bench) != Outcome::Passed
        })
        .collect();
    if failed.is_empty() { Outcome::Passed } else { Outcome::Failed(failed.join(", ")) }
}

/// Which crates to measure, or a sentence that says what can be measured.
fn choose(arguments: &[String], there: &[String]) -> Result<Vec<&'static str>, String> {
    let exists = |name: &&str| there.iter().any(|known| *known == package(name));
    let all: Vec<_> = MEASURED.iter().copied().filter(exists).collect();
    match arguments {
        [] => Ok(all),
        [name, ..] if all.contains(&name.as_str()) => {
            Ok(all.into_iter().filter(|known| known == name).collect())
        }
        [name, ..] if MEASURED.contains(&name.as_str()) => {
            Err(format!("`{name}` has no crate yet; there are {}.", all.join(", ")))
        }
        other => {
            Err(format!("`{}` is not measured; known are {}.", other.join(" "), all.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_chosen_by_name_or_all_that_there_are() {
        let there = ["belay-kernel".to_owned(), "belay-agent".to_owned()];
        let choose = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            choose(&arguments, &there)
        };
        assert_eq!(choose(&[]), Ok(vec!["kernel", "agent"]));
        assert_eq!(choose(&["agent"]), Ok(vec!["agent"]));
        assert_eq!(
            choose(&["store"]),
            Err("`store` has no crate yet; there are kernel, agent.".to_owned())
        );
        assert_eq!(
            choose(&["moon"]),
            Err("`moon` is not measured; known are kernel, agent.".to_owned())
        );
    }
}
