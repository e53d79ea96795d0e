//! Any sequence of decisions, against a model: a map of rows with revisions, and nothing else.
//!
//! The model does not know how a store works. It knows that a decision is done if and only if every
//! row it read or changes is at the revision it expects, and what is there afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_kernel::{Revision, TaskId};
use belay_store::rows::TaskRow;
use belay_store::{Commit, Committed, Key, Store, Stored};

use super::chance::Chance;
use super::make::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(usize),
    Update(usize, Seen),
    Delete(usize, Seen),
    Read(usize, Seen),
}

/// How right the decider is about the revision.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Now,
    Stale,
}

fn draw(chance: &mut Chance, rows: usize) -> Step {
    let row = chance.below(rows as u64) as usize;
    let seen = if chance.below(5) == 0 { Seen::Stale } else { Seen::Now };
    match chance.below(10) {
        0..=2 => Step::Insert(row),
        3..=6 => Step::Update(row, seen),
        7 => Step::Delete(row, seen),
        _ => Step::Read(row, seen),
    }
}

struct Model {
    rows: BTreeMap<TaskId, (u64, TaskRow)>,
}

impl Model {
    fn revision(&self, id: TaskId, seen: Seen) -> Revision {
        let now = self.rows.get(&id).map_or(0, |(revision, _)| *revision);
        match seen {
            Seen::Now => Revision(now),
            Seen::Stale => Revision(now + 1),
        }
    }

    /// Builds the decision, and says what must become of it.
    fn decide(
        &self,
        steps: &[Step],
        names: &[TaskRow],
        round: i64,
    ) -> (Commit, Vec<Key>, BTreeMap<TaskId, Option<TaskRow>>) {
        let mut commit = Commit::new();
        let (mut stale, mut writes) = (Vec::new(), BTreeMap::new());
        for step in steps {
            let index = match step {
                Step::Insert(index) | Step::Update(index, _) => index,
                Step::Delete(index, _) | Step::Read(index, _) => index,
            };
            let row = TaskRow { priority: round, ..names[*index].clone() };
            let id = row.task.id;
            let wrong = match step {
                Step::Insert(_) => {
                    commit = commit.insert(&row);
                    writes.insert(id, Some(row));
                    self.rows.contains_key(&id)
                }
                Step::Update(_, seen) | Step::Delete(_, seen) | Step::Read(_, seen) => {
                    let revision = self.revision(id, *seen);
                    if revision == Revision(0) {
                        commit = commit.read_absent::<TaskRow>(&id);
                        continue;
                    }
                    let stored = Stored { revision, row: row.clone() };
                    commit = match step {
                        Step::Update(..) => {
                            writes.insert(id, Some(row));
                            commit.update(revision, &stored.row)
                        }
                        Step::Delete(..) => {
                            writes.insert(id, None);
                            commit.delete(&stored)
                        }
                        _ => commit.read(&stored),
                    };
                    matches!(seen, Seen::Stale)
                }
            };
            if wrong {
                stale.push(Key::of::<TaskRow>(&id));
            }
        }
        (commit, stale, writes)
    }

    fn apply(&mut self, writes: BTreeMap<TaskId, Option<TaskRow>>) {
        for (id, row) in writes {
            match row {
                Some(row) => {
                    let revision = self.rows.get(&id).map_or(0, |(revision, _)| *revision) + 1;
                    self.rows.insert(id, (revision, row));
                }
                None => {
                    self.rows.remove(&id);
                }
            }
        }
    }
}

pub(crate) async fn any_sequence_of_decisions_agrees_with_the_model<S: Store>(store: Arc<S>) {
    for seed in 0..6 {
        run(&*store, seed, 60).await;
    }
}

/// One sequence of decisions, of which some are handed in together.
pub(crate) async fn run<S: Store>(store: &S, seed: u64, rounds: i64) {
    let mut chance = Chance(seed);
    let names: Vec<TaskRow> = (0..5).map(|_| task("modelled")).collect();
    let mut model = Model { rows: BTreeMap::new() };
    for round in 0..rounds {
        let (mut commits, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..=chance.below(4) {
            let mut steps: Vec<Step> = Vec::new();
            let mut free: Vec<usize> = (0..names.len()).collect();
            for _ in 0..=chance.below(3) {
                let at = chance.below(free.len() as u64) as usize;
                let row = free.swap_remove(at);
                steps.push(match draw(&mut chance, 1) {
                    Step::Insert(_) => Step::Insert(row),
                    Step::Update(_, seen) => Step::Update(row, seen),
                    Step::Delete(_, seen) => Step::Delete(row, seen),
                    Step::Read(_, seen) => Step::Read(row, seen),
                });
            }
            let (commit, mut stale, writes) = model.decide(&steps, &names, round);
            commits.push(commit);
            stale.sort();
            if stale.is_empty() {
                model.apply(writes);
            }
            wanted.push(stale);
        }
        let answers = store.commit_all(commits).await.unwrap();
        for (answer, wanted) in answers.into_iter().zip(wanted) {
            let found = match answer {
                Committed::Done => Vec::new(),
                Committed::Overtaken(mut keys) => {
                    keys.sort();
                    assert!(!keys.is_empty());
                    keys
                }
                other => panic!("seed {seed}, round {round}: {other:?}"),
            };
            assert_eq!(found, wanted, "seed {seed}, round {round}");
        }
    }
    let ids: Vec<_> = names.iter().map(|row| row.task.id).collect();
    let found = store.load::<TaskRow>(&ids).await.unwrap();
    for (id, stored) in ids.iter().zip(found) {
        let stored = stored.map(|stored| (stored.revision.0, stored.row));
        assert_eq!(stored.as_ref(), model.rows.get(id), "seed {seed}");
    }
}
