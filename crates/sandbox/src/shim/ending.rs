//! Ending a sandbox: whom it consists of, the polite signal, the kill, and the proof.
//!
//! The same code serves the shim, which ends its own sandbox, and the provider, which ends one
//! whose shim is dead or does not answer. Everything it needs is in the sandbox's directory.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_kernel::SandboxId;
use rustix::process::Signal;

use super::init::kill_below;
use super::wire::Held;
use crate::os::cgroup::Group;
use crate::os::pid::ProcessRef;
use crate::os::procfs::{self, Stat};
use crate::receipt::Proof;

/// Everything by which the processes of one sandbox can be reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub(crate) sandbox: SandboxId,
    pub(crate) group: Option<Group>,
    pub(crate) held: Option<Held>,
}

/// Who looks: the shim, below which everything is, or somebody else, when the shim is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observer {
    Shim,
    Other,
}

impl Reach {
    /// The processes that are there, zombies and the shim excepted.
    pub(crate) fn members(&self, observer: Observer) -> Vec<Stat> {
        let mut found: BTreeMap<u32, Stat> = BTreeMap::new();
        let mut add = |stats: Vec<Stat>| {
            found.extend(stats.into_iter().map(|stat| (stat.pid, stat)));
        };
        match &self.group {
            Some(group) if group.exists() => {
                add(group.members().into_iter().filter_map(procfs::stat).collect());
            }
            _ => {
                for process in self.anchors(observer) {
                    add(procfs::below(process.pid));
                    add(procfs::stat(process.pid).into_iter().collect());
                }
                if observer == Observer::Other || !self.is_contained() {
                    add(procfs::marked(&self.sandbox.to_string()));
                }
            }
        }
        let shim = self.held.as_ref().map_or(0, |held| held.shim.pid);
        found.into_values().filter(|stat| !stat.is_zombie() && stat.pid != shim).collect()
    }

    /// Processes below which the sandbox is, as far as they are still themselves.
    fn anchors(&self, observer: Observer) -> Vec<ProcessRef> {
        let Some(held) = &self.held else { return Vec::new() };
        let shim = (observer == Observer::Shim || held.shim.is_alive()).then_some(held.shim);
        let inside = [held.wrapper, held.init].into_iter().flatten().filter(ProcessRef::is_alive);
        shim.into_iter().chain(inside).collect()
    }

    /// Whether the kernel itself keeps the processes together: by cgroup or by PID namespace.
    pub(crate) fn is_contained(&self) -> bool {
        let namespace = self.held.as_ref().is_some_and(|held| held.namespace.is_some());
        namespace || self.group.as_ref().is_some_and(Group::can_kill)
    }

    /// Asks the agent's processes to end; those that were stopped are let go, so that they can.
    pub(crate) fn terminate(&self, observer: Observer) {
        for signal in [Signal::TERM, Signal::CONT] {
            for process in self.members(observer) {
                if !self.is_ours(process.pid)
                    && let Some(process) = ProcessRef::of(process.pid)
                {
                    process.signal(signal);
                }
            }
        }
    }

    /// Whether this is a process of Belay inside the sandbox rather than one of the agent.
    pub(crate) fn is_ours(&self, pid: u32) -> bool {
        self.held.as_ref().is_some_and(|held| {
            [held.wrapper, held.init].into_iter().flatten().any(|process| process.pid == pid)
        })
    }

    /// Kills everything, the shim excepted. To be repeated until [`gone`](Self::gone).
    pub(crate) fn kill(&self, observer: Observer) {
        if let Some(group) = &self.group {
            group.kill();
        }
        if let Some(held) = &self.held {
            for process in [held.init, held.wrapper].into_iter().flatten() {
                process.signal(Signal::KILL);
            }
        }
        if self.is_contained() {
            return;
        }
        for process in self.anchors(observer) {
            kill_below(process.pid, Duration::from_millis(200));
        }
        for signal in [Signal::STOP, Signal::KILL] {
            for stat in self.members(observer) {
                if let Some(process) = ProcessRef::of(stat.pid) {
                    process.signal(signal);
                }
            }
        }
    }

    /// The proof that nothing is left, once nothing is.
    pub(crate) fn gone(&self, observer: Observer) -> Option<Proof> {
        let held = self.held.as_ref();
        let inside = held.map_or([None, None], |held| [held.wrapper, held.init]);
        if inside.into_iter().flatten().any(|process| process.is_alive()) {
            return None;
        }
        if let Some(group) = &self.group
            && let Some(path) = group.proof_path()
        {
            let gone = group.is_empty() && group.remove();
            return gone.then(|| Proof::CgroupRemoved { path: path.clone() });
        }
        if let Some(namespace) = held.and_then(|held| held.namespace) {
            return Some(Proof::NamespaceGone { namespace });
        }
        let twice = [(); 2].iter().all(|()| self.members(observer).is_empty());
        twice.then_some(Proof::NoneFound)
    }
}
