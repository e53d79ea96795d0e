//! A service that remembers what it was asked and answers by a script. The tests of the command
//! line use it too, and each uses a part.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_api::port::Who;
use belay_api::{
    Accept, AgentEvent, Answer, Ask, Asking, Backup, Code, Comment, Continue, Events, EventsTaken,
    Health, Heartbeat, HeartbeatTaken, ListSandboxes, ListTasks, ListTokens, MadeToken,
    NewQuestion, NewTask, NewToken, Principal, Problem, Progress, QuestionView, Ready, ReceiptView,
    Resume, SandboxPage, SandboxView, Scope, Stopping, Submission, TaskPage, TaskSummary, TaskView,
    TokenPage, TokenView, TranscriptPiece, VerdictView, WhyView,
};
use belay_kernel::publish::Publish;
use belay_kernel::receipt::Receipt;
use belay_kernel::task::{Blocked, Plan, Reason, Review, State};
use belay_kernel::why::{LivePath, Why};
use belay_kernel::{
    AttemptNumber, Epoch, Money, QuestionId, SandboxId, TaskId, Timestamp, TokenId,
};
use belay_server::{Service, Watched};
use belay_store::{Cursor, EventFilter};

type Answered<T> = Result<T, Problem>;

/// The id of the only task.
pub(crate) const TASK: TaskId = TaskId::from_bits(0x0123_4567_89ab_cdef_0123);
/// The id of the only question.
pub(crate) const QUESTION: QuestionId = QuestionId::from_bits(5);
/// The attempt whose diff never comes.
pub(crate) const SLOW: u32 = 14;
/// A state of a task whose agent runs.
pub(crate) const RUNNING: State = State::Running { attempt: AttemptNumber(1), plan: Plan::Fresh };
/// A state of a task that waits for an answer.
pub(crate) const ASKING: State = State::Blocked(Blocked::Question { question: QUESTION });

#[derive(Debug)]
struct Script {
    states: VecDeque<State>,
    calls: Vec<String>,
    transcript: Vec<u8>,
    refusal: Option<Problem>,
    command: Vec<String>,
    made: Option<NewTask>,
    answer: Option<String>,
    /// Repository, base and branch.
    tree: Option<[String; 3]>,
}

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Fake(Arc<Mutex<Script>>);

impl Fake {
    /// A service whose task goes through these states, one with each look; the last one stays.
    pub(crate) fn new(states: &[State]) -> Self {
        let states = states.iter().copied().collect();
        let script = Script {
            states,
            calls: Vec::new(),
            transcript: Vec::new(),
            refusal: None,
            command: Vec::new(),
            made: None,
            answer: None,
            tree: None,
        };
        Self(Arc::new(Mutex::new(script)))
    }

    /// The same, with this transcript of a plain command.
    pub(crate) fn printing(self, transcript: &[u8]) -> Self {
        self.with(|script| {
            script.transcript = transcript.to_vec();
            script.command = vec!["true".into()];
        });
        self
    }

    /// The same, refusing every change.
    pub(crate) fn refusing(self, problem: Problem) -> Self {
        self.with(|script| script.refusal = Some(problem));
        self
    }

    /// The same, working on this repository, from this base, on this branch.
    pub(crate) fn on(self, repository: &str, base: &str, branch: &str) -> Self {
        let tree = [repository, base, branch].map(str::to_owned);
        self.with(|script| script.tree = Some(tree));
        self
    }

    /// The person answers the agent's question.
    pub(crate) fn answers(&self, text: &str) {
        self.with(|script| script.answer = Some(text.to_owned()));
    }

    /// What was asked, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.with(|script| script.calls.clone())
    }

    /// The task that was made.
    pub(crate) fn made(&self) -> Option<NewTask> {
        self.with(|script| script.made.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Notes a change and answers the task, unless it is refused.
    fn change(&self, what: String) -> Answered<TaskView> {
        self.with(|script| {
            script.calls.push(what);
            if let Some(problem) = script.refusal.clone() {
                return Err(problem);
            }
            if script.states.len() > 1 {
                script.states.pop_front();
            }
            Ok(view(script))
        })
    }
}

fn view(script: &Script) -> TaskView {
    let state = *script.states.front().unwrap();
    let question = QuestionView {
        id: QUESTION,
        attempt: AttemptNumber(1),
        text: "Which one?".into(),
        options: vec!["left".into(), "right".into()],
        asked_at: Timestamp::EPOCH,
        answer: None,
        answered_at: None,
    };
    TaskView {
        summary: TaskSummary {
            id: TASK,
            title: "A task".into(),
            state: state.name().into(),
            group: state.group(),
            reason: "created".into(),
            since: Timestamp::EPOCH,
            created_at: Timestamp::EPOCH,
            role: "default".into(),
            agent: "command".into(),
            parent: None,
            attempts: AttemptNumber(1),
            priority: 0,
            waits_for: 0,
            cost: Money::ZERO,
            tokens: 0,
        },
        detail: state,
        failure: match state {
            State::Failed(failure) => Some(failure),
            _ => None,
        },
        sentence: format!("It is {}.", state.name()),
        verbs: state.verbs().to_vec(),
        prompt: String::new(),
        review: Review::Manual,
        session: None,
        repository: script.tree.as_ref().map(|tree| tree[0].clone()),
        base: script.tree.as_ref().map(|tree| tree[1].clone()),
        branch: script.tree.as_ref().map(|tree| tree[2].clone()),
        command: script.command.clone(),
        model: None,
        provider: None,
        continues: None,
        max_cost: None,
        max_tokens: None,
        attempt_list: Vec::new(),
        subtasks: Vec::new(),
        after: Vec::new(),
        questions: if state == ASKING { vec![question] } else { Vec::new() },
        summary_text: None,
        progress: None,
        revision: 1,
    }
}

fn receipt() -> ReceiptView {
    let receipt = Receipt {
        attempt: None,
        stopped_at: Timestamp::EPOCH,
        proven_at: Timestamp::EPOCH,
        last_effect: None,
        pushed: None,
        processes: 0,
        proof: None,
        transcript: None,
    };
    let publish = Publish::None;
    ReceiptView {
        task: TASK,
        receipt,
        publish,
        proof_kind: None,
        kept_ref: None,
        kept_commit: None,
    }
}

fn token_view(name: String, scope: Scope, created_by: String) -> TokenView {
    TokenView {
        id: TokenId::from_bits(7),
        name,
        scope,
        created_by,
        created_at: Timestamp::EPOCH,
        last_used_at: None,
        expires_at: None,
        revoked_at: None,
    }
}

/// The token of the only attempt.
pub(crate) const ATTEMPT: &str = "belay_attempt_of_the_fake";

impl Watched for Fake {}

impl Service for Fake {
    async fn principal(&self, token: &str) -> Answered<Option<Principal>> {
        let who = Who { task: TASK, attempt: AttemptNumber(1), epoch: Epoch(1) };
        if token == ATTEMPT {
            return Ok(Some(Principal::attempt(who)));
        }
        // The token of a scope is its name; whatever else there is was revoked, or never was.
        let scope = token.parse::<Scope>().ok();
        Ok(scope.map(|scope| Principal::holder(scope, format!("the {scope}"))))
    }

    async fn over(&self, _: &str) -> Answered<Option<Problem>> {
        Ok(None)
    }

    async fn take_events(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        events: Vec<AgentEvent>,
        key: Option<String>,
    ) -> Answered<EventsTaken> {
        let taken = events.len() as u64;
        let attempt = who.attempt;
        self.change(format!("{taken} events of {attempt} in {sandbox:?} with {key:?}"))?;
        Ok(EventsTaken { taken, known: 0, next: 1 })
    }

    async fn take_heartbeat(
        &self,
        who: Who,
        sandbox: Option<SandboxId>,
        beat: Heartbeat,
    ) -> Answered<HeartbeatTaken> {
        self.change(format!("{:?} of {} in {sandbox:?}", beat.status, who.attempt))?;
        let (state, verdict) = ("RUNNING".into(), "working".into());
        Ok(HeartbeatTaken { state, verdict, lease_ms: None })
    }

    async fn log_ends(&self) -> Answered<(Cursor, Cursor)> {
        let start = Cursor { epoch: 1, number: 0 };
        Ok((start, start))
    }

    async fn read_log(
        &self,
        after: Cursor,
        _: EventFilter,
        _: usize,
    ) -> Answered<belay_store::Events> {
        Ok(belay_store::Events { events: Vec::new(), cursor: after })
    }

    async fn await_log(&self, _: Cursor, _: Duration) {
        std::future::pending::<()>().await;
    }

    async fn add_subtask(&self, _: Who, task: NewTask, _: Option<String>) -> Answered<TaskView> {
        self.create(Ask::by("attempt"), task).await
    }

    async fn ask(&self, _: Who, question: NewQuestion) -> Answered<Asking> {
        let NewQuestion { text, options } = question;
        self.change(format!("ask {text} {options:?}"))?;
        Ok(Asking { question: Some(QUESTION), answer: None })
    }

    async fn await_answer(&self, _: Who, id: QuestionId, wait: Duration) -> Answered<Asking> {
        self.with(|script| script.calls.push(format!("await {id} {}", wait.as_millis())));
        let answered = || self.with(|script| script.answer.clone());
        let looks = async {
            while answered().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // The fake's own patience: clients are told at its end that the call goes on.
        let _ = tokio::time::timeout(wait.min(Duration::from_millis(50)), looks).await;
        Ok(Asking { question: Some(id), answer: answered() })
    }

    async fn handed_over(&self, _: Who, question: QuestionId) -> Answered<()> {
        self.change(format!("handed over {question}")).map(drop)
    }

    async fn report_progress(&self, _: Who, progress: Progress) -> Answered<()> {
        self.change(format!("progress {} {:?}", progress.text, progress.percent)).map(drop)
    }

    async fn submit_result(&self, _: Who, result: Submission) -> Answered<()> {
        self.change(format!("result {}", result.text)).map(drop)
    }

    async fn find(&self, id: &str) -> Answered<TaskId> {
        if !id.is_empty() && TASK.to_string().starts_with(id) {
            return Ok(TASK);
        }
        Err(Problem::new(Code::NotFound, format!("there is no task `{id}`")))
    }

    async fn create(&self, ask: Ask, task: NewTask) -> Answered<TaskView> {
        self.with(|script| script.made = Some(task));
        self.change(format!("create by {} with {}", ask.by, ask.key.unwrap_or_default()))
    }

    async fn list(&self, which: ListTasks) -> Answered<TaskPage> {
        self.with(|script| {
            script.calls.push(format!("list {} {:?}", which.state, which.limit));
            Ok(TaskPage { tasks: vec![view(script).summary], after: None })
        })
    }

    async fn show(&self, _: TaskId) -> Answered<TaskView> {
        self.with(|script| {
            let shown = view(script);
            if script.states.len() > 1 {
                script.states.pop_front();
            }
            Ok(shown)
        })
    }

    async fn why(&self, _: TaskId) -> Answered<WhyView> {
        let state = self.with(|script| *script.states.front().unwrap());
        let why = Why {
            state,
            since: Timestamp::EPOCH,
            reason: Reason::Created,
            fired: None,
            waits_for: Vec::new(),
            next: Vec::new(),
            verbs: Vec::new(),
            path: LivePath::Person,
        };
        let sentences = vec!["It is so.".to_owned(), "It waits.".to_owned()];
        let (blockers, clocks) = (Vec::new(), Vec::new());
        Ok(WhyView { task: TASK, why, sentences, blockers, verdict: None, clocks })
    }

    async fn run(&self, ask: Ask, _: TaskId) -> Answered<TaskView> {
        self.change(format!("run by {} with {:?}", ask.by, ask.expects))
    }

    fn stop(
        &self,
        _: Ask,
        _: TaskId,
        wait: Duration,
    ) -> impl Future<Output = Answered<Stopping>> + Send {
        let stopped = self.change(format!("stop {}", wait.as_millis()));
        async move { stopped.map(|_| Stopping::Stopped { receipt: Box::new(receipt()) }) }
    }

    async fn answer(&self, _: Ask, _: TaskId, answer: Answer) -> Answered<TaskView> {
        self.change(format!("answer {} {}", answer.question.unwrap_or(QUESTION), answer.text))
    }

    async fn accept(&self, _: Ask, _: TaskId, accept: Accept) -> Answered<TaskView> {
        self.change(format!("accept {:?}", accept.attempt))
    }

    async fn reject(&self, _: Ask, _: TaskId, comment: Comment) -> Answered<TaskView> {
        self.change(format!("reject {:?} {}", comment.comment, comment.run))
    }

    async fn retry(&self, _: Ask, _: TaskId) -> Answered<TaskView> {
        self.change("retry".into())
    }

    async fn resume(&self, _: Ask, _: TaskId, resume: Resume) -> Answered<TaskView> {
        self.change(format!("resume {:?}", resume.message))
    }

    async fn follow(&self, _: Ask, _: TaskId, message: Continue) -> Answered<TaskView> {
        self.change(format!("continue {}", message.message))
    }

    async fn receipt(&self, _: TaskId) -> Answered<ReceiptView> {
        Ok(receipt())
    }

    async fn delete(&self, _: Ask, id: &str) -> Answered<()> {
        self.find(id).await?;
        self.change("delete".into()).map(drop)
    }

    async fn events(
        &self,
        task: Option<TaskId>,
        after: Option<String>,
        wait: Duration,
    ) -> Answered<Events> {
        self.with(|script| script.calls.push(format!("events {task:?} {after:?}")));
        // A question or a long wait is for ever; a look of a follower is answered soon.
        let soon = if task.is_some() { Duration::from_millis(5) } else { wait };
        tokio::time::sleep(soon.min(wait)).await;
        Ok(Events { events: Vec::new(), cursor: "7".into() })
    }

    async fn transcript(
        &self,
        _: TaskId,
        attempt: Option<u32>,
        from: u64,
        _: Duration,
    ) -> Answered<TranscriptPiece> {
        let all = self.with(|script| script.transcript.clone());
        let bytes = all.get(usize::try_from(from).unwrap()..).unwrap_or_default().to_vec();
        let attempt = AttemptNumber(attempt.unwrap_or(1));
        Ok(TranscriptPiece { attempt, from, bytes, ended: true })
    }

    async fn diff(&self, _: TaskId, attempt: Option<u32>) -> Answered<Vec<u8>> {
        assert_ne!(attempt, Some(13), "a fault of the service itself");
        if attempt == Some(SLOW) {
            std::future::pending::<()>().await;
        }
        Ok(b"--- a\n+++ b\n".to_vec())
    }

    async fn sandboxes(&self, _: ListSandboxes) -> Answered<SandboxPage> {
        Ok(SandboxPage { sandboxes: Vec::new(), after: None })
    }

    async fn sandbox(&self, id: SandboxId) -> Answered<SandboxView> {
        Err(Problem::new(Code::NotFound, format!("there is no sandbox {id}")))
    }

    async fn verdict(&self, id: SandboxId) -> Answered<VerdictView> {
        Err(Problem::new(Code::NotFound, format!("there is no sandbox {id}")))
    }

    async fn make_token(&self, ask: Ask, new: NewToken) -> Answered<MadeToken> {
        let token = Some("belay_token_0000000000000007_secret".to_owned());
        Ok(MadeToken { token, about: token_view(new.name, new.scope, ask.by) })
    }

    async fn tokens(&self, _: ListTokens) -> Answered<TokenPage> {
        let tokens = vec![token_view("ci".into(), Scope::Operator, "admin".into())];
        Ok(TokenPage { tokens, after: None })
    }

    async fn revoke_token(&self, ask: Ask, named: &str) -> Answered<TokenView> {
        let token = token_view(named.to_owned(), Scope::Viewer, ask.by);
        Ok(TokenView { revoked_at: Some(Timestamp::EPOCH), ..token })
    }

    async fn health(&self) -> Answered<Health> {
        Ok(Health {
            status: "ok".into(),
            version: "1.2.3".into(),
            pid: 1,
            started_at: Timestamp::EPOCH,
            store: "fake".into(),
            attempts: 0,
        })
    }

    async fn ready(&self) -> Answered<Ready> {
        Ok(Ready { status: "ready".into() })
    }

    async fn backup(&self, ask: Ask, path: String) -> Answered<Backup> {
        let key = ask.key.as_deref().unwrap_or("nothing");
        self.with(|script| script.calls.push(format!("backup {path} with {key}")));
        Ok(Backup { path, bytes: 42 })
    }
}
