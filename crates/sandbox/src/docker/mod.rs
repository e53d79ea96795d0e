//! Sandboxes as containers, through the Engine API of Docker or Podman.
//!
//! ```text
//! ROOT/runtime/…             the shim with its libraries, mounted read-only into every container
//! ROOT/sandboxes/ID/         identity.json, end.json
//! ROOT/sandboxes/ID/box/     orders.json, stdin: mounted read-only, PID 1 looks at it
//! ROOT/sandboxes/ID/out/     where PID 1 makes the agent's standard output, where it is a file
//! ROOT/snapshots/, ROOT/sessions/, ROOT/tombstones/   as for process sandboxes
//! engine                     the container `belay-INSTALLATION-SANDBOX`, its labels, its log
//! ```
//!
//! The container's name is made of the sandbox's id, so it is known before it exists and a second
//! create is a conflict. A container that was created and not started does nothing; what is started
//! runs our shim as PID 1, which executes the agent only if its orders say so and its lease lasts.
//! So a create or start that reaches the engine late finds its orders withdrawn.

mod engine;
mod logs;
mod runtime;
mod sandbox;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use belay_kernel::{SandboxId, SnapshotId, Span};

use crate::archive;
use crate::blocking::blocking;
use crate::error::{Refusal, Result};
use crate::fencing::{Admission, Fencing};
use crate::os::clock;
use crate::output::{End, Output};
use crate::plan::{Fence, Moment, Plan};
use crate::process::{Home, ShimProgram};
use crate::provider::{
    Capabilities, Inspection, Installation, Listed, More, Phase, Probe, Provider, Signal, Snapshot,
    SnapshotKind,
};
use crate::receipt::{Proof, Receipt};
use engine::{Engine, State};
pub use runtime::AGENTS;
use runtime::Runtime;

/// How a [`DockerProvider`] is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DockerConfig {
    /// Its own directory.
    pub root: PathBuf,
    /// Whose sandboxes these are.
    pub installation: Installation,
    /// The shim.
    pub shim: ShimProgram,
    /// The engine's socket: Docker's, or Podman's.
    pub socket: PathBuf,
    /// The user and group that agents run as where the tree belongs to root.
    pub user: (u32, u32),
    /// The directory with the socket at which agents reach Belay, which is shown in every container
    /// as [`AGENTS`]. It must be there when one is made.
    pub agents: Option<PathBuf>,
}

/// Sandboxes as containers.
#[derive(Clone, Debug)]
pub struct DockerProvider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: DockerConfig,
    home: Home,
    fencing: Fencing,
    engine: Engine,
    runtime: Runtime,
    /// Where in the log's time each sandbox's offsets are, so that a read need not begin at the
    /// start.
    positions: Mutex<BTreeMap<SandboxId, logs::Positions>>,
    /// Logs that are being followed, for whoever reads on where the last read ended.
    followed: Mutex<BTreeMap<SandboxId, logs::Reader>>,
}

impl DockerProvider {
    /// Opens the directory and copies the shim there. The engine need not be up.
    pub fn open(config: DockerConfig) -> Result<Self> {
        let home = Home::open(&config.root)?;
        let fencing = Fencing::open(&config.root)?;
        let runtime = Runtime::install(&config.root, &config.shim)?;
        let engine = Engine::new(&config.socket)?;
        let (positions, followed) = (Mutex::default(), Mutex::default());
        let inner = Inner { config, home, fencing, engine, runtime, positions, followed };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The command that is the shim's program inside its containers, before any argument.
    pub fn program(&self) -> &[String] {
        &self.inner.runtime.program
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        blocking(&self.inner, work).await
    }

    async fn admit(&self, fence: &Fence) -> Result<Admission> {
        let fence = *fence;
        self.blocking(move |inner| inner.fencing.admit(&fence)).await
    }

    /// Takes the lock for a sandbox that is there, belongs to the session and has not ended.
    async fn admit_living(&self, fence: &Fence) -> Result<Admission> {
        let admission = self.admit(fence).await?;
        self.living(fence)?;
        Ok(admission)
    }

    /// Refuses a sandbox that has ended, is not there, or belongs to another session.
    fn living(&self, fence: &Fence) -> Result<()> {
        self.inner.home.belongs(fence)?;
        match self.inner.home.end(fence.sandbox)? {
            Some(_) => Err(Refusal::Ended { sandbox: fence.sandbox }.into()),
            None => Ok(()),
        }
    }
}

impl Provider for DockerProvider {
    fn capabilities(&self) -> Capabilities {
        crate::doctor::docker_capabilities()
    }

    fn moment(&self) -> Moment {
        clock::moment()
    }

    async fn prepare(&self, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
        let admission = self.admit(fence).await?;
        admission.refuse_buried()?;
        self.make(fence, plan, until, None).await
    }

    async fn start(&self, fence: &Fence, until: Moment) -> Result<()> {
        let admission = self.admit(fence).await?;
        admission.refuse_buried()?;
        self.living(fence)?;
        self.launch(fence, until).await
    }

    async fn renew(&self, fence: &Fence, until: Moment) -> Result<()> {
        let _admission = self.admit_living(fence).await?;
        self.change_orders(fence, |orders| {
            let mut lease = orders.lease();
            lease.renew(until, clock::moment())?;
            orders.until = orders.until.max(until);
            Ok(())
        })
    }

    async fn attach(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max_bytes: usize,
        wait: Span,
    ) -> Result<Output> {
        self.read(sandbox, offset, max_bytes, wait).await
    }

    async fn write(&self, fence: &Fence, offset: u64, bytes: &[u8], more: More) -> Result<u64> {
        let _admission = self.admit_living(fence).await?;
        self.write_stdin(fence, offset, bytes, more)
    }

    async fn signal(&self, fence: &Fence, signal: Signal) -> Result<()> {
        let _admission = self.admit_living(fence).await?;
        let state = self.inner.engine.state(&self.name(fence.sandbox)).await?;
        if state.is_none_or(|state| state.phase == Phase::Prepared) {
            return Err(Refusal::NotStarted { sandbox: fence.sandbox }.into());
        }
        self.change_orders(fence, |orders| {
            let number = orders.signals.last().map_or(1, |last| last.0 + 1);
            orders.signals.push((number, signal.number()));
            let old = orders.signals.len().saturating_sub(16);
            orders.signals.drain(..old);
            Ok(())
        })
    }

    async fn stop(&self, fence: &Fence, grace: Span) -> Result<Receipt> {
        let now = clock::now();
        let admission = self.admit(fence).await?;
        let buried = self.blocking(move |_| admission.bury(now).map(|()| admission)).await?;
        let identity = self.inner.home.identity(fence.sandbox)?;
        if identity.as_ref().is_some_and(|identity| identity.session != fence.session) {
            return Err(Refusal::WrongSession { sandbox: fence.sandbox }.into());
        }
        if let Some(end) = self.inner.home.end(fence.sandbox)? {
            return Ok(end.receipt);
        }
        drop(buried);
        if identity.is_none() && self.inner.engine.state(&self.name(fence.sandbox)).await?.is_none()
        {
            return Ok(Receipt::empty(fence.sandbox, now, Proof::NeverExisted));
        }
        Ok(self.end_now(fence, grace).await?.receipt)
    }

    async fn pause(&self, fence: &Fence) -> Result<()> {
        let _admission = self.admit_living(fence).await?;
        self.inner.engine.pause(&self.name(fence.sandbox), fence.sandbox).await
    }

    async fn resume(&self, fence: &Fence, until: Moment) -> Result<()> {
        let _admission = self.admit_living(fence).await?;
        // The new lease first: PID 1 was frozen too, and looks at it as soon as it goes on.
        self.change_orders(fence, |orders| {
            let mut lease = orders.lease();
            lease.unpark(until, clock::moment())?;
            orders.until = until;
            Ok(())
        })?;
        self.inner.engine.unpause(&self.name(fence.sandbox), fence.sandbox).await
    }

    async fn snapshot(
        &self,
        fence: &Fence,
        id: SnapshotId,
        kind: SnapshotKind,
    ) -> Result<Snapshot> {
        let _admission = self.admit(fence).await?;
        self.inner.home.belongs(fence)?;
        if kind == SnapshotKind::Memory {
            let why = "the engine keeps files only";
            let operation = "a memory snapshot";
            return Err(
                Refusal::Unsupported { operation: operation.into(), why: why.into() }.into()
            );
        }
        self.take_snapshot(fence.sandbox, id).await
    }

    async fn restore(
        &self,
        fence: &Fence,
        id: SnapshotId,
        plan: &Plan,
        until: Moment,
    ) -> Result<()> {
        let admission = self.admit(fence).await?;
        admission.refuse_buried()?;
        let image = self.snapshot_image(id).await?;
        if self.inner.home.identity(fence.sandbox)?.is_none() {
            let (sandbox, tree) = (fence.sandbox, plan.tree.clone());
            self.blocking(move |inner| archive::restore_tree(&inner.home, id, sandbox, &tree))
                .await?;
        }
        self.make(fence, plan, until, image).await
    }

    async fn forget(&self, id: SnapshotId) -> Result<()> {
        self.inner.engine.remove_image(&Self::snapshot_tag(id)).await?;
        self.blocking(move |inner| inner.home.forget(id)).await
    }

    async fn probe(&self, sandbox: SandboxId, wait: Span) -> Probe {
        if self.inner.home.end(sandbox).is_ok_and(|end| end.is_some()) {
            return Probe::Gone;
        }
        let name = self.name(sandbox);
        let asked = self.inner.engine.state(&name);
        match tokio::time::timeout(crate::process::duration(wait), asked).await {
            Ok(Ok(None)) => Probe::Gone,
            Ok(Ok(Some(State { phase: Phase::Ended, .. }))) => Probe::Gone,
            Ok(Ok(Some(_))) => Probe::Healthy,
            Ok(Err(error)) => Probe::Unknown { why: error.to_string() },
            Err(_) => Probe::Unknown { why: format!("the engine did not answer within {wait}") },
        }
    }

    async fn inspect(&self, sandbox: SandboxId) -> Result<Inspection> {
        self.look(sandbox).await
    }

    async fn end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        self.known_end(sandbox).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let mut listed = self.inner.engine.list(self.inner.config.installation).await?;
        for sandbox in &mut listed {
            sandbox.epoch = self.inner.fencing.highest(sandbox.session)?;
        }
        Ok(listed)
    }

    async fn destroy(&self, fence: &Fence) -> Result<()> {
        self.stop(fence, Span::ZERO).await?;
        let admission = self.admit(fence).await?;
        self.inner.engine.remove(&self.name(fence.sandbox)).await?;
        let sandbox = fence.sandbox;
        self.blocking(move |inner| {
            let _admission = admission;
            inner.positions().remove(&sandbox);
            inner.followed().remove(&sandbox);
            inner.home.remove(sandbox)
        })
        .await
    }
}
