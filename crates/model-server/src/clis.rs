//! The real CLIs of the agents, pinned by a lock file, installed once for all tests.
//!
//! They are installed from the machine's package registry into a directory that the caller names
//! (one under `target/`), keyed by the lock file, so that a changed pin is a fresh installation and
//! an unchanged one costs nothing. Concurrent callers wait for the first.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = include_str!("../clis/package.json");
const LOCK: &str = include_str!("../clis/package-lock.json");
const NPMRC: &str = include_str!("../clis/.npmrc");
/// The official MCP SDK, and a client on top of it.
const SDK_PACKAGE: &str = include_str!("../mcp-sdk/package.json");
const SDK_LOCK: &str = include_str!("../mcp-sdk/package-lock.json");
const SDK_CLIENT: &str = include_str!("../mcp-sdk/client.mjs");

/// Setting this variable skips what needs the CLIs; whoever sets it names what is skipped.
pub const SKIP: &str = "BELAY_SKIP_REAL_AGENTS";

/// Why the CLIs could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The directory could not be written.
    #[error("cannot write {path}")]
    Directory {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// npm could not be started.
    #[error("cannot start npm; install Node.js 20 or later, or set {SKIP}=1 to do without")]
    NoNpm(#[source] io::Error),
    /// npm failed.
    #[error(
        "npm could not install the agents' CLIs (is the registry reachable?); set {SKIP}=1 to do \
         without:\n{0}"
    )]
    Npm(String),
}

/// The directory of the programs, installed under `base` if they are not there yet.
pub fn install(base: &Path) -> Result<PathBuf, InstallError> {
    let files = [("package.json", PACKAGE), ("package-lock.json", LOCK), (".npmrc", NPMRC)];
    let directory = base.join(format!("agent-clis-{:016x}", digest(LOCK)));
    Ok(install_files(directory, &files)?.join("node_modules/.bin"))
}

/// The script of a client that is made with the official MCP SDK, for node, installed likewise.
pub fn install_mcp_client(base: &Path) -> Result<PathBuf, InstallError> {
    let files = [
        ("package.json", SDK_PACKAGE),
        ("package-lock.json", SDK_LOCK),
        (".npmrc", NPMRC),
        ("client.mjs", SDK_CLIENT),
    ];
    let key = digest(SDK_LOCK) ^ digest(SDK_CLIENT);
    Ok(install_files(base.join(format!("mcp-sdk-{key:016x}")), &files)?.join("client.mjs"))
}

fn install_files(directory: PathBuf, files: &[(&str, &str)]) -> Result<PathBuf, InstallError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Directory { path, source }
    };
    fs::create_dir_all(&directory).map_err(fail(&directory))?;
    let gate_path = directory.join("lock");
    let gate = File::create(&gate_path).map_err(fail(&gate_path))?;
    gate.lock().map_err(fail(&gate_path))?;
    let done = directory.join("complete");
    if !done.exists() {
        for (name, text) in files {
            let path = directory.join(name);
            fs::write(&path, text).map_err(fail(&path))?;
        }
        run_npm(&directory)?;
        fs::write(&done, "").map_err(fail(&done))?;
    }
    Ok(directory)
}

fn run_npm(directory: &Path) -> Result<(), InstallError> {
    // Not `npm ci`: it refuses a lock file that lacks the packages of other platforms, and a
    // registry that does not carry them makes such a file. `npm install` keeps to the lock too.
    let output = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(InstallError::NoNpm)?;
    if output.status.success() {
        return Ok(());
    }
    Err(InstallError::Npm(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The pinned version of a package.
pub fn pinned(package: &str) -> Option<String> {
    let manifest: serde_json::Value = serde_json::from_str(PACKAGE).ok()?;
    Some(manifest["dependencies"][package].as_str()?.to_owned())
}

/// FNV-1a: names a directory; nothing is trusted to it.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_no_host_and_pins_what_the_manifest_says() {
        for (lock, manifest) in [(LOCK, PACKAGE), (SDK_LOCK, SDK_PACKAGE)] {
            assert!(!lock.contains("\"resolved\""), "the lock file names a registry");
            let lock: serde_json::Value = serde_json::from_str(lock).unwrap();
            let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
            for (name, version) in manifest["dependencies"].as_object().unwrap() {
                let locked = &lock["packages"][format!("node_modules/{name}")]["version"];
                assert_eq!(locked, version, "{name}");
            }
        }
        assert_eq!(pinned("opencode-ai").as_deref(), Some("1.18.33"));
    }
}
