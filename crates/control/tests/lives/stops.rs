//! What is stopped: acknowledged when everything is certain, and not before.

use std::time::Duration;

use belay_api::port::{Beaten, Duty, Ending, Fate, Found, Left, Port, PortError, Present, Stepped};
use belay_api::{NewTask, Resume, Stopping};
use belay_kernel::attempt::{Phase, Proof};
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_kernel::{SandboxId, Span};

use crate::beat;
use crate::support::{RUNNER, World, commit, task, test};

#[test]
fn a_stop_is_acknowledged_when_everything_is_certain_and_not_before() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "x\n").await;
        let stopping = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert!(matches!(&stopping, Stopping::Stopping { pending } if pending.len() == 1));
        let late = Ending::Succeeded(Left::default());
        assert_eq!(world.control.end(run.who, late).await, Err(PortError::Fenced));
        let push = Push { commit: commit(1), expected: None };
        assert_eq!(world.control.open_publish(run.who, push).await, Err(PortError::Fenced));
        assert_eq!(world.control.beat(beat(run.who, false)).await.unwrap(), [Beaten::Fenced]);
        world.tend().await;
        let duties = world.control.duties(RUNNER, Span::ZERO).await.unwrap();
        assert!(duties.iter().any(|duty| matches!(duty, Duty::End(of) if of.who == run.who)));
        assert_eq!(world.print(run.who, 2, "tail\n").await, 7); // appends are still taken
        world.terminate(run.who).await;
        let stopped = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let Stopping::Stopped { receipt } = stopped else { panic!("{stopped:?}") };
        assert_eq!(receipt.receipt.processes, 3);
        assert_eq!(receipt.receipt.transcript.unwrap().length, 7);
        assert_eq!(world.state(id).await, "CANCELLED cancel");
    });
}

#[test]
fn a_stop_is_not_acknowledged_while_an_earlier_attempt_may_live() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let first = world.start().await;
        world.print(first.who, 0, "x\n").await;
        world.pass(Span::from_secs(62)).await;
        assert_eq!(world.state(id).await, "TIMED_OUT inactivity");
        world.control.retry("ada", id).await.unwrap(); // in a new session
        let second = world.start().await;
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        world.terminate(second.who).await;
        let stopping = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert!(matches!(&stopping, Stopping::Stopping { pending } if pending.len() == 1));
        world.terminate(first.who).await;
        let stopped = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert!(matches!(stopped, Stopping::Stopped { .. }), "{stopped:?}");
    });
}

#[test]
fn a_lease_that_ends_proves_nothing_of_what_may_be_frozen() {
    test(async {
        for freezes in [false, true] {
            let world = World::remote().await;
            let id = world.make(NewTask { keep_alive: true, ..task("Mend it") }).await;
            let run = world.start().await;
            world.print(run.who, 0, "x\n").await;
            if freezes {
                world.control.freezing(run.who).await.unwrap();
            }
            world.control.stop("ada", id, Duration::ZERO).await.unwrap();
            world.pass(Span::from_mins(8)).await; // nothing is heard of the runner
            let proven = |phase: Phase| matches!(phase, Phase::Ended(_, Proof::LeaseExpired));
            assert_eq!(proven(world.phase(run.who).await), !freezes);
            world.pass(Span::from_mins(8)).await; // its machine is taken for lost
            assert!(proven(world.phase(run.who).await));
            assert!(world.control.freezing(run.who).await.is_err(), "it is over");
        }
    });
}

#[test]
fn what_may_be_frozen_is_over_when_it_is_seen_to_be_gone() {
    test(async {
        let world = World::remote().await;
        let id = world.make(NewTask { keep_alive: true, ..task("Mend it") }).await;
        let run = world.start().await;
        world.control.freezing(run.who).await.unwrap();
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        world.terminate(run.who).await;
        let stopped = world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert!(matches!(stopped, Stopping::Stopped { .. }), "{stopped:?}");
    });
}

#[test]
fn a_session_is_free_after_a_stop_whose_push_was_settled_last() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let push = Push { commit: commit(1), expected: None };
        world.control.open_publish(run.who, push).await.unwrap();
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let mut saga = Termination::begin(Storage::Outlives);
        while saga.step != Step::Settle {
            let stepped = Stepped { step: saga.step, went: Went::Done, found: Found::Nothing };
            saga = world.control.stepped(run.who, stepped).await.unwrap();
        }
        // A runner that has come to the end of its own steps moves nothing on.
        let stepped = Stepped { step: Step::Settle, went: Went::Done, found: Found::Nothing };
        assert_eq!(world.control.stepped(run.who, stepped).await.unwrap().step, Step::Settle);
        let left = Left::default();
        world.control.settled(run.who, PushOutcome::NotPushed, left).await.unwrap();
        let resumed = world.control.resume("ada", id, Resume::default()).await.unwrap();
        let again = world.start().await;
        assert_eq!((again.who.task, again.session), (resumed.summary.id, run.session));
    });
}

#[test]
fn what_no_row_wants_is_killed_and_what_a_restore_left_is_not() {
    test(async {
        let world = World::new().await;
        world.make(task("Mend it")).await;
        let run = world.start().await;
        let unknown = SandboxId::from_bits(77);
        let present = |sandbox, installation_epoch| Present { sandbox, installation_epoch };
        let asked = vec![present(run.sandbox, 1), present(unknown, 1), present(unknown, 9)];
        let fates = world.control.sweep(RUNNER, asked).await.unwrap();
        assert_eq!(fates, [Fate::Keep, Fate::Kill, Fate::Quarantine]);
        world.succeed(run.who).await;
        let over = world.control.sweep(RUNNER, vec![present(run.sandbox, 1)]).await.unwrap();
        assert_eq!(over, [Fate::Kill]);
    });
}
