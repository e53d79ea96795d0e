//! `cargo xtask up [--demo] [--release]`: builds Belay and runs it in the foreground.
//!
//! The build is for development unless `--release` is said: a cold build with optimisation takes
//! several times as long, and nothing that is seen in a first look depends on it.

use std::os::unix::process::CommandExt;

use crate::run::{Outcome, Workspace};

/// Builds, and becomes `belay up` or `belay demo`, so that its signals and exit code are its own.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Outcome {
    let words = match choose(arguments) {
        Ok(words) => words,
        Err(sentence) => return Outcome::Misused(sentence),
    };
    if !workspace.has("git") {
        return Outcome::Failed("git is not on the path; Belay works on git repositories".into());
    }
    let error = workspace.cargo(&words).exec();
    Outcome::Failed(format!("`cargo` could not be run: {error}"))
}

/// The words for cargo, or a sentence that says what can be said.
fn choose(arguments: &[String]) -> Result<Vec<&'static str>, String> {
    let (mut words, mut subcommand) = (vec!["run", "--package", "belay"], "up");
    for argument in arguments {
        match argument.as_str() {
            "--demo" => subcommand = "demo",
            "--release" => words.push("--release"),
            other => {
                let known = "known are --demo and --release";
                return Err(format!("`{other}` is not an option of up; {known}."));
            }
        }
    }
    words.extend(["--", subcommand]);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_is_run_for_development_unless_said_otherwise() {
        let choose = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            choose(&arguments).map(|words| words.join(" "))
        };
        assert_eq!(choose(&[]), Ok("run --package belay -- up".to_owned()));
        assert_eq!(
            choose(&["--demo", "--release"]),
            Ok("run --package belay --release -- demo".to_owned())
        );
        assert_eq!(
            choose(&["--fast"]),
            Err("`--fast` is not an option of up; known are --demo and --release.".to_owned())
        );
    }
}
