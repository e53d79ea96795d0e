//! Agents that speak for themselves: what they tell becomes evidence, and nothing is taken twice.

mod support;

use std::time::Duration;

use belay_api::port::{Assignment, Who};
use belay_api::{AgentEvent, Code, EventsTaken, Heartbeat, NewTask, Problem, read_events};
use belay_kernel::sandbox::Status;
use belay_kernel::{HeartbeatStatus, SandboxId, Span, TaskId};
use belay_store::memory::{Fault, Operation};
use belay_store::rows::{AttemptRow, SandboxRow};
use belay_store::{Commit, Store};
use support::{World, task, test};

impl World {
    /// A task whose agent runs, and prints while it thinks.
    async fn run(&self) -> Assignment {
        self.make(task("Mend it.")).await;
        self.start().await
    }

    /// A task whose agent runs, and is silent while it thinks.
    async fn run_silent(&self) -> Assignment {
        self.make(task("Mend it.")).await;
        self.start_as(false).await
    }

    async fn tell(&self, run: &Assignment, body: &str) -> Result<EventsTaken, Problem> {
        let events = read_events(body.as_bytes()).unwrap();
        self.control.take_events(run.who, Some(run.sandbox), events, None).await
    }

    async fn beat(&self, run: &Assignment, status: HeartbeatStatus) -> Result<String, Problem> {
        let taken =
            self.control.take_heartbeat(run.who, Some(run.sandbox), Heartbeat { status }).await;
        taken.map(|taken| format!("{} {}", taken.state, taken.verdict))
    }

    async fn status(&self, sandbox: SandboxId) -> Status {
        let rows = self.store.load::<SandboxRow>(&[sandbox]).await.unwrap();
        rows[0].as_ref().unwrap().row.state.status()
    }

    /// The kinds of the agent's events, in order.
    async fn told(&self, task: TaskId) -> Vec<String> {
        let read = self.control.events(Some(task), None, Duration::ZERO).await.unwrap();
        let kinds = read.events.into_iter().map(|event| event.kind);
        kinds.filter(|kind| kind.starts_with("agent.")).collect()
    }

    /// From now on no runner has the attempt: its agent runs elsewhere.
    async fn leave_alone(&self, run: &Assignment) {
        let id = (run.who.task, run.who.attempt);
        let stored = self.store.load::<AttemptRow>(&[id]).await.unwrap().remove(0).unwrap();
        let row = AttemptRow { runner: None, ..stored.row };
        let commit = Commit::new().update(stored.revision, &row);
        assert!(Store::commit(&self.store, commit).await.unwrap().is_done());
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T, Problem>) -> Code {
    answer.unwrap_err().code
}

#[test]
fn completed_comes_many_times_and_work_after_it_resumes() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        for (kind, status) in [
            ("agent.thinking", Status::Running),
            ("agent.completed", Status::Completed),
            ("agent.completed", Status::Completed),
            ("agent.heartbeat", Status::Completed),
            ("agent.telepathy", Status::Resumed),
            ("agent.completed", Status::Completed),
            ("agent.tool_result", Status::Resumed),
        ] {
            world.tell(&run, &format!("{{\"kind\":\"{kind}\"}}")).await.unwrap();
            assert_eq!(world.status(run.sandbox).await, status, "{kind}");
        }
        assert_eq!(world.told(run.who.task).await.len(), 7);
    });
}

#[test]
fn what_was_told_before_is_known_and_a_gap_is_refused_whole() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        let numbered = |numbers: std::ops::RangeInclusive<u64>| {
            let events: Vec<_> =
                numbers.map(|n| format!("{{\"kind\":\"agent.e{n}\",\"seq\":{n}}}")).collect();
            format!("[{}]", events.join(","))
        };
        let taken = |taken, known, next| Ok(EventsTaken { taken, known, next });
        assert_eq!(world.tell(&run, &numbered(1..=3)).await, taken(3, 0, 4));
        assert_eq!(world.tell(&run, &numbered(1..=3)).await, taken(0, 3, 4), "told again");
        assert_eq!(world.tell(&run, &numbered(2..=5)).await, taken(2, 2, 6), "and more");
        let gap = world.tell(&run, &numbered(8..=9)).await.unwrap_err();
        assert_eq!((gap.code, gap.choices), (Code::OutOfOrder, vec!["6".to_owned()]));
        let expected: Vec<_> = (1..=5).map(|n| format!("agent.e{n}")).collect();
        assert_eq!(world.told(run.who.task).await, expected);
    });
}

#[test]
fn a_key_stands_for_its_request_and_for_no_other() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        let events = |kind: &str| read_events(format!("{{\"kind\":\"{kind}\"}}").as_bytes());
        let tell = async |kind: &str, key: &str| {
            let events: Vec<AgentEvent> = events(kind).unwrap();
            world.control.take_events(run.who, Some(run.sandbox), events, Some(key.into())).await
        };
        let first = tell("agent.one", "k").await;
        assert_eq!(tell("agent.one", "k").await, first, "the same answer");
        assert_eq!(code(tell("agent.two", "k").await), Code::IdempotencyKeyReused);
        tell("agent.one", &"k".repeat(200)).await.unwrap();
        assert_eq!(world.told(run.who.task).await, ["agent.one", "agent.one"]);
    });
}

#[test]
fn an_answer_of_the_store_that_is_lost_stores_nothing_twice() {
    test(async {
        for body in [r#"{"kind":"agent.one"}"#, r#"{"kind":"agent.one","seq":1}"#] {
            let world = World::new().await;
            let run = world.run().await;
            let mut lose = true;
            let script = move |operation| match operation {
                Operation::Commit if std::mem::take(&mut lose) => Fault::LoseReply,
                _ => Fault::None,
            };
            world.store.set_faults(Some(Box::new(script)));
            world.tell(&run, body).await.unwrap();
            assert_eq!(world.told(run.who.task).await, ["agent.one"], "{body}");
        }
    });
}

#[test]
fn who_speaks_for_what_is_over_is_told_so() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        let other = world.run().await;
        let foreign = Assignment { sandbox: other.sandbox, ..run.clone() };
        assert_eq!(code(world.tell(&foreign, "{\"kind\":\"x\"}").await), Code::Forbidden);
        let stale =
            Assignment { who: Who { epoch: belay_kernel::Epoch(0), ..run.who }, ..run.clone() };
        assert_eq!(code(world.tell(&stale, "{\"kind\":\"x\"}").await), Code::Fenced);
        world.control.stop("ada", run.who.task, Duration::ZERO).await.unwrap();
        assert_eq!(code(world.tell(&run, "{\"kind\":\"x\"}").await), Code::Fenced);
        assert_eq!(code(world.beat(&run, HeartbeatStatus::Idle).await), Code::Fenced);
        assert_eq!(world.told(run.who.task).await, [""; 0]);
        // A sandbox that is dead is gone.
        world.beat(&other, HeartbeatStatus::Failed).await.unwrap();
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.status(other.sandbox).await, Status::Dead);
        assert_eq!(world.state(other.who.task).await, "FAILED agent_failed");
        assert_eq!(code(world.tell(&other, "{\"kind\":\"x\"}").await), Code::Gone);
        assert_eq!(code(world.beat(&other, HeartbeatStatus::Running).await), Code::Gone);
    });
}

#[test]
fn beats_prove_life_and_events_prove_work() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        let task = run.who.task;
        assert_eq!(world.beat(&run, HeartbeatStatus::Idle).await.unwrap(), "RUNNING working");
        // Alive all the time, and idle all the time: rule 7.
        for _ in 0..3 {
            world.pass(Span::from_secs(50)).await;
            world.tell(&run, "{\"kind\":\"agent.thinking\"}").await.unwrap();
        }
        assert_eq!(world.state(task).await, "RUNNING started");
        world.pass(Span::from_secs(40)).await;
        assert_eq!(world.state(task).await, "FAILED idle_timeout");

        let run = world.run().await;
        for _ in 0..6 {
            world.tell(&run, "{\"kind\":\"agent.unheard_of\"}").await.unwrap();
            world.pass(Span::from_secs(50)).await;
        }
        assert_eq!(world.state(run.who.task).await, "RUNNING started", "any kind is work");
    });
}

#[test]
fn an_open_tool_call_holds_the_clocks_off() {
    test(async {
        let world = World::new().await;
        let run = world.run().await;
        let call = |kind| format!("{{\"kind\":\"{kind}\",\"call\":\"c1\"}}");
        world.tell(&run, &call("agent.tool_use")).await.unwrap();
        for _ in 0..5 {
            world.pass(Span::from_secs(50)).await;
            world.beat(&run, HeartbeatStatus::Running).await.unwrap();
        }
        assert_eq!(world.state(run.who.task).await, "RUNNING started");
        world.tell(&run, &call("agent.tool_result")).await.unwrap();
        world.pass(Span::from_secs(62)).await;
        assert_eq!(world.state(run.who.task).await, "TIMED_OUT inactivity");
    });
}

#[test]
fn an_agent_elsewhere_holds_its_lease_by_its_beats_and_succeeds_when_it_lingers_no_more() {
    test(async {
        let world = World::new().await;
        let (run, silent) = (world.run_silent().await, world.run_silent().await);
        world.leave_alone(&run).await;
        world.leave_alone(&silent).await;
        let work = "{\"kind\":\"agent.file_edited\"}";
        world.tell(&run, work).await.unwrap();
        world.tell(&silent, work).await.unwrap();
        for _ in 0..12 {
            world.pass(Span::from_secs(50)).await;
            world.beat(&run, HeartbeatStatus::Running).await.unwrap();
            world.tell(&run, work).await.unwrap();
        }
        assert_eq!(world.state(run.who.task).await, "RUNNING started");
        let lost = world.state(silent.who.task).await;
        assert!(!lost.starts_with("RUNNING"), "nobody beats for it: {lost}");
        world.tell(&run, "{\"kind\":\"agent.completed\"}").await.unwrap();
        for _ in 0..5 {
            world.pass(Span::from_secs(50)).await;
            world.beat(&run, HeartbeatStatus::Idle).await.unwrap();
        }
        assert_eq!(world.state(run.who.task).await, "RUNNING started", "it lingers");
        world.pass(Span::from_secs(55)).await;
        assert_eq!(world.state(run.who.task).await, "READY succeeded");
    });
}

#[test]
fn secrets_that_an_agent_tells_are_not_kept() {
    test(async {
        let world = World::new().await;
        let secret = "sesame-\"open\"-now";
        let environment = [("FARM_TOKEN".to_owned(), secret.to_owned())].into();
        world.make(NewTask { environment, ..task("Mend it.") }).await;
        let run = world.start().await;
        let data = serde_json::json!({ "ran": ["login", secret], "as": "belay_attempt_x_1_00ff" });
        let event = serde_json::json!({ "kind": "agent.tool_use", "data": data });
        world.tell(&run, &event.to_string()).await.unwrap();
        let read = world.control.events(Some(run.who.task), None, Duration::ZERO).await.unwrap();
        let told = read.events.into_iter().find(|event| event.kind == "agent.tool_use").unwrap();
        let (ran, by) = ("*".repeat(secret.len()), "*".repeat(22));
        assert_eq!(told.body, serde_json::json!({ "ran": ["login", ran], "as": by }));
    });
}
