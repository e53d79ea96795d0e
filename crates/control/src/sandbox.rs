//! Sandboxes, as they are shown, and what their evidence means.

use belay_api::{Code, ListSandboxes, Problem, SandboxPage, SandboxView, VerdictView};
use belay_kernel::SandboxId;
use belay_kernel::verdict;
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{After, Failure, Name, Query, Store, Stored};

use crate::Control;
use crate::refuse::{Outcome, Refused};

/// How many sandboxes one page shows.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

impl<S: Store> Control<S> {
    /// Lists sandboxes, newest first.
    pub async fn sandboxes(&self, which: ListSandboxes) -> Result<SandboxPage, Problem> {
        Ok(self.sandbox_page(which).await?)
    }

    async fn sandbox_page(&self, which: ListSandboxes) -> Outcome<SandboxPage> {
        let limit = which.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let mut query = Query::<SandboxRow>::first(limit);
        if !which.state.is_empty() {
            let names = which.state.split(',').map(|name| name.trim().to_uppercase());
            let names: Vec<Name> = names.map(Name::from).collect();
            query = query.state(&names);
        }
        if let Some(after) = which.after {
            let after: After = after.parse().map_err(Failure::Refused)?;
            query = query.after(Some(after));
        }
        let page = self.store().list(query).await?;
        let mut sandboxes = Vec::with_capacity(page.rows.len());
        for stored in &page.rows {
            let attempt = self.last_attempt_in(stored.row.id).await?;
            sandboxes.push(view(&stored.row, attempt.as_ref().map(|attempt| &attempt.row)));
        }
        Ok(SandboxPage { sandboxes, after: page.after.map(|after| after.to_string()) })
    }

    /// Shows a sandbox.
    pub async fn sandbox(&self, id: SandboxId) -> Result<SandboxView, Problem> {
        let stored = self.sandbox_row(id).await?;
        let attempt = self.last_attempt_in(id).await?;
        Ok(view(&stored.row, attempt.as_ref().map(|attempt| &attempt.row)))
    }

    /// Judges a sandbox by the limits of the task that runs in it. It changes nothing.
    pub async fn verdict_of(&self, id: SandboxId) -> Result<VerdictView, Problem> {
        Ok(self.verdict_view(id).await?)
    }

    async fn verdict_view(&self, id: SandboxId) -> Outcome<VerdictView> {
        let stored = self.sandbox_row(id).await?;
        let now = self.now().await?;
        let attempt = self.last_attempt_in(id).await?;
        let limits = match &attempt {
            Some(attempt) => {
                let (task, number) = (attempt.row.task, attempt.row.attempt.number);
                self.look_at(task, Some(number)).await?.policy.limits
            }
            None => self.settings().limits,
        };
        let Some(evidence) = stored.row.evidence.map(|evidence| evidence.0) else {
            let detail = "nothing was observed of this sandbox";
            return Err(Refused::new(Code::NotFound, detail));
        };
        let judged = verdict::judge(&evidence, &limits, now);
        Ok(VerdictView {
            sandbox: id,
            ruling: ruling_name(judged.ruling),
            rule: judged.ruling.rule(),
            reasons: judged.reasons.as_slice().to_vec(),
            clocks: verdict::clocks(&evidence, &limits, now).as_slice().to_vec(),
            recheck_at: judged.recheck_at,
            judged_at: now,
        })
    }

    async fn sandbox_row(&self, id: SandboxId) -> Outcome<Stored<SandboxRow>> {
        let unknown = || Refused::new(Code::NotFound, format!("there is no sandbox {id}"));
        self.row::<SandboxRow>(id).await?.ok_or_else(unknown)
    }

    async fn last_attempt_in(&self, id: SandboxId) -> Outcome<Option<Stored<AttemptRow>>> {
        let query = Query::<AttemptRow>::first(1).sandbox(&[id]);
        Ok(self.store().list(query).await?.rows.pop())
    }
}

/// A ruling in a word.
fn ruling_name(ruling: verdict::Ruling) -> String {
    match serde_json::to_value(ruling) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        Ok(_) | Err(_) => String::new(),
    }
}

fn view(row: &SandboxRow, attempt: Option<&AttemptRow>) -> SandboxView {
    let evidence = row.evidence.as_ref().map(|evidence| &evidence.0);
    SandboxView {
        id: row.id,
        session: row.session,
        task: attempt.map(|attempt| attempt.task),
        attempt: attempt.map(|attempt| attempt.attempt.number),
        state: row.state.status().name().to_owned(),
        epoch: row.epoch,
        provider: row.provider.to_string(),
        runner: row.runner,
        buried: row.buried,
        created_at: row.created_at,
        last_seen_at: evidence.and_then(|seen| seen.life()).map(|life| life.last),
        last_work_at: evidence.and_then(|seen| seen.last_work()),
        completed_at: evidence.and_then(|seen| seen.completed_at()),
    }
}
