//! Lints hold only where they are switched on: rules about the files that switch them on.

use super::Tree;

/// Every crate of the workspace takes its lints; one that is a workspace of its own cannot.
pub(super) fn lints_are_inherited(tree: &Tree) -> Vec<String> {
    tree.ending("Cargo.toml")
        .filter(|(_, text)| !text.contains("\n[workspace]") && !text.starts_with("[workspace]"))
        .filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
        .map(|(path, _)| format!("{path} does not inherit the workspace's lints"))
        .collect()
}

/// Clippy reads the nearest `clippy.toml` and merges nothing, so each repeats the root's rules.
pub(super) fn clippy_rules_are_repeated(tree: &Tree) -> Vec<String> {
    let Some(root) = tree.text("clippy.toml") else {
        return vec!["clippy.toml is missing".to_owned()];
    };
    let rules = || root.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    tree.ending("/clippy.toml")
        .flat_map(|(path, text)| {
            rules()
                .filter(|rule| !text.lines().any(|line| line == *rule))
                .map(move |rule| format!("{path} does not repeat `{rule}`"))
        })
        .collect()
}

/// Functions have at most 70 lines. Clippy counts better than a scan of the text could.
pub(super) fn function_size_is_a_lint(tree: &Tree) -> Vec<String> {
    [("Cargo.toml", "too_many_lines = \"warn\""), ("clippy.toml", "too-many-lines-threshold = 70")]
        .into_iter()
        .filter(|(path, line)| {
            !tree.text(path).is_some_and(|text| text.lines().any(|known| known == *line))
        })
        .map(|(path, line)| format!("{path} lacks `{line}`"))
        .collect()
}

/// Bugs that can be planted are there for the simulator's tests alone: no crate turns them on for
/// another, and none has them by default.
pub(super) fn planted_bugs_stay_out(tree: &Tree) -> Vec<String> {
    const ALLOWED: &[(&str, &str)] = &[
        ("crates/kernel/Cargo.toml", "planted = []"),
        ("crates/sim/Cargo.toml", "planted = [\"belay-kernel/planted\"]"),
        ("crates/sim/Cargo.toml", "required-features = [\"planted\"]"),
    ];
    let mut findings: Vec<String> = tree
        .ending("Cargo.toml")
        .flat_map(|(path, text)| text.lines().map(move |line| (path, line)))
        .filter(|(_, line)| line.contains("planted") && !line.starts_with('#'))
        .filter(|known| !ALLOWED.contains(known))
        .map(|(path, line)| format!("{path} has planted bugs: `{line}`"))
        .collect();
    let missing = |(path, line): &&(&str, &str)| {
        !tree.text(path).is_some_and(|text| text.lines().any(|known| known == *line))
    };
    let missing = ALLOWED.iter().filter(missing);
    findings.extend(missing.map(|(path, line)| format!("{path} lacks `{line}`")));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::made_up::files;
    use super::*;

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let tree = files(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\n"),
        ]);
        assert_eq!(
            lints_are_inherited(&tree),
            ["crates/b/Cargo.toml does not inherit the workspace's lints"]
        );
    }

    #[test]
    fn a_rule_that_is_not_repeated_is_found() {
        let root = ("clippy.toml", "# rules\none = 1\ntwo = 2\n");
        let tree = files(&[root, ("crates/kernel/clippy.toml", "one = 1\n")]);
        assert_eq!(
            clippy_rules_are_repeated(&tree),
            ["crates/kernel/clippy.toml does not repeat `two = 2`"]
        );
        let tree = files(&[root, ("crates/kernel/clippy.toml", "two = 2\nthree = 3\none = 1\n")]);
        assert_eq!(clippy_rules_are_repeated(&tree), [""; 0]);
        assert_eq!(clippy_rules_are_repeated(&files(&[])), ["clippy.toml is missing"]);
    }

    #[test]
    fn a_size_limit_that_is_off_is_found() {
        let on = files(&[
            ("Cargo.toml", "[workspace.lints.clippy]\ntoo_many_lines = \"warn\"\n"),
            ("clippy.toml", "too-many-lines-threshold = 70\n"),
        ]);
        assert_eq!(function_size_is_a_lint(&on), [""; 0]);
        let off = files(&[
            ("Cargo.toml", "[workspace.lints.clippy]\n"),
            ("clippy.toml", "too-many-lines-threshold = 700\n"),
        ]);
        assert_eq!(
            function_size_is_a_lint(&off),
            [
                "Cargo.toml lacks `too_many_lines = \"warn\"`",
                "clippy.toml lacks `too-many-lines-threshold = 70`",
            ]
        );
    }

    #[test]
    fn planted_bugs_in_another_crate_are_found() {
        let kernel = ("crates/kernel/Cargo.toml", "[features]\n# planted\nplanted = []\n");
        let sim = (
            "crates/sim/Cargo.toml",
            "planted = [\"belay-kernel/planted\"]\nrequired-features = [\"planted\"]\n",
        );
        assert_eq!(planted_bugs_stay_out(&files(&[kernel, sim])), [""; 0]);
        let belay = ("crates/belay/Cargo.toml", "belay-sim = { features = [\"planted\"] }\n");
        assert_eq!(planted_bugs_stay_out(&files(&[kernel, sim, belay])).len(), 1);
        let default = ("crates/kernel/Cargo.toml", "default = [\"planted\"]\nplanted = []\n");
        assert_eq!(planted_bugs_stay_out(&files(&[default, sim])).len(), 1);
        assert_eq!(planted_bugs_stay_out(&files(&[])).len(), 3);
    }
}
