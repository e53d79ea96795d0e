//! Duties on their way to runners. A mailbox is a hint: whatever is in it is told again, by the
//! effect or the row that asks for it, until it is seen done. A runner listens to one node at a
//! time: where it does not, another node is to tell it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use belay_api::port::{Duty, Who};
use belay_kernel::{QuestionId, RunnerId};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

/// More duties than this are not kept for a runner that does not fetch them.
const MOST: usize = 10_000;

/// How long a runner is waited for between two of its questions.
const PAUSE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Mailbox {
    duties: VecDeque<Duty>,
    hint: Arc<Notify>,
    /// How many of its questions wait here.
    waiting: u32,
    /// When the last one ended.
    heard_at: Option<Instant>,
}

/// The mailboxes of all runners that speak to this node.
#[derive(Default)]
pub(crate) struct Mailboxes {
    boxes: Mutex<BTreeMap<RunnerId, Mailbox>>,
    delivered: Mutex<VecDeque<(Who, QuestionId)>>,
}

impl Mailboxes {
    /// Leaves a duty for one runner; the same one is left once.
    pub(crate) fn leave(&self, runner: RunnerId, duty: Duty) {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = boxes.entry(runner).or_default();
        if mailbox.duties.len() < MOST && !mailbox.duties.contains(&duty) {
            mailbox.duties.push_back(duty);
        }
        mailbox.hint.notify_one();
    }

    /// Whether a runner listens here, as far as can be told.
    pub(crate) fn listens(&self, runner: RunnerId) -> bool {
        let boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        boxes.get(&runner).is_some_and(|mailbox| {
            mailbox.waiting > 0 || mailbox.heard_at.is_some_and(|at| at.elapsed() < PAUSE)
        })
    }

    /// A runner listens here for as long as this is held.
    pub(crate) fn listen(&self, runner: RunnerId) -> Listening<'_> {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        boxes.entry(runner).or_default().waiting += 1;
        Listening { mailboxes: self, runner }
    }

    /// Lets every runner know that there may be something to claim.
    pub(crate) fn offer(&self, role: &str) {
        let runners: Vec<_> = {
            let boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
            boxes.keys().copied().collect()
        };
        for runner in runners {
            self.leave(runner, Duty::Claim { role: role.to_owned() });
        }
    }

    /// Takes what there is, and the hint to wait for when there is nothing.
    pub(crate) fn take(&self, runner: RunnerId) -> (Vec<Duty>, Arc<Notify>) {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = boxes.entry(runner).or_default();
        (mailbox.duties.drain(..).collect(), mailbox.hint.clone())
    }

    /// Remembers, for a while, that an answer was handed over.
    pub(crate) fn note_delivered(&self, who: Who, question: QuestionId) {
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        delivered.push_back((who, question));
        if delivered.len() > MOST {
            delivered.pop_front();
        }
    }

    /// Whether an answer was handed over.
    pub(crate) fn was_delivered(&self, who: Who, question: QuestionId) -> bool {
        let delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        delivered.contains(&(who, question))
    }
}

/// A runner's question for duties, until it is answered or nobody waits for the answer any more.
pub(crate) struct Listening<'a> {
    mailboxes: &'a Mailboxes,
    runner: RunnerId,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut boxes = self.mailboxes.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = boxes.entry(self.runner).or_default();
        mailbox.waiting = mailbox.waiting.saturating_sub(1);
        mailbox.heard_at = Some(Instant::now());
    }
}
