//! Making, starting, ending and looking at one container.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_kernel::{SandboxId, SnapshotId, Span};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
};

use super::engine::{self, State};
use super::logs::Told;
use super::runtime::{AGENTS, INSIDE, MAILBOX, PROGRAMS};
use super::{DockerProvider, Inner};
use crate::archive;
use crate::error::{Error, Refusal, Result};
use crate::files;
use crate::os::{clock, pid::ProcessRef, procfs};
use crate::output::{End, EndReason, Exit};
use crate::plan::{Access, Base, Fence, MARKER, Moment, Network, Plan, Stdout};
use crate::process::duration;
use crate::provider::{Inspection, More, Phase, Snapshot};
use crate::receipt::{Proof, Receipt};
use crate::shim::container::{ORDERS, OUT, Orders, Record, STDIN};
use crate::shim::wire::MAX_STDIN;

/// What the engine may take to start a container.
const START_LIMIT: Span = Span::from_secs(20);
/// What PID 1 may take to end everything, beyond the grace, before the engine kills it.
const END_LIMIT: Span = Span::from_secs(2);
/// How long a kill may take before its failure is reported.
const KILL_LIMIT: Span = Span::from_secs(10);
const TICK: Duration = Duration::from_millis(10);

impl DockerProvider {
    /// The container's name, known before it exists.
    pub(super) fn name(&self, sandbox: SandboxId) -> String {
        format!("belay-{}-{sandbox}", self.inner.config.installation.id)
    }

    pub(super) fn snapshot_tag(id: SnapshotId) -> String {
        format!("belay-snapshot:{id}")
    }

    fn mailbox(&self, sandbox: SandboxId) -> PathBuf {
        self.inner.home.sandbox(sandbox).join("box")
    }

    /// Makes the container, or finds it made; the caller holds the session's lock.
    pub(super) async fn make(
        &self,
        fence: &Fence,
        plan: &Plan,
        until: Moment,
        image: Option<String>,
    ) -> Result<()> {
        check(plan)?;
        let home = &self.inner.home;
        if let Some(identity) = home.identity(fence.sandbox)? {
            if identity.session != fence.session {
                return Err(Refusal::WrongSession { sandbox: fence.sandbox }.into());
            }
            if home.end(fence.sandbox)?.is_some() {
                return Err(Refusal::Ended { sandbox: fence.sandbox }.into());
            }
            if self.inner.engine.state(&self.name(fence.sandbox)).await?.is_some() {
                return Ok(());
            }
        }
        let named = image.or_else(|| plan.image.clone());
        let image = named.ok_or_else(|| Refusal::BadPlan {
            what: "the image".into(),
            problem: "is not named".into(),
        })?;
        let path = self.inner.engine.search_path(&image).await?;
        let (fence, plan) = (*fence, plan.clone());
        let made = self.blocking({
            let plan = plan.clone();
            move |inner| record(inner, &fence, &plan, until)
        });
        let created = match made.await {
            Ok(user) => {
                let body = self.body(&fence, &plan, image, &path, user);
                self.inner.engine.create(&self.name(fence.sandbox), body).await
            }
            Err(error) => Err(error),
        };
        if created.is_err() {
            self.blocking(move |inner| inner.home.remove(fence.sandbox)).await?;
        }
        created
    }

    fn body(
        &self,
        fence: &Fence,
        plan: &Plan,
        image: String,
        path: &str,
        user: (u32, u32),
    ) -> ContainerCreateBody {
        let mut env = plan.env.clone();
        env.insert(MARKER.to_owned(), fence.sandbox.to_string());
        if self.inner.config.agents.is_some() {
            // Last, so that it comes before nothing that the image or the plan has chosen.
            let path = env.entry("PATH".to_owned()).or_insert_with(|| path.to_owned());
            *path = format!("{path}:{PROGRAMS}");
        }
        let env = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let command = &self.inner.runtime.command;
        ContainerCreateBody {
            image: Some(image),
            user: Some(format!("{}:{}", user.0, user.1)),
            env: Some(env),
            entrypoint: Some(command.clone()),
            cmd: Some(plan.argv.clone()),
            working_dir: Some(plan.tree.to_string_lossy().into_owned()),
            labels: Some(self.labels(fence, plan)),
            tty: Some(false),
            open_stdin: Some(false),
            host_config: Some(self.host(fence, plan)),
            ..Default::default()
        }
    }

    fn labels(&self, fence: &Fence, plan: &Plan) -> HashMap<String, String> {
        let installation = self.inner.config.installation;
        [
            (engine::INSTALLATION, installation.id.to_string()),
            (engine::INSTALLATION_EPOCH, installation.epoch.to_string()),
            (engine::SANDBOX, fence.sandbox.to_string()),
            (engine::SESSION, fence.session.to_string()),
            (engine::TASK, plan.task.to_string()),
            (engine::ATTEMPT, plan.attempt.to_string()),
            (engine::CREATED, clock::now().as_millis().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn host(&self, fence: &Fence, plan: &Plan) -> HostConfig {
        let limits = &plan.limits;
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut mounts = vec![
            mount(&self.inner.runtime.directory, INSIDE, Access::Read),
            mount(&self.mailbox(fence.sandbox), MAILBOX, Access::Read),
        ];
        if let Some(agents) = &self.inner.config.agents {
            mounts.push(mount(agents, AGENTS, Access::Read));
        }
        for bind in &plan.binds {
            mounts.push(mount(&bind.path, &bind.path.to_string_lossy(), bind.access));
        }
        mounts.push(mount(&plan.tree, &plan.tree.to_string_lossy(), Access::Write));
        if plan.stdout == Stdout::File {
            let out = self.inner.home.sandbox(fence.sandbox).join("out");
            mounts.push(mount(&out, OUT, Access::Write));
        }
        let size = limits.scratch_bytes.map_or(String::new(), |bytes| format!(",size={bytes}"));
        let scratch = format!("rw,exec,nosuid,nodev,mode=1777{size}");
        let file = limits.file_bytes.map(|bytes| ResourcesUlimits {
            name: Some("fsize".into()),
            soft: Some(signed(bytes)),
            hard: Some(signed(bytes)),
        });
        HostConfig {
            mounts: Some(mounts),
            tmpfs: Some(HashMap::from([("/tmp".to_owned(), scratch)])),
            memory: limits.memory_bytes.map(signed),
            // The same with swap: none.
            memory_swap: limits.memory_bytes.map(signed),
            // PID 1 and its threads are counted too.
            pids_limit: limits.processes.map(|count| i64::from(count) + 8),
            nano_cpus: limits.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(vec!["no-new-privileges".into()]),
            readonly_rootfs: Some(plan.base == Base::ReadOnly),
            network_mode: (plan.network == Network::Cut).then(|| "none".into()),
            // Our own PID 1 reaps; the engine's would stand between it and its orders.
            init: Some(false),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".into()),
                config: Some(HashMap::new()),
            }),
            ulimits: file.map(|limit| vec![limit]),
            ..Default::default()
        }
    }

    /// Changes the orders of a container; the caller holds the session's lock.
    pub(super) fn change_orders(
        &self,
        fence: &Fence,
        change: impl FnOnce(&mut Orders) -> std::result::Result<(), Refusal>,
    ) -> Result<()> {
        let path = self.mailbox(fence.sandbox).join(ORDERS);
        let orders: Option<Orders> = files::get(&path)?;
        let mut orders = orders.ok_or(Refusal::NotFound { sandbox: fence.sandbox })?;
        change(&mut orders)?;
        orders.epoch = orders.epoch.max(fence.epoch);
        files::put_shared(&path, &orders)
    }

    /// Starts the container under its lease, and waits until the agent was executed.
    pub(super) async fn launch(&self, fence: &Fence, until: Moment) -> Result<()> {
        let (name, sandbox) = (self.name(fence.sandbox), fence.sandbox);
        self.change_orders(fence, |orders| {
            let now = clock::moment();
            if orders.lease().is_over(now) {
                return Err(Refusal::LeaseOver);
            }
            orders.lease().renew(until, now)?;
            orders.until = orders.until.max(until);
            orders.go = true;
            Ok(())
        })?;
        match self.inner.engine.state(&name).await?.map(|state| state.phase) {
            Some(Phase::Prepared) => self.inner.engine.start(&name, sandbox).await?,
            Some(Phase::Running | Phase::Paused) => {}
            // An engine starts also what has ended, and then the agent would be executed again.
            Some(Phase::Ended) | None => return Err(Refusal::Ended { sandbox }.into()),
        }
        let mut records = self.records(sandbox, 0, true);
        let first = async {
            loop {
                match records.next().await? {
                    Ok(record @ (Record::Started | Record::ExecFailed(_) | Record::End(..))) => {
                        return Some(Ok(record));
                    }
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        };
        match tokio::time::timeout(duration(START_LIMIT), first).await {
            Ok(Some(Ok(Record::ExecFailed(number)))) => {
                self.await_end(&name, START_LIMIT).await?;
                self.finalize(sandbox, None).await?;
                let argv = self.inner.home.plan(sandbox)?.map(|plan| plan.argv);
                Err(Refusal::of_exec(number, &argv.unwrap_or_default()).into())
            }
            Ok(Some(Ok(Record::End(Exit::NotStarted, ..)))) => Err(Refusal::LeaseOver.into()),
            Ok(Some(Ok(_))) => Ok(()),
            Ok(Some(Err(error))) => Err(self.inner.engine.failed("read the log")(error)),
            Ok(None) => Err(Error::Shim { message: "PID 1 ended without a word".into() }),
            Err(_) => {
                Err(Error::TimedOut { operation: "starting the container", after: START_LIMIT })
            }
        }
    }

    pub(super) fn write_stdin(
        &self,
        fence: &Fence,
        offset: u64,
        bytes: &[u8],
        more: More,
    ) -> Result<u64> {
        let mailbox = self.mailbox(fence.sandbox);
        let path = mailbox.join(STDIN);
        let expected = path.metadata().map_or(0, |metadata| metadata.len());
        if offset > expected {
            return Err(Refusal::StdinGap { expected, asked: offset }.into());
        }
        let known = usize::try_from(expected - offset).unwrap_or(usize::MAX);
        let fresh = bytes.get(known..).unwrap_or_default();
        let orders: Option<Orders> = files::get(&mailbox.join(ORDERS))?;
        if orders.is_some_and(|orders| orders.stdin_end.is_some()) {
            return match fresh.is_empty() {
                true => Ok(expected),
                false => Err(Refusal::StdinClosed.into()),
            };
        }
        let part = &fresh[..fresh.len().min(MAX_STDIN)];
        let append = || {
            let mut file =
                fs::OpenOptions::new().append(true).create(true).mode(0o644).open(&path)?;
            file.write_all(part)
        };
        append().map_err(Error::io("append to", &path))?;
        let next = expected + part.len() as u64;
        if more == More::Ends && part.len() == fresh.len() {
            self.change_orders(fence, |orders| {
                orders.stdin_end = Some(next);
                Ok(())
            })?;
        }
        Ok(next)
    }

    /// Ends the container: by order, then by the engine, and proves it.
    pub(super) async fn end_now(&self, fence: &Fence, grace: Span) -> Result<End> {
        let (name, sandbox) = (self.name(fence.sandbox), fence.sandbox);
        let mut receipt = Receipt::empty(sandbox, clock::now(), Proof::NoneFound);
        // Who is there is noted before anybody is told to go.
        let state = self.inner.engine.state(&name).await?;
        receipt.add(seen_in(state.as_ref().and_then(|state| state.pid)));
        let withdrawn = self.change_orders(fence, |orders| {
            orders.end = Some(grace);
            Ok(())
        });
        match state {
            // Without its directory nobody can order it; the engine still can end it.
            Some(State { phase: Phase::Running, pid, .. }) => {
                let first = pid.and_then(ProcessRef::of);
                let by_order =
                    withdrawn.is_ok() && self.await_end(&name, grace.plus(END_LIMIT)).await.is_ok();
                if !by_order {
                    receipt.add(seen_in(pid));
                    self.inner.engine.kill(&name).await?;
                    self.await_end(&name, KILL_LIMIT).await?;
                }
                await_gone(first).await?;
            }
            Some(State { phase: Phase::Paused, pid, .. }) => {
                let first = pid.and_then(ProcessRef::of);
                self.inner.engine.kill(&name).await?;
                let _ = self.inner.engine.unpause(&name, sandbox).await;
                self.await_end(&name, KILL_LIMIT).await?;
                await_gone(first).await?;
            }
            // It holds nothing yet; a start that comes late finds nothing.
            Some(State { phase: Phase::Prepared, .. }) => self.inner.engine.remove(&name).await?,
            Some(State { phase: Phase::Ended, .. }) | None => {}
        }
        self.finalize(sandbox, Some(receipt)).await
    }

    async fn await_end(&self, name: &str, limit: Span) -> Result<()> {
        let deadline = clock::moment().after(limit);
        loop {
            let state = self.inner.engine.state(name).await?;
            if state.is_none_or(|state| state.phase == Phase::Ended) {
                return Ok(());
            }
            if clock::moment() >= deadline {
                return Err(Error::TimedOut { operation: "ending the container", after: limit });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Records the end of a container that is not running any more.
    async fn finalize(&self, sandbox: SandboxId, stopped: Option<Receipt>) -> Result<End> {
        let name = self.name(sandbox);
        let state = self.inner.engine.state(&name).await?;
        let told = match &state {
            Some(_) => self.told(sandbox).await?,
            None => Told::default(),
        };
        let by_us = stopped.is_some();
        let (exit, reason) = told.end.unwrap_or(match (by_us, &state) {
            (true, Some(_)) => (Exit::Signal(9), EndReason::Stopped),
            (true, None) => (Exit::NotStarted, EndReason::Stopped),
            (false, _) => (Exit::Unknown, EndReason::ShimLost),
        });
        let now = clock::now();
        let mut receipt = stopped.unwrap_or_else(|| Receipt::empty(sandbox, now, Proof::NoneFound));
        let container = state.as_ref().map_or(name, |state| state.id.clone());
        receipt.proven = now;
        receipt.proof = Proof::ContainerGone { container };
        // The engine knows if PID 1 itself fell, PID 1 if anybody else did.
        let out_of_memory = told.out_of_memory || state.is_some_and(|state| state.out_of_memory);
        let output_bytes = told.length;
        let end = End { sandbox, exit, reason, out_of_memory, at: now, output_bytes, receipt };
        self.blocking(move |inner| {
            // A container whose directory is gone has nobody to tell.
            if inner.home.identity(sandbox)?.is_some() {
                inner.home.put_end(&end)?;
            }
            Ok(inner.home.end(sandbox)?.unwrap_or(end))
        })
        .await
    }

    /// The end, if it has ended; recorded now if nobody did.
    pub(super) async fn known_end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        self.inner.home.known(sandbox)?;
        if let Some(end) = self.inner.home.end(sandbox)? {
            return Ok(Some(end));
        }
        match self.inner.engine.state(&self.name(sandbox)).await? {
            Some(State { phase: Phase::Ended, .. }) => self.finalize(sandbox, None).await.map(Some),
            _ => Ok(None),
        }
    }

    pub(super) async fn look(&self, sandbox: SandboxId) -> Result<Inspection> {
        self.inner.home.known(sandbox)?;
        let state = self.inner.engine.state(&self.name(sandbox)).await?;
        let phase = state.as_ref().map_or(Phase::Ended, |state| state.phase);
        let pid = state.and_then(|state| state.pid);
        let mut processes: Vec<_> =
            pid.map(procfs::below).unwrap_or_default().iter().map(procfs::Stat::info).collect();
        processes.retain(|process| !matches!(process.state, 'Z' | 'X'));
        processes.sort_by_key(|process| (process.started, process.pid));
        let cpu = processes.iter().fold(Span::ZERO, |sum, process| sum.plus(process.cpu));
        let memory_bytes = processes.iter().map(|process| process.memory_bytes).sum();
        Ok(Inspection { phase, processes, cpu, memory_bytes })
    }

    /// Archives the tree and, where the container has a layer of its own, commits that.
    pub(super) async fn take_snapshot(
        &self,
        sandbox: SandboxId,
        id: SnapshotId,
    ) -> Result<Snapshot> {
        let name = self.name(sandbox);
        let state = self.inner.engine.state(&name).await?;
        let running = state.as_ref().is_some_and(|state| state.phase == Phase::Running);
        // Nobody writes meanwhile; PID 1 is frozen too, and looks at its lease when it goes on.
        if running {
            self.inner.engine.pause(&name, sandbox).await?;
        }
        let taken = self.archive(sandbox, id, state.is_some()).await;
        if running {
            self.inner.engine.unpause(&name, sandbox).await?;
        }
        taken
    }

    async fn archive(&self, sandbox: SandboxId, id: SnapshotId, exists: bool) -> Result<Snapshot> {
        let plan = self.inner.home.plan(sandbox)?;
        let writable = plan.is_some_and(|plan| plan.base == Base::Writable);
        if writable && exists && !self.inner.engine.has_image(&Self::snapshot_tag(id)).await? {
            let tag = id.to_string();
            self.inner.engine.commit(&self.name(sandbox), "belay-snapshot", &tag).await?;
        }
        self.blocking(move |inner| archive::snapshot_of(&inner.home, sandbox, id)).await
    }

    /// The image that a snapshot kept, if it kept one.
    pub(super) async fn snapshot_image(&self, id: SnapshotId) -> Result<Option<String>> {
        if files::get::<Snapshot>(&self.inner.home.snapshot_record(id))?.is_none() {
            return Err(Refusal::SnapshotMissing { snapshot: id }.into());
        }
        let tag = Self::snapshot_tag(id);
        Ok(self.inner.engine.has_image(&tag).await?.then_some(tag))
    }
}

fn check(plan: &Plan) -> Result<()> {
    plan.check()?;
    if !plan.tree.is_dir() {
        return Err(Refusal::TreeMissing { path: plan.tree.clone() }.into());
    }
    match plan.binds.iter().find(|bind| !bind.path.exists()) {
        Some(bind) => Err(Refusal::BindMissing { path: bind.path.clone() }.into()),
        None => Ok(()),
    }
}

/// Writes down who it is and its first orders; says which user the agent is to be.
fn record(inner: &Inner, fence: &Fence, plan: &Plan, until: Moment) -> Result<(u32, u32)> {
    inner.home.put_identity(inner.config.installation, fence, plan)?;
    inner.home.put_plan(fence.sandbox, plan)?;
    let mailbox = inner.home.sandbox(fence.sandbox).join("box");
    fs::create_dir_all(&mailbox).map_err(Error::io("make", &mailbox))?;
    fs::set_permissions(&mailbox, fs::Permissions::from_mode(0o755))
        .map_err(Error::io("make readable", &mailbox))?;
    let orders = Orders {
        epoch: fence.epoch,
        until,
        margins: plan.margins,
        go: false,
        end: None,
        signals: Vec::new(),
        stdin_end: None,
        stdout: plan.stdout,
    };
    files::put_shared(&mailbox.join(ORDERS), &orders)?;
    let metadata = plan.tree.metadata().map_err(Error::io("look at", &plan.tree))?;
    let user = match metadata.uid() {
        0 => inner.config.user,
        uid => (uid, metadata.gid()),
    };
    if metadata.uid() == 0 {
        give(&plan.tree, user).map_err(Error::io("give the agent", &plan.tree))?;
    }
    if plan.stdout == Stdout::File {
        let out = inner.home.sandbox(fence.sandbox).join("out");
        files::private_directory(&out)?;
        give(&out, user).map_err(Error::io("give the agent", &out))?;
    }
    Ok(user)
}

/// Gives what belongs to root in a tree to another user, who could not write it otherwise.
fn give(path: &Path, user: (u32, u32)) -> std::io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.uid() == 0 {
        lchown(path, Some(user.0), Some(user.1))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    Ok(())
}

fn mount(source: &Path, target: &str, access: Access) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(access == Access::Read),
        ..Default::default()
    }
}

/// The agent's processes in a container, as this machine sees them.
fn seen_in(pid: Option<u32>) -> Vec<crate::receipt::Seen> {
    let found = pid.map(procfs::below).unwrap_or_default();
    found.iter().filter(|stat| !stat.is_zombie()).map(procfs::Stat::seen).collect()
}

/// Waits until a container's first process is gone, which the kernel lets happen last.
async fn await_gone(first: Option<ProcessRef>) -> Result<()> {
    let deadline = clock::moment().after(KILL_LIMIT);
    while first.is_some_and(|first| first.is_alive()) {
        if clock::moment() >= deadline {
            return Err(Error::StillAlive { count: 1 });
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}
