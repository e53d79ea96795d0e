//! What goes wrong.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::disk;
use crate::draw::Draw;
use crate::judge::Judge;
use crate::processes;
use crate::server::Server;
use crate::world::World;

/// Longer than a lease, with all that a busy machine may add.
const BEYOND_LEASE: u64 = 6_500;

/// Whom it happens to.
pub(crate) struct Target<'a> {
    pub(crate) world: &'a World,
    /// The database, if it is a server of its own.
    pub(crate) database: Option<&'a mut Server>,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// `kill -9` of the server, and of some that were coming up after it.
    Kill,
    /// The same, and nobody is there for longer than a lease.
    KillLong,
    /// It stands still for less than a lease.
    StandStill,
    /// It stands still for longer than a lease.
    StandStillLong,
    /// `kill -9` of an agent.
    AgentKilled,
    /// The database is ended as a crash would end it, and starts again.
    DatabaseCrash,
    /// The disk with the database and the transcripts is full for a while.
    DiskFull,
}

impl Fault {
    /// Lets it happen.
    pub(crate) fn strike(self, target: &mut Target<'_>, draw: &mut Draw, judge: &Judge<'_>) {
        let world = target.world;
        match self {
            Self::Kill => {
                world.crash();
                (0..draw.below(3)).for_each(|_| come_up_and_fall(world, draw.below(600)));
                world.up();
            }
            Self::KillLong => {
                world.crash();
                pass(BEYOND_LEASE + draw.below(1_000));
                judge.nobody_lives("the server is down for longer than a lease");
                world.up();
            }
            Self::StandStill => {
                let server = stand_still(world);
                pass(200 + draw.below(2_000));
                go_on(server);
            }
            Self::StandStillLong => {
                let server = stand_still(world);
                pass(BEYOND_LEASE + draw.below(1_000));
                judge.nobody_lives("the server stands still for longer than a lease");
                go_on(server);
            }
            Self::AgentKilled => {
                let agents = processes::agents_of_world(&world.data());
                let agents: Vec<_> =
                    agents.iter().filter(|seen| seen.words.starts_with("sh -c")).collect();
                if !agents.is_empty() {
                    processes::kill(agents[draw.index(agents.len())]);
                }
            }
            Self::DatabaseCrash => {
                if let Some(server) = &mut target.database {
                    server.crash_and_restart();
                }
            }
            Self::DiskFull => {
                let full = disk::Full::fill(&world.data());
                pass(500 + draw.below(2_500));
                drop(full);
            }
        }
    }
}

/// Time goes by.
fn pass(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// A server is killed while it comes up.
fn come_up_and_fall(world: &World, after_ms: u64) {
    let mut command = world.cli(&["up"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    pass(after_ms);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn stand_still(world: &World) -> Pid {
    let file = fs::read(world.data().join("server.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let pid = file["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    pid
}

fn go_on(server: Pid) {
    kill_process(server, Signal::CONT).unwrap();
}
