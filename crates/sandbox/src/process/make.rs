//! Making a sandbox: checks, directory, cgroup, shim; and taking all of it back if one fails.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use belay_kernel::Span;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::client::{CallError, call};
use super::{CALL_LIMIT, Inner, ProcessProvider, duration, settle};
use crate::error::{Error, Refusal, Result};
use crate::fencing::Admission;
use crate::plan::{Fence, Moment, Plan};
use crate::shim::wire::{Launch, Ready, Reply, Request};

/// What namespaces, mounts and the first process may take.
const READY_LIMIT: Span = Span::from_secs(15);
/// How often a sandbox that could not be made is tried again.
const TRIES: u32 = 4;
/// Where programs are looked for if the plan's environment does not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Makes the sandbox, or finds it made; the caller holds the session's lock.
pub(super) async fn prepare(
    provider: &ProcessProvider,
    _admission: &Admission,
    fence: &Fence,
    plan: &Plan,
    until: Moment,
) -> Result<()> {
    check(plan)?;
    if found_made(provider, fence).await? {
        return Ok(());
    }
    let mut tries = 1;
    loop {
        match make(provider, fence, plan, until).await {
            // Bubblewrap fails when some other mount of the machine goes while it makes its own.
            Err(Error::Shim { .. }) if tries < TRIES => tries += 1,
            made => return made,
        }
    }
}

/// Makes it once, and takes back whatever was made if that fails.
async fn make(provider: &ProcessProvider, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
    let (fence, plan) = (*fence, plan.clone());
    let made = provider.blocking(move |inner| record(inner, &fence, plan, until)).await;
    let started = match made {
        Ok(()) => start_shim(provider, fence).await,
        Err(error) => Err(error),
    };
    if started.is_err() {
        provider.blocking(move |inner| unmake(inner, &fence)).await?;
    }
    started
}

/// What is wrong with the plan on this machine.
fn check(plan: &Plan) -> Result<()> {
    plan.check()?;
    if !plan.tree.is_dir() {
        return Err(Refusal::TreeMissing { path: plan.tree.clone() }.into());
    }
    if let Some(bind) = plan.binds.iter().find(|bind| !bind.path.exists()) {
        return Err(Refusal::BindMissing { path: bind.path.clone() }.into());
    }
    check_program(plan)
}

/// The program must be there and executable as this machine sees it; what the sandbox hides is
/// found out when it is executed.
fn check_program(plan: &Plan) -> Result<()> {
    let program = plan.argv.first().cloned().unwrap_or_default();
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![plan.tree.join(&program)]
    } else {
        let path = plan.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        std::env::split_paths(path).map(|directory| directory.join(&program)).collect()
    };
    let is_file = |path: &&PathBuf| path.is_file();
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
    };
    let found: Vec<&PathBuf> = candidates.iter().filter(is_file).collect();
    if found.is_empty() {
        return Err(Refusal::ProgramMissing { program }.into());
    }
    if !found.iter().any(|path| is_executable(path)) {
        return Err(Refusal::ProgramNotExecutable { program }.into());
    }
    Ok(())
}

/// Whether an earlier call made it already. What one left half made is taken back.
async fn found_made(provider: &ProcessProvider, fence: &Fence) -> Result<bool> {
    let home = &provider.inner.home;
    let Some(identity) = home.identity(fence.sandbox)? else { return Ok(false) };
    if identity.session != fence.session {
        return Err(Refusal::WrongSession { sandbox: fence.sandbox }.into());
    }
    if home.end(fence.sandbox)?.is_some() {
        return Err(Refusal::Ended { sandbox: fence.sandbox }.into());
    }
    match call(&home.sandbox(fence.sandbox), &Request::Status, &[], CALL_LIMIT).await {
        Ok(Reply::Status { .. }) => Ok(true),
        Ok(_) | Err(CallError::Gone) => {
            let fence = *fence;
            provider.blocking(move |inner| unmake(inner, &fence)).await?;
            Ok(false)
        }
        Err(CallError::TimedOut) => {
            Err(Error::TimedOut { operation: "asking the shim", after: CALL_LIMIT })
        }
    }
}

/// Writes down who it is, then what is to be made, then makes the cgroup.
fn record(inner: &Inner, fence: &Fence, plan: Plan, until: Moment) -> Result<()> {
    inner.home.put_identity(inner.config.installation, fence, &plan)?;
    let leaf = format!("{}-{}-{}", plan.task, plan.attempt, fence.sandbox);
    let group = inner.cgroups.plan(&leaf);
    let launch = Launch {
        sandbox: fence.sandbox,
        epoch: fence.epoch,
        until,
        leading: inner.config.shim.leading.clone(),
        bubblewrap: inner.bubblewrap.as_ref().ok().map(|found| found.program.clone()),
        hidden: inner.hidden.clone(),
        group,
        plan,
    };
    inner.home.put_launch(&launch)?;
    if let Some(group) = &launch.group {
        let directory = inner.home.sandbox(fence.sandbox);
        group.create(&launch.plan.limits).map_err(Error::io("make the cgroup of", &directory))?;
    }
    Ok(())
}

/// Starts the shim, which makes the rest, and waits until it says so.
async fn start_shim(provider: &ProcessProvider, fence: Fence) -> Result<()> {
    let inner = &provider.inner;
    let shim = &inner.config.shim;
    let directory = inner.home.sandbox(fence.sandbox);
    let mut command = tokio::process::Command::new(&shim.path);
    command.args(&shim.leading).arg("hold").arg(&directory);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(Error::io("start the shim", &shim.path))?;
    let mut line = String::new();
    let said = async {
        match child.stdout.take() {
            Some(stdout) => BufReader::new(stdout).read_line(&mut line).await,
            None => Ok(0),
        }
    };
    match tokio::time::timeout(duration(READY_LIMIT), said).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(Error::io("hear the shim", &shim.path)(error)),
        Err(_) => {
            return Err(Error::TimedOut { operation: "making the sandbox", after: READY_LIMIT });
        }
    }
    match serde_json::from_str(&line) {
        Ok(Ready::Ready) => Ok(()),
        Ok(Ready::Failed { message }) => Err(Error::Shim { message }),
        Err(_) => Err(Error::Shim { message: "it ended without a word".into() }),
    }
}

/// Takes back whatever was made.
fn unmake(inner: &Inner, fence: &Fence) -> Result<()> {
    settle::clear(&inner.home, fence.sandbox)?;
    inner.home.remove(fence.sandbox)?;
    inner.cgroups.remove_empty();
    Ok(())
}
