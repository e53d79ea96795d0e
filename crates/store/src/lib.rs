//! What is remembered.

pub mod blob;
