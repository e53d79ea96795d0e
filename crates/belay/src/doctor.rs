//! `belay doctor`: what this machine can do, what is missing, what that costs, what fixes it.

use std::path::PathBuf;

use belay_agent::{Agent, Credentials, Known, Machine};
use belay_sandbox::{Finding, Report};

use crate::agents::installed_with;
use crate::connect::{Link, Start};
use crate::data::Data;
use crate::fault::{Exit, Fault};
use crate::screen::{Ink, Palette, say, say_json};

/// Looks at everything, and says what it finds. Succeeds if an agent can work here.
pub(crate) async fn doctor(data: &Data, json: bool) -> Result<Exit, Fault> {
    let mut findings = vec![git(), data_directory(data), server(data).await];
    let looked = tokio::task::spawn_blocking(|| {
        let mut found = Report::examine(&engine_sockets()).findings;
        found.extend(agents(&Machine::here()));
        found
    });
    findings.extend(looked.await.unwrap_or_default());
    if json {
        say_json(&Report { findings });
    } else {
        say(&text(&findings, Palette::stdout()));
    }
    Ok(Exit::Done)
}

/// The engine sockets that are looked at.
pub(crate) fn engine_sockets() -> Vec<PathBuf> {
    let named = std::env::var("DOCKER_HOST").ok();
    match named.as_deref().and_then(|host| host.strip_prefix("unix://")) {
        Some(path) => vec![PathBuf::from(path)],
        None => vec![PathBuf::from("/var/run/docker.sock")],
    }
}

fn text(findings: &[Finding], palette: Palette) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let (mark, ink) = if finding.works { ("ok", Ink::Good) } else { ("--", Ink::Attention) };
        let mark = palette.paint(ink, mark);
        lines.push(format!("{mark}  {:<14} {}", finding.ability, finding.found));
        for (word, text) in [("costs", &finding.cost), ("fix", &finding.remedy)] {
            if let Some(text) = text {
                lines.push(format!("    {:<14} {word}: {text}", ""));
            }
        }
    }
    lines.join("\n")
}

fn finding(ability: &str, found: Result<String, String>, cost: &str, remedy: String) -> Finding {
    let works = found.is_ok();
    let (Ok(found) | Err(found)) = found;
    Finding {
        ability: ability.to_owned(),
        works,
        found,
        cost: (!works).then(|| cost.to_owned()),
        remedy: (!works).then_some(remedy),
    }
}

fn git() -> Finding {
    let ran = std::process::Command::new("git").arg("--version").output();
    let found = match ran {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("git ends with {}", output.status)),
        Err(error) => Err(format!("git cannot be started: {error}")),
    };
    let cost = "tasks on repositories cannot run";
    finding("git", found, cost, "apt install git, or what installs it here".into())
}

fn data_directory(data: &Data) -> Finding {
    let root = data.root();
    let made = data.make().map_err(|fault| fault.text);
    let probe = data.path(&format!("doctor.{}", std::process::id()));
    let found = made.and_then(|()| {
        std::fs::write(&probe, b"").map_err(|error| format!("{}: {error}", root.display()))
    });
    // It was only to see whether it can be made.
    let _ = std::fs::remove_file(&probe);
    let found = found.map(|()| root.display().to_string());
    let remedy = format!("chown {} to you, or name another with --data-dir", root.display());
    finding("data", found, "no server can run here", remedy)
}

async fn server(data: &Data) -> Finding {
    let found = match Link::open(data, Start::Never).await {
        Ok(link) => match link.client().health().await {
            Ok(health) => Ok(format!(
                "{} answers `{}`, version {}, {}, {} attempts under way",
                link.client().url(),
                health.status,
                health.version,
                health.store,
                health.attempts
            )),
            Err(error) => Err(Fault::from(error).text),
        },
        Err(fault) => Err(fault.text),
    };
    finding("server", found, "nothing: `belay run` starts one", "belay up".into())
}

/// One finding for each agent that has a usual program.
fn agents(machine: &Machine) -> Vec<Finding> {
    let usual = Agent::ALL.into_iter().filter(|agent| agent.program().is_some());
    usual.map(|agent| one_agent(agent, machine)).collect()
}

fn one_agent(agent: Agent, machine: &Machine) -> Finding {
    let cost = format!("`belay run --agent {agent}` is refused");
    let Some(found) = belay_agent::detect_one(agent, machine) else {
        let missing = Err("not installed".to_owned());
        return finding(agent.name(), missing, &cost, installed_with(agent).to_owned());
    };
    let version = found.version.map_or("unknown version".to_owned(), |v| v.to_string());
    let known = match found.known {
        Known::Tested => "tested",
        Known::Near => "near what is tested",
        Known::Older => "older than what is tested",
        Known::Newer => "newer than what is tested",
        Known::Unknown => "not tested",
    };
    let head = format!("{} {version} ({known})", found.program.display());
    let variables = agent.credential_variables();
    let remedy = format!("export {}=…", variables.first().unwrap_or(&"API_KEY"));
    let found = match found.credentials {
        Credentials::Variable(name) => Ok(format!("{head}, credentials in ${name}")),
        Credentials::File(file) => {
            Err(format!("{head}, credentials in ~/{file} only, which a sandbox does not see"))
        }
        Credentials::NotSeen => Err(format!("{head}, no credentials")),
    };
    finding(agent.name(), found, &cost, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_it_costs_and_what_fixes_it() {
        let machine = Machine {
            path: "/nowhere".into(),
            home: "/nowhere".into(),
            variables: vec![],
            limit: std::time::Duration::from_secs(1),
        };
        let findings = agents(&machine);
        assert_eq!(findings.len(), 6);
        insta::assert_snapshot!(text(&findings[..2], Palette::plain()));
    }
}
