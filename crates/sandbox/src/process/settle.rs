//! Ending sandboxes without their shim: because it died, or does not answer, or never came to be.

use std::time::{Duration, Instant};

use belay_kernel::{SandboxId, Span};
use rustix::process::Signal;

use super::home::Home;
use crate::error::{Error, Result};
use crate::log;
use crate::os::cgroup::Group;
use crate::os::{clock, procfs};
use crate::output::{End, EndReason, Exit};
use crate::provider::{Inspection, Phase};
use crate::receipt::{Proof, Receipt};
use crate::shim::ending::{Observer, Reach};

/// How long a kill is repeated before its failure is reported.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How long a shim that let go of its socket may take to record the end.
const RECORD_LIMIT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(2);

/// The end of a sandbox whose shim does not listen any more: as it recorded it, or brought about
/// here. Nothing if it is still being made, or was left half made; only whoever holds the session's
/// lock can tell these two apart, and then calls [`take_over`].
pub(super) fn settle(home: &Home, sandbox: SandboxId) -> Result<Option<End>> {
    let deadline = Instant::now() + RECORD_LIMIT;
    loop {
        if let Some(end) = home.end(sandbox)? {
            return Ok(Some(end));
        }
        let Some(held) = home.held(sandbox)? else { return Ok(None) };
        if !held.shim.is_alive() || Instant::now() >= deadline {
            return take_over(home, sandbox).map(Some);
        }
        std::thread::sleep(TICK);
    }
}

/// Ends a sandbox with its shim, and records the end.
pub(super) fn take_over(home: &Home, sandbox: SandboxId) -> Result<End> {
    home.known(sandbox)?;
    let receipt = clear(home, sandbox)?;
    // The shim may have recorded the end just before it was killed; what is written first stays.
    let end = End {
        sandbox,
        exit: Exit::Unknown,
        reason: EndReason::ShimLost,
        out_of_memory: false,
        at: receipt.proven,
        output_bytes: log::length(&home.sandbox(sandbox)),
        receipt,
    };
    home.put_end(&end)?;
    Ok(home.end(sandbox)?.unwrap_or(end))
}

/// Kills whatever there is of a sandbox, shim included, and proves it.
pub(super) fn clear(home: &Home, sandbox: SandboxId) -> Result<Receipt> {
    let mut receipt = Receipt::empty(sandbox, clock::now(), Proof::NoneFound);
    if home.identity(sandbox)?.is_some_and(|identity| identity.boot != clock::boot_id()) {
        receipt.proof = Proof::Rebooted;
        return Ok(receipt);
    }
    let reach = reach(home, sandbox)?;
    let shim = reach.held.as_ref().map(|held| held.shim);
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        if let Some(shim) = shim {
            shim.signal(Signal::KILL);
        }
        let members = reach.members(Observer::Other);
        let count = members.len();
        receipt.add(members.iter().filter(|m| !reach.is_ours(m.pid)).map(procfs::Stat::seen));
        reach.kill(Observer::Other);
        let shim_gone = shim.is_none_or(|shim| !shim.is_alive());
        if shim_gone && let Some(proof) = reach.gone(Observer::Other) {
            receipt.proof = proof;
            receipt.proven = clock::now();
            return Ok(receipt);
        }
        if Instant::now() >= deadline {
            return Err(Error::StillAlive { count });
        }
        std::thread::sleep(TICK);
    }
}

fn reach(home: &Home, sandbox: SandboxId) -> Result<Reach> {
    let group = home.launch(sandbox)?.and_then(|launch| launch.group);
    Ok(Reach { sandbox, group, held: home.held(sandbox)? })
}

/// What a sandbox is doing.
pub(super) fn inspect(home: &Home, sandbox: SandboxId, phase: Phase) -> Result<Inspection> {
    if phase == Phase::Ended {
        let none = Inspection { phase, processes: Vec::new(), cpu: Span::ZERO, memory_bytes: 0 };
        return Ok(none);
    }
    let reach = reach(home, sandbox)?;
    let mut processes: Vec<_> = reach
        .members(Observer::Other)
        .iter()
        .filter(|member| !reach.is_ours(member.pid))
        .map(procfs::Stat::info)
        .collect();
    processes.sort_by_key(|process| (process.started, process.pid));
    let sum_cpu = processes.iter().fold(Span::ZERO, |sum, process| sum.plus(process.cpu));
    let sum_memory = processes.iter().map(|process| process.memory_bytes).sum();
    let group = reach.group.as_ref();
    let cpu = group.and_then(Group::cpu).unwrap_or(sum_cpu);
    let memory_bytes = group.and_then(Group::memory).unwrap_or(sum_memory);
    Ok(Inspection { phase, processes, cpu, memory_bytes })
}
