//! `belay sim` as a program: what it prints of a world in which something is wrong can be followed.

use std::process::{Command, Output};

/// Within how many worlds a bug of the simulated world must be found.
const WITHIN: u64 = 200;

fn belay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_belay")).args(arguments).output().expect("belay runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

/// The broken invariant's number, as `world N: invariant M: …` says it.
fn invariant(output: &str) -> Option<&str> {
    let line = output.lines().find(|line| line.starts_with("world "))?;
    line.split_once("invariant ")?.1.split(':').next()
}

/// Follows a command that was printed after `mark`; what it prints.
fn follow(output: &str, mark: &str) -> String {
    let command = output.lines().find_map(|line| line.trim().strip_prefix(mark)).expect(output);
    let words: Vec<&str> = command.split_whitespace().collect();
    let ["belay", arguments @ ..] = &words[..] else { panic!("{command}") };
    let followed = belay(arguments);
    assert_eq!(followed.status.code(), Some(1), "{command}: {followed:?}");
    out(&followed)
}

#[test]
fn the_commands_of_a_world_that_does_not_hold_show_the_same_again() {
    let found = (0..WITHIN).find_map(|seed| {
        let seed = seed.to_string();
        let sim = ["sim", "--planted", "StopAckedEarly", "--seed", &seed];
        let quick = belay(&[&sim[..], &["--no-shrink"]].concat());
        (!quick.status.success()).then(|| out(&belay(&sim)))
    });
    let found = found.expect("the bug is found");
    let broken = invariant(&found).expect(&found);
    let again = follow(&found, "again: ");
    assert_eq!(invariant(&again), Some(broken), "{again}");
    assert!(again.contains(&format!("VIOLATION invariant {broken}")), "it shows its trace");
    let least = follow(&found, "least: ");
    assert_eq!(invariant(&least), Some(broken), "{least}");
    assert!(least.lines().count() < again.lines().count(), "less happens in it");
}

#[test]
fn a_bug_that_this_program_does_not_have_is_refused() {
    for name in ["FenceDropped", "Nonsense"] {
        let refused = belay(&["sim", "--planted", name, "--seed", "0"]);
        assert_eq!(refused.status.code(), Some(2), "{name}: {refused:?}");
    }
}
