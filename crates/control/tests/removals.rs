//! Removing tasks: everything of them goes, whoever falls meanwhile, and nobody waits for them.

mod support;

use std::time::Duration;

use belay_api::port::{
    Assignment, ClaimRequest, Ending, Found, Hello, Left, Port, Report, Start, Stepped, Who,
};
use belay_api::{Ask, Code, Continue, NewTask};
use belay_control::Control;
use belay_kernel::publish::CommitId;
use belay_kernel::task::Review;
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_kernel::{InstallationId, RunnerId, TaskId, Timestamp};
use belay_store::Memory;
use belay_store::blob::{BlobKey, BlobKind, Blobs};
use support::parts;

const RUNNER: RunnerId = RunnerId::from_bits(7);

struct World {
    blobs: Blobs,
    control: Control<Memory>,
}

impl World {
    async fn new() -> Self {
        let store = Memory::new(InstallationId::from_bits(1), 1);
        store.set_now(Timestamp::from_millis(1_000_000));
        let parts = parts(&store, 0);
        let blobs = parts.blobs.clone();
        let control = Control::open(parts).await.unwrap();
        let hello = Hello {
            runner: RUNNER,
            name: "here".into(),
            slots: 8,
            roles: vec!["default".into()],
            providers: vec!["process".into()],
            version: "1".into(),
        };
        control.join(hello).await.unwrap();
        Self { blobs, control }
    }

    /// Lets control do what there is to do now, and no more.
    async fn tend(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(1_500), self.control.tend()).await;
    }

    async fn make(&self, new: NewTask) -> TaskId {
        self.control.create("ada", new).await.unwrap().summary.id
    }

    async fn start(&self) -> Assignment {
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        let run = self.control.claim(ask).await.unwrap().pop().unwrap();
        let start = Start { token_hash: "h".into(), partial_output: true };
        self.control.start(run.who, start).await.unwrap();
        let report = Report { from: 0, bytes: b"abc\n".to_vec(), seen: Vec::new() };
        self.control.report(run.who, report).await.unwrap();
        run
    }

    /// The attempt succeeds and is brought to its end; nobody is told of it yet.
    async fn succeed(&self, who: Who) {
        let left = Left { changed: true, summary: None };
        self.control.end(who, Ending::Succeeded(left)).await.unwrap();
        let mut saga = Termination::begin(Storage::Outlives);
        while saga.step != Step::Done {
            let found = match saga.step {
                Step::SaveTree => Found::Tree {
                    reference: "refs/belay/kept/x/1".into(),
                    commit: kept(),
                    diff: b"--- a\n+++ b\n".to_vec(),
                },
                _ => Found::Nothing,
            };
            let stepped = Stepped { step: saga.step, went: Went::Done, found };
            saga = self.control.stepped(who, stepped).await.unwrap();
        }
    }

    async fn remove(&self, task: TaskId) {
        self.control.delete(Ask::by("ada").key("rm"), &task.to_string()).await.unwrap();
    }

    async fn state(&self, task: TaskId) -> String {
        self.control.show(task).await.unwrap().summary.state
    }
}

fn task() -> NewTask {
    NewTask { prompt: "Mend it".into(), review: Review::Auto, ..NewTask::default() }
}

/// What every attempt here leaves.
fn kept() -> CommitId {
    CommitId::from_sha1([5; 20])
}

fn test<F: Future<Output = ()>>(body: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(body);
}

#[test]
fn a_parent_does_not_wait_for_a_subtask_that_was_removed_before_it_could_tell() {
    test(async {
        let world = World::new().await;
        let parent = world.make(task()).await;
        let first = world.start().await;
        let below = world.make(NewTask { parent: Some(parent), ..task() }).await;
        world.succeed(first.who).await;
        world.tend().await;
        assert_eq!(world.state(parent).await, "BLOCKED", "it waits for its subtask");
        let second = world.start().await;
        assert_eq!(second.who.task, below);
        world.succeed(second.who).await;
        assert_eq!(world.state(below).await, "COMPLETED");
        world.remove(below).await;
        world.tend().await;
        assert_eq!(world.state(parent).await, "COMPLETED");
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
        world.remove(parent).await;
    });
}

#[test]
fn a_task_is_not_removed_while_another_goes_on_with_what_only_it_has_kept() {
    test(async {
        let world = World::new().await;
        let first = world.make(task()).await;
        let run = world.start().await;
        world.succeed(run.who).await;
        let message = "Now paint it".to_owned();
        let next = world.control.follow("ada", first, Continue { message }).await.unwrap();
        let refused = world.control.delete("ada", &first.to_string()).await.unwrap_err();
        assert_eq!(refused.code, Code::IllegalMove);
        let run = world.start().await;
        assert_eq!(run.who.task, next.summary.id);
        assert_eq!(run.kept, Some(kept()), "it begins with what was kept");
        world.succeed(run.who).await;
        world.remove(first).await;
        assert_eq!(world.state(next.summary.id).await, "COMPLETED");
    });
}

#[test]
fn what_a_removed_task_printed_is_removed_also_if_somebody_fell_meanwhile() {
    test(async {
        let world = World::new().await;
        let id = world.make(task()).await;
        let run = world.start().await;
        world.succeed(run.who).await;
        let transcripts = async || world.blobs.list(BlobKind::Transcript).await.unwrap().len();
        assert_eq!(transcripts().await, 1);
        world.remove(id).await;
        assert_eq!(transcripts().await, 0, "whoever is told so finds nothing");
        // As if the node had fallen between the commit and this: asked again, it knows its answer.
        let key = BlobKey::Transcript(id, run.who.attempt);
        world.blobs.append(key, 0, b"abc\n".to_vec()).await.unwrap();
        world.remove(id).await;
        world.tend().await;
        assert_eq!(transcripts().await, 0);
    });
}
