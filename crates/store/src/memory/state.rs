//! What the in-memory store remembers, and the rules that a database would hold.

use std::collections::{BTreeMap, BTreeSet};

use belay_kernel::planted::{self, Bug};
use belay_kernel::{Revision, Span, Timestamp};

use crate::cell::Cell;
use crate::claim::{ClaimAsk, Entry};
use crate::commit::{ABSENT, Answered, Change, Commit, Committed, replay};
use crate::effect::{Effect, NewEffect, Settle, Settled};
use crate::event::{Cursor, Event, EventFilter, Events, check_cursor};
use crate::lease::{Beat, Beaten, Holder, Lease, LeaseAct, LeaseKind, LeaseWrite};
use crate::query::Scan;
use crate::refusal::{Failure, Refusal, Rule};
use crate::row::{Key, RawRow, Row};
use crate::rows::{ONLY_ONE, OnDelete, REFERENCES, TABLES};
use crate::store::{Due, Prune, Pruned};
use crate::table::{Table, Timer};

/// Everything that is remembered.
#[derive(Clone, Default)]
pub(super) struct State {
    rows: BTreeMap<Key, RawRow>,
    /// (role, priority, claim_at, id) of what can be claimed.
    queue: BTreeSet<(String, i64, i64, String)>,
    due: BTreeSet<(i64, Key)>,
    leases: BTreeMap<Holder, Lease>,
    events: Vec<Event>,
    pruned: u64,
    effects: BTreeMap<i64, Effect>,
    last_effect: i64,
    requests: BTreeMap<(String, String), Answered>,
    /// How often the rows of each table have changed, leases included.
    changes: BTreeMap<&'static str, u64>,
}

fn cell<'a>(table: &Table, cells: &'a [Cell], column: &str) -> Option<&'a Cell> {
    table.column(column).and_then(|index| cells.get(index))
}

fn text(table: &Table, cells: &[Cell], column: &str) -> Option<String> {
    cell(table, cells, column).and_then(Cell::as_text).map(str::to_owned)
}

fn int(table: &Table, cells: &[Cell], column: &str) -> Option<i64> {
    cell(table, cells, column).and_then(Cell::as_int)
}

fn table_named(name: &str) -> &'static Table {
    let named = TABLES.iter().map(|table| table()).find(|table| table.name == name);
    named.expect("references name tables that exist")
}

impl State {
    /// A row, with its lease's end where it has a lease.
    pub(super) fn row(&self, key: &Key) -> Option<RawRow> {
        let mut raw = self.rows.get(key)?.clone();
        if key.table.view != key.table.name
            && let Some(index) = key.table.column("lease_end")
            && let Some(lease) = self.lease_of(key)
        {
            raw.cells[index] = Cell::Int(lease.until.as_millis());
        }
        Some(raw)
    }

    fn lease_of(&self, key: &Key) -> Option<&Lease> {
        let kind = if key.table.name == "attempts" { "attempt" } else { "worker" };
        let number = key.cells.get(1).and_then(Cell::as_int).unwrap_or(0);
        let holder = Holder::from_columns(kind, key.cells[0].as_text()?, number)?;
        self.leases.get(&holder)
    }

    /// How often the rows of a table have changed, as they are shown.
    pub(super) fn changes(&self, table: &Table) -> u64 {
        self.changes.get(table.name).copied().unwrap_or(0)
    }

    fn touch(&mut self, table: &'static str) {
        *self.changes.entry(table).or_default() += 1;
    }

    /// A lease has changed: the rows of its holders' table show its end.
    fn touch_leases(&mut self) {
        self.touch("attempts");
        self.touch("workers");
    }

    fn revision(&self, key: &Key) -> Revision {
        self.rows.get(key).map_or(ABSENT, |row| row.revision)
    }

    fn of_table(&self, table: &'static Table) -> impl Iterator<Item = (&Key, &RawRow)> {
        let from = Key { table, cells: Vec::new() };
        self.rows.range(from..).take_while(move |(key, _)| std::ptr::eq(key.table, table))
    }

    /// Rows that pass all tests, newest first.
    pub(super) fn scan(&self, scan: &Scan) -> Vec<RawRow> {
        let newest = scan.newest_by();
        let place = |raw: &RawRow| {
            (std::cmp::Reverse(raw.cells[newest].clone()), raw.cells[..scan.table.key].to_vec())
        };
        let mut found: Vec<RawRow> = self
            .of_table(scan.table)
            .filter_map(|(key, _)| self.row(key))
            .filter(|raw| scan.tests.iter().all(|(index, test)| test.holds(&raw.cells[*index])))
            .filter(|raw| {
                scan.after.as_ref().is_none_or(|after| {
                    place(raw) > (std::cmp::Reverse(after.newest.clone()), after.key.clone())
                })
            })
            .collect();
        found.sort_by_cached_key(place);
        found.truncate(scan.limit);
        found
    }

    /// How many rows have each value of a column, in the order of the values.
    pub(super) fn tally(&self, table: &'static Table, column: &str) -> Vec<(String, u64)> {
        let mut counts = BTreeMap::<String, u64>::new();
        for (_, raw) in self.of_table(table) {
            if let Some(Cell::Text(value)) = cell(table, &raw.cells, column) {
                *counts.entry(value.clone()).or_default() += 1;
            }
        }
        counts.into_iter().collect()
    }

    /// Commits one decision. A refused one leaves no trace: the rules are checked on the whole, and
    /// what was put is taken back.
    pub(super) fn commit(&mut self, commit: &Commit) -> Committed {
        if let Some(request) = &commit.request
            && let Some(before) = self.answered(&request.principal, &request.key)
        {
            return replay(request, before);
        }
        let read = commit.expect.iter().map(|(key, expected)| (key.clone(), *expected));
        let changed = commit.changes.iter().map(|(change, expected)| (change.key(), *expected));
        let stale: Vec<_> =
            read.chain(changed).filter(|(key, at)| self.revision(key) != *at).collect();
        if !stale.is_empty() {
            return Committed::Overtaken(stale.into_iter().map(|(key, _)| key).collect());
        }
        if let Err(refusal) = self.change(commit) {
            return Committed::Refused(refusal);
        }
        self.append(commit);
        Committed::Done
    }

    fn change(&mut self, commit: &Commit) -> Result<(), Refusal> {
        let mut undo: Vec<(Key, Option<RawRow>)> = Vec::new();
        let written = self.write(commit, &mut undo);
        if written.is_err() {
            for (key, before) in undo.into_iter().rev() {
                match before {
                    Some(raw) => self.set(key, raw),
                    None => self.unset(&key),
                }
            }
        }
        written
    }

    fn write(
        &mut self,
        commit: &Commit,
        undo: &mut Vec<(Key, Option<RawRow>)>,
    ) -> Result<(), Refusal> {
        let mut puts: Vec<&Row> = Vec::new();
        let mut deletes: Vec<&Key> = Vec::new();
        for (change, _) in &commit.changes {
            match change {
                Change::Put(row) => puts.push(row),
                Change::Delete(key) => deletes.push(key),
            }
        }
        puts.sort_by_key(|row| row.table.rank);
        deletes.sort_by_key(|key| std::cmp::Reverse(key.table.rank));
        for row in puts {
            self.check_rules(row)?;
            let key = row.key();
            undo.push((key.clone(), self.rows.get(&key).cloned()));
            let revision = self.revision(&key).next();
            self.set(key, RawRow { revision, cells: row.cells.as_ref().clone() });
        }
        for key in deletes {
            self.remove(key, undo)?;
        }
        Ok(())
    }

    fn check_rules(&self, row: &Row) -> Result<(), Refusal> {
        let broken = |rule| Refusal::Rule { table: row.table.name.to_owned(), rule };
        for reference in REFERENCES.iter().filter(|one| one.table == row.table.name) {
            let named = cell(row.table, &row.cells, reference.column);
            let Some(named @ Cell::Text(_)) = named else { continue };
            let key = Key { table: table_named(reference.to), cells: vec![named.clone()] };
            let itself = key == row.key();
            if !itself && !self.rows.contains_key(&key) {
                return Err(broken(Rule::Reference));
            }
        }
        for (_, column) in ONLY_ONE.iter().filter(|(table, _)| *table == row.table.name) {
            let held = cell(row.table, &row.cells, column).filter(|cell| **cell != Cell::Null);
            let own = row.key();
            let another = held.is_some()
                && self
                    .of_table(row.table)
                    .any(|(key, raw)| *key != own && cell(row.table, &raw.cells, column) == held);
            if another {
                return Err(broken(Rule::unique_in(row.table.name)));
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &Key, undo: &mut Vec<(Key, Option<RawRow>)>) -> Result<(), Refusal> {
        let Some(before) = self.rows.get(key).cloned() else { return Ok(()) };
        undo.push((key.clone(), Some(before)));
        self.unset(key);
        for reference in REFERENCES.iter().filter(|one| one.to == key.table.name) {
            let table = table_named(reference.table);
            let hanging: Vec<Key> = self
                .of_table(table)
                .filter(|(_, raw)| cell(table, &raw.cells, reference.column) == key.cells.first())
                .map(|(key, _)| key.clone())
                .collect();
            if !hanging.is_empty() && reference.on_delete == OnDelete::Refuse {
                let table = key.table.name.to_owned();
                return Err(Refusal::Rule { table, rule: Rule::Reference });
            }
            for key in hanging {
                self.remove(&key, undo)?;
            }
        }
        Ok(())
    }

    /// Every change of a row goes through here, so that the indexes follow.
    fn set(&mut self, key: Key, raw: RawRow) {
        self.unset(&key);
        self.touch(key.table.name);
        if let Some(entry) = queue_entry(key.table, &raw.cells) {
            self.queue.insert(entry);
        }
        if key.table.timer == Timer::Due
            && let Some(at) = int(key.table, &raw.cells, "due_at")
        {
            self.due.insert((at, key.clone()));
        }
        self.rows.insert(key, raw);
    }

    fn unset(&mut self, key: &Key) {
        let Some(raw) = self.rows.remove(key) else { return };
        self.touch(key.table.name);
        if let Some(entry) = queue_entry(key.table, &raw.cells) {
            self.queue.remove(&entry);
        }
        if key.table.timer == Timer::Due
            && let Some(at) = int(key.table, &raw.cells, "due_at")
        {
            self.due.remove(&(at, key.clone()));
        }
    }

    /// Leases, events, effects and the answer: nothing here can be refused any more.
    fn append(&mut self, commit: &Commit) {
        for (change, _) in &commit.changes {
            match change {
                Change::Put(row) => {
                    if let Some(write) = &row.lease {
                        self.write_lease(write);
                    }
                }
                Change::Delete(key) => self.drop_leases(key),
            }
        }
        commit.leases.iter().for_each(|write| self.write_lease(write));
        for event in &commit.events {
            let number = self.event_range().1 + 1;
            let revision = commit.revision_of(event.task);
            self.events.push(Event { number, revision, event: event.clone() });
        }
        for effect in &commit.effects {
            self.last_effect += 1;
            let id = self.last_effect;
            self.effects.insert(id, Effect { id, tries: 0, effect: effect.clone() });
        }
        if let Some(request) = &commit.request {
            let (principal, key) = (request.principal.clone(), request.key.clone());
            let (body_hash, answer) = (request.body_hash.clone(), request.answer.clone());
            let answered = Answered { body_hash, answer, at: request.at };
            self.requests.insert((principal, key), answered);
        }
    }

    fn write_lease(&mut self, write: &LeaseWrite) {
        self.touch_leases();
        match &write.act {
            LeaseAct::Open { fence, mode, until } => {
                let before = self.leases.get(&write.holder);
                let same = before.filter(|lease| lease.fence == *fence && lease.mode == *mode);
                let lease = Lease {
                    holder: write.holder,
                    fence: fence.clone(),
                    mode: (*mode).to_owned(),
                    until: match planted::is(Bug::LeaseWrittenBack) {
                        true => *until,
                        false => same.map_or(*until, |lease| lease.until.max(*until)),
                    },
                    beaten_at: before.map_or(*until, |lease| lease.beaten_at),
                    open: true,
                };
                self.leases.insert(write.holder, lease);
            }
            LeaseAct::Close => {
                if let Some(lease) = self.leases.get_mut(&write.holder) {
                    lease.open = false;
                }
            }
            LeaseAct::Drop => {
                self.leases.remove(&write.holder);
            }
        }
    }

    fn drop_leases(&mut self, key: &Key) {
        let Some(kind) = key.table.lease_kind() else { return };
        self.touch_leases();
        let subject = key.cells[0].as_text().unwrap_or_default().to_owned();
        self.leases.retain(|holder, _| {
            let (of_kind, of_subject, _) = holder.columns();
            of_kind != kind || of_subject != subject
        });
    }

    /// The oldest claimable tasks of each priority of the role.
    pub(super) fn claimable(&self, ask: &ClaimAsk) -> Vec<Entry> {
        let mut heads: BTreeMap<i64, usize> = BTreeMap::new();
        let from = (ask.role.clone(), i64::MIN, i64::MIN, String::new());
        let of_role = self.queue.range(from..).take_while(|(role, ..)| *role == ask.role);
        let entries = of_role.filter_map(|(_, priority, claim_at, id)| {
            let taken = heads.entry(*priority).or_default();
            let counts = *taken < ask.look() && *claim_at <= ask.now.as_millis();
            counts.then(|| {
                *taken += 1;
                let claim_at = Timestamp::from_millis(*claim_at);
                Entry { priority: *priority, claim_at, id: id.clone() }
            })
        });
        entries.collect()
    }

    pub(super) fn waiting_roles(&self, now: Timestamp) -> Vec<String> {
        let ready = self.queue.iter().filter(|(_, _, claim_at, _)| *claim_at <= now.as_millis());
        let roles: BTreeSet<_> = ready.map(|(role, ..)| role.clone()).collect();
        roles.into_iter().collect()
    }

    pub(super) fn take_due(&mut self, now: Timestamp, hold: Span, limit: usize) -> Vec<Due> {
        let until = self.due.range(..=(now.as_millis(), highest_key()));
        let taken: Vec<_> = until.take(limit).cloned().collect();
        for (_, key) in &taken {
            self.set_due(key, Some(now.after(hold)));
        }
        let due = |(at, key)| Due { at: Timestamp::from_millis(at), key };
        taken.into_iter().map(due).collect()
    }

    fn set_due(&mut self, key: &Key, due_at: Option<Timestamp>) {
        let Some(mut raw) = self.rows.get(key).cloned() else { return };
        if let Some(index) = key.table.column("due_at").filter(|_| key.table.timer == Timer::Due) {
            raw.cells[index] = due_at.map_or(Cell::Null, |at| Cell::Int(at.as_millis()));
            self.set(key.clone(), raw);
        }
    }

    pub(super) fn rearm(&mut self, key: &Key, revision: Revision, due_at: Option<Timestamp>) {
        if self.revision(key) == revision {
            self.set_due(key, due_at);
        }
    }

    pub(super) fn beat(&mut self, beat: &Beat, now: Timestamp) -> Beaten {
        self.touch_leases();
        match self.leases.get_mut(&beat.holder) {
            None => Beaten::Gone,
            Some(lease) if !lease.open || lease.fence != beat.fence => Beaten::Fenced,
            Some(lease) => {
                lease.until = lease.until.max(beat.until);
                lease.beaten_at = lease.beaten_at.max(now);
                Beaten::Current { until: lease.until }
            }
        }
    }

    pub(super) fn leases(&self, kind: LeaseKind) -> Vec<Lease> {
        let of_kind = |lease: &&Lease| lease.holder.columns().0 == kind.name();
        let mut leases: Vec<_> = self.leases.values().filter(of_kind).cloned().collect();
        leases.sort_by_key(|lease| lease.holder.columns());
        leases
    }

    pub(super) fn extend_leases(&mut self, kind: LeaseKind, by: Span) -> u64 {
        self.touch_leases();
        let open = |lease: &&mut Lease| lease.open && lease.holder.columns().0 == kind.name();
        let mut count = 0;
        for lease in self.leases.values_mut().filter(open) {
            lease.until = lease.until.after(by);
            count += 1;
        }
        count
    }

    pub(super) fn event_range(&self) -> (u64, u64) {
        (self.pruned + 1, self.pruned + self.events.len() as u64)
    }

    pub(super) fn events(
        &self,
        cursor: Cursor,
        filter: EventFilter,
        limit: usize,
    ) -> Result<Events, Failure> {
        let (oldest, newest) = self.event_range();
        check_cursor(cursor, cursor.epoch, oldest, newest)?;
        // A transaction that has drawn its number and is not committed yet.
        let open = |event: &Event| {
            let late = event.number.is_multiple_of(7) && newest < event.number + 3;
            planted::is(Bug::CursorByPlainSequence) && late
        };
        let wanted = |event: &&Event| {
            !open(event)
                && filter.task.is_none_or(|id| event.event.task == Some(id))
                && filter.session.is_none_or(|id| event.event.session == Some(id))
                && filter.workflow.is_none_or(|id| event.event.workflow == Some(id))
        };
        let skipped = usize::try_from(cursor.number - self.pruned).unwrap_or(usize::MAX);
        let events: Vec<_> =
            self.events.iter().skip(skipped).filter(wanted).take(limit).cloned().collect();
        let full = events.len() == limit;
        let last = events.last().map_or(cursor.number, |event| event.number);
        let number = if full { last } else { newest };
        Ok(Events { events, cursor: Cursor { number, ..cursor } })
    }

    pub(super) fn take_effects(&mut self, now: Timestamp, hold: Span, limit: usize) -> Vec<Effect> {
        let due = |effect: &&Effect| effect.effect.due_at <= now;
        let mut ids: Vec<_> =
            self.effects.values().filter(due).map(|one| (one.effect.due_at, one.id)).collect();
        ids.sort();
        ids.truncate(limit);
        let mut taken: Vec<Effect> = Vec::with_capacity(ids.len());
        for (_, id) in ids {
            if let Some(effect) = self.effects.get_mut(&id) {
                effect.tries += 1;
                effect.effect = NewEffect { due_at: now.after(hold), ..effect.effect.clone() };
                taken.push(effect.clone());
            }
        }
        taken.sort_by_key(|effect| effect.id);
        taken
    }

    pub(super) fn settle_effect(&mut self, settled: &Settled) -> bool {
        match self.effects.get_mut(&settled.id) {
            Some(effect) if effect.tries == settled.tries => match settled.what {
                Settle::Done => self.effects.remove(&settled.id).is_some(),
                Settle::Again(at) => {
                    effect.effect.due_at = at;
                    true
                }
            },
            Some(_) | None => false,
        }
    }

    pub(super) fn answered(&self, principal: &str, key: &str) -> Option<Answered> {
        self.requests.get(&(principal.to_owned(), key.to_owned())).cloned()
    }

    pub(super) fn prune(&mut self, prune: Prune) -> Pruned {
        let old = |event: &Event| event.event.at < prune.events_before;
        let count = self.events.iter().take_while(|event| old(event)).count();
        self.events.drain(..count);
        self.pruned += count as u64;
        let before = self.requests.len();
        self.requests.retain(|_, answered| answered.at >= prune.requests_before);
        Pruned { events: count as u64, requests: (before - self.requests.len()) as u64 }
    }
}

fn queue_entry(table: &Table, cells: &[Cell]) -> Option<(String, i64, i64, String)> {
    if table.name != "tasks" {
        return None;
    }
    let claim_at = int(table, cells, "claim_at")?;
    let id = cells[0].as_text()?.to_owned();
    Some((text(table, cells, "role")?, int(table, cells, "priority")?, claim_at, id))
}

/// A key after every other.
fn highest_key() -> Key {
    let last = TABLES.last().expect("there are tables");
    Key { table: last(), cells: vec![Cell::Text("\u{10ffff}".to_owned())] }
}
