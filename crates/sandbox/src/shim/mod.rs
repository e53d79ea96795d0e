//! The shim: the small process beside the agent that holds its lease.
//!
//! ```text
//! runner ──socket──► hold ──pipe──► [bubblewrap ►] init ──► agent ──► …
//!                     │ output.log, end.json          PID 1 of the namespace
//!                     └ cgroup, pidfds, clock
//! ```
//!
//! It has three modes, all plain, synchronous and small. `hold` is the process beside a process
//! sandbox. `init` is the first process inside it: it executes the agent when it is let go, reaps
//! what is left to it, reports exact exit statuses, and ends everything when `hold` dies. And
//! `container` is both in one, as PID 1 of a container.

pub(crate) mod container;
pub(crate) mod ending;
mod growing;
pub(crate) mod hold;
pub(crate) mod init;
pub(crate) mod lease;
pub(crate) mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the shim. The arguments are those after the ones that led here.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::os::signals::reset();
    let mut args = args.into_iter();
    let mode = args.next().unwrap_or_default();
    match mode.to_str() {
        Some("hold") => hold::main(args),
        Some("init") => init::main(args),
        Some("container") => container::main(args),
        _ => ExitCode::from(64),
    }
}
