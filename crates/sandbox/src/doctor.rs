//! What this machine can do for sandboxes, and what each missing part costs: what `belay doctor`
//! prints, and where capabilities come from. Everything is found by trying it.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::os::bwrap::Bubblewrap;
use crate::os::cgroup::Cgroups;
use crate::os::clock;
use crate::os::pid::ProcessRef;
use crate::provider::Capabilities;

/// One part of the machine: whether it is there, and what it would cost to do without.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What it is for: `isolate`, `kill`, `pause`, `limit`, `containers`, `identity`.
    pub ability: String,
    /// Whether it works here.
    pub works: bool,
    /// What was found.
    pub found: String,
    /// What its absence costs; nothing if it works.
    pub cost: Option<String>,
    /// What would bring it; nothing if it works.
    pub remedy: Option<String>,
}

/// What this machine can isolate, kill, pause and limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// One for each ability.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Tries everything out. `sockets` are the engine sockets to look at. Blocks for some
    /// milliseconds, or a few seconds where something hangs.
    pub fn examine(sockets: &[PathBuf]) -> Self {
        let bubblewrap = Bubblewrap::find();
        let name = format!("belay-doctor-{}", std::process::id());
        let cgroups = Cgroups::find(&name);
        cgroups.remove_empty();
        let root = rustix::process::geteuid().is_root();
        let mut findings = vec![
            isolation(&bubblewrap),
            kill(&cgroups, bubblewrap.is_ok()),
            pause(&cgroups),
            limit(&cgroups, "memory", "one agent can use up the machine's memory", false),
            limit(&cgroups, "cpu", "one agent can slow down all others", false),
            limit(
                &cgroups,
                "pids",
                "a fork bomb is stopped only by the machine's own limit",
                bubblewrap.is_ok() && !root,
            ),
            identity(),
        ];
        findings.extend(sockets.iter().map(|socket| engine(socket)));
        Self { findings }
    }

    /// Whether everything works.
    pub fn is_complete(&self) -> bool {
        self.findings.iter().all(|finding| finding.works)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let mark = if finding.works { "ok" } else { "--" };
            writeln!(f, "{mark}  {:<14} {}", finding.ability, finding.found)?;
            for (word, text) in [("costs", &finding.cost), ("remedy", &finding.remedy)] {
                if let Some(text) = text {
                    writeln!(f, "    {:<14} {word}: {text}", "")?;
                }
            }
        }
        Ok(())
    }
}

fn finding(ability: &str, found: Result<String, String>, cost: &str, remedy: &str) -> Finding {
    let works = found.is_ok();
    let (Ok(found) | Err(found)) = found;
    Finding {
        ability: ability.into(),
        works,
        found,
        cost: (!works).then(|| cost.into()),
        remedy: (!works).then(|| remedy.into()),
    }
}

fn isolation(bubblewrap: &Result<Bubblewrap, String>) -> Finding {
    let found = bubblewrap.as_ref().map(|found| found.program.display().to_string());
    finding(
        "isolate",
        found.map_err(Clone::clone),
        "agents see the home directory, Belay's data and other tasks' trees; the network cannot be \
         cut; publishing is refused unless the role allows it",
        "install bubblewrap, and allow user namespaces to ordinary users",
    )
}

fn kill(cgroups: &Cgroups, namespaces: bool) -> Finding {
    let found = match (cgroups.can_kill(), namespaces) {
        (true, true) => Ok("cgroup v2 and the PID namespace".into()),
        (true, false) => Ok("cgroup v2".into()),
        (false, true) => Ok("the PID namespace".into()),
        (false, false) => Err("neither a writable cgroup v2 nor a PID namespace".into()),
    };
    finding(
        "kill",
        found,
        "processes are found by their parents and by their environment: one that hides from both \
         would survive a stop, and the proof says `none_found`",
        "install bubblewrap, or run Belay where it may make cgroups",
    )
}

fn pause(cgroups: &Cgroups) -> Finding {
    let found = match cgroups.can_kill() {
        true => Ok(format!("the cgroup freezer; {}", cgroups.summary())),
        false => Err("no writable cgroup v2".into()),
    };
    finding(
        "pause",
        found,
        "idle sessions are kept as file snapshots; running processes cannot be kept",
        "run Belay as root, or as a service with `Delegate=yes`",
    )
}

fn limit(cgroups: &Cgroups, controller: &str, cost: &str, counted: bool) -> Finding {
    let found = match (cgroups.has(controller), counted) {
        (true, _) => Ok(format!("the {controller} controller")),
        (false, true) => Ok("counted by user namespace".into()),
        (false, false) => Err(format!("no writable {controller} controller")),
    };
    let remedy = "run Belay as root, or as a service with `Delegate=yes`";
    finding(&format!("limit {controller}"), found, cost, remedy)
}

fn identity() -> Finding {
    let own = ProcessRef::of(std::process::id());
    let found = match own {
        Some(ProcessRef { unique: Some(_), .. }) => Ok("unique process numbers (pidfs)".into()),
        Some(_) => Err("PIDs with start times only".into()),
        None => Err("/proc does not show this process".into()),
    };
    finding(
        "identity",
        found,
        "a PID that is used again within a hundredth of a second cannot be told from the old one",
        "a kernel of version 6.9 or later",
    )
}

fn engine(socket: &Path) -> Finding {
    let found = match ping(socket) {
        Ok(()) => Ok(format!("an engine answers at {}", socket.display())),
        Err(error) => Err(format!("{}: {error}", socket.display())),
    };
    finding(
        "containers",
        found,
        "roles with the Docker provider cannot run here",
        "start the engine, and let this user use its socket",
    )
}

fn ping(socket: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    match answer.ends_with(b" 200") {
        true => Ok(()),
        false => Err(std::io::Error::other("it does not answer like an engine")),
    }
}

/// What process sandboxes can do here.
pub(crate) fn process_capabilities(
    cgroups: &Cgroups,
    bubblewrap: &Result<Bubblewrap, String>,
) -> Capabilities {
    let isolation = bubblewrap.is_ok();
    let root = rustix::process::geteuid().is_root();
    let mut weaker: Vec<String> = Vec::new();
    if let Err(why) = bubblewrap {
        weaker.push(format!("{why}: agents see the whole machine, and share its network"));
    }
    if !cgroups.can_kill() {
        weaker.push("no writable cgroup v2: no pause, and a kill relies on namespaces".into());
    }
    if !isolation && !cgroups.can_kill() {
        weaker
            .push("a process that hides from its parents and its environment is not found".into());
    }
    for controller in ["memory", "cpu", "pids"] {
        if !cgroups.has(controller) {
            weaker.push(format!("no writable {controller} controller: at most limits per process"));
        }
    }
    if root {
        weaker.push("Belay runs as root: agents read what root may read, where it is shown".into());
    }
    if clock::boot_id().is_empty() {
        weaker.push("the boot cannot be told: after a reboot old records are tried out".into());
    }
    Capabilities {
        provider: "process".into(),
        pause: cgroups.can_kill(),
        memory_snapshot: false,
        file_snapshot: true,
        isolation,
        network_cut: isolation,
        memory_limit: cgroups.has("memory"),
        process_limit: cgroups.has("pids") || (isolation && !root),
        cpu_limit: cgroups.has("cpu"),
        complete_kill: isolation || cgroups.can_kill(),
        weaker,
    }
}

/// What containers can do, wherever an engine runs.
pub(crate) fn docker_capabilities() -> Capabilities {
    Capabilities {
        provider: "docker".into(),
        pause: true,
        memory_snapshot: false,
        file_snapshot: true,
        isolation: true,
        network_cut: true,
        memory_limit: true,
        process_limit: true,
        cpu_limit: true,
        complete_kill: true,
        weaker: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_it_costs_and_what_would_help() {
        let missing = limit(&Cgroups::default(), "memory", "much", false);
        assert!(!missing.works && missing.cost.is_some() && missing.remedy.is_some());
        let report = Report { findings: vec![missing] };
        assert_eq!(
            report.to_string(),
            "--  limit memory   no writable memory controller\n                   \
             costs: much\n                   \
             remedy: run Belay as root, or as a service with `Delegate=yes`\n"
        );
        assert!(!report.is_complete());
    }

    #[test]
    fn the_report_covers_every_ability_and_leaves_nothing_behind() {
        let report = Report::examine(&["/nowhere/engine.sock".into()]);
        let abilities: Vec<&str> = report.findings.iter().map(|f| f.ability.as_str()).collect();
        assert_eq!(
            abilities.join(", "),
            "isolate, kill, pause, limit memory, limit cpu, limit pids, identity, containers"
        );
        for finding in &report.findings {
            assert_eq!(finding.works, finding.cost.is_none(), "{finding:?}");
        }
        assert!(!report.findings[7].works);
        let name = format!("belay-doctor-{}", std::process::id());
        for hierarchy in ["", "unified", "pids", "cpu"] {
            assert!(!Path::new("/sys/fs/cgroup").join(hierarchy).join(&name).exists());
        }
    }

    #[test]
    fn without_anything_everything_weak_is_said() {
        let capabilities = process_capabilities(&Cgroups::default(), &Err("no bwrap".into()));
        assert!(!capabilities.complete_kill && !capabilities.pause && !capabilities.isolation);
        assert!(capabilities.weaker.len() >= 6, "{:?}", capabilities.weaker);
    }
}
