//! Beats: a runner renews the leases of everything it has, in one call, answered after the commit.
//!
//! A beat decides nothing and touches no revision of a task or attempt. The status that it carries
//! is evidence, which is written beside; if that is overtaken, newer evidence has come.

use belay_api::port::{self, Beaten};
use belay_kernel::verdict::judge;
use belay_kernel::{HeartbeatStatus, RunnerId};
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{Beat, Beaten as StoreBeaten, Commit, Document, Holder, Store, Stored};

use crate::Control;
use crate::refuse::Outcome;

/// The fence of a runner's own lease: its id is enough, there is one process of it.
const RUNNER_FENCE: &str = "runner";

impl<S: Store> Control<S> {
    /// Renews the leases of a runner's attempts.
    pub(crate) async fn take_beat(&self, beat: port::Beat) -> Outcome<Vec<Beaten>> {
        let now = self.store().now().await?;
        let lease = self.lease(beat.runner, &self.settings().limits);
        let until = now.after(lease);
        let renewal = |who: &port::Who| Beat {
            holder: Holder::Attempt(who.task, who.attempt),
            fence: who.epoch.to_string(),
            until,
        };
        let mut beats: Vec<_> = beat.attempts.iter().map(|(who, _)| renewal(who)).collect();
        beats.push(presence(beat.runner, now.after(self.settings().limits.worker_lease)));
        let mut beaten = self.store().beat(beats, now).await?;
        beaten.pop();
        let answers: Vec<_> = beaten
            .into_iter()
            .map(|beaten| match beaten {
                StoreBeaten::Current { .. } => Beaten::Current { lease },
                StoreBeaten::Fenced | StoreBeaten::Gone => Beaten::Fenced,
            })
            .collect();
        let current = beat.attempts.iter().zip(&answers);
        let alive: Vec<_> = current
            .filter(|(_, answer)| matches!(answer, Beaten::Current { .. }))
            .map(|((who, status), _)| (*who, *status))
            .collect();
        self.note_alive(&alive).await?;
        Ok(answers)
    }

    /// Writes the heartbeats into the evidence of the sandboxes.
    async fn note_alive(&self, alive: &[(port::Who, HeartbeatStatus)]) -> Outcome<()> {
        let ids: Vec<_> = alive.iter().map(|(who, _)| (who.task, who.attempt)).collect();
        let attempts = self.store().load::<AttemptRow>(&ids).await?;
        let named = attempts.iter().map(|row| row.as_ref().and_then(|row| row.row.sandbox));
        let both: Vec<_> =
            named.zip(alive).filter_map(|(id, (_, status))| Some((id?, *status))).collect();
        let ids: Vec<_> = both.iter().map(|(id, _)| *id).collect();
        let sandboxes = self.store().load::<SandboxRow>(&ids).await?;
        let now = self.store().now().await?;
        let commits: Vec<_> = sandboxes
            .into_iter()
            .zip(&both)
            .filter_map(|(row, (_, status))| beaten(&row?, *status, now, self))
            .collect();
        self.store().commit_all(commits).await?;
        Ok(())
    }
}

fn beaten<S: Store>(
    stored: &Stored<SandboxRow>,
    status: HeartbeatStatus,
    now: belay_kernel::Timestamp,
    control: &Control<S>,
) -> Option<Commit> {
    let mut row = stored.row.clone();
    let Document(evidence) = row.evidence.as_mut()?;
    let before = evidence.status();
    evidence.beat(status, now);
    // A timer that is too early is set right when it fires. Another status means another clock,
    // whose limit may be the task's own: whoever judges looks it up.
    if before != Some(status) {
        row.due_at = Some(now);
    } else if row.due_at.is_none() {
        row.due_at = judge(evidence, &control.settings().limits, now).recheck_at;
    }
    Some(Commit::new().update(stored.revision, &row))
}

/// The presence of a runner.
pub(crate) fn presence(runner: RunnerId, until: belay_kernel::Timestamp) -> Beat {
    Beat { holder: Holder::Runner(runner), fence: RUNNER_FENCE.to_owned(), until }
}

/// The lease with which a runner's presence begins.
pub(crate) fn present(runner: RunnerId, until: belay_kernel::Timestamp) -> belay_store::LeaseWrite {
    let act = belay_store::LeaseAct::Open { fence: RUNNER_FENCE.to_owned(), mode: "live", until };
    belay_store::LeaseWrite { holder: Holder::Runner(runner), act }
}
