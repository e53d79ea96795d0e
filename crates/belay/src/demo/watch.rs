//! Watching one task of the demo: what happens is told as it happens, and waited for.

use std::time::{Duration, Instant};

use belay_api::{Client, EventView, NewTask, Publishing, TaskView};
use belay_kernel::Reading;
use belay_kernel::attempt::Phase;
use belay_kernel::status::Group;
use belay_kernel::task::Review;

use super::scene::Scene;
use crate::connect::key;
use crate::fault::Fault;
use crate::screen::{Palette, clean, note, one_line};

/// How long anything in the demo may take.
const LIMIT: Duration = Duration::from_secs(75);
/// How long one look for events waits.
const WAIT: Duration = Duration::from_secs(2);

/// What every scene is played with.
pub(super) struct Cast {
    pub(super) client: Client,
    /// This program, which is also the agent.
    pub(super) program: String,
    pub(super) mark: String,
    pub(super) repository: String,
    /// What becomes of the work where something may be published.
    pub(super) publish: Publishing,
    pub(super) began: Instant,
    /// Whether nothing is told while it happens.
    pub(super) silent: bool,
}

impl Cast {
    /// The task of a scene, as far as scenes are alike.
    pub(super) fn task(&self, scene: Scene, prompt: &str) -> NewTask {
        let command = [&self.program, "demo-agent", scene.name(), &self.mark];
        NewTask {
            prompt: prompt.to_owned(),
            title: Some(format!("demo: {}", scene.name())),
            command: command.map(str::to_owned).to_vec(),
            repository: Some(self.repository.clone()),
            publish: Publishing::None,
            review: Review::Auto,
            ..NewTask::default()
        }
    }

    /// Makes a task, and watches it.
    pub(super) async fn make(&self, scene: Scene, task: &NewTask) -> Result<Watch<'_>, Fault> {
        let made = self.client.create(task, Some(&key(None)?)).await?;
        let id = made.summary.id.to_string();
        Ok(Watch { cast: self, scene, id, cursor: None, terminated: 0 })
    }

    /// Tells what happens.
    pub(super) fn tell(&self, scene: Scene, text: &str) {
        if !self.silent {
            let seconds = self.began.elapsed().as_secs_f64();
            note(&format!("{seconds:>6.1}s  {:<9} {text}", scene.name()));
        }
    }
}

/// A task that is watched.
pub(super) struct Watch<'a> {
    cast: &'a Cast,
    scene: Scene,
    pub(super) id: String,
    cursor: Option<String>,
    /// How many of its sandboxes are gone, with everything saved.
    terminated: u32,
}

impl Watch<'_> {
    /// Waits until the task is as it should be.
    pub(super) async fn until(
        &mut self,
        what: &str,
        is: impl Fn(&TaskView) -> bool,
    ) -> Result<TaskView, Fault> {
        let until = Instant::now() + LIMIT;
        loop {
            let task = self.cast.client.show(&self.id).await?;
            if is(&task) {
                return Ok(task);
            }
            self.refuse_late(until, what, &task)?;
            self.listen(&task).await?;
        }
    }

    /// Waits until the task is at rest, and everything of it is saved.
    pub(super) async fn settled(&mut self) -> Result<TaskView, Fault> {
        let until = Instant::now() + LIMIT;
        loop {
            let task = self.cast.client.show(&self.id).await?;
            let rests = matches!(task.summary.group, Group::Resting | Group::Final);
            let ended = |phase| matches!(phase, Phase::Ended(..));
            let over = task.attempt_list.iter().all(|row| ended(row.attempt.phase));
            if rests && over && self.terminated >= task.summary.attempts.0 {
                return Ok(task);
            }
            self.refuse_late(until, "its end", &task)?;
            self.listen(&task).await?;
        }
    }

    fn refuse_late(&self, until: Instant, what: &str, task: &TaskView) -> Result<(), Fault> {
        if Instant::now() < until {
            return Ok(());
        }
        let (scene, state) = (self.scene.name(), &task.summary.state);
        let sentence = &task.sentence;
        Err(Fault::failed(format!("{scene}: {what} did not come; it is {state}: {sentence}")))
    }

    /// Waits for events, and tells them.
    async fn listen(&mut self, task: &TaskView) -> Result<(), Fault> {
        let id = Some(task.summary.id);
        let events = self.cast.client.events(id, self.cursor.as_deref(), WAIT).await?;
        for event in &events.events {
            if event.kind == "sandbox.terminated" {
                self.terminated += 1;
            }
            if let Some(text) = told(event) {
                self.cast.tell(self.scene, &text);
            }
        }
        self.cursor = Some(events.cursor);
        Ok(())
    }

    /// When the agent printed each line of an attempt, by its own clock, and the tokens that it
    /// had used by then.
    pub(super) async fn lines(&self, attempt: u32) -> Result<Vec<(i64, u64)>, Fault> {
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let number = Some(attempt);
            let client = &self.cast.client;
            let piece = client.transcript(&self.id, number, from, Duration::ZERO).await?;
            if piece.bytes.is_empty() {
                break;
            }
            bytes.extend(piece.bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some((line["at_ms"].as_i64()?, line["input_tokens"].as_u64().unwrap_or(0)))
        };
        Ok(text.lines().filter_map(line).collect())
    }
}

/// What an event is told as; nothing for what is beside the point.
fn told(event: &EventView) -> Option<String> {
    let text = |name: &str| event.body[name].as_str().map(clean);
    match event.kind.as_str() {
        "task.created" | "task.claimed" => None,
        "task.question" => Some(format!("asks: {}", one_line(&text("text")?, 60))),
        // Its publish began: the state is the same.
        _ if event.body["from"] == event.body["state"] => None,
        kind if kind.starts_with("task.") => {
            let state = Palette::stderr().state(&text("state")?);
            let reason = text("reason")?;
            let attempt = event.attempt.map_or(String::new(), |n| format!(", attempt {n}"));
            let fired: Option<Reading> = serde_json::from_value(event.body["fired"].clone()).ok();
            let fired = fired.map_or(String::new(), |reading| format!(": {reading}"));
            Some(format!("{state} ({reason}){attempt}{fired}"))
        }
        _ => None,
    }
}
