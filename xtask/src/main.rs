//! `cargo xtask COMMAND`: see `cargo xtask help`.

#![expect(clippy::print_stdout, reason = "automation speaks to the person who runs it")]
#![expect(clippy::print_stderr, reason = "what went wrong belongs on stderr")]

use std::process::ExitCode;

use xtask::{Outcome, Workspace, api, bench, chaos, ci, mutants, tidy, up, worlds};

/// One command: its name, what `help` says about it, what it does.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        about: "run every check and test, as CI does; installs what is missing",
        run: |workspace, _| ci::run(workspace),
    },
    Command {
        name: "up",
        about: "build Belay and run `belay up`, or ten tasks with --demo [--demo] [--release]",
        run: up::run,
    },
    Command {
        name: "api",
        about: "try the server with what its own description allows, and with what it does not",
        run: |workspace, _| api::run(workspace),
    },
    Command {
        name: "tidy",
        about: "check the house rules alone",
        run: |workspace, _| tidy::run(workspace),
    },
    Command {
        name: "mutants",
        about: "change the kernel in small ways and see its tests fail [cargo-mutants options]",
        run: mutants::run,
    },
    Command {
        name: "bites",
        about: "see that the simulator finds the bugs that are planted in the real code",
        run: |workspace, _| worlds::planted_bugs(workspace),
    },
    Command {
        name: "worlds",
        about: "live through 400 fresh simulated worlds",
        run: |workspace, _| worlds::fresh_worlds(workspace),
    },
    Command {
        name: "chaos",
        about: "kill, stop and starve a real server under load [--seconds N] [--seed S]",
        run: chaos::run,
    },
    Command {
        name: "bench",
        about: "measure [kernel|store|sandbox|agent|run|api [SOAK_SECONDS]], or all that there are",
        run: bench::run,
    },
];

/// The command was not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("help", &[][..]),
    };
    if matches!(name, "help" | "--help" | "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        let known: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        eprintln!("`{name}` is not a command; known are {} and help.", known.join(", "));
        return ExitCode::from(USAGE);
    };
    match (command.run)(&Workspace::find(), rest) {
        Outcome::Passed | Outcome::Skipped(_) => ExitCode::SUCCESS,
        Outcome::Failed(reason) => {
            eprintln!("{name}: {reason}");
            ExitCode::FAILURE
        }
        Outcome::Misused(sentence) => {
            eprintln!("{sentence}");
            ExitCode::from(USAGE)
        }
    }
}

fn help() -> String {
    let lines = COMMANDS.iter().map(|command| format!("  {:<10}{}\n", command.name, command.about));
    let help = format!("  {:<10}{}\n", "help", "say this");
    format!("cargo xtask COMMAND\n\n{}{help}", lines.collect::<String>())
}
