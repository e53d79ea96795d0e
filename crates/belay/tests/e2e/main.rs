//! The product as a person meets it: the real binary, real processes, real git, judged from
//! outside.

mod bad_input;
mod crash;
mod lessons;
mod processes;
mod real_agents;
mod scale;
mod scripted;
mod stop;
mod streams;
mod success;
mod table;
mod timeouts;
mod world;
