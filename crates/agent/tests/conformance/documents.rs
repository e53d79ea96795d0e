//! The table in docs/agents.md is made from the code. Set `BELAY_UPDATE_DOCS` to write it anew.

use std::fs;
use std::path::Path;

use belay_agent::Agent;
use belay_model_server::clis;

const BEGIN: &str = "<!-- table: made by the tests of belay-agent -->\n";
const END: &str = "<!-- end of table -->\n";

#[test]
fn the_table_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (_, tail) = rest.split_once(END).expect("the table has an end");
    let current = format!("{head}{BEGIN}{}{END}{tail}", belay_agent::table());
    if std::env::var_os("BELAY_UPDATE_DOCS").is_some() {
        fs::write(&path, current).unwrap();
    } else {
        assert!(page == current, "set BELAY_UPDATE_DOCS to write docs/agents.md anew");
    }
}

#[test]
fn the_tested_versions_are_the_pinned_ones() {
    for (agent, package) in [
        (Agent::Claude, "@anthropic-ai/claude-code"),
        (Agent::Codex, "@openai/codex"),
        (Agent::Gemini, "@google/gemini-cli"),
        (Agent::OpenCode, "opencode-ai"),
        (Agent::Copilot, "@github/copilot"),
    ] {
        let tested = agent.facts().tested.expect("it is run in the tests");
        assert_eq!(clis::pinned(package), Some(tested.to_string()), "{package}");
    }
}
