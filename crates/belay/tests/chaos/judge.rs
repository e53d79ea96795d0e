//! Who judges, from outside: processes by `/proc`, work by the remote, states by the database, and
//! every printed line by what the agents themselves wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{Kind, Load, Stop, Task};
use crate::server::Database;
use crate::world::{World, wait_within};

/// How long everything may take once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a task may fail when the machine does: a person's word takes it up again.
const EXCUSED: [&str; 2] = ["start_failed", "publish_failed"];

/// A process of an attempt: its task, the attempt, its number and when it was started.
type Living = BTreeSet<(String, String, i32, u64)>;

/// The judge of one run.
pub(crate) struct Judge<'a> {
    world: &'a World,
    postgres: Option<Database>,
}

impl<'a> Judge<'a> {
    pub(crate) fn sqlite(world: &'a World) -> Self {
        Self { world, postgres: None }
    }

    pub(crate) fn postgres(world: &'a World, database: Database) -> Self {
        Self { world, postgres: Some(database) }
    }

    /// The rows of a query, each as its columns' texts.
    fn rows(&self, query: &str) -> Vec<Vec<String>> {
        let Some(database) = &self.postgres else { return self.world.rows(query) };
        let text = database.psql(query).unwrap();
        let row = |line: &str| line.split('|').map(str::to_owned).collect();
        text.lines().filter(|line| !line.is_empty()).map(row).collect()
    }

    /// Looks again and again while there is trouble.
    pub(crate) fn watches(&self, load: &Load<'_>, going: &AtomicBool) {
        while going.load(Ordering::SeqCst) {
            self.look(load);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// At every moment: one attempt of a task has processes, and none of a stopped task is left.
    fn look(&self, load: &Load<'_>) {
        // In this order: what is seen was there after the stop was acknowledged.
        let stopped = load.stopped();
        let living = self.living();
        for (task, attempt, pid, _) in &living {
            let told = || format!("process {pid} of {task}, attempt {attempt}, lives after a stop");
            assert!(!stopped.contains(task), "{}", told());
        }
        if !doubled(&living).is_empty() {
            // One may have ended before the other was seen. Those that are there twice were there
            // at the same time.
            let both = self.living().intersection(&living).cloned().collect();
            let doubled = doubled(&both);
            assert!(doubled.is_empty(), "attempts of one task live at once: {doubled:?}");
        }
    }

    /// No agent lives: its lease is over, whoever else is there.
    pub(crate) fn nobody_lives(&self, why: &str) {
        let living = self.living();
        assert!(living.is_empty(), "{why}, and agents live: {living:#?}");
    }

    /// Every process that carries the marker of a sandbox and names its attempt.
    fn living(&self) -> Living {
        let of = |seen: crate::processes::Seen| {
            let environment = fs::read(format!("/proc/{}/environ", seen.pid)).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let named = |name: &str| {
                environment.split('\0').find_map(|one| one.strip_prefix(name).map(str::to_owned))
            };
            Some((named("BELAY_TASK_ID=")?, named("BELAY_ATTEMPT=")?, seen.pid, seen.started))
        };
        let marked = self.world.sandboxed().into_iter().filter(|seen| seen.marked);
        marked.filter_map(of).collect()
    }

    /// Nothing goes wrong any more: everything comes to what it was to come to.
    pub(crate) fn comes_out_right(&self, load: &Load<'_>) {
        wait_within(PATIENCE, "every task is accepted", || load.submit_again());
        wait_within(PATIENCE, "every stop is acknowledged", || {
            self.look(load);
            load.stop_all()
        });
        let tasks = load.tasks();
        for task in &tasks {
            self.rests(task);
            self.look(load);
        }
        let ids = self.rows("SELECT id FROM tasks");
        assert_eq!(ids.len(), tasks.len(), "a task is lost or doubled");
        for task in &tasks {
            self.was_started_once(task);
            self.printed_everything(task);
            self.published(task, load);
        }
        wait_within(PATIENCE, "no process is left", || self.world.sandboxed().is_empty());
    }

    /// What a task came to: its state, and the cause of a failure.
    fn state(&self, id: &str) -> (String, String) {
        let query = format!("SELECT state, coalesce(cause, '') FROM tasks WHERE id = '{id}'");
        let row = self.rows(&query).into_iter().next();
        let row = row.unwrap_or_else(|| panic!("task {id} was accepted, and is lost"));
        (row[0].clone(), row[1].clone())
    }

    /// The attempts of a task: number, phase, publish, commit.
    fn attempts(&self, id: &str) -> Vec<Vec<String>> {
        self.rows(&format!(
            "SELECT number, phase, publish, coalesce(push_commit, '') FROM attempts \
             WHERE task = '{id}' ORDER BY number"
        ))
    }

    /// Waits until a task has come to rest as it should. What could not be published is published
    /// again by a person's word, and what could not be started three times is started again.
    fn rests(&self, task: &Task) {
        let wanted = match task.stop {
            Stop::Done { .. } => "CANCELLED",
            Stop::Open | Stop::TooLate => "COMPLETED",
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let (state, cause) = self.state(task.id());
            let attempts = self.attempts(task.id());
            let over = attempts.iter().all(|row| row[1] == "ENDED" && row[2] != "open");
            if state == wanted && over {
                return;
            }
            if state == "FAILED" && over {
                let story = || self.world.belay(&["show", task.id()]).out;
                assert!(EXCUSED.contains(&cause.as_str()), "{cause}: {task:?}\n{}", story());
                self.world.belay(&["resume", task.id()]);
            }
            if Instant::now() > until {
                let why = self.world.belay(&["why", task.id()]).out;
                panic!("{task:?} is {state}, not {wanted}: {attempts:?}\n{why}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the agents of a task wrote down in a file beside their work.
    fn written_down(&self, task: &Task, name: &str) -> Vec<String> {
        // A task that was stopped before anybody claimed it never had a session.
        let query =
            format!("SELECT coalesce(session, 'none') FROM tasks WHERE id = '{}'", task.id());
        let session = self.rows(&query).concat().concat();
        let tree = self.world.data().join("work/trees").join(session);
        let text = fs::read_to_string(tree.join(".git").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Each attempt is executed at most once.
    fn was_started_once(&self, task: &Task) {
        let starts = self.written_down(task, "starts");
        let once: BTreeSet<_> = starts.iter().collect();
        assert_eq!(once.len(), starts.len(), "an attempt of {task:?} was executed twice");
        let numbers: Vec<_> =
            self.attempts(task.id()).into_iter().map(|row| row[0].clone()).collect();
        let counted: Vec<_> = (1..=numbers.len()).map(|number| number.to_string()).collect();
        assert_eq!(numbers, counted, "attempts of {task:?}");
        for start in once {
            assert!(numbers.contains(start), "attempt {start} of {task:?} is not known");
        }
    }

    /// Each attempt's lines are there from the first to the last that its agent printed, none
    /// twice, none in between missing; all of them, if its agent came to its end.
    fn printed_everything(&self, task: &Task) {
        let attempts = self.attempts(task.id());
        let mut whole = 0;
        for row in &attempts {
            let number = &row[0];
            let printed = self.world.transcript(task.id(), number.parse().unwrap());
            let count = printed.lines().count();
            let wanted: String =
                (1..=count).map(|line| format!("line {line} of {number}\n")).collect();
            assert_eq!(printed, wanted, "{task:?}, attempt {number}");
            // It may have been killed between printing a line and writing that down.
            let written = self.written_down(task, &format!("printed-{number}")).len();
            assert!(
                count == written || count == written + 1,
                "attempt {number} of {task:?} printed {written} lines, {count} are kept"
            );
            whole += u32::from(task.kind.lines().is_some_and(|lines| lines as usize == count));
        }
        let finishes = !matches!(task.stop, Stop::Done { .. });
        assert!(!finishes || whole > 0, "no attempt of {task:?} was whole: {attempts:?}");
    }

    /// What was to be published is at the remote as it was recorded, and nothing else is or was.
    fn published(&self, task: &Task, load: &Load<'_>) {
        let there = load.branch(task.id());
        let attempts = self.attempts(task.id());
        let pushed = attempts.iter().filter(|row| row[2] == "pushed");
        let pushed: Vec<_> = pushed.map(|row| row[3].clone()).collect();
        let has_work = |commit: &String| {
            let work = format!("{commit}:made.txt");
            self.world.git_holds("remote.git", &["cat-file", "-e", &work])
        };
        let worked: BTreeSet<_> = load.pushes(task.id()).into_iter().filter(has_work).collect();
        match (&task.stop, task.kind) {
            (Stop::Done { pushed: true, branch }, _) => {
                assert_eq!(there, *branch, "{task:?} was pushed after its stop");
                assert_eq!(pushed, [there.clone()], "{task:?} is there as it was recorded");
                assert!(has_work(&there), "{task:?} is there");
            }
            (Stop::Done { pushed: false, branch }, _) => {
                assert_eq!(there, *branch, "{task:?} was pushed after its stop");
                let no_work = pushed.is_empty() && worked.is_empty();
                assert!(no_work, "{task:?} was pushed: {attempts:?} {worked:?}");
            }
            (_, Kind::Counts(_)) => assert_eq!(there, "", "{task:?} publishes nothing"),
            (_, Kind::Publishes(_) | Kind::Races(_) | Kind::IsStopped) => {
                assert_eq!(pushed.len(), 1, "{task:?} is published once: {attempts:?}");
                assert_eq!(there, pushed[0], "{task:?} is there as it was recorded");
                assert!(worked.len() <= 1, "{task:?} was there in several ways: {worked:?}");
            }
        }
    }
}

/// The tasks of which several attempts are among these.
fn doubled(living: &Living) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut tasks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (task, attempt, ..) in living {
        tasks.entry(task).or_default().insert(attempt);
    }
    tasks.retain(|_, attempts| attempts.len() > 1);
    tasks
}
