//! `cargo xtask chaos [--seconds N] [--seed S]`: real faults, real processes, for a bounded time.
//!
//! The test itself is `crates/belay/tests/chaos`, of which the usual tests have a short run.

use crate::run::{Outcome, Workspace, passes};

/// How long there is trouble in each of the two runs, if nobody says.
const SECONDS: &str = "120";

/// Runs the chaos test for longer.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    let variables = match choose(arguments) {
        Ok(variables) => variables,
        Err(sentence) => return Outcome::Misused(sentence),
    };
    let words = match workspace.has("cargo-nextest") {
        true => vec!["nextest", "run", "--no-capture", "--workspace", "--test", "chaos"],
        false => vec!["test", "--workspace", "--test", "chaos", "--", "--nocapture"],
    };
    passes(workspace.cargo(&words).envs(variables))
}

/// The variables that the test reads, or a sentence that says what can be said.
fn choose(arguments: &[String]) -> Result<Vec<(&'static str, String)>, String> {
    let mut variables = vec![("BELAY_CHAOS_SECONDS", SECONDS.to_owned())];
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let name = match word.as_str() {
            "--seconds" => "BELAY_CHAOS_SECONDS",
            "--seed" => "BELAY_CHAOS_SEED",
            other => {
                let known = "known are --seconds N and --seed S";
                return Err(format!("`{other}` is not an option of chaos; {known}."));
            }
        };
        match words.next().filter(|number| number.parse::<u64>().is_ok()) {
            Some(number) => variables.push((name, number.clone())),
            None => return Err(format!("`{word}` wants a number.")),
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_and_from_which_seed_can_be_said() {
        let choose = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            choose(&arguments).map(|all| all.into_iter().map(|(_, value)| value).collect())
        };
        let said = |values: &[&str]| -> Result<Vec<String>, String> {
            Ok(values.iter().map(ToString::to_string).collect())
        };
        assert_eq!(choose(&[]), said(&["120"]));
        assert_eq!(choose(&["--seconds", "5", "--seed", "7"]), said(&["120", "5", "7"]));
        assert_eq!(choose(&["--seed"]), Err("`--seed` wants a number.".to_owned()));
        assert!(choose(&["--fast"]).is_err_and(|sentence| sentence.contains("--seconds N")));
    }
}
