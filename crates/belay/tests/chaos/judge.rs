//! Who judges, from outside: processes by `/proc`, work by the remote, states by the database, and
//! every printed line by its number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::load::{Kind, Load, Task};
use crate::server::Database;
use crate::world::{World, wait_within};

/// How long everything may take once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(120);

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
        match &self.postgres {
            None => self.world.rows(query),
            Some(database) => {
                let text = database.psql(query).unwrap_or_default();
                let row = |line: &str| line.split('|').map(str::to_owned).collect();
                text.lines().filter(|line| !line.is_empty()).map(row).collect()
            }
        }
    }

    /// At every moment: one attempt of a task has processes, and none of a stopped task is left.
    pub(crate) fn look(&self, load: &Load<'_>) {
        let mut living: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (task, attempt) in self.agents() {
            living.entry(task).or_default().insert(attempt);
        }
        for (task, attempts) in &living {
            assert!(attempts.len() < 2, "attempts {attempts:?} of {task} live at once");
            assert!(!load.stopped.borrow().contains(task), "{task} lives after its stop");
        }
    }

    /// The task and the attempt of every process that carries the marker of a sandbox.
    fn agents(&self) -> Vec<(String, String)> {
        let of = |pid: i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let named = |name: &str| {
                environment.split('\0').find_map(|one| one.strip_prefix(name).map(str::to_owned))
            };
            Some((named("BELAY_TASK_ID=")?, named("BELAY_ATTEMPT=")?))
        };
        let marked = self.world.sandboxed().into_iter().filter(|seen| seen.marked);
        marked.filter_map(|seen| of(seen.pid)).collect()
    }

    /// Nothing goes wrong any more: everything comes to what it was to come to.
    pub(crate) fn comes_out_right(&self, load: &Load<'_>) {
        wait_within(PATIENCE, "every stop is acknowledged", || {
            self.look(load);
            load.to_stop().iter().all(|id| load.stop(id))
        });
        for task in &load.tasks {
            self.rests(task);
            self.look(load);
        }
        let ids = self.rows("SELECT id FROM tasks");
        assert_eq!(ids.len(), load.tasks.len(), "a task is lost or doubled");
        for task in &load.tasks {
            self.printed_everything(task);
            self.published(task, load);
        }
        wait_within(PATIENCE, "no process is left", || self.world.sandboxed().is_empty());
    }

    fn state(&self, id: &str) -> String {
        let rows = self.rows(&format!("SELECT state FROM tasks WHERE id = '{id}'"));
        rows.into_iter().flatten().next().unwrap_or_default()
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
        let wanted = match task.kind {
            Kind::IsStopped => "CANCELLED",
            Kind::Counts(_) | Kind::Publishes(_) => "COMPLETED",
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let state = self.state(&task.id);
            let attempts = self.attempts(&task.id);
            let over = attempts.iter().all(|row| row[1] == "ENDED" && row[2] != "open");
            if state == wanted && over {
                return;
            }
            if state == "FAILED" && over {
                self.world.belay(&["resume", &task.id]);
            }
            let late = Instant::now() > until;
            assert!(!late, "{task:?} is {state}, not {wanted}: {attempts:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Each attempt's lines are there from the first on, none twice, none in between missing; all
    /// of them, if its agent came to its end.
    fn printed_everything(&self, task: &Task) {
        let attempts = self.attempts(&task.id);
        let mut whole = 0;
        for row in &attempts {
            let printed = self.world.transcript(&task.id, row[0].parse().unwrap());
            let lines: Vec<&str> = printed.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let wanted = format!("line {} of {}", index + 1, row[0]);
                assert_eq!(*line, wanted, "{task:?}, attempt {}", row[0]);
            }
            let counted = u32::try_from(lines.len()).unwrap();
            match task.kind {
                Kind::Counts(count) | Kind::Publishes(count) => {
                    whole += u32::from(counted == count);
                }
                Kind::IsStopped => {}
            }
        }
        let finishes = task.kind != Kind::IsStopped;
        assert!(!finishes || whole > 0, "no attempt of {task:?} was whole: {attempts:?}");
    }

    /// What was to be published is at the remote as it was recorded, and nothing else is.
    fn published(&self, task: &Task, load: &Load<'_>) {
        let branch = format!("refs/heads/belay/{}", task.id);
        let there =
            self.world.git("remote.git", &["for-each-ref", "--format=%(objectname)", &branch]);
        let pushed: Vec<_> = self
            .attempts(&task.id)
            .into_iter()
            .filter(|row| row[2] == "pushed")
            .map(|row| row[3].clone())
            .collect();
        match task.kind {
            Kind::Counts(_) => assert_eq!(there, "", "{task:?} publishes nothing"),
            Kind::Publishes(_) => {
                assert_eq!(pushed.len(), 1, "{task:?} is published once: {pushed:?}");
                assert_eq!(there, pushed[0], "{task:?} is there as it was recorded");
            }
            Kind::IsStopped => {
                assert!(load.stopped.borrow().contains(&task.id));
                assert_eq!(pushed, [""; 0], "{task:?} was stopped");
                let work = format!("{branch}:made.txt");
                let has_work = self.world.git_holds("remote.git", &["cat-file", "-e", &work]);
                assert!(!has_work, "work of {task:?} is at the remote after its stop");
            }
        }
    }
}
