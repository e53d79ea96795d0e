//! What a person sees while a task is followed: lines as things happen and, at a terminal, one
//! line below them that tells state, time and cost.

use std::io::IsTerminal;
use std::time::Duration;

use belay_api::{EventView, TaskView};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::render::{self, Amount};
use crate::screen::{Palette, clean, note, put};
use crate::show::used;

/// The screen of one followed task.
pub(super) struct Live {
    palette: Palette,
    bar: Option<ProgressBar>,
    silent: bool,
    /// The state and sentence that were told last.
    told: Option<(String, String)>,
}

impl Live {
    /// Nothing is shown where the result is wanted as JSON.
    pub(super) fn new(silent: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !silent;
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The template is a constant; without it there is a plain one.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { palette: Palette::stderr(), bar, silent, told: None }
    }

    /// Whether nothing is shown.
    pub(super) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether somebody looks.
    pub(super) const fn is_interactive(&self) -> bool {
        self.bar.is_some()
    }

    /// Tells where the task is.
    pub(super) fn status(&mut self, task: &TaskView) {
        let summary = &task.summary;
        let now = (summary.state.clone(), task.sentence.clone());
        if self.told.as_ref() != Some(&now) {
            let sentence = clean(&task.sentence);
            self.line(&format!("{}  {sentence}", self.palette.state(&summary.state)));
            self.told = Some(now);
        }
        if let Some(bar) = &self.bar {
            let used = used(task);
            let used = if used.is_empty() { used } else { format!(" · {used}") };
            let attempt = match summary.attempts.0 {
                0 | 1 => String::new(),
                number => format!(" · attempt {number}"),
            };
            bar.set_message(format!("{}{attempt}{used}", summary.state));
        }
    }

    /// Tells what the agent did.
    pub(super) fn event(&self, event: &EventView) {
        if let Some(line) = render::event(event, self.palette, Amount::Brief) {
            self.line(&line);
        }
    }

    /// A line of its own.
    pub(super) fn line(&self, text: &str) {
        if self.silent {
            return;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }

    /// Asks something: the line at the bottom goes away, so that it does not overwrite what is
    /// typed.
    pub(super) fn ask(&self, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_draw_target(ProgressDrawTarget::hidden());
                note(&format!("\r\x1b[2K{text}"));
            }
            None => self.line(text),
        }
    }

    /// It was answered: the line at the bottom comes back.
    pub(super) fn answered(&self) {
        if let Some(bar) = &self.bar {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// What a plain command printed.
    pub(super) fn output(&self, bytes: &[u8]) {
        match &self.bar {
            Some(bar) => bar.suspend(|| put(bytes)),
            None => put(bytes),
        }
    }

    /// Takes the line at the bottom away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
