//! Sandboxes as processes of this machine: the embedded default.
//!
//! ```text
//! ROOT/sandboxes/ID/   identity.json  who it is, before anything exists
//!                      launch.json    what the shim is to make of it
//!                      held.json      who is there: shim, bubblewrap, init, namespace
//!                      control.sock   where the shim answers
//!                      output.log, output.idx
//!                      stdout         standard output while the agent runs, where it is a file
//!                      end.json       how it ended, with the receipt; written once
//! ROOT/snapshots/ID.tar.zst, ID.json
//! ROOT/sessions/, ROOT/tombstones/    the fence
//! ```
//!
//! The provider keeps nothing in memory that is not in the directory: a new one on the same
//! directory is the old one. Whoever finds a sandbox whose shim is dead ends it and records that.

mod client;
mod home;
mod make;
mod settle;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belay_kernel::{SandboxId, SnapshotId, Span};
use serde::{Deserialize, Serialize};

use crate::archive;
use crate::blocking::blocking;
use crate::error::{Error, Refusal, Result};
use crate::fencing::{Admission, Fencing};
use crate::log::{self, Tail};
use crate::os::bwrap::{self, Bubblewrap};
use crate::os::cgroup::Cgroups;
use crate::os::clock;
use crate::output::{End, Output};
use crate::plan::{Fence, Moment, Plan};
use crate::provider::{
    Capabilities, Inspection, Installation, Listed, More, Phase, Probe, Provider, Signal, Snapshot,
    SnapshotKind,
};
use crate::receipt::{Proof, Receipt};
use crate::shim::wire::{MAX_STDIN, Reply, Request};
use client::{CallError, call};
pub(crate) use home::Home;

/// The bound of an operation that only asks the shim.
const CALL_LIMIT: Span = Span::from_secs(10);
/// How often a sandbox that is being made is looked at by whoever waits for its output.
const MAKING_TICK: Span = Span::from_millis(5);
/// What a stop may take besides its grace.
const STOP_LIMIT: Span = Span::from_secs(7);
/// How long a tombstone is kept; no request is under way that long.
const TOMBSTONE_AGE: Span = Span::from_mins(60 * 24 * 30);

/// Whether to use something that the machine may offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Use it where it works.
    #[default]
    WherePossible,
    /// Do without.
    Never,
}

/// The program that is the shim: itself, and the arguments that lead to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShimProgram {
    /// The program.
    pub path: PathBuf,
    /// Arguments before the shim's own, such as a hidden subcommand.
    pub leading: Vec<String>,
}

/// How a [`ProcessProvider`] is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessConfig {
    /// Its own directory.
    pub root: PathBuf,
    /// Whose sandboxes these are.
    pub installation: Installation,
    /// The shim.
    pub shim: ShimProgram,
    /// Further directories that no agent may see: Belay's data, the trees of other tasks.
    pub hidden: Vec<PathBuf>,
    /// Whether to use bubblewrap.
    pub bubblewrap: Use,
    /// Whether to use cgroups.
    pub cgroups: Use,
}

/// Sandboxes as processes of this machine.
#[derive(Clone, Debug)]
pub struct ProcessProvider {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ProcessConfig,
    home: Home,
    fencing: Fencing,
    cgroups: Cgroups,
    bubblewrap: std::result::Result<Bubblewrap, String>,
    hidden: Vec<PathBuf>,
}

impl ProcessProvider {
    /// Opens the directory, and finds out what the machine offers. Blocks for some milliseconds.
    pub fn open(config: ProcessConfig) -> Result<Self> {
        let home = Home::open(&config.root)?;
        let fencing = Fencing::open(&config.root)?;
        fencing.prune(clock::now(), TOMBSTONE_AGE);
        let bubblewrap = match config.bubblewrap {
            Use::WherePossible => Bubblewrap::find(),
            Use::Never => Err("bubblewrap is switched off".into()),
        };
        let cgroups = match config.cgroups {
            Use::WherePossible => Cgroups::find(&format!("belay-{}", config.installation.id)),
            Use::Never => Cgroups::default(),
        };
        cgroups.remove_empty();
        let mut unseen = config.hidden.clone();
        unseen.push(config.root.clone());
        let hidden = bwrap::hidden_directories(&unseen);
        let inner = Inner { config, home, fencing, cgroups, bubblewrap, hidden };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs something that blocks, with this provider at hand.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        blocking(&self.inner, work).await
    }

    /// Takes the session's lock, if the fence lets this pass.
    async fn admit(&self, fence: &Fence) -> Result<Admission> {
        let fence = *fence;
        self.blocking(move |inner| inner.fencing.admit(&fence)).await
    }

    /// Takes the lock for a sandbox that must be there and belong to the session.
    async fn admit_known(&self, fence: &Fence) -> Result<Admission> {
        let admission = self.admit(fence).await?;
        self.inner.home.belongs(fence)?;
        Ok(admission)
    }

    /// Asks the shim; a sandbox whose shim is gone is ended and recorded so.
    async fn ask(&self, sandbox: SandboxId, request: Request, body: &[u8]) -> Result<Reply> {
        let directory = self.inner.home.sandbox(sandbox);
        match call(&directory, &request, body, CALL_LIMIT).await {
            Ok(Reply::Refused(refusal)) => Err(refusal.into()),
            Ok(Reply::Failed { message }) => Err(Error::Shim { message }),
            Ok(reply) => Ok(reply),
            Err(CallError::TimedOut) => {
                Err(Error::TimedOut { operation: "asking the shim", after: CALL_LIMIT })
            }
            Err(CallError::Gone) => match self.settle(sandbox).await? {
                Some(_) => Err(Refusal::Ended { sandbox }.into()),
                None => Err(Refusal::NotStarted { sandbox }.into()),
            },
        }
    }

    /// The end of a sandbox whose shim is gone, which is brought about here if need be; nothing if
    /// it is not made yet.
    async fn settle(&self, sandbox: SandboxId) -> Result<Option<End>> {
        self.blocking(move |inner| settle::settle(&inner.home, sandbox)).await
    }

    async fn output_once(&self, sandbox: SandboxId, offset: u64, max: usize) -> Result<Output> {
        self.blocking(move |inner| {
            let directory = inner.home.sandbox(sandbox);
            // The end first: what is read after it was seen is complete.
            let end = inner.home.end(sandbox)?;
            let tail = if end.is_some() { Tail::Closed } else { Tail::Open };
            let chunks = log::read(&directory, offset, max, tail)
                .map_err(Error::io("read the output in", &directory))?;
            let next = chunks.last().map_or(offset, |last| last.offset + last.bytes.len() as u64);
            // After a power cut there may be less in the log than was printed.
            let there = log::length(&directory);
            let end = end.filter(|end| next >= end.output_bytes.min(there));
            Ok(Output { chunks, next, end })
        })
        .await
    }

    /// Asks the shim to end its sandbox; a shim that is gone or does not answer is replaced.
    async fn end_now(&self, fence: &Fence, grace: Span) -> Result<End> {
        let sandbox = fence.sandbox;
        let request = Request::Stop { epoch: fence.epoch, grace };
        let directory = self.inner.home.sandbox(sandbox);
        match call(&directory, &request, &[], grace.plus(STOP_LIMIT)).await {
            Ok(Reply::StillAlive { count }) => return Err(Error::StillAlive { count }),
            Ok(Reply::Refused(refusal)) => return Err(refusal.into()),
            Ok(_) | Err(CallError::Gone) => {
                if let Some(end) = self.settle(sandbox).await? {
                    return Ok(end);
                }
            }
            Err(CallError::TimedOut) => {}
        }
        self.blocking(move |inner| settle::take_over(&inner.home, sandbox)).await
    }

    async fn phase(&self, sandbox: SandboxId) -> Phase {
        if self.inner.home.end(sandbox).is_ok_and(|end| end.is_some()) {
            return Phase::Ended;
        }
        match self.ask(sandbox, Request::Status, &[]).await {
            Ok(Reply::Status { paused: true, .. }) => Phase::Paused,
            Ok(Reply::Status { started: true, .. }) => Phase::Running,
            Err(Error::Refused(Refusal::Ended { .. })) => Phase::Ended,
            _ => Phase::Prepared,
        }
    }
}

impl Provider for ProcessProvider {
    fn capabilities(&self) -> Capabilities {
        crate::doctor::process_capabilities(&self.inner.cgroups, &self.inner.bubblewrap)
    }

    fn moment(&self) -> Moment {
        clock::moment()
    }

    async fn prepare(&self, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
        let admission = self.admit(fence).await?;
        admission.refuse_buried()?;
        make::prepare(self, &admission, fence, plan, until).await
    }

    async fn start(&self, fence: &Fence, until: Moment) -> Result<()> {
        let admission = self.admit(fence).await?;
        admission.refuse_buried()?;
        self.inner.home.belongs(fence)?;
        self.ask(fence.sandbox, Request::Start { epoch: fence.epoch, until }, &[]).await?;
        Ok(())
    }

    async fn renew(&self, fence: &Fence, until: Moment) -> Result<()> {
        let _admission = self.admit_known(fence).await?;
        self.ask(fence.sandbox, Request::Renew { epoch: fence.epoch, until }, &[]).await?;
        Ok(())
    }

    async fn attach(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max_bytes: usize,
        wait: Span,
    ) -> Result<Output> {
        self.inner.home.known(sandbox)?;
        let deadline = clock::moment().after(wait);
        loop {
            let output = self.output_once(sandbox, offset, max_bytes).await?;
            let left = deadline.since(clock::moment());
            if !output.chunks.is_empty() || output.end.is_some() || left.is_zero() {
                return Ok(output);
            }
            let directory = self.inner.home.sandbox(sandbox);
            let request = Request::Watch { offset, wait: left };
            match call(&directory, &request, &[], left.plus(CALL_LIMIT)).await {
                Ok(_) => {}
                Err(CallError::Gone) => {
                    if self.settle(sandbox).await?.is_none() {
                        tokio::time::sleep(duration(MAKING_TICK)).await;
                    }
                }
                Err(CallError::TimedOut) => {
                    return Err(Error::TimedOut { operation: "attach", after: wait });
                }
            }
        }
    }

    async fn write(&self, fence: &Fence, offset: u64, bytes: &[u8], more: More) -> Result<u64> {
        let _admission = self.admit_known(fence).await?;
        let (part, more) = match bytes.len() > MAX_STDIN {
            true => (&bytes[..MAX_STDIN], More::Follows),
            false => (bytes, more),
        };
        let request = Request::Write { epoch: fence.epoch, offset, length: part.len(), more };
        match self.ask(fence.sandbox, request, part).await? {
            Reply::Written { next } => Ok(next),
            other => Err(Error::Shim { message: format!("unexpected reply {other:?}") }),
        }
    }

    async fn signal(&self, fence: &Fence, signal: Signal) -> Result<()> {
        let _admission = self.admit_known(fence).await?;
        self.ask(fence.sandbox, Request::Signal { epoch: fence.epoch, signal }, &[]).await?;
        Ok(())
    }

    async fn stop(&self, fence: &Fence, grace: Span) -> Result<Receipt> {
        let now = clock::now();
        let admission = self.admit(fence).await?;
        let buried = self.blocking(move |_| admission.bury(now).map(|()| admission)).await?;
        let identity = self.inner.home.identity(fence.sandbox)?;
        drop(buried);
        let Some(identity) = identity else {
            return Ok(Receipt::empty(fence.sandbox, now, Proof::NeverExisted));
        };
        if identity.session != fence.session {
            return Err(Refusal::WrongSession { sandbox: fence.sandbox }.into());
        }
        if let Some(end) = self.inner.home.end(fence.sandbox)? {
            return Ok(end.receipt);
        }
        Ok(self.end_now(fence, grace).await?.receipt)
    }

    async fn pause(&self, fence: &Fence) -> Result<()> {
        let _admission = self.admit_known(fence).await?;
        self.ask(fence.sandbox, Request::Pause { epoch: fence.epoch }, &[]).await?;
        Ok(())
    }

    async fn resume(&self, fence: &Fence, until: Moment) -> Result<()> {
        let _admission = self.admit_known(fence).await?;
        self.ask(fence.sandbox, Request::Resume { epoch: fence.epoch, until }, &[]).await?;
        Ok(())
    }

    async fn snapshot(
        &self,
        fence: &Fence,
        id: SnapshotId,
        kind: SnapshotKind,
    ) -> Result<Snapshot> {
        let admission = self.admit_known(fence).await?;
        if kind == SnapshotKind::Memory {
            let why = "process sandboxes cannot keep the memory of their processes";
            let operation = "a memory snapshot";
            return Err(
                Refusal::Unsupported { operation: operation.into(), why: why.into() }.into()
            );
        }
        let sandbox = fence.sandbox;
        self.blocking(move |inner| {
            let _admission = admission;
            archive::snapshot_of(&inner.home, sandbox, id)
        })
        .await
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
        if self.inner.home.identity(fence.sandbox)?.is_none() {
            let (sandbox, tree) = (fence.sandbox, plan.tree.clone());
            self.blocking(move |inner| archive::restore_tree(&inner.home, id, sandbox, &tree))
                .await?;
        }
        make::prepare(self, &admission, fence, plan, until).await
    }

    async fn forget(&self, id: SnapshotId) -> Result<()> {
        self.blocking(move |inner| inner.home.forget(id)).await
    }

    async fn probe(&self, sandbox: SandboxId, wait: Span) -> Probe {
        let unknown = |why: String| Probe::Unknown { why };
        match (self.inner.home.identity(sandbox), self.inner.home.end(sandbox)) {
            (Ok(None), _) | (_, Ok(Some(_))) => return Probe::Gone,
            (Err(error), _) | (_, Err(error)) => return unknown(error.to_string()),
            (Ok(Some(_)), Ok(None)) => {}
        }
        let directory = self.inner.home.sandbox(sandbox);
        match call(&directory, &Request::Status, &[], wait).await {
            Ok(Reply::Status { .. }) => Probe::Healthy,
            Ok(other) => unknown(format!("the shim answered {other:?}")),
            Err(CallError::TimedOut) => unknown(format!("the shim did not answer within {wait}")),
            Err(CallError::Gone) => match self.settle(sandbox).await {
                Ok(Some(_)) => Probe::Gone,
                Ok(None) => unknown("it is being made".into()),
                Err(error) => unknown(error.to_string()),
            },
        }
    }

    async fn inspect(&self, sandbox: SandboxId) -> Result<Inspection> {
        self.inner.home.known(sandbox)?;
        let phase = self.phase(sandbox).await;
        self.blocking(move |inner| settle::inspect(&inner.home, sandbox, phase)).await
    }

    async fn end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        self.inner.home.known(sandbox)?;
        self.inner.home.end(sandbox)
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let identities = self.blocking(|inner| inner.home.identities()).await?;
        let mut listed = Vec::with_capacity(identities.len());
        for identity in identities {
            listed.push(Listed {
                sandbox: identity.sandbox,
                session: identity.session,
                task: identity.task,
                attempt: identity.attempt,
                epoch: self.inner.fencing.highest(identity.session)?,
                installation_epoch: identity.installation.epoch,
                created: identity.created,
                phase: self.phase(identity.sandbox).await,
            });
        }
        Ok(listed)
    }

    async fn destroy(&self, fence: &Fence) -> Result<()> {
        self.stop(fence, Span::ZERO).await?;
        let admission = self.admit(fence).await?;
        let sandbox = fence.sandbox;
        self.blocking(move |inner| {
            let _admission = admission;
            inner.home.remove(sandbox)?;
            inner.cgroups.remove_empty();
            Ok(())
        })
        .await
    }
}

/// A span as the standard library's duration.
pub(crate) const fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}
