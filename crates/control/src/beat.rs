//! Beats: a runner renews the leases of everything it has, in one call, answered after the commit.
//!
//! A beat decides nothing and touches no revision of a task or attempt. The status that it carries
//! is evidence, which is written beside; if that is overtaken, newer evidence has come.

use belay_api::port::{self, Beaten, Pulse};
use belay_kernel::planted::{self, Bug};
use belay_kernel::sandbox;
use belay_kernel::termination::Step;
use belay_kernel::verdict::judge;
use belay_kernel::{Disposition, HeartbeatStatus, Limits, RunnerId, Timestamp};
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{Beat, Beaten as StoreBeaten, Commit, Document, Holder, Key, Store, Stored};

use crate::Control;
use crate::refuse::Outcome;

/// The fence of a runner's own lease: its id is enough, there is one process of it.
const RUNNER_FENCE: &str = "runner";

impl<S: Store> Control<S> {
    /// Renews the leases of a runner's attempts.
    pub(crate) async fn take_beat(&self, beat: port::Beat) -> Outcome<Vec<Beaten>> {
        let now = self.now().await?;
        let lease = self.lease(beat.runner, &self.settings().limits);
        let until = now.after(lease);
        let renewal = |who: &port::Who| Beat {
            holder: Holder::Attempt(who.task, who.attempt),
            fence: who.epoch.to_string(),
            until,
        };
        let mut beats: Vec<_> = beat.attempts.iter().map(|pulse| renewal(&pulse.who)).collect();
        beats.push(presence(beat.runner, now.after(self.settings().limits.worker_lease)));
        let mut beaten = match self.store().beat(beats, now).await {
            Err(_) if planted::is(Bug::BeatAnsweredUncommitted) => {
                return Ok(vec![Beaten::Current { lease }; beat.attempts.len()]);
            }
            beaten => beaten?,
        };
        beaten.pop();
        let mut answers: Vec<_> = beaten
            .into_iter()
            .map(|beaten| match beaten {
                StoreBeaten::Current { .. } => Beaten::Current { lease },
                StoreBeaten::Fenced | StoreBeaten::Gone => Beaten::Fenced,
            })
            .collect();
        if answers.contains(&Beaten::Fenced) {
            self.let_stay(&beat, &mut answers).await?;
        }
        let current = beat.attempts.iter().zip(&answers);
        let alive: Vec<_> = current
            .filter(|(_, answer)| matches!(answer, Beaten::Current { .. }))
            .map(|(pulse, _)| *pulse)
            .collect();
        self.note_alive(&alive).await?;
        Ok(answers)
    }

    /// An attempt that is over may be one whose agent is to stay. Its runner is told to freeze it,
    /// by this answer or by its duty, whichever comes first.
    async fn let_stay(&self, beat: &port::Beat, answers: &mut [Beaten]) -> Outcome<()> {
        let ids: Vec<_> =
            beat.attempts.iter().map(|pulse| (pulse.who.task, pulse.who.attempt)).collect();
        let rows = self.store().load::<AttemptRow>(&ids).await?;
        for ((row, pulse), answer) in rows.into_iter().zip(&beat.attempts).zip(answers) {
            let stays = row.is_some_and(|row| {
                let freezes = row.row.termination.is_some_and(|saga| saga.step == Step::Freeze);
                freezes && row.row.attempt.epoch == pulse.who.epoch
            });
            if stays && *answer == Beaten::Fenced {
                *answer = Beaten::Freeze;
            }
        }
        Ok(())
    }

    /// Writes the heartbeats into the evidence of the sandboxes.
    async fn note_alive(&self, alive: &[Pulse]) -> Outcome<()> {
        let ids: Vec<_> = alive.iter().map(|pulse| (pulse.who.task, pulse.who.attempt)).collect();
        let attempts = self.store().load::<AttemptRow>(&ids).await?;
        let both: Vec<_> = attempts
            .into_iter()
            .zip(alive)
            .filter_map(|(row, pulse)| {
                let row = row?;
                Some((row.row.sandbox?, row, *pulse))
            })
            .collect();
        let ids: Vec<_> = both.iter().map(|(id, ..)| *id).collect();
        let sandboxes = self.store().load::<SandboxRow>(&ids).await?;
        let now = self.now().await?;
        let (mut commits, mut news) = (Vec::new(), Vec::new());
        for (row, (_, attempt, pulse)) in sandboxes.into_iter().zip(&both) {
            let Some(row) = row else { continue };
            let heard = pulse.told && self.note_heard(&attempt.row);
            if heard || is_news(&row.row) {
                news.push((
                    Key::of::<AttemptRow>(&(attempt.row.task, attempt.row.attempt.number)),
                    attempt.revision,
                ));
            }
            commits.extend(beaten(&row, pulse.status, heard, now, self));
        }
        self.store().commit_all(commits).await?;
        // Other clocks run against these from now on: the sweep sets their timers.
        for (attempt, revision) in news {
            self.store().rearm(attempt, revision, Some(now)).await?;
        }
        Ok(())
    }
}

/// Whether this beat is the first sign of life: other clocks run from now on.
pub(crate) fn is_news(row: &SandboxRow) -> bool {
    row.stream.as_ref().is_some_and(|stream| !stream.0.is_alive())
}

fn beaten<S: Store>(
    stored: &Stored<SandboxRow>,
    status: HeartbeatStatus,
    heard: bool,
    now: Timestamp,
    control: &Control<S>,
) -> Option<Commit> {
    let row = pulsed(&stored.row, status, heard, now, &control.settings().limits)?;
    Some(Commit::new().update(stored.revision, &row))
}

/// The sandbox after a beat, if it is watched yet.
pub(crate) fn pulsed(
    row: &SandboxRow,
    status: HeartbeatStatus,
    heard: bool,
    now: Timestamp,
    limits: &Limits,
) -> Option<SandboxRow> {
    let mut row = row.clone();
    let Document(evidence) = row.evidence.as_mut()?;
    let before = evidence.status();
    evidence.beat(status, now);
    if let Some(Document(stream)) = &mut row.stream {
        stream.seen();
    }
    // Also of an agent that has said nothing yet: only one that lives can be found idle or stuck.
    let lives = sandbox::step(&row.state, sandbox::Event::SignOfLife, now, limits);
    if let Disposition::Accept(moved) = lives {
        row.state = moved.next;
    }
    // A timer that is too early is set right when it fires. Another status means another clock,
    // whose limit may be the task's own: whoever judges looks it up.
    if before != Some(status) || heard {
        row.due_at = Some(now);
    } else if row.due_at.is_none() {
        row.due_at = judge(evidence, limits, now).recheck_at;
    }
    Some(row)
}

/// The presence of a runner.
pub(crate) fn presence(runner: RunnerId, until: Timestamp) -> Beat {
    Beat { holder: Holder::Runner(runner), fence: RUNNER_FENCE.to_owned(), until }
}

/// The lease with which a runner's presence begins.
pub(crate) fn present(runner: RunnerId, until: Timestamp) -> belay_store::LeaseWrite {
    let act = belay_store::LeaseAct::Open { fence: RUNNER_FENCE.to_owned(), mode: "live", until };
    belay_store::LeaseWrite { holder: Holder::Runner(runner), act }
}
