//! Alive means proven: no verdict of death while the evidence is fresh, and no silence without one.
//!
//! Evidence is what was committed, and when; silence is what an agent did not print, by the world's
//! own clock. Leases are held in the world's time too: setting the store's clock ends none.

use std::collections::BTreeMap;

use belay_kernel::attempt::Phase;
use belay_kernel::{Clock, Limits, RunnerId, Span, Timestamp};
use belay_store::rows::AttemptRow;
use belay_store::{Beaten, Holder};

use super::{Ledger, Name, Oracle, Up, rank, short};

/// How much longer than its limit silence may last: a sweep, a beat and the report before it.
const SLACK_MS: u64 = 60_000;

/// How long a commit takes at most.
const SLOW_MS: u64 = 4_000;

/// What was seen of living attempts, and when, in the world's time.
#[derive(Default)]
pub(super) struct Seen {
    /// How long each transcript was, and when it last grew.
    output: BTreeMap<Name, (u64, u64)>,
    /// When each attempt's beat was last taken.
    beaten: BTreeMap<Name, u64>,
    /// When each runner's presence was last renewed.
    present: BTreeMap<RunnerId, u64>,
    /// The committed end of each lease, and when that is in the world's time.
    leases: BTreeMap<Name, (Timestamp, i64)>,
    /// When the store's clock was last set.
    jumped_ms: Option<u64>,
    /// From when until when nodes stood still: what such a node commits when it goes on had
    /// arrived before.
    stood_ms: Vec<(u64, u64)>,
}

impl Seen {
    /// When something had arrived at the earliest that was committed at `at`.
    fn arrived(&self, at: u64) -> u64 {
        let still = self.stood_ms.iter().filter(|(from, to)| (*from..=*to + SLOW_MS).contains(&at));
        still.map(|(from, _)| *from).min().unwrap_or(at)
    }
}

impl Oracle {
    /// A beat was answered.
    pub(crate) fn beaten(&self, holder: Holder, beaten: Beaten) {
        let Beaten::Current { .. } = beaten else { return };
        let now = self.sim.ms();
        let seen = &mut self.ledger().evidence;
        match holder {
            Holder::Attempt(task, number) => {
                seen.beaten.insert((task, number), now);
            }
            Holder::Runner(runner) => {
                seen.present.insert(runner, now);
            }
            Holder::Worker(_) | Holder::Node(_) => {}
        }
    }

    /// Whether the runner of an attempt has not beaten for as long as its trees are waited for, in
    /// the world's time.
    pub(super) fn was_away(&self, row: &AttemptRow) -> bool {
        let ledger = self.ledger();
        let last = row.runner.and_then(|runner| ledger.evidence.present.get(&runner).copied());
        let away = self.sim.ms().saturating_sub(last.unwrap_or(0));
        away > Limits::default().tree_affinity.as_millis()
    }

    /// Looks when leases end, before the store's clock is set.
    pub(crate) fn before_jump(&self) {
        self.note_leases(&self.attempts());
        let now = self.sim.ms();
        self.ledger().evidence.jumped_ms = Some(now);
    }

    /// A node stands still until then.
    pub(crate) fn node_stands(&self, until: u64) {
        let now = self.sim.ms();
        self.ledger().evidence.stood_ms.push((now, until));
    }

    /// How long the leases of an attempt's runner are.
    pub(super) fn lease_length(&self, row: &AttemptRow) -> Span {
        let limits = Limits::default();
        match self.sim.knobs.embedded && row.runner == Some(crate::world::FIRST) {
            true => limits.attempt_lease_embedded,
            false => limits.attempt_lease_remote,
        }
    }

    pub(super) fn note_leases(&self, rows: &[AttemptRow]) {
        let (now, ms) = (self.sim.now(), i64::try_from(self.sim.ms()).unwrap_or(i64::MAX));
        let leases = &mut self.ledger().evidence.leases;
        for row in rows {
            let (name, end) = ((row.task, row.attempt.number), row.attempt.lease_end);
            if leases.get(&name).is_none_or(|(known, _)| *known != end) {
                let ends_ms = ms + end.as_millis() - now.as_millis();
                leases.insert(name, (end, ends_ms));
            }
        }
    }

    /// Whether an attempt's lease is over, in the world's time. One that was renewed while the
    /// clock was set has an end by the old one: it lasts for its length.
    pub(super) fn is_lease_over(&self, row: &AttemptRow) -> bool {
        let (name, now) = ((row.task, row.attempt.number), self.sim.ms());
        let length = self.lease_length(row).as_millis();
        let seen = &self.ledger().evidence;
        let jumped = seen.jumped_ms.is_some_and(|at| now <= at + length);
        let ends = seen.leases.get(&name).map(|(_, ends_ms)| *ends_ms);
        !jumped && ends.is_some_and(|ends| ends < i64::try_from(now).unwrap_or(i64::MAX))
    }

    /// No shim holds its lease for longer than was committed: without another renewal everything in
    /// its sandbox is dead when the lease is over.
    pub(super) fn check_shim(&self, row: &AttemptRow, lives_until_ms: u64) {
        let (name, now) = ((row.task, row.attempt.number), self.sim.ms());
        let length = self.lease_length(row).as_millis();
        let seen = &self.ledger().evidence;
        let jumped = seen.jumped_ms.is_some_and(|at| now <= at + length);
        let ends = seen.leases.get(&name).and_then(|(_, ends_ms)| u64::try_from(*ends_ms).ok());
        if let Some(ends) = ends.filter(|ends| !jumped && *ends < lives_until_ms) {
            let (name, late) = (format!("{} #{}", short(name.0), name.1), lives_until_ms - ends);
            self.sim.violate(3, format!("{name} would live for {late} ms after its lease"));
        }
    }

    /// An attempt that is condemned: by a clock that may have passed, or not.
    pub(super) fn check_evidence(&self, ledger: &mut Ledger, row: &AttemptRow) {
        let (name, now) = ((row.task, row.attempt.number), self.sim.ms());
        let seen = &mut ledger.evidence;
        let condemned = match ledger.attempts.get(&name) {
            Some((before, _)) => rank(*before) < 3 && rank(row.attempt.phase) >= 3,
            None => false,
        };
        if let (true, Some(fired)) = (condemned, &row.fired) {
            let fired = &fired.0;
            let last = match fired.clock {
                Clock::Inactivity => seen.output.get(&name).map(|(_, at)| *at),
                Clock::Heartbeat => seen.beaten.get(&name).copied(),
                _ => None,
            };
            let silent = last.map(|last| Span::from_millis(now - seen.arrived(last)));
            // What arrives is as old as its arrival; its commit may be a little slow.
            let slow = Span::from_millis(SLOW_MS);
            let fresh = |silent: &Span| silent.plus(slow) < fired.allowed;
            if let Some(silent) = silent.filter(fresh) {
                let (name, clock) = (format!("{} #{}", short(name.0), name.1), fired.clock);
                self.sim.violate(6, format!("{name} is condemned ({clock:?}) after {silent}"));
            }
        }
        let length = row.transcript_length;
        if seen.output.get(&name).is_none_or(|(known, _)| *known != length) {
            seen.output.insert(name, (length, now));
        }
    }

    /// Agents that say nothing for longer than they may, while everybody could have noticed. A node
    /// judges silence by the time that it has itself seen go by: the store's clock may have been
    /// set before it was there. And only the one that the runner speaks to knows that there is
    /// nothing that it has not heard yet.
    pub(super) fn check_silence(&self, up: Up) {
        // An agent without partial output may be silent for as long as a tool call.
        let limit = Span::from_mins(10).as_millis() + SLACK_MS;
        let up_ms = if self.sim.knobs.sticky { up.all_ms } else { up.some_ms };
        if !self.sim.is_calm() || up_ms < limit {
            return;
        }
        let rows = self.attempts();
        for machine in self.machines() {
            let inside = machine.inside();
            for sandbox in inside.boxes.values().filter(|sandbox| sandbox.is_alive()) {
                // What is reported late is as old as its arrival.
                let name = (sandbox.task, sandbox.attempt);
                let arrived = self.ledger().evidence.output.get(&name).map_or(0, |(_, at)| *at);
                let silent = self.sim.ms().saturating_sub(sandbox.printed_ms.max(arrived));
                let row = rows
                    .iter()
                    .find(|row| (row.task, row.attempt.number) == (sandbox.task, sandbox.attempt));
                let judged = row.is_some_and(|row| {
                    row.attempt.phase == Phase::Running && row.attempt.held_since.is_none()
                });
                if judged && silent > limit {
                    let name = format!("{} #{}", short(name.0), name.1);
                    let span = Span::from_millis(silent);
                    self.sim.violate(6, format!("{name} is silent for {span}, and nobody minds"));
                }
            }
        }
    }
}
