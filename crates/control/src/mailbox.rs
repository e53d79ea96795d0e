//! Duties on their way to runners. A mailbox is a hint: whatever is in it is told again, by the
//! effect or the row that asks for it, until it is seen done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use belay_api::port::{Duty, Who};
use belay_kernel::{QuestionId, RunnerId};
use tokio::sync::Notify;

/// More duties than this are not kept for a runner that does not fetch them.
const MOST: usize = 10_000;

#[derive(Default)]
struct Mailbox {
    duties: VecDeque<Duty>,
    hint: Arc<Notify>,
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
