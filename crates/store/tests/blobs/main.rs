//! Blobs, judged from outside: one suite for memory, directory and a real S3 server; then what can
//! only go wrong on a disk, and what can only go wrong over a network.

mod bucket;
mod conformance;
mod directory;
mod model;
mod server;
mod world;
