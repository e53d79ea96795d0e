//! What a person asks of a task, from its prompt to its accepted work: each request once, and only
//! while it fits.

use std::time::Duration;

use belay_api::port::{Left, Port, Report, Seen};
use belay_api::{Accept, Ask, Code, Comment, Continue, NewTask};
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::{Cause, EventKind, Revision, Span};

use crate::support::{World, commit, kept, task, test};

#[test]
fn a_task_goes_from_prompt_to_accepted_work() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend the fence.\nAll of it.")).await;
        assert_eq!(world.state(id).await, "QUEUED created");
        let run = world.start().await;
        assert_eq!(run.prompt.whole, "Mend the fence.\nAll of it.");
        assert_eq!(world.state(id).await, "RUNNING started");
        let next = world.print(run.who, 0, "hammering\n").await;
        assert_eq!(world.print(run.who, next, "done\n").await, 15);
        let push = Push { commit: commit(1), expected: None };
        world.control.open_publish(run.who, push).await.unwrap();
        let left = Left { changed: true, summary: None };
        world.control.settled(run.who, PushOutcome::Pushed, left).await.unwrap();
        assert_eq!(world.state(id).await, "READY succeeded");
        world.terminate(run.who).await;
        let piece = world.control.transcript(id, None, 0, Duration::ZERO).await.unwrap();
        assert_eq!((piece.bytes.as_slice(), piece.ended), (&b"hammering\ndone\n"[..], true));
        let diff = world.control.diff(id, None).await.unwrap();
        assert_eq!(diff, b"--- a\n+++ b\n");
        world.control.accept("ada", id, Accept::default()).await.unwrap();
        assert_eq!(world.state(id).await, "COMPLETED accept");
    });
}

#[test]
fn output_that_is_sent_again_is_taken_once() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let seen = Seen::Event { kind: EventKind::ToolUse, detail: serde_json::json!({}) };
        let report = Report { from: 0, bytes: b"one\n".to_vec(), seen: vec![seen] };
        for _ in 0..3 {
            assert_eq!(world.control.report(run.who, report.clone()).await.unwrap().next, 4);
        }
        let gap = Report { from: 9, bytes: b"late\n".to_vec(), seen: vec![] };
        assert_eq!(world.control.report(run.who, gap).await.unwrap().next, 4);
        let events = world.control.events(Some(id), None, Duration::ZERO).await.unwrap();
        let tools = events.events.iter().filter(|event| event.kind == "agent.tool_use");
        assert_eq!(tools.count(), 1);
    });
}

#[test]
fn a_comment_goes_into_the_next_attempt() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.succeed(run.who).await;
        let comment = Comment { comment: Some("Use nails.".into()), run: true };
        world.control.reject("ada", id, comment).await.unwrap();
        let again = world.start().await;
        assert_eq!(again.prompt.next, "The reviewer says: Use nails.");
        assert!(again.prompt.whole.contains("You reported: Mended."));
    });
}

#[test]
fn a_retry_is_made_after_a_backoff_and_never_beyond_its_cap() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { max_attempts: Some(2), ..task("Flaky") }).await;
        let run = world.start().await;
        world.fail(run.who, Cause::Crash).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
        world.pass(Span::from_secs(11)).await;
        let again = world.start().await;
        assert_eq!((again.who.attempt.0, again.session), (2, run.session));
        world.fail(again.who, Cause::Crash).await;
        assert_eq!(world.state(id).await, "FAILED crash");
    });
}

#[test]
fn a_follow_up_begins_with_what_its_session_kept_last_whoever_has_begun_anew_since() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { max_attempts: Some(1), ..task("Mend it") }).await;
        let first = world.start().await;
        world.succeed(first.who).await;
        world.control.accept("ada", id, Accept::default()).await.unwrap();
        let go_on = || Continue { message: "Go on.".into() };
        let second = world.control.follow("ada", id, go_on()).await.unwrap().summary.id;
        let failed = world.start().await;
        assert_eq!((failed.who.task, failed.kept), (second, Some(kept(first.who))));
        world.fail(failed.who, Cause::Crash).await;
        world.control.retry("ada", second).await.unwrap();
        let anew = world.start().await;
        assert_eq!((anew.who.task, anew.kept), (second, Some(kept(first.who))));
        assert_ne!(anew.session, first.session);
        world.control.follow("ada", id, go_on()).await.unwrap();
        let third = world.start().await;
        assert_eq!((third.session, third.kept), (first.session, Some(kept(failed.who))));
    });
}

#[test]
fn an_illegal_move_says_what_is_possible() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let problem = world.control.accept("ada", id, Accept::default()).await.unwrap_err();
        assert_eq!(problem.code, Code::IllegalMove);
        assert_eq!(problem.detail, "the task is QUEUED; possible now: cancel");
        assert_eq!(world.control.find("zz").await.unwrap_err().code, Code::NotFound);
    });
}

#[test]
fn the_same_key_makes_one_task_and_another_body_is_refused() {
    test(async {
        let world = World::new().await;
        let ask = || Ask::by("ada").key("k1");
        let one = world.control.create(ask(), task("Once")).await.unwrap();
        let two = world.control.create(ask(), task("Once")).await.unwrap();
        assert_eq!(one.summary.id, two.summary.id);
        let other = world.control.create(ask(), task("Twice")).await.unwrap_err();
        assert_eq!(other.code, Code::IdempotencyKeyReused);
    });
}

#[test]
fn what_was_changed_since_it_was_seen_is_not_moved() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { hold: true, ..task("Wait") }).await;
        let seen = Revision(world.control.show(id).await.unwrap().revision);
        let ask = || Ask::by("ada").expecting(seen);
        let run = world.control.run(ask().key("once"), id).await.unwrap();
        assert_ne!(run.revision, seen.0, "it was moved");
        let stop = world.control.stop(ask(), id, Duration::ZERO).await.unwrap_err();
        assert_eq!(stop.code, Code::Overtaken);
        let gone = world.control.delete(ask(), &id.to_string()).await.unwrap_err();
        assert_eq!(gone.code, Code::Overtaken);
        let again = world.control.run(ask().key("once"), id).await.unwrap();
        assert_eq!(again.summary.id, id, "the same request is answered alike");
        assert_eq!(world.control.show(id).await.unwrap().summary.state, "QUEUED");
    });
}

#[test]
fn a_repeated_removal_is_answered_alike() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { hold: true, ..task("Go") }).await.to_string();
        let ask = || Ask::by("ada").key("rm");
        world.control.delete(ask(), &id).await.unwrap();
        world.control.delete(ask(), &id).await.unwrap();
        let other = world.control.delete("ada", &id).await.unwrap_err();
        assert_eq!(other.code, Code::NotFound);
    });
}
