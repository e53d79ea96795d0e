//! Silence: of an agent, of a runner, and of ourselves.

use belay_api::port::{Beat, Beaten, Port, Pulse};
use belay_api::{NewTask, Resume};
use belay_kernel::{HeartbeatStatus, RunnerId, Span};

use crate::beat;
use crate::support::{RUNNER, World, task, test};

#[test]
fn an_agent_that_never_says_anything_is_found_idle() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start_as(false).await;
        for _ in 0..19 {
            let pulse = Pulse { who: run.who, status: HeartbeatStatus::Idle, told: true };
            let beat = Beat { runner: RUNNER, attempts: vec![pulse] };
            world.control.beat(beat).await.unwrap();
            world.pass(Span::from_secs(10)).await;
        }
        assert_eq!(world.state(id).await, "FAILED idle_timeout");
    });
}

#[test]
fn silence_is_noticed_and_names_its_clock() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "x\n").await;
        world.pass(Span::from_millis(59_900)).await;
        assert_eq!(world.state(id).await, "RUNNING started");
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "TIMED_OUT inactivity");
        let why = world.control.why(id).await.unwrap();
        let text = why.sentences.join("\n");
        assert!(text.contains("inactivity"), "{text}");
        world.terminate(run.who).await;
        let view = world.control.resume("ada", id, Resume::default()).await.unwrap();
        assert_eq!(view.summary.state, "QUEUED");
    });
}

#[test]
fn silence_while_we_were_down_is_not_judged_before_the_runner_has_told_what_it_saw() {
    test(async {
        let mut world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "x\n").await;
        let found = world.restart(Span::from_mins(5)).await;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].who, found[0].acknowledged), (run.who, 2));
        let beaten = world.control.beat(beat(run.who, false)).await.unwrap();
        assert!(matches!(beaten[..], [Beaten::Current { .. }]));
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "RUNNING started"); // a beat says nothing of output
        let next = world.print(run.who, 2, "while you were away\n").await;
        world.control.beat(beat(run.who, true)).await.unwrap();
        world.pass(Span::from_secs(58)).await;
        assert_eq!(world.state(id).await, "RUNNING started");
        world.pass(Span::from_secs(3)).await;
        assert_eq!(world.state(id).await, "TIMED_OUT inactivity");
        assert_eq!(next, 22);
    });
}

#[test]
fn a_runner_that_has_nothing_new_to_tell_lets_the_clocks_go_on() {
    test(async {
        let mut world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "x\n").await;
        world.restart(Span::from_mins(5)).await;
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "RUNNING started");
        world.control.beat(beat(run.who, true)).await.unwrap();
        world.pass(Span::from_secs(57)).await;
        // Five minutes by the store's clock, which may have been set while nobody watched it.
        assert_eq!(world.state(id).await, "RUNNING started");
        world.pass(Span::from_secs(3)).await;
        assert_eq!(world.state(id).await, "TIMED_OUT inactivity");
    });
}

#[test]
fn a_claim_that_nobody_follows_up_is_taken_back() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { max_attempts: Some(2), ..task("Mend it") }).await;
        world.claim().await;
        world.pass(Span::from_mins(3)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
        assert!(world.control.why(id).await.unwrap().why.path != belay_kernel::why::LivePath::None);
    });
}

#[test]
fn a_claim_whose_answer_was_lost_is_taken_back_when_its_lease_is_over() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { max_attempts: Some(2), ..task("Mend it") }).await;
        let elsewhere = RunnerId::from_bits(8);
        let claimed = world.claim_by(elsewhere).await.unwrap();
        assert_eq!(claimed.lease, Span::from_secs(60));
        world.pass(Span::from_secs(61)).await;
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
    });
}
