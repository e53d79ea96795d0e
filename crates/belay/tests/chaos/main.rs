//! Real faults, real processes: `belay up` on SQLite and on PostgreSQL under a load of real agents,
//! while it is killed, stopped beyond its leases, loses its database, and its disk is full.
//!
//! What is drawn comes from `BELAY_CHAOS_SEED`, which is printed; `BELAY_CHAOS_SECONDS` says how
//! long there is trouble. `cargo xtask chaos` sets both. The judge looks from outside: at `/proc`,
//! at the remote, at the database, at what was printed.

#![allow(dead_code, reason = "the end-to-end tests' world has more than is needed here")]
#![allow(clippy::print_stderr, reason = "a run says how it was drawn and what it did")]

#[path = "../e2e/processes.rs"]
mod processes;
#[path = "../../../store/tests/server/mod.rs"]
mod server;
#[path = "../e2e/world.rs"]
mod world;

mod disk;
mod faults;
mod judge;
mod load;

use std::time::{Duration, Instant};

use faults::{Draw, Fault};
use judge::Judge;
use load::Load;
use server::Server;
use world::World;

/// Leases so short that a server that stands still for some seconds outlasts them.
const SETTINGS: &str = "
[limits]
heartbeat_interval = '500ms'
due_sweep = '100ms'
stop_grace = '300ms'
backoff_first = '100ms'
backoff_longest = '200ms'
quiet_exit = '1s'
publish = '2s'
attempt_lease_embedded = '5s'
[roles.default]
workers = 6
";

/// How long there is trouble if nobody says.
const SECONDS: u64 = 20;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Trouble for so long, then nothing more goes wrong, and everything must come out right.
fn trouble(world: &World, judge: &Judge<'_>, faults: &[Fault], server: &mut Option<Server>) {
    let drawn = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("BELAY_CHAOS_SEED", u64::from(drawn.subsec_nanos()));
    let seconds = number("BELAY_CHAOS_SECONDS", SECONDS);
    eprintln!("BELAY_CHAOS_SEED={seed} BELAY_CHAOS_SECONDS={seconds}");
    let mut draw = Draw::new(seed);
    let mut load = Load::new(world);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut struck = 0;
    while Instant::now() < until {
        load.add(&mut draw);
        judge.look(&load);
        load.stop_one(&mut draw);
        // This wait is the run's own chance, not a condition: when the next fault comes.
        std::thread::sleep(Duration::from_millis(draw.below(900)));
        judge.look(&load);
        let fault = faults[usize::try_from(draw.below(faults.len() as u64)).unwrap()];
        eprintln!("{fault:?}");
        fault.strike(world, server, &mut draw, &mut || judge.look(&load));
        struck += 1;
    }
    eprintln!("{struck} faults, {} tasks", load.tasks.len());
    judge.comes_out_right(&load);
}

#[test]
fn on_sqlite() {
    let world = World::quiet(SETTINGS);
    let small = disk::Small::under(&world.data());
    world.up();
    let mut faults = vec![Fault::Kill, Fault::Kill, Fault::StandStill, Fault::StandStillLong];
    match small.is_mounted() {
        true => faults.push(Fault::DiskFull),
        false => eprintln!("no disk is made full: that needs root, to mount a small one"),
    }
    trouble(&world, &Judge::sqlite(&world), &faults, &mut None);
}

#[test]
fn on_postgres() {
    let server = Server::start();
    let (name, url) = server.database();
    let world = World::with(SETTINGS, &[("BELAY_DATABASE_URL", &url)]);
    world.up();
    let psql = server.database_of(&name);
    let faults = [
        Fault::Kill,
        Fault::Kill,
        Fault::StandStill,
        Fault::StandStillLong,
        Fault::DatabaseCrash,
        Fault::DatabaseCrash,
    ];
    trouble(&world, &Judge::postgres(&world, psql), &faults, &mut Some(server));
}
