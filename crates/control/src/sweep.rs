//! What a node does by itself: it keeps its lease, looks for what is due, and forgets what is old.
//! Everything starts at once and runs on hint and timer.

use std::sync::PoisonError;
use std::time::Duration;

use belay_kernel::planted::{self, Bug};
use belay_kernel::{Span, Timestamp};
use belay_store::rows::{AttemptRow, SandboxRow, TaskRow};
use belay_store::{
    Beat, Beaten, Commit, Due, Holder, LeaseAct, LeaseKind, LeaseWrite, Prune, Store,
};
use tokio::time::Instant;

use crate::Control;
use crate::refuse::Outcome;

/// How many rows are looked at in one sweep, and for how long nobody else is given them.
const BATCH: usize = 256;
const HOLD: Span = Span::from_secs(10);
/// How long events and answers are remembered.
const EVENTS_KEPT: Span = Span::from_mins(60 * 24 * 90);
const ANSWERS_KEPT: Span = Span::from_mins(60 * 24 * 2);
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

impl<S: Store> Control<S> {
    /// Tends to everything, for ever.
    pub async fn tend(&self) {
        if let Err(refused) = self.arrive().await {
            tracing::warn!(?refused, "the node could not say that it is there");
        }
        if let Err(refused) = self.settle_hooks().await {
            tracing::warn!(?refused, "the webhooks of the settings were not made");
        }
        self.has_stayed(Instant::now());
        tokio::join!(
            self.stay_forever(),
            self.sweep_forever(),
            self.perform_forever(),
            self.prune_forever(),
            self.watch_forever(),
            self.deliver_forever(),
            self.trace_forever()
        );
    }

    /// The node is there. If no node was for a while, that silence is no one's fault but ours.
    async fn arrive(&self) -> Outcome<()> {
        let now = self.now().await?;
        let others = self.store().leases(LeaseKind::Node).await?;
        let last = others.iter().map(|lease| lease.beaten_at).max();
        let alone = others.iter().all(|lease| lease.until < now);
        let mut commit = Commit::new().lease(self.node_lease(now));
        for lease in others.iter().filter(|lease| lease.until < now) {
            let write = LeaseWrite { holder: lease.holder, act: LeaseAct::Drop };
            commit = commit.lease(write);
        }
        self.store().commit(commit).await?;
        if let (true, Some(last)) = (alone, last) {
            self.extend(now.since(last)).await?;
        }
        Ok(())
    }

    async fn extend(&self, downtime: Span) -> Outcome<()> {
        self.store().extend_leases(LeaseKind::Attempt, downtime).await?;
        Ok(())
    }

    fn node_lease(&self, now: Timestamp) -> LeaseWrite {
        let act = LeaseAct::Open {
            fence: self.inner.node.to_string(),
            mode: "live",
            until: now.after(self.settings().limits.node_lease),
        };
        LeaseWrite { holder: Holder::Node(self.inner.node), act }
    }

    /// Renews the node's lease; a gap longer than it is time in which nothing could be judged.
    async fn stay_forever(&self) {
        loop {
            tokio::time::sleep(duration(self.settings().limits.node_renewal)).await;
            let begun = Instant::now();
            match self.stay(self.stayed()).await {
                Ok(()) => self.has_stayed(begun),
                Err(refused) => tracing::warn!(?refused, "the node's lease was not renewed"),
            }
        }
    }

    /// When this node last showed that it can commit.
    pub(crate) fn stayed(&self) -> Instant {
        *self.inner.stayed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_stayed(&self, begun: Instant) {
        *self.inner.stayed.lock().unwrap_or_else(PoisonError::into_inner) = begun;
    }

    async fn stay(&self, last: Instant) -> Outcome<()> {
        let now = self.now().await?;
        let others = self.store().leases(LeaseKind::Node).await?;
        let beat = Beat {
            holder: Holder::Node(self.inner.node),
            fence: self.inner.node.to_string(),
            until: now.after(self.settings().limits.node_lease),
        };
        let beaten = self.store().beat(vec![beat], now).await?;
        if !matches!(beaten.first(), Some(Beaten::Current { .. })) {
            self.store().commit(Commit::new().lease(self.node_lease(now))).await?;
        }
        // By our own clock: one that was set is not time in which we were down.
        let gap = u64::try_from(last.elapsed().as_millis()).unwrap_or(u64::MAX);
        let gap = Span::from_millis(gap);
        if gap > self.settings().limits.node_lease {
            let ours = Holder::Node(self.inner.node);
            let alone = others.iter().all(|lease| lease.holder == ours || lease.until < now);
            if alone {
                self.extend(gap).await?;
            }
            // It may have stood still in the middle of this: until now it could not commit.
            self.nobody_heard(self.now().await?);
        }
        Ok(())
    }

    async fn sweep_forever(&self) {
        loop {
            match self.sweep_due().await {
                Ok(BATCH) => continue,
                Ok(_) => {}
                Err(refused) => tracing::warn!(?refused, "the sweep failed"),
            }
            tokio::time::sleep(self.unevenly(self.settings().limits.due_sweep)).await;
        }
    }

    /// Looks at what is due; tells how much that was.
    pub(crate) async fn sweep_due(&self) -> Outcome<usize> {
        let began = Instant::now();
        let now = self.now().await?;
        let due = self.store().take_due(now, HOLD, BATCH).await?;
        for one in &due {
            if let Err(refused) = self.look_into(one).await {
                tracing::warn!(row = ?one.key, ?refused, "a row that is due was not judged");
            }
        }
        self.inner.gauges.swept(due.len(), began.elapsed());
        Ok(due.len())
    }

    async fn look_into(&self, due: &Due) -> Outcome<()> {
        if planted::is(Bug::TimerInMemory) && !self.was_armed_here(due).await? {
            return Ok(());
        }
        if let Some((task, number)) = due.key.id::<AttemptRow>() {
            return self.expire(task, number).await;
        }
        if let Some(sandbox) = due.key.id::<SandboxRow>() {
            return self.judge_sandbox(sandbox).await;
        }
        if let Some(task) = due.key.id::<TaskRow>()
            && let Some(stored) = self.row::<TaskRow>(task).await?
        {
            self.inner.mailboxes.offer(stored.row.role.as_str());
            self.store().rearm(due.key.clone(), stored.revision, None).await?;
        }
        Ok(())
    }

    /// Whether this node was there when the row that is due began.
    async fn was_armed_here(&self, due: &Due) -> Outcome<bool> {
        let begun = match (due.key.id::<AttemptRow>(), due.key.id::<SandboxRow>()) {
            (Some(id), _) => {
                let row = self.row::<AttemptRow>(id).await?;
                row.map(|row| row.row.attempt.claimed_at)
            }
            (None, Some(id)) => {
                let row = self.row::<SandboxRow>(id).await?;
                row.map(|row| row.row.created_at)
            }
            (None, None) => None,
        };
        Ok(begun.is_none_or(|at| at >= self.started_at()))
    }

    async fn prune_forever(&self) {
        loop {
            if let Err(refused) = self.prune_once().await {
                tracing::warn!(?refused, "what is old was not forgotten");
            }
            tokio::time::sleep(PRUNE_EVERY).await;
        }
    }

    async fn prune_once(&self) -> Outcome<()> {
        let now = self.now().await?;
        let prune = Prune {
            events_before: now.before(EVENTS_KEPT),
            requests_before: now.before(ANSWERS_KEPT),
        };
        while self.store().prune(prune).await? != Default::default() {}
        Ok(())
    }
}
