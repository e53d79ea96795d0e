//! Each alert fires and clears, through control's own surface, on the in-memory store with time
//! that tests set; and the figures tell what happened.

mod support;

use std::cell::Cell;
use std::time::Duration;

use belay_api::port::{
    Assignment, Beat, ClaimRequest, Ending, Found, Hello, Left, Port, Pulse, Report, Seen, Start,
    Stepped, Who,
};
use belay_api::{Ask, NewTask};
use belay_control::{Control, Parts};
use belay_kernel::task::{Blocked, State};
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_kernel::{
    AttemptNumber, HeartbeatStatus, InstallationId, RunnerId, Span, TaskId, Timestamp, Usage,
};
use belay_store::rows::TaskRow;
use belay_store::{Commit, EventFilter, Memory, Store};
use support::parts;

const RUNNER: RunnerId = RunnerId::from_bits(7);

struct World {
    store: Memory,
    control: Control<Memory>,
    now: Cell<i64>,
}

impl World {
    async fn new() -> Self {
        let store = Memory::new(InstallationId::from_bits(1), 1);
        store.set_now(Timestamp::from_millis(1_000_000));
        let parts = Parts { embedded: Some(RUNNER), ..parts(&store, 0) };
        let control = Control::open(parts).await.unwrap();
        let world = Self { store, control, now: Cell::new(1_000_000) };
        world.join(RUNNER).await;
        world
    }

    async fn join(&self, runner: RunnerId) {
        let hello = Hello {
            runner,
            name: "here".into(),
            slots: 8,
            roles: vec!["default".into()],
            providers: vec!["process".into()],
            version: "1".into(),
        };
        self.control.join(hello).await.unwrap();
    }

    /// Lets time pass, and lets control do what there is to do.
    async fn pass(&self, span: Span) {
        self.now.set(self.now.get() + i64::try_from(span.as_millis()).unwrap());
        self.store.set_now(Timestamp::from_millis(self.now.get()));
        tokio::time::advance(Duration::from_millis(span.as_millis())).await;
        self.tend().await;
    }

    async fn tend(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(1_500), self.control.tend()).await;
    }

    async fn start(&self, new: NewTask) -> (TaskId, Assignment) {
        let id = self.control.create(Ask::by("ada"), new).await.unwrap().summary.id;
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        let run = self.control.claim(ask).await.unwrap().remove(0);
        let start = Start { token_hash: "h".into(), partial_output: true };
        self.control.start(run.who, start).await.unwrap();
        (id, run)
    }

    async fn beat(&self, runner: RunnerId, attempts: &[Who]) {
        let pulse = |who: &Who| Pulse { who: *who, status: HeartbeatStatus::Running, told: true };
        let attempts = attempts.iter().map(pulse).collect();
        self.control.beat(Beat { runner, attempts }).await.unwrap();
    }

    async fn terminate(&self, who: Who) {
        let mut saga = Termination::begin(Storage::Outlives);
        while saga.step != Step::Done {
            let found = match saga.step {
                Step::Kill => Found::Dead { processes: 3 },
                _ => Found::Nothing,
            };
            let stepped = Stepped { step: saga.step, went: Went::Done, found };
            saga = self.control.stepped(who, stepped).await.unwrap();
        }
        self.tend().await;
    }

    /// The alerts of one kind: their states, with their subjects.
    async fn alerts(&self, kind: &str) -> Vec<(String, String)> {
        let alerts = self.control.alerts().await.unwrap().alerts;
        let of = alerts.into_iter().filter(|alert| alert.kind.code() == kind);
        of.map(|alert| (alert.state, alert.subject)).collect()
    }

    async fn state(&self, kind: &str) -> String {
        self.alerts(kind).await.pop().map_or("none".to_owned(), |(state, _)| state)
    }

    /// How often an alert was told to have begun, and to be over.
    async fn told(&self, kind: &str) -> (usize, usize) {
        let oldest = self.store.oldest().await.unwrap();
        let events = self.store.events(oldest, EventFilter::default(), 10_000).await.unwrap();
        let count = |name: &str| {
            let of = |event: &&belay_store::Event| {
                event.event.kind == name && event.event.body.contains(kind)
            };
            events.events.iter().filter(of).count()
        };
        (count("alert.firing"), count("alert.cleared"))
    }

    async fn figure(&self, line: &str) -> String {
        let page = self.control.metrics().await.unwrap().text();
        let found = page.lines().find_map(|known| known.strip_prefix(line));
        found.unwrap_or("nothing").trim().to_owned()
    }
}

fn task() -> NewTask {
    NewTask { prompt: "Mend it".into(), ..NewTask::default() }
}

fn test<F: Future<Output = ()>>(body: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(body);
}

#[test]
fn stops_that_are_not_proven_in_time() {
    test(async {
        let world = World::new().await;
        let (id, run) = world.start(task()).await;
        world.control.stop(Ask::by("ada"), id, Duration::ZERO).await.unwrap();
        world.pass(Span::from_secs(59)).await;
        assert_eq!(world.state("stop_failures").await, "none");
        assert_eq!(world.figure("belay_stops_overdue").await, "0");
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state("stop_failures").await, "firing");
        assert_eq!(world.figure("belay_stops_overdue").await, "1");
        assert_eq!(world.figure("belay_alerts{kind=\"stop_failures\"}").await, "1");
        world.terminate(run.who).await;
        assert_eq!(world.state("stop_failures").await, "firing", "it was too late");
        assert_eq!(world.figure("belay_stops_total{result=\"failed\"}").await, "1");
        world.pass(Span::from_mins(66)).await;
        assert_eq!(world.state("stop_failures").await, "cleared");
        assert_eq!(world.told("stop_failures").await, (1, 1));
    });
}

#[test]
fn stops_that_are_proven_are_no_alert_and_are_measured() {
    test(async {
        let world = World::new().await;
        let (id, run) = world.start(task()).await;
        world.control.stop(Ask::by("ada"), id, Duration::ZERO).await.unwrap();
        world.pass(Span::from_secs(2)).await;
        world.terminate(run.who).await;
        assert_eq!(world.state("stop_failures").await, "none");
        assert_eq!(world.figure("belay_stops_total{result=\"proven\"}").await, "1");
        assert_eq!(world.figure("belay_stop_seconds_bucket{le=\"1\"}").await, "0");
        assert_eq!(world.figure("belay_stop_seconds_bucket{le=\"2.5\"}").await, "1");
        assert_eq!(world.figure("belay_tasks{state=\"CANCELLED\"}").await, "1");
        assert_eq!(world.figure("belay_tasks_created_total").await, "1");
    });
}

#[test]
fn inactivity_timeouts() {
    test(async {
        let world = World::new().await;
        let (_, run) = world.start(task()).await;
        let report = Report { from: 0, bytes: b"x\n".to_vec(), seen: vec![] };
        world.control.report(run.who, report).await.unwrap();
        world.beat(RUNNER, &[run.who]).await;
        world.tend().await;
        assert_eq!(world.state("inactivity_timeouts").await, "none");
        world.pass(Span::from_secs(45)).await;
        world.beat(RUNNER, &[run.who]).await;
        world.pass(Span::from_secs(20)).await;
        world.tend().await;
        assert_eq!(world.figure("belay_timeouts_total{clock=\"inactivity\"}").await, "1");
        assert_eq!(world.state("inactivity_timeouts").await, "firing");
        world.terminate(run.who).await;
        assert_eq!(world.figure("belay_timeout_cleanups_total{result=\"proven\"}").await, "1");
        world.pass(Span::from_mins(66)).await;
        assert_eq!(world.state("inactivity_timeouts").await, "cleared");
        assert_eq!(world.told("inactivity_timeouts").await, (1, 1));
    });
}

#[test]
fn a_sandbox_that_its_runner_does_not_have() {
    test(async {
        let world = World::new().await;
        let (_, run) = world.start(task()).await;
        world.pass(Span::from_secs(1)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        assert_eq!(world.state("sandbox_missing").await, "pending");
        world.pass(Span::from_mins(60 * 24 - 1)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        assert_eq!(world.state("sandbox_missing").await, "pending");
        world.pass(Span::from_mins(2)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        let subject = run.sandbox.to_string();
        assert_eq!(world.alerts("sandbox_missing").await, [("firing".to_owned(), subject)]);
        world.beat(RUNNER, &[]).await;
        world.pass(Span::from_mins(5)).await;
        assert_eq!(world.state("sandbox_missing").await, "firing", "nobody has said otherwise");
        world.terminate(run.who).await;
        assert_eq!(world.state("sandbox_missing").await, "cleared");
        assert_eq!(world.told("sandbox_missing").await, (1, 1));
    });
}

#[test]
fn a_runner_that_joins_again_and_again() {
    test(async {
        let world = World::new().await;
        world.join(RUNNER).await;
        world.tend().await;
        assert_eq!(world.state("workers_flapping").await, "none");
        world.join(RUNNER).await;
        world.tend().await;
        let expected = [("firing".to_owned(), RUNNER.to_string())];
        assert_eq!(world.alerts("workers_flapping").await, expected);
        assert_eq!(world.figure("belay_runner_joins_total").await, "3");
        world.pass(Span::from_mins(6)).await;
        assert_eq!(world.state("workers_flapping").await, "cleared");
        assert_eq!(world.told("workers_flapping").await, (1, 1));
    });
}

#[test]
fn a_budget_that_is_nearly_used() {
    test(async {
        let world = World::new().await;
        let new = NewTask { max_tokens: Some(1_000), ..task() };
        let (id, run) = world.start(new).await;
        let used = |tokens| Seen::Usage(Usage { output_tokens: tokens, ..Usage::default() });
        let report =
            |from, tokens| Report { from, bytes: b"x\n".to_vec(), seen: vec![used(tokens)] };
        world.control.report(run.who, report(0, 799)).await.unwrap();
        world.tend().await;
        assert_eq!(world.state("budget_nearly_used").await, "none");
        world.control.report(run.who, report(2, 800)).await.unwrap();
        world.tend().await;
        let expected = [("firing".to_owned(), id.to_string())];
        assert_eq!(world.alerts("budget_nearly_used").await, expected);
        let left = Left { changed: true, summary: None };
        world.control.end(run.who, Ending::Succeeded(left)).await.unwrap();
        world.terminate(run.who).await;
        assert_eq!(world.state("budget_nearly_used").await, "cleared");
        assert_eq!(world.told("budget_nearly_used").await, (1, 1));
    });
}

#[test]
fn most_runners_fall_silent_together() {
    test(async {
        let world = World::new().await;
        let others = [11, 12, 13].map(RunnerId::from_bits);
        for runner in others {
            world.join(runner).await;
        }
        world.pass(Span::from_secs(85)).await;
        assert_eq!(world.state("mass_death").await, "none");
        world.beat(RUNNER, &[]).await;
        world.pass(Span::from_secs(6)).await;
        assert_eq!(world.state("mass_death").await, "firing");
        for runner in others {
            world.beat(runner, &[]).await;
        }
        world.tend().await;
        assert_eq!(world.state("mass_death").await, "cleared");
        assert_eq!(world.told("mass_death").await, (1, 1));
    });
}

#[test]
fn a_task_that_nothing_will_move_on() {
    test(async {
        let world = World::new().await;
        let new = NewTask { hold: true, ..task() };
        let id = world.control.create(Ask::by("ada"), new).await.unwrap().summary.id;
        // No decision leads here: it waits for subtasks, and has none.
        let set = async |state: State| {
            let mut stored = world.store.load::<TaskRow>(&[id]).await.unwrap().remove(0).unwrap();
            stored.row.task.state = state;
            stored.row.task.attempts = AttemptNumber(1);
            let commit = Commit::new().update(stored.revision, &stored.row);
            assert!(world.store.commit(commit).await.unwrap().is_done());
        };
        set(State::Blocked(Blocked::Subtasks { attempt: AttemptNumber(1) })).await;
        world.tend().await;
        assert_eq!(world.state("no_live_path").await, "pending");
        world.pass(Span::from_secs(61)).await;
        let expected = [("firing".to_owned(), id.to_string())];
        assert_eq!(world.alerts("no_live_path").await, expected);
        set(State::Cancelled).await;
        world.tend().await;
        assert_eq!(world.state("no_live_path").await, "cleared");
        assert_eq!(world.told("no_live_path").await, (1, 1));
    });
}

#[test]
fn a_restart_neither_repeats_nor_forgets_and_counts_nothing_twice() {
    test(async {
        let world = World::new().await;
        for _ in 0..3 {
            world.join(RUNNER).await;
        }
        world.tend().await;
        let second = Control::open(parts(&world.store, 1_000)).await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(1_500), second.tend()).await;
        assert_eq!(world.told("workers_flapping").await, (1, 0));
        let page = second.metrics().await.unwrap().text();
        assert!(page.contains("\nbelay_runner_joins_total 4\n"), "{page}");
        assert!(page.contains("\nbelay_alerts{kind=\"workers_flapping\"} 1\n"), "{page}");
    });
}

/// That the rules name figures that there are is seen at the server, which tells them.
#[test]
fn every_alert_has_a_rule() {
    let rules = include_str!("../../../deploy/prometheus/belay.rules.yml");
    for kind in belay_kernel::alert::Kind::ALL {
        assert!(rules.contains(&format!("kind: {kind} }}")), "{kind} has no rule");
    }
}
