//! People: they make tasks, and stop, answer, accept, reject, retry, resume, continue and remove
//! them at random moments. A request that is not answered is made again with the same key.

use std::sync::Arc;
use std::time::Duration;

use belay_api::{
    Accept, Answer, Ask, Code, Comment, Continue, NewTask, Problem, Publishing, Resume, Stopping,
};
use belay_control::Control;
use belay_kernel::TaskId;
use belay_kernel::task::{Review, State};

use crate::Planted;
use crate::net::{Line, Net, Speaker};
use crate::oracle::{Oracle, short};
use crate::store::SimStore;

/// How often a person asks again.
const TRIES: u32 = 5;
const PERSON: &str = "ada";

/// Somebody who uses Belay.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) net: Arc<Net>,
    pub(crate) oracle: Arc<Oracle>,
}

impl Person {
    /// Asks until an answer comes; nothing, if none does. What is done is known by its key.
    async fn ask<T, F, Fut>(&self, call: F) -> Option<Result<T, Problem>>
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>, String) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let key = format!("key-{:016x}", self.net.sim.rng().next());
        let answer = self.ask_as(&key, call).await;
        if let Some(Ok(_)) = &answer {
            self.oracle.told_done(PERSON, &key);
        }
        answer
    }

    async fn ask_as<T, F, Fut>(&self, key: &str, call: F) -> Option<Result<T, Problem>>
    where
        T: Send + 'static,
        F: Fn(Control<SimStore>, String) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        for _ in 0..TRIES {
            let (call, key) = (call.clone(), key.to_owned());
            let asked = move |control| call(control, key.clone());
            let said = self.net.say(Speaker::Person, Line::Network, asked);
            match said.await {
                Some(Err(problem)) if problem.code == Code::Unavailable => {}
                Some(answer) => return Some(answer),
                None => {}
            }
            self.net.sim.wait(200, 6_000).await;
        }
        None
    }

    /// Notes what is done; whether it is done in this world.
    fn does(&self, what: &str, task: TaskId) -> bool {
        let does = self.net.sim.does(what);
        if does {
            self.net.sim.note(format_args!("person  {what} {}", short(task)));
        }
        does
    }

    /// Makes a task.
    pub(crate) async fn make(&self) {
        let new = self.imagine();
        self.propose(new).await;
    }

    /// Makes a subtask of this one.
    pub(crate) async fn make_below(&self, task: TaskId) {
        let new = self.imagine();
        self.propose(NewTask { parent: Some(task), after: Vec::new(), ..new }).await;
    }

    /// Makes a task that waits for this one.
    pub(crate) async fn make_after(&self, task: TaskId) {
        let new = self.imagine();
        self.propose(NewTask { parent: None, after: vec![task], ..new }).await;
    }

    async fn propose(&self, new: NewTask) {
        let made = self.ask(move |control, key| {
            let new = new.clone();
            async move { control.create(Ask::by(PERSON).key(key), new).await }
        });
        match made.await {
            Some(Ok(view)) => self.oracle.made(view.summary.id),
            Some(Err(problem)) => {
                self.net.sim.note(format_args!("person  gets no task: {}", problem.detail));
            }
            None => {}
        }
    }

    fn imagine(&self) -> NewTask {
        let tasks = self.oracle.tasks();
        let keeps = self.net.sim.knobs.keeps;
        let mut rng = self.net.sim.rng();
        let is_command = rng.permille(350);
        let mut any = |chance: u64| match rng.permille(chance) {
            true => rng.pick(&tasks).map(|row| row.task.id),
            false => None,
        };
        let (after, parent) = (any(200), any(250));
        let mut limits = std::collections::BTreeMap::new();
        if rng.permille(600) {
            limits.insert("absolute".to_owned(), format!("{}m", rng.between(1, 8)));
        }
        NewTask {
            prompt: format!("Mend fence {:04x}.", rng.below(65_536)),
            agent: None,
            command: if is_command { vec!["mend".into()] } else { Vec::new() },
            repository: rng.permille(750).then(|| "sim://repo".to_owned()),
            publish: if rng.permille(850) { Publishing::Branch } else { Publishing::None },
            review: if rng.permille(500) { Review::Auto } else { Review::Manual },
            limits,
            budget_usd: rng.permille(150).then_some(0.06),
            allow_uncounted: true,
            max_attempts: Some(u32::try_from(rng.between(1, 3)).unwrap_or(1)),
            priority: i64::try_from(rng.below(3)).unwrap_or(0),
            after: after.into_iter().collect(),
            parent,
            hold: rng.permille(80),
            keep_alive: keeps > 0 && rng.permille(keeps),
            ..NewTask::default()
        }
    }

    /// Does something with a task that it means something to, or something that it does not.
    pub(crate) async fn meddle(&self) {
        let tasks = self.oracle.tasks();
        let removes = self.net.sim.knobs.removes / 3;
        let (row, draw, is_removed) = {
            let mut rng = self.net.sim.rng();
            let Some(row) = rng.pick(&tasks).cloned() else { return };
            (row, rng.below(100), removes > 0 && rng.permille(removes))
        };
        let id = row.task.id;
        if is_removed {
            // Whoever tidies up also stops what nobody works on.
            return if draw < 35 { self.stop(id).await } else { self.remove(id).await };
        }
        if draw < 12 {
            return self.retry(id).await;
        }
        match row.task.state {
            State::Queued { .. } | State::Claimed { .. } if draw < 30 => self.stop(id).await,
            State::Running { .. } if draw < 45 => self.stop(id).await,
            State::Blocked(_) if draw < 25 => self.stop(id).await,
            State::Blocked(_) => self.answer(id).await,
            State::Pending { .. } => self.run(id).await,
            State::Ready { .. } if draw < 50 => self.reject(id).await,
            State::Ready { .. } => self.accept(id).await,
            State::Failed(_) | State::TimedOut { .. } if draw < 55 => self.resume(id).await,
            State::Failed(_) | State::TimedOut { .. } => self.retry(id).await,
            State::Completed if draw < 40 => self.follow(id).await,
            State::Completed | State::BudgetExceeded if draw < 60 => self.stop(id).await,
            State::Cancelled if draw < 30 => self.resume(id).await,
            State::Cancelled => self.stop(id).await,
            _ => {}
        }
    }

    /// Does what waits for a person, so that nothing else is left to do.
    pub(crate) async fn attend(&self) {
        for row in self.oracle.tasks().iter() {
            let id = row.task.id;
            match row.task.state {
                State::Pending { .. } => self.run(id).await,
                State::Ready { .. } => self.accept(id).await,
                State::Blocked(_) => self.answer(id).await,
                _ => {}
            }
        }
    }

    async fn run(&self, id: TaskId) {
        if !self.does("runs", id) {
            return;
        }
        self.ask(move |c, key| async move { c.run(Ask::by(PERSON).key(key), id).await }).await;
    }

    pub(crate) async fn retry(&self, id: TaskId) {
        if !self.does("retries", id) {
            return;
        }
        self.ask(move |c, key| async move { c.retry(Ask::by(PERSON).key(key), id).await }).await;
    }

    pub(crate) async fn resume(&self, id: TaskId) {
        if !self.does("resumes", id) {
            return;
        }
        let message = Some("Go on.".to_owned());
        self.ask(move |c, key| {
            let resume = Resume { message: message.clone() };
            async move { c.resume(Ask::by(PERSON).key(key), id, resume).await }
        })
        .await;
    }

    pub(crate) async fn follow(&self, id: TaskId) {
        if !self.does("continues", id) {
            return;
        }
        self.ask(move |c, key| async move {
            let follow = Continue { message: "Now paint it.".to_owned() };
            c.follow(Ask::by(PERSON).key(key), id, follow).await
        })
        .await;
    }

    /// Removes a task, and everything below it.
    pub(crate) async fn remove(&self, id: TaskId) {
        if !self.does("removes", id) {
            return;
        }
        self.oracle.removing(id);
        let removed = self.ask(move |c, key| async move {
            c.delete(Ask::by(PERSON).key(key), &id.to_string()).await
        });
        match removed.await {
            Some(Ok(())) => self.oracle.told_removed(id),
            Some(Err(problem)) => {
                self.net.sim.note(format_args!("person  removes nothing: {}", problem.detail));
            }
            None => {}
        }
    }

    pub(crate) async fn accept(&self, id: TaskId) {
        if !self.does("accepts", id) {
            return;
        }
        self.ask(move |c, key| async move {
            c.accept(Ask::by(PERSON).key(key), id, Accept::default()).await
        })
        .await;
    }

    pub(crate) async fn reject(&self, id: TaskId) {
        if !self.does("rejects", id) {
            return;
        }
        self.ask(move |c, key| async move {
            let comment = Comment { comment: Some("Not so.".to_owned()), run: true };
            c.reject(Ask::by(PERSON).key(key), id, comment).await
        })
        .await;
    }

    pub(crate) async fn answer(&self, id: TaskId) {
        if !self.does("answers", id) {
            return;
        }
        self.ask(move |c, key| async move {
            let answer = Answer { question: None, text: "1".to_owned() };
            c.answer(Ask::by(PERSON).key(key), id, answer).await
        })
        .await;
    }

    pub(crate) async fn stop(&self, id: TaskId) {
        if !self.does("stops", id) {
            return;
        }
        let wait = Duration::from_secs(self.net.sim.rng().pick(&[0, 5, 30]).copied().unwrap_or(0));
        // One that was stopped before is not stopped again: then there is no key to know.
        let key = format!("key-{:016x}", self.net.sim.rng().next());
        let stop = move |c: Control<SimStore>, key| async move {
            c.stop(Ask::by(PERSON).key(key), id, wait).await
        };
        let stopped = self.ask_as(&key, stop);
        let hasty = self.net.sim.planted == Some(Planted::StopAckedEarly);
        let stopped = stopped.await;
        if let Some(Ok(_)) = &stopped {
            self.oracle.told(id, State::Cancelled);
        }
        match stopped {
            Some(Err(problem)) => self.oracle.told_unstoppable(id, &problem),
            Some(Ok(Stopping::Stopped { .. })) => self.oracle.stopped(id),
            Some(Ok(Stopping::Stopping { .. })) if hasty => self.oracle.stopped(id),
            _ => {}
        }
    }
}
