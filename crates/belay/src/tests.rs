//! The command line as people see it.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};

fn help(subcommand: Option<&str>) -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    match subcommand {
        None => command.render_long_help().to_string(),
        Some(name) => {
            let found = command.find_subcommand_mut(name).unwrap();
            found.render_long_help().to_string()
        }
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_tells_every_command_and_exit_code() {
    insta::assert_snapshot!("help", help(None));
}

#[test]
fn help_of_run_tells_every_flag() {
    insta::assert_snapshot!("help_run", help(Some("run")));
}

#[test]
fn help_of_logs_and_accept() {
    insta::assert_snapshot!("help_logs", help(Some("logs")));
    insta::assert_snapshot!("help_accept", help(Some("accept")));
}

#[test]
fn what_follows_two_dashes_is_the_program() {
    let cli = Cli::try_parse_from(["belay", "run", "p", "--", "sh", "-c", "exit 1"]).unwrap();
    let Command::Run(run) = cli.command else { panic!() };
    assert_eq!(run.prompt.as_deref(), Some("p"));
    assert_eq!(run.program, ["sh", "-c", "exit 1"]);
    let cli = Cli::try_parse_from(["belay", "run", "--", "true"]).unwrap();
    let Command::Run(run) = cli.command else { panic!() };
    assert_eq!((run.prompt, run.program), (None, vec!["true".to_owned()]));
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for line in [
        vec!["belay", "run"],
        vec!["belay", "run", "p", "--timeout", "soon"],
        vec!["belay", "run", "p", "--publish", "everywhere"],
        vec!["belay", "show"],
        vec!["belay", "stop", "x", "--wait", "-1"],
    ] {
        let error = Cli::try_parse_from(&line).unwrap_err();
        assert_ne!(error.kind(), ErrorKind::DisplayHelp);
        assert_eq!(error.exit_code(), 2, "{line:?}");
    }
}

#[test]
fn json_and_the_data_directory_are_taken_everywhere() {
    for line in [
        vec!["belay", "--json", "ls"],
        vec!["belay", "ls", "--json", "--data-dir", "/srv/x"],
        vec!["belay", "why", "abcd", "--json"],
    ] {
        assert!(Cli::try_parse_from(&line).unwrap().shared.json, "{line:?}");
    }
}

/// A document of this repository.
fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_command_has_an_example_in_its_document() {
    let text = document("cli.md");
    let command = Cli::command();
    for name in command.get_subcommands().map(clap::Command::get_name) {
        assert!(text.contains(&format!("$ belay {name}")), "docs/cli.md: {name}");
    }
    for line in crate::fault::EXIT_CODES.lines().skip(1) {
        let code = line.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("| {code} |")), "docs/cli.md: exit code {code}");
    }
}

#[test]
fn every_setting_is_in_its_document() {
    let text = document("configuration.md");
    for entry in crate::config::Config::default().entries() {
        let key = entry.key.rsplit('.').next().unwrap().to_owned();
        let told = if entry.key.starts_with("limits.") {
            let value = entry.value.as_str().unwrap().to_owned();
            text.contains(&format!("| `{key}` | {value} |"))
        } else {
            text.contains(&format!("{key} = ")) || text.contains(&format!("| `{key}` |"))
        };
        assert!(told, "docs/configuration.md: {}", entry.key);
    }
}
