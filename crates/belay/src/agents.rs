//! Whether the agent that is asked for can work: known, installed, with credentials. What cannot
//! work is refused before anything is made.

use std::collections::BTreeMap;

use belay_agent::{Agent, Credentials, Found, Machine};

use crate::fault::Fault;

/// The agent with this name, else a refusal that lists the known ones and the nearest.
pub(crate) fn by_name(name: &str) -> Result<Agent, Fault> {
    name.parse().map_err(|error: belay_agent::AgentError| {
        let nearest = Agent::ALL.iter().map(|agent| (distance(name, agent.name()), agent));
        let nearest = nearest.filter(|(distance, _)| *distance <= 2).min_by_key(|(d, _)| *d);
        let hint = nearest.map_or(String::new(), |(_, agent)| format!("; did you mean `{agent}`?"));
        Fault::usage(format!("{error}{hint}"))
    })
}

/// What installs an agent.
pub(crate) const fn installed_with(agent: Agent) -> &'static str {
    match agent {
        Agent::Claude => "npm install -g @anthropic-ai/claude-code",
        Agent::Codex => "npm install -g @openai/codex",
        Agent::Gemini => "npm install -g @google/gemini-cli",
        Agent::OpenCode => "npm install -g opencode-ai",
        Agent::Copilot => "npm install -g @github/copilot",
        Agent::Cursor => "curl https://cursor.com/install -fsS | bash",
        Agent::Acp | Agent::Command => "belay run … -- PROGRAM",
    }
}

/// The agent to take where none is named: the first that is installed and has credentials.
pub(crate) fn any(machine: &Machine) -> Result<Agent, Fault> {
    let found = belay_agent::detect(machine);
    let ready = |found: &&Found| matches!(found.credentials, Credentials::Variable(_));
    if let Some(found) = found.iter().find(ready) {
        return Ok(found.agent);
    }
    Err(Fault::refused(match found.first() {
        Some(found) => without_credentials(found.agent, &found.credentials),
        None => format!(
            "no agent is installed; install one (`{}`, …), or run a program of yours: `belay run \
             \"…\" -- PROGRAM`",
            installed_with(Agent::Claude)
        ),
    }))
}

/// Whether an agent can work here, given the variables that it will get.
pub(crate) fn check(
    agent: Agent,
    machine: &Machine,
    environment: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    let Some(program) = agent.program() else { return Ok(()) };
    let Some(found) = belay_agent::detect_one(agent, machine) else {
        return Err(Fault::refused(format!(
            "{agent} is not installed: there is no `{program}` on the PATH; `{}` installs it",
            installed_with(agent)
        )));
    };
    // Whoever names variables may know a way that is not known here.
    if environment.is_empty() {
        return Err(Fault::refused(without_credentials(agent, &found.credentials)));
    }
    Ok(())
}

fn without_credentials(agent: Agent, credentials: &Credentials) -> String {
    let variables = agent.credential_variables().join(" or ");
    let why = match credentials {
        Credentials::File(file) => {
            format!("has credentials in ~/{file} only, and a sandbox does not see your home")
        }
        Credentials::Variable(_) | Credentials::NotSeen => "has no credentials".to_owned(),
    };
    format!("{agent} {why}; set {variables}, or name other variables with --env")
}

/// How many letters have to be changed, put in or left out to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn a_name_that_is_not_known_suggests_the_nearest() {
        for (name, hint) in [
            ("cluade", "; did you mean `claude`?"),
            ("codx", "; did you mean `codex`?"),
            ("hal9000", ""),
        ] {
            let text = by_name(name).unwrap_err().text;
            assert!(text.contains("known are claude, codex, gemini"), "{text}");
            assert!(text.ends_with(&format!("command{hint}")), "{text}");
        }
        assert_eq!(by_name("gemini"), Ok(Agent::Gemini));
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in
            [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn an_agent_that_cannot_work_is_refused_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let mut machine = Machine {
            path: directory.path().into(),
            home: directory.path().join("home"),
            variables: Vec::new(),
            limit: Duration::from_secs(5),
        };
        let none = BTreeMap::new();
        let text = check(Agent::Claude, &machine, &none).unwrap_err().text;
        assert!(text.contains("`npm install -g @anthropic-ai/claude-code` installs it"), "{text}");
        assert!(any(&machine).unwrap_err().text.starts_with("no agent is installed"));

        let program = directory.path().join("claude");
        std::fs::write(&program, "#!/bin/sh\necho 2.1.325\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let fault = check(Agent::Claude, &machine, &none).unwrap_err();
        assert!(fault.text.contains("has no credentials; set ANTHROPIC_API_KEY or"), "{fault}");
        assert_eq!(fault.exit, crate::fault::Exit::Refused);
        let some = BTreeMap::from([("ANTHROPIC_API_KEY".to_owned(), "x".to_owned())]);
        assert_eq!(check(Agent::Claude, &machine, &some), Ok(()));
        machine.variables = vec!["ANTHROPIC_API_KEY".into()];
        assert_eq!(any(&machine), Ok(Agent::Claude));
        assert_eq!(check(Agent::Command, &machine, &none), Ok(()));
    }
}
