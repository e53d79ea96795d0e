//! The page of figures.

use belay_api::Problem;
use belay_kernel::Cause;
use belay_kernel::alert::Kind;
use belay_kernel::meter::{Lengths, Split, Totals};
use belay_store::rows::{AlertRow, LetterRow, SandboxRow, SessionRow, TaskRow};
use belay_store::{LeaseKind, MAX_BATCH, Query, Store};

use super::exposition::Exposition;
use crate::Control;
use crate::refuse::Outcome;

impl<S: Store> Control<S> {
    /// The figures, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<Exposition, Problem> {
        Ok(self.figures().await?)
    }

    async fn figures(&self) -> Outcome<Exposition> {
        let mut page = Exposition::new();
        let settings = self.settings();
        page.family("belay_build_info", "gauge", "Which program this is.");
        let labels = [("version", settings.version.as_str()), ("store", settings.store.as_str())];
        page.value("belay_build_info", &labels, 1);
        page.family("belay_node_started_seconds", "gauge", "When this node was opened.");
        page.value("belay_node_started_seconds", &[], self.started_at().as_millis() / 1_000);
        totals(&mut page, &self.count().await?);
        self.stored_figures(&mut page).await?;
        self.alert_figures(&mut page).await?;
        self.inner.gauges.tell(&mut page);
        Ok(page)
    }

    async fn stored_figures(&self, page: &mut Exposition) -> Outcome<()> {
        let store = self.store();
        let tasks = store.tally::<TaskRow>("state").await?;
        tally(page, "belay_tasks", "Tasks, by state.", &tasks);
        let sessions = store.tally::<SessionRow>("state").await?;
        tally(page, "belay_sessions", "Sessions, by state.", &sessions);
        let sandboxes = store.tally::<SandboxRow>("state").await?;
        tally(page, "belay_sandboxes", "Sandboxes, by state.", &sandboxes);
        let letters = store.tally::<LetterRow>("state").await?;
        // Told at zero too: that there are dead ones is an alert, which needs a figure that grows.
        let of =
            |state: &str| letters.iter().find(|(name, _)| name == state).map_or(0, |(_, n)| *n);
        let letters = ["waiting", "dead"].map(|state| (state.to_owned(), of(state)));
        tally(page, "belay_webhook_letters", "Letters of webhooks, by state.", &letters);
        let overdue = self.overdue_stops().await?;
        page.gauge("belay_stops_overdue", "Stops whose proof is overdue.", overdue);
        page.counter(
            "belay_events_total",
            "Events that were ever told.",
            store.latest().await?.number,
        );
        let now = store.now().await?;
        page.family("belay_leases", "gauge", "Leases, by kind and whether they last.");
        let kinds = [LeaseKind::Attempt, LeaseKind::Worker, LeaseKind::Runner, LeaseKind::Node];
        for kind in kinds {
            let leases = store.leases(kind).await?;
            let live = leases.iter().filter(|lease| lease.until >= now).count();
            for (state, count) in [("live", live), ("over", leases.len() - live)] {
                page.value("belay_leases", &[("kind", kind.name()), ("state", state)], count);
            }
        }
        Ok(())
    }

    async fn alert_figures(&self, page: &mut Exposition) -> Outcome<()> {
        let firing = Query::<AlertRow>::first(MAX_BATCH).state(&["firing".into()]);
        let firing = self.all(firing).await?;
        page.family("belay_alerts", "gauge", "Alerts that fire, by kind.");
        for kind in Kind::ALL {
            let count = firing.iter().filter(|alert| alert.row.kind == *kind).count();
            page.value("belay_alerts", &[("kind", kind.code())], count);
        }
        Ok(())
    }
}

fn tally(page: &mut Exposition, name: &str, help: &str, counts: &[(String, u64)]) {
    page.family(name, "gauge", help);
    for (state, count) in counts {
        page.value(name, &[("state", state)], count);
    }
}

fn results(split: Split) -> [(&'static str, u64); 2] {
    [("proven", split.good), ("failed", split.bad)]
}

/// What was counted from events.
fn totals(page: &mut Exposition, totals: &Totals) {
    page.counter("belay_tasks_created_total", "Tasks that were made.", totals.created);
    for (name, help, label, counts) in [
        ("belay_task_moves_total", "Moves of tasks, by the new state.", "state", &totals.moves),
        (
            "belay_attempts_ended_total",
            "Ends of attempts, by outcome.",
            "outcome",
            &totals.outcomes,
        ),
    ] {
        let values = counts.iter().map(|(name, count)| (name.as_str(), *count));
        page.counters(name, help, label, values);
    }
    // Told at zero too: how often something rare happens is seen from its first time on.
    let causes = Cause::ALL.iter().map(|cause| {
        let code = cause.code();
        (code, totals.causes.get(code).copied().unwrap_or_default())
    });
    page.counters("belay_attempt_causes_total", "Ends of attempts, by cause.", "cause", causes);
    page.counters(
        "belay_timeouts_total",
        "Attempts that a limit ended, by clock.",
        "clock",
        [("inactivity", totals.inactivity), ("absolute", totals.absolute)],
    );
    let help = "Stops, by whether their proof was seen in time.";
    page.counters("belay_stops_total", help, "result", results(totals.stops));
    page.family("belay_stop_seconds", "histogram", "From the request of a stop to its proof.");
    let bounds = Lengths::BOUNDS.map(|ms| ms as f64 / 1_000.0);
    let latency = &totals.stop_latency;
    let sum = latency.sum_ms as f64 / 1_000.0;
    page.buckets("belay_stop_seconds", &[], &bounds, &latency.counts, sum);
    let help = "Clean-ups after a timeout: proven in time with a whole transcript, or not.";
    page.counters("belay_timeout_cleanups_total", help, "result", results(totals.cleanups));
    page.counters(
        "belay_health_probes_total",
        "Probes of sandboxes before they are resumed.",
        "result",
        [("healthy", totals.probes.good), ("failed", totals.probes.bad)],
    );
    page.counter("belay_runner_joins_total", "Joins of runners.", totals.joins);
}
