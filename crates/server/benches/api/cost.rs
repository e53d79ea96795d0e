//! What something costs: time of a processor, of the server and of this process.

use std::fs;

/// How often the kernel's clock of processes ticks in a second.
const TICKS: f64 = 100.0;

/// Since when is measured.
pub(crate) struct Meter {
    server: u32,
    before: (f64, f64),
}

impl Meter {
    /// Measures from now on.
    pub(crate) fn begin(server: u32) -> Self {
        Self { server, before: spent(server) }
    }

    /// How many microseconds of a processor each of `count` took: of the server, of the client.
    pub(crate) fn micros_each(&self, count: usize) -> (f64, f64) {
        let (server, client) = spent(self.server);
        let each = |seconds: f64| seconds * 1e6 / count.max(1) as f64;
        (each(server - self.before.0), each(client - self.before.1))
    }
}

fn spent(server: u32) -> (f64, f64) {
    (seconds(server), seconds(std::process::id()))
}

/// The time that all threads of a process have had, in the kernel and out of it.
fn seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it is there");
    // The name of the program stands in brackets, and may hold anything.
    let rest = stat.rsplit(')').next().expect("a state");
    let ticks = |nth: usize| -> f64 {
        let field = rest.split_whitespace().nth(nth);
        field.and_then(|text| text.parse().ok()).expect("a number")
    };
    (ticks(11) + ticks(12)) / TICKS
}
