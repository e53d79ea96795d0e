//! Tasks that belong together: chains, subtasks, and the budget that they share.

use std::time::Duration;

use belay_api::port::{Ending, Left, Port, Report, Seen};
use belay_api::{Accept, Code, Continue, NewTask};
use belay_kernel::{Cause, Money, Usage};
use belay_store::Store;
use belay_store::rows::TaskRow;

use crate::support::{RUNNER, World, task, test};

#[test]
fn a_chain_runs_in_order_and_fails_together() {
    test(async {
        let world = World::new().await;
        let first = world.make(task("First")).await;
        let second = world.make(NewTask { after: vec![first], ..task("Second") }).await;
        let run = world.start().await;
        assert_eq!(run.who.task, first);
        assert_eq!(world.claim_by(RUNNER).await, None);
        world.fail(run.who, Cause::Refusal).await;
        assert_eq!(world.state(first).await, "FAILED refusal");
        assert_eq!(world.state(second).await, "FAILED dependency_failed");
        world.control.retry("ada", first).await.unwrap();
        world.tend().await;
        assert_eq!(world.state(second).await, "QUEUED requeued");
        let run = world.start().await;
        world.succeed(run.who).await;
        world.control.accept("ada", first, Accept::default()).await.unwrap();
        world.tend().await;
        assert_eq!(world.start().await.who.task, second);
    });
}

#[test]
fn a_parent_waits_for_its_subtasks_and_a_stop_ends_them() {
    test(async {
        let world = World::new().await;
        let parent = world.make(task("Parent")).await;
        let run = world.start().await;
        let child = world.make(NewTask { parent: Some(parent), ..task("Child") }).await;
        world.succeed(run.who).await;
        assert_eq!(world.state(parent).await, "BLOCKED succeeded");
        let run = world.start().await;
        assert_eq!(run.who.task, child);
        let left = Left { changed: true, summary: None };
        world.control.end(run.who, Ending::Succeeded(left)).await.unwrap();
        let before = world.control.why(parent).await.unwrap(); // nobody has told the parent yet
        assert_eq!(before.why.path, belay_kernel::why::LivePath::Named);
        world.terminate(run.who).await;
        assert_eq!(world.state(child).await, "COMPLETED succeeded");
        assert_eq!(world.state(parent).await, "READY subtasks_rested");
        let other = world.make(task("Other")).await;
        let below = world.make(NewTask { parent: Some(other), ..task("Below") }).await;
        world.control.stop("ada", other, Duration::ZERO).await.unwrap();
        world.tend().await;
        assert_eq!(world.state(below).await, "CANCELLED cancel");
    });
}

/// A success expects its task's row as it was when the subtasks were counted.
#[test]
fn a_new_subtask_overtakes_a_decision_about_its_parent() {
    test(async {
        let world = World::new().await;
        let parent = world.make(task("Parent")).await;
        let revision = async || {
            let rows = world.store.load::<TaskRow>(&[parent]).await.unwrap();
            rows[0].as_ref().unwrap().revision
        };
        let before = revision().await;
        world.make(NewTask { parent: Some(parent), ..task("Child") }).await;
        assert!(revision().await > before);
    });
}

#[test]
fn a_subtask_that_waits_for_its_parent_is_refused() {
    test(async {
        let world = World::new().await;
        let parent = world.make(task("Parent")).await;
        let new = NewTask { parent: Some(parent), after: vec![parent], ..task("Child") };
        let problem = world.control.create("ada", new).await.unwrap_err();
        assert_eq!(problem.code, Code::Refused);
        assert!(problem.detail.contains("wait for itself"), "{problem}");
    });
}

#[test]
fn a_budget_that_is_used_up_ends_the_whole_tree() {
    test(async {
        let world = World::new().await;
        let new = NewTask { budget_usd: Some(0.5), ..task("Spend") };
        let id = world.make(new).await;
        let run = world.start().await;
        let child = world.make(NewTask { parent: Some(id), ..task("Child") }).await;
        let usage = Usage { cost: Some(Money::from_micros(500_000)), ..Usage::default() };
        let report = Report { from: 0, bytes: b"$\n".to_vec(), seen: vec![Seen::Usage(usage)] };
        world.control.report(run.who, report).await.unwrap();
        world.tend().await;
        assert_eq!(world.state(id).await, "BUDGET_EXCEEDED budget");
        assert_eq!(world.state(child).await, "BUDGET_EXCEEDED budget");
        world.terminate(run.who).await;
        let follow = Continue { message: "A little more".into() };
        let view = world.control.follow("ada", id, follow).await.unwrap();
        assert_eq!(view.continues, Some(id));
    });
}
