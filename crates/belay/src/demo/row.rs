//! One line of the demo's table: what happened, by which rule, how soon it was noticed, what was
//! saved.

use belay_api::{TaskView, WhyView};
use belay_kernel::Span;
use belay_kernel::publish::Publish;
use serde::Serialize;

use super::scene::Scene;
use crate::screen::{Ink, Palette};

/// How long something took to be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Noticed {
    pub(super) after: Span,
    /// Counted from what.
    pub(super) what: &'static str,
}

/// What became of one scene.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    shows: &'static str,
    task: String,
    expected: &'static str,
    pub(super) state: String,
    pub(super) attempts: u32,
    /// The rule that put it there.
    pub(super) rule: String,
    /// What was measured against what is allowed, where there is such a thing.
    pub(super) measured: Option<String>,
    pub(super) allowed: Option<String>,
    noticed_ms: Option<u64>,
    noticed_from: Option<&'static str>,
    transcript_bytes: u64,
    kept_ref: Option<String>,
    kept_commit: Option<String>,
    branch: Option<String>,
    /// What is not as it should be.
    failed: Vec<String>,
    as_expected: bool,
}

impl Row {
    /// What a task at rest shows.
    pub(super) fn of(
        scene: Scene,
        task: &TaskView,
        why: &WhyView,
        noticed: Option<Noticed>,
    ) -> Self {
        let last = task.attempt_list.first();
        let pushed = last.is_some_and(|row| matches!(row.attempt.publish, Publish::Pushed(_)));
        let fired = why.why.fired;
        let mut row = Self {
            name: scene.name(),
            shows: scene.shows(),
            task: task.summary.id.to_string(),
            expected: scene.expected(),
            state: task.summary.state.clone(),
            attempts: task.summary.attempts.0,
            rule: why.why.reason.code().to_owned(),
            measured: fired.map(|reading| reading.measured.to_string()),
            allowed: fired.map(|reading| reading.allowed.to_string()),
            noticed_ms: noticed.map(|noticed| noticed.after.as_millis()),
            noticed_from: noticed.map(|noticed| noticed.what),
            transcript_bytes: task.attempt_list.iter().map(|row| row.transcript_length).sum(),
            kept_ref: last.and_then(|row| row.kept_ref.clone()),
            kept_commit: last.and_then(|row| row.kept_commit).map(|commit| commit.to_string()),
            branch: task.branch.clone().filter(|_| pushed),
            failed: Vec::new(),
            as_expected: true,
        };
        row.expect(row.state == scene.expected(), "it ended in the expected state");
        row.expect(noticed.is_some(), "it is known when it was noticed");
        row.expect(row.transcript_bytes > 0, "its transcript is saved");
        row.expect(row.kept_ref.is_some(), "its tree is kept");
        row
    }

    /// The row of a scene that did not come to its end.
    pub(super) fn broken(scene: Scene, why: &str) -> Self {
        Self {
            name: scene.name(),
            shows: scene.shows(),
            task: String::new(),
            expected: scene.expected(),
            state: "?".to_owned(),
            attempts: 0,
            rule: String::new(),
            measured: None,
            allowed: None,
            noticed_ms: None,
            noticed_from: None,
            transcript_bytes: 0,
            kept_ref: None,
            kept_commit: None,
            branch: None,
            failed: vec![why.to_owned()],
            as_expected: false,
        }
    }

    /// Writes down what must be true.
    pub(super) fn expect(&mut self, is: bool, what: &str) {
        if !is {
            self.failed.push(format!("not so: {what}"));
            self.as_expected = false;
        }
    }

    /// Whether everything is as it should be.
    pub(super) const fn is_as_expected(&self) -> bool {
        self.as_expected
    }

    fn cells(&self) -> [String; 5] {
        let tries = if self.attempts > 1 { format!(" ×{}", self.attempts) } else { String::new() };
        let rule = match (&self.measured, &self.allowed) {
            (Some(measured), Some(allowed)) => {
                format!("{}: {measured} of {allowed} allowed", self.rule)
            }
            _ => self.rule.clone(),
        };
        let noticed = self.noticed_ms.map_or("?".to_owned(), |ms| {
            let from = self.noticed_from.unwrap_or_default();
            format!("{:.2} s {from}", ms as f64 / 1000.0)
        });
        let commit =
            self.kept_commit.as_deref().map_or("", |commit| &commit[..7.min(commit.len())]);
        let mut saved = format!("{} B printed, tree {commit}", self.transcript_bytes);
        if self.branch.is_some() {
            saved.push_str(", branch pushed");
        }
        [self.name.to_owned(), format!("{}{tries}", self.state), rule, noticed, saved]
    }
}

/// The table.
pub(super) fn table(rows: &[Row], palette: Palette) -> String {
    let head = ["task", "ended", "rule", "noticed", "saved"].map(str::to_owned);
    let mut all = vec![head];
    all.extend(rows.iter().map(Row::cells));
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut lines = Vec::new();
    for (index, cells) in all.iter().enumerate() {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let padding = " ".repeat(width - cell.chars().count());
            let ink = match (index.checked_sub(1).map(|at| &rows[at]), column) {
                (None, _) => Ink::Strong,
                (Some(row), 1) if !row.as_expected => Ink::Bad,
                (Some(_), 1) => Ink::Good,
                (Some(_), _) => return format!("{cell}{padding}"),
            };
            format!("{}{padding}", palette.paint(ink, cell))
        });
        lines.push(padded.collect::<Vec<_>>().join("  ").trim_end().to_owned());
        let failed = index.checked_sub(1).map_or(&[][..], |at| &rows[at].failed[..]);
        let failed = failed.iter().map(|text| format!("    {}", palette.paint(Ink::Bad, text)));
        lines.extend(failed);
    }
    lines.join("\n")
}
