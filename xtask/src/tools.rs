//! What the checks need on the machine, as data, and how what is missing gets there.
//!
//! Cargo's tools are installed from source into a directory that all checkouts share; Debian's
//! packages are installed only by root, and only once the crate that needs them exists.

use std::path::{Path, PathBuf};

use crate::run::{Outcome, Workspace, passes};

/// A cargo subcommand, with the version that is installed when there is none.
pub(crate) struct Tool {
    program: &'static str,
    version: &'static str,
}

/// Licences, bans, sources, advisories.
pub(crate) const DENY: Tool = Tool { program: "cargo-deny", version: "0.20.2" };
/// Unused dependencies. Rejected: cargo-udeps, which needs a nightly compiler.
pub(crate) const MACHETE: Tool = Tool { program: "cargo-machete", version: "0.9.2" };
/// Mutation tests.
pub(crate) const MUTANTS: Tool = Tool { program: "cargo-mutants", version: "27.1.0" };

impl Tool {
    /// Installs the tool if it is not there.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<(), String> {
        if workspace.has(self.program) {
            return Ok(());
        }
        println!("{} is missing; installing {}", self.program, self.version);
        // A debug build: it takes half as long to make, and none of these tools is slow.
        let mut install = workspace.cargo(&["install", "--locked", "--debug", "--quiet", "--root"]);
        install.arg(workspace.tools()).args(["--version", self.version, self.program]);
        // Built beside the workspace's own output, not into it.
        install.env_remove("CARGO_TARGET_DIR");
        match passes(&mut install) {
            Outcome::Passed => Ok(()),
            _ => Err(format!("{} could not be installed", self.program)),
        }
    }
}

/// What tries the API by its description; from PyPI.
const SCHEMATHESIS: &str = "4.32.5";

/// The program schemathesis, installed into an environment of its own if it is not there.
pub(crate) fn schemathesis(workspace: &Workspace) -> Result<PathBuf, String> {
    let place = workspace.tools().join(format!("schemathesis-{SCHEMATHESIS}"));
    let program = place.join("bin/schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    println!("schemathesis is missing; installing {SCHEMATHESIS}");
    let failed = |what: &str| format!("schemathesis could not be installed: {what}");
    let mut environment = workspace.command("python3");
    environment.args(["-m", "venv", "--clear"]).arg(&place);
    if passes(&mut environment) != Outcome::Passed {
        return Err(failed("python3 makes no environment (Debian: python3-venv)"));
    }
    let mut install = workspace.command(&place.join("bin/pip").display().to_string());
    install.args(["install", "--quiet", "--disable-pip-version-check"]);
    install.arg(format!("schemathesis=={SCHEMATHESIS}"));
    match passes(&mut install) {
        Outcome::Passed => Ok(program),
        _ => Err(failed("pip failed")),
    }
}

/// A Debian package that tests use, and how to see that it is there.
struct Package {
    name: &'static str,
    /// A program, or a directory, that the package brings.
    brings: &'static str,
    /// The crate whose tests need it.
    crate_name: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "git", brings: "git", crate_name: "xtask" },
    Package { name: "python3-venv", brings: "python3", crate_name: "belay-server" },
    Package { name: "curl", brings: "curl", crate_name: "belay" },
    Package { name: "postgresql", brings: "/usr/lib/postgresql", crate_name: "belay-store" },
    Package { name: "pgbouncer", brings: "pgbouncer", crate_name: "belay-store" },
    Package { name: "faketime", brings: "faketime", crate_name: "belay-store" },
    Package { name: "bubblewrap", brings: "bwrap", crate_name: "belay-sandbox" },
    Package { name: "busybox-static", brings: "busybox", crate_name: "belay-sandbox" },
    Package { name: "docker.io", brings: "dockerd", crate_name: "belay-sandbox" },
    Package { name: "podman", brings: "podman", crate_name: "belay-sandbox" },
    Package { name: "iproute2", brings: "ip", crate_name: "belay-sandbox" },
];

/// The packages that the crates in `crates` need and that `there` does not find.
fn missing(crates: &[String], there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    PACKAGES
        .iter()
        .filter(|package| crates.iter().any(|name| name == package.crate_name))
        .filter(|package| !there(package.brings))
        .map(|package| package.name)
        .collect()
}

/// Installs the Debian packages that are missing, or says which ones they are.
pub(crate) fn packages(workspace: &Workspace) -> Outcome {
    let crates = match crate::tidy::crate_names(workspace) {
        Ok(crates) => crates,
        Err(why) => return Outcome::Failed(why),
    };
    let missing = missing(&crates, |brings| {
        if brings.starts_with('/') { Path::new(brings).is_dir() } else { workspace.has(brings) }
    });
    let able = if is_root(workspace) && workspace.has("apt-get") { Able::Yes } else { Able::No };
    if let Some(outcome) = without_installing(&missing, able) {
        return outcome;
    }
    println!("installing {}", missing.join(" "));
    let apt = |arguments: &[&str]| {
        let mut command = workspace.command("apt-get");
        // Another installation may hold the lock: wait for it, within reason.
        command.args(["--quiet", "--yes", "--option", "DPkg::Lock::Timeout=300"]);
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        passes(&mut command)
    };
    match apt(&["update"]) {
        Outcome::Passed => apt(&[&["install", "--no-install-recommends"], &missing[..]].concat()),
        other => other,
    }
}

/// Whether packages can be installed here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Able {
    Yes,
    No,
}

/// How it ends if nothing is missing, or if what is missing cannot be installed.
fn without_installing(missing: &[&str], able: Able) -> Option<Outcome> {
    match (missing, able) {
        ([], Able::Yes | Able::No) => Some(Outcome::Passed),
        (_, Able::Yes) => None,
        (names, Able::No) => Some(Outcome::Skipped(format!(
            "tests that need them will fail or be skipped; as root: apt-get install {}",
            names.join(" ")
        ))),
    }
}

fn is_root(workspace: &Workspace) -> bool {
    crate::run::output(workspace.command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_needed_by_crates_that_exist_and_only_while_missing() {
        let nothing = |_: &str| false;
        assert_eq!(missing(&["belay-kernel".to_owned()], nothing), [""; 0]);
        let sandbox = ["belay-sandbox".to_owned()];
        let all = ["bubblewrap", "busybox-static", "docker.io", "podman", "iproute2"];
        assert_eq!(missing(&sandbox, nothing), all);
        assert_eq!(missing(&sandbox, |brings| brings != "bwrap"), ["bubblewrap"]);
        assert_eq!(missing(&sandbox, |_| true), [""; 0]);
    }

    #[test]
    fn who_cannot_install_is_told_what_to_install() {
        assert_eq!(without_installing(&[], Able::No), Some(Outcome::Passed));
        assert_eq!(without_installing(&["bubblewrap"], Able::Yes), None);
        let told = without_installing(&["bubblewrap", "iproute2"], Able::No);
        assert!(
            matches!(&told, Some(Outcome::Skipped(why))
                if why.ends_with("apt-get install bubblewrap iproute2")),
            "{told:?}"
        );
    }
}
