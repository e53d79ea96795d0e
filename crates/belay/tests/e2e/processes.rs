//! Processes, as `/proc` shows them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Its number.
    pub(crate) pid: i32,
    /// Its parent's.
    pub(crate) parent: i32,
    /// When it was started, in ticks: with the number, who it is.
    pub(crate) started: u64,
    /// Its arguments.
    pub(crate) words: String,
    /// Whether it carries the marker of a sandbox.
    pub(crate) marked: bool,
    /// The task that its environment names.
    pub(crate) task: String,
}

/// Every process that lives; a zombie does not.
pub(crate) fn all() -> impl Iterator<Item = (Seen, String)> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let text = |name: &str| {
            let bytes = fs::read(entry.path().join(name)).ok()?;
            Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
        };
        let stat = text("stat")?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        if fields[0] == "Z" || fields[0] == "X" {
            return None;
        }
        let environment = text("environ")?;
        let marked = environment.contains("BELAY_SANDBOX=");
        let variable = |name: &str| environment.split(' ').find_map(|word| word.strip_prefix(name));
        let task = variable("BELAY_TASK_ID=").unwrap_or_default().to_owned();
        let (parent, started) = (fields[1].parse().ok()?, fields[19].parse().ok()?);
        let seen = Seen { pid, parent, started, words: text("cmdline")?, marked, task };
        Some((seen, environment))
    })
}

/// Every process of a world's sandboxes: what carries the marker, and the shims beside them.
pub(crate) fn of_world(data: &Path) -> Vec<Seen> {
    let data = data.display().to_string();
    let of_sandbox = |(seen, environment): (Seen, String)| {
        let agent = seen.marked && environment.contains(&data);
        let shim = seen.words.contains(" shim ") && seen.words.contains(&data);
        (agent || shim).then_some(seen)
    };
    all().filter_map(of_sandbox).collect()
}

/// Every process of a world that carries the marker.
pub(crate) fn agents_of_world(data: &Path) -> Vec<Seen> {
    of_world(data).into_iter().filter(|seen| seen.marked).collect()
}

/// Ends one process, if it is still the one that was seen.
pub(crate) fn kill(seen: &Seen) {
    let same = all().any(|(now, _)| now.pid == seen.pid && now.started == seen.started);
    if let Some(pid) = Pid::from_raw(seen.pid).filter(|_| same && seen.pid > 1) {
        // One that ended meanwhile needs no signal.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Ends whatever is left of a world.
pub(crate) fn end(data: &Path) {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let left = of_world(data);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(10));
    }
}
