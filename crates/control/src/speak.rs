//! What an agent may ask with its attempt's own token: to be heard while its attempt acts, and to
//! have subtasks. It cannot accept its own work, read others', or outlive its attempt.

use belay_api::port::Who;
use belay_api::{ATTEMPT_TOKEN, NewTask, Problem, TaskView, token_hash};
use belay_kernel::{AttemptNumber, TaskId};
use belay_store::Store;
use belay_store::rows::AttemptRow;

use crate::Control;
use crate::assignment::who;
use crate::refuse::Outcome;

impl<S: Store> Control<S> {
    /// The attempt whose token this is, as long as it may act.
    pub async fn speaker(&self, token: &str) -> Result<Option<Who>, Problem> {
        let row = self.attempt_of(token).await?;
        Ok(row.filter(|row| row.attempt.may_act()).map(|row| who(&row)))
    }

    /// The attempt whose token this is, whatever became of it: whoever speaks for one that is over
    /// is told so, and not that it is a stranger.
    pub async fn voice(&self, token: &str) -> Result<Option<Who>, Problem> {
        Ok(self.attempt_of(token).await?.map(|row| who(&row)))
    }

    async fn attempt_of(&self, token: &str) -> Outcome<Option<AttemptRow>> {
        let Some(id) = named(token) else { return Ok(None) };
        let row = self.row::<AttemptRow>(id).await?;
        let hash = token_hash(token);
        // Hashes are compared, so how long it takes tells nothing about the token.
        let known = |row: &AttemptRow| row.token_hash.as_deref() == Some(hash.as_str());
        Ok(row.map(|stored| stored.row).filter(known))
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
        let by = format!("attempt {}/{}", speaker.task, speaker.attempt);
        let asked = self.asked(&by, key, &format!("create {body}"));
        let new = NewTask { parent: Some(speaker.task), ..new };
        self.admit(&asked, new, Some(speaker)).await
    }
}

/// The attempt that a token names.
fn named(token: &str) -> Option<(TaskId, AttemptNumber)> {
    let mut parts = token.strip_prefix(ATTEMPT_TOKEN)?.split('_');
    let task = parts.next()?.parse().ok()?;
    Some((task, AttemptNumber(parts.next()?.parse().ok()?)))
}
