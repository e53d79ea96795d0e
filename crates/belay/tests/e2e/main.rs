//! The product as a person meets it: the real binary, real processes, real git, judged from
//! outside.

mod crash;
mod processes;
mod scripted;
mod stop;
mod success;
mod table;
mod timeouts;
mod world;
