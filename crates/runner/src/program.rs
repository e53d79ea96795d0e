//! Finding an agent's program, and what must be shown of it where the sandbox hides its place.
//!
//! Agents are often installed below a person's home, which sandboxes hide. Then the program is
//! named by its real path, and its package is shown read-only: the directory that holds its
//! `node_modules`, or the program's own directory; and node's own, if it is a node script.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where sandboxes hide things.
#[derive(Clone, Debug)]
pub(crate) struct Hidden(Vec<PathBuf>);

impl Hidden {
    /// The usual places, the person's home, and these.
    pub(crate) fn new(further: impl IntoIterator<Item = PathBuf>) -> Self {
        let usual = ["/home", "/root", "/run", "/tmp"].map(PathBuf::from);
        let places = usual.into_iter().chain(std::env::home_dir()).chain(further);
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Self(places.map(real).filter(|path| path != Path::new("/")).collect())
    }

    fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|place| path.starts_with(place))
    }
}

/// A program as it is executed inside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Program {
    /// What to execute, if not what was asked for.
    pub(crate) real: Option<PathBuf>,
    /// What to show.
    pub(crate) shown: Vec<PathBuf>,
    /// What the search path begins with besides.
    pub(crate) path: Option<PathBuf>,
}

/// Finds `name` by `path`. What cannot be found is left to the sandbox to refuse.
pub(crate) fn find(name: &str, path: &str, hidden: &Hidden) -> Program {
    let mut program = Program::default();
    let Some(real) = look_up(name, path) else { return program };
    if hidden.covers(&real) {
        program.shown.push(package_root(&real));
        program.real = Some(real.clone());
    }
    if is_node_script(&real)
        && let Some(node) = look_up("node", path)
        && hidden.covers(&node)
        && let Some(directory) = node.parent()
    {
        program.shown.push(directory.into());
        program.path = Some(directory.into());
    }
    program.shown.dedup();
    program
}

/// The real path of a program.
fn look_up(name: &str, path: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let found = match name.contains('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.is_absolute() && is_program(path)),
        false => std::env::split_paths(path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(is_program),
    };
    found?.canonicalize().ok()
}

/// What a program needs of its surroundings.
fn package_root(program: &Path) -> PathBuf {
    let modules = program.ancestors().filter(|path| path.ends_with("node_modules")).last();
    let root = modules.or(Some(program)).and_then(Path::parent);
    root.unwrap_or(program).into()
}

/// Whether a program is a script for node, by its first line.
fn is_node_script(program: &Path) -> bool {
    let mut first = [0; 128];
    let read = std::fs::File::open(program).and_then(|mut file| file.read(&mut first));
    let line = first[..read.unwrap_or(0)].split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.starts_with(b"#!") && line.windows(4).any(|word| word == b"node")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn executable(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_below_a_hidden_place_is_shown_with_its_package() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let hidden = Hidden::new([root.clone()]);
        let module = root.join("lib/node_modules/agent/cli.js");
        executable(&module, "#!/usr/bin/env node\n");
        executable(&root.join("node/bin/node"), "\x7fELF");
        executable(&root.join("tools/plain"), "#!/bin/sh\n");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        symlink(&module, root.join("bin/agent")).unwrap();
        let path = ["bin", "node/bin", "tools"].map(|name| root.join(name).display().to_string());
        let path = format!("relative:{}:/usr/bin:/bin", path.join(":"));
        assert_eq!(
            find("agent", &path, &hidden),
            Program {
                real: Some(module),
                shown: vec![root.join("lib"), root.join("node/bin")],
                path: Some(root.join("node/bin")),
            }
        );
        let plain = find("plain", &path, &hidden);
        assert_eq!(plain.shown, [root.join("tools")]);
        let named = find(&root.join("tools/plain").display().to_string(), &path, &hidden);
        assert_eq!(named, plain);
        for name in ["sh", "no-such-program", "./plain"] {
            assert_eq!(find(name, &path, &hidden), Program::default(), "{name}");
        }
    }
}
