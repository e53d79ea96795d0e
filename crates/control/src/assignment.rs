//! An attempt as its runner is told of it: everything that is needed to run it, to go on with it
//! after a restart, or to end it.

use std::collections::BTreeMap;

use belay_agent::Agent;
use belay_api::port::{Assignment, Hello, Who, Work};
use belay_kernel::publish::CommitId;
use belay_kernel::task::{Plan, State};
use belay_kernel::worker::Place;
use belay_kernel::{AttemptNumber, RunnerId};
use belay_store::rows::{
    AttemptRow, Publishing, QuestionRow, RemarkRow, RunnerRow, SandboxRow, Uncommitted,
};
use belay_store::{
    Commit, Committed, Holder, LeaseKind, List, MAX_BATCH, NewEvent, Query, Store, Stored,
};
use serde_json::json;

use crate::Control;
use crate::beat::present;
use crate::look::{Look, TRIES};
use crate::prompt::Thread;
use crate::refuse::{Outcome, Refused};

/// Who an attempt is, in the words of the port.
pub(crate) fn who(row: &AttemptRow) -> Who {
    Who { task: row.task, attempt: row.attempt.number, epoch: row.attempt.epoch }
}

impl<S: Store> Control<S> {
    /// The assignment of the attempt that was looked at; nothing, if it was never given to anyone.
    pub(crate) async fn assignment(&self, look: &Look) -> Outcome<Option<Assignment>> {
        let Some(Stored { row, .. }) = &look.attempt else { return Ok(None) };
        let (Some(sandbox), Some(runner)) = (row.sandbox, row.runner) else { return Ok(None) };
        let number = row.attempt.number;
        let before = match number.0 {
            0 | 1 => None,
            n => self.row::<AttemptRow>((row.task, AttemptNumber(n - 1))).await?,
        };
        let plan = match look.task.row.task.state {
            State::Claimed { attempt, plan } | State::Running { attempt, plan }
                if attempt == number =>
            {
                plan
            }
            _ => Plan::Same,
        };
        let kept = self.kept_before(row, plan).await?;
        Ok(Some(Assignment {
            who: who(row),
            role: look.task.row.role.as_str().to_owned(),
            session: row.session,
            sandbox,
            plan,
            phase: row.attempt.phase,
            publish: row.attempt.publish,
            termination: row.termination,
            work: self.work(look).await?,
            prompt: self.prompt(look, self.spoke_last(look, before.as_ref()).await?).await?,
            conversation: look
                .session
                .as_ref()
                .and_then(|session| session.row.conversation.as_deref().map(str::to_owned)),
            kept: match kept {
                Some(kept) => Some(kept),
                None => self.continued(look).await?,
            },
            thaw: self.thaw(look).await?,
            acknowledged: row.transcript_length,
            lease: self.lease(runner, &self.settings().limits),
            limits: look.policy.limits,
        }))
    }

    /// What was last kept in the attempt's session, by whichever task: one whose machine was lost
    /// kept nothing. What is published again is the task's own. A new session begins with the
    /// base, whatever the last one left.
    async fn kept_before(&self, row: &AttemptRow, plan: Plan) -> Outcome<Option<CommitId>> {
        let attempts = Query::<AttemptRow>::first(MAX_BATCH);
        let attempts = match plan {
            Plan::Republish => attempts.task(&[row.task]),
            // Not the session's tasks: one that was begun anew has another session by now.
            Plan::Fresh | Plan::Same => {
                let of = Query::<SandboxRow>::first(MAX_BATCH).session(&[row.session]);
                let sandboxes = self.all(of).await?;
                let ids: Vec<_> = sandboxes.iter().map(|stored| stored.row.id).collect();
                attempts.sandbox(&ids)
            }
        };
        let attempts = self.all(attempts).await?;
        let before = attempts.into_iter().map(|stored| stored.row).filter(|before| {
            let is_before = before.attempt.epoch < row.attempt.epoch;
            is_before && before.session == row.session && before.kept_commit.is_some()
        });
        Ok(before.max_by_key(|row| row.attempt.epoch).and_then(|row| row.kept_commit))
    }

    /// What the task that this one continues has left.
    async fn continued(&self, look: &Look) -> Outcome<Option<CommitId>> {
        let Some(before) = look.spec.continues else { return Ok(None) };
        let Ok(before) = self.look(before).await else { return Ok(None) };
        Ok(before.attempt.and_then(|attempt| attempt.row.kept_commit))
    }

    /// The task that this one is a subtask of, if both work on the same repository.
    async fn parent(&self, look: &Look) -> Outcome<Option<Look>> {
        let Some(parent) = look.task.row.task.parent else { return Ok(None) };
        let parent = self.look(parent).await?;
        Ok(Some(parent).filter(|parent| parent.spec.repository == look.spec.repository))
    }

    async fn work(&self, look: &Look) -> Outcome<Work> {
        // What the subtask itself names comes first.
        let parent = match look.spec.base {
            None => self.parent(look).await?,
            Some(_) => None,
        };
        let spec = &look.spec;
        let role = self.settings().role(look.task.row.role.as_str());
        let text = |name: &Option<belay_store::Name>| name.as_deref().map(str::to_owned);
        let agent = text(&spec.agent).unwrap_or_else(|| self.settings().agent.clone());
        Ok(Work {
            environment: self.environment(look, &agent, &role.environment)?,
            agent,
            command: spec.command.0.clone(),
            model: text(&spec.model).or(role.model),
            provider: text(&spec.provider).or(role.provider).unwrap_or_else(|| "process".into()),
            image: text(&spec.image).or(role.image),
            repository: text(&spec.repository),
            base: text(parent.as_ref().map_or(&spec.base, |parent| &parent.spec.base)),
            beside: parent.and_then(|parent| parent.task.row.session),
            branch: text(&spec.branch).unwrap_or_else(|| format!("belay/{}", spec.task)),
            publish: spec.publishing == Publishing::Branch,
            include_uncommitted: spec.uncommitted == Uncommitted::Include,
            budget: look.budget,
            keep_alive: spec.keep_alive,
        })
    }

    /// What the role names, from this process's own environment; the agent's own credentials; and
    /// what the task brought along, which wins.
    pub(crate) fn environment(
        &self,
        look: &Look,
        agent: &str,
        names: &[String],
    ) -> Outcome<BTreeMap<String, String>> {
        let credentials = agent.parse::<Agent>().map_or(&[][..], Agent::credential_variables);
        let named = names.iter().map(String::as_str).chain(credentials.iter().copied());
        let ours = &self.settings().environment;
        let mut values: BTreeMap<_, _> = named
            .filter_map(|name| ours.get(name).map(|value| (name.to_owned(), value.clone())))
            .collect();
        values.extend(self.inner.vault.get(look.task.row.task.id)?);
        Ok(values)
    }

    /// The last attempt before this one whose agent was told anything: one that ended before it
    /// could start has heard nothing, and what is new for it is new still.
    async fn spoke_last(
        &self,
        look: &Look,
        before: Option<&Stored<AttemptRow>>,
    ) -> Outcome<Option<AttemptRow>> {
        let Some(mut row) = before.map(|before| before.row.clone()) else { return Ok(None) };
        while row.attempt.started_at.is_none() {
            let number = AttemptNumber(row.attempt.number.0.saturating_sub(1));
            match self.row::<AttemptRow>((look.task.row.task.id, number)).await? {
                Some(earlier) => row = earlier.row,
                None => return Ok(None),
            }
        }
        Ok(Some(row))
    }

    async fn prompt(
        &self,
        look: &Look,
        before: Option<AttemptRow>,
    ) -> Outcome<belay_api::port::Prompt> {
        let id = look.task.row.task.id;
        let questions = self.all(Query::<QuestionRow>::first(MAX_BATCH).task(&[id])).await?;
        let remarks = self.all(Query::<RemarkRow>::first(MAX_BATCH).task(&[id])).await?;
        let questions: Vec<_> = questions.into_iter().map(|row| row.row).collect();
        let remarks: Vec<_> = remarks.into_iter().map(|row| row.row).collect();
        let mut prompt = Thread {
            prompt: &look.spec.prompt,
            questions: &questions,
            remarks: &remarks,
            attempt: look.attempt.as_ref().map_or(AttemptNumber(1), |row| row.row.attempt.number),
            last_claimed: before.as_ref().map(|before| before.attempt.claimed_at),
        }
        .compose();
        if before.is_none() && look.spec.continues.is_some() {
            prompt.next = look.spec.prompt.to_string();
        }
        Ok(prompt)
    }

    /// A runner is there: it is remembered, and told of everything that it has.
    pub(crate) async fn join_runner(&self, hello: Hello) -> Outcome<Vec<Assignment>> {
        self.remember(&hello).await?;
        let mut assignments = Vec::new();
        for (look, runner) in self.unended().await? {
            // Also what is ending: the effect that asks for it may be held by a node that fell.
            if runner == hello.runner {
                assignments.extend(self.assignment(&look).await?);
            }
        }
        self.inner.effects.notify_one();
        Ok(assignments)
    }

    /// Every attempt that has a lease, which is every one that is not over.
    pub(crate) async fn unended(&self) -> Outcome<Vec<(Look, RunnerId)>> {
        let mut found = Vec::new();
        for lease in self.store().leases(LeaseKind::Attempt).await? {
            let Holder::Attempt(task, number) = lease.holder else { continue };
            let look = match self.look_at(task, Some(number)).await {
                Ok(look) => look,
                Err(Refused::Problem(_)) => continue,
                Err(refused) => return Err(refused),
            };
            if let Some(runner) = look.attempt.as_ref().and_then(|row| row.row.runner) {
                found.push((look, runner));
            }
        }
        Ok(found)
    }

    async fn remember(&self, hello: &Hello) -> Outcome<()> {
        for _ in 0..TRIES {
            let now = self.now().await?;
            let row = RunnerRow {
                id: hello.runner,
                name: hello.name.as_str().into(),
                place: match self.inner.embedded == Some(hello.runner) {
                    true => Place::Embedded,
                    false => Place::Remote,
                },
                slots: hello.slots,
                roles: List(hello.roles.clone()),
                providers: List(hello.providers.clone()),
                version: hello.version.as_str().into(),
                joined_at: now,
            };
            let commit = match self.row::<RunnerRow>(hello.runner).await? {
                Some(stored) => Commit::new().update(stored.revision, &row),
                None => Commit::new().insert(&row),
            };
            let until = now.after(self.settings().limits.worker_lease);
            let body = json!({ "runner": hello.runner, "name": hello.name });
            let commit = commit.lease(present(hello.runner, until)).event(NewEvent::general(
                "runner.joined",
                body.to_string(),
                now,
            ));
            if let Committed::Done = self.store().commit(commit).await? {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }
}
