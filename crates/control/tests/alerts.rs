//! Each alert fires and clears, through control's own surface, on the in-memory store with time
//! that tests set; and the figures tell what happened.

mod support;

use std::time::Duration;

use belay_api::NewTask;
use belay_api::port::{Assignment, Beat, Ending, Left, Port, Pulse, Report, Seen, Who};
use belay_kernel::task::{Blocked, State};
use belay_kernel::{AttemptNumber, HeartbeatStatus, RunnerId, Span, Usage};
use belay_store::rows::TaskRow;
use belay_store::{Commit, EventFilter, Store};
use support::{RUNNER, World, task, test};

impl World {
    /// A task whose agent runs.
    async fn run(&self, new: NewTask) -> Assignment {
        self.make(new).await;
        self.start().await
    }

    async fn beat(&self, runner: RunnerId, attempts: &[Who]) {
        let pulse = |who: &Who| Pulse { who: *who, status: HeartbeatStatus::Running, told: true };
        let attempts = attempts.iter().map(pulse).collect();
        self.control.beat(Beat { runner, attempts }).await.unwrap();
    }

    /// The alerts of one kind: their states, with their subjects.
    async fn alerts(&self, kind: &str) -> Vec<(String, String)> {
        let alerts = self.control.alerts().await.unwrap().alerts;
        let of = alerts.into_iter().filter(|alert| alert.kind.code() == kind);
        of.map(|alert| (alert.state, alert.subject)).collect()
    }

    async fn alert(&self, kind: &str) -> String {
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

#[test]
fn stops_that_are_not_proven_in_time() {
    test(async {
        let world = World::new().await;
        let run = world.run(task("Mend it")).await;
        world.control.stop("ada", run.who.task, Duration::ZERO).await.unwrap();
        world.pass(Span::from_secs(59)).await;
        assert_eq!(world.alert("stop_failures").await, "none");
        assert_eq!(world.figure("belay_stops_overdue").await, "0");
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.alert("stop_failures").await, "firing");
        assert_eq!(world.figure("belay_stops_overdue").await, "1");
        assert_eq!(world.figure("belay_alerts{kind=\"stop_failures\"}").await, "1");
        world.terminate(run.who).await;
        assert_eq!(world.alert("stop_failures").await, "firing", "it was too late");
        assert_eq!(world.figure("belay_stops_total{result=\"failed\"}").await, "1");
        world.pass(Span::from_mins(66)).await;
        assert_eq!(world.alert("stop_failures").await, "cleared");
        assert_eq!(world.told("stop_failures").await, (1, 1));
    });
}

#[test]
fn stops_that_are_proven_are_no_alert_and_are_measured() {
    test(async {
        let world = World::new().await;
        let run = world.run(task("Mend it")).await;
        world.control.stop("ada", run.who.task, Duration::ZERO).await.unwrap();
        world.pass(Span::from_secs(2)).await;
        world.terminate(run.who).await;
        assert_eq!(world.alert("stop_failures").await, "none");
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
        let run = world.run(task("Mend it")).await;
        world.print(run.who, 0, "x\n").await;
        world.beat(RUNNER, &[run.who]).await;
        world.tend().await;
        assert_eq!(world.alert("inactivity_timeouts").await, "none");
        world.pass(Span::from_secs(45)).await;
        world.beat(RUNNER, &[run.who]).await;
        world.pass(Span::from_secs(20)).await;
        world.tend().await;
        assert_eq!(world.figure("belay_timeouts_total{clock=\"inactivity\"}").await, "1");
        assert_eq!(world.alert("inactivity_timeouts").await, "firing");
        world.terminate(run.who).await;
        assert_eq!(world.figure("belay_timeout_cleanups_total{result=\"proven\"}").await, "1");
        world.pass(Span::from_mins(66)).await;
        assert_eq!(world.alert("inactivity_timeouts").await, "cleared");
        assert_eq!(world.told("inactivity_timeouts").await, (1, 1));
    });
}

#[test]
fn a_sandbox_that_its_runner_does_not_have() {
    test(async {
        let world = World::new().await;
        let run = world.run(task("Mend it")).await;
        world.pass(Span::from_secs(1)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        assert_eq!(world.alert("sandbox_missing").await, "pending");
        world.pass(Span::from_mins(60 * 24 - 1)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        assert_eq!(world.alert("sandbox_missing").await, "pending");
        world.pass(Span::from_mins(2)).await;
        world.control.sweep(RUNNER, vec![]).await.unwrap();
        world.tend().await;
        let subject = run.sandbox.to_string();
        assert_eq!(world.alerts("sandbox_missing").await, [("firing".to_owned(), subject)]);
        world.beat(RUNNER, &[]).await;
        world.pass(Span::from_mins(5)).await;
        assert_eq!(world.alert("sandbox_missing").await, "firing", "nobody has said otherwise");
        world.terminate(run.who).await;
        assert_eq!(world.alert("sandbox_missing").await, "cleared");
        assert_eq!(world.told("sandbox_missing").await, (1, 1));
    });
}

#[test]
fn a_runner_that_joins_again_and_again() {
    test(async {
        let world = World::new().await;
        world.join(RUNNER).await;
        world.tend().await;
        assert_eq!(world.alert("workers_flapping").await, "none");
        world.join(RUNNER).await;
        world.tend().await;
        let expected = [("firing".to_owned(), RUNNER.to_string())];
        assert_eq!(world.alerts("workers_flapping").await, expected);
        assert_eq!(world.figure("belay_runner_joins_total").await, "3");
        world.pass(Span::from_mins(6)).await;
        assert_eq!(world.alert("workers_flapping").await, "cleared");
        assert_eq!(world.told("workers_flapping").await, (1, 1));
    });
}

#[test]
fn a_budget_that_is_nearly_used() {
    test(async {
        let world = World::new().await;
        let new = NewTask { max_tokens: Some(1_000), ..task("Mend it") };
        let run = world.run(new).await;
        let used = |tokens| Seen::Usage(Usage { output_tokens: tokens, ..Usage::default() });
        let report =
            |from, tokens| Report { from, bytes: b"x\n".to_vec(), seen: vec![used(tokens)] };
        world.control.report(run.who, report(0, 799)).await.unwrap();
        world.tend().await;
        assert_eq!(world.alert("budget_nearly_used").await, "none");
        world.control.report(run.who, report(2, 800)).await.unwrap();
        world.tend().await;
        let expected = [("firing".to_owned(), run.who.task.to_string())];
        assert_eq!(world.alerts("budget_nearly_used").await, expected);
        let left = Left { changed: true, summary: None };
        world.control.end(run.who, Ending::Succeeded(left)).await.unwrap();
        world.terminate(run.who).await;
        assert_eq!(world.alert("budget_nearly_used").await, "cleared");
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
        assert_eq!(world.alert("mass_death").await, "none");
        world.beat(RUNNER, &[]).await;
        world.pass(Span::from_secs(6)).await;
        assert_eq!(world.alert("mass_death").await, "firing");
        for runner in others {
            world.beat(runner, &[]).await;
        }
        world.tend().await;
        assert_eq!(world.alert("mass_death").await, "cleared");
        assert_eq!(world.told("mass_death").await, (1, 1));
    });
}

#[test]
fn a_task_that_nothing_will_move_on() {
    test(async {
        let world = World::new().await;
        let new = NewTask { hold: true, ..task("Mend it") };
        let id = world.make(new).await;
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
        assert_eq!(world.alert("no_live_path").await, "pending");
        world.pass(Span::from_secs(61)).await;
        let expected = [("firing".to_owned(), id.to_string())];
        assert_eq!(world.alerts("no_live_path").await, expected);
        set(State::Cancelled).await;
        world.tend().await;
        assert_eq!(world.alert("no_live_path").await, "cleared");
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
        let second = world.another_node().await;
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
