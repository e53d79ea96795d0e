//! Cgroups: who belongs to a sandbox, how it is killed, frozen and limited, and the proof that it
//! is gone.
//!
//! Version 2 kills and freezes, wherever it is mounted: alone, or beside version 1 on hybrid hosts,
//! where it has no controllers and version 1 has the limits. Every sandbox gets a fresh leaf,
//! because a leaf that was killed once kills what enters it later. `rmdir` of a leaf succeeds only
//! when nothing is left in it; that is the proof in a receipt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use belay_kernel::Span;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::pid::ProcessRef;
use super::procfs;
use crate::plan::Limits;

/// The controllers that limit something.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The kernel's period for CPU quotas, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;

/// Where this process may make cgroups; found by trying.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cgroups {
    /// The directory of version 2 in which leaves are made, if it can kill.
    v2: Option<PathBuf>,
    /// Controllers that its leaves have.
    v2_controllers: BTreeSet<String>,
    /// Directories of version 1, by controller.
    v1: BTreeMap<String, PathBuf>,
}

/// The cgroups of one sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    v2: Option<PathBuf>,
    v2_controllers: BTreeSet<String>,
    v1: BTreeMap<String, PathBuf>,
}

impl Cgroups {
    /// Tries to make a directory called `name` in this process's own cgroup of each hierarchy.
    pub(crate) fn find(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut found = Self::default();
        for (controllers, directory) in places(&mounts, &own) {
            let directory = directory.join(name);
            if !can_make_leaves(&directory) {
                continue;
            }
            if controllers.is_empty() {
                if directory.join("cgroup.kill").exists() {
                    found.v2_controllers = enable_controllers(&directory);
                    found.v2 = Some(directory);
                }
            } else {
                for controller in controllers {
                    found.v1.insert(controller, directory.clone());
                }
            }
        }
        for controller in &found.v2_controllers {
            found.v1.remove(controller);
        }
        found
    }

    /// The hierarchies that can be used, for people: `v2`, and the controllers of version 1.
    pub(crate) fn summary(&self) -> String {
        let v2 = self.v2.as_ref().map(|path| format!("v2 at {}", path.display()));
        let on = self.v2_controllers.iter().map(|name| format!("{name} (v2)"));
        let v1 = self.v1.keys().map(|name| format!("{name} (v1)"));
        v2.into_iter().chain(on).chain(v1).collect::<Vec<_>>().join(", ")
    }

    /// Whether a whole cgroup can be killed and frozen at once.
    pub(crate) const fn can_kill(&self) -> bool {
        self.v2.is_some()
    }

    /// Whether a controller limits leaves, in either version.
    pub(crate) fn has(&self, controller: &str) -> bool {
        self.v2_controllers.contains(controller) || self.v1.contains_key(controller)
    }

    /// The cgroups of a fresh leaf, which are not made yet; nothing if there is no hierarchy.
    pub(crate) fn plan(&self, leaf: &str) -> Option<Group> {
        let group = Group {
            v2: self.v2.as_ref().map(|directory| directory.join(leaf)),
            v2_controllers: self.v2_controllers.clone(),
            v1: self.v1.iter().map(|(name, base)| (name.clone(), base.join(leaf))).collect(),
        };
        group.proof_path().is_some().then_some(group)
    }

    /// Removes the directories that leaves were made in, where they are empty.
    pub(crate) fn remove_empty(&self) {
        for directory in self.v2.iter().chain(self.v1.values()) {
            let _ = fs::remove_dir(directory);
        }
    }
}

impl Group {
    fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.v2.iter().chain(self.v1.values())
    }

    /// Makes the leaf with the limits set, without anybody in it.
    pub(crate) fn create(&self, limits: &Limits) -> io::Result<()> {
        self.make_directories()?;
        self.limit(limits).inspect_err(|_| {
            self.remove();
        })
    }

    /// A base that another process just removed, because it was empty, is made again.
    fn make_directories(&self) -> io::Result<()> {
        for directory in self.directories() {
            let mut tries = 0;
            while let Err(error) = fs::create_dir_all(directory) {
                tries += 1;
                if error.kind() != io::ErrorKind::NotFound || tries > 20 {
                    return Err(error);
                }
            }
            if Some(directory) == self.v2.as_ref()
                && let Some(base) = directory.parent()
            {
                enable_controllers(base);
            }
        }
        Ok(())
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            self.set("memory", "memory.max", "memory.limit_in_bytes", bytes)?;
            // Swap would only delay the end; not every kernel accounts for it.
            let _ = self.set("memory", "memory.swap.max", "memory.swappiness", 0);
        }
        if let Some(count) = limits.processes {
            self.set("pids", "pids.max", "pids.max", u64::from(count))?;
        }
        if let Some(millis) = limits.cpu_millis {
            let quota = (u64::from(millis) * CPU_PERIOD_US / 1_000).max(1_000);
            if let Some(directory) = self.v1.get("cpu") {
                fs::write(directory.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
                fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
            } else if let Some(directory) = self.v2_with("cpu") {
                fs::write(directory.join("cpu.max"), format!("{quota} {CPU_PERIOD_US}"))?;
            }
        }
        Ok(())
    }

    fn v2_with(&self, controller: &str) -> Option<&PathBuf> {
        self.v2.as_ref().filter(|_| self.v2_controllers.contains(controller))
    }

    fn set(&self, controller: &str, v2: &str, v1: &str, value: u64) -> io::Result<()> {
        if let Some(directory) = self.v2_with(controller) {
            fs::write(directory.join(v2), value.to_string())
        } else if let Some(directory) = self.v1.get(controller) {
            fs::write(directory.join(v1), value.to_string())
        } else {
            Ok(())
        }
    }

    /// Moves a process, which is alone so far, into every hierarchy.
    pub(crate) fn enter(&self, pid: u32) -> io::Result<()> {
        for directory in self.directories() {
            fs::write(directory.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Whether there is any cgroup at all.
    pub(crate) fn exists(&self) -> bool {
        self.directories().any(|directory| directory.exists())
    }

    /// The directory whose removal is the proof: version 2 if there is one.
    pub(crate) fn proof_path(&self) -> Option<&PathBuf> {
        self.v2.as_ref().or_else(|| self.v1.get("pids")).or_else(|| self.v1.values().next())
    }

    /// Whether kill and freeze work on the group as a whole.
    pub(crate) const fn can_kill(&self) -> bool {
        self.v2.is_some()
    }

    /// Whether a controller limits the group as a whole.
    pub(crate) fn limits(&self, controller: &str) -> bool {
        self.v2_controllers.contains(controller) || self.v1.contains_key(controller)
    }

    /// The file to write to for a kill of the whole group.
    pub(crate) fn kill_file(&self) -> Option<String> {
        Some(self.v2.as_ref()?.join("cgroup.kill").to_str()?.to_owned())
    }

    /// Everybody in it, also in cgroups that were made inside it.
    pub(crate) fn members(&self) -> BTreeSet<u32> {
        self.proof_path().map(|path| members(path)).unwrap_or_default()
    }

    /// Kills everybody: in one write where there is version 2, else one by one with forking shut.
    pub(crate) fn kill(&self) {
        if let Some(directory) = &self.v2
            && fs::write(directory.join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        let _ = self.set("pids", "pids.max", "pids.max", 0);
        for process in self.members().into_iter().filter_map(ProcessRef::of) {
            process.signal(Signal::KILL);
        }
    }

    /// Freezes or thaws, and says whether it took effect.
    pub(crate) fn freeze(&self, frozen: bool) -> io::Result<bool> {
        let Some(directory) = &self.v2 else { return Ok(false) };
        fs::write(directory.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        Ok(self.is_frozen() == frozen)
    }

    /// Whether every process in it is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.event("frozen") == Some(1)
    }

    /// Whether a freeze was asked for.
    pub(crate) fn freeze_wanted(&self) -> bool {
        self.read("cgroup.freeze").is_some_and(|text| text.trim() == "1")
    }

    /// Whether nobody is left. Unknown counts as somebody.
    pub(crate) fn is_empty(&self) -> bool {
        match (self.event("populated"), self.proof_path()) {
            (Some(populated), _) => populated == 0,
            (None, Some(path)) => !path.exists() || self.members().is_empty(),
            (None, None) => false,
        }
    }

    fn event(&self, name: &str) -> Option<u64> {
        value_of(&self.read("cgroup.events")?, name)
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.v2.as_ref()?.join(file)).ok()
    }

    /// Removes the leaf everywhere; true once nothing of it is there.
    pub(crate) fn remove(&self) -> bool {
        for directory in self.directories() {
            remove_tree(directory);
            // The directory of the installation goes with its last leaf, and comes with its first.
            if let Some(base) = directory.parent() {
                let _ = fs::remove_dir(base);
            }
        }
        !self.exists()
    }

    /// How often the kernel killed something in it for want of memory.
    pub(crate) fn memory_kills(&self) -> u64 {
        let (directory, file) = match (self.v2_with("memory"), self.v1.get("memory")) {
            (Some(directory), _) => (directory, "memory.events"),
            (None, Some(directory)) => (directory, "memory.oom_control"),
            (None, None) => return 0,
        };
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        value_of(&text, "oom_kill").unwrap_or(0)
    }

    /// CPU time of everything that ever ran in it.
    pub(crate) fn cpu(&self) -> Option<Span> {
        let micros = value_of(&self.read("cpu.stat")?, "usage_usec")?;
        Some(Span::from_millis(micros / 1_000))
    }

    /// Memory that it holds now.
    pub(crate) fn memory(&self) -> Option<u64> {
        let path = match (self.v2_with("memory"), self.v1.get("memory")) {
            (Some(directory), _) => directory.join("memory.current"),
            (None, Some(directory)) => directory.join("memory.usage_in_bytes"),
            (None, None) => return None,
        };
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

/// How often the kernel killed something in this process's own cgroup for want of memory, as far as
/// this process is shown it: containers are, read-only.
pub(crate) fn own_memory_kills() -> u64 {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let counts = places(&mounts, &own).into_iter().filter_map(|(controllers, directory)| {
        let file = match controllers.is_empty() {
            true => "memory.events",
            false if controllers.iter().any(|name| name == "memory") => "memory.oom_control",
            false => return None,
        };
        value_of(&fs::read_to_string(directory.join(file)).ok()?, "oom_kill")
    });
    counts.max().unwrap_or(0)
}

/// The number after `name` in a file of `name number` lines.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn members(directory: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut found = procfs::listed(&text);
    for child in children(directory) {
        found.extend(members(&child));
    }
    found
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

fn remove_tree(directory: &Path) {
    for child in children(directory) {
        remove_tree(&child);
    }
    let _ = fs::remove_dir(directory);
}

/// A directory can be made, and a directory in it.
fn can_make_leaves(directory: &Path) -> bool {
    let trial = directory.join(format!("try-{}", std::process::id()));
    let made = fs::create_dir_all(&trial).is_ok();
    let _ = fs::remove_dir(&trial);
    made
}

/// Turns on what can be turned on for the leaves of `directory`; says what is on.
fn enable_controllers(directory: &Path) -> BTreeSet<String> {
    let offered = |directory: &Path, file: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    };
    for level in directory.parent().into_iter().chain([directory]) {
        let on = offered(level, "cgroup.subtree_control");
        for controller in offered(level, "cgroup.controllers") {
            if CONTROLLERS.contains(&controller.as_str()) && !on.contains(&controller) {
                let _ = fs::write(level.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
    }
    let on = offered(directory, "cgroup.subtree_control");
    on.into_iter().filter(|name| CONTROLLERS.contains(&name.as_str())).collect()
}

/// This process's own directory in each hierarchy that matters, with the hierarchy's controllers;
/// version 2 has none in this list.
fn places(mounts: &str, own: &str) -> Vec<(Vec<String>, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(root), Some(point)) = (left.get(3), left.get(4)) else { continue };
        let (Some(kind), Some(options)) = (right.first(), right.last()) else { continue };
        let controllers: Vec<String> = match *kind {
            "cgroup2" => Vec::new(),
            "cgroup" => options
                .split(',')
                .filter(|option| CONTROLLERS.contains(option))
                .map(str::to_owned)
                .collect(),
            _ => continue,
        };
        if *kind == "cgroup" && controllers.is_empty() {
            continue;
        }
        if let Some(path) = own_path(own, &controllers) {
            let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
            let place = Path::new(point).join(inside.trim_start_matches('/'));
            found.push((controllers, place));
        }
    }
    found
}

/// This process's path in the hierarchy of these controllers.
fn own_path<'a>(own: &'a str, controllers: &[String]) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
        let matches = match controllers.first() {
            None => names.is_empty(),
            Some(first) => names.contains(&first.as_str()),
        };
        matches.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mounts: &str, own: &str, expected: &[(&str, &str)]) {
        let found: Vec<(String, String)> = places(mounts, own)
            .into_iter()
            .map(|(names, path)| (names.join(","), path.display().to_string()))
            .collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(names, path)| ((*names).into(), (*path).into())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_unified_hierarchy_is_found_where_it_is_mounted() {
        check(
            "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
             31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
            "0::/user.slice/belay.service\n",
            &[("", "/sys/fs/cgroup/user.slice/belay.service")],
        );
    }

    #[test]
    fn a_hybrid_host_has_limits_in_version_1_beside_version_2() {
        check(
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            "4:memory:/a/b\n2:cpu,cpuacct:/\n1:freezer:/\n0::/u\n",
            &[
                ("cpu", "/sys/fs/cgroup/cpu,cpuacct/"),
                ("memory", "/sys/fs/cgroup/memory/a/b"),
                ("", "/sys/fs/cgroup/unified/u"),
            ],
        );
    }

    #[test]
    fn inside_a_container_the_mount_shows_only_a_part() {
        check(
            "41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw",
            "0::/docker/abc\n",
            &[("", "/sys/fs/cgroup/")],
        );
    }
}
