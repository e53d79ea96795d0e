//! The store's clock, watched with this process's own.
//!
//! Leases and deadlines are rows, so the store's clock is the authority, and somebody may set it. A
//! clock that went further ahead than time did would end every lease while its agent lives, and
//! make every agent silent that has just spoken. So each reading is compared with how long it
//! really was since the last one. After a jump nothing is judged by time that did not pass: a lease
//! is over only after this node has seen its whole length go by.
//!
//! Which readings are doubted for how long is the kernel's to say. Whoever saw more judges earlier.
//!
//! A clock that is set back stands still until it is where it was; the store sees to that.

use std::sync::{Mutex, PoisonError};

use belay_kernel::{Span, Timestamp, Watched};
use belay_store::{Failure, Store};
use tokio::time::Instant;

use crate::Control;

/// The last reading, and the last jump.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// When it was asked, by our own clock, and what it showed.
    last: Option<(Instant, Timestamp)>,
    /// What it showed when it had jumped.
    jumped_at: Option<Timestamp>,
}

impl Watch {
    /// A watch whose first reading this is.
    pub(crate) fn begun(asked: Instant, shown: Timestamp) -> Self {
        Self(Mutex::new(Seen { last: Some((asked, shown)), jumped_at: None }))
    }

    /// Takes a reading that was asked for at `asked`; tells whether the clock has jumped ahead.
    fn take(&self, asked: Instant, shown: Timestamp, tolerated: Span) -> bool {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, then)) = watched.last {
            if shown < then {
                return false; // asked before the other, and answered after it
            }
            let passed = u64::try_from(before.elapsed().as_millis()).unwrap_or(u64::MAX);
            let most = then.after(Span::from_millis(passed)).after(tolerated);
            watched.last = Some((asked, shown));
            if shown > most {
                watched.jumped_at = Some(shown);
                return true;
            }
        }
        watched.last = Some((asked, shown));
        false
    }

    fn jumped_at(&self) -> Option<Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).jumped_at
    }
}

impl<S: Store> Control<S> {
    /// What the store's clock shows. Whatever judges by the time asks here.
    pub(crate) async fn now(&self) -> Result<Timestamp, Failure> {
        let asked = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "here it is watched")]
        let shown = self.store().now().await?;
        if self.inner.watch.take(asked, shown, self.settings().limits.drift) {
            tracing::warn!(?shown, "the store's clock was set ahead");
            self.nobody_heard(shown);
        }
        Ok(shown)
    }

    /// How far this node can trust what the store's clock shows.
    pub(crate) fn watched(&self, now: Timestamp) -> Watched {
        Watched { since: self.up_since(now), jumped_at: self.inner.watch.jumped_at() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_faster_than_time_has_jumped() {
        let (watch, drift) = (Watch::default(), Span::from_secs(1));
        let shown = |seconds: i64| Timestamp::from_millis(1_000 * seconds);
        assert!(!watch.take(Instant::now(), shown(100), drift), "the first one is believed");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!watch.take(Instant::now(), shown(111), drift), "a second is tolerated");
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!watch.take(asked, shown(111), drift), "what is answered late is as it was");
        assert!(!watch.take(Instant::now(), shown(117), drift), "five seconds passed since");
        assert!(watch.take(Instant::now(), shown(200), drift));
        assert_eq!(watch.jumped_at(), Some(shown(200)));
        assert!(!watch.take(Instant::now(), shown(150), drift), "one that was asked before");
        assert!(!watch.take(Instant::now(), shown(200), drift), "it is told once");
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!watch.take(Instant::now(), shown(203), drift), "and goes on from there");
    }
}
