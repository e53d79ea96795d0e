//! Changing a webhook: where it is, what it is told, and whether it is told anything for now.

use belay_api::{Ask, Code, EditWebhook, Problem, WebhookView};
use belay_store::rows::{HookOrigin, LetterRow, LetterState, Secret, WebhookRow};
use belay_store::{Commit, Committed, Failure, MAX_BATCH, Query, Store, Stored};
use serde_json::json;

use super::HookSettings;
use super::hooks::{shown, stored};
use crate::Control;
use crate::look::TRIES;
use crate::refuse::{Outcome, Refused};
use crate::verb::Asked;

impl<S: Store> Control<S> {
    /// Changes what is said of a webhook, and leaves the rest.
    ///
    /// While it is paused it is told nothing; its letters, and its place among the events, stay.
    /// From there it goes on, and its letters have as long to be delivered as new ones.
    pub async fn edit_webhook(
        &self,
        ask: impl Into<Ask>,
        which: &str,
        edit: EditWebhook,
    ) -> Result<WebhookView, Problem> {
        let body = serde_json::to_string(&edit).unwrap_or_default();
        let asked = self.asked(ask.into(), &format!("edit webhook {which} {body}"));
        Ok(self.edit_hook(&asked, which, &edit).await?)
    }

    async fn edit_hook(
        &self,
        asked: &Asked,
        which: &str,
        edit: &EditWebhook,
    ) -> Outcome<WebhookView> {
        if let Some(before) = self.hook_before(asked).await? {
            return Ok(before);
        }
        for _ in 0..TRIES {
            let before = self.find_hook(which).await?;
            let row = self.edited(&before, edit).await?;
            let request = asked.request_answered(&json!({ "webhook": row.id }), self.now().await?);
            let commit = Commit::new().update(before.revision, &row).request(request);
            match self.store().commit(commit).await? {
                Committed::Done | Committed::Replayed(_) => {}
                Committed::Overtaken(_) => continue,
                Committed::Refused(refusal) => return Err(Failure::Refused(refusal).into()),
            }
            if before.row.paused_at.is_some() && row.paused_at.is_none() {
                self.give_time(&row).await?;
            }
            self.inner.letters.notify_one();
            return self.hook_view(&row).await;
        }
        Err(Refused::busy())
    }

    /// The row as it is to be.
    async fn edited(&self, before: &Stored<WebhookRow>, edit: &EditWebhook) -> Outcome<WebhookRow> {
        let row = &before.row;
        let EditWebhook { url, shape, kinds, secret, paused } = edit;
        let says_what = url.is_some() || shape.is_some() || kinds.is_some() || secret.is_some();
        if says_what && row.origin == HookOrigin::File {
            let detail = "this webhook is in belay.toml; change it there, or pause it here";
            return Err(Refused::new(Code::Refused, detail));
        }
        let settings = HookSettings {
            name: row.name.to_string(),
            url: url.clone().map_or_else(|| row.url.clone(), Secret),
            shape: shape.unwrap_or(shown(row.shape)),
            kinds: kinds.clone().unwrap_or_else(|| row.kinds.0.clone()),
            secret: secret.clone().map(Secret).or_else(|| row.secret.clone()),
        };
        let kinds = match says_what {
            true => self.check_hook(&settings)?,
            false => row.kinds.clone(),
        };
        let paused_at = match (paused, row.paused_at) {
            (Some(true), None) => Some(self.now().await?),
            (Some(false), _) => None,
            (Some(true) | None, before) => before,
        };
        Ok(WebhookRow {
            url: settings.url,
            shape: stored(settings.shape),
            kinds,
            secret: settings.secret,
            paused_at,
            ..row.clone()
        })
    }

    /// Letters of a webhook that was paused are tried as if they were made now: nobody tried to
    /// deliver them meanwhile, so that is no reason to give them up.
    async fn give_time(&self, hook: &WebhookRow) -> Outcome<()> {
        let waiting = Query::<LetterRow>::first(MAX_BATCH).webhook(&[hook.id]);
        let waiting = self.all(waiting.state(&[LetterState::Waiting])).await?;
        let now = self.now().await?;
        let commits = waiting.iter().map(|letter| {
            let row = LetterRow { since: now, send_at: now, ..letter.row.clone() };
            Commit::new().update(letter.revision, &row)
        });
        for batch in commits.collect::<Vec<_>>().chunks(500) {
            // One that is overtaken is being delivered, or is gone.
            self.store().commit_all(batch.to_vec()).await?;
        }
        Ok(())
    }
}
