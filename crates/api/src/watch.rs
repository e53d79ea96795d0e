//! Webhooks, their letters, and alerts, as they are asked for and shown.

use belay_kernel::alert::Kind;
use belay_kernel::{TaskId, Timestamp, WebhookId};
use serde::{Deserialize, Serialize};
use utoipa::openapi::ObjectBuilder;
use utoipa::openapi::schema::{Array, ArrayBuilder, Type};
use utoipa::{IntoParams, ToSchema};

/// Kinds of events: a name, or how names begin.
fn kinds() -> Array {
    let kind = ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(100))
        .pattern(Some(r"^([a-z0-9._]+|([a-z0-9._]+\.)?\*)$"));
    ArrayBuilder::new().items(kind).max_items(Some(100)).build()
}

/// How a webhook's bodies look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookShape {
    /// The event, as the API tells it.
    #[default]
    Belay,
    /// A message, as Slack takes it.
    Slack,
    /// A notification, as ntfy takes it.
    Ntfy,
}

/// A webhook to be made.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewWebhook {
    /// What it is called; no two have the same name.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub name: String,
    /// Where it is: `http://` or `https://`.
    #[schema(
        max_length = 2048,
        pattern = "^https?://[A-Za-z0-9]",
        example = "https://example.org/"
    )]
    pub url: String,
    /// How its bodies look.
    pub shape: HookShape,
    /// The kinds of events that it is told, such as `task.ready` or `task.*`; states of tasks and
    /// alerts, if none are said.
    #[schema(schema_with = kinds)]
    pub kinds: Vec<String>,
    /// What its deliveries are signed with; drawn, if it is not said.
    #[schema(min_length = 16, max_length = 512)]
    pub secret: Option<String>,
}

/// Without what must not be printed.
impl std::fmt::Debug for NewWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, shape, kinds, .. } = self;
        let mut shown = f.debug_struct("NewWebhook");
        shown.field("name", name).field("shape", shape).field("kinds", kinds);
        shown.finish_non_exhaustive()
    }
}

/// What is changed of a webhook. What is not said stays.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EditWebhook {
    /// Where it is: `http://` or `https://`.
    pub url: Option<String>,
    /// How its bodies look.
    pub shape: Option<HookShape>,
    /// The kinds of events that it is told from now on; states of tasks and alerts, if the list is
    /// empty.
    #[schema(schema_with = kinds)]
    pub kinds: Option<Vec<String>>,
    /// What its deliveries are signed with.
    pub secret: Option<String>,
    /// Whether it is told nothing for now. What happens meanwhile it is told when it goes on.
    pub paused: Option<bool>,
}

/// Without what must not be printed.
impl std::fmt::Debug for EditWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, kinds, paused, .. } = self;
        let mut shown = f.debug_struct("EditWebhook");
        shown.field("shape", shape).field("kinds", kinds).field("paused", paused);
        shown.finish_non_exhaustive()
    }
}

/// A webhook. Neither its secret nor the path of its address is ever shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    /// Its id.
    pub id: WebhookId,
    /// What it is called.
    pub name: String,
    /// Where it is, without path and query, in which services keep secrets.
    pub target: String,
    /// How its bodies look.
    pub shape: HookShape,
    /// The kinds of events that it is told.
    pub kinds: Vec<String>,
    /// Whether its deliveries are signed.
    pub signed: bool,
    /// Who said that there is one: `file` or `api`.
    pub origin: String,
    /// How many letters wait to be delivered.
    pub waiting: u64,
    /// How many letters were given up.
    pub dead: u64,
    /// How many events it has not looked at yet.
    pub behind: u64,
    /// Why the letter that waits longest was not delivered the last time.
    pub failure: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it is told nothing, if it is paused.
    pub paused_at: Option<Timestamp>,
}

/// Every webhook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// They, by name.
    pub webhooks: Vec<WebhookView>,
}

/// A webhook that was made, with its secret: it is told this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeWebhook {
    /// It.
    #[serde(flatten)]
    pub webhook: WebhookView,
    /// What its deliveries are signed with, if Belay drew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Without what must not be printed.
impl std::fmt::Debug for MadeWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MadeWebhook").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

/// Which letters of a webhook are listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct ListLetters {
    /// `waiting` or `dead`; both, if it is not said.
    pub state: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub after: Option<String>,
}

/// Something that a webhook was not told yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LetterView {
    /// The number of its event: what it is called within its webhook.
    pub number: u64,
    /// What the delivery is called, the same whenever it is repeated.
    pub delivery: String,
    /// The task that it tells of.
    pub task: Option<TaskId>,
    /// The event's kind.
    pub kind: String,
    /// `waiting` or `dead`.
    pub state: String,
    /// How often it was sent.
    pub tries: u32,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it is sent next, if it waits.
    pub send_at: Option<Timestamp>,
    /// Why it was not delivered the last time.
    pub failure: Option<String>,
    /// When that was.
    pub failed_at: Option<Timestamp>,
}

/// A page of letters, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<LetterView>,
    /// Where to go on, if there may be more.
    pub after: Option<String>,
}

/// How many letters wait again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// So many.
    pub replayed: u64,
}

/// An alert.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertView {
    /// What it is about.
    pub kind: Kind,
    /// Which task, sandbox, runner or role; nothing, where there is only one.
    pub subject: String,
    /// `pending`, `firing` or `cleared`.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when, if it is over.
    pub until: Option<Timestamp>,
    /// What is wrong, with measured and allowed value.
    pub sentence: String,
}

/// Every alert that fires, may fire soon, or has fired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertList {
    /// They: firing ones first.
    pub alerts: Vec<AlertView>,
}
