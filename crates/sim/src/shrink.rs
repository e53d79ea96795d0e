//! From a world in which something is wrong to the least of it in which that is still so.

use crate::less::Less;
use crate::{Options, Report, run};

/// What is left of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// The world as it is with what is left.
    pub report: Report,
    /// How many worlds were tried.
    pub tried: u32,
}

/// Leaves out what is not needed: fault by fault, act by act, then tasks, actors and time, over and
/// over, as long as the same invariant is broken. `tell` is told of every try.
pub fn shrink(report: &Report, tell: &mut dyn FnMut(u32)) -> Shrunk {
    let mut shrunk = Shrunk { report: report.clone(), tried: 0 };
    let Some(invariant) = report.found.as_ref().map(|found| found.invariant) else {
        return shrunk;
    };
    loop {
        let before = shrunk.report.options.less.clone();
        for less in smaller(&shrunk.report) {
            // Each of these was made from what is left by then, or is made from it again.
            let merged = merge(&shrunk.report.options.less, &less);
            if merged == shrunk.report.options.less {
                continue;
            }
            let options = Options { less: merged, ..shrunk.report.options.clone() };
            let tried = run(&options);
            shrunk.tried += 1;
            tell(shrunk.tried);
            if tried.found.as_ref().is_some_and(|found| found.invariant == invariant) {
                shrunk.report = tried;
            }
        }
        if shrunk.report.options.less == before {
            return shrunk;
        }
    }
}

/// Both together.
fn merge(one: &Less, other: &Less) -> Less {
    let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Less {
        without: one.without.union(&other.without).copied().collect(),
        tasks: least(one.tasks, other.tasks),
        nodes: least(one.nodes, other.nodes),
        runners: least(one.runners, other.runners),
        trouble: least(one.trouble, other.trouble),
    }
}

/// What could be left out next, the most first.
fn smaller(report: &Report) -> Vec<Less> {
    let less = &report.options.less;
    let names: Vec<_> =
        Less::names().into_iter().filter(|name| !less.without.contains(name)).collect();
    let mut next = vec![
        Less { without: names.iter().copied().collect(), ..Less::default() },
        Less { nodes: Some(1), ..Less::default() },
        Less { runners: Some(1), ..Less::default() },
    ];
    let tasks = less.tasks.unwrap_or(report.tasks as u64);
    let fewer = [1, tasks / 2, tasks.saturating_sub(1)];
    let fewer = fewer.into_iter().filter(|count| *count > 0 && *count < tasks);
    next.extend(fewer.map(|count| Less { tasks: Some(count), ..Less::default() }));
    // Trouble need not go on for longer than it took.
    let seconds = report.simulated_ms / 1_000 + 1;
    let shorter = [seconds / 4, seconds / 2, seconds].into_iter();
    let shorter = shorter.filter(|s| *s > 0 && less.trouble.is_none_or(|had| *s < had));
    next.extend(shorter.map(|trouble| Less { trouble: Some(trouble), ..Less::default() }));
    next.extend(names.into_iter().map(|name| Less { without: [name].into(), ..Less::default() }));
    next
}
