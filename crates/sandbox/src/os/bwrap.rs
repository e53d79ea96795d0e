//! Bubblewrap: the namespaces of a process sandbox, and what it sees of the machine.
//!
//! The machine's files are shown read-only, then what must not be seen is covered (home
//! directories, Belay's own data, the trees of other tasks, `/tmp`), then the tree and the other
//! paths of the plan are shown through the cover. Rejected: listing what *is* visible, distribution
//! by distribution; agents need compilers and interpreters from wherever the operator put them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::plan::{Access, Network, Plan};

/// A bubblewrap that works here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bubblewrap {
    pub(crate) program: PathBuf,
}

impl Bubblewrap {
    /// Looks for `bwrap` and tries it with everything that is needed; says why not otherwise.
    pub(crate) fn find() -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let program = std::env::split_paths(&path)
            .map(|directory| directory.join("bwrap"))
            .find(|candidate| candidate.is_file())
            .ok_or("bubblewrap (`bwrap`) is not installed")?;
        let found = Self { program };
        let mut command = Command::new(&found.program);
        command.args(namespaces(Network::Cut));
        command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        command.args(["--tmpfs", "/tmp", "--", "/proc/self/exe", "--version"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("bwrap cannot be run: {error}"))?;
        match wait_within(child, Duration::from_secs(5)) {
            Some((true, _)) => Ok(found),
            Some((false, said)) => Err(format!("bwrap does not work here: {}", said.trim())),
            None => Err("bwrap did not answer within 5 s".into()),
        }
    }

    /// The arguments before the command that is to be the namespace's first process.
    pub(crate) fn arguments(&self, plan: &Plan, hidden: &[PathBuf]) -> Vec<OsString> {
        let mut args = namespaces(plan.network);
        let mut add = |words: &[&str], path: &Path| {
            args.extend(words.iter().map(OsString::from));
            args.push(path.into());
        };
        add(&["--ro-bind", "/"], Path::new("/"));
        add(&["--dev"], Path::new("/dev"));
        add(&["--proc"], Path::new("/proc"));
        if let Some(bytes) = plan.limits.scratch_bytes {
            add(&["--size", &bytes.to_string(), "--tmpfs"], Path::new("/tmp"));
        } else {
            add(&["--tmpfs"], Path::new("/tmp"));
        }
        for path in hidden {
            add(&["--tmpfs"], path);
        }
        for path in secret_files() {
            args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
        }
        // Names are resolved through this one on many systems, by a link from /etc.
        let resolver = Path::new("/run/systemd/resolve");
        if resolver.is_dir() {
            args.extend(["--ro-bind".into(), resolver.into(), resolver.into()]);
        }
        for bind in &plan.binds {
            let word = match bind.access {
                Access::Read => "--ro-bind",
                Access::Write => "--bind",
            };
            args.extend([word.into(), bind.path.clone().into(), bind.path.clone().into()]);
        }
        args.extend(["--bind".into(), plan.tree.clone().into(), plan.tree.clone().into()]);
        args.extend(["--chdir".into(), plan.tree.clone().into()]);
        args
    }
}

/// Namespaces and privileges. The command becomes PID 1 of its namespace: it is our own, which
/// reports exact exit statuses and reaps what is left to it.
fn namespaces(network: Network) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
    ]
    .map(OsString::from)
    .into();
    if network == Network::Cut {
        args.push("--unshare-net".into());
    }
    args
}

/// Directories that agents must not see: those that exist, no root, none twice. `/run` is among
/// them for its sockets: a read-only mount does not keep anybody from connecting to one.
pub(crate) fn hidden_directories(wanted: &[PathBuf]) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let usual = ["/home", "/root", "/run"].map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for path in usual.into_iter().chain(home).chain(wanted.iter().cloned()) {
        let Ok(path) = path.canonicalize() else { continue };
        let covered = path.starts_with("/tmp") || found.iter().any(|o| path.starts_with(o));
        if path.is_dir() && path != Path::new("/") && !covered {
            found.push(path);
        }
    }
    found
}

/// Files that only the administrator may read: if Belay runs as root, so does the agent, as far as
/// reading goes.
fn secret_files() -> Vec<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let keys = std::fs::read_dir("/etc/ssh").into_iter().flatten().flatten();
    let keys = keys.map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ssh_host_"))
    });
    let fixed = ["/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-"].map(PathBuf::from);
    fixed.into_iter().chain(keys).filter(|path| path.is_file()).collect()
}

/// Whether it succeeded and what it wrote to standard error; nothing if it had to be killed.
fn wait_within(mut child: std::process::Child, limit: Duration) -> Option<(bool, String)> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            let said = child.stderr.take().and_then(|out| std::io::read_to_string(out).ok());
            return Some((status.success(), said.unwrap_or_default()));
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
