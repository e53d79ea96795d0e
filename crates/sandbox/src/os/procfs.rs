//! Reading `/proc`: who is there, below whom, with whose marker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use belay_kernel::Span;

use super::pid::number_has_ended;
use crate::plan::MARKER;
use crate::provider::ProcessInfo;
use crate::receipt::Seen;

/// One line of `/proc/PID/stat`, as far as it is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) started: u64,
    pub(crate) cpu_ticks: u64,
    pub(crate) resident_pages: u64,
}

impl Stat {
    /// Whether it has ended and waits to be reaped; `X` is seen in the instant of its removal. The
    /// state is that of the first thread only, so where it says so all the others are asked too.
    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && number_has_ended(self.pid)
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen { pid: self.pid, started: self.started, name: self.name.clone() }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        ProcessInfo {
            pid: self.pid,
            parent: self.parent,
            started: self.started,
            name: self.name.clone(),
            state: self.state,
            cpu: ticks(self.cpu_ticks),
            memory_bytes: self.resident_pages * rustix::param::page_size() as u64,
        }
    }
}

/// Clock ticks as a span.
fn ticks(ticks: u64) -> Span {
    Span::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// The process with this number, if there is one.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&bytes))
}

/// The name stands in brackets and may itself contain brackets and spaces: the last one counts.
fn parse(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        started: number(19)?,
        cpu_ticks: number(11)?.saturating_add(number(12)?),
        resident_pages: number(21).unwrap_or(0),
    })
}

/// Every process that is there now.
pub(crate) fn all() -> Vec<Stat> {
    pids().filter_map(stat).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Everything below `root`, without it, parents before children.
pub(crate) fn below(root: u32) -> Vec<Stat> {
    let mut children: BTreeMap<u32, Vec<Stat>> = BTreeMap::new();
    for stat in all() {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found: Vec<Stat> = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Every living process whose environment carries `marker` as its sandbox.
pub(crate) fn marked(marker: &str) -> Vec<Stat> {
    let wanted = format!("{MARKER}={marker}");
    pids().filter(|&pid| environment_has(pid, wanted.as_bytes())).filter_map(stat).collect()
}

fn environment_has(pid: u32, wanted: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|bytes| bytes.split(|&byte| byte == 0).any(|entry| entry == wanted))
}

/// The processes that are listed, one number a line, in a `cgroup.procs` file.
pub(crate) fn listed(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 0).collect()
}

/// The number of the PID namespace that a process lives in.
pub(crate) fn pid_namespace(pid: u32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    let text = std::str::from_utf8(link.as_os_str().as_bytes()).ok()?;
    text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_read_whole() {
        let rest = "S 7 1 1 0 -1 4194560 9 0 0 0 3 4 0 0 20 0 1 0 12345 1000 55 1 1";
        let stat = parse(&format!("42 (a) b (c) {rest}")).unwrap();
        assert_eq!((stat.pid, stat.parent, stat.name.as_str()), (42, 7, "a) b (c"));
        assert_eq!((stat.state, stat.started, stat.cpu_ticks), ('S', 12_345, 7));
        assert_eq!(stat.resident_pages, 55);
        assert_eq!(parse("42 (x"), None);
    }

    #[test]
    fn a_child_is_below_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(below(std::process::id()).iter().any(|stat| stat.pid == child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
