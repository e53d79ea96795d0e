//! What the server asks of control to be watched by: webhooks, alerts, figures.

use std::future::Future;

use belay_api::{
    AlertList, Ask, Code, EditWebhook, LetterPage, ListLetters, MadeWebhook, NewWebhook, Problem,
    Replayed, WebhookList, WebhookView,
};
use belay_control::Control;
use belay_control::metrics::Exposition;
use belay_control::trace::Tracer;
use belay_store::Store;

type Later<T> = Result<T, Problem>;

/// What a service without it answers.
fn not_here<T>() -> impl Future<Output = Later<T>> + Send
where
    T: Send,
{
    std::future::ready(Err(Problem::new(Code::NotFound, "this is not watched here")))
}

/// What can be watched. A service that keeps none of it answers that it is not there.
pub trait Watched: Clone + Send + Sync + 'static {
    /// Every webhook.
    fn webhooks(&self) -> impl Future<Output = Later<WebhookList>> + Send {
        not_here()
    }

    /// One webhook, by id or name.
    fn webhook(&self, _which: &str) -> impl Future<Output = Later<WebhookView>> + Send {
        not_here()
    }

    /// Makes a webhook.
    fn make_webhook(
        &self,
        _ask: Ask,
        _new: NewWebhook,
    ) -> impl Future<Output = Later<MadeWebhook>> + Send {
        not_here()
    }

    /// Changes a webhook.
    fn edit_webhook(
        &self,
        _ask: Ask,
        _which: &str,
        _edit: EditWebhook,
    ) -> impl Future<Output = Later<WebhookView>> + Send {
        not_here()
    }

    /// Removes a webhook.
    fn remove_webhook(&self, _ask: Ask, _which: &str) -> impl Future<Output = Later<()>> + Send {
        not_here()
    }

    /// Tries a webhook out.
    fn test_webhook(
        &self,
        _ask: Ask,
        _which: &str,
    ) -> impl Future<Output = Later<WebhookView>> + Send {
        not_here()
    }

    /// What a webhook was not told.
    fn letters(
        &self,
        _which: &str,
        _asked: ListLetters,
    ) -> impl Future<Output = Later<LetterPage>> + Send {
        not_here()
    }

    /// Lets dead letters wait again: all, or one.
    fn replay(
        &self,
        _ask: Ask,
        _which: &str,
        _number: Option<u64>,
    ) -> impl Future<Output = Later<Replayed>> + Send {
        not_here()
    }

    /// Every alert.
    fn alerts(&self) -> impl Future<Output = Later<AlertList>> + Send {
        not_here()
    }

    /// Who traces requests, if anybody does.
    fn tracer(&self) -> Option<Tracer> {
        None
    }

    /// The figures.
    fn metrics(&self) -> impl Future<Output = Later<Exposition>> + Send {
        not_here()
    }
}

impl<S: Store> Watched for Control<S> {
    async fn webhooks(&self) -> Later<WebhookList> {
        Self::webhooks(self).await
    }

    async fn webhook(&self, which: &str) -> Later<WebhookView> {
        Self::webhook(self, which).await
    }

    async fn make_webhook(&self, ask: Ask, new: NewWebhook) -> Later<MadeWebhook> {
        Self::make_webhook(self, ask, new).await
    }

    async fn edit_webhook(&self, ask: Ask, which: &str, edit: EditWebhook) -> Later<WebhookView> {
        Self::edit_webhook(self, ask, which, edit).await
    }

    async fn remove_webhook(&self, ask: Ask, which: &str) -> Later<()> {
        Self::remove_webhook(self, ask, which).await
    }

    async fn test_webhook(&self, ask: Ask, which: &str) -> Later<WebhookView> {
        Self::test_webhook(self, ask, which).await
    }

    async fn letters(&self, which: &str, asked: ListLetters) -> Later<LetterPage> {
        Self::letters(self, which, asked).await
    }

    async fn replay(&self, ask: Ask, which: &str, number: Option<u64>) -> Later<Replayed> {
        Self::replay(self, ask, which, number).await
    }

    async fn alerts(&self) -> Later<AlertList> {
        Self::alerts(self).await
    }

    async fn metrics(&self) -> Later<Exposition> {
        Self::metrics(self).await
    }

    fn tracer(&self) -> Option<Tracer> {
        Self::tracer(self)
    }
}
