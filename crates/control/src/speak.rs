//! What an agent may ask with its attempt's own token: to be heard while its attempt acts, and to
//! have subtasks. It cannot accept its own work, read others', or outlive its attempt.

use belay_api::port::Who;
use belay_api::{ATTEMPT_TOKEN, Ask, NewTask, Principal, Problem, TaskView, token_is};
use belay_kernel::fence::{self, Intent};
use belay_kernel::{AttemptNumber, TaskId};
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{MAX_BATCH, Query, Store, Stored};

use crate::Control;
use crate::assignment::who;
use crate::refuse::{Outcome, Refused};

impl<S: Store> Control<S> {
    /// Whose token this is, as long as it opens anything.
    pub async fn principal(&self, token: &str) -> Result<Option<Principal>, Problem> {
        match self.holder(token).await? {
            Some(holder) => Ok(Some(holder)),
            None => Ok(self.speaker(token).await?.map(Principal::attempt)),
        }
    }

    /// The attempt whose token this is, as long as it may act.
    pub async fn speaker(&self, token: &str) -> Result<Option<Who>, Problem> {
        let Some(row) = self.attempt_of(token).await? else { return Ok(None) };
        if row.attempt.may_act() {
            return Ok(Some(who(&row)));
        }
        // The same agent may have gone on in the same sandbox, for a later attempt.
        let Some(sandbox) = row.sandbox else { return Ok(None) };
        let later = Query::<AttemptRow>::first(MAX_BATCH).sandbox(&[sandbox]);
        let later = self.all(later).await.map_err(Refused::from)?;
        let acts = |row: &&Stored<AttemptRow>| is_of(token, &row.row) && row.row.attempt.may_act();
        Ok(later.iter().find(acts).map(|row| who(&row.row)))
    }

    /// What whoever speaks for an attempt that is over is told: that, and not that it is a
    /// stranger, because whoever is told so kills its agent at once.
    pub async fn over(&self, token: &str) -> Result<Option<Problem>, Problem> {
        let Some(row) = self.attempt_of(token).await? else { return Ok(None) };
        let sandbox = match row.sandbox {
            Some(id) => self.row::<SandboxRow>(id).await.map_err(Refused::from)?,
            None => None,
        };
        if sandbox.is_some_and(|stored| stored.row.state.is_gone()) {
            return Ok(Some(Refused::Gone.into()));
        }
        let attempt = &row.attempt;
        let admitted = fence::admit(attempt, attempt.number, attempt.epoch, Intent::Act);
        Ok(admitted.err().map(|refusal| Refused::from(refusal).into()))
    }

    async fn attempt_of(&self, token: &str) -> Outcome<Option<AttemptRow>> {
        let Some(id) = named(token) else { return Ok(None) };
        let row = self.row::<AttemptRow>(id).await?;
        Ok(row.map(|stored| stored.row).filter(|row| is_of(token, row)))
    }

    /// Makes a subtask for the agent that speaks.
    pub async fn add_subtask(
        &self,
        speaker: Who,
        new: NewTask,
        key: Option<String>,
    ) -> Result<TaskView, Problem> {
        let id = self.subtask_of(speaker, new, key).await?;
        self.show(id).await
    }

    async fn subtask_of(&self, speaker: Who, new: NewTask, key: Option<String>) -> Outcome<TaskId> {
        let body = serde_json::to_string(&new).unwrap_or_default();
        let by = Principal::attempt(speaker);
        let ask = Ask { key, ..Ask::by(by.name()) };
        let asked = self.asked(ask, &format!("create {body}"));
        let new = NewTask { parent: Some(speaker.task), ..new };
        self.admit(&asked, new, Some(speaker)).await
    }
}

/// Whether this is an attempt's token.
fn is_of(token: &str, row: &AttemptRow) -> bool {
    row.token_hash.as_deref().is_some_and(|hash| token_is(token, hash))
}

/// The attempt that a token names.
fn named(token: &str) -> Option<(TaskId, AttemptNumber)> {
    let mut parts = token.strip_prefix(ATTEMPT_TOKEN)?.split('_');
    let task = parts.next()?.parse().ok()?;
    Some((task, AttemptNumber(parts.next()?.parse().ok()?)))
}
