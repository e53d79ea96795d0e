//! What every adapter promises, on streams that are kept with this crate; real agents are in
//! `real_agents`.

mod common;
mod detection;
mod documents;
mod fuzz;
mod plans;
mod questions;
mod suite;
