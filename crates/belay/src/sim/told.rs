//! What is told of worlds: how many there were, how fast, what went wrong in them on purpose, what
//! was found, and what was never exercised.

use std::collections::BTreeMap;

use belay_sim::{Report, Unseen};
use serde::Serialize;

use super::Tally;

/// How many lines of a failing world's trace are shown.
const TAIL: usize = 30;

/// The whole, as `--json` tells it.
#[derive(Serialize)]
pub(super) struct Told {
    from: u64,
    worlds: u64,
    steps: u64,
    simulated_hours: f64,
    seconds: f64,
    /// What went wrong on purpose and what people did, and how often.
    counts: BTreeMap<String, u64>,
    /// How many moves and effects the kernel knows.
    moves: usize,
    /// Those that no world exercised.
    unseen: Vec<String>,
    /// Moves that the kernel does not know.
    unknown: Vec<String>,
    pub(super) failed: Vec<Failed>,
}

/// A world in which something is wrong.
#[derive(Serialize)]
pub(super) struct Failed {
    seed: u64,
    invariant: u8,
    what: String,
    step: u64,
    /// What shows it again.
    replay: String,
    /// What shows the least of it.
    shrunk: Option<String>,
    /// The end of the trace of the least of it.
    trace: Vec<String>,
}

impl Failed {
    pub(super) fn new(report: &Report, shrunk: Option<&Report>) -> Self {
        let least = shrunk.unwrap_or(report);
        let tail = least.trace.len().saturating_sub(TAIL);
        let found = least.found.as_ref().or(report.found.as_ref());
        Self {
            seed: report.options.seed,
            invariant: found.map_or(0, |found| found.invariant),
            what: found.map(|found| found.what.clone()).unwrap_or_default(),
            step: least.steps,
            replay: report.replay(),
            shrunk: shrunk.map(Report::replay),
            trace: least.trace[tail..].to_vec(),
        }
    }

    fn lines(&self, trace: bool) -> Vec<String> {
        let head = format!(
            "world {}: invariant {}: {} (step {})",
            self.seed, self.invariant, self.what, self.step
        );
        let mut lines = vec![head];
        if !trace {
            lines.extend(self.trace.iter().map(|line| format!("  {line}")));
        }
        lines.push(format!("  again: {}", self.replay));
        lines.extend(self.shrunk.iter().map(|replay| format!("  least: {replay}")));
        lines
    }
}

/// How fast it goes.
pub(super) fn pace(tally: &Tally, seconds: f64) -> String {
    let hours = tally.simulated_ms as f64 / 3_600_000.0;
    let seconds = seconds.max(0.001);
    let failed = match tally.failed.len() {
        0 => String::new(),
        count => format!("{count} FAILED · "),
    };
    format!(
        "{failed}{:.0} steps/s · {:.2} simulated hours/s",
        tally.steps as f64 / seconds,
        hours / seconds
    )
}

impl Told {
    pub(super) fn new(from: u64, tally: &Tally, failed: Vec<Failed>, seconds: f64) -> Self {
        let unseen: Unseen = tally.coverage.unseen();
        let unknown = unseen.unknown.iter().map(|(from, to)| format!("{from} → {to}"));
        Self {
            from,
            worlds: tally.worlds,
            steps: tally.steps,
            simulated_hours: tally.simulated_ms as f64 / 3_600_000.0,
            seconds,
            counts: tally.coverage.counts.clone(),
            moves: unseen.of,
            unseen: unseen.lines(),
            unknown: unknown.collect(),
            failed,
        }
    }

    /// For people.
    pub(super) fn lines(&self, trace: bool) -> Vec<String> {
        let mut lines: Vec<String> =
            self.failed.iter().flat_map(|failed| failed.lines(trace)).collect();
        let seconds = self.seconds.max(0.001);
        lines.push(match self.failed.len() {
            0 => format!("{} worlds from seed {} on, and all hold", self.worlds, self.from),
            count => format!("{} worlds from seed {}, {count} failed", self.worlds, self.from),
        });
        lines.push(format!(
            "pace      {:.1} simulated hours in {seconds:.1} s: {:.0} × real time, {:.0} worlds a \
             minute, {:.0} steps a second",
            self.simulated_hours,
            self.simulated_hours * 3_600.0 / seconds,
            self.worlds as f64 * 60.0 / seconds,
            self.steps as f64 / seconds,
        ));
        let is_person = |name: &str| name.starts_with("person ");
        lines.push(format!("faults    {}", self.counted(|name| !is_person(name))));
        lines.push(format!("people    {}", self.counted(is_person).replace("person ", "")));
        let seen = self.moves - self.unseen.len();
        lines.push(format!("coverage  {seen} of {} moves and effects", self.moves));
        lines.extend(self.unseen.iter().map(|one| format!("  not seen: {one}")));
        lines.extend(self.unknown.iter().map(|one| format!("  not known to the kernel: {one}")));
        lines
    }

    fn counted(&self, wanted: impl Fn(&str) -> bool) -> String {
        let counts = self.counts.iter().filter(|(name, _)| wanted(name));
        let counts: Vec<_> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(" · ") }
    }
}
