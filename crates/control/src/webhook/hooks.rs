//! Webhooks as people make, see and remove them, and as the settings say them.

use belay_api::{
    Ask, Code, HookShape, LetterPage, LetterView, ListLetters, MadeWebhook, NewWebhook, Problem,
    Replayed, WebhookList, WebhookView,
};
use belay_kernel::webhook::{Pattern, usual};
use belay_kernel::{NodeId, WebhookId};
use belay_store::rows::{HookOrigin, LetterRow, LetterState, Secret, Shape, WebhookRow};
use belay_store::{
    After, Commit, Committed, Failure, List, MAX_BATCH, NewEvent, Query, Store, Stored,
};
use serde_json::json;

use super::deliver::TRIED;
use crate::Control;
use crate::look::TRIES;
use crate::refuse::{Outcome, Refused};
use crate::verb::Asked;

/// The most letters on one page, and how many are shown if nobody says.
const MAX_PAGE: usize = 1_000;
const PAGE: usize = 100;
/// The most webhooks of an installation.
const MOST: usize = 200;
/// The shortest secret that is worth signing with.
const SHORTEST: usize = 16;

/// A webhook as the settings say it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookSettings {
    /// What it is called.
    pub name: String,
    /// Where it is.
    pub url: Secret,
    /// How its bodies look.
    pub shape: HookShape,
    /// The kinds of events that it is told; the usual ones, if none are said.
    pub kinds: Vec<String>,
    /// What its deliveries are signed with.
    pub secret: Option<Secret>,
}

impl<S: Store> Control<S> {
    /// Every webhook.
    pub async fn webhooks(&self) -> Result<WebhookList, Problem> {
        Ok(self.list_webhooks().await?)
    }

    async fn list_webhooks(&self) -> Outcome<WebhookList> {
        let mut hooks = self.all(Query::<WebhookRow>::first(MAX_BATCH)).await?;
        hooks.sort_by(|one, other| one.row.name.cmp(&other.row.name));
        let mut webhooks = Vec::new();
        for hook in &hooks {
            webhooks.push(self.hook_view(&hook.row).await?);
        }
        Ok(WebhookList { webhooks })
    }

    /// One webhook, by id or name.
    pub async fn webhook(&self, which: &str) -> Result<WebhookView, Problem> {
        let hook = self.find_hook(which).await?;
        Ok(self.hook_view(&hook.row).await?)
    }

    pub(super) async fn find_hook(&self, which: &str) -> Outcome<Stored<WebhookRow>> {
        let by_id = match which.parse::<WebhookId>() {
            Ok(id) => self.row::<WebhookRow>(id).await?,
            Err(_) => None,
        };
        let found = match by_id {
            Some(hook) => Some(hook),
            None => {
                let named = Query::<WebhookRow>::first(1).name(&[which.into()]);
                self.store().list(named).await?.rows.pop()
            }
        };
        let shown: String = which.chars().take(80).collect();
        found.ok_or_else(|| {
            let detail =
                format!("there is no webhook `{shown}`; the list of webhooks shows their names");
            Refused::new(Code::NotFound, detail)
        })
    }

    pub(super) async fn hook_view(&self, hook: &WebhookRow) -> Outcome<WebhookView> {
        let of = |state| Query::<LetterRow>::first(MAX_BATCH).webhook(&[hook.id]).state(&[state]);
        let waiting = self.all(of(LetterState::Waiting)).await?;
        let dead = self.all(of(LetterState::Dead)).await?;
        let latest = self.store().latest().await?.number;
        let longest = waiting.iter().min_by_key(|letter| letter.row.number);
        let failure = longest.or(dead.first()).and_then(|letter| letter.row.failure.as_ref());
        Ok(WebhookView {
            id: hook.id,
            name: hook.name.to_string(),
            target: origin_of(&hook.url.0),
            shape: shown(hook.shape),
            kinds: hook.kinds.0.clone(),
            signed: hook.secret.is_some(),
            origin: match hook.origin {
                HookOrigin::File => "file".to_owned(),
                HookOrigin::Api => "api".to_owned(),
            },
            waiting: waiting.len() as u64,
            dead: dead.len() as u64,
            behind: latest.saturating_sub(hook.seen),
            failure: failure.map(|text| text.to_string()),
            created_at: hook.created_at,
            paused_at: hook.paused_at,
        })
    }

    /// Makes a webhook, which is told what happens from now on. Whoever asks again with the same
    /// key is told of it without its secret.
    pub async fn make_webhook(
        &self,
        ask: impl Into<Ask>,
        new: NewWebhook,
    ) -> Result<MadeWebhook, Problem> {
        let body = serde_json::to_string(&new).unwrap_or_default();
        let asked = self.asked(ask.into(), &format!("webhook {body}"));
        Ok(self.make_hook(&asked, new).await?)
    }

    async fn make_hook(&self, asked: &Asked, new: NewWebhook) -> Outcome<MadeWebhook> {
        if let Some(before) = self.hook_before(asked).await? {
            return Ok(MadeWebhook { webhook: before, secret: None });
        }
        let drawn = match (&new.secret, new.shape) {
            (None, HookShape::Belay) => Some(self.draw_secret()),
            (Some(_), _) | (None, _) => None,
        };
        let settings = HookSettings {
            name: new.name,
            url: Secret(new.url),
            shape: new.shape,
            kinds: new.kinds,
            secret: new.secret.or_else(|| drawn.clone()).map(Secret),
        };
        let kinds = self.check_hook(&settings)?;
        if self.all(Query::<WebhookRow>::first(MAX_BATCH)).await?.len() >= MOST {
            let detail = format!("there are {MOST} webhooks already; remove one first");
            return Err(Refused::new(Code::Refused, detail));
        }
        let row = self.new_hook(&settings, kinds, HookOrigin::Api).await?;
        let request = asked.request_answered(&json!({ "webhook": row.id }), row.created_at);
        match self.store().commit(Commit::new().insert(&row).request(request)).await? {
            Committed::Done | Committed::Replayed(_) => {}
            Committed::Overtaken(_) => return Err(Refused::busy()),
            Committed::Refused(belay_store::Refusal::Rule { .. }) => {
                let detail = format!("a webhook named `{}` is there already", &*row.name);
                return Err(Refused::new(Code::Refused, detail));
            }
            Committed::Refused(refusal) => return Err(Failure::Refused(refusal).into()),
        }
        self.inner.letters.notify_one();
        Ok(MadeWebhook { webhook: self.hook_view(&row).await?, secret: drawn })
    }

    /// The webhook that an earlier request with the same key was about.
    pub(super) async fn hook_before(&self, asked: &Asked) -> Outcome<Option<WebhookView>> {
        let Some(answer) = self.replayed_answer(asked).await? else { return Ok(None) };
        let id = answer["webhook"].as_str().unwrap_or_default();
        let hook = self.find_hook(id).await?;
        Ok(Some(self.hook_view(&hook.row).await?))
    }

    fn draw_secret(&self) -> String {
        let (one, other) = (self.inner.chance.draw(), self.inner.chance.draw());
        format!("{}{one:032x}{other:032x}", belay_api::WEBHOOK_SECRET)
    }

    async fn new_hook(
        &self,
        settings: &HookSettings,
        kinds: List,
        origin: HookOrigin,
    ) -> Outcome<WebhookRow> {
        Ok(WebhookRow {
            id: WebhookId::from_bits(self.inner.chance.draw()),
            name: settings.name.as_str().into(),
            url: settings.url.clone(),
            shape: stored(settings.shape),
            kinds,
            secret: settings.secret.clone(),
            origin,
            seen: self.store().latest().await?.number,
            owner: None::<NodeId>,
            created_at: self.now().await?,
            paused_at: None,
        })
    }

    /// Whether a webhook can be used; its kinds, as they are stored.
    pub(super) fn check_hook(&self, hook: &HookSettings) -> Outcome<List> {
        let bad = |detail: String| Err(Refused::new(Code::BadRequest, detail));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = &hook.name;
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return bad("a webhook's name is 1 to 64 letters, digits, `-`, `_`, `.`".to_owned());
        }
        if name.parse::<WebhookId>().is_ok() {
            return bad("a webhook's name must not look like an id".to_owned());
        }
        if hook.url.0.len() > 2_048 {
            return bad("the address is longer than 2048 bytes".to_owned());
        }
        if let Some(courier) = &self.inner.courier {
            let checked = courier.check(&hook.url.0);
            checked.map_err(|why| Refused::new(Code::BadRequest, why))?;
        }
        let weak = |secret: &Secret| secret.0.len() < SHORTEST || secret.0.len() > 512;
        if hook.secret.as_ref().is_some_and(weak) {
            return bad(format!("a secret has {SHORTEST} to 512 characters"));
        }
        if hook.secret.is_none() && hook.shape == HookShape::Belay {
            return bad(format!("webhook `{name}` has no secret to sign with"));
        }
        let mut kinds: Vec<String> = Vec::new();
        for kind in &hook.kinds {
            match kind.parse::<Pattern>() {
                Ok(pattern) => kinds.push(pattern.to_string()),
                Err(error) => return bad(error.to_string()),
            }
        }
        if kinds.len() > 100 {
            return bad("a webhook names at most 100 kinds of events".to_owned());
        }
        if kinds.is_empty() {
            kinds = usual().iter().map(Pattern::to_string).collect();
        }
        Ok(List(kinds))
    }

    /// Removes a webhook and its letters.
    pub async fn remove_webhook(&self, ask: impl Into<Ask>, which: &str) -> Result<(), Problem> {
        let asked = self.asked(ask.into(), &format!("remove webhook {which}"));
        Ok(self.remove_hook(&asked, which).await?)
    }

    async fn remove_hook(&self, asked: &Asked, which: &str) -> Outcome<()> {
        if self.replayed_answer(asked).await?.is_some() {
            return Ok(());
        }
        for _ in 0..TRIES {
            let hook = self.find_hook(which).await?;
            if hook.row.origin == HookOrigin::File {
                let detail = "this webhook is in belay.toml; remove it there";
                return Err(Refused::new(Code::Refused, detail));
            }
            let now = self.now().await?;
            let request = asked.request_answered(&json!({ "webhook": hook.row.id }), now);
            let commit = Commit::new().delete(&hook).request(request);
            if self.store().commit(commit).await?.is_done() {
                self.inner.letters.notify_one();
                return Ok(());
            }
        }
        Err(Refused::busy())
    }

    /// Sends an event to one webhook alone, to try it out.
    pub async fn test_webhook(
        &self,
        ask: impl Into<Ask>,
        which: &str,
    ) -> Result<WebhookView, Problem> {
        let asked = self.asked(ask.into(), &format!("test webhook {which}"));
        Ok(self.test_hook(&asked, which).await?)
    }

    async fn test_hook(&self, asked: &Asked, which: &str) -> Outcome<WebhookView> {
        if let Some(before) = self.hook_before(asked).await? {
            return Ok(before);
        }
        let hook = self.find_hook(which).await?;
        let now = self.now().await?;
        let body = json!({ "webhook": hook.row.id, "text": "This is a test." }).to_string();
        let event = NewEvent::general(TRIED, body, now);
        let request = asked.request_answered(&json!({ "webhook": hook.row.id }), now);
        self.store().commit(Commit::new().event(event).request(request)).await?;
        self.inner.letters.notify_one();
        self.hook_view(&hook.row).await
    }

    /// What a webhook was not told yet, and what it never will be.
    pub async fn letters(&self, which: &str, asked: ListLetters) -> Result<LetterPage, Problem> {
        Ok(self.list_letters(which, asked).await?)
    }

    async fn list_letters(&self, which: &str, asked: ListLetters) -> Outcome<LetterPage> {
        let hook = self.find_hook(which).await?;
        let limit = asked.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let mut query = Query::<LetterRow>::first(limit).webhook(&[hook.row.id]);
        query = match asked.state.as_deref() {
            None => query,
            Some("waiting") => query.state(&[LetterState::Waiting]),
            Some("dead") => query.state(&[LetterState::Dead]),
            Some(_) => {
                return Err(Refused::new(Code::BadRequest, "a letter is `waiting` or `dead`"));
            }
        };
        if let Some(after) = asked.after {
            query = query.after(Some(after.parse::<After>().map_err(Failure::Refused)?));
        }
        let page = self.store().list(query).await?;
        let letters = page.rows.iter().map(|letter| letter_view(&letter.row)).collect();
        Ok(LetterPage { letters, after: page.after.map(|after| after.to_string()) })
    }

    /// Lets dead letters of a webhook wait again: all, or the one with this number.
    pub async fn replay(
        &self,
        ask: impl Into<Ask>,
        which: &str,
        number: Option<u64>,
    ) -> Result<Replayed, Problem> {
        let asked = self.asked(ask.into(), &format!("replay {which} {number:?}"));
        Ok(self.replay_letters(&asked, which, number).await?)
    }

    async fn replay_letters(
        &self,
        asked: &Asked,
        which: &str,
        number: Option<u64>,
    ) -> Outcome<Replayed> {
        if let Some(before) = self.replayed_answer(asked).await? {
            let replayed = before["replayed"].as_u64().unwrap_or_default();
            return Ok(Replayed { replayed });
        }
        let hook = self.find_hook(which).await?;
        let dead = Query::<LetterRow>::first(MAX_BATCH).webhook(&[hook.row.id]);
        let dead = self.all(dead.state(&[LetterState::Dead])).await?;
        let meant = |letter: &&Stored<LetterRow>| number.is_none_or(|n| n == letter.row.number);
        let meant: Vec<_> = dead.iter().filter(meant).collect();
        if let (Some(number), true) = (number, meant.is_empty()) {
            let detail = format!("there is no dead letter {number} of this webhook");
            return Err(Refused::new(Code::NotFound, detail));
        }
        let now = self.now().await?;
        let commits = meant.iter().map(|letter| {
            let row = LetterRow {
                state: LetterState::Waiting,
                tries: 0,
                since: now,
                send_at: now,
                ..letter.row.clone()
            };
            Commit::new().update(letter.revision, &row)
        });
        let mut replayed = 0;
        for batch in commits.collect::<Vec<_>>().chunks(500) {
            let committed = self.store().commit_all(batch.to_vec()).await?;
            replayed += committed.iter().filter(|one| one.is_done()).count() as u64;
        }
        let request = asked.request_answered(&json!({ "replayed": replayed }), now);
        // Whoever falls before this is recorded replays what is dead by then, which is less.
        self.store().commit(Commit::new().request(request)).await?;
        self.inner.letters.notify_one();
        Ok(Replayed { replayed })
    }

    /// Makes the webhooks of the settings, and removes those that are not there any more.
    pub(crate) async fn settle_hooks(&self) -> Outcome<()> {
        if self.inner.courier.is_none() {
            return Ok(());
        }
        let wanted = &self.settings().webhooks;
        for hook in self.all(Query::<WebhookRow>::first(MAX_BATCH)).await? {
            let gone = wanted.iter().all(|wanted| wanted.name != *hook.row.name);
            if hook.row.origin == HookOrigin::File && gone {
                self.store().commit(Commit::new().delete(&hook)).await?;
            }
        }
        for settings in wanted {
            if let Err(refused) = self.settle_hook(settings).await {
                let name = settings.name.as_str();
                tracing::error!(name, ?refused, "a webhook of the settings cannot be used");
            }
        }
        Ok(())
    }

    async fn settle_hook(&self, settings: &HookSettings) -> Outcome<()> {
        let kinds = self.check_hook(settings)?;
        let fresh = self.new_hook(settings, kinds, HookOrigin::File).await?;
        let named = Query::<WebhookRow>::first(1).name(std::slice::from_ref(&fresh.name));
        let Some(before) = self.store().list(named).await?.rows.pop() else {
            self.store().commit(Commit::new().insert(&fresh)).await?;
            return Ok(());
        };
        if before.row.origin == HookOrigin::Api {
            let detail = "a webhook that was made by the API has this name";
            return Err(Refused::new(Code::Refused, detail));
        }
        let row = WebhookRow {
            url: fresh.url,
            shape: fresh.shape,
            kinds: fresh.kinds,
            secret: fresh.secret,
            ..before.row.clone()
        };
        if row != before.row {
            self.store().commit(Commit::new().update(before.revision, &row)).await?;
        }
        Ok(())
    }
}

/// Where a URL points, without path, query and user, in which services keep secrets.
fn origin_of(url: &str) -> String {
    match url.parse::<reqwest::Url>() {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => "…".to_owned(),
    }
}

pub(super) const fn shown(shape: Shape) -> HookShape {
    match shape {
        Shape::Belay => HookShape::Belay,
        Shape::Slack => HookShape::Slack,
        Shape::Ntfy => HookShape::Ntfy,
    }
}

pub(super) const fn stored(shape: HookShape) -> Shape {
    match shape {
        HookShape::Belay => Shape::Belay,
        HookShape::Slack => Shape::Slack,
        HookShape::Ntfy => Shape::Ntfy,
    }
}

fn letter_view(row: &LetterRow) -> LetterView {
    let waits = row.state == LetterState::Waiting;
    LetterView {
        number: row.number,
        delivery: row.delivery.to_string(),
        task: row.task,
        kind: row.kind.to_string(),
        state: if waits { "waiting" } else { "dead" }.to_owned(),
        tries: row.tries,
        made_at: row.made_at,
        send_at: waits.then_some(row.send_at),
        failure: row.failure.as_ref().map(|text| text.to_string()),
        failed_at: row.failed_at,
    }
}
