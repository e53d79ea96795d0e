//! Between the nodes and everybody who speaks to them: what is said may be lost, late or said
//! twice, and so may the answer. What a node works at when it falls is never answered. Who is cut
//! off from a node gets nothing through to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
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
use crate::oracle::Oracle;
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

/// How somebody reaches a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// In the same process, which is the first node's.
    Inside,
    /// Over a network.
    Network,
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Speaker {
    /// A person, or a program of theirs: through whichever node takes it.
    Person,
    /// The runner of this number.
    Runner(usize),
}

/// The ways to the nodes.
pub(crate) struct Net {
    pub(crate) sim: Arc<Sim>,
    nodes: Mutex<Vec<Option<Arc<Node>>>>,
    /// Until when somebody is cut off from a node.
    cuts: Mutex<BTreeMap<(Speaker, usize), u64>>,
    /// Set once, when the world is put together.
    pub(crate) oracle: OnceLock<Weak<Oracle>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Net {
    pub(crate) fn new(sim: Arc<Sim>) -> Self {
        let nodes = (0..sim.knobs.nodes).map(|_| None).collect();
        let (nodes, cuts) = (Mutex::new(nodes), Mutex::default());
        Self { sim, nodes, cuts, oracle: OnceLock::new() }
    }

    /// Puts a node in its place, or none; the one that was there.
    pub(crate) fn set(&self, number: usize, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let mut nodes = lock(&self.nodes);
        nodes.get_mut(number).and_then(|place| std::mem::replace(place, node))
    }

    /// Cuts somebody off from a node.
    pub(crate) fn cut(&self, speaker: Speaker, node: usize, until_ms: u64) {
        lock(&self.cuts).insert((speaker, node), until_ms);
    }

    fn is_cut(&self, speaker: Speaker, node: usize) -> bool {
        let until = lock(&self.cuts).get(&(speaker, node)).copied();
        until.is_some_and(|until| self.sim.ms() < until) && !self.sim.is_calm()
    }

    /// The node that somebody speaks to now, if it is up and can be reached.
    fn node(&self, speaker: Speaker, line: Line) -> Option<Arc<Node>> {
        let nodes = lock(&self.nodes).clone();
        let home = match (speaker, line) {
            (_, Line::Inside) => return nodes.first().cloned().flatten(),
            (Speaker::Runner(number), _) if self.sim.knobs.sticky => number % nodes.len(),
            (Speaker::Runner(_) | Speaker::Person, Line::Network) => match nodes.len() {
                1 => 0,
                count => usize::try_from(self.sim.rng().below(count as u64)).unwrap_or(0),
            },
        };
        // One that is down is passed over; one that only cannot be reached is found out about.
        let turn = |step: usize| (home + step) % nodes.len();
        let number = (0..nodes.len()).map(turn).find(|number| nodes[*number].is_some())?;
        nodes[number].clone().filter(|_| !self.is_cut(speaker, number))
    }

    /// Whoever watches, as long as the world is there.
    pub(crate) fn oracle(&self) -> Option<Arc<Oracle>> {
        self.oracle.get().and_then(Weak::upgrade)
    }

    /// Whether nothing is left to be said for this attempt.
    pub(crate) fn is_over(&self, who: Who) -> bool {
        self.oracle
            .get()
            .and_then(Weak::upgrade)
            .is_some_and(|oracle| oracle.is_over((who.task, who.attempt)))
    }

    /// Says something to the node; nothing, if no answer comes.
    pub(crate) async fn say<T, F, Fut>(
        self: &Arc<Self>,
        speaker: Speaker,
        line: Line,
        call: F,
    ) -> Option<T>
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
            self.say_late(speaker, Arc::clone(&call));
        }
        if line == Line::Network && sim.goes_wrong(200) {
            sim.wait(1, 400).await;
        }
        let Some(node) = self.node(speaker, line) else {
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
        if line == Line::Network && sim.goes_wrong(sim.knobs.net_slow) {
            sim.wait(1_000, 20_000).await;
        }
        if sim.goes_wrong(loses) {
            sim.wait(100, 8_000).await;
            return None;
        }
        Some(answer)
    }

    /// The same once more, later: after whatever was said meanwhile.
    fn say_late<T, F, Fut>(self: &Arc<Self>, speaker: Speaker, call: Arc<F>)
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let most = if this.sim.rng().permille(100) { 120_000 } else { 4_000 };
            this.sim.wait(1, most).await;
            if let Some(node) = this.node(speaker, Line::Network) {
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
    pub(crate) number: usize,
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
        let answer = self.net.say(Speaker::Runner(self.number), self.line, call).await;
        self.gate.step().await;
        answer.unwrap_or_else(|| Err(PortError::Unavailable("no answer came".into())))
    }
}

impl SimPort {
    /// Looks whether what was answered is so.
    fn holds(&self, look: impl FnOnce(&Oracle)) {
        if let Some(oracle) = self.net.oracle() {
            look(&oracle);
        }
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
        let (sent, pulses) = (self.net.sim.now(), beat.attempts.clone());
        let answer = self.call(move |control| {
            let beat = beat.clone();
            async move { control.beat(beat).await }
        });
        let answer = answer.await?;
        for (pulse, beaten) in pulses.iter().zip(&answer) {
            if let Beaten::Current { lease } = beaten {
                self.holds(|oracle| oracle.told_renewed(pulse.who, sent, *lease));
            }
        }
        Ok(answer)
    }

    async fn preparing(&self, who: Who) -> Result<(), PortError> {
        self.call(move |control| async move { control.preparing(who).await }).await
    }

    async fn freezing(&self, who: Who) -> Result<(), PortError> {
        self.call(move |control| async move { control.freezing(who).await }).await
    }

    async fn thawed(&self, who: Who) -> Result<(), PortError> {
        self.call(move |control| async move { control.thawed(who).await }).await
    }

    async fn start(&self, who: Who, start: Start) -> Result<(), PortError> {
        self.call(move |control| {
            let start = start.clone();
            async move { control.start(who, start).await }
        })
        .await?;
        self.holds(|oracle| oracle.told_started(who));
        Ok(())
    }

    async fn report(&self, who: Who, report: Report) -> Result<Acknowledged, PortError> {
        let answer = self.call(move |control| {
            let report = report.clone();
            async move { control.report(who, report).await }
        });
        let answer = answer.await?;
        self.holds(|oracle| oracle.told_durable(who, answer.next));
        Ok(answer)
    }

    async fn ask(&self, who: Who, asked: Asked) -> Result<(), PortError> {
        let question = asked.question;
        self.call(move |control| {
            let asked = asked.clone();
            async move { control.ask(who, asked).await }
        })
        .await?;
        self.holds(|oracle| oracle.told_asked(who, question));
        Ok(())
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
        .await?;
        self.holds(|oracle| oracle.told_settled(who));
        Ok(())
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
        .await?;
        self.holds(|oracle| oracle.told_ended(who));
        Ok(())
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
