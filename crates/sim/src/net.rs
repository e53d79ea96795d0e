//! Between a node and everybody who speaks to it: what is said may be lost, late or said twice, and
//! so may the answer. What a node works at when it falls is never answered.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_api::port::{
    Acknowledged, Asked, Assignment, Beat, Beaten, ClaimRequest, Duty, Ending, Fate, Hello, Left,
    Port, PortError, Present, Report, Start, Stepped, Who,
};
use belay_control::Control;
use belay_kernel::publish::{Push, PushOutcome};
use belay_kernel::termination::Termination;
use belay_kernel::{QuestionId, RunnerId, SessionId, Span};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::Planted;
use crate::sim::{Gate, Sim};
use crate::store::SimStore;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node that is up.
pub(crate) struct Node {
    pub(crate) control: Control<SimStore>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Node {
    pub(crate) fn new(control: Control<SimStore>) -> Self {
        Self { control, tasks: Mutex::default() }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        let mut tasks = self.tasks();
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    /// It falls: whatever it does is dropped where it is.
    pub(crate) fn fall(&self) {
        self.tasks().drain(..).for_each(|task| task.abort());
    }
}

/// How somebody reaches the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// In the same process.
    Inside,
    /// Over a network.
    Network,
}

/// The way to whichever node is up.
pub(crate) struct Net {
    pub(crate) sim: Arc<Sim>,
    node: Mutex<Option<Arc<Node>>>,
}

impl Net {
    pub(crate) fn new(sim: Arc<Sim>) -> Self {
        Self { sim, node: Mutex::default() }
    }

    pub(crate) fn set(&self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let mut current = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, node)
    }

    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says something to the node; nothing, if no answer comes.
    pub(crate) async fn say<T, F, Fut>(self: &Arc<Self>, line: Line, call: F) -> Option<T>
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let (sim, call) = (&self.sim, Arc::new(call));
        let (loses, doubles) = match line {
            Line::Inside => (0, 0),
            Line::Network => (sim.knobs.net_loses, sim.knobs.net_doubles),
        };
        if sim.goes_wrong(loses) {
            sim.wait(100, 8_000).await;
            return None;
        }
        if sim.goes_wrong(doubles) {
            self.say_late(Arc::clone(&call));
        }
        if line == Line::Network && sim.goes_wrong(200) {
            sim.wait(1, 400).await;
        }
        let Some(node) = self.node() else {
            sim.wait(10, 500).await;
            return None;
        };
        let (reply, answer) = oneshot::channel();
        let control = node.control.clone();
        node.spawn(async move {
            let _ = reply.send(call(control).await);
        });
        drop(node);
        let answer = tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?;
        if sim.goes_wrong(loses) {
            sim.wait(100, 8_000).await;
            return None;
        }
        Some(answer)
    }

    /// The same once more, later: after whatever was said meanwhile.
    fn say_late<T, F, Fut>(self: &Arc<Self>, call: Arc<F>)
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let most = if this.sim.rng().permille(100) { 120_000 } else { 4_000 };
            this.sim.wait(1, most).await;
            if let Some(node) = this.node() {
                let control = node.control.clone();
                node.spawn(async move { drop(call(control).await) });
            }
        });
    }
}

/// The port, as one runner has it.
#[derive(Clone)]
pub(crate) struct SimPort {
    pub(crate) net: Arc<Net>,
    pub(crate) line: Line,
    pub(crate) gate: Arc<Gate>,
}

impl SimPort {
    async fn call<T, F, Fut>(&self, call: F) -> Result<T, PortError>
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, PortError>> + Send + 'static,
    {
        self.gate.step().await;
        let answer = self.net.say(self.line, call).await;
        self.gate.step().await;
        answer.unwrap_or_else(|| Err(PortError::Unavailable("no answer came".into())))
    }
}

impl Port for SimPort {
    async fn join(&self, hello: Hello) -> Result<Vec<Assignment>, PortError> {
        self.call(move |control| {
            let hello = hello.clone();
            async move { control.join(hello).await }
        })
        .await
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Assignment>, PortError> {
        self.call(move |control| {
            let ask = ask.clone();
            async move { control.claim(ask).await }
        })
        .await
    }

    async fn duties(&self, runner: RunnerId, patience: Span) -> Result<Vec<Duty>, PortError> {
        self.call(move |control| async move { control.duties(runner, patience).await }).await
    }

    async fn beat(&self, beat: Beat) -> Result<Vec<Beaten>, PortError> {
        self.call(move |control| {
            let beat = beat.clone();
            async move { control.beat(beat).await }
        })
        .await
    }

    async fn preparing(&self, who: Who) -> Result<(), PortError> {
        self.call(move |control| async move { control.preparing(who).await }).await
    }

    async fn start(&self, who: Who, start: Start) -> Result<(), PortError> {
        self.call(move |control| {
            let start = start.clone();
            async move { control.start(who, start).await }
        })
        .await
    }

    async fn report(&self, who: Who, report: Report) -> Result<Acknowledged, PortError> {
        self.call(move |control| {
            let report = report.clone();
            async move { control.report(who, report).await }
        })
        .await
    }

    async fn ask(&self, who: Who, asked: Asked) -> Result<(), PortError> {
        self.call(move |control| {
            let asked = asked.clone();
            async move { control.ask(who, asked).await }
        })
        .await
    }

    async fn delivered(&self, who: Who, question: QuestionId) -> Result<(), PortError> {
        self.call(move |control| async move { control.delivered(who, question).await }).await
    }

    async fn open_publish(&self, who: Who, push: Push) -> Result<(), PortError> {
        if self.net.sim.planted == Some(Planted::GateSkipped) {
            return Ok(());
        }
        self.call(move |control| async move { control.open_publish(who, push).await }).await
    }

    async fn settled(&self, who: Who, outcome: PushOutcome, left: Left) -> Result<(), PortError> {
        self.call(move |control| {
            let left = left.clone();
            async move { control.settled(who, outcome, left).await }
        })
        .await
    }

    async fn unsettled(&self, who: Who, why: String) -> Result<(), PortError> {
        self.call(move |control| {
            let why = why.clone();
            async move { control.unsettled(who, why).await }
        })
        .await
    }

    async fn forgot(&self, runner: RunnerId, session: SessionId) -> Result<(), PortError> {
        self.call(move |control| async move { control.forgot(runner, session).await }).await
    }

    async fn end(&self, who: Who, ending: Ending) -> Result<(), PortError> {
        self.call(move |control| {
            let ending = ending.clone();
            async move { control.end(who, ending).await }
        })
        .await
    }

    async fn sweep(&self, runner: RunnerId, present: Vec<Present>) -> Result<Vec<Fate>, PortError> {
        self.call(move |control| {
            let present = present.clone();
            async move { control.sweep(runner, present).await }
        })
        .await
    }

    async fn stepped(&self, who: Who, stepped: Stepped) -> Result<Termination, PortError> {
        self.call(move |control| {
            let stepped = stepped.clone();
            async move { control.stepped(who, stepped).await }
        })
        .await
    }
}
