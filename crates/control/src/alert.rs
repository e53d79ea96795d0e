//! Alerts: what is measured here, judged by the kernel, and kept as rows, so that a restart neither
//! repeats nor forgets one. What begins or ends is told by an event, and so by webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use belay_api::{AlertList, AlertView, Problem};
use belay_kernel::alert::{self, Kind, Measured, Sign, Signal, State, Step};
use belay_kernel::attempt::{Outcome as End, Phase};
use belay_kernel::breaker::Breaker;
use belay_kernel::mass_death::Census;
use belay_kernel::sandbox::Status;
use belay_kernel::task::State as TaskState;
use belay_kernel::why::LivePath;
use belay_kernel::{RunnerId, SandboxId, TaskId, Timestamp};
use belay_store::rows::{AlertRow, AttemptRow, LedgerRow, RoleRow, SandboxRow, SpecRow, TaskRow};
use belay_store::{Commit, Failure, Holder, LeaseKind, MAX_BATCH, Name, NewEvent, Query, Store};
use belay_store::{Committed, Stored};
use serde_json::json;

use crate::Control;
use crate::commit::short;
use crate::refuse::{Outcome, Refused};

/// What a runner's providers had when they were last asked.
#[derive(Debug)]
pub(crate) struct Sighting {
    at: Timestamp,
    sandboxes: BTreeSet<SandboxId>,
}

impl<S: Store> Control<S> {
    /// Counts and judges, for ever.
    pub(crate) async fn watch_forever(&self) {
        loop {
            if let Err(refused) = self.watch().await {
                tracing::warn!(?refused, "alerts were not judged");
            }
            let pause = self.settings().limits.alert_sweep.as_millis();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Every alert, firing ones first.
    pub async fn alerts(&self) -> Result<AlertList, Problem> {
        let rows = self.all(Query::<AlertRow>::first(MAX_BATCH)).await.map_err(Refused::from)?;
        let mut alerts: Vec<_> = rows.iter().map(|stored| alert_view(&stored.row)).collect();
        let rank = |state: &str| match state {
            "firing" => 0,
            "pending" => 1,
            _ => 2,
        };
        alerts.sort_by_key(|alert| (rank(&alert.state), alert.kind, alert.subject.clone()));
        Ok(AlertList { alerts })
    }

    /// Measures, judges, and keeps what came of it.
    pub(crate) async fn watch(&self) -> Outcome<()> {
        let now = self.now().await?;
        let (measured, known) = self.measure(now).await?;
        let signals = alert::judge(&measured, &self.settings().limits, &self.settings().caps);
        let rows = self.all(Query::<AlertRow>::first(MAX_BATCH)).await?;
        let mut before: BTreeMap<(Kind, String), Stored<AlertRow>> = rows
            .into_iter()
            .map(|stored| ((stored.row.kind, stored.row.subject.to_string()), stored))
            .collect();
        for signal in signals {
            let stored = before.remove(&(signal.kind, signal.subject.clone()));
            self.take_sign(stored, Some(&signal), now).await?;
        }
        for (_, stored) in before {
            // What this node cannot see is not over because this node does not see it.
            let unseen = stored.row.kind == Kind::SandboxMissing
                && stored.row.subject.parse().is_ok_and(|id| !known.contains(&id));
            if !unseen {
                self.take_sign(Some(stored), None, now).await?;
            }
        }
        Ok(())
    }

    async fn take_sign(
        &self,
        stored: Option<Stored<AlertRow>>,
        signal: Option<&Signal>,
        now: Timestamp,
    ) -> Outcome<()> {
        let kind = match (&stored, signal) {
            (Some(stored), _) => stored.row.kind,
            (None, Some(signal)) => signal.kind,
            (None, None) => return Ok(()),
        };
        let sign = if signal.is_some() { Sign::There } else { Sign::Gone };
        let holds_for = kind.holds_for(&self.settings().limits);
        let state = stored.as_ref().map(|stored| stored.row.state);
        let row = |state: State| AlertRow {
            kind,
            subject: match (&stored, signal) {
                (_, Some(signal)) => Name::from(signal.subject.as_str()),
                (Some(stored), None) => stored.row.subject.clone(),
                (None, None) => Name::default(),
            },
            state,
            sentence: match (&stored, signal) {
                (_, Some(signal)) => short(&signal.sentence),
                (Some(stored), None) => stored.row.sentence.clone(),
                (None, None) => short(""),
            },
        };
        let put = |row: &AlertRow| match &stored {
            Some(stored) => Commit::new().update(stored.revision, row),
            None => Commit::new().insert(row),
        };
        let commit = match (alert::step(state, sign, holds_for, now), &stored) {
            (Step::Stay, _) | (Step::Forget, None) => return Ok(()),
            (Step::Forget, Some(stored)) => Commit::new().delete(stored),
            (Step::Move(state), _) => put(&row(state)),
            (Step::Tell(state), _) => {
                let row = row(state);
                put(&row).event(told(&row, now))
            }
        };
        match self.store().commit(commit).await? {
            // Another node has done it.
            Committed::Done | Committed::Replayed(_) | Committed::Overtaken(_) => Ok(()),
            Committed::Refused(refusal) => Err(Failure::Refused(refusal).into()),
        }
    }

    /// Everything that is measured; and of which sandboxes anything is known here.
    async fn measure(&self, now: Timestamp) -> Outcome<(Measured, BTreeSet<SandboxId>)> {
        let limits = &self.settings().limits;
        let totals = self.count().await?;
        let runners = self.store().leases(LeaseKind::Runner).await?;
        let afoot: Vec<Name> = TaskState::AFOOT.iter().map(|name| (*name).into()).collect();
        let tasks = self.all(Query::<TaskRow>::first(MAX_BATCH).state(&afoot)).await?;
        let roles = self.all(Query::<RoleRow>::first(MAX_BATCH)).await?;
        let open = |row: &&Stored<RoleRow>| !matches!(row.row.breaker, Breaker::Closed { .. });
        let (missing, known) = self.missing(now).await?;
        // Each word of a runner renews its lease, its first one included.
        let heard = runners.iter().map(|lease| lease.until.before(limits.worker_lease));
        let measured = Measured {
            recent: totals.lately(now, limits),
            overdue_stops: self.overdue_stops().await?,
            missing,
            joins: totals.joins_lately(now, limits),
            open_breakers: roles.iter().filter(open).map(|r| r.row.role.name.clone()).collect(),
            budgets: self.budgets(&tasks).await?,
            census: Census::take(heard, limits, now),
            pathless: self.pathless(&tasks).await?,
        };
        Ok((measured, known))
    }

    /// Stops that are not proven yet although their time is over.
    pub(crate) async fn overdue_stops(&self) -> Outcome<u64> {
        let now = self.now().await?;
        let ending = Query::<AttemptRow>::first(MAX_BATCH).phase(&["ENDING".into()]);
        let overdue = |row: &&Stored<AttemptRow>| {
            let stopped = matches!(row.row.attempt.phase, Phase::Ending(End::Cancelled));
            let since = row.row.ending_at.unwrap_or(now);
            stopped && now.since(since) > self.settings().limits.stop_proof
        };
        Ok(self.all(ending).await?.iter().filter(overdue).count() as u64)
    }

    /// How much of its budget each tree under way has used.
    async fn budgets(&self, tasks: &[Stored<TaskRow>]) -> Outcome<Vec<(TaskId, u64)>> {
        let roots: BTreeSet<_> = tasks.iter().map(|task| task.row.root).collect();
        let roots: Vec<_> = roots.into_iter().collect();
        let mut used = Vec::new();
        for roots in roots.chunks(MAX_BATCH) {
            let specs = self.store().load::<SpecRow>(roots).await?;
            let ledgers = self.store().load::<LedgerRow>(roots).await?;
            for (spec, ledger) in specs.into_iter().flatten().zip(ledgers) {
                let ledger = ledger.map(|ledger| ledger.row.ledger).unwrap_or_default();
                let percent = spec.row.budget.percent_used(&ledger);
                if percent > 0 {
                    used.push((spec.row.task, percent));
                }
            }
        }
        Ok(used)
    }

    /// Tasks that nothing will move on. An attempt under lease is a path, so only the others are
    /// looked at.
    async fn pathless(&self, tasks: &[Stored<TaskRow>]) -> Outcome<Vec<TaskId>> {
        let leases = self.store().leases(LeaseKind::Attempt).await?;
        let held: BTreeSet<_> = leases
            .iter()
            .filter(|lease| lease.open)
            .filter_map(|lease| match lease.holder {
                Holder::Attempt(task, number) => Some((task, number)),
                _ => None,
            })
            .collect();
        let mut pathless = Vec::new();
        for task in tasks.iter().map(|stored| &stored.row.task) {
            let acting =
                task.state.attempt().is_some_and(|number| held.contains(&(task.id, number)));
            if acting || matches!(task.state, TaskState::Queued { .. }) {
                continue;
            }
            let look = match self.look(task.id).await {
                Ok(look) => look,
                Err(Refused::Problem(_)) => continue, // deleted meanwhile
                Err(refused) => return Err(refused),
            };
            let subtasks = self.subtasks(task.id).await?;
            if self.explain(&look, &subtasks, None).path == LivePath::None {
                pathless.push(task.id);
            }
        }
        Ok(pathless)
    }

    /// Notes what a runner's providers have.
    pub(crate) fn note_sighting(
        &self,
        runner: RunnerId,
        at: Timestamp,
        sandboxes: BTreeSet<SandboxId>,
    ) {
        let mut sightings = self.inner.sightings.lock().unwrap_or_else(PoisonError::into_inner);
        sightings.insert(runner, Sighting { at, sandboxes });
    }

    /// Sandboxes that rows want and their runners do not have; and all that were asked for.
    async fn missing(&self, now: Timestamp) -> Outcome<(Vec<SandboxId>, BTreeSet<SandboxId>)> {
        let stale = self.settings().limits.orphan_sweep.times(3);
        let fresh: Vec<(RunnerId, Timestamp, BTreeSet<SandboxId>)> = {
            let mut seen = self.inner.sightings.lock().unwrap_or_else(PoisonError::into_inner);
            seen.retain(|_, sighting| now.since(sighting.at) <= stale);
            seen.iter().map(|(id, seen)| (*id, seen.at, seen.sandboxes.clone())).collect()
        };
        let live = Status::ALL.iter().filter(|status| **status != Status::Terminated);
        let live: Vec<Name> = live.map(|status| status.name().into()).collect();
        let (mut missing, mut known) = (Vec::new(), BTreeSet::new());
        for (runner, at, present) in fresh {
            let rows = Query::<SandboxRow>::first(MAX_BATCH).runner(&[runner]).state(&live);
            for row in self.all(rows).await? {
                known.insert(row.row.id);
                // A row comes before its sandbox: what was made after the list is not in it.
                if row.row.created_at < at && !row.row.buried && !present.contains(&row.row.id) {
                    missing.push(row.row.id);
                }
            }
        }
        // An alert whose sandbox is over is over, wherever it was.
        let alerts = self.all(Query::<AlertRow>::first(MAX_BATCH)).await?;
        let alerts = alerts.iter().filter(|alert| alert.row.kind == Kind::SandboxMissing);
        let ids: Vec<SandboxId> =
            alerts.filter_map(|alert| alert.row.subject.parse().ok()).collect();
        for (id, row) in ids.iter().zip(self.store().load::<SandboxRow>(&ids).await?) {
            let over = row.is_none_or(|row| row.row.state.status() == Status::Terminated);
            if over {
                known.insert(*id);
            }
        }
        Ok((missing, known))
    }
}

fn told(row: &AlertRow, now: Timestamp) -> NewEvent {
    let view = alert_view(row);
    let kind = format!("alert.{}", view.state);
    let body = json!({
        "alert": view.kind,
        "subject": view.subject,
        "since": view.since,
        "until": view.until,
        "sentence": view.sentence,
    });
    NewEvent::general(&kind, body.to_string(), now)
}

fn alert_view(row: &AlertRow) -> AlertView {
    let (state, since, until) = match row.state {
        State::Pending { since } => ("pending", since, None),
        State::Firing { since } => ("firing", since, None),
        State::Cleared { since, until } => ("cleared", since, Some(until)),
    };
    AlertView {
        kind: row.kind,
        subject: row.subject.to_string(),
        state: state.to_owned(),
        since,
        until,
        sentence: row.sentence.to_string(),
    }
}
