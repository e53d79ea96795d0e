//! The shim with the libraries it needs, in one directory that is mounted into every container.
//!
//! A container may have no libraries, or others. So the shim brings its own, with their loader,
//! which is told where they are; a statically linked shim needs none.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::files;
use crate::process::ShimProgram;

/// Where the directories are inside a container.
pub(super) const INSIDE: &str = "/.belay/runtime";
pub(super) const PROGRAMS: &str = "/.belay/runtime/bin";
pub(super) const MAILBOX: &str = "/.belay/box";
/// Where the directory with the socket for agents is inside a container.
pub const AGENTS: &str = "/.belay/agents";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The installed shim.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    pub(super) directory: PathBuf,
    /// The command that is the shim's program inside a container.
    pub(super) program: Vec<String>,
    /// The command that runs it there as the shim.
    pub(super) command: Vec<String>,
}

impl Runtime {
    /// Copies the shim and its libraries, once for each version of it.
    pub(super) fn install(root: &Path, shim: &ShimProgram) -> Result<Self> {
        let metadata = fs::metadata(&shim.path).map_err(Error::io("find the shim", &shim.path))?;
        let version = format!("{}-{}-{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let directory = root.join("runtime").join(version);
        let libraries = libraries(&shim.path)?;
        let mut program = Vec::new();
        if let Some(loader) = libraries.iter().find(|library| is_loader(library)) {
            let name = loader.file_name().unwrap_or_default().to_string_lossy();
            program.push(format!("{INSIDE}/{name}"));
            program.extend(["--library-path".into(), INSIDE.into()]);
        }
        program.push(format!("{INSIDE}/belay-shim"));
        let mut command = program.clone();
        command.extend(shim.leading.iter().cloned());
        command.extend(["container".into(), MAILBOX.into()]);
        if !directory.exists() {
            let unique = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("new-{}-{unique}", std::process::id());
            let building = directory.with_extension(name);
            files::remove_directory(&building)?;
            fs::create_dir_all(&building).map_err(Error::io("make", &building))?;
            copy(&shim.path, &building.join("belay-shim"))?;
            for library in &libraries {
                copy(library, &building.join(library.file_name().unwrap_or_default()))?;
            }
            let programs = building.join("bin");
            fs::create_dir(&programs).map_err(Error::io("make", &programs))?;
            put_program(&programs.join("belay"), &program)?;
            readable(&programs)?;
            readable(&building)?;
            // Another process may have been faster, with the same result.
            if fs::rename(&building, &directory).is_err() {
                files::remove_directory(&building)?;
            }
        }
        Ok(Self { directory, program, command })
    }
}

fn is_loader(library: &Path) -> bool {
    library.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(Error::io("copy", from))?;
    readable(to)
}

/// A command of one word for those who have a shell: a first line cannot name a loader with its
/// arguments.
fn put_program(path: &Path, program: &[String]) -> Result<()> {
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", program.join(" "));
    fs::write(path, script).map_err(Error::io("write", path))?;
    readable(path)
}

fn readable(path: &Path) -> Result<()> {
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(Error::io("make readable", path))
}

/// What the loader would load; it prints that instead of running the program when asked to.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new(program)
        .env_clear()
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .map_err(Error::io("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.lines().filter_map(|line| {
        let line = line.split(" (0x").next()?.trim();
        let path = line.split(" => ").last()?.trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    Ok(paths.collect())
}
