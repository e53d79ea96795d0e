//! What goes wrong.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::disk;
use crate::server::Server;
use crate::world::World;

/// Numbers that look random and are the same for the same seed.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// `kill -9` of the server, and another one.
    Kill,
    /// It stands still for less than a lease.
    StandStill,
    /// It stands still for longer than a lease.
    StandStillLong,
    /// The database is ended as a crash would end it, and starts again.
    DatabaseCrash,
    /// The disk with the database and the transcripts is full for a while.
    DiskFull,
}

impl Fault {
    /// Lets it happen; `look` looks meanwhile.
    pub(crate) fn strike(
        self,
        world: &World,
        server: &mut Option<Server>,
        draw: &mut Draw,
        look: &mut dyn FnMut(),
    ) {
        match self {
            Self::Kill => {
                world.crash();
                look();
                world.up();
            }
            Self::StandStill => stand_still(world, 200 + draw.below(2_000), look),
            Self::StandStillLong => stand_still(world, 5_500 + draw.below(2_000), look),
            Self::DatabaseCrash => {
                if let Some(server) = server {
                    server.crash_and_restart();
                }
            }
            Self::DiskFull => {
                let full = disk::Full::fill(&world.data());
                pass(500 + draw.below(2_500), look);
                drop(full);
            }
        }
    }
}

/// Time goes by, and is looked at.
fn pass(ms: u64, look: &mut dyn FnMut()) {
    let until = Instant::now() + Duration::from_millis(ms);
    while Instant::now() < until {
        look();
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn stand_still(world: &World, ms: u64, look: &mut dyn FnMut()) {
    let file = fs::read(world.data().join("server.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let pid = file["pid"].as_i64().or_else(|| file["process"]["pid"].as_i64()).unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    pass(ms, look);
    kill_process(pid, Signal::CONT).unwrap();
}
