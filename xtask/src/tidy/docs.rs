//! Rules about documents, and about what no tracked file may say.

use super::Tree;

/// The document with the code map.
const MAP: &str = "ARCHITECTURE.md";

/// A relative link in a document points to something that is there.
pub(super) fn links_resolve(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for target in links(text) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let resolved = resolve(path, file);
            if !resolved.as_deref().is_some_and(|path| path.is_empty() || tree.has(path)) {
                findings.push(format!("{path} links to `{target}`, which is not there"));
            }
        }
    }
    findings
}

/// Each document can be found from the code map.
pub(super) fn documents_are_mapped(tree: &Tree) -> Vec<String> {
    let Some(map) = tree.text(MAP) else {
        return vec![format!("{MAP} is missing")];
    };
    tree.ending(".md")
        .filter(|(path, _)| *path != MAP && !map.contains(path))
        .map(|(path, _)| format!("{path} is missing from the code map in {MAP}"))
        .collect()
}

/// No file speaks of the machine it was written on.
pub(super) fn no_machine_paths(tree: &Tree) -> Vec<String> {
    // `/home/agent` and `/home/user` are names that examples and containers use.
    const PATHS: [&str; 4] = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/ho", "me/"),
    ];
    const EXAMPLES: [&str; 2] = [concat!("/ho", "me/agent"), concat!("/ho", "me/user")];
    find(tree, |line| {
        let hit = |path: &str| {
            line.match_indices(path).any(|(at, _)| {
                let from_root = at == 0 || !line[..at].ends_with(|c: char| is_path_char(c));
                let named = line[at + path.len()..].starts_with(is_path_char);
                let example = EXAMPLES.iter().any(|example| line[at..].starts_with(example));
                from_root && named && !example
            })
        };
        PATHS.into_iter().find(|path| hit(path)).map(|path| format!("names a path below `{path}`"))
    })
}

/// No file names the host a package came from; lock files name crates.io by its index alone.
pub(super) fn no_registry_hosts(tree: &Tree) -> Vec<String> {
    const HOSTS: [&str; 7] = [
        concat!("index.", "crates.io"),
        concat!("static.", "crates.io"),
        concat!("registry.", "npmjs.org"),
        concat!("registry.", "yarnpkg.com"),
        concat!("files.", "pythonhosted.org"),
        concat!("deb.", "debian.org"),
        concat!("arti", "factory"),
    ];
    find(tree, |line| {
        let line = line.to_lowercase();
        let host = HOSTS.into_iter().find(|host| line.contains(host))?;
        Some(format!("names the registry host `{host}`"))
    })
}

fn is_path_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~')
}

fn find(tree: &Tree, look: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (number, line) in (1..).zip(text.lines()) {
            findings.extend(look(line).map(|what| format!("{path}:{number} {what}")));
        }
    }
    findings
}

/// The targets of `[text](target)` outside code blocks and code spans.
fn links(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second piece between back ticks is code.
        for prose in line.split('`').step_by(2) {
            for (at, _) in prose.match_indices("](") {
                let rest = &prose[at + 2..];
                targets.extend(rest.find(')').map(|end| rest[..end].trim()));
            }
        }
    }
    targets
}

/// `target`, as seen from the file `from`, as a path from the root; nothing if it leaves the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        return None;
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::made_up::files;
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found() {
        let text = "[a](fleet.md) [b](../README.md#top) [c](https://example.org/x) [d](#here)\n\
                    [up](..) `[code](nowhere)`\n```\n[code](nowhere)\n```\n";
        let fine = [("docs/a.md", text), ("docs/fleet.md", ""), ("README.md", "")];
        assert_eq!(links_resolve(&files(&fine)), [""; 0]);
        for target in ["gone.md", "../../README.md", "/README.md", "fleet.md/x"] {
            let text = format!("see `code` and [this]({target})");
            let tree = files(&[("docs/a.md", &text), ("docs/fleet.md", ""), ("README.md", "")]);
            let finding = format!("docs/a.md links to `{target}`, which is not there");
            assert_eq!(links_resolve(&tree), [finding]);
        }
    }

    #[test]
    fn a_document_off_the_map_is_found() {
        let map = (MAP, "`docs/fleet.md` and `README.md`");
        let tree = files(&[map, ("docs/fleet.md", ""), ("README.md", ""), ("docs/lost.md", "")]);
        assert_eq!(
            documents_are_mapped(&tree),
            ["docs/lost.md is missing from the code map in ARCHITECTURE.md"]
        );
        assert_eq!(documents_are_mapped(&files(&[])), ["ARCHITECTURE.md is missing"]);
    }

    #[test]
    fn a_machine_path_is_found() {
        let found = |line: &str| no_machine_paths(&files(&[("a.txt", line)])).len();
        let line = concat!("see /wo", "rk/here");
        assert_eq!(
            no_machine_paths(&files(&[("a.txt", line)])),
            [concat!("a.txt:1 names a path below `/wo", "rk/`")]
        );
        assert_eq!(found(concat!("/ro", "ot/.cargo")), 1);
        assert_eq!(found(concat!("\"/ho", "me/me/src\"")), 1);
        assert_eq!(found(concat!("/ho", "me/agent and /ho", "me/ and target/wo", "rk/x")), 0);
    }

    #[test]
    fn a_registry_host_is_found() {
        let line = concat!("https://registry.", "npmjs.org/left-pad");
        assert_eq!(
            no_registry_hosts(&files(&[("web/package-lock.json", line)])),
            [concat!("web/package-lock.json:1 names the registry host `registry.", "npmjs.org`")]
        );
        let index = "registry+https://github.com/rust-lang/crates.io-index";
        assert_eq!(no_registry_hosts(&files(&[("Cargo.lock", index)])), [""; 0]);
    }
}
