//! Bugs that are put in on purpose: each is found, and by the invariant that it breaks.

use belay_sim::{Options, Planted, run};

/// Within how many worlds a planted bug must be found.
const WITHIN: u64 = 60;

/// Finds the bug; the invariants that may be the first to show it.
fn check(planted: Planted, invariants: &[u8]) {
    let found = (0..WITHIN).find_map(|seed| run(&Options { seed, planted: Some(planted) }).found);
    let Some(found) = found else { panic!("{planted:?} was not found in {WITHIN} worlds") };
    assert!(invariants.contains(&found.invariant), "{planted:?} was found as {found}");
}
