//! Clocks that are set, and runners that are not there any more: what is judged, and who does what
//! they leave. Found by the simulator with several machines.

mod support;

use std::time::Duration;

use belay_api::port::{Assignment, Beat, Duty, Ending, Found, Left, Port, Pulse, Stepped};
use belay_api::{NewTask, Resume, Stopping};
use belay_control::Control;
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::receipt::TranscriptSeal;
use belay_kernel::termination::{Step, Went};
use belay_kernel::{Cause, HeartbeatStatus, RunnerId, Span, TaskId};
use belay_store::memory::Fault;
use belay_store::{Holder, Memory, Store};
use support::{RUNNER as HERE, World, commit, task, test};

const THERE: RunnerId = RunnerId::from_bits(8);

/// Two machines, neither of them the node's.
async fn world() -> World {
    let world = World::remote().await;
    world.join(THERE).await;
    world
}

impl World {
    /// Time passes, and control looks at what is due. Only the other runner beats.
    async fn pass_there(&self, span: Span) {
        let mut left = span.as_millis();
        while left > 0 {
            let step = left.min(20_000);
            left -= step;
            self.set_ahead(Span::from_millis(step));
            tokio::time::advance(Duration::from_millis(step)).await;
            self.control.beat(Beat { runner: THERE, attempts: Vec::new() }).await.unwrap();
            let tending = self.control.tend();
            let _ = tokio::time::timeout(Duration::from_millis(10), tending).await;
        }
    }

    /// What is said of a task's state, a line each.
    async fn why(&self, id: TaskId) -> String {
        self.control.why(id).await.unwrap().sentences.join("\n")
    }

    /// A task whose first attempt is on the first machine and has printed something.
    async fn run(&self) -> (TaskId, Assignment) {
        let repository = Some("sim://repo".into());
        let id = self.make(NewTask { repository, max_attempts: Some(2), ..task("Mend it") }).await;
        let run = self.start_as(false).await;
        self.print(run.who, 0, "abc\n").await;
        (id, run)
    }
}

#[test]
fn a_clock_that_is_set_ahead_ends_no_lease_and_makes_nobody_silent() {
    test(async {
        let world = world().await;
        let (id, _) = world.run().await;
        world.pass_there(Span::from_secs(20)).await;
        world.set_ahead(Span::from_mins(90));
        world.pass_there(Span::from_secs(30)).await;
        assert_eq!(world.state(id).await, "RUNNING started", "its lease lasts half a minute more");
        world.pass_there(Span::from_secs(60)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying", "and then it is over");
    });
}

#[test]
fn a_clock_that_is_set_before_a_node_begins_to_look_is_known_to_have_jumped() {
    test(async {
        let world = world().await;
        let (id, _) = world.run().await;
        let tend = |node: Control<Memory>| tokio::spawn(async move { node.tend().await });
        let mut tending = vec![tend(world.control.clone())];
        live(&world, 20).await;
        let other = world.another_node().await;
        world.set_ahead(Span::from_mins(90));
        // The first one stays, so that the other finds no time in which nobody was there.
        live(&world, 6).await;
        tending.push(tend(other));
        live(&world, 20).await;
        assert_eq!(world.state(id).await, "RUNNING started", "its lease is not over");
        tending.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn a_clock_that_is_set_while_no_node_is_there_makes_nobody_silent() {
    test(async {
        let mut world = world().await;
        let (id, run) = world.run().await;
        world.pass_there(Span::from_secs(20)).await;
        world.set_ahead(Span::from_mins(90));
        world.control = world.another_node().await;
        let pulse = Pulse { who: run.who, status: HeartbeatStatus::Running, told: true };
        for _ in 0..10 {
            let beat = Beat { runner: HERE, attempts: vec![pulse] };
            world.control.beat(beat).await.unwrap();
            assert_eq!(world.state(id).await, "RUNNING started");
            world.pass_there(Span::from_secs(50)).await;
        }
        world.pass_there(Span::from_mins(3)).await;
        assert_ne!(world.state(id).await, "RUNNING started", "and then it is silent indeed");
    });
}

#[test]
fn a_runner_is_told_what_is_its_to_do_however_nodes_look_in_step() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        let other = world.another_node().await;
        // The other node looks first, and the runner listens to this one.
        let nodes = [other.clone(), world.control.clone()];
        let tending = nodes.map(|node| tokio::spawn(async move { node.tend().await }));
        other.stop("ada", id, Duration::ZERO).await.unwrap();
        let listening = async {
            loop {
                let duties = world.control.duties(HERE, Span::from_secs(1)).await.unwrap();
                let ends = |duty: &Duty| matches!(duty, Duty::End(of) if of.who == run.who);
                if duties.iter().any(ends) {
                    return;
                }
                world.set_ahead(Span::from_secs(1));
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(120), listening).await;
        tending.iter().for_each(tokio::task::JoinHandle::abort);
        assert!(told.is_ok(), "nobody told the runner");
    });
}

#[test]
fn a_node_that_has_just_come_up_does_not_put_off_one_that_has_seen_a_lease_end() {
    test(async {
        let world = world().await;
        let id = world.make(task("Mend it")).await;
        // Whose answer is lost: nobody goes on with it.
        world.claim().await;
        world.pass_there(Span::from_secs(59)).await;
        let young = world.another_node().await;
        for _ in 0..4 {
            world.set_ahead(Span::from_secs(2));
            tokio::time::advance(Duration::from_secs(2)).await;
            let _ = tokio::time::timeout(Duration::from_millis(10), young.tend()).await;
        }
        assert_eq!(world.state(id).await, "CLAIMED claimed", "it has not seen a whole lease");
        world.pass_there(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
    });
}

/// The end of an agent that changed something before it failed.
fn failed(cause: Cause) -> Ending {
    Ending::Failed {
        cause,
        message: "it fell".into(),
        resets_at: None,
        conversation_lost: false,
        left: Left { changed: true, summary: None },
    }
}

/// The world's time goes by, second for second, while whoever was spawned does what is due.
async fn live(world: &World, seconds: u64) {
    for _ in 0..seconds {
        world.set_ahead(Span::from_secs(1));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn a_node_that_comes_back_to_its_store_judges_no_silence_before_it_has_said_so() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        let control = world.control.clone();
        let tending = tokio::spawn(async move { control.tend().await });
        let pulse = Pulse { who: run.who, status: HeartbeatStatus::Running, told: true };
        let beat = || Beat { runner: HERE, attempts: vec![pulse] };
        world.control.beat(beat()).await.unwrap();
        live(&world, 56).await;
        // It beats, and its lease is renewed; whoever took it can write nothing down any more.
        world.store.set_faults(Some(Box::new(|_| Fault::LoseReply)));
        world.control.beat(beat()).await.unwrap_err();
        world.store.set_faults(Some(Box::new(|_| Fault::Fail)));
        live(&world, 36).await;
        world.store.set_faults(None);
        live(&world, 10).await;
        assert_eq!(world.state(id).await, "RUNNING started", "we were away for half a minute");
        tending.abort();
    });
}

#[test]
fn a_push_is_settled_by_another_runner_while_its_own_is_away() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        let push = Push { commit: commit(1), expected: None };
        world.control.open_publish(run.who, push).await.unwrap();
        world.pass_there(Span::from_mins(3)).await;
        let duties = world.control.duties(THERE, Span::ZERO).await.unwrap();
        let settles = |duty: &Duty| matches!(duty, Duty::Settle(of) if of.who == run.who);
        assert!(duties.iter().any(settles), "{duties:?}");
        let left = Left { changed: true, summary: None };
        world.control.settled(run.who, PushOutcome::Pushed, left).await.unwrap();
        assert_eq!(world.state(id).await, "READY succeeded");
    });
}

#[test]
fn what_a_lost_machine_has_is_given_up_and_its_task_goes_on_elsewhere() {
    test(async {
        let world = world().await;
        let (id, first) = world.run().await;
        world.pass_there(Span::from_mins(3)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
        assert_eq!(world.claim_by(THERE).await, None, "the machine with the tree may come back");
        let why = world.why(id).await;
        let waits = format!("Waits for the runner `{HERE}`, which holds its tree; from 00:2");
        assert!(why.contains(&waits), "{why}");
        world.pass_there(Span::from_mins(12)).await;
        assert!(world.why(id).await.contains("Waits for a free worker of its role."));
        let second = world.claim_by(THERE).await.expect("nobody waits for the machine any more");
        assert_eq!((second.who.task, second.session), (id, first.session));
        let events = world.control.events(Some(id), None, Duration::ZERO).await.unwrap();
        let given_up = events.events.iter().find(|event| event.kind == "attempt.abandoned");
        let missing = given_up.map(|event| event.body["missing"][0].to_string());
        assert_eq!(missing.as_deref(), Some("\"4-9223372036854775807\""));
    });
}

#[test]
fn a_task_says_which_of_two_machines_it_waits_for() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        world.control.end(run.who, failed(Cause::Crash)).await.unwrap();
        world.terminate(run.who).await;
        world.pass_there(Span::from_secs(40)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
        let why = world.why(id).await;
        assert!(why.contains(&format!("Waits for the runner `{HERE}`, which holds")), "{why}");
        assert_eq!(world.claim_by(THERE).await, None);
        assert!(world.claim_by(HERE).await.is_some());
    });
}

#[test]
fn a_task_says_that_nobody_is_there_who_could_take_it() {
    test(async {
        let world = world().await;
        let id = world.make(task("Mend it")).await;
        let nobody = "No runner that works for the role `default` is there";
        assert!(!world.why(id).await.contains(nobody));
        world.pass_there(Span::from_mins(5)).await;
        assert!(!world.why(id).await.contains(nobody), "one of two is there");
        world.pass(Span::from_mins(5)).await;
        let why = world.why(id).await;
        assert!(why.contains(nobody), "{why}");
    });
}

#[test]
fn what_a_lost_machine_has_frozen_is_given_up_too() {
    test(async {
        let world = world().await;
        let id = world.make(NewTask { keep_alive: true, ..task("Mend it") }).await;
        let run = world.start_as(false).await;
        world.print(run.who, 0, "abc\n").await;
        world.control.freezing(run.who).await.unwrap();
        world.control.end(run.who, Ending::Succeeded(Left::default())).await.unwrap();
        for step in [Step::Freeze, Step::SaveTranscript, Step::SaveTree] {
            let stepped = Stepped { step, went: Went::Done, found: Found::Nothing };
            world.control.stepped(run.who, stepped).await.unwrap();
        }
        assert_eq!(world.state(id).await, "READY succeeded");
        world.pass_there(Span::from_mins(1)).await;
        let stopping = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert!(matches!(stopping, Stopping::Stopping { .. }), "it is frozen: {stopping:?}");
        world.control.resume("ada", id, Resume::default()).await.unwrap();
        assert!(world.claim_by(THERE).await.is_none(), "its session is not free");
        world.pass_there(Span::from_mins(12)).await;
        assert!(world.claim_by(THERE).await.is_some(), "the machine is taken for lost");
    });
}

#[test]
fn a_beat_whose_words_are_lost_is_a_sign_of_life() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        for _ in 0..6 {
            let holder = Holder::Attempt(run.who.task, run.who.attempt);
            let now = world.now();
            let until = now.after(Span::from_secs(60));
            let beat = belay_store::Beat { holder, fence: run.who.epoch.to_string(), until };
            world.store.beat(vec![beat], now).await.unwrap();
            world.pass_there(Span::from_secs(20)).await;
        }
        assert_eq!(world.state(id).await, "RUNNING started", "its runner beats");
    });
}

#[test]
fn a_sandbox_that_is_gone_ends_with_what_it_is_missing_named() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        // The runner does not know yet how much is durable; the sandbox had more than anybody has.
        let missing = vec![(2, i64::MAX as u64)];
        let lost = TranscriptSeal { length: 2, hash: String::new(), missing };
        let mut step = Step::Kill;
        while step != Step::Done {
            let found = match step {
                Step::SaveTranscript => Found::Transcript(lost.clone()),
                _ => Found::Nothing,
            };
            let stepped = Stepped { step, went: Went::Done, found };
            step = world.control.stepped(run.who, stepped).await.unwrap().step;
        }
        let stopping = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let Stopping::Stopped { receipt } = stopping else { panic!("{stopping:?}") };
        let seal = receipt.receipt.transcript.unwrap();
        assert_eq!((seal.length, seal.missing), (4, vec![(4, i64::MAX as u64)]));
    });
}

#[test]
fn a_stop_reaches_a_runner_that_listens_to_another_node() {
    test(async {
        let world = world().await;
        let other = world.another_node().await;
        let (id, run) = world.run().await;
        let listening = other.clone();
        let heard = tokio::spawn(async move {
            loop {
                let duties = listening.duties(HERE, Span::from_secs(20)).await.unwrap();
                let ends = |duty: &Duty| matches!(duty, Duty::End(of) if of.who == run.who);
                if duties.iter().any(ends) {
                    return;
                }
            }
        });
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let mut nodes = [&world.control, &other];
        for _ in 0..20 {
            world.set_ahead(Span::from_millis(500));
            for node in nodes {
                let _ = tokio::time::timeout(Duration::from_millis(250), node.tend()).await;
            }
            nodes.reverse(); // neither is always the first to look
        }
        assert!(heard.is_finished(), "ten seconds are enough");
    });
}

#[test]
fn whoever_tries_an_account_first_and_is_stopped_lets_the_others_go() {
    test(async {
        let world = world().await;
        let (id, run) = world.run().await;
        world.control.end(run.who, failed(Cause::UsageLimit)).await.unwrap();
        assert_eq!(world.state(id).await, "QUEUED retrying");
        world.pass_there(Span::from_mins(31)).await;
        let next = world.make(task("Mend more")).await;
        let first = world.claim_by(THERE).await.expect("one goes first").who.task;
        assert_eq!(world.claim_by(THERE).await, None, "and the other waits for how that goes");
        let waiting = if first == id { next } else { id };
        let why = world.why(waiting).await;
        assert!(why.contains(&format!("task {first}, which tries the account first")), "{why}");
        world.control.stop("ada", first, Duration::ZERO).await.unwrap();
        let second = world.claim_by(THERE).await.expect("it may go now");
        assert!(second.who.task != first && [id, next].contains(&second.who.task));
    });
}
