//! What the machine offers, each part found by trying it rather than by version numbers.

pub(crate) mod bwrap;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod pid;
pub(crate) mod procfs;
pub(crate) mod signals;
