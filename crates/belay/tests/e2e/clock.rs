//! The wall clock is set under a running server: nothing ends early, nothing is lost, and time does
//! not go back.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::world::{QUICK, World, wait_for};

/// A server whose wall clock can be set, and no other clock of it.
fn world_with_clock() -> World {
    let library = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"))
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("libfaketime is installed (Debian: faketime)");
    let settings = format!("{QUICK}absolute = '6s'\n");
    let world = World::quiet(&settings);
    set(&world, "+0s");
    let clock = world.path("clock").display().to_string();
    world.up_with(&[
        ("LD_PRELOAD", &library),
        ("FAKETIME_TIMESTAMP_FILE", &clock),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    world
}

/// Sets the clock, for the running server too.
fn set(world: &World, offset: &str) {
    fs::write(world.path("clock.new"), format!("{offset}\n")).unwrap();
    fs::rename(world.path("clock.new"), world.path("clock")).unwrap();
}

#[test]
fn set_forward_and_back_while_tasks_run() {
    let world = world_with_clock();
    let long = ["--timeout", "1h", "--inactivity", "1h"];
    let well = world.script(&[&["well"], &long[..]].concat(), "reach up; await go; echo done");
    world.reached(&well, "up");
    let began = Instant::now();
    let late = world.script(&["late", "--inactivity", "1h"], "reach up; sleep 100");
    world.reached(&late, "up");
    for offset in ["+3d", "-2d", "+5h", "+0s"] {
        set(&world, offset);
        // The server has lived with that clock for a while when it has run a task.
        let other = world.script(&["other", "--review", "auto", "--publish", "none"], "true");
        world.reaches(&other, "COMPLETED");
        assert_eq!(world.state(&well), "RUNNING", "under {offset}");
    }
    wait_for("the deadline of the other passes", || world.state(&late) == "TIMED_OUT");
    let took = began.elapsed().as_secs_f64();
    assert!(took >= 5.0, "it had six seconds, and was ended after {took}");
    assert!(took < 40.0, "and its deadline was not lost: {took}");
    world.let_go(&well, "go");
    world.reaches(&well, "READY");
    assert_eq!(world.attempts(&well).len(), 1, "nobody took it for lost");
    // Events are in order, and no moment is before the one that was told first.
    let told = world.rows("SELECT at FROM events WHERE number IS NOT NULL ORDER BY number");
    let told: Vec<i64> = told.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(told.len() > 10);
    let back = told.windows(2).filter(|pair| pair[1] + 1_000 < pair[0]).count();
    assert_eq!(back, 0, "time went back: {told:?}");
    assert!(told.last().unwrap() - told[0] < 120_000, "nor did it jump: {told:?}");
}
