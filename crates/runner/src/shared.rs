//! What all parts of one runner share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belay_api::Chance;
use belay_kernel::Span;
use belay_sandbox::{Moment, Provider};

use crate::board::Board;
use crate::config::RunnerConfig;

/// The ports to the world, and the board.
pub(crate) struct Shared<C, P, W> {
    pub(crate) port: C,
    pub(crate) providers: BTreeMap<String, P>,
    pub(crate) workspace: W,
    pub(crate) chance: Arc<dyn Chance>,
    pub(crate) config: RunnerConfig,
    pub(crate) board: Arc<Board>,
}

/// Now, on the clock of each provider by name.
pub(crate) type Moments = BTreeMap<String, Moment>;

impl<C, P: Provider, W> Shared<C, P, W> {
    /// Now, on the clock of each provider.
    pub(crate) fn moments(&self) -> Moments {
        self.providers.iter().map(|(name, provider)| (name.clone(), provider.moment())).collect()
    }
}

/// A span as the standard library's duration.
pub(crate) const fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

/// Sleeps, on the clock that a simulation can replace.
pub(crate) async fn sleep(span: Span) {
    tokio::time::sleep(duration(span)).await;
}

/// A wait that doubles.
pub(crate) struct Backoff {
    next: Span,
    longest: Span,
}

impl Backoff {
    pub(crate) const fn new(first: Span, longest: Span) -> Self {
        Self { next: first, longest }
    }

    pub(crate) async fn wait(&mut self) {
        sleep(self.next).await;
        self.next = self.next.times(2).min(self.longest);
    }
}
