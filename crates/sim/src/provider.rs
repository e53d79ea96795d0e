//! The provider of a world: the trait's rules on the simulated machine, with faults before and
//! after what is done.

use std::sync::Arc;
use std::time::Duration;

use belay_kernel::{SandboxId, SnapshotId, Span};
use belay_sandbox::{
    Capabilities, Chunk, End, EndReason, Error, Fence, Inspection, Listed, Moment, More, Output,
    Phase, Plan, Probe, Proof, Provider, Receipt, Refusal, Result, Signal, Snapshot, SnapshotKind,
};
use tokio::sync::watch;

use crate::Planted;
use crate::machine::{Inside, Machine, Sandbox};
use crate::sim::Gate;

/// The provider, as one runner has it.
#[derive(Clone)]
pub(crate) struct SimProvider(pub(crate) Arc<Machine>, pub(crate) Arc<Gate>);

fn timed_out(operation: &'static str) -> Error {
    Error::TimedOut { operation, after: Span::from_secs(5) }
}

fn not_found<T>(sandbox: SandboxId) -> Result<T> {
    Err(Refusal::NotFound { sandbox }.into())
}

fn unsupported<T>(operation: &str) -> Result<T> {
    let (operation, why) = (operation.to_owned(), "it is not simulated".to_owned());
    Err(Refusal::Unsupported { operation, why }.into())
}

impl SimProvider {
    /// Before an operation: the runner may fall, and the operation may fail without being done.
    async fn begin(&self, operation: &'static str) -> Result<()> {
        let sim = &self.0.sim;
        self.1.step().await;
        if sim.goes_wrong(sim.knobs.provider_fails) {
            sim.wait(1, 5_000).await;
            return Err(timed_out(operation));
        }
        if sim.goes_wrong(sim.knobs.provider_hangs) {
            sim.note(format_args!("machine {} hangs in {operation}", self.0.number));
            sim.wait(10_000, 300_000).await;
            if sim.rng().permille(500) {
                return Err(timed_out(operation));
            }
        }
        if sim.goes_wrong(100) {
            sim.wait(1, 300).await;
        }
        Ok(())
    }

    /// After it: the runner may fall, and the answer may be lost.
    async fn done<T>(&self, operation: &'static str, answer: T) -> Result<T> {
        let sim = &self.0.sim;
        self.1.step().await;
        match sim.goes_wrong(sim.knobs.provider_fails / 2) {
            true => Err(timed_out(operation)),
            false => Ok(answer),
        }
    }

    /// Refuses a lower epoch, remembers a higher one.
    fn admit(&self, inside: &mut Inside, fence: &Fence) -> Result<()> {
        let seen = inside.epochs.entry(fence.session).or_default();
        if fence.epoch < *seen && self.0.sim.planted != Some(Planted::FenceIgnored) {
            return Err(Refusal::Fenced { asked: fence.epoch, seen: *seen }.into());
        }
        *seen = fence.epoch.max(*seen);
        Ok(())
    }

    fn refuse_buried(&self, inside: &Inside, fence: &Fence) -> Result<()> {
        let buried = inside.tombs.contains(&fence.sandbox);
        match buried && self.0.sim.planted != Some(Planted::TombstoneIgnored) {
            true => Err(Refusal::Tombstoned { sandbox: fence.sandbox }.into()),
            false => Ok(()),
        }
    }

    /// A living sandbox of the fence's session.
    fn living<'a>(&self, inside: &'a mut Inside, fence: &Fence) -> Result<&'a mut Sandbox> {
        let sandbox = fence.sandbox;
        match inside.boxes.get_mut(&sandbox) {
            None => not_found(sandbox),
            Some(found) if found.session != fence.session => {
                Err(Refusal::WrongSession { sandbox }.into())
            }
            Some(found) if found.end.is_some() => Err(Refusal::Ended { sandbox }.into()),
            Some(found) => Ok(found),
        }
    }

    /// Whether a lease is so short that the shim would kill at once.
    fn refuse_late(&self, plan: &Plan, until: Moment) -> Result<()> {
        let end = until.before(plan.margins.total());
        match end.as_millis() <= self.0.uptime_ms() {
            true => Err(Refusal::LeaseOver.into()),
            false => Ok(()),
        }
    }

    fn make(&self, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
        let mut inside = self.0.inside();
        self.admit(&mut inside, fence)?;
        self.refuse_buried(&inside, fence)?;
        match self.living(&mut inside, fence) {
            Ok(_) => return Ok(()),
            Err(Error::Refused(Refusal::NotFound { .. })) => {}
            Err(error) => return Err(error),
        }
        plan.check()?;
        self.refuse_late(plan, until)?;
        let sandbox = Sandbox::new(fence.session, plan, until);
        inside.boxes.insert(fence.sandbox, sandbox);
        drop(inside);
        tokio::spawn(Arc::clone(&self.0).hold_lease(fence.sandbox));
        Ok(())
    }

    /// Lets a frozen sandbox go on, for the attempt whose epoch this is, under a new lease.
    fn thaw(&self, fence: &Fence, until: Moment) -> Result<()> {
        let now = self.0.sim.ms();
        let oracle = self.0.net.oracle();
        let attempt = oracle.and_then(|oracle| oracle.attempt_of(fence.session, fence.epoch));
        let mut inside = self.0.inside();
        self.admit(&mut inside, fence)?;
        let sandbox = self.living(&mut inside, fence)?;
        let plan = sandbox.plan.clone();
        self.refuse_late(&plan, until)?;
        sandbox.until = match sandbox.frozen {
            true => until.as_millis(),
            false => until.as_millis().max(sandbox.until),
        };
        if sandbox.frozen {
            // From now on everything in it is the new attempt's.
            (sandbox.task, sandbox.attempt) = attempt.unwrap_or((sandbox.task, sandbox.attempt));
            sandbox.frozen = false;
            sandbox.printed_ms = now;
            let (task, attempt) = (sandbox.task, sandbox.attempt);
            self.0.sim.note(format_args!("sandbox {task} #{attempt} goes on"));
        }
        sandbox.touch();
        Ok(())
    }

    /// Marks the sandbox as stopped for good; what is there to be ended.
    fn bury(&self, fence: &Fence) -> Result<Option<Option<End>>> {
        let mut inside = self.0.inside();
        self.admit(&mut inside, fence)?;
        inside.tombs.insert(fence.sandbox);
        Ok(inside.boxes.get(&fence.sandbox).map(|sandbox| sandbox.end.clone()))
    }

    async fn stop_now(&self, fence: &Fence, grace: Span) -> Result<Receipt> {
        let now = self.0.wall();
        match self.bury(fence)? {
            None => return Ok(Receipt::empty(fence.sandbox, now, Proof::NeverExisted)),
            Some(Some(end)) => return Ok(end.receipt),
            Some(None) => {}
        }
        let grace = Duration::from_millis(grace.as_millis());
        if self.0.sim.planted == Some(Planted::StopOnlyAsks) {
            self.0.terminate(fence.sandbox);
            return Ok(Receipt::empty(fence.sandbox, now, Proof::NoneFound));
        }
        let ending = Arc::clone(&self.0).end(fence.sandbox, EndReason::Stopped, grace);
        if tokio::spawn(ending).await.is_err() {
            return Err(timed_out("stop"));
        }
        let inside = self.0.inside();
        let end = inside.boxes.get(&fence.sandbox).and_then(|sandbox| sandbox.end.clone());
        end.map(|end| end.receipt).ok_or(Error::StillAlive { count: 1 })
    }

    /// What there is from `offset` on.
    fn read(
        &self,
        id: SandboxId,
        offset: u64,
        most: usize,
    ) -> Result<(Output, watch::Receiver<u64>)> {
        let inside = self.0.inside();
        let Some(sandbox) = inside.boxes.get(&id) else { return not_found(id) };
        let mut output = Output { next: offset, ..Output::default() };
        let mut bytes = 0;
        let first = sandbox.chunks.partition_point(|c| c.offset + c.bytes.len() as u64 <= offset);
        for chunk in &sandbox.chunks[first..] {
            if bytes >= most {
                break;
            }
            let skip = usize::try_from(output.next.saturating_sub(chunk.offset)).unwrap_or(0);
            let piece = Chunk {
                offset: chunk.offset + skip as u64,
                bytes: chunk.bytes[skip..].to_vec(),
                ..chunk.clone()
            };
            bytes += piece.bytes.len();
            output.next = piece.offset + piece.bytes.len() as u64;
            output.chunks.push(piece);
        }
        if output.next == sandbox.printed {
            output.end = sandbox.end.clone();
        }
        Ok((output, sandbox.changed.subscribe()))
    }
}

impl Provider for SimProvider {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            provider: "process".into(),
            pause: true,
            memory_snapshot: false,
            file_snapshot: false,
            isolation: true,
            network_cut: true,
            memory_limit: true,
            process_limit: true,
            cpu_limit: true,
            complete_kill: true,
            weaker: Vec::new(),
        }
    }

    fn moment(&self) -> Moment {
        Moment::from_millis(self.0.uptime_ms())
    }

    async fn prepare(&self, fence: &Fence, plan: &Plan, until: Moment) -> Result<()> {
        self.begin("prepare").await?;
        if self.0.sim.goes_wrong(150) {
            // What is being made is made, whatever becomes of the one who asked for it.
            let (this, fence, plan) = (self.clone(), *fence, plan.clone());
            let boot = self.0.boot();
            let making = tokio::spawn(async move {
                this.0.sim.wait(500, 40_000).await;
                match this.0.boot() == boot && !this.0.is_lost() {
                    true => this.make(&fence, &plan, until),
                    false => Err(timed_out("prepare")),
                }
            });
            making.await.unwrap_or_else(|_| Err(timed_out("prepare")))?;
        } else {
            self.make(fence, plan, until)?;
        }
        self.done("prepare", ()).await
    }

    async fn start(&self, fence: &Fence, until: Moment) -> Result<()> {
        self.begin("start").await?;
        {
            let mut inside = self.0.inside();
            self.admit(&mut inside, fence)?;
            self.refuse_buried(&inside, fence)?;
            let sandbox = self.living(&mut inside, fence)?;
            if sandbox.phase == Phase::Running {
                return Ok(());
            }
            let plan = sandbox.plan.clone();
            sandbox.until = until.as_millis().max(sandbox.until);
            self.refuse_late(&plan, until)?;
        }
        self.0.execute(fence.sandbox)?;
        if self.0.sim.planted == Some(Planted::StartsTwice) {
            self.0.execute(fence.sandbox)?;
        }
        self.done("start", ()).await
    }

    async fn renew(&self, fence: &Fence, until: Moment) -> Result<()> {
        self.begin("renew").await?;
        {
            let mut inside = self.0.inside();
            self.admit(&mut inside, fence)?;
            let sandbox = self.living(&mut inside, fence)?;
            sandbox.until = until.as_millis().max(sandbox.until);
            sandbox.touch();
        }
        self.done("renew", ()).await
    }

    async fn attach(
        &self,
        sandbox: SandboxId,
        offset: u64,
        max_bytes: usize,
        wait: Span,
    ) -> Result<Output> {
        self.begin("attach").await?;
        let until = tokio::time::Instant::now() + Duration::from_millis(wait.as_millis());
        loop {
            let (mut output, mut changed) = self.read(sandbox, offset, max_bytes)?;
            let is_something = !output.chunks.is_empty() || output.end.is_some();
            if is_something || tokio::time::Instant::now() >= until {
                if self.0.sim.planted == Some(Planted::OutputDropped)
                    && self.0.sim.goes_wrong(10)
                    && let Some(chunk) = output.chunks.last_mut()
                {
                    chunk.bytes.fill(b'?');
                }
                return self.done("attach", output).await;
            }
            let _ = tokio::time::timeout_at(until, changed.changed()).await;
        }
    }

    async fn write(&self, fence: &Fence, offset: u64, bytes: &[u8], more: More) -> Result<u64> {
        self.begin("write").await?;
        let next = {
            let mut inside = self.0.inside();
            self.admit(&mut inside, fence)?;
            let sandbox = self.living(&mut inside, fence)?;
            let expected = sandbox.stdin.len() as u64;
            if offset > expected {
                return Err(Refusal::StdinGap { expected, asked: offset }.into());
            }
            let had = usize::try_from(expected - offset).unwrap_or(usize::MAX);
            let fresh = bytes.get(had..).unwrap_or_default();
            if sandbox.stdin_closed && !fresh.is_empty() {
                return Err(Refusal::StdinClosed.into());
            }
            sandbox.stdin.extend_from_slice(fresh);
            sandbox.stdin_closed |= more == More::Ends;
            if let Some(oracle) = self.0.net.oracle() {
                oracle.check_answered(sandbox);
            }
            sandbox.touch();
            sandbox.stdin.len() as u64
        };
        self.done("write", next).await
    }

    async fn signal(&self, fence: &Fence, _signal: Signal) -> Result<()> {
        let mut inside = self.0.inside();
        self.admit(&mut inside, fence)?;
        self.living(&mut inside, fence).map(drop)
    }

    async fn stop(&self, fence: &Fence, grace: Span) -> Result<Receipt> {
        self.begin("stop").await?;
        let receipt = self.stop_now(fence, grace).await?;
        self.done("stop", receipt).await
    }

    async fn pause(&self, fence: &Fence) -> Result<()> {
        self.begin("pause").await?;
        {
            let mut inside = self.0.inside();
            self.admit(&mut inside, fence)?;
            let sandbox = self.living(&mut inside, fence)?;
            if sandbox.phase != Phase::Running {
                return Err(Refusal::NotStarted { sandbox: fence.sandbox }.into());
            }
            sandbox.frozen = true;
            sandbox.touch();
            let (task, attempt) = (sandbox.task, sandbox.attempt);
            self.0.sim.note(format_args!("sandbox {task} #{attempt} is frozen"));
        }
        self.done("pause", ()).await
    }

    async fn resume(&self, fence: &Fence, until: Moment) -> Result<()> {
        self.begin("resume").await?;
        self.thaw(fence, until)?;
        self.done("resume", ()).await
    }

    async fn snapshot(&self, _: &Fence, _: SnapshotId, _: SnapshotKind) -> Result<Snapshot> {
        unsupported("snapshot")
    }

    async fn restore(&self, _: &Fence, _: SnapshotId, _: &Plan, _: Moment) -> Result<()> {
        unsupported("restore")
    }

    async fn forget(&self, _: SnapshotId) -> Result<()> {
        Ok(())
    }

    async fn probe(&self, sandbox: SandboxId, _: Span) -> Probe {
        match self.0.inside().boxes.get(&sandbox) {
            Some(found) if found.end.is_none() => Probe::Healthy,
            Some(_) | None => Probe::Gone,
        }
    }

    async fn inspect(&self, sandbox: SandboxId) -> Result<Inspection> {
        let inside = self.0.inside();
        let Some(found) = inside.boxes.get(&sandbox) else { return not_found(sandbox) };
        let (phase, cpu) = (found.phase, Span::ZERO);
        Ok(Inspection { phase, processes: Vec::new(), cpu, memory_bytes: 0 })
    }

    async fn end(&self, sandbox: SandboxId) -> Result<Option<End>> {
        self.begin("end").await?;
        let end = match self.0.inside().boxes.get(&sandbox) {
            Some(found) => found.end.clone(),
            None => return not_found(sandbox),
        };
        self.done("end", end).await
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let inside = self.0.inside();
        let listed = inside.boxes.iter().map(|(id, found)| Listed {
            sandbox: *id,
            session: found.session,
            task: found.task,
            attempt: found.attempt,
            epoch: inside.epochs.get(&found.session).copied().unwrap_or_default(),
            installation_epoch: 1,
            created: self.0.wall(),
            phase: found.phase,
        });
        Ok(listed.collect())
    }

    async fn destroy(&self, fence: &Fence) -> Result<()> {
        self.begin("destroy").await?;
        self.stop_now(fence, Span::ZERO).await?;
        self.0.inside().boxes.remove(&fence.sandbox);
        self.done("destroy", ()).await
    }
}
