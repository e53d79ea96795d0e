//! Real faults, real processes: `belay up` on SQLite and on PostgreSQL under a load of real agents,
//! while it is killed, stopped beyond its leases, loses its database, and its disk is full.
//!
//! ```text
//!  people: submit, stop ──► belay ──► server ──► agents ──► remote
//!  faults ─────────────────────────────▲─────────▲
//!  the judge looks at /proc all the time, and at everything else when it is over
//! ```
//!
//! What is drawn comes from `BELAY_CHAOS_SEED`, which is printed; `BELAY_CHAOS_SECONDS` says how
//! long there is trouble. `cargo xtask chaos` sets both. A seed draws the same faults and the same
//! tasks again, but not the same moments: what is found is told by the judge, not by a replay.

#![allow(dead_code, reason = "the end-to-end tests' world has more than is needed here")]
#![allow(clippy::print_stderr, reason = "a run says how it was drawn and what it did")]

#[path = "../e2e/processes.rs"]
mod processes;
#[path = "../../../store/tests/server/mod.rs"]
mod server;
#[path = "../e2e/world.rs"]
mod world;

mod disk;
mod draw;
mod faults;
mod judge;
mod load;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use draw::Draw;
use faults::{Fault, Target};
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

/// Whether there is trouble; none any more when this is dropped, also by a panic.
struct Going<'a>(&'a AtomicBool);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Trouble for so long, then nothing more goes wrong, and everything must come out right.
fn trouble(world: &World, judge: &Judge<'_>, faults: &[Fault], mut target: Target<'_>) {
    let drawn = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("BELAY_CHAOS_SEED", u64::from(drawn.subsec_nanos()));
    let seconds = number("BELAY_CHAOS_SECONDS", SECONDS);
    eprintln!("BELAY_CHAOS_SEED={seed} BELAY_CHAOS_SECONDS={seconds}");
    let (load, going) = (Load::new(world), AtomicBool::new(true));
    let began = Instant::now();
    let mut struck = 0;
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| load.submits(&mut Draw::of(seed, 1), &going)),
            scope.spawn(|| load.stops(&mut Draw::of(seed, 2), &going)),
            scope.spawn(|| load.stops(&mut Draw::of(seed, 3), &going)),
            scope.spawn(|| judge.watches(&load, &going)),
        ];
        let going = Going(&going);
        let mut draw = Draw::of(seed, 0);
        while began.elapsed() < Duration::from_secs(seconds) {
            // This wait is the run's own chance, not a condition: when the next fault comes.
            std::thread::sleep(Duration::from_millis(draw.below(2_500)));
            if others.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            let fault = faults[draw.index(faults.len())];
            eprintln!("{:>7.2} s  {fault:?}", began.elapsed().as_secs_f64());
            fault.strike(&mut target, &mut draw, judge);
            struck += 1;
        }
        drop(going);
    });
    eprintln!("{:>7.2} s  healed after {struck} faults", began.elapsed().as_secs_f64());
    judge.comes_out_right(&load);
    eprintln!("{:>7.2} s  {} came out right", began.elapsed().as_secs_f64(), load.summary());
}

/// A server that is found at the same place after every restart: people's commands are told where
/// it is, so that they do not start one of their own while it is down.
fn world(more: &[(&str, &str)]) -> World {
    // Below the ports that are given to outgoing connections, which would take it meanwhile.
    let taken = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_err();
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let port = (first..32_000).find(|port| !taken(port)).expect("a port is free");
    let (port, url) = (port.to_string(), format!("http://127.0.0.1:{port}"));
    let variables = [("BELAY_SERVER_PORT", port.as_str()), ("BELAY_URL", url.as_str())];
    World::with(SETTINGS, &[&variables, more].concat())
}

/// What goes wrong whatever the database.
const EVERYWHERE: [Fault; 6] = [
    Fault::Kill,
    Fault::Kill,
    Fault::KillLong,
    Fault::StandStill,
    Fault::StandStillLong,
    Fault::AgentKilled,
];

/// Everything that can go wrong here.
fn faults(disk: &disk::Small, more: &[Fault]) -> Vec<Fault> {
    let mut faults = [&EVERYWHERE, more].concat();
    match disk.is_mounted() {
        true => faults.push(Fault::DiskFull),
        false => eprintln!("no disk is made full: that needs root, to mount a small one"),
    }
    faults
}

#[test]
fn on_sqlite() {
    let world = world(&[]);
    let small = disk::Small::under(&world.data());
    world.up();
    let target = Target { world: &world, database: None };
    trouble(&world, &Judge::sqlite(&world), &faults(&small, &[]), target);
}

#[test]
fn on_postgres() {
    let mut server = Server::start();
    let (name, url) = server.database();
    let world = world(&[("BELAY_DATABASE_URL", &url)]);
    let small = disk::Small::under(&world.data());
    world.up();
    let judge = Judge::postgres(&world, server.database_of(&name));
    let target = Target { world: &world, database: Some(&mut server) };
    let faults = faults(&small, &[Fault::DatabaseCrash, Fault::DatabaseCrash]);
    trouble(&world, &judge, &faults, target);
}
