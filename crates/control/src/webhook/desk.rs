//! What a node keeps in mind of the hooks that it sends for: a copy of rows, read anew whenever
//! something may have changed.

use std::collections::{BTreeMap, BTreeSet};

use belay_kernel::webhook::{self, Letter};
use belay_kernel::{Timestamp, WebhookId};
use belay_store::Stored;
use belay_store::rows::{LetterRow, WebhookRow};

/// How many deliveries are under way at a time: in all, and to one hook.
const UNDER_WAY: usize = 64;
const OF_ONE: usize = 16;

/// A letter that is under way, as it was when it left.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) hook: WebhookId,
    pub(super) letter: Stored<LetterRow>,
}

/// The hooks of this node, and their letters that wait.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) hooks: BTreeMap<WebhookId, Stored<WebhookRow>>,
    letters: BTreeMap<(WebhookId, u64), Stored<LetterRow>>,
    under_way: BTreeMap<WebhookId, BTreeSet<u64>>,
    /// The event up to which there is nothing that a hook wants, beyond what its row says.
    passed: BTreeMap<WebhookId, u64>,
}

impl Desk {
    /// The rows as they are now.
    pub(super) fn reread(
        &mut self,
        hooks: Vec<Stored<WebhookRow>>,
        letters: Vec<Stored<LetterRow>>,
    ) {
        self.hooks = hooks.into_iter().map(|hook| (hook.row.id, hook)).collect();
        let key = |letter: &Stored<LetterRow>| (letter.row.webhook, letter.row.number);
        self.letters = letters.into_iter().map(|letter| (key(&letter), letter)).collect();
        self.passed.retain(|hook, _| self.hooks.contains_key(hook));
    }

    /// How many letters of a hook wait.
    pub(super) fn waiting(&self, hook: WebhookId) -> usize {
        self.letters.range((hook, 0)..=(hook, u64::MAX)).count()
    }

    /// Up to where a hook has looked.
    pub(super) fn seen(&self, hook: &WebhookRow) -> u64 {
        self.passed.get(&hook.id).copied().unwrap_or(0).max(hook.seen)
    }

    /// There is nothing up to there that a hook wants.
    pub(super) fn pass(&mut self, hook: WebhookId, number: u64) {
        self.passed.insert(hook, number);
    }

    /// Letters that may be sent now, which are under way from now on; and when the next may be.
    pub(super) fn take(&mut self, now: Timestamp) -> (Vec<Sent>, Option<Timestamp>) {
        let (mut taken, mut next) = (Vec::new(), None::<Timestamp>);
        let mut room = UNDER_WAY.saturating_sub(self.under_way.values().map(BTreeSet::len).sum());
        for hook in self.hooks.keys().copied() {
            let under_way = self.under_way.entry(hook).or_default();
            let letters = self.letters.range((hook, 0)..=(hook, u64::MAX));
            let waiting: Vec<_> = letters
                .map(|(_, letter)| Letter {
                    number: letter.row.number,
                    task: letter.row.task,
                    due_at: letter.row.send_at,
                })
                .collect();
            let of_one = OF_ONE.saturating_sub(under_way.len()).min(room);
            let sendable = webhook::sendable(&waiting, under_way, of_one, now);
            next = match (next, sendable.next) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            room -= sendable.now.len();
            for number in sendable.now {
                under_way.insert(number);
                let letter = self.letters.get(&(hook, number)).cloned();
                taken.extend(letter.map(|letter| Sent { hook, letter }));
            }
        }
        (taken, next)
    }

    /// A letter is not under way any more; it is gone, or it waits as it is now.
    pub(super) fn put_back(&mut self, sent: &Sent, letter: Option<Stored<LetterRow>>) {
        let number = sent.letter.row.number;
        if let Some(under_way) = self.under_way.get_mut(&sent.hook) {
            under_way.remove(&number);
        }
        match letter {
            Some(letter) => self.letters.insert((sent.hook, number), letter),
            None => self.letters.remove(&(sent.hook, number)),
        };
    }
}
