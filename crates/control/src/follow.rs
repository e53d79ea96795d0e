//! Follow-ups: final states stay final, so what goes on is a new task in the same session.

use belay_api::Code;
use belay_kernel::TaskId;
use belay_kernel::graph;
use belay_kernel::task::Verb;
use belay_store::Store;
use belay_store::rows::SpecRow;

use crate::Control;
use crate::admit::Birth;
use crate::refuse::{Outcome, Refused, illegal};
use crate::verb::Asked;

impl<S: Store> Control<S> {
    /// Makes the task that follows `id`, on the same branch.
    pub(crate) async fn follow_with(
        &self,
        asked: &Asked,
        id: TaskId,
        verb: Verb,
        message: String,
    ) -> Outcome<TaskId> {
        if let Some(before) = self.replayed(asked).await? {
            return Ok(before);
        }
        if message.trim().is_empty() {
            return Err(Refused::new(Code::BadRequest, "the message is empty; say what is next"));
        }
        let look = self.look(id).await?;
        asked.check(look.task.revision)?;
        let state = look.task.row.task.state;
        let Some(follow) = graph::follow_up(&state, verb) else {
            return Err(illegal(&state, state.verbs()).into());
        };
        let next = TaskId::from_bits(self.inner.chance.draw());
        let title: String = message.lines().next().unwrap_or_default().chars().take(80).collect();
        let spec = SpecRow {
            task: next,
            title: title.into(),
            prompt: message.into(),
            continues: Some(id),
            created_by: asked.by().into(),
            trace: crate::trace::current()
                .map(|context| context.to_string().into())
                .or(look.spec.trace.clone()),
            ..look.spec.clone()
        };
        let birth = Birth {
            id: next,
            spec,
            role: look.task.row.role.clone(),
            session: look.task.row.session,
            plan: match look.task.row.session {
                Some(_) => follow.plan,
                None => belay_kernel::task::Plan::Fresh,
            },
            hold: false,
            review: look.task.row.task.review,
            max_attempts: look.task.row.task.max_attempts,
            priority: look.task.row.priority,
        };
        self.inner.vault.put(next, &self.inner.vault.get(id)?)?;
        let made = self.bear(asked, &birth, None, &[]).await;
        if made.as_ref().ok() != Some(&next) {
            self.inner.vault.forget(next)?;
        }
        made
    }
}
