//! Which crate may know which: the directions of dependency, held by a test.
//!
//! `kernel ← {store, agent, sandbox} ← {control, runner} ← server ← belay`, and
//! `api ← {control, runner, server, belay}`: control answers in the words of the wire. Control and
//! runner do not know each other: whatever one could reach in the other in process, it could not
//! reach from another machine. Nothing but the binary depends on sim, for `belay sim`.

use super::{Kind, Tree};

/// Each crate, and the crates of ours that it may use outside its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("belay-kernel", &[]),
    ("belay-store", &["belay-kernel"]),
    ("belay-agent", &["belay-kernel"]),
    ("belay-sandbox", &["belay-kernel"]),
    ("belay-api", &["belay-kernel"]),
    ("belay-control", &["belay-kernel", "belay-store", "belay-agent", "belay-api"]),
    ("belay-runner", &["belay-kernel", "belay-store", "belay-agent", "belay-sandbox", "belay-api"]),
    (
        "belay-server",
        &[
            "belay-kernel",
            "belay-store",
            "belay-agent",
            "belay-sandbox",
            "belay-api",
            "belay-control",
            "belay-runner",
        ],
    ),
    (
        "belay",
        &[
            "belay-kernel",
            "belay-store",
            "belay-agent",
            "belay-sandbox",
            "belay-api",
            "belay-control",
            "belay-runner",
            "belay-server",
            "belay-sim",
        ],
    ),
    (
        "belay-sim",
        &[
            "belay-kernel",
            "belay-store",
            "belay-agent",
            "belay-sandbox",
            "belay-api",
            "belay-control",
            "belay-runner",
            "belay-server",
        ],
    ),
    ("belay-model-server", &[]),
    ("xtask", &[]),
];

/// The simulator, on which nothing but the binary depends, not even in tests.
const SIM: &str = "belay-sim";
/// The scripted model, which only tests use.
const MODEL_SERVER: &str = "belay-model-server";

/// Crates use only what is allowed to them.
pub(super) fn crate_edges(tree: &Tree) -> Vec<String> {
    let ours = |name: &str| tree.packages.iter().any(|package| package.name == name);
    let mut findings = Vec::new();
    for package in &tree.packages {
        let name = &package.name;
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            findings.push(format!("{name} has no place yet; give it one in {}", file!()));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| ours(&d.name)) {
            let to = dependency.name.as_str();
            let fine = match dependency.kind {
                Kind::Development => to != SIM,
                Kind::Normal | Kind::Build => to != MODEL_SERVER && allowed.contains(&to),
            };
            if !fine {
                findings.push(format!("{name} must not depend on {to}"));
            }
        }
    }
    findings
}

/// The kernel is pure: beyond the standard library it has derives alone: serde's, thiserror's and,
/// with its feature `schema`, utoipa's descriptions.
pub(super) fn kernel_dependencies(tree: &Tree) -> Vec<String> {
    tree.packages
        .iter()
        .filter(|package| package.name == "belay-kernel")
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.kind != Kind::Development)
        .filter(|dependency| !matches!(dependency.name.as_str(), "serde" | "thiserror" | "utoipa"))
        .map(|dependency| format!("the kernel must not depend on {}", dependency.name))
        .collect()
}

/// A crate appears with the change that fills it.
pub(super) fn no_empty_crates(tree: &Tree) -> Vec<String> {
    /// Fewer lines of code than this are a placeholder.
    const LEAST: usize = 20;
    tree.packages
        .iter()
        .filter_map(|package| {
            let source = format!("{}/src/", package.folder);
            let lines = tree
                .ending(".rs")
                .filter(|(path, _)| path.starts_with(&source))
                .flat_map(|(_, text)| text.lines())
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with("//"))
                .count();
            (lines < LEAST).then(|| format!("{} has {lines} lines of code", package.name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{crates, files};
    use super::*;

    #[test]
    fn edges_point_one_way() {
        let good: [(&str, &[&str]); 6] = [
            ("belay-kernel", &["serde", "dev:belay-model-server"]),
            ("belay-store", &["belay-kernel", "tokio"]),
            ("belay-control", &["belay-store", "belay-kernel", "dev:belay-store"]),
            ("belay-sim", &["belay-control", "dev:belay-kernel"]),
            ("belay", &["belay-sim"]),
            ("belay-model-server", &[]),
        ];
        assert_eq!(crate_edges(&crates(&good)), [""; 0]);
        for (from, to) in [
            ("belay-kernel", "belay-store"),
            ("belay-store", "belay-agent"),
            ("belay-control", "belay-sandbox"),
            ("belay-control", "belay-runner"),
            ("belay-runner", "belay-control"),
            ("belay-api", "belay-server"),
            ("belay-server", "belay"),
            ("belay-server", "belay-sim"),
            ("belay-runner", "dev:belay-sim"),
            ("belay-sim", "belay-model-server"),
            ("xtask", "belay-kernel"),
        ] {
            let target = to.trim_start_matches("dev:");
            let found = crate_edges(&crates(&[(from, &[to]), (target, &[])]));
            assert_eq!(found, [format!("{from} must not depend on {target}")]);
        }
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let found = crate_edges(&crates(&[("belay-helpers", &[])]));
        assert!(found[0].starts_with("belay-helpers has no place yet"), "{found:?}");
    }

    #[test]
    fn the_kernel_uses_two_crates() {
        let tree = crates(&[("belay-kernel", &["serde", "thiserror", "rand", "dev:proptest"])]);
        assert_eq!(kernel_dependencies(&tree), ["the kernel must not depend on rand"]);
    }

    #[test]
    fn a_placeholder_is_found() {
        let mut tree = files(&[("crates/store/src/lib.rs", "//! Nothing yet.\nfn f() {}\n")]);
        tree.packages = crates(&[("belay-store", &[])]).packages;
        assert_eq!(no_empty_crates(&tree), ["belay-store has 1 lines of code"]);
        let full = format!("//! Full.\n{}", "fn f() {}\n".repeat(20));
        let mut tree = files(&[("crates/store/src/lib.rs", &full)]);
        tree.packages = crates(&[("belay-store", &[])]).packages;
        assert_eq!(no_empty_crates(&tree), [""; 0]);
    }
}
