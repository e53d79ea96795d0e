//! What a world can be lived through without: fewer faults, fewer actors, the same draws.
//!
//! Everything is drawn as it always is, and what is left out is set to nothing after that. So a
//! world without one fault is as much like the whole one as it can be.

use std::collections::BTreeSet;
use std::fmt;

use crate::knobs::{Knobs, Strikes};
use crate::rng::Rng;

/// What is left out of a world.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Less {
    /// Faults, and things that people do, by name.
    pub without: BTreeSet<&'static str>,
    /// At most so many tasks are made by people.
    pub tasks: Option<u64>,
    /// At most so many nodes.
    pub nodes: Option<u64>,
    /// At most so many runners.
    pub runners: Option<u64>,
    /// There is trouble for so long at most, in seconds.
    pub trouble: Option<u64>,
}

/// What people do besides making tasks.
pub(crate) const ACTS: &[&str] =
    &["runs", "retries", "resumes", "continues", "accepts", "rejects", "answers", "stops"];

impl Less {
    /// The names of everything that can be left out.
    pub fn names() -> Vec<&'static str> {
        let mut any = Rng::new(0);
        let mut knobs = Knobs::draw(&mut any.fork(), &mut any);
        faults(&mut knobs).into_iter().map(|(name, _)| name).chain(ACTS.iter().copied()).collect()
    }

    /// Leaves something out, by its name; whether there is such a thing.
    pub fn leave_out(&mut self, name: &str) -> bool {
        let known = Self::names().into_iter().find(|known| *known == name);
        self.without.extend(known);
        known.is_some()
    }

    /// Takes an option and its value as a printed command has them; whether there is such a one.
    pub fn take(&mut self, option: &str, value: &str) -> bool {
        let number = match option {
            "--without" => return value.split(',').all(|name| self.leave_out(name)),
            "--tasks" => &mut self.tasks,
            "--nodes" => &mut self.nodes,
            "--runners" => &mut self.runners,
            "--trouble" => &mut self.trouble,
            _ => return false,
        };
        *number = value.parse().ok();
        number.is_some()
    }

    /// The knobs without what is left out.
    pub(crate) fn apply(&self, knobs: &mut Knobs) {
        for (name, knob) in faults(knobs) {
            if self.without.contains(name) {
                *knob = 0;
            }
        }
        knobs.tasks = knobs.tasks.min(self.tasks.unwrap_or(u64::MAX));
        knobs.nodes = knobs.nodes.min(self.nodes.unwrap_or(u64::MAX)).max(1);
        knobs.runners = knobs.runners.min(self.runners.unwrap_or(u64::MAX)).max(1);
        let trouble = self.trouble.map_or(u64::MAX, |seconds| seconds.saturating_mul(1_000));
        knobs.trouble_ms = knobs.trouble_ms.min(trouble);
    }
}

/// As options of `belay sim`, each with a space before it.
impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.without.is_empty() {
            let names: Vec<_> = self.without.iter().copied().collect();
            write!(f, " --without {}", names.join(","))?;
        }
        let numbers = [
            ("tasks", self.tasks),
            ("nodes", self.nodes),
            ("runners", self.runners),
            ("trouble", self.trouble),
        ];
        numbers.into_iter().try_for_each(|(name, number)| match number {
            Some(number) => write!(f, " --{name} {number}"),
            None => Ok(()),
        })
    }
}

/// Every fault by name. Nothing is left over: a new one does not compile until it is placed.
fn faults(knobs: &mut Knobs) -> Vec<(&'static str, &mut u64)> {
    let Knobs {
        embedded: _,
        nodes: _,
        runners: _,
        sticky: _,
        store_fails,
        store_loses,
        store_slow,
        net_loses,
        net_doubles,
        net_slow,
        provider_fails,
        provider_hangs,
        remote_fails,
        usage_limits,
        haste,
        crash_every_ms: _,
        strikes,
        trouble_ms: _,
        tasks: _,
        slots: _,
        drift_ppm,
        removes,
        keeps,
    } = knobs;
    let Strikes {
        node_falls,
        node_stops,
        runner_falls,
        runner_stops,
        reboots,
        losses,
        cuts,
        store_cuts,
        vanishes,
        clock_jumps,
        wall_jumps,
        outages,
    } = strikes;
    vec![
        ("store-fails", store_fails),
        ("store-loses", store_loses),
        ("store-slow", store_slow),
        ("net-loses", net_loses),
        ("net-doubles", net_doubles),
        ("net-slow", net_slow),
        ("provider-fails", provider_fails),
        ("provider-hangs", provider_hangs),
        ("remote-fails", remote_fails),
        ("usage-limits", usage_limits),
        ("haste", haste),
        ("drift", drift_ppm),
        ("node-falls", node_falls),
        ("node-stops", node_stops),
        ("runner-falls", runner_falls),
        ("runner-stops", runner_stops),
        ("reboots", reboots),
        ("losses", losses),
        ("cuts", cuts),
        ("store-cuts", store_cuts),
        ("vanishes", vanishes),
        ("clock-jumps", clock_jumps),
        ("wall-jumps", wall_jumps),
        ("outages", outages),
        ("removes", removes),
        ("keep-alive", keeps),
    ]
}
