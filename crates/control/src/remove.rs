//! Removing a task: what is frozen of it is ended first, then its rows and blobs go, and its runner
//! is told to forget the sessions that nobody else has. Kept work stays in the runner's repository:
//! it may be the only copy, and whoever removes a task has not asked for that to be lost.

use std::time::Duration;

use belay_api::port::Duty;
use belay_api::{Ask, Code, Problem};
use belay_kernel::session::StopReason;
use belay_kernel::status::{self, DeleteDenial};
use belay_kernel::termination::Step;
use belay_kernel::{AttemptNumber, RunnerId, SessionId, TaskId, Timestamp};
use belay_store::blob::BlobKey;
use belay_store::rows::{AttemptRow, SandboxRow, SessionRow, TaskRow};
use belay_store::{Commit, MAX_BATCH, NewEffect, Query, Store, Stored};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::Control;
use crate::commit::{Draft, Put};
use crate::look::{Others, TRIES};
use crate::perform::Performed;
use crate::refuse::{Outcome, Refused};
use crate::verb::Asked;

/// How long a removal waits for what is being ended.
const ENDED_WITHIN: Duration = Duration::from_secs(20);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What is removed together.
struct Removal {
    /// The task, and everything below it.
    tasks: Vec<Stored<TaskRow>>,
    dependants: Others,
    attempts: Vec<Stored<AttemptRow>>,
    /// The sessions that no other task has.
    sessions: Vec<Stored<SessionRow>>,
    /// Those that others have too.
    shared: Vec<Stored<SessionRow>>,
}

impl Removal {
    /// The numbers of a task's attempts.
    fn numbers(&self, task: TaskId) -> Vec<AttemptNumber> {
        let of_task = self.attempts.iter().filter(|row| row.row.task == task);
        of_task.map(|row| row.row.attempt.number).collect()
    }

    /// The effect that everything of a task goes that no row holds.
    fn forget_task(&self, task: TaskId, now: Timestamp) -> NewEffect {
        let attempts = self.numbers(task);
        NewEffect {
            task: None,
            attempt: None,
            kind: "forget_task".to_owned(),
            body: json!({ "task": task, "attempts": attempts }).to_string(),
            due_at: now,
        }
    }
}

impl<S: Store> Control<S> {
    /// Removes a task, everything below it, and what is left of them but kept work. The task is
    /// named as people write it: a repeated request is known by its key when there is nothing left
    /// to be found.
    pub async fn delete(&self, ask: impl Into<Ask>, letters: &str) -> Result<(), Problem> {
        let asked = self.asked(ask.into(), &format!("delete {letters}"));
        if self.replayed(&asked).await?.is_some() {
            return Ok(());
        }
        let id = self.find(letters).await?;
        let until = Instant::now() + ENDED_WITHIN;
        let mut tries = 0;
        loop {
            let removal = self.removal(id, &asked).await?;
            if self.is_over(&removal).await? {
                match self.remove(&removal, &asked).await? {
                    Put::Done => return Ok(()),
                    Put::Overtaken if tries < TRIES => tries += 1,
                    Put::Overtaken => return Err(Refused::busy().into()),
                }
            } else if Instant::now() >= until {
                let detail = "its sandbox is in use or still being ended; ask again in a moment";
                return Err(Problem::new(Code::IllegalMove, detail));
            }
            let cursor = self.store().latest().await.map_err(Refused::from)?;
            let _ = timeout(LOOK_AGAIN, self.store().await_events(cursor, LOOK_AGAIN)).await;
        }
    }

    /// Everything that goes with a task, if it may go.
    async fn removal(&self, id: TaskId, asked: &Asked) -> Outcome<Removal> {
        let look = self.look(id).await?;
        asked.check(look.task.revision)?;
        let mut tasks = vec![look.task.clone()];
        let mut next = 0;
        while let Some(row) = tasks.get(next) {
            let below = self.subtasks(row.row.task.id).await?;
            tasks.extend(below.rows);
            next += 1;
        }
        let dependants = self.dependants_of(&tasks).await?;
        let states = |rows: &[Stored<TaskRow>]| -> Vec<_> {
            rows.iter().map(|row| row.row.task.state).collect()
        };
        let (below, waiting) = (states(&tasks[1..]), states(&dependants.rows));
        status::may_delete(&look.task.row.task.state, &below, &waiting).map_err(refuse)?;
        let mut attempts = Vec::new();
        for row in &tasks {
            let query = Query::<AttemptRow>::first(MAX_BATCH).task(&[row.row.task.id]);
            attempts.extend(self.all(query).await?);
        }
        let (sessions, shared) = self.sessions_of(&tasks, &attempts).await?;
        Ok(Removal { tasks, dependants, attempts, sessions, shared })
    }

    /// Whoever depends on any of these tasks and is not one of them.
    async fn dependants_of(&self, tasks: &[Stored<TaskRow>]) -> Outcome<Others> {
        let mut rows: Vec<Stored<TaskRow>> = Vec::new();
        for task in tasks {
            for row in self.dependants(task.row.task.id).await?.rows {
                let id = row.row.task.id;
                if !tasks.iter().chain(&rows).any(|known| known.row.task.id == id) {
                    rows.push(row);
                }
            }
        }
        Ok(Others { rows })
    }

    /// The sessions of these tasks, those that no other task has and those that others have.
    async fn sessions_of(
        &self,
        tasks: &[Stored<TaskRow>],
        attempts: &[Stored<AttemptRow>],
    ) -> Outcome<(Vec<Stored<SessionRow>>, Vec<Stored<SessionRow>>)> {
        let of_attempts = attempts.iter().map(|row| row.row.session);
        let mut ids: Vec<SessionId> =
            tasks.iter().filter_map(|row| row.row.session).chain(of_attempts).collect();
        ids.sort_unstable();
        ids.dedup();
        let (mut sessions, mut shared) = (Vec::new(), Vec::new());
        for id in ids {
            let row = self.row::<SessionRow>(id).await?;
            match self.is_used(id, tasks).await? {
                true => shared.extend(row),
                false => sessions.extend(row),
            }
        }
        Ok((sessions, shared))
    }

    /// Whether a session belongs to a task that is not one of these. One that could go on with it
    /// begins with what was last kept there, and only the rows of whoever kept it know of that.
    async fn is_used(&self, session: SessionId, but: &[Stored<TaskRow>]) -> Outcome<bool> {
        let another = |task: TaskId| !but.iter().any(|row| row.row.task.id == task);
        let tasks = self.all(Query::<TaskRow>::first(MAX_BATCH).session(&[session])).await?;
        let attempts = self.all(Query::<AttemptRow>::first(MAX_BATCH).session(&[session])).await?;
        let other = tasks.iter().map(|row| row.row.task.id).find(|task| another(*task));
        let kept = attempts.iter().filter(|row| row.row.kept_commit.is_some());
        let last = kept.max_by_key(|row| row.row.attempt.epoch);
        if let (Some(other), Some(_)) = (other, last.filter(|row| !another(row.row.task))) {
            let detail = format!("task {other} goes on with its work; remove that first");
            return Err(Refused::new(Code::IllegalMove, detail));
        }
        Ok(other.is_some() || attempts.iter().any(|row| another(row.row.task)))
    }

    /// Whether nothing of it runs or is frozen any more; what is frozen is told to end.
    async fn is_over(&self, removal: &Removal) -> Outcome<bool> {
        let mut over = true;
        for attempt in &removal.attempts {
            over &= is_done(&attempt.row) && !self.is_kept(&attempt.row).await?;
        }
        Ok(over)
    }

    /// Whether the sandbox of an attempt that is over is kept for its session to go on in. Whoever
    /// goes on in a sandbox needs what is known of those who were in it before: what is frozen is
    /// told to end, also where another task has the session by now, and then begins in a new one.
    async fn is_kept(&self, row: &AttemptRow) -> Outcome<bool> {
        let Some(sandbox) = row.sandbox else { return Ok(false) };
        let inside = self.all(Query::<AttemptRow>::first(MAX_BATCH).sandbox(&[sandbox])).await?;
        if inside.iter().any(|other| !is_done(&other.row)) {
            return Ok(true);
        }
        let Some(last) = inside.iter().max_by_key(|other| other.row.attempt.epoch) else {
            return Ok(false);
        };
        let look = self.look_at(last.row.task, Some(last.row.attempt.number)).await?;
        if look.is_frozen() {
            self.end_frozen(&look, StopReason::Cancelled).await?;
        }
        Ok(look.is_frozen())
    }

    async fn remove(&self, removal: &Removal, asked: &Asked) -> Outcome<Put> {
        let now = self.now().await?;
        let Some(task) = removal.tasks.first().map(|row| row.row.task.id) else {
            return Ok(Put::Done);
        };
        let commit = removal.dependants.read(Commit::new());
        let sessions = removal.sessions.iter().chain(&removal.shared);
        let commit = sessions.fold(commit, Commit::read);
        let mut commit = removal.tasks.iter().rev().fold(commit, Commit::delete);
        for session in &removal.sessions {
            commit = commit.effect(forget(session.row.id, now));
        }
        for row in &removal.tasks {
            commit = commit.effect(removal.forget_task(row.row.task.id, now));
        }
        // What has just come to rest may not have told its parent yet, and cannot any more.
        let parent = removal.tasks.first().and_then(|row| row.row.task.parent);
        commit = parent.iter().fold(commit, |c, id| c.effect(tell(*id, "subtask_removed", now)));
        // Whoever failed for it and is tried again does not wait for it.
        for row in &removal.dependants.rows {
            commit = commit.effect(tell(row.row.task.id, "dependency_removed", now));
        }
        let commit = commit.request(asked.request(task, now));
        let put = self.put(Draft { commit, offer: None, effects: true }).await?;
        if put == Put::Done {
            for row in &removal.tasks {
                let task = row.row.task.id;
                self.forget_task(task, &removal.numbers(task)).await?;
            }
        }
        Ok(put)
    }

    /// What no row holds of a removed task goes too. It is an effect of the removal, and done at
    /// once as well: whoever is told that a task is removed finds nothing of it.
    pub(crate) async fn forget_task(
        &self,
        task: TaskId,
        attempts: &[AttemptNumber],
    ) -> Outcome<Performed> {
        for &number in attempts {
            self.inner.blobs.delete(BlobKey::Transcript(task, number)).await?;
            self.inner.blobs.delete(BlobKey::Diff(task, number)).await?;
        }
        self.inner.vault.forget(task)?;
        Ok(Performed::Done)
    }

    /// Has the runner forget a session, until its row is gone.
    pub(crate) async fn remind_to_forget(&self, session: SessionId) -> Outcome<Performed> {
        let Some(stored) = self.row::<SessionRow>(session).await? else {
            return Ok(Performed::Done);
        };
        match stored.row.runner {
            Some(runner) => self.inner.mailboxes.leave(runner, Duty::Forget { session }),
            None => return self.drop_session(&stored).await.map(|_| Performed::Done),
        }
        Ok(Performed::Waits)
    }

    /// A runner has nothing left of a session: its rows go too.
    pub(crate) async fn session_forgotten(
        &self,
        runner: RunnerId,
        session: SessionId,
    ) -> Outcome<()> {
        for _ in 0..TRIES {
            let Some(stored) = self.row::<SessionRow>(session).await? else { return Ok(()) };
            if stored.row.runner != Some(runner) || self.is_used(session, &[]).await? {
                return Ok(());
            }
            if self.drop_session(&stored).await? == Put::Done {
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    async fn drop_session(&self, stored: &Stored<SessionRow>) -> Outcome<Put> {
        let of_session = Query::<SandboxRow>::first(MAX_BATCH).session(&[stored.row.id]);
        let sandboxes = self.all(of_session).await?;
        let commit = sandboxes.iter().fold(Commit::new(), Commit::delete);
        self.put(commit.delete(stored).into()).await
    }
}

fn forget(session: SessionId, now: Timestamp) -> NewEffect {
    NewEffect {
        task: None,
        attempt: None,
        kind: "forget_session".to_owned(),
        body: json!({ "session": session }).to_string(),
        due_at: now,
    }
}

/// Whether an attempt is over, with everything that is its runner's to do.
fn is_done(row: &AttemptRow) -> bool {
    row.termination.is_some_and(|saga| saga.step == Step::Done)
}

/// The effect that a task counts again what it waits for.
fn tell(task: TaskId, kind: &str, now: Timestamp) -> NewEffect {
    NewEffect {
        task: Some(task),
        attempt: None,
        kind: kind.to_owned(),
        body: json!({}).to_string(),
        due_at: now,
    }
}

fn refuse(denial: DeleteDenial) -> Refused {
    let detail = match denial {
        DeleteDenial::Active => "the task is under way; stop it first",
        DeleteDenial::DescendantActive => "a subtask of it is under way; stop it first",
        DeleteDenial::DependantWaits => "another task waits for it; stop or remove that first",
    };
    Refused::new(Code::IllegalMove, detail)
}
