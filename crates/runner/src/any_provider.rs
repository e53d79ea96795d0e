//! One type for every provider, so that one runner can have several by name.

use belay_kernel::{SandboxId, SnapshotId, Span};
use belay_sandbox::{
    Capabilities, DockerProvider, End, Fence, Inspection, Listed, Moment, More, Output, Plan,
    Probe, ProcessProvider, Provider, Receipt, Result, Signal, Snapshot, SnapshotKind,
};

/// A provider of some kind.
#[derive(Clone, Debug)]
pub enum AnyProvider {
    /// Processes of this machine.
    Process(ProcessProvider),
    /// Containers.
    Docker(DockerProvider),
}

/// The same call on whichever provider it is.
macro_rules! on {
    ($this:expr, $provider:ident => $call:expr) => {
        match $this {
            AnyProvider::Process($provider) => $call,
            AnyProvider::Docker($provider) => $call,
        }
    };
}

impl Provider for AnyProvider {
    fn capabilities(&self) -> Capabilities {
        on!(self, provider => provider.capabilities())
    }

    fn moment(&self) -> Moment {
        on!(self, provider => provider.moment())
    }

    async fn prepare(&self, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
        on!(self, provider => provider.prepare(fence, plan, until).await)
    }

    async fn start(&self, fence: &Fence, until: Moment) -> Result<()> {
        on!(self, provider => provider.start(fence, until).await)
    }

    async fn renew(&self, fence: &Fence, until: Moment) -> Result<()> {
        on!(self, provider => provider.renew(fence, until).await)
    }

    async fn attach(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max_bytes: usize,
        wait: Span,
    ) -> Result<Output> {
        on!(self, provider => provider.attach(sandbox, offset, max_bytes, wait).await)
    }

    async fn write(&self, fence: &Fence, offset: u64, bytes: &[u8], more: More) -> Result<u64> {
        on!(self, provider => provider.write(fence, offset, bytes, more).await)
    }

    async fn signal(&self, fence: &Fence, signal: Signal) -> Result<()> {
        on!(self, provider => provider.signal(fence, signal).await)
    }

    async fn stop(&self, fence: &Fence, grace: Span) -> Result<Receipt> {
        on!(self, provider => provider.stop(fence, grace).await)
    }

    async fn pause(&self, fence: &Fence) -> Result<()> {
        on!(self, provider => provider.pause(fence).await)
    }

    async fn resume(&self, fence: &Fence, until: Moment) -> Result<()> {
        on!(self, provider => provider.resume(fence, until).await)
    }

    async fn snapshot(
        &self,
        fence: &Fence,
        id: SnapshotId,
        kind: SnapshotKind,
    ) -> Result<Snapshot> {
        on!(self, provider => provider.snapshot(fence, id, kind).await)
    }

    async fn restore(
        &self,
        fence: &Fence,
        id: SnapshotId,
        plan: &Plan,
        until: Moment,
    ) -> Result<()> {
        on!(self, provider => provider.restore(fence, id, plan, until).await)
    }

    async fn forget(&self, id: SnapshotId) -> Result<()> {
        on!(self, provider => provider.forget(id).await)
    }

    async fn probe(&self, sandbox: SandboxId, wait: Span) -> Probe {
        on!(self, provider => provider.probe(sandbox, wait).await)
    }

    async fn inspect(&self, sandbox: SandboxId) -> Result<Inspection> {
        on!(self, provider => provider.inspect(sandbox).await)
    }

    async fn end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        on!(self, provider => provider.end(sandbox).await)
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        on!(self, provider => provider.list().await)
    }

    async fn destroy(&self, fence: &Fence) -> Result<()> {
        on!(self, provider => provider.destroy(fence).await)
    }
}
