//! What flags, settings and the environment make of a task.

use super::*;
use crate::cli::{Cli, Command};
use crate::fault::Exit;
use clap::Parser;

fn run(arguments: &[&str]) -> Run {
    let line = ["belay", "run"].iter().chain(arguments);
    match Cli::try_parse_from(line).unwrap().command {
        Command::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

fn built(arguments: &[&str], variables: &[(&str, &str)]) -> Result<NewTask, Fault> {
    let config = Config::default();
    let machine = Machine {
        path: "/nowhere".into(),
        home: "/nowhere".into(),
        variables: Vec::new(),
        limit: std::time::Duration::from_secs(1),
    };
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let here = Here {
        config: &config,
        repository: Some(Path::new("/srv/project")),
        machine: &machine,
        variable: &variable,
    };
    build(&run(arguments), &here)
}

#[test]
fn a_program_needs_no_prompt_and_no_agent() {
    let task = built(&["--", "make", "-j4"], &[]).unwrap();
    assert_eq!(task.agent.as_deref(), Some("command"));
    assert_eq!(task.command, ["make", "-j4"]);
    assert_eq!(task.title.as_deref(), Some("make -j4"));
    assert_eq!(task.repository.as_deref(), Some("/srv/project"));
    assert_eq!((task.publish, task.review), (Publishing::Branch, Review::Manual));
}

#[test]
fn every_flag_reaches_the_task() {
    let task = built(
        &[
            "do it",
            "--model",
            "m",
            "--repo",
            "https://example.org/x.git",
            "--base",
            "main",
            "--branch",
            "b",
            "--publish",
            "none",
            "--review",
            "auto",
            "--timeout",
            "30m",
            "--inactivity",
            "2m",
            "--budget-usd",
            "1.5",
            "--max-tokens",
            "9",
            "--max-attempts",
            "4",
            "--priority",
            "-3",
            "--role",
            "builder",
            "--env",
            "A=1",
            "--env",
            "B",
            "--provider",
            "docker",
            "--image",
            "i",
            "--keep-alive",
            "--dirty",
            "include",
            "--",
            "prog",
        ],
        &[("B", "two")],
    )
    .unwrap();
    let limit = |key: &str| task.limits.get(key).map(String::as_str);
    assert_eq!(limit("absolute"), Some("30m"));
    assert_eq!((limit("inactivity"), limit("inactivity_quiet")), (Some("2m"), Some("2m")));
    let environment: Vec<_> = task.environment.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(environment, ["A=1", "B=two"]);
    assert_eq!((task.priority, task.max_attempts, task.max_tokens), (-3, Some(4), Some(9)));
    assert_eq!((task.publish, task.review), (Publishing::None, Review::Auto));
    assert_eq!(task.dirty, Dirty::Include);
    assert_eq!(task.provider.as_deref(), Some("docker"));
    assert_eq!(task.repository.as_deref(), Some("https://example.org/x.git"));
    assert!(task.keep_alive && task.budget_usd == Some(1.5));
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_made() {
    for (arguments, exit, text) in [
        (vec!["  "], Exit::Usage, "the prompt is empty"),
        (vec!["x", "--agent", "cluade"], Exit::Usage, "did you mean `claude`?"),
        (vec!["x", "--agent", "claude"], Exit::Refused, "claude is not installed"),
        (vec!["x", "--agent", "command"], Exit::Usage, "`command` needs a program"),
        (vec!["x"], Exit::Refused, "no agent is installed"),
        (vec!["x", "--env", "C", "--", "p"], Exit::Usage, "--env C: there is no such variable"),
        (vec!["x", "--repo", "/nowhere/at-all", "--", "p"], Exit::Usage, "no such directory"),
        (vec!["x", "--provider", "docker"], Exit::Usage, "say which agent the image holds"),
        (vec!["x", "--role", "No!", "--", "p"], Exit::Usage, "is not a role"),
    ] {
        let fault = built(&arguments, &[]).unwrap_err();
        assert!(fault.text.contains(text), "{arguments:?}: {fault}");
        assert_eq!(fault.exit, exit, "{arguments:?}");
    }
}

#[test]
fn an_agent_gets_its_credentials_without_being_asked() {
    // In a container the agent need not be installed here.
    let task = built(
        &["x", "--agent", "claude", "--provider", "docker"],
        &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "other"), ("HOME", "/nowhere")],
    )
    .unwrap();
    assert_eq!(task.environment.keys().collect::<Vec<_>>(), ["ANTHROPIC_API_KEY"]);
}
