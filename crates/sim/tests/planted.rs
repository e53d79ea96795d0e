//! Bugs that are put in on purpose: each is found, and by the invariant that it breaks.

use belay_sim::{Less, Options, Planted, run, shrink};

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

/// The world of a printed command, as the one who follows it has it: what comes after its program.
fn follow(command: &str) -> Options {
    let options = command.strip_prefix("belay sim ").expect(command);
    let options = options.strip_suffix(" --trace").expect(command);
    let mut world = Options::seed(0);
    let words: Vec<&str> = options.split_whitespace().collect();
    for pair in words.chunks(2) {
        let [name, value] = pair else { panic!("{command}") };
        match *name {
            "--seed" => world.seed = value.parse().expect(command),
            "--planted" => world.planted = Planted::named(value),
            _ => assert!(world.less.take(name, value), "{command}"),
        }
    }
    world
}

#[test]
fn what_is_left_of_a_world_breaks_the_same_when_its_command_is_followed() {
    let planted = Some(Planted::StopAckedEarly);
    let mut worlds = (0..WITHIN).map(|seed| run(&Options { planted, ..Options::seed(seed) }));
    let whole = worlds.find(|report| report.found.is_some()).expect("the bug is found");
    let again = run(&follow(&whole.replay()));
    assert_eq!((again.hash, &again.found, again.steps), (whole.hash, &whole.found, whole.steps));
    let mut told = 0;
    let shrunk = shrink(&whole, &mut |tried| told = tried);
    let least = &shrunk.report;
    assert_eq!(told, shrunk.tried);
    assert_ne!(least.options.less, Less::default(), "something can be left out");
    let invariant = |report: &belay_sim::Report| report.found.as_ref().map(|v| v.invariant);
    assert_eq!(invariant(least), invariant(&whole));
    let again = run(&follow(&least.replay()));
    assert_eq!((again.hash, &again.found, again.steps), (least.hash, &least.found, least.steps));
}
