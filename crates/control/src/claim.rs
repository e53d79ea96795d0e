//! Claiming: the attempt, its session and the name of its sandbox are made in the commit that
//! takes the task, so that a stop always has something to name.

use std::sync::Arc;

use belay_api::port::{Assignment, ClaimRequest};
use belay_kernel::attempt::{Attempt, Frozen};
use belay_kernel::budget::Standing;
use belay_kernel::claim::{ClaimFacts, SessionSlot, TreeHolder};
use belay_kernel::session::{self, Session, Wake};
use belay_kernel::task::{self, Event, Policy, State, Verb};
use belay_kernel::{Disposition, RunnerId, SandboxId, SessionId, Span, TaskId, Timestamp};
use belay_kernel::{Epoch, Limits};
use belay_store::rows::{AccountRow, AttemptRow, RoleRow, SandboxRow, SessionRow, TaskRow};
use belay_store::{Candidate, ClaimAsk, Commit, Decide, NewEvent, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::frozen::frozen_in;
use crate::refuse::Outcome;

/// The rows that say whether a queued task may be claimed.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) task: &'a TaskRow,
    /// The session that it goes on with.
    pub(crate) kept: Option<&'a SessionRow>,
    pub(crate) role: Option<&'a RoleRow>,
    pub(crate) account: Option<&'a AccountRow>,
}

impl Read<'_> {
    /// The runner that holds the tree which the task goes on with.
    pub(crate) fn holder(&self) -> Option<RunnerId> {
        self.kept.and_then(|session| session.runner)
    }

    /// What they say to somebody else than `holder`, if that is to be waited for.
    pub(crate) fn facts(
        &self,
        budget: Standing,
        holder: Option<RunnerId>,
        limits: &Limits,
    ) -> ClaimFacts {
        let task = &self.task.task;
        let busy = |row: &SessionRow| row.session.attempt == session::Attempt::Live;
        ClaimFacts {
            unfinished_dependencies: self.task.unfinished,
            session: match self.kept.is_some_and(busy) {
                true => SessionSlot::Busy(task.attempts),
                false => SessionSlot::Free,
            },
            role: self.role.and_then(|row| row.role.hold()),
            budget,
            account_probe: self.account.and_then(|row| row.account.probe_before(task.id)),
            tree: holder.map(|holder| TreeHolder::awaited(holder, task.since, limits)),
        }
    }
}

/// What every claim of one request has in common.
#[derive(Clone)]
struct Claimer {
    runner: RunnerId,
    now: Timestamp,
    lease: Span,
    policy: Policy,
    /// Drawn once; the ids of each task come from it and the task's own, so that judging a
    /// candidate twice gives the same answer.
    seed: u128,
    provider: String,
}

impl<S: Store> Control<S> {
    /// How long the leases of a runner's attempts are.
    pub(crate) fn lease(&self, runner: RunnerId, limits: &Limits) -> Span {
        match self.inner.embedded == Some(runner) {
            true => limits.attempt_lease_embedded,
            false => limits.attempt_lease_remote,
        }
    }

    /// Claims tasks of a role for a runner.
    pub(crate) async fn claim_for(&self, ask: ClaimRequest) -> Outcome<Vec<Assignment>> {
        let now = self.now().await?;
        let settings = self.settings();
        let role = settings.role(&ask.role);
        let claimer = Claimer {
            runner: ask.runner,
            now,
            lease: self.lease(ask.runner, &settings.limits),
            policy: Policy { limits: settings.limits, caps: settings.caps },
            seed: self.inner.chance.draw(),
            provider: role.provider.unwrap_or_else(|| "process".to_owned()),
        };
        let wanted = ClaimAsk {
            role: ask.role,
            now,
            limit: ask.slots as usize,
            limits: settings.limits,
            caps: settings.caps,
        };
        let decide: Decide = Arc::new(move |candidate| claimer.decide(candidate));
        let mut assignments = Vec::new();
        for claim in self.store().claim(wanted, decide).await? {
            if claim.committed.is_done() {
                let look = self.look(claim.task).await?;
                assignments.extend(self.assignment(&look).await?);
            }
        }
        Ok(assignments)
    }
}

impl Claimer {
    /// The commit that takes a task, or nothing if it is not to be taken.
    fn decide(&self, candidate: &Candidate) -> Option<Commit> {
        let task = &candidate.task.row;
        let State::Queued { plan, .. } = task.task.state else { return None };
        let kept = candidate.session.as_ref().filter(|_| task.task.state.goes_on());
        let epoch = kept.map_or(Epoch(1), |session| session.row.session.epoch.next());
        let lease_end = self.now.after(self.lease);
        let event = Event::Claim { facts: self.facts(candidate, kept), epoch, lease_end };
        let Disposition::Accept(next) =
            task::step(&task.task, None, &event, self.now, &self.policy)
        else {
            return None;
        };
        let attempt = next.attempt?;
        // What the session has frozen is what the attempt goes on in.
        let frozen = kept.and_then(|stored| frozen_in(&stored.row.session));
        let new = SandboxId::from_bits(self.seed.rotate_left(61) ^ task.task.id.as_bits());
        let sandbox = frozen.unwrap_or(new);
        let session = self.session(task, kept, epoch, sandbox)?;
        let row =
            TaskRow { task: next.task, session: Some(session.id), due_at: None, ..task.clone() };
        let mut commit = Commit::new().update(candidate.task.revision, &row);
        commit = match kept {
            Some(stored) => commit.update(stored.revision, &session),
            None => commit.insert(&session),
        };
        if frozen.is_none() {
            commit = commit.insert(&self.sandbox(&session, sandbox, epoch));
        }
        let still = if frozen.is_some() { Frozen::Before } else { Frozen::No };
        let attempt = Attempt { frozen: still, ..attempt };
        commit = commit.insert(&self.attempt(task.task.id, attempt, session.id, sandbox));
        commit = reads(commit, candidate);
        if let Some(account) = &candidate.account {
            let claimed = account.row.account.claimed(task.task.id);
            if claimed != account.row.account {
                let row = AccountRow { account: claimed, ..account.row.clone() };
                commit = commit.update(account.revision, &row);
            }
        }
        let body = json!({
            "from": "QUEUED", "state": "CLAIMED", "reason": "claimed", "runner": self.runner,
            "sandbox": sandbox, "plan": plan,
        });
        let event = NewEvent {
            attempt: Some(attempt.number),
            session: Some(session.id),
            workflow: task.workflow,
            ..NewEvent::task(task.task.id, "task.claimed", body.to_string(), self.now)
        };
        Some(commit.event(event))
    }

    fn facts(&self, candidate: &Candidate, kept: Option<&Stored<SessionRow>>) -> ClaimFacts {
        let read = Read {
            task: &candidate.task.row,
            kept: kept.map(|stored| &stored.row),
            role: candidate.role.as_ref().map(|stored| &stored.row),
            account: candidate.account.as_ref().map(|stored| &stored.row),
        };
        // The budget's ledger is at the root, and its budget in another row: that nothing is left
        // is found by the report that used it up, and again when the attempt asks to start.
        let holder = read.holder().filter(|holder| *holder != self.runner);
        read.facts(Standing::Left, holder, &self.policy.limits)
    }

    /// The session with its new sandbox: a new one, or the one that goes on.
    fn session(
        &self,
        task: &TaskRow,
        kept: Option<&Stored<SessionRow>>,
        epoch: Epoch,
        sandbox: SandboxId,
    ) -> Option<SessionRow> {
        let (row, event) = match kept {
            None => {
                let id = SessionId::from_bits(self.seed ^ task.task.id.as_bits());
                (new_session(id, self.now), session::Event::Opened { sandbox })
            }
            Some(stored) => {
                let wake = match task.task.reason {
                    task::Reason::Asked(Verb::Answer) => Wake::Answer,
                    task::Reason::Created => Wake::Continue,
                    _ => Wake::Resume,
                };
                (stored.row.clone(), session::Event::Resumed { sandbox, wake })
            }
        };
        let Disposition::Accept(moved) = session::step(&row.session, event) else { return None };
        let session =
            Session { epoch, attempt: session::Attempt::Live, ..row.session.after(&moved) };
        Some(SessionRow { session, runner: Some(self.runner), due_at: None, ..row })
    }

    fn sandbox(&self, session: &SessionRow, id: SandboxId, epoch: Epoch) -> SandboxRow {
        SandboxRow {
            id,
            session: session.id,
            state: belay_kernel::sandbox::State::Created,
            epoch,
            provider: self.provider.as_str().into(),
            runner: Some(self.runner),
            reference: None,
            buried: false,
            evidence: None,
            stream: None,
            created_at: self.now,
            due_at: None,
        }
    }

    fn attempt(
        &self,
        task: TaskId,
        attempt: Attempt,
        session: SessionId,
        sandbox: SandboxId,
    ) -> AttemptRow {
        AttemptRow {
            runner: Some(self.runner),
            sandbox: Some(sandbox),
            // A runner that never hears of its claim renews no lease, which may be the shorter.
            due_at: Some(self.now.after(self.policy.limits.claim.min(self.lease))),
            ..AttemptRow::new(task, attempt, session)
        }
    }
}

/// Everything that the claim read is expected, also that there is no such row.
fn reads(commit: Commit, candidate: &Candidate) -> Commit {
    let task = &candidate.task.row;
    let commit = match &candidate.role {
        Some(role) => commit.read(role),
        None => commit.read_absent::<RoleRow>(&task.role),
    };
    let commit = match (&candidate.account, &task.account) {
        (Some(account), _) => commit.read(account),
        (None, Some(name)) => commit.read_absent::<AccountRow>(name),
        (None, None) => commit,
    };
    match &candidate.ledger {
        Some(ledger) => commit.read(ledger),
        None => commit,
    }
}

fn new_session(id: SessionId, now: Timestamp) -> SessionRow {
    SessionRow {
        id,
        session: Session::new(),
        runner: None,
        owner: None,
        conversation: None,
        keep_alive: false,
        created_at: now,
        due_at: None,
    }
}
