//! Rules about Rust files.
//!
//! Words that a rule forbids are put together with `concat!` here, so that the rule does not find
//! itself.

use super::Tree;

/// Lines of code a file may have without its tests.
const FILE_LINES: usize = 600;
/// Characters a line may have.
const LINE_CHARS: usize = 100;

/// Each file says first what it is.
pub(super) fn module_docs(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| format!("{path} does not open with `//!`"))
        .collect()
}

/// A file can be read in one go.
pub(super) fn file_size(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|(path, _)| !is_test_file(path))
        .map(|(path, text)| (path, without_tests(text).count()))
        .filter(|(_, lines)| *lines > FILE_LINES)
        .map(|(path, lines)| format!("{path} has {lines} lines without tests, over {FILE_LINES}"))
        .collect()
}

/// A line fits beside another one on a screen.
pub(super) fn line_length(tree: &Tree) -> Vec<String> {
    find_lines(
        tree,
        |_| true,
        |line| {
            let chars = line.chars().count();
            (chars > LINE_CHARS).then(|| format!("has {chars} characters, over {LINE_CHARS}"))
        },
    )
}

/// Nothing is left for later, and nothing was left in from looking for a bug.
pub(super) fn no_unfinished_code(tree: &Tree) -> Vec<String> {
    const WORDS: [&str; 3] =
        [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    find_lines(
        tree,
        |_| true,
        |line| {
            let word = WORDS.into_iter().find(|word| has_word(code(line), word))?;
            Some(format!("has `{word}`"))
        },
    )
}

/// A test that does not run is not a test.
pub(super) fn no_ignored_tests(tree: &Tree) -> Vec<String> {
    const ATTRIBUTE: &str = concat!("#[", "ignore");
    find_lines(tree, |_| true, |line| line.contains(ATTRIBUTE).then(|| "ignores a test".to_owned()))
}

/// The kernel reads no clock, draws no chance, starts nothing, and iterates in a fixed order.
/// Clippy says this too where it looks; this scan also sees macros and what is switched off.
pub(super) fn kernel_is_pure(tree: &Tree) -> Vec<String> {
    const WORDS: [&str; 9] = [
        "SystemTime",
        "Instant",
        "HashMap",
        "HashSet",
        "std::thread",
        "std::fs",
        "std::net",
        "std::process",
        "rand::",
    ];
    find_lines(
        tree,
        |path| path.starts_with("crates/kernel/src/"),
        |line| {
            let word = WORDS.into_iter().find(|word| has_word(code(line), word))?;
            Some(format!("uses `{word}` in the kernel"))
        },
    )
}

/// Looks at each line of the Rust files that `included` takes.
fn find_lines(
    tree: &Tree,
    included: fn(&str) -> bool,
    look: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| included(path)) {
        for (number, line) in (1..).zip(text.lines()) {
            findings.extend(look(line).map(|what| format!("{path}:{number} {what}")));
        }
    }
    findings
}

/// The part of a line before its comment.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Whether `word` is in `text` by itself, not as the end or the beginning of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let before = text[..start].chars().next_back().is_some_and(part_of_name);
        let ends_in_name = word.ends_with(part_of_name);
        let after = ends_in_name && text[end..].chars().next().is_some_and(part_of_name);
        !before && !after
    })
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The lines before the test module, which is the last item of a file.
fn without_tests(text: &str) -> impl Iterator<Item = &str> {
    let cut = text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at]);
    cut.lines()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::files;
    use super::*;

    /// What `rule` finds in a kernel file with this text.
    fn found(rule: fn(&Tree) -> Vec<String>, text: &str) -> Vec<String> {
        rule(&files(&[("crates/kernel/src/a.rs", text), ("README.md", text)]))
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_is_found() {
        assert_eq!(found(module_docs, "//! What it is.\n"), [""; 0]);
        for text in ["", "//!\n", "// What it is.\n", "use std;\n//! Late.\n"] {
            assert_eq!(
                found(module_docs, text),
                ["crates/kernel/src/a.rs does not open with `//!`"],
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_found_and_its_tests_do_not_count() {
        let tests = format!("\n#[cfg(test)]\nmod tests {{\n{}}}\n", "line\n".repeat(700));
        let lines = |count| format!("{}{tests}", "line\n".repeat(count));
        assert_eq!(found(file_size, &lines(600)), [""; 0]);
        assert_eq!(
            found(file_size, &lines(601)),
            ["crates/kernel/src/a.rs has 601 lines without tests, over 600"]
        );
        let model = files(&[("crates/kernel/tests/model.rs", lines(601).as_str())]);
        assert_eq!(file_size(&model), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_long_is_found() {
        assert_eq!(found(line_length, &"ä".repeat(100)), [""; 0]);
        assert_eq!(
            found(line_length, &format!("\n{}", "ä".repeat(101))),
            ["crates/kernel/src/a.rs:2 has 101 characters, over 100"]
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        for word in [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")] {
            let text = format!("//! a\nfn f() {{ {word}() }}\n");
            let finding = format!("crates/kernel/src/a.rs:2 has `{word}`");
            assert_eq!(found(no_unfinished_code, &text), [finding]);
            let mentioned = format!("// says {word}\nmy_{word}()\n");
            assert_eq!(found(no_unfinished_code, &mentioned), [""; 0]);
        }
    }

    #[test]
    fn an_ignored_test_is_found() {
        for attribute in [concat!("#[", "ignore]"), concat!("#[", "ignore = \"slow\"]")] {
            let found = found(no_ignored_tests, attribute);
            assert_eq!(found, ["crates/kernel/src/a.rs:1 ignores a test"]);
        }
        assert_eq!(found(no_ignored_tests, "#[test]"), [""; 0]);
    }

    #[test]
    fn a_clock_in_the_kernel_is_found() {
        for (line, word) in [
            ("use std::time::SystemTime;", "SystemTime"),
            ("let t = Instant::now();", "Instant"),
            ("x: HashMap<u8, u8>,", "HashMap"),
            ("std::thread::spawn(f);", "std::thread"),
            ("rand::random()", "rand::"),
        ] {
            let finding = format!("crates/kernel/src/a.rs:1 uses `{word}` in the kernel");
            assert_eq!(found(kernel_is_pure, line), [finding]);
        }
        assert_eq!(found(kernel_is_pure, "// Instant\nlet instant = Instants;"), [""; 0]);
        let elsewhere = files(&[("crates/runner/src/a.rs", "Instant::now()")]);
        assert_eq!(kernel_is_pure(&elsewhere), [""; 0]);
    }
}
