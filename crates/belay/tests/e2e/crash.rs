//! `kill -9` of the server at random points of a mixed load: no task is lost, no attempt doubled,
//! no line lost or doubled, nothing orphaned, and agents that ran run on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::processes::Seen;
use crate::world::{QUICK, World, wait_for};

/// How often the server is killed in each load.
const KILLS: u32 = 10;

/// Numbers that look random and are the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Prints numbered lines, then goes on as it is told.
fn counting(lines: u32, then: &str) -> String {
    format!(
        "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i of $BELAY_ATTEMPT; \
         sleep 0.01; done; echo $BELAY_ATTEMPT >> made.txt; {then}"
    )
}

/// The task, what it shall come to, and how many attempts that takes.
struct Expected {
    task: String,
    state: &'static str,
    attempts: usize,
    lines: u32,
}

fn load(world: &World) -> Vec<Expected> {
    let mut expected = Vec::new();
    let mut add = |flags: &[&str], lines, then: &str, state, attempts| {
        let task = world.script(flags, &counting(lines, then));
        expected.push(Expected { task, state, attempts, lines });
    };
    for lines in [20, 90, 160, 230] {
        add(&["done", "--review", "auto"], lines, "true", "COMPLETED", 1);
    }
    // Fails twice, and is begun again by itself.
    let flaky = "[ $BELAY_ATTEMPT -ge 3 ]";
    add(&["flaky", "--review", "auto", "--max-attempts", "3"], 30, flaky, "COMPLETED", 3);
    add(&["broken", "--max-attempts", "2"], 40, "exit 3", "FAILED", 2);
    let ask = "echo 'Which one?' > $BELAY_QUESTION_FILE";
    add(&["ask"], 50, ask, "BLOCKED", 1);
    add(&["ask"], 150, ask, "BLOCKED", 1);
    // Runs on until it is told: the same process, over all restarts.
    for _ in 0..2 {
        add(&["long"], 100, "reach counted; await go", "READY", 1);
    }
    expected
}

/// The agents that run for long, by their task.
fn agents(world: &World, long: &[&Expected]) -> BTreeMap<String, Seen> {
    let mut shells = world.sandboxed();
    shells.retain(|seen| seen.words.starts_with("sh -c") && seen.words.contains("reach counted"));
    let pids: Vec<_> = shells.iter().map(|seen| seen.pid).collect();
    let mut found = BTreeMap::new();
    // A shell's child has its words until it executes something.
    for seen in shells.into_iter().filter(|seen| !pids.contains(&seen.parent)) {
        let task = long.iter().find(|long| seen.task == long.task).expect("it is of a long one");
        let doubled = found.insert(task.task.clone(), seen);
        assert_eq!(doubled, None, "two agents run for {}", task.task);
    }
    found
}

#[track_caller]
fn everything_is_there(world: &World, expected: &[Expected]) {
    let count = world.cell("SELECT count(*) FROM tasks");
    assert_eq!(count, expected.len().to_string(), "a task is lost or doubled");
    for Expected { task, state, attempts, lines } in expected {
        world.reaches(task, state);
        world.settles(task);
        let found = world.attempts(task);
        assert_eq!(found.len(), *attempts, "{task} {state}: {found:?}");
        for attempt in 1..=u32::try_from(*attempts).unwrap() {
            let printed = world.transcript(task, attempt);
            let wanted: String =
                (1..=*lines).map(|line| format!("line {line} of {attempt}\n")).collect();
            assert_eq!(printed, wanted, "the lines of {task}, attempt {attempt}");
        }
    }
}

/// One load, with so many kills, at moments that the seed draws.
fn killed_at_random(seed: u64) {
    let world = World::new(&format!("{QUICK}\n[roles.default]\nworkers = 12"));
    let mut draw = Draw(seed | 1);
    let expected = load(&world);
    let long: Vec<&Expected> = expected.iter().filter(|task| task.state == "READY").collect();
    let mut first: BTreeMap<String, Seen> = BTreeMap::new();
    for _ in 0..KILLS {
        // This wait is the test's own chance, not a condition: when the server is killed.
        std::thread::sleep(Duration::from_millis(draw.below(250)));
        world.crash();
        for (task, seen) in agents(&world, &long) {
            let known = first.entry(task.clone()).or_insert_with(|| seen.clone());
            assert_eq!(*known, seen, "another process runs for {task}");
        }
        world.up();
    }
    for Expected { task, .. } in &long {
        world.reached(task, "counted");
    }
    let running = agents(&world, &long);
    assert_eq!(running.len(), long.len(), "what ran still runs: {running:?}");
    for (task, seen) in &first {
        assert_eq!(running.get(task), Some(seen), "it is the same process for {task}");
    }
    for Expected { task, .. } in &long {
        world.let_go(task, "go");
    }
    everything_is_there(&world, &expected);
    let since = Instant::now();
    wait_for("no process is left", || world.sandboxed().is_empty());
    assert!(since.elapsed() < Duration::from_secs(30));
    // What waits for a person still takes the answer, and goes on in the same session.
    for Expected { task, state, .. } in &expected {
        if *state == "BLOCKED" {
            let session = world.attempts(task)[0][4].clone();
            world.belay(&["answer", task, "that one"]).done();
            wait_for("the answer is taken up", || world.attempts(task).len() == 2);
            assert_eq!(world.attempts(task)[1][4], session);
        }
    }
}

#[test]
fn killed_at_random_1() {
    killed_at_random(0x9e37_79b9_7f4a_7c15);
}

#[test]
fn killed_at_random_2() {
    killed_at_random(0xd1b5_4a32_d192_ed03);
}

#[test]
fn killed_at_random_3() {
    killed_at_random(0x2545_f491_4f6c_dd1d);
}

#[test]
fn killed_at_random_4() {
    killed_at_random(0xa076_1d64_78bd_642f);
}

#[test]
fn killed_at_random_5() {
    killed_at_random(0xe703_7ed1_a0b4_28db);
}
