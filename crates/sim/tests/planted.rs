//! Bugs that are put in on purpose: each is found, and by the invariant that it breaks.

use belay_sim::{Options, Planted, run};

/// Within how many worlds a planted bug must be found.
const WITHIN: u64 = 200;

/// Finds the bug; the invariants that may be the first to show it.
fn check(planted: Planted, invariants: &[u8]) {
    let found = (0..WITHIN)
        .find_map(|seed| run(&Options { planted: Some(planted), ..Options::seed(seed) }).found);
    let Some(found) = found else { panic!("{planted:?} was not found in {WITHIN} worlds") };
    assert!(invariants.contains(&found.invariant), "{planted:?} was found as {found}");
}

#[test]
fn a_kill_that_misses_escapees_is_found() {
    check(Planted::KillMissesEscapees, &[3, 10]);
}

#[test]
fn a_stop_that_only_asks_is_found() {
    check(Planted::StopOnlyAsks, &[3, 10]);
}

#[test]
fn a_shim_that_forgets_its_lease_is_found() {
    check(Planted::ShimForgetsLease, &[3]);
}

#[test]
fn an_agent_that_is_executed_twice_is_found() {
    check(Planted::StartsTwice, &[2]);
}

#[test]
fn output_that_is_not_what_was_printed_is_found() {
    check(Planted::OutputDropped, &[5]);
}

#[test]
fn a_push_that_expects_nothing_is_found() {
    check(Planted::PushWithoutLease, &[4]);
}

#[test]
fn a_push_without_the_gate_is_found() {
    check(Planted::GateSkipped, &[4]);
}

#[test]
fn a_stop_that_is_acknowledged_too_early_is_found() {
    check(Planted::StopAckedEarly, &[3]);
}
