//! Belay's automation: everything that is run is run from here.
//!
//! A library under the binary `xtask`, so that the house rules in [`tidy`] are an ordinary test.

#![expect(clippy::print_stdout, reason = "automation speaks to the person who runs it")]

pub mod api;
pub mod bench;
pub mod chaos;
pub mod ci;
pub mod mutants;
pub mod tidy;
pub mod up;

mod run;
mod tools;
mod worlds;

pub use run::{Outcome, Workspace};
