//! What this process counts of itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::exposition::{Exposition, Histogram};

/// What this process counts of itself.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    commits: Histogram,
    overtaken: AtomicU64,
    sweeps: Histogram,
    swept: AtomicU64,
    verdicts: Mutex<BTreeMap<&'static str, u64>>,
    deliveries: Histogram,
    delivered: AtomicU64,
    undelivered: AtomicU64,
}

impl Gauges {
    /// A decision was committed, or overtaken.
    pub(crate) fn committed(&self, took: Duration, overtaken: bool) {
        self.commits.add(took);
        self.overtaken.fetch_add(u64::from(overtaken), Ordering::Relaxed);
    }

    /// A sweep looked at so many rows.
    pub(crate) fn swept(&self, rows: usize, took: Duration) {
        self.sweeps.add(took);
        self.swept.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Evidence was judged.
    pub(crate) fn judged(&self, ruling: &'static str) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        *verdicts.entry(ruling).or_default() += 1;
    }

    /// A letter was delivered, or not.
    pub(crate) fn delivered(&self, well: bool, took: Duration) {
        self.deliveries.add(took);
        let counter = if well { &self.delivered } else { &self.undelivered };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes all of it down.
    pub(super) fn tell(&self, page: &mut Exposition) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.family("belay_commit_seconds", "histogram", "Commits of decisions by this node.");
        page.histogram("belay_commit_seconds", &[], &self.commits);
        page.counter(
            "belay_commits_overtaken_total",
            "Decisions of this node that were made again because a row had moved on.",
            of(&self.overtaken),
        );
        page.family("belay_sweep_seconds", "histogram", "Sweeps of this node for what is due.");
        page.histogram("belay_sweep_seconds", &[], &self.sweeps);
        page.counter("belay_swept_total", "Rows that were due and judged here.", of(&self.swept));
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        page.counters(
            "belay_verdicts_total",
            "Verdicts of this node on agents, by ruling.",
            "ruling",
            verdicts.iter().map(|(ruling, count)| (*ruling, *count)),
        );
        page.counters(
            "belay_webhook_deliveries_total",
            "Tries to deliver letters by this node.",
            "result",
            [("delivered", of(&self.delivered)), ("failed", of(&self.undelivered))],
        );
        page.family("belay_webhook_delivery_seconds", "histogram", "Tries to deliver letters.");
        page.histogram("belay_webhook_delivery_seconds", &[], &self.deliveries);
    }
}
