//! Following a task: what it does, live; its questions, asked at the prompt; its end, as an exit
//! code. Events are read with a cursor, so that nothing is missed when the server is restarted.

mod end;
mod live;

use std::time::{Duration, Instant};

use belay_api::{Answer, ClientError, Code, Stopping, TaskView};
use belay_kernel::QuestionId;
use belay_kernel::status::Group;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::connect::{Link, key};
use crate::fault::{Exit, Fault, exit_of_state};
use crate::screen::{is_interactive, note, say_json};
use crate::show::receipt_text;
use crate::verbs::{open_question, question_lines, stop_task};
use live::Live;

/// How long one request waits for events.
const WAIT: Duration = Duration::from_secs(20);
/// How long one request waits where output has to be fetched too.
const OUTPUT_WAIT: Duration = Duration::from_millis(500);
/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the stop that a person asks for at the prompt is waited for.
const STOP_LIMIT: Duration = Duration::from_secs(60);

struct Follow<'a> {
    link: &'a mut Link,
    task: TaskView,
    live: Live,
    cursor: Option<String>,
    /// Where the output of a plain command is read on: attempt and offset.
    output: (u32, u64),
    /// The question that is on the screen.
    asked: Option<QuestionId>,
    lines: Option<mpsc::UnboundedReceiver<String>>,
    interrupts: Signal,
    away_since: Option<Instant>,
}

/// What happened while it was waited.
enum Happened {
    /// Something may have changed.
    News,
    /// A person typed.
    Typed(String),
    /// A person pressed Ctrl-C.
    Interrupted,
}

/// Follows a task until it rests or waits for a person.
pub(crate) async fn follow(link: &mut Link, task: TaskView, json: bool) -> Result<Exit, Fault> {
    let interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Fault::failed(format!("signals cannot be caught: {error}")))?;
    let mut follow = Follow {
        link,
        live: Live::new(json),
        task,
        cursor: None,
        output: (0, 0),
        asked: None,
        lines: None,
        interrupts,
        away_since: None,
    };
    let exit = follow.until_it_ends().await?;
    follow.live.clear();
    let task = &follow.task;
    if json {
        say_json(task);
    } else if exit != Exit::Interrupted {
        end::tell(task);
    }
    Ok(exit)
}

impl Follow<'_> {
    async fn until_it_ends(&mut self) -> Result<Exit, Fault> {
        loop {
            self.live.status(&self.task);
            if let Some(exit) = self.judge() {
                self.print_output(Duration::ZERO).await;
                return Ok(exit);
            }
            match self.wait().await? {
                Happened::News => {}
                Happened::Typed(line) => self.typed(&line).await?,
                Happened::Interrupted => {
                    if let Some(exit) = self.interrupted().await? {
                        return Ok(exit);
                    }
                }
            }
        }
    }

    /// Whether this is the end, for whoever follows.
    fn judge(&mut self) -> Option<Exit> {
        let exit = exit_of_state(&self.task.summary.state);
        match self.task.summary.group {
            Group::Resting | Group::Final => Some(exit),
            Group::Parked | Group::Active => {
                if self.asked.take().is_some() {
                    self.live.answered();
                }
                None
            }
            Group::WaitingForPerson => match open_question(&self.task) {
                Some(question) if self.live.is_interactive() && is_interactive() => {
                    if self.asked != Some(question.id) {
                        self.asked = Some(question.id);
                        let question = question_lines(question);
                        self.live.ask(&format!("{question}\nanswer:"));
                    }
                    None
                }
                Some(_) | None => Some(exit),
            },
        }
    }

    /// Waits until something happens, and takes it in.
    async fn wait(&mut self) -> Result<Happened, Fault> {
        let id = self.task.summary.id;
        let plain = !self.task.command.is_empty() && !self.live.is_silent();
        let wait = if plain { OUTPUT_WAIT } else { WAIT };
        if self.asked.is_some() && self.lines.is_none() {
            self.lines = Some(read_lines());
        }
        let client = self.link.client().clone();
        let lines = &mut self.lines;
        let typed = async {
            match lines {
                Some(lines) => match lines.recv().await {
                    Some(line) => line,
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        let answer = tokio::select! {
            _ = self.interrupts.recv() => return Ok(Happened::Interrupted),
            line = typed => return Ok(Happened::Typed(line)),
            answer = client.events(Some(id), self.cursor.as_deref(), wait) => answer,
        };
        match answer {
            Ok(events) => {
                self.away_since = None;
                for event in &events.events {
                    self.live.event(event);
                }
                self.cursor = Some(events.cursor);
                if plain {
                    self.print_output(Duration::ZERO).await;
                }
                self.look().await?;
            }
            Err(error) if is_away(&error) => self.away().await?,
            Err(error) => return Err(error.into()),
        }
        Ok(Happened::News)
    }

    /// Looks at the task anew.
    async fn look(&mut self) -> Result<(), Fault> {
        let id = self.task.summary.id.to_string();
        match self.link.client().show(&id).await {
            Ok(task) => self.task = task,
            Err(error) if is_away(&error) => self.away().await?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The server does not answer: it may be coming back.
    async fn away(&mut self) -> Result<(), Fault> {
        if self.away_since.is_none() {
            self.live.line("the server does not answer; waiting for it");
        }
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            let id = self.task.summary.id;
            return Err(Fault::unreachable(format!(
                "the server has not answered for {PATIENCE:?}; the task goes on, `belay logs -f \
                 {id}` follows it again"
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.link.refresh();
        Ok(())
    }

    /// Prints what a plain command has printed since.
    async fn print_output(&mut self, wait: Duration) {
        let newest = self.task.summary.attempts.0;
        if self.task.command.is_empty() || self.live.is_silent() || newest == 0 {
            return;
        }
        let id = self.task.summary.id.to_string();
        if self.output.0 == 0 {
            self.output = (newest, 0);
        }
        loop {
            let (attempt, from) = self.output;
            let answer = self.link.client().transcript(&id, Some(attempt), from, wait).await;
            // What cannot be had now is had with the next look.
            let Ok(piece) = answer else { return };
            if !piece.bytes.is_empty() {
                self.output.1 = piece.from + piece.bytes.len() as u64;
                self.live.output(&piece.bytes);
                continue;
            }
            if attempt >= newest {
                return;
            }
            self.output = (attempt + 1, 0);
        }
    }

    /// A person typed, while a question is on the screen.
    async fn typed(&mut self, line: &str) -> Result<(), Fault> {
        let (Some(question), line) = (self.asked, line.trim()) else { return Ok(()) };
        if line.is_empty() {
            return Ok(());
        }
        let id = self.task.summary.id.to_string();
        let body = Answer { question: Some(question), text: line.to_owned() };
        let key = key(None)?;
        let answered =
            self.link.ask(async |client| client.answer(&id, &body, Some(&key)).await).await;
        match answered {
            Ok(task) => {
                self.asked = None;
                self.live.answered();
                self.task = task;
            }
            Err(fault) if fault.exit == Exit::Unreachable => return Err(fault),
            // It was answered elsewhere, or the answer is none of the options.
            Err(fault) => {
                self.live.line(&fault.text);
                self.asked = None;
                self.look().await?;
            }
        }
        Ok(())
    }

    /// Ctrl-C: stop it, leave it, or go on. A second one leaves it.
    async fn interrupted(&mut self) -> Result<Option<Exit>, Fault> {
        let id = self.task.summary.id.to_string();
        let leave = |live: &Live| {
            live.clear();
            note(&format!(
                "belay: task {id} goes on; `belay logs -f {id}` follows it, `belay stop {id}` \
                 stops it"
            ));
            Some(Exit::Interrupted)
        };
        if !is_interactive() {
            return Ok(leave(&self.live));
        }
        self.live.ask("[s]top the task, [d]etach and let it go on, [c]ontinue to watch?");
        let lines = self.lines.get_or_insert_with(read_lines);
        loop {
            let line = tokio::select! {
                _ = self.interrupts.recv() => return Ok(leave(&self.live)),
                line = lines.recv() => line,
            };
            match line.as_deref().map(|line| line.trim().to_ascii_lowercase()).as_deref() {
                Some("s" | "stop") => break,
                Some("c" | "continue" | "") => {
                    // A question that was on the screen is asked again.
                    self.asked = None;
                    self.live.answered();
                    return Ok(None);
                }
                Some("d" | "detach") | None => return Ok(leave(&self.live)),
                Some(_) => self.live.line("s, d or c?"),
            }
        }
        self.live.answered();
        if let Stopping::Stopped { receipt } =
            stop_task(self.link, &id, STOP_LIMIT, &key(None)?).await?
        {
            self.live.line(&receipt_text(&receipt));
        }
        self.look().await?;
        Ok(None)
    }
}

/// Whether the server is away, being stopped, or cannot answer now: it may be back soon.
fn is_away(error: &ClientError) -> bool {
    match error {
        ClientError::Problem(problem) => problem.code == Code::Unavailable,
        ClientError::Unanswered(_) => true,
    }
}

/// Lines that a person types. The thread ends with the program.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
