//! The product as a person meets it: the real binary, real processes, real git, judged from
//! outside.

mod api;
mod asks;
mod bad_input;
mod clock;
mod containers;
mod crash;
#[path = "../../../sandbox/tests/engine/mod.rs"]
mod engine;
mod keep_alive;
mod lessons;
mod mcp;
mod processes;
mod real_agents;
mod roles;
mod scale;
mod scripted;
mod stop;
mod streams;
mod success;
mod table;
mod timeouts;
mod watch;
mod world;
