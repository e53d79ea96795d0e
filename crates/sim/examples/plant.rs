//! Lives through worlds with a bug in them, until one shows it: `plant NAME [FROM..TO]`. With
//! `--all` it goes on, and tells how many do. Of the name `nothing` there is no bug.

#![allow(clippy::print_stdout, reason = "this program's output is what it is for")]

use std::process::ExitCode;

use belay_sim::{Options, Planted, run};

struct Asked {
    planted: Option<Planted>,
    from: u64,
    to: u64,
    all: bool,
}

fn read() -> Option<Asked> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let given = words.len();
    words.retain(|word| word != "--all");
    let all = words.len() < given;
    let mut words = words.into_iter();
    let planted = match words.next()?.as_str() {
        "nothing" => None,
        name => Some(Planted::named(name)?),
    };
    let (from, to) = match words.next() {
        Some(range) => {
            let (from, to) = range.split_once("..")?;
            (from.parse().ok()?, to.parse().ok()?)
        }
        None => (0, 2_000),
    };
    Some(Asked { planted, from, to, all })
}

fn main() -> ExitCode {
    let Some(Asked { planted, from, to, all }) = read() else {
        println!("plant NAME [FROM..TO] [--all]");
        return ExitCode::from(2);
    };
    let name = planted.map_or("nothing".to_owned(), Planted::name);
    let mut shown = 0;
    for seed in from..to {
        let report = run(&Options { planted, ..Options::seed(seed) });
        let Some(found) = report.found else { continue };
        shown += 1;
        if !all {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        println!("{name} is found by world {seed}: {found}");
        if !all {
            return ExitCode::SUCCESS;
        }
    }
    println!("{name} is found by {shown} worlds of {from}..{to}");
    if shown > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
