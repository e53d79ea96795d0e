//! `belay sim`: lives through seeded worlds on every core, and tells what was found in them.

mod told;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use belay_sim::{Coverage, Less, Options, Planted, Report, run, shrink};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::Sim;
use crate::fault::{Exit, Fault};
use crate::screen::{note, say, say_json};
use told::{Failed, Told};

/// How many worlds there are if nobody says.
const USUAL: u64 = 200;

/// Which worlds are lived through.
#[derive(Clone, Debug)]
struct Plan {
    from: u64,
    /// How many at most.
    count: u64,
    until: Option<Instant>,
    less: Less,
    planted: Option<Planted>,
}

/// What became of all of them.
#[derive(Default)]
struct Tally {
    worlds: u64,
    steps: u64,
    simulated_ms: u64,
    coverage: Coverage,
    failed: Vec<Report>,
}

impl Tally {
    fn add(&mut self, report: Report) {
        self.worlds += 1;
        self.steps += report.steps;
        self.simulated_ms += report.simulated_ms;
        self.coverage.add(&report.coverage);
        if report.found.is_some() {
            self.failed.push(report);
        }
    }
}

/// Lives through the worlds that were asked for; fails if anything is wrong in one of them.
pub(crate) async fn sim(asked: &Sim, json: bool) -> Result<Exit, Fault> {
    let plan = plan(asked)?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.store(true, Ordering::SeqCst);
            }
        })
    };
    let (trace, shrinks) = (asked.trace, !asked.no_shrink);
    let was_stopped = Arc::clone(&stop);
    let lived = tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        let tally = live(&plan, &stop, json);
        let seconds = begun.elapsed().as_secs_f64();
        let shrinks = shrinks && !trace && !stop.load(Ordering::SeqCst);
        let failed = tally.failed.iter().map(|report| explain(report, shrinks)).collect();
        (Told::new(plan.from, &tally, failed, seconds), tally)
    });
    let (told, tally) = lived.await.map_err(|error| Fault::failed(format!("{error}")))?;
    interrupted.abort();
    if json {
        say_json(&told);
    } else {
        show(&told, &tally, trace);
    }
    Ok(match (told.failed.is_empty(), was_stopped.load(Ordering::SeqCst)) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Interrupted,
        (true, false) => Exit::Done,
    })
}

fn plan(asked: &Sim) -> Result<Plan, Fault> {
    let mut less = Less {
        tasks: asked.tasks,
        nodes: asked.nodes,
        runners: asked.runners,
        trouble: asked.trouble,
        ..Less::default()
    };
    for name in &asked.without {
        if !less.leave_out(name) {
            let known = Less::names().join(", ");
            return Err(Fault::usage(format!("`{name}` cannot be left out; these can: {known}")));
        }
    }
    let until = match asked.minutes {
        None => None,
        Some(minutes) if minutes.is_finite() && minutes > 0.0 => {
            Some(Instant::now() + Duration::from_secs_f64(minutes * 60.0))
        }
        Some(_) => return Err(Fault::usage("--minutes wants more than none")),
    };
    let count = match (asked.seeds, asked.seed, until) {
        (Some(count), ..) => count,
        (None, _, Some(_)) => u64::MAX,
        (None, Some(_), None) => 1,
        (None, None, None) => USUAL,
    };
    if asked.trace && count > 1 {
        return Err(Fault::usage("--trace shows one world; name it with --seed"));
    }
    let planted = asked.planted.as_deref().map(planted).transpose()?;
    Ok(Plan { from: asked.seed.unwrap_or_else(fresh), count, until, less, planted })
}

/// The bug of this name, if this program can have it.
fn planted(name: &str) -> Result<Planted, Fault> {
    let Some(planted) = Planted::named(name) else {
        let known: Vec<_> = Planted::WORLD.iter().map(|planted| planted.name()).collect();
        let known = known.join(", ");
        return Err(Fault::usage(format!("`{name}` cannot be planted; these can: {known}")));
    };
    match planted.is_here() {
        true => Ok(planted),
        false => Err(Fault::usage(format!(
            "`{name}` is in the code, and this program was built without it; {} shows it",
            "`cargo run -p belay-sim --features planted --example plant`"
        ))),
    }
}

/// A seed that nobody has seen yet.
fn fresh() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0).wrapping_mul(1_000)
}

/// Lives through all of them, one on each core at a time.
fn live(plan: &Plan, stop: &Arc<AtomicBool>, json: bool) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let next = Arc::new(AtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..cores.min(plan.count))
        .map(|_| {
            let (plan, stop) = (plan.clone(), Arc::clone(stop));
            let (next, tell) = (Arc::clone(&next), tell.clone());
            std::thread::spawn(move || live_some(&plan, &stop, &next, &tell))
        })
        .collect();
    drop(tell);
    let begun = Instant::now();
    let bar = if json { ProgressBar::hidden() } else { bar(plan) };
    let mut tally = Tally::default();
    for report in told {
        tally.add(report);
        match plan.until {
            Some(_) => bar.set_position(begun.elapsed().as_secs()),
            None => bar.set_position(tally.worlds),
        }
        bar.set_message(told::pace(&tally, begun.elapsed().as_secs_f64()));
    }
    bar.finish_and_clear();
    for thread in threads {
        if thread.join().is_err() {
            note("belay: a world fell out of time; the panic above says where");
        }
    }
    tally
}

fn live_some(plan: &Plan, stop: &AtomicBool, next: &AtomicU64, tell: &mpsc::Sender<Report>) {
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let late = plan.until.is_some_and(|until| Instant::now() >= until);
        if number >= plan.count || late || stop.load(Ordering::SeqCst) {
            return;
        }
        let seed = plan.from.wrapping_add(number);
        let (less, planted) = (plan.less.clone(), plan.planted);
        let mut report = run(&Options { seed, less, planted });
        if report.found.is_none() && plan.count > 1 {
            report.trace.clear(); // what went well is not shown
        }
        if tell.send(report).is_err() {
            return;
        }
    }
}

fn bar(plan: &Plan) -> ProgressBar {
    let (length, unit) = match plan.until {
        Some(until) => (until.saturating_duration_since(Instant::now()).as_secs(), "s"),
        None => (plan.count, "worlds"),
    };
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {unit}  {{msg}}"));
    let bar = ProgressBar::new(length);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// What is wrong in a world, and the least of it in which that is still so.
fn explain(report: &Report, shrinks: bool) -> Failed {
    let shrunk = shrinks.then(|| {
        let bar = ProgressBar::new_spinner();
        let shrunk = shrink(report, &mut |tried| {
            bar.set_message(format!("world {}: {tried} smaller ones tried", report.options.seed));
            bar.tick();
        });
        bar.finish_and_clear();
        shrunk.report
    });
    Failed::new(report, shrunk.as_ref())
}

fn show(told: &Told, tally: &Tally, trace: bool) {
    if trace {
        // One that went well keeps its trace too, if it was alone.
        tally.failed.iter().flat_map(|report| &report.trace).for_each(|line| say(line));
    }
    told.lines(trace).iter().for_each(|line| say(line));
}
