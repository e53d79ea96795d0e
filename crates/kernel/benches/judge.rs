//! Placeholder body, replaced before the first commit.
fn main() {}
