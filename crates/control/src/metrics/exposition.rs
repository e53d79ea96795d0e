//! Prometheus' text format, and histograms that are counted without a lock.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The bounds of every histogram of this process, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A page of figures.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// A label: its name and its value.
pub type Label<'a> = (&'a str, &'a str);

impl Exposition {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// The page as it is sent.
    pub fn text(self) -> String {
        self.0
    }

    /// Begins a family of figures: `counter`, `gauge` or `histogram`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One figure.
    pub fn value(&mut self, name: &str, labels: &[Label<'_>], value: impl std::fmt::Display) {
        self.0.push_str(name);
        if !labels.is_empty() {
            self.0.push('{');
            for (index, (label, value)) in labels.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(self.0, "{comma}{label}=\"{}\"", escaped(value));
            }
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A counter without labels, with its family.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.value(name, &[], value);
    }

    /// A gauge without labels, with its family.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.value(name, &[], value);
    }

    /// Counters that differ in one label, with their family.
    pub fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.family(name, "counter", help);
        for (of, value) in values {
            self.value(name, &[(label, of)], value);
        }
    }

    /// A histogram of this process; its family was begun.
    pub fn histogram(&mut self, name: &str, labels: &[Label<'_>], histogram: &Histogram) {
        let counts: Vec<_> =
            histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = Duration::from_micros(histogram.micros.load(Ordering::Relaxed));
        self.buckets(name, labels, &BOUNDS, &counts, sum.as_secs_f64());
    }

    /// A histogram with these bounds, in seconds; its family was begun. There is one count more
    /// than there are bounds.
    pub fn buckets(
        &mut self,
        name: &str,
        labels: &[Label<'_>],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let mut all = 0;
        let ends = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(counts) {
            all += count;
            let mut labels = labels.to_vec();
            labels.push(("le", &end));
            self.value(&format!("{name}_bucket"), &labels, all);
        }
        self.value(&format!("{name}_sum"), labels, sum);
        self.value(&format!("{name}_count"), labels, all);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_prometheus_reads_it() {
        let mut page = Exposition::new();
        page.counters("c_total", "Things.", "kind", [("a", 1), ("b\"\\\n", 2)]);
        page.gauge("g", "Now.", 7);
        page.family("h_seconds", "histogram", "Long.");
        page.buckets("h_seconds", &[("of", "x")], &[0.1, 1.0], &[2, 1, 1], 3.5);
        assert_eq!(
            page.text(),
            "# HELP c_total Things.\n# TYPE c_total counter\n\
             c_total{kind=\"a\"} 1\nc_total{kind=\"b\\\"\\\\\\n\"} 2\n\
             # HELP g Now.\n# TYPE g gauge\ng 7\n\
             # HELP h_seconds Long.\n# TYPE h_seconds histogram\n\
             h_seconds_bucket{of=\"x\",le=\"0.1\"} 2\n\
             h_seconds_bucket{of=\"x\",le=\"1\"} 3\n\
             h_seconds_bucket{of=\"x\",le=\"+Inf\"} 4\n\
             h_seconds_sum{of=\"x\"} 3.5\nh_seconds_count{of=\"x\"} 4\n"
        );
    }

    #[test]
    fn what_took_long_is_in_a_late_bucket() {
        let histogram = Histogram::default();
        for ms in [0, 1, 2, 40, 60_000] {
            histogram.add(Duration::from_millis(ms));
        }
        let mut page = Exposition::new();
        page.histogram("h", &[], &histogram);
        let text = page.text();
        for line in [
            "h_bucket{le=\"0.001\"} 2",
            "h_bucket{le=\"0.0025\"} 3",
            "h_bucket{le=\"0.05\"} 4",
            "h_bucket{le=\"30\"} 4",
            "h_bucket{le=\"+Inf\"} 5",
            "h_sum 60.043",
            "h_count 5",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
    }
}
