//! The product as a person meets it: the real binary, real processes, real git, judged from
//! outside.

mod crash;
mod processes;
mod stop;
mod success;
mod timeouts;
mod world;
