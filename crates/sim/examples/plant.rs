//! Lives through worlds with a bug in them, until one shows it: `plant NAME [FROM..TO]`. With
//! `--all` it goes on, and tells how many do. Of the name `nothing` there is no bug. `--seed N` is
//! one world, and the options that leave something out of it are those of `belay sim`.

#![allow(clippy::print_stdout, reason = "this program's output is what it is for")]

use std::process::ExitCode;

use belay_sim::{Less, Options, Planted, run};

struct Asked {
    planted: Option<Planted>,
    from: u64,
    to: u64,
    all: bool,
    less: Less,
}

fn read() -> Option<Asked> {
    let mut words = std::env::args().skip(1);
    let planted = match words.next()?.as_str() {
        "nothing" => None,
        name => Some(Planted::named(name)?),
    };
    let mut asked = Asked { planted, from: 0, to: 2_000, all: false, less: Less::default() };
    while let Some(word) = words.next() {
        if word == "--all" {
            asked.all = true;
        } else if word == "--seed" {
            asked.from = words.next()?.parse().ok()?;
            asked.to = asked.from.checked_add(1)?;
        } else if let Some((from, to)) = word.split_once("..") {
            (asked.from, asked.to) = (from.parse().ok()?, to.parse().ok()?);
        } else if !asked.less.take(&word, &words.next()?) {
            return None;
        }
    }
    Some(asked)
}

fn main() -> ExitCode {
    let Some(Asked { planted, from, to, all, less }) = read() else {
        println!("plant NAME [FROM..TO] [--all] [--seed N] [--without NAME,…] [--tasks N] …");
        return ExitCode::from(2);
    };
    let name = planted.map_or("nothing".to_owned(), Planted::name);
    let mut shown = 0;
    for seed in from..to {
        let report = run(&Options { planted, less: less.clone(), ..Options::seed(seed) });
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
