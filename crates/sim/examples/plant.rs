//! Lives through worlds with a bug in them, until one shows it: `plant NAME [FROM..TO]`.

#![allow(clippy::print_stdout, reason = "this program's output is what it is for")]

use std::process::ExitCode;

use belay_sim::{Options, Planted, run};

fn read() -> Option<(Planted, u64, u64)> {
    let mut words = std::env::args().skip(1);
    let planted = Planted::named(&words.next()?)?;
    let Some(range) = words.next() else { return Some((planted, 0, 2_000)) };
    let (from, to) = range.split_once("..")?;
    Some((planted, from.parse().ok()?, to.parse().ok()?))
}

fn main() -> ExitCode {
    let Some((planted, from, to)) = read() else {
        println!("plant NAME [FROM..TO]");
        return ExitCode::from(2);
    };
    for seed in from..to {
        let report = run(&Options { planted: Some(planted), ..Options::seed(seed) });
        if let Some(found) = report.found {
            report.trace.iter().for_each(|line| println!("{line}"));
            println!("{} is found by world {seed}: {found}", planted.name());
            return ExitCode::SUCCESS;
        }
    }
    println!("{} is not found in {from}..{to}", planted.name());
    ExitCode::FAILURE
}
