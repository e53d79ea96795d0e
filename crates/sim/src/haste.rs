//! The worst moments: a push is under way, an answer has just been given, work has just become
//! ready. Chance alone hits them rarely, so some of them are seized: a person acts, a process
//! falls, the next decision about that task is slow to be written.

use std::sync::Arc;

use belay_kernel::{RunnerId, TaskId};

use crate::oracle::{Oracle, short};
use crate::people::Person;
use crate::remote::Remote;
use crate::sim::Part;
use crate::world::FIRST;

/// What has just happened to a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// Its agent may run.
    Started,
    /// Its push may begin.
    Opened,
    /// Its agent asks, and waits.
    Asked,
    /// The answer to what its agent asked is on its way.
    Answered,
    /// Its work waits for review.
    Ready,
    /// It has come to rest.
    Rested,
}

impl Oracle {
    /// A moment has come; some are seized.
    pub(crate) fn moment(&self, moment: Moment, task: TaskId) {
        if self.sim.goes_wrong(self.sim.knobs.haste) {
            self.sim.seize(moment, task);
        }
    }

    /// A task has come to rest; some are removed then, where people remove any.
    pub(crate) fn rested(&self, task: TaskId) {
        if self.sim.goes_wrong(self.sim.knobs.removes) {
            self.sim.seize(Moment::Rested, task);
        }
    }
}

/// Whoever seizes them.
#[derive(Clone)]
pub(crate) struct Haste {
    pub(crate) person: Person,
    pub(crate) remote: Arc<Remote>,
}

impl Haste {
    /// Seizes what comes, each as it comes.
    pub(crate) async fn seize(self) {
        let sim = Arc::clone(&self.person.net.sim);
        loop {
            let (moment, task) = sim.next_moment().await;
            let this = self.clone();
            tokio::spawn(async move { this.act(moment, task).await });
        }
    }

    async fn act(&self, moment: Moment, task: TaskId) {
        let sim = &self.person.net.sim;
        sim.note(format_args!("haste   {moment:?} {}", short(task)));
        if sim.rng().permille(800) {
            sim.drag(task);
        }
        sim.wait(0, 1_200).await;
        let draw = sim.rng().below(10);
        match (moment, draw) {
            (Moment::Opened, 0..5) => self.stop_and_go_on(task).await,
            (Moment::Opened, 5..7) => self.person.make_below(task).await,
            (Moment::Opened, 7..9) => self.person.make_after(task).await,
            (Moment::Ready, 0..4) => self.decide_twice(task).await,
            (Moment::Ready, 4..8) => self.wait_for(task).await,
            (Moment::Asked, 0..8) => self.person.answer(task).await,
            (Moment::Rested, 0..5) => self.person.remove(task).await,
            (Moment::Rested, 5..9) => self.remove_and_go_on(task, draw).await,
            (Moment::Answered, 0) | (Moment::Started, 0..4) => self.person.stop(task).await,
            _ => self.fall(task, draw),
        }
    }

    /// Stops a task whose push is under way, and goes on with it at once; the remote may be slow to
    /// say what became of the push.
    async fn stop_and_go_on(&self, task: TaskId) {
        let sim = &self.person.net.sim;
        if sim.knobs.strikes.outages > 0 && sim.rng().permille(500) {
            let until = sim.ms() + sim.rng().between(2_000, 60_000);
            self.remote.go_out(until);
            sim.note(format_args!("remote  answers nobody until {until}"));
        }
        let person = self.person.clone();
        let stopping = tokio::spawn(async move { person.stop(task).await });
        if sim.rng().permille(850) {
            sim.wait(500, 6_000).await;
            self.person.resume(task).await;
        }
        let _ = stopping.await;
    }

    /// Two people review the same work, and do not agree.
    async fn decide_twice(&self, task: TaskId) {
        let other = self.person.clone();
        let rejects = tokio::spawn(async move { other.reject(task).await });
        self.person.accept(task).await;
        let _ = rejects.await;
    }

    /// Somebody removes a task while somebody else goes on with it.
    async fn remove_and_go_on(&self, task: TaskId, draw: u64) {
        let other = self.person.clone();
        let goes_on = tokio::spawn(async move {
            other.net.sim.wait(0, 800).await;
            match draw {
                5 => other.retry(task).await,
                6 => other.make_after(task).await,
                7 => other.resume(task).await,
                _ => other.follow(task).await,
            }
        });
        self.person.net.sim.wait(0, 800).await;
        self.person.remove(task).await;
        let _ = goes_on.await;
    }

    /// What waits for work that is being accepted.
    async fn wait_for(&self, task: TaskId) {
        let other = self.person.clone();
        let makes = tokio::spawn(async move { other.make_after(task).await });
        self.person.net.sim.wait(0, 800).await;
        self.person.accept(task).await;
        let _ = makes.await;
    }

    /// The runner that has the task falls, or a node, or both, where such things happen at all.
    fn fall(&self, task: TaskId, draw: u64) {
        let sim = &self.person.net.sim;
        let runner = self.person.oracle.runner_of(task).map(RunnerId::as_bits);
        let number = runner.and_then(|bits| usize::try_from(bits - FIRST.as_bits()).ok());
        let node = usize::try_from(sim.rng().below(sim.knobs.nodes)).unwrap_or(0);
        let strikes = &sim.knobs.strikes;
        if let Some(number) = number.filter(|_| draw % 3 != 1 && strikes.runner_falls > 0) {
            sim.fall(Part::Runner(number));
        }
        if draw % 3 != 2 && strikes.node_falls > 0 {
            sim.fall(Part::Node(node));
        }
    }
}
