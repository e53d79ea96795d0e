//! Whole lives of tasks through control's own surface, on the in-memory store: what a person asks,
//! what a runner says, what is stored and told. Real processes are the end-to-end tests' part.

mod support;

use std::time::Duration;

use belay_api::port::{
    Asked, Assignment, Beat, Beaten, ClaimRequest, Duty, Ending, Fate, Found, Hello, Left, Port,
    PortError, Present, Pulse, Report, Seen, Start, Stepped, Who,
};
use belay_api::{
    Accept, Answer, Ask, Code, Comment, Continue, ListTokens, NewQuestion, NewTask, NewToken,
    Progress, Resume, Scope, Stopping, Submission, token_hash,
};
use belay_control::{Control, Parts};
use belay_kernel::publish::{CommitId, Push, PushOutcome};
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_kernel::{
    Cause, EventKind, HeartbeatStatus, InstallationId, Money, QuestionId, Revision, RunnerId,
    SandboxId, Span, TaskId, Timestamp, Usage,
};
use belay_store::blob::{BlobLimits, Blobs};
use belay_store::rows::TaskRow;
use belay_store::{Memory, Store};
use support::parts;

const RUNNER: RunnerId = RunnerId::from_bits(7);

async fn node(store: &Memory, blobs: &Blobs, drawn: u64) -> Control<Memory> {
    let parts = Parts { blobs: blobs.clone(), embedded: Some(RUNNER), ..parts(store, drawn) };
    Control::open(parts).await.unwrap()
}

struct World {
    store: Memory,
    blobs: Blobs,
    control: Control<Memory>,
    now: std::cell::Cell<i64>,
}

fn hello() -> Hello {
    Hello {
        runner: RUNNER,
        name: "here".into(),
        slots: 8,
        roles: vec!["default".into()],
        providers: vec!["process".into()],
        version: "1".into(),
    }
}

impl World {
    async fn new() -> Self {
        let store = Memory::new(InstallationId::from_bits(1), 1);
        store.set_now(Timestamp::from_millis(1_000_000));
        let blobs = Blobs::in_memory(BlobLimits::default());
        let control = node(&store, &blobs, 0).await;
        assert_eq!(control.join(hello()).await.unwrap(), []);
        Self { store, blobs, control, now: std::cell::Cell::new(1_000_000) }
    }

    /// The node is gone for so long, and another one comes up; the runner joins it.
    async fn restart(&mut self, downtime: Span) -> Vec<Assignment> {
        self.now.set(self.now.get() + i64::try_from(downtime.as_millis()).unwrap());
        self.store.set_now(Timestamp::from_millis(self.now.get()));
        self.control = node(&self.store, &self.blobs, 1_000).await;
        self.control.join(hello()).await.unwrap()
    }

    /// Lets time pass, and lets control look at what is due.
    async fn pass(&self, span: Span) {
        self.now.set(self.now.get() + i64::try_from(span.as_millis()).unwrap());
        self.store.set_now(Timestamp::from_millis(self.now.get()));
        tokio::time::advance(Duration::from_millis(span.as_millis())).await;
        self.tend().await;
    }

    /// Lets control do what there is to do now, and no more.
    async fn tend(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(1_500), self.control.tend()).await;
    }

    async fn make(&self, new: NewTask) -> TaskId {
        self.control.create("ada", new).await.unwrap().summary.id
    }

    async fn claim(&self) -> Assignment {
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        let mut claimed = self.control.claim(ask).await.unwrap();
        assert_eq!(claimed.len(), 1);
        claimed.remove(0)
    }

    async fn start(&self) -> Assignment {
        let assignment = self.claim().await;
        let start = Start { token_hash: "h".into(), partial_output: true };
        self.control.start(assignment.who, start).await.unwrap();
        assignment
    }

    async fn print(&self, who: Who, from: u64, text: &str) -> u64 {
        let report = Report { from, bytes: text.into(), seen: vec![] };
        self.control.report(who, report).await.unwrap().next
    }

    async fn succeed(&self, who: Who) {
        let left = Left { changed: true, summary: Some("Mended.".into()) };
        self.control.end(who, Ending::Succeeded(left)).await.unwrap();
        self.terminate(who).await;
    }

    async fn fail(&self, who: Who, cause: Cause) {
        let ending = Ending::Failed {
            cause,
            message: "it broke".into(),
            resets_at: None,
            conversation_lost: false,
            left: Left { changed: true, summary: None },
        };
        self.control.end(who, ending).await.unwrap();
        self.terminate(who).await;
    }

    async fn terminate(&self, who: Who) {
        let mut saga = Termination::begin(Storage::Outlives);
        while saga.step != Step::Done {
            let found = match saga.step {
                Step::Kill => Found::Dead { processes: 3 },
                Step::SaveTree => Found::Tree {
                    reference: "refs/belay/kept/x/1".into(),
                    commit: kept(who),
                    diff: b"--- a\n+++ b\n".to_vec(),
                },
                _ => Found::Nothing,
            };
            let stepped = Stepped { step: saga.step, went: Went::Done, found };
            saga = self.control.stepped(who, stepped).await.unwrap();
        }
        self.tend().await;
    }

    async fn state(&self, task: TaskId) -> String {
        let view = self.control.show(task).await.unwrap();
        format!("{} {}", view.summary.state, view.summary.reason)
    }
}

fn beat(who: Who, told: bool) -> Beat {
    let pulse = Pulse { who, status: HeartbeatStatus::Running, told };
    Beat { runner: RUNNER, attempts: vec![pulse] }
}

fn commit(n: u8) -> CommitId {
    format!("{n:040x}").parse().unwrap()
}

/// What an attempt leaves.
fn kept(who: Who) -> CommitId {
    format!("{:040x}", 0xface_0000 + who.epoch.0).parse().unwrap()
}

fn task(prompt: &str) -> NewTask {
    NewTask { prompt: prompt.into(), ..NewTask::default() }
}

fn test<F: Future<Output = ()>>(body: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(body);
}

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
        let beat = beat(run.who, false);
        assert_eq!(world.control.beat(beat).await.unwrap(), [Beaten::Fenced]);
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
fn a_question_by_file_waits_and_its_answer_resumes_the_session() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let conversation = Report {
            from: 0,
            bytes: b"?\n".to_vec(),
            seen: vec![Seen::Conversation("talk-1".into())],
        };
        world.control.report(run.who, conversation).await.unwrap();
        let asked = Asked {
            question: QuestionId::from_bits(9),
            text: "Wood or wire?".into(),
            options: vec!["wood".into(), "wire".into()],
            held: false,
        };
        world.control.ask(run.who, asked).await.unwrap();
        world.terminate(run.who).await;
        assert_eq!(world.state(id).await, "BLOCKED question");
        world.pass(Span::from_mins(600)).await;
        assert_eq!(world.state(id).await, "BLOCKED question");
        let answer = Answer { question: None, text: "2".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        let again = world.start().await;
        assert_eq!(again.session, run.session);
        assert_eq!(again.conversation.as_deref(), Some("talk-1"));
        assert_eq!(again.prompt.next, "The answer: wire");
        world.succeed(again.who).await;
        assert_eq!(world.state(id).await, "READY succeeded");
    });
}

#[test]
fn a_held_question_stops_the_clocks_and_its_answer_is_handed_over() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        world.print(run.who, 0, "?\n").await;
        let question = QuestionId::from_bits(9);
        let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
        world.control.ask(run.who, asked.clone()).await.unwrap();
        world.control.ask(run.who, asked).await.unwrap(); // the answer was lost: no harm
        world.pass(Span::from_mins(4)).await; // beyond every clock but the linger time
        assert_eq!(world.state(id).await, "BLOCKED question");
        let answer = Answer { question: Some(question), text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        assert_eq!(world.state(id).await, "RUNNING answer");
        world.tend().await;
        let duties = world.control.duties(RUNNER, Span::ZERO).await.unwrap();
        let text = "yes".to_owned();
        assert!(duties.contains(&Duty::Answer { who: run.who, question, text }));
    });
}

#[test]
fn a_beat_of_an_attempt_that_is_over_says_whether_its_agent_stays() {
    test(async {
        for (keep_alive, beaten) in [(true, Beaten::Freeze), (false, Beaten::Fenced)] {
            let world = World::new().await;
            let id = world.make(NewTask { keep_alive, ..task("Mend it") }).await;
            let run = world.start().await;
            world.print(run.who, 0, "?\n").await;
            let question = QuestionId::from_bits(9);
            let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
            world.control.ask(run.who, asked).await.unwrap();
            world.pass(Span::from_mins(6)).await; // beyond the linger time
            assert_eq!(world.state(id).await, "BLOCKED question");
            // The duty to end it is on its way; the beat is quicker.
            assert_eq!(world.control.beat(beat(run.who, true)).await.unwrap(), [beaten]);
            world.control.stop("ada", id, Duration::ZERO).await.unwrap();
            let mut other = run.who;
            other.epoch = other.epoch.next();
            assert_eq!(world.control.beat(beat(other, true)).await.unwrap(), [Beaten::Fenced]);
        }
    });
}

#[test]
fn an_agent_that_never_says_anything_is_found_idle() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.claim().await;
        let start = Start { token_hash: "h".into(), partial_output: false };
        world.control.start(run.who, start).await.unwrap();
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
        let beat = beat(run.who, false);
        let beaten = world.control.beat(beat).await.unwrap();
        assert!(matches!(beaten[..], [Beaten::Current { .. }]));
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "RUNNING started"); // a beat says nothing of output
        let next = world.print(run.who, 2, "while you were away\n").await;
        world.control.beat(self::beat(run.who, true)).await.unwrap();
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
fn a_chain_runs_in_order_and_fails_together() {
    test(async {
        let world = World::new().await;
        let first = world.make(task("First")).await;
        let second = world.make(NewTask { after: vec![first], ..task("Second") }).await;
        let run = world.start().await;
        assert_eq!(run.who.task, first);
        let ask = ClaimRequest { runner: RUNNER, role: "default".into(), slots: 1 };
        assert_eq!(world.control.claim(ask).await.unwrap(), []);
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
fn an_agent_speaks_only_while_its_attempt_acts() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Parent")).await;
        let run = world.claim().await;
        let token = format!("belay_attempt_{id}_1_{}", "0".repeat(64));
        let start = Start { token_hash: token_hash(&token), partial_output: true };
        world.control.start(run.who, start).await.unwrap();
        assert_eq!(world.control.speaker(&token).await.unwrap(), Some(run.who));
        let wrong = format!("belay_attempt_{id}_1_{}", "1".repeat(64));
        assert_eq!(world.control.speaker(&wrong).await.unwrap(), None);
        let child = world.control.add_subtask(run.who, task("Child"), None).await.unwrap();
        assert_eq!(child.summary.parent, Some(id));
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert_eq!(world.control.speaker(&token).await.unwrap(), None);
        let late = world.control.add_subtask(run.who, task("Late"), None).await.unwrap_err();
        assert_eq!(late.code, Code::Fenced);
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
fn a_claim_whose_answer_was_lost_is_taken_back_when_its_lease_is_over() {
    test(async {
        let world = World::new().await;
        let id = world.make(NewTask { max_attempts: Some(2), ..task("Mend it") }).await;
        let elsewhere = RunnerId::from_bits(8);
        let ask = ClaimRequest { runner: elsewhere, role: "default".into(), slots: 1 };
        let claimed = world.control.claim(ask).await.unwrap();
        assert_eq!(claimed[0].lease, Span::from_secs(60));
        world.pass(Span::from_secs(61)).await;
        world.pass(Span::from_secs(2)).await;
        assert_eq!(world.state(id).await, "QUEUED retrying");
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
fn a_question_that_is_asked_again_after_its_answer_blocks_nothing() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let question = QuestionId::from_bits(9);
        let asked = Asked { question, text: "Go on?".into(), options: vec![], held: true };
        world.control.ask(run.who, asked.clone()).await.unwrap();
        let answer = Answer { question: None, text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        world.control.ask(run.who, asked.clone()).await.unwrap(); // the first answer was lost
        assert_eq!(world.state(id).await, "RUNNING answer");
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        assert_eq!(world.control.ask(run.who, asked).await, Err(PortError::Fenced));
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

#[test]
fn a_token_opens_until_it_is_revoked_or_over() {
    test(async {
        let world = World::new().await;
        let new = |name: &str, expires_in: Option<&str>| NewToken {
            name: name.to_owned(),
            scope: Scope::Operator,
            expires_in: expires_in.map(str::to_owned),
        };
        let ask = || Ask::by("admin").key("k");
        let made = world.control.make_token(ask(), new("ci", None)).await.unwrap();
        let token = made.token.unwrap();
        let again = world.control.make_token(ask(), new("ci", None)).await.unwrap();
        assert_eq!((again.token, again.about.id), (None, made.about.id), "told once, made once");
        let twice = world.control.make_token("admin", new("ci", None)).await.unwrap_err();
        assert_eq!(twice.code, Code::Refused);

        let holder = world.control.principal(&token).await.unwrap().unwrap();
        assert_eq!((holder.scope(), holder.name()), (Scope::Operator, "ci"));
        let listed = world.control.tokens(ListTokens::default()).await.unwrap();
        assert!(listed.tokens[0].last_used_at.is_some(), "its use is shown");
        for wrong in ["", "belay_token_", &token[..token.len() - 1], &format!("{token}0")] {
            assert_eq!(world.control.principal(wrong).await.unwrap(), None, "{wrong}");
        }
        let brief = world.control.make_token("admin", new("brief", Some("1ms"))).await.unwrap();
        world.pass(Span::from_secs(1)).await;
        assert_eq!(world.control.principal(&brief.token.unwrap()).await.unwrap(), None);

        let revoked = world.control.revoke_token("admin", "ci").await.unwrap();
        assert!(revoked.revoked_at.is_some());
        assert_eq!(world.control.principal(&token).await.unwrap(), None);
        let by_id = made.about.id.to_string();
        let same = world.control.revoke_token("admin", &by_id).await.unwrap();
        assert_eq!(same, revoked, "revoked once");
        let unknown = world.control.revoke_token("admin", "ci").await.unwrap_err();
        assert_eq!(unknown.code, Code::NotFound);
        world.control.make_token("admin", new("ci", None)).await.unwrap();
        for name in ["", "admin", "two words", "0123456789abcdef", &"x".repeat(61)] {
            let refused = world.control.make_token("admin", new(name, None)).await.unwrap_err();
            assert_eq!(refused.code, Code::BadRequest, "{name}");
        }
    });
}

fn words(text: &str) -> NewQuestion {
    NewQuestion { text: text.into(), options: Vec::new() }
}

#[test]
fn a_question_is_known_by_its_words_until_its_answer_is_handed_over() {
    test(async {
        let mut world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let ask = async |world: &World, text| {
            world.control.ask_person(run.who, words(text)).await.unwrap()
        };
        let first = ask(&world, "Go on?").await;
        let question = first.question.unwrap();
        assert_eq!(first.answer, None);
        assert_eq!(world.state(id).await, "BLOCKED question");
        assert_eq!(ask(&world, "Go on?").await.question, Some(question), "it is the same one");
        let other = ask(&world, "Something else?").await;
        assert_eq!(other.question, None, "it waits for its turn");
        let early = world.control.handed_over(run.who, question).await.unwrap_err();
        assert_eq!(early.code, Code::IllegalMove);
        world.restart(Span::from_secs(1)).await;
        let answer = Answer { question: Some(question), text: "yes".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        for _ in 0..2 {
            assert_eq!(ask(&world, "Go on?").await.answer.as_deref(), Some("yes"));
        }
        let next = ask(&world, "Something else?").await;
        assert_ne!(next.question, Some(question));
        world.control.handed_over(run.who, question).await.unwrap();
        world.control.handed_over(run.who, question).await.unwrap(); // told twice: no harm
        let again = ask(&world, "Go on?").await;
        assert_eq!(again.question, None, "a new one, after the one that is open");
        let answer = Answer { question: next.question, text: "no".into() };
        world.control.answer("ada", id, answer).await.unwrap();
        let again = ask(&world, "Go on?").await;
        assert!(again.question.is_some_and(|new| new != question) && again.answer.is_none());
    });
}

#[test]
fn an_attempt_that_may_not_act_asks_and_tells_nothing() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        let asking = world.control.ask_person(run.who, words("Go on?")).await;
        let question = asking.unwrap().question.unwrap();
        let progress = || Progress { text: "Half.".into(), percent: Some(50) };
        let result = || Submission { text: "# Done".into() };
        world.control.report_progress(run.who, progress()).await.unwrap();
        world.control.submit_result(run.who, result()).await.unwrap();
        let view = world.control.show(id).await.unwrap();
        assert_eq!(view.progress.unwrap().text, "50 %: Half.");
        assert_eq!(view.summary_text.as_deref(), Some("# Done"));
        let stranger = QuestionId::from_bits(77);
        let unknown = world.control.await_answer(run.who, stranger, Duration::ZERO).await;
        assert_eq!(unknown.unwrap_err().code, Code::NotFound);
        for (text, percent) in [("", None), ("x", Some(101))] {
            let bad = Progress { text: text.into(), percent };
            let refused = world.control.report_progress(run.who, bad).await.unwrap_err();
            assert_eq!(refused.code, Code::BadRequest);
        }
        world.control.stop("ada", id, Duration::ZERO).await.unwrap();
        let fenced = Code::Fenced;
        let ask = world.control.ask_person(run.who, words("Go on?")).await;
        assert_eq!(ask.unwrap_err().code, fenced);
        let waits = world.control.await_answer(run.who, question, Duration::from_secs(60)).await;
        assert_eq!(waits.unwrap_err().code, fenced);
        let told = world.control.report_progress(run.who, progress()).await;
        assert_eq!(told.unwrap_err().code, fenced);
        let told = world.control.submit_result(run.who, result()).await;
        assert_eq!(told.unwrap_err().code, fenced);
    });
}

#[test]
fn a_result_that_is_handed_in_is_progress_and_the_last_one_counts() {
    test(async {
        let world = World::new().await;
        let id = world.make(task("Mend it")).await;
        let run = world.start().await;
        for text in ["first", "second", "first"] {
            let result = Submission { text: text.into() };
            world.control.submit_result(run.who, result).await.unwrap();
        }
        let left = Left { changed: false, summary: Some("from a file".into()) };
        world.control.end(run.who, Ending::Succeeded(left)).await.unwrap();
        world.terminate(run.who).await;
        let view = world.control.show(id).await.unwrap();
        assert_eq!(view.summary_text.as_deref(), Some("first"));
        let events = world.control.events(Some(id), None, Duration::ZERO).await.unwrap();
        let told = events.events.iter().filter(|event| event.kind == "agent.result");
        assert_eq!(told.count(), 3);
    });
}
