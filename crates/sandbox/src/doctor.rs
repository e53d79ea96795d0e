//! What this machine can do for sandboxes, and what each missing part costs: what `belay doctor`
//! prints.

use crate::os::bwrap::Bubblewrap;
use crate::os::cgroup::Cgroups;
use crate::provider::Capabilities;

/// What process sandboxes can do here.
pub(crate) fn process_capabilities(
    cgroups: &Cgroups,
    bubblewrap: &Result<Bubblewrap, String>,
) -> Capabilities {
    let isolation = bubblewrap.is_ok();
    let counted = isolation && !rustix::process::geteuid().is_root();
    Capabilities {
        provider: "process".into(),
        pause: cgroups.can_kill(),
        memory_snapshot: false,
        file_snapshot: true,
        isolation,
        network_cut: isolation,
        memory_limit: cgroups.has("memory"),
        process_limit: cgroups.has("pids") || counted,
        cpu_limit: cgroups.has("cpu"),
        complete_kill: isolation || cgroups.can_kill(),
        weaker: Vec::new(),
    }
}

/// What containers can do.
pub(crate) fn docker_capabilities() -> Capabilities {
    Capabilities {
        provider: "docker".into(),
        pause: true,
        memory_snapshot: false,
        file_snapshot: true,
        isolation: true,
        network_cut: true,
        memory_limit: true,
        process_limit: true,
        cpu_limit: true,
        complete_kill: true,
        weaker: Vec::new(),
    }
}
