//! Looking: everything that a decision about a task reads, in one value, so that everything it
//! read is expected by its commit.

use belay_api::Code;
use belay_kernel::budget::{Budget, Standing};
use belay_kernel::deadline::{Pace, Stream};
use belay_kernel::graph;
use belay_kernel::planted::{self, Bug};
use belay_kernel::task::{Children, Policy, QueueFacts, State};
use belay_kernel::{AttemptNumber, TaskId, Timestamp};
use belay_store::rows::{
    AccountRow, AttemptRow, DependencyRow, LedgerRow, RoleRow, SandboxRow, SessionRow, SpecRow,
    TaskRow,
};
use belay_store::{Commit, Failure, Gather, Gathered, MAX_BATCH, Query, Record, Store, Stored};

use crate::Control;
use crate::refuse::{Outcome, Refused};

/// How often a decision is made again when it is overtaken.
pub(crate) const TRIES: u32 = 50;

/// A task with what decisions about it read.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: Timestamp,
    pub(crate) policy: Policy,
    pub(crate) task: Stored<TaskRow>,
    pub(crate) spec: SpecRow,
    /// The attempt that was asked for, or the last one.
    pub(crate) attempt: Option<Stored<AttemptRow>>,
    /// That attempt's session, or the task's.
    pub(crate) session: Option<Stored<SessionRow>>,
    /// That attempt's sandbox.
    pub(crate) sandbox: Option<Stored<SandboxRow>>,
    pub(crate) ledger: Option<Stored<LedgerRow>>,
    pub(crate) role: Option<Stored<RoleRow>>,
    /// The account that its agent uses; read by ends only, which expect it where they change it.
    pub(crate) account: Option<Stored<AccountRow>>,
    /// What the whole tree may use.
    pub(crate) budget: Budget,
    /// Whether the sandbox's row was changed here and is to be written.
    pub(crate) sandbox_changed: bool,
    /// Whether the session's row was changed here and is to be written.
    pub(crate) session_changed: bool,
}

/// The tasks below one, and those that one waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    pub(crate) rows: Vec<Stored<TaskRow>>,
}

impl Others {
    /// What they amount to as subtasks, without those that a `retry` disregards.
    pub(crate) fn children(&self) -> Children {
        let counted = self.rows.iter().filter(|row| !row.row.disregarded);
        graph::children(counted.map(|row| (row.row.task.id, &row.row.task.state)))
    }

    /// The state of one of them, if it is there.
    pub(crate) fn state(&self, id: TaskId) -> Option<State> {
        self.rows.iter().find(|row| row.row.task.id == id).map(|row| row.row.task.state)
    }

    /// One of them that rests without having completed.
    pub(crate) fn failed(&self) -> Option<TaskId> {
        let failed = |row: &&Stored<TaskRow>| {
            graph::DependencyState::of(&row.row.task.state) == graph::DependencyState::Failed
        };
        self.rows.iter().find(failed).map(|row| row.row.task.id)
    }

    /// A decision hangs something on all of them: their rows are written, as they are, so that
    /// whoever decided without it is overtaken.
    pub(crate) fn touch(&self, commit: Commit) -> Commit {
        match planted::is(Bug::ReadSetWithoutOthers) {
            true => commit,
            false => self.rows.iter().fold(commit, |c, row| c.update(row.revision, &row.row)),
        }
    }

    /// A decision read all of them.
    pub(crate) fn read(&self, commit: Commit) -> Commit {
        match planted::is(Bug::ReadSetWithoutOthers) {
            true => commit,
            false => self.rows.iter().fold(commit, Commit::read),
        }
    }
}

impl Look {
    /// How the tree's ledger stands.
    pub(crate) fn standing(&self) -> Standing {
        match &self.ledger {
            Some(ledger) => self.budget.standing(&ledger.row.ledger),
            None => Standing::Left,
        }
    }

    /// What is read when a person queues the task.
    pub(crate) fn queue_facts(&self, dependencies: &Others) -> QueueFacts {
        QueueFacts { failed_dependency: dependencies.failed(), budget: self.standing() }
    }

    /// What was seen of the attempt's output, as far as it has any.
    pub(crate) fn stream(&self) -> Stream {
        let seen = self.sandbox.as_ref().and_then(|row| row.row.stream.clone());
        seen.map_or_else(|| Stream::started(self.now, Pace::Quiet), |document| document.0)
    }

    /// The decision read all of this.
    pub(crate) fn read(&self, commit: Commit) -> Commit {
        fn all<R: Record>(commit: Commit, row: Option<&Stored<R>>) -> Commit {
            match row {
                Some(row) => commit.read(row),
                None => commit,
            }
        }
        let commit = commit.read(&self.task);
        let commit = all(commit, self.attempt.as_ref());
        let commit = all(commit, self.session.as_ref());
        let commit = all(commit, self.sandbox.as_ref());
        let commit = all(commit, self.ledger.as_ref());
        match &self.role {
            Some(role) => commit.read(role),
            None => commit.read_absent::<RoleRow>(&self.task.row.role),
        }
    }
}

impl<S: Store> Control<S> {
    /// One row.
    pub(crate) async fn row<R: Record>(&self, id: R::Id) -> Result<Option<Stored<R>>, Failure> {
        Ok(self.store().load::<R>(&[id]).await?.pop().flatten())
    }

    pub(crate) async fn row_if<R: Record>(
        &self,
        id: Option<R::Id>,
    ) -> Result<Option<Stored<R>>, Failure> {
        match id {
            Some(id) => self.row::<R>(id).await,
            None => Ok(None),
        }
    }

    /// A task, with its last attempt.
    pub(crate) async fn look(&self, task: TaskId) -> Outcome<Look> {
        self.look_at(task, None).await
    }

    /// A task, with the attempt of this number, or its last one.
    pub(crate) async fn look_at(&self, id: TaskId, number: Option<AttemptNumber>) -> Outcome<Look> {
        let now = self.now().await?;
        let Some(task) = self.row::<TaskRow>(id).await? else { return Err(unknown(id)) };
        let Some(spec) = self.row::<SpecRow>(id).await? else { return Err(unknown(id)) };
        let root = task.row.root;
        let budget = match root == id {
            true => spec.row.budget,
            false => self.row::<SpecRow>(root).await?.map_or(spec.row.budget, |r| r.row.budget),
        };
        let number = number.unwrap_or(task.row.task.attempts);
        let attempt = match number {
            AttemptNumber(0) => None,
            number => self.row::<AttemptRow>((id, number)).await?,
        };
        let session = attempt.as_ref().map(|row| row.row.session).or(task.row.session);
        let session = self.row_if::<SessionRow>(session).await?;
        let sandbox = attempt.as_ref().and_then(|row| row.row.sandbox);
        let sandbox = self.row_if::<SandboxRow>(sandbox).await?;
        let ledger = self.row::<LedgerRow>(root).await?;
        let role = self.row::<RoleRow>(task.row.role.clone()).await?;
        let name = task.row.role.as_str();
        let policy = self.settings().policy(name, role.as_ref().map(|r| &r.row), &spec.row);
        let spec = spec.row;
        let account = self.row_if::<AccountRow>(task.row.account.clone()).await?;
        Ok(Look {
            now,
            policy,
            task,
            spec,
            attempt,
            session,
            sandbox,
            ledger,
            role,
            account,
            budget,
            sandbox_changed: false,
            session_changed: false,
        })
    }

    /// A task with its last attempt, in two trips, and what else was asked for in the first.
    ///
    /// Decisions look row by row, because they are few; views are many.
    pub(crate) async fn look_and(
        &self,
        id: TaskId,
        mut first: Gather,
    ) -> Outcome<(Look, Gathered)> {
        let now = self.now().await?;
        let task = first.load::<TaskRow>(&[id]);
        let spec = first.load::<SpecRow>(&[id]);
        let found = self.store().gather(first).await?;
        let Some(task) = found.row(&task)? else { return Err(unknown(id)) };
        let Some(spec) = found.row(&spec)? else { return Err(unknown(id)) };
        let root = task.row.root;
        let mut second = Gather::new();
        let of_root = second.load::<SpecRow>(&[root]);
        let ledger = second.load::<LedgerRow>(&[root]);
        let role = second.load::<RoleRow>(std::slice::from_ref(&task.row.role));
        let attempt = second.load::<AttemptRow>(&[(id, task.row.task.attempts)]);
        let account = second.load::<AccountRow>(task.row.account.as_slice());
        let found_second = self.store().gather(second).await?;
        let attempt = found_second.row(&attempt)?;
        let session = attempt.as_ref().map(|row| row.row.session).or(task.row.session);
        let session = self.row_if::<SessionRow>(session).await?;
        let sandbox = attempt.as_ref().and_then(|row| row.row.sandbox);
        let sandbox = self.row_if::<SandboxRow>(sandbox).await?;
        let role = found_second.row(&role)?;
        let name = task.row.role.as_str();
        let policy = self.settings().policy(name, role.as_ref().map(|r| &r.row), &spec.row);
        let look = Look {
            now,
            policy,
            budget: found_second.row(&of_root)?.map_or(spec.row.budget, |row| row.row.budget),
            task,
            spec: spec.row,
            attempt,
            session,
            sandbox,
            ledger: found_second.row(&ledger)?,
            role,
            account: found_second.row(&account)?,
            sandbox_changed: false,
            session_changed: false,
        };
        Ok((look, found))
    }

    /// The subtasks of a task.
    pub(crate) async fn subtasks(&self, task: TaskId) -> Outcome<Others> {
        Ok(Others { rows: self.all(Query::<TaskRow>::first(MAX_BATCH).parent(&[task])).await? })
    }

    /// What a task waits for.
    pub(crate) async fn dependencies(&self, task: TaskId) -> Outcome<Others> {
        let edges = self.all(Query::<DependencyRow>::first(MAX_BATCH).task(&[task])).await?;
        self.others(edges.iter().map(|edge| edge.row.depends_on)).await
    }

    /// Who waits for a task.
    pub(crate) async fn dependants(&self, task: TaskId) -> Outcome<Others> {
        let edges = self.all(Query::<DependencyRow>::first(MAX_BATCH).depends_on(&[task])).await?;
        self.others(edges.iter().map(|edge| edge.row.task)).await
    }

    pub(crate) async fn others(&self, ids: impl Iterator<Item = TaskId>) -> Outcome<Others> {
        let ids: Vec<_> = ids.collect();
        let rows = self.store().load::<TaskRow>(&ids).await?;
        Ok(Others { rows: rows.into_iter().flatten().collect() })
    }

    /// All rows of a query, page by page.
    pub(crate) async fn all<R: Record>(&self, query: Query<R>) -> Result<Vec<Stored<R>>, Failure>
    where
        Query<R>: Clone,
    {
        let mut rows = Vec::new();
        let mut query = query;
        loop {
            let page = self.store().list(query.clone()).await?;
            rows.extend(page.rows);
            match page.after {
                Some(after) => query = query.after(Some(after)),
                None => return Ok(rows),
            }
        }
    }
}

fn unknown(id: TaskId) -> Refused {
    Refused::new(Code::NotFound, format!("there is no task {id}"))
}
