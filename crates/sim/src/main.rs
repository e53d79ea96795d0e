//! Lives through worlds from the command line: one with its trace, or many.

#![allow(clippy::print_stdout, reason = "this program's output is what it is for")]

use std::process::ExitCode;
use std::time::Instant;

use belay_sim::{Options, Planted, Report, run};

const HELP: &str = "belay-sim --seed N [--trace] | --seeds FROM..TO   [--planted NAME]";

/// What was asked for.
#[derive(Default)]
struct Asked {
    from: u64,
    to: u64,
    trace: bool,
    planted: Option<Planted>,
}

fn read(words: impl Iterator<Item = String>) -> Option<Asked> {
    let mut asked = Asked { to: 200, ..Asked::default() };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--trace" => asked.trace = true,
            "--seed" => {
                asked.from = words.next()?.parse().ok()?;
                asked.to = asked.from + 1;
            }
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                (asked.from, asked.to) = (from.parse().ok()?, to.parse().ok()?);
            }
            "--planted" => {
                let name = words.next()?;
                asked.planted = Some(Planted::named(&name)?);
            }
            _ => return None,
        }
    }
    Some(asked)
}

fn show(report: &Report, trace: bool) {
    if trace {
        report.trace.iter().for_each(|line| println!("{line}"));
    }
    if let Some(found) = &report.found {
        println!("seed {}: {found}\n  {}", report.seed, report.replay());
    }
}

fn main() -> ExitCode {
    let Some(asked) = read(std::env::args().skip(1)) else {
        println!("{HELP}");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let (mut simulated_ms, mut failed) = (0, 0);
    for seed in asked.from..asked.to {
        let report = run(&Options { seed, planted: asked.planted });
        simulated_ms += report.simulated_ms;
        failed += u64::from(report.found.is_some());
        show(&report, asked.trace);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let hours = simulated_ms as f64 / 3_600_000.0;
    let count = asked.to - asked.from;
    println!(
        "{count} worlds, {failed} failed, {hours:.1} simulated hours in {seconds:.1} s \
         ({:.1} hours/s, {:.0} worlds/min)",
        hours / seconds,
        count as f64 * 60.0 / seconds,
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
