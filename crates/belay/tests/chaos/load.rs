//! What there is to do meanwhile: agents that count, agents whose work is published, and agents
//! that are stopped. People submit and stop at the same time, also while nobody answers; who gets
//! no answer asks again, with the same key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::draw::Draw;
use crate::world::{Said, World};

/// What a task is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Prints so many lines.
    Counts(u32),
    /// Prints so many lines, and leaves work that is to be published.
    Publishes(u32),
    /// The same, and somebody tries to stop it at some moment.
    Races(u32),
    /// Goes on until it is stopped.
    IsStopped,
}

impl Kind {
    /// How many lines it prints if it comes to its end.
    pub(crate) fn lines(self) -> Option<u32> {
        match self {
            Self::Counts(lines) | Self::Publishes(lines) | Self::Races(lines) => Some(lines),
            Self::IsStopped => None,
        }
    }
}

/// How far its stop is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Not asked for, or not acknowledged.
    Open,
    /// Acknowledged: whether the receipt says that it was pushed, and what the remote's branch was
    /// then.
    Done { pushed: bool, branch: String },
    /// It had come to its end already.
    TooLate,
}

/// A task that was submitted.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The key that it is submitted with.
    pub(crate) key: usize,
    pub(crate) kind: Kind,
    /// When somebody may want it stopped.
    ripe_at: Instant,
    /// Its id, once somebody has heard that it was accepted.
    pub(crate) id: Option<String>,
    pub(crate) stop: Stop,
}

impl Task {
    /// Its id.
    #[track_caller]
    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().expect("it was accepted")
    }

    fn is_to_stop(&self) -> bool {
        let meant = matches!(self.kind, Kind::Races(_) | Kind::IsStopped);
        meant && self.stop == Stop::Open && self.id.is_some()
    }
}

/// Everything that was submitted.
pub(crate) struct Load<'a> {
    world: &'a World,
    remote: String,
    tasks: Mutex<Vec<Task>>,
}

/// Enough for every fault to hit the same task.
const ATTEMPTS: [&str; 4] = ["--max-attempts", "1000", "--review", "auto"];
/// Exit codes of commands that nobody answered, or that were answered “not now”.
const UNANSWERED: [i32; 2] = [1, 4];
/// That of a move that is not possible (any more).
const REFUSED: i32 = 3;

impl<'a> Load<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let remote = world.remote();
        // Slow enough for stops and faults to come while something is pushed.
        world.hook("exec sleep 0.$(($$ % 10))");
        let hook = world.path("remote.git/hooks/post-receive");
        let log = world.path("pushes").display().to_string();
        fs::write(&hook, format!("#!/bin/sh\nexec cat >> '{log}'\n")).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        Self { world, remote, tasks: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was submitted until now.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        self.lock().clone()
    }

    /// Those whose stop was acknowledged.
    pub(crate) fn stopped(&self) -> Vec<String> {
        let done = |task: &&Task| matches!(task.stop, Stop::Done { .. });
        self.lock().iter().filter(done).map(|task| task.id().to_owned()).collect()
    }

    pub(crate) fn summary(&self) -> String {
        let (tasks, stopped) = (self.tasks(), self.stopped());
        let pushed =
            tasks.iter().filter(|task| matches!(task.stop, Stop::Done { pushed: true, .. }));
        let late = tasks.iter().filter(|task| task.stop == Stop::TooLate).count();
        let (all, stopped, pushed) = (tasks.len(), stopped.len(), pushed.count());
        format!("{all} tasks ({stopped} stopped, {pushed} of them pushed before; {late} too late)")
    }

    /// Somebody submits more and more.
    pub(crate) fn submits(&self, draw: &mut Draw, going: &AtomicBool) {
        while going.load(Ordering::SeqCst) {
            let lines = u32::try_from(10 + draw.below(300)).unwrap();
            let kind = match draw.below(6) {
                0 | 1 => Kind::IsStopped,
                2 => Kind::Counts(lines),
                3 | 4 => Kind::Races(1 + lines / 8),
                _ => Kind::Publishes(lines),
            };
            let key = self.lock().len();
            // From before it is prepared until after it is pushed; or long enough to be there when
            // something goes wrong.
            let span = if kind == Kind::IsStopped { 15_000 } else { 4_000 };
            let ripe_at = Instant::now() + Duration::from_millis(draw.below(span));
            self.lock().push(Task { key, kind, ripe_at, id: None, stop: Stop::Open });
            self.submit(key, kind);
            std::thread::sleep(Duration::from_millis(100 + draw.below(1_500)));
        }
    }

    /// Submits what nobody has heard of yet, again; whether all are accepted.
    pub(crate) fn submit_again(&self) -> bool {
        let unheard: Vec<_> = self.tasks().into_iter().filter(|task| task.id.is_none()).collect();
        unheard.into_iter().all(|task| self.submit(task.key, task.kind))
    }

    fn submit(&self, key: usize, kind: Kind) -> bool {
        let count = match kind.lines() {
            Some(lines) => format!("[ $i -lt {lines} ]"),
            None => ":".to_owned(),
        };
        // What it printed is written down after it was printed, where only it can write.
        let count = format!(
            "i=0; while {count}; do i=$((i+1)); echo line $i of $BELAY_ATTEMPT; \
             echo $i >> .git/printed-$BELAY_ATTEMPT; sleep 0.02; done"
        );
        // Every one changes its tree: those that change nothing are given up after three ends.
        let work = "echo $BELAY_ATTEMPT >> made.txt";
        // A shell whose `sleep` is ended before it is says so: that is no line of the agent's own.
        let quiet = "exec 2>/dev/null";
        let script =
            format!("{quiet}; echo $BELAY_ATTEMPT >> .git/starts; {work}; {count}; {work}");
        let place = match kind {
            Kind::Counts(_) => ["--publish", "none"],
            Kind::Publishes(_) | Kind::Races(_) | Kind::IsStopped => ["--repo", &self.remote],
        };
        let key_word = format!("chaos-{key}");
        let head = ["run", "--detach", "--idempotency-key", &key_word, "load"];
        let words = [&head[..], &ATTEMPTS, &place, &["--", "sh", "-c", &script]].concat();
        let said = self.world.belay(&words);
        let accepted = said.code == 0;
        assert!(accepted || UNANSWERED.contains(&said.code), "a task is refused: {said:?}");
        if accepted {
            self.lock()[key].id = Some(said.id());
        }
        accepted
    }

    /// Somebody stops one after the other, wherever it is.
    pub(crate) fn stops(&self, draw: &mut Draw, going: &AtomicBool) {
        while going.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(draw.below(600)));
            let mut open: Vec<_> = self.tasks().into_iter().filter(Task::is_to_stop).collect();
            open.retain(|task| task.ripe_at <= Instant::now());
            if !open.is_empty() {
                self.stop(&open[draw.index(open.len())]);
            }
        }
    }

    /// Stops whatever is to be stopped; whether all of it is.
    pub(crate) fn stop_all(&self) -> bool {
        let open: Vec<_> = self.tasks().into_iter().filter(Task::is_to_stop).collect();
        open.into_iter().all(|task| self.stop(&task))
    }

    /// Stops a task; whether that was acknowledged, or came too late.
    fn stop(&self, task: &Task) -> bool {
        let said = self.world.belay(&["stop", "--json", "--wait", "4s", task.id()]);
        let stop = match said.code {
            0 => match self.acknowledged(task, said) {
                Some(stop) => stop,
                None => return false,
            },
            REFUSED if matches!(task.kind, Kind::Races(_)) => Stop::TooLate,
            code => {
                assert!(UNANSWERED.contains(&code), "a stop of {task:?} is refused: {said:?}");
                return false;
            }
        };
        self.lock()[task.key].stop = stop;
        true
    }

    /// What an acknowledged stop says. Nothing of the task may live from now on.
    fn acknowledged(&self, task: &Task, said: Said) -> Option<Stop> {
        let answer = said.json();
        if answer["standing"] != "stopped" {
            return None;
        }
        let left: Vec<_> =
            self.world.sandboxed().into_iter().filter(|seen| seen.task == task.id()).collect();
        assert!(left.is_empty(), "{task:?} lives after its stop: {answer}\n{left:#?}");
        let publish = &answer["receipt"]["publish"];
        let unsettled = publish.is_null() || publish.get("open").is_some();
        assert!(!unsettled, "a push of {task:?} is open after its stop: {answer}");
        let pushed = publish.get("pushed").is_some();
        Some(Stop::Done { pushed, branch: self.branch(task.id()) })
    }

    /// Where a task's branch is at the remote; nothing if there is none.
    pub(crate) fn branch(&self, id: &str) -> String {
        let branch = format!("refs/heads/belay/{id}");
        self.world.git("remote.git", &["for-each-ref", "--format=%(objectname)", &branch])
    }

    /// Every commit that the remote's branch of a task was moved to, in order.
    pub(crate) fn pushes(&self, id: &str) -> Vec<String> {
        let log = fs::read_to_string(self.world.path("pushes")).unwrap_or_default();
        let branch = format!("refs/heads/belay/{id}");
        let words = log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words.filter(|words| words[2] == branch).map(|words| words[1].to_owned()).collect()
    }
}
