//! Figures, as Prometheus reads them.
//!
//! What must survive a restart comes from rows: totals that are counted from events, numbers of
//! tasks by state, leases, letters, alerts; every node tells the same of them. What is about this
//! process alone (how long its commits, sweeps and deliveries take) is kept in memory, and begins
//! at zero with it. No label has a value that people or agents choose.

mod count;
mod exposition;
mod gauges;
mod render;

pub use exposition::{Exposition, Histogram, Label};
pub(crate) use gauges::Gauges;
