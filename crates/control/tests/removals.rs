//! Removing tasks: everything of them goes, whoever falls meanwhile, and nobody waits for them.

mod support;

use std::time::Duration;

use belay_api::port::{Ending, Left, Port, Who};
use belay_api::{Ask, Code, Continue, NewTask};
use belay_kernel::Cause;
use belay_kernel::task::Review;
use belay_store::blob::{BlobKey, BlobKind};
use support::{World, kept, test};

fn task() -> NewTask {
    NewTask { review: Review::Auto, ..support::task("Mend it") }
}

/// The attempt ends so and is brought to its end; nobody is told of it yet.
async fn end(world: &World, who: Who, ending: Ending) {
    world.control.end(who, ending).await.unwrap();
    world.step_through(who).await;
}

fn succeeded() -> Ending {
    Ending::Succeeded(Left { changed: true, summary: None })
}

fn failed() -> Ending {
    Ending::Failed {
        cause: Cause::Auth,
        message: "it broke".into(),
        resets_at: None,
        conversation_lost: false,
        left: Left { changed: true, summary: None },
    }
}

#[test]
fn a_parent_does_not_wait_for_a_subtask_that_was_removed_before_it_could_tell() {
    test(async {
        let world = World::new().await;
        let parent = world.make(task()).await;
        let first = world.start().await;
        let below = world.make(NewTask { parent: Some(parent), ..task() }).await;
        end(&world, first.who, succeeded()).await;
        world.tend().await;
        assert!(world.state(parent).await.starts_with("BLOCKED"), "it waits for its subtask");
        let second = world.start().await;
        assert_eq!(second.who.task, below);
        end(&world, second.who, succeeded()).await;
        assert!(world.state(below).await.starts_with("COMPLETED"));
        world.control.delete("ada", &below.to_string()).await.unwrap();
        world.tend().await;
        assert!(world.state(parent).await.starts_with("COMPLETED"));
    });
}

#[test]
fn a_task_is_not_removed_while_another_waits_for_something_below_it() {
    test(async {
        let world = World::new().await;
        let parent = world.make(NewTask { hold: true, ..task() }).await;
        let below = world.make(NewTask { hold: true, parent: Some(parent), ..task() }).await;
        let waiting = world.make(NewTask { after: vec![below], ..task() }).await;
        let refused = world.control.delete("ada", &parent.to_string()).await.unwrap_err();
        assert_eq!(refused.code, Code::IllegalMove, "{waiting} would wait for ever");
        world.control.stop("ada", waiting, Duration::ZERO).await.unwrap();
        world.control.delete("ada", &parent.to_string()).await.unwrap();
    });
}

#[test]
fn whoever_failed_for_a_removed_task_does_not_wait_for_it_when_tried_again() {
    test(async {
        let world = World::new().await;
        let first = world.make(task()).await;
        let waiting = world.make(NewTask { after: vec![first], ..task() }).await;
        let run = world.start().await;
        end(&world, run.who, failed()).await;
        world.tend().await;
        assert_eq!(world.state(waiting).await, "FAILED dependency_failed");
        world.control.delete("ada", &first.to_string()).await.unwrap();
        world.tend().await;
        world.control.retry("ada", waiting).await.unwrap();
        assert_eq!(world.claim().await.who.task, waiting);
    });
}

#[test]
fn a_task_is_not_removed_while_another_goes_on_with_what_only_it_has_kept() {
    test(async {
        let world = World::new().await;
        let first = world.make(task()).await;
        let run = world.start().await;
        end(&world, run.who, succeeded()).await;
        let message = "Now paint it".to_owned();
        let next = world.control.follow("ada", first, Continue { message }).await.unwrap();
        let refused = world.control.delete("ada", &first.to_string()).await.unwrap_err();
        assert_eq!(refused.code, Code::IllegalMove);
        let second = world.start().await;
        assert_eq!(second.who.task, next.summary.id);
        assert_eq!(second.kept, Some(kept(run.who)), "it begins with what was kept");
        end(&world, second.who, succeeded()).await;
        world.control.delete("ada", &first.to_string()).await.unwrap();
        assert!(world.state(next.summary.id).await.starts_with("COMPLETED"));
    });
}

#[test]
fn what_a_removed_task_printed_is_removed_also_if_somebody_fell_meanwhile() {
    test(async {
        let world = World::new().await;
        let id = world.make(task()).await;
        let run = world.start().await;
        world.print(run.who, 0, "abc\n").await;
        end(&world, run.who, succeeded()).await;
        let transcripts = async || world.blobs.list(BlobKind::Transcript).await.unwrap().len();
        assert_eq!(transcripts().await, 1);
        let remove = async || {
            let ask = Ask::by("ada").key("rm");
            world.control.delete(ask, &id.to_string()).await.unwrap();
        };
        remove().await;
        assert_eq!(transcripts().await, 0, "whoever is told so finds nothing");
        // As if the node had fallen between the commit and this: asked again, it knows its answer.
        let key = BlobKey::Transcript(id, run.who.attempt);
        world.blobs.append(key, 0, b"abc\n".to_vec()).await.unwrap();
        remove().await;
        world.tend().await;
        assert_eq!(transcripts().await, 0);
    });
}
