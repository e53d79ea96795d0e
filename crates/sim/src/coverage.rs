//! What happened in worlds, counted: moves of the machines, effects, faults and what people did;
//! held against what the kernel says can happen.

use std::collections::{BTreeMap, BTreeSet};

use belay_kernel::sandbox::Status;
use belay_kernel::task::table::{Move, table};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Moves of tasks, and how often each was made.
    pub tasks: BTreeMap<Move, u64>,
    /// Moves of attempts.
    pub attempts: BTreeMap<Move, u64>,
    /// Moves of sandboxes, as far as they were stored.
    pub sandboxes: BTreeMap<Move, u64>,
    /// What went wrong, by where, and what people did.
    pub counts: BTreeMap<String, u64>,
}

/// What can happen and did not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unseen {
    /// Moves of tasks.
    pub tasks: Vec<Move>,
    /// Moves of attempts.
    pub attempts: Vec<Move>,
    /// Moves of sandboxes.
    pub sandboxes: Vec<Move>,
    /// Effects of tasks' moves.
    pub effects: Vec<&'static str>,
    /// Moves that were made although the kernel does not know them.
    pub unknown: Vec<Move>,
    /// How many moves and effects there are in all.
    pub of: usize,
}

impl Unseen {
    /// How many moves and effects were not seen.
    pub fn count(&self) -> usize {
        self.tasks.len() + self.attempts.len() + self.sandboxes.len() + self.effects.len()
    }

    /// One line for each of them.
    pub fn lines(&self) -> Vec<String> {
        let of = |what: &str, moves: &[Move]| -> Vec<String> {
            moves.iter().map(|(from, to)| format!("{what}: {from} → {to}")).collect()
        };
        let mut lines = of("task", &self.tasks);
        lines.extend(of("attempt", &self.attempts));
        lines.extend(of("sandbox", &self.sandboxes));
        lines.extend(self.effects.iter().map(|effect| format!("effect: {effect}")));
        lines
    }
}

impl Coverage {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        fn all<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *into.entry(key.clone()).or_default() += count;
            }
        }
        all(&mut self.tasks, &other.tasks);
        all(&mut self.attempts, &other.attempts);
        all(&mut self.sandboxes, &other.sandboxes);
        all(&mut self.counts, &other.counts);
    }

    /// What the kernel says can happen and was not seen. The lists are the kernel's own.
    pub fn unseen(&self) -> Unseen {
        let table = table();
        let seen = |moves: &BTreeMap<Move, u64>, known: &BTreeSet<Move>| -> Vec<Move> {
            known.iter().filter(|one| !moves.contains_key(*one)).copied().collect()
        };
        let tasks: BTreeSet<Move> = table.tasks.keys().copied().collect();
        let sandboxes: BTreeSet<Move> = Status::ALL
            .iter()
            .flat_map(|from| from.moves().iter().map(|to| (from.name(), to.name())))
            .collect();
        let effects: BTreeSet<_> = table.tasks.values().flatten().copied().collect();
        let had = table.tasks.iter().filter(|(one, _)| self.tasks.contains_key(*one));
        let had: BTreeSet<_> = had.flat_map(|(_, effects)| effects.iter().copied()).collect();
        let strange = self.tasks.keys().filter(|one| !tasks.contains(*one));
        let stranger = self.attempts.keys().filter(|one| !table.attempts.contains(*one));
        Unseen {
            of: tasks.len() + table.attempts.len() + sandboxes.len() + effects.len(),
            tasks: seen(&self.tasks, &tasks),
            attempts: seen(&self.attempts, &table.attempts),
            sandboxes: seen(&self.sandboxes, &sandboxes),
            effects: effects.difference(&had).copied().collect(),
            unknown: strange.chain(stranger).copied().collect(),
        }
    }
}
