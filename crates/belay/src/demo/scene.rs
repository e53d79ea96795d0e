//! The ten scenes: what each task does, and what must come of it.

use std::time::{Duration, Instant};

use belay_api::{Accept, Answer, NewTask, Stopping, TaskView};
use belay_kernel::attempt::Proof;
use belay_kernel::{Cause, Clock, Span, Timestamp};

use super::row::{Noticed, Row};
use super::stage::marked;
use super::watch::{Cast, Watch};
use crate::connect::key;
use crate::fault::Fault;
use crate::git::Repository;
use crate::verbs::open_question;

/// How long a stop may take, and how long is waited for what another process does.
const LIMIT: Duration = Duration::from_secs(60);
/// The budget of the task that uses it up.
const BUDGET: u64 = 10_000;
/// How many daemons the runaway agent starts.
const DAEMONS: usize = 2;

/// One of the ten tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scene {
    Success,
    Question,
    Subtasks,
    Chain,
    Crash,
    Hang,
    Idle,
    Stuck,
    Stop,
    Budget,
}

impl Scene {
    /// All ten, in the order of the table.
    pub(super) const ALL: [Self; 10] = [
        Self::Success,
        Self::Question,
        Self::Subtasks,
        Self::Chain,
        Self::Crash,
        Self::Hang,
        Self::Idle,
        Self::Stuck,
        Self::Stop,
        Self::Budget,
    ];

    /// Its name, which is also the scenario of its agent.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Question => "question",
            Self::Subtasks => "subtasks",
            Self::Chain => "chain",
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Idle => "idle",
            Self::Stuck => "stuck",
            Self::Stop => "stop",
            Self::Budget => "budget",
        }
    }

    /// What it shows.
    pub(super) const fn shows(self) -> &'static str {
        match self {
            Self::Success => "work with a diff, accepted by a person",
            Self::Question => "a question, answered by a person",
            Self::Subtasks => "a task that waits for its two subtasks",
            Self::Chain => "three tasks, each after the one before",
            Self::Crash => "a crash, then a second attempt that succeeds",
            Self::Hang => "an agent that falls silent",
            Self::Idle => "an agent that says it is idle, and is",
            Self::Stuck => "an agent that prints and prints, and does nothing",
            Self::Stop => "a stop, against two daemons that ignore signals",
            Self::Budget => "an agent that uses more tokens than it may",
        }
    }

    /// The state in which it must end.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Success | Self::Question | Self::Subtasks | Self::Chain | Self::Crash => {
                "COMPLETED"
            }
            Self::Hang => "TIMED_OUT",
            Self::Idle | Self::Stuck => "FAILED",
            Self::Stop => "CANCELLED",
            Self::Budget => "BUDGET_EXCEEDED",
        }
    }

    /// Plays it to its end.
    pub(super) async fn play(self, cast: &Cast) -> Result<Row, Fault> {
        match self {
            Self::Success => success(cast).await,
            Self::Question => question(cast).await,
            Self::Subtasks => subtasks(cast).await,
            Self::Chain => chain(cast).await,
            Self::Crash => crash(cast).await,
            Self::Hang => condemned(cast, self, Clock::Inactivity).await,
            Self::Idle => condemned(cast, self, Clock::Idle).await,
            Self::Stuck => condemned(cast, self, Clock::StuckRunning).await,
            Self::Stop => stop(cast).await,
            Self::Budget => budget(cast).await,
        }
    }
}

/// The row of a scene whose task is at rest.
async fn row(
    cast: &Cast,
    scene: Scene,
    watch: &mut Watch<'_>,
    noticed: Option<Noticed>,
) -> Result<(Row, TaskView), Fault> {
    let task = watch.settled().await?;
    let why = cast.client.why(&watch.id).await?;
    Ok((Row::of(scene, &task, &why, noticed), task))
}

/// The attempt with this number.
fn attempt(task: &TaskView, number: u32) -> Option<&belay_api::AttemptView> {
    task.attempt_list.iter().find(|row| row.attempt.number.0 == number)
}

/// How long after the agent's last line its attempt was over.
async fn after_last_line(watch: &Watch<'_>, task: &TaskView, number: u32) -> Option<Noticed> {
    let ended = attempt(task, number)?.ending_at?;
    let last = watch.lines(number).await.ok()?.last()?.0;
    let after = ended.since(Timestamp::from_millis(last));
    Some(Noticed { after, what: "after its last line" })
}

async fn success(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Success;
    let review = belay_kernel::task::Review::Manual;
    let new = NewTask { review, publish: cast.publish, ..cast.task(scene, "Leave a note.") };
    let mut watch = cast.make(scene, &new).await?;
    let task = watch.until("its review", |task| task.summary.state == "READY").await?;
    let noticed = after_last_line(&watch, &task, 1).await;
    // The patch is saved when the sandbox is gone.
    let diff = loop {
        match cast.client.diff(&watch.id, None).await {
            Ok(diff) if !diff.is_empty() => break String::from_utf8_lossy(&diff).into_owned(),
            Ok(_) | Err(_) if cast.began.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(_) => break String::new(),
            Err(error) => return Err(error.into()),
        }
    };
    let added = diff.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++"));
    cast.tell(scene, &format!("the person sees {} added line and accepts", added.count()));
    cast.client.accept(&watch.id, &Accept::default(), Some(&key(None)?)).await?;
    let (mut row, task) = row(cast, scene, &mut watch, noticed).await?;
    row.expect(diff.contains("+The demo was here."), "the diff holds the work");
    if new.publish == belay_api::Publishing::Branch {
        let repository = Repository::around(std::path::Path::new(&cast.repository));
        let branch = format!("refs/heads/{}", task.branch.as_deref().unwrap_or_default());
        let pushed = repository.map(|found| found.get(&["rev-parse", "--verify", &branch]));
        let pushed = pushed.is_some_and(|answer| answer.is_ok_and(|found| found.is_some()));
        row.expect(pushed, "its branch is in the repository");
    }
    Ok(row)
}

async fn question(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Question;
    let mut watch = cast.make(scene, &cast.task(scene, "Paint it.")).await?;
    let task = watch.until("its question", |task| open_question(task).is_some()).await?;
    let noticed = after_last_line(&watch, &task, 1).await;
    cast.tell(scene, "the person answers: blue");
    let question = open_question(&task).map(|question| question.id);
    let answer = Answer { question, text: "blue".to_owned() };
    cast.client.answer(&watch.id, &answer, Some(&key(None)?)).await?;
    let (mut row, task) = row(cast, scene, &mut watch, noticed).await?;
    let answered = task.questions.iter().any(|asked| asked.answer.as_deref() == Some("blue"));
    row.expect(answered, "the thread holds the answer");
    let diff = cast.client.diff(&watch.id, None).await?;
    let used = String::from_utf8_lossy(&diff).contains("+blue");
    row.expect(used, "the second attempt used the answer");
    Ok(row)
}

async fn subtasks(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Subtasks;
    let mut watch = cast.make(scene, &cast.task(scene, "Hand it out.")).await?;
    let task = watch.settled().await?;
    let mut last = Timestamp::EPOCH;
    let mut all = task.subtasks.len() == 2;
    for child in &task.subtasks {
        all &= child.state == "COMPLETED";
        last = last.max(cast.client.show(&child.id.to_string()).await?.summary.since);
    }
    let after = task.summary.since.since(last);
    let noticed = Noticed { after, what: "after the last subtask" };
    let (mut row, _) = row(cast, scene, &mut watch, Some(noticed)).await?;
    row.expect(all, "both subtasks completed");
    row.expect(task.summary.since >= last, "the parent completed after them");
    Ok(row)
}

async fn chain(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Chain;
    let mut watches: Vec<Watch<'_>> = Vec::new();
    for _ in 0..3 {
        let before = watches.last().and_then(|watch| watch.id.parse().ok());
        let after = before.into_iter().collect();
        let new = NewTask { after, ..cast.task(scene, "Add a link.") };
        watches.push(cast.make(scene, &new).await?);
    }
    let (mut ended, mut longest, mut ordered) = (None::<Timestamp>, Span::ZERO, true);
    for watch in &mut watches {
        let task = watch.settled().await?;
        let claimed = attempt(&task, 1).map(|row| row.attempt.claimed_at);
        if let (Some(before), Some(claimed)) = (ended, claimed) {
            ordered &= claimed >= before;
            longest = longest.max(claimed.since(before));
        }
        ordered &= task.summary.state == scene.expected();
        ended = Some(task.summary.since);
    }
    let Some(last) = watches.last_mut() else { return Err(Fault::failed("no chain")) };
    let noticed = Noticed { after: longest, what: "from an end to the next claim" };
    let (mut row, _) = row(cast, scene, last, Some(noticed)).await?;
    row.expect(ordered, "each completed before the next was claimed");
    Ok(row)
}

async fn crash(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Crash;
    let new = NewTask { max_attempts: Some(2), ..cast.task(scene, "Do both halves.") };
    let mut watch = cast.make(scene, &new).await?;
    let task = watch.settled().await?;
    let noticed = after_last_line(&watch, &task, 1).await;
    let first = attempt(&task, 1);
    let cause = first.and_then(|row| row.cause);
    let message = first.and_then(|row| row.message.clone()).unwrap_or_default();
    let (mut row, _) = row(cast, scene, &mut watch, noticed).await?;
    row.rule = format!("crash ({message}), then a retry");
    row.expect(cause == Some(Cause::Crash), "the first attempt ended as a crash");
    row.expect(row.attempts == 2, "there were two attempts");
    let diff = cast.client.diff(&watch.id, None).await?;
    let whole = String::from_utf8_lossy(&diff).contains("+The first half.\n+The other half.\n");
    row.expect(whole, "the second attempt went on with the first one's tree");
    Ok(row)
}

/// A task whose agent is to be ended by this clock.
async fn condemned(cast: &Cast, scene: Scene, clock: Clock) -> Result<Row, Fault> {
    let mut watch = cast.make(scene, &cast.task(scene, "Never end.")).await?;
    let task = watch.settled().await?;
    let fired = attempt(&task, 1).and_then(|row| row.fired);
    let what = match clock {
        Clock::Inactivity => "without output",
        _ => "without work",
    };
    let noticed = fired.map(|reading| Noticed { after: reading.measured, what });
    let (mut row, _) = row(cast, scene, &mut watch, noticed).await?;
    row.expect(fired.is_some_and(|reading| reading.clock == clock), "the right clock fired");
    Ok(row)
}

async fn stop(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Stop;
    let mut watch = cast.make(scene, &cast.task(scene, "Run away.")).await?;
    watch.until("its start", |task| task.summary.state == "RUNNING").await?;
    let until = Instant::now() + LIMIT;
    while marked(&cast.mark, "daemon").len() < DAEMONS {
        if Instant::now() >= until {
            return Err(Fault::failed("stop: the daemons did not come up"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cast.tell(scene, "two daemons are up, in sessions of their own; the person stops the task");
    let asked = Instant::now();
    let answer = cast.client.stop(&watch.id, LIMIT, Some(&key(None)?)).await?;
    let took = asked.elapsed();
    let left = marked(&cast.mark, "daemon");
    let Stopping::Stopped { receipt } = answer else {
        return Err(Fault::failed("stop: there is no receipt yet"));
    };
    let after = Span::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    let noticed = Noticed { after, what: "from request to proof" };
    let (mut row, _) = row(cast, scene, &mut watch, Some(noticed)).await?;
    let count = receipt.receipt.processes;
    row.rule = format!("stop: {count} processes killed, proof observed");
    row.expect(receipt.proof_kind == Some(Proof::Observed), "the proof is observed");
    row.expect(left.is_empty(), "no daemon is left when the receipt is there");
    Ok(row)
}

async fn budget(cast: &Cast) -> Result<Row, Fault> {
    let scene = Scene::Budget;
    // A plain command counts for itself; whether it does is not known before.
    let new = NewTask {
        max_tokens: Some(BUDGET),
        allow_uncounted: true,
        ..cast.task(scene, "Use tokens.")
    };
    let mut watch = cast.make(scene, &new).await?;
    let task = watch.settled().await?;
    let lines = watch.lines(1).await?;
    let over = lines.iter().find(|(_, tokens)| *tokens >= BUDGET).map(|(at, _)| *at);
    let ended = attempt(&task, 1).and_then(|row| row.ending_at);
    let noticed = over.zip(ended).map(|(over, ended)| Noticed {
        after: ended.since(Timestamp::from_millis(over)),
        what: "after it was used up",
    });
    let (mut row, _) = row(cast, scene, &mut watch, noticed).await?;
    row.measured = Some(format!("{} tokens", task.summary.tokens));
    row.allowed = Some(format!("{BUDGET} tokens"));
    row.expect(task.summary.tokens >= BUDGET, "the budget is used up");
    Ok(row)
}
