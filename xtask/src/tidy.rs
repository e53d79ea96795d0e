//! The house rules, as code: what a reader may rely on everywhere in this repository.
//!
//! Each [`Rule`] looks at the [`Tree`] and returns its findings, one sentence each. Rules are data,
//! so that `cargo xtask tidy` and the test `xtask/tests/tidy.rs` run the same list, and every rule
//! has a unit test in which it finds something: a rule that cannot fail is a defect.

use std::path::PathBuf;

use serde_json::Value;

use crate::run::{Outcome, Workspace, output};

mod docs;
mod edges;
mod setup;
mod source;

/// One house rule.
pub struct Rule {
    /// Its name; also the name of its test.
    pub name: &'static str,
    /// What it finds.
    pub check: fn(&Tree) -> Vec<String>,
}

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule { name: "crate_edges", check: edges::crate_edges },
    Rule { name: "kernel_dependencies", check: edges::kernel_dependencies },
    Rule { name: "no_empty_crates", check: edges::no_empty_crates },
    Rule { name: "lints_are_inherited", check: setup::lints_are_inherited },
    Rule { name: "clippy_rules_are_repeated", check: setup::clippy_rules_are_repeated },
    Rule { name: "function_size_is_a_lint", check: setup::function_size_is_a_lint },
    Rule { name: "planted_bugs_stay_out", check: setup::planted_bugs_stay_out },
    Rule { name: "module_docs", check: source::module_docs },
    Rule { name: "file_size", check: source::file_size },
    Rule { name: "line_length", check: source::line_length },
    Rule { name: "no_unfinished_code", check: source::no_unfinished_code },
    Rule { name: "no_ignored_tests", check: source::no_ignored_tests },
    Rule { name: "kernel_is_pure", check: source::kernel_is_pure },
    Rule { name: "links_resolve", check: docs::links_resolve },
    Rule { name: "documents_are_mapped", check: docs::documents_are_mapped },
    Rule { name: "no_machine_paths", check: docs::no_machine_paths },
    Rule { name: "no_registry_hosts", check: docs::no_registry_hosts },
];

/// Checks every rule and prints what it finds.
pub fn run(workspace: &Workspace) -> Outcome {
    let tree = match Tree::read(workspace) {
        Ok(tree) => tree,
        Err(why) => return Outcome::Failed(why),
    };
    let findings: Vec<String> = RULES
        .iter()
        .flat_map(|rule| {
            (rule.check)(&tree).into_iter().map(|text| format!("{}: {text}", rule.name))
        })
        .collect();
    for finding in &findings {
        println!("{finding}");
    }
    Outcome::of_findings(&findings)
}

/// The names of the workspace's crates.
pub(crate) fn crate_names(workspace: &Workspace) -> Result<Vec<String>, String> {
    let packages = packages(&metadata(workspace)?);
    Ok(packages.into_iter().map(|package| package.name).collect())
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory(workspace: &Workspace) -> Result<PathBuf, String> {
    let metadata = metadata(workspace)?;
    let target = metadata["target_directory"].as_str().map(PathBuf::from);
    target.ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

/// What the rules look at: the files that git knows or would add, and the crates.
pub struct Tree {
    files: Vec<File>,
    packages: Vec<Package>,
}

/// A file, its path relative to the root, with `/`.
struct File {
    path: String,
    /// Nothing for what is not text.
    text: Option<String>,
}

/// A crate of the workspace.
struct Package {
    name: String,
    /// Its folder relative to the root.
    folder: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Normal,
    Build,
    Development,
}

impl Tree {
    /// Reads the workspace.
    pub fn read(workspace: &Workspace) -> Result<Self, String> {
        let mut list = workspace.command("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let paths = output(&mut list)?;
        let files = paths
            .split_terminator('\0')
            .filter_map(|path| {
                // What git knows but is no longer there has nothing to be checked.
                let bytes = std::fs::read(workspace.root().join(path)).ok()?;
                Some(File { path: path.to_owned(), text: String::from_utf8(bytes).ok() })
            })
            .collect();
        Ok(Self { files, packages: packages(&metadata(workspace)?) })
    }

    /// The text files, with their paths.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// The text files whose name ends with `suffix`.
    fn ending<'t>(&'t self, suffix: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.texts().filter(move |(path, _)| path.ends_with(suffix))
    }

    /// The text at `path`.
    fn text(&self, path: &str) -> Option<&str> {
        self.texts().find(|(known, _)| *known == path).map(|(_, text)| text)
    }

    /// Whether `path` is a file, or a folder with files in it.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }
}

fn metadata(workspace: &Workspace) -> Result<Value, String> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let text = output(&mut workspace.cargo(&arguments))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

fn packages(metadata: &Value) -> Vec<Package> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let folder = manifest.trim_start_matches(root).trim_end_matches("Cargo.toml");
            let dependencies = list(&package["dependencies"])
                .iter()
                .map(|dependency| Dependency {
                    name: dependency["name"].as_str().unwrap_or_default().to_owned(),
                    kind: match dependency["kind"].as_str() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some(_) => Kind::Development,
                    },
                })
                .collect();
            Package {
                name: package["name"].as_str().unwrap_or_default().to_owned(),
                folder: folder.trim_matches('/').to_owned(),
                dependencies,
            }
        })
        .collect()
}

/// Trees made up for the rules' own tests.
#[cfg(test)]
mod made_up {
    use super::*;

    /// A tree of these files and no crates.
    pub(super) fn files(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: Some((*text).to_owned()) })
            .collect();
        Tree { files, packages: Vec::new() }
    }

    /// A tree of these crates; each edge is `name` or `dev:name`.
    pub(super) fn crates(crates: &[(&str, &[&str])]) -> Tree {
        let packages = crates
            .iter()
            .map(|(name, edges)| Package {
                name: (*name).to_owned(),
                folder: format!("crates/{}", name.trim_start_matches("belay-")),
                dependencies: edges
                    .iter()
                    .map(|edge| match edge.strip_prefix("dev:") {
                        Some(name) => Dependency { name: name.to_owned(), kind: Kind::Development },
                        None => Dependency { name: (*edge).to_owned(), kind: Kind::Normal },
                    })
                    .collect(),
            })
            .collect();
        Tree { files: Vec::new(), packages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_cargo_metadata() {
        let metadata = serde_json::json!({
            "workspace_root": "/here",
            "packages": [{
                "name": "belay-kernel",
                "manifest_path": "/here/crates/kernel/Cargo.toml",
                "dependencies": [
                    { "name": "serde", "kind": null },
                    { "name": "cc", "kind": "build" },
                    { "name": "insta", "kind": "dev" },
                ],
            }],
        });
        let packages = packages(&metadata);
        assert_eq!(packages.len(), 1);
        assert_eq!(packages[0].name, "belay-kernel");
        assert_eq!(packages[0].folder, "crates/kernel");
        let kinds: Vec<_> = packages[0].dependencies.iter().map(|d| (&*d.name, d.kind)).collect();
        assert_eq!(
            kinds,
            [("serde", Kind::Normal), ("cc", Kind::Build), ("insta", Kind::Development)]
        );
    }

    #[test]
    fn the_tree_that_is_read_is_this_one() {
        let tree = Tree::read(&Workspace::find()).unwrap();
        assert!(tree.text("xtask/src/tidy.rs").is_some_and(|text| text.starts_with("//!")));
        assert!(tree.has("crates/kernel") && !tree.has("target"));
    }
}
