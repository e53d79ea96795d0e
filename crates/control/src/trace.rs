//! Traces: from the request that made a task to the exit of its agent's processes, in one trace
//! whatever process did which part.
//!
//! ```text
//!  POST /api/v1/tasks                      the request, by the node that took it
//!  └─ attempt 1                            claimed → its processes proven gone
//!     ├─ prepare                           claimed → started
//!     ├─ agent                             started → its end decided
//!     ├─ publish                           the gate opened → the push settled
//!     └─ terminate                         its end decided → everything of it safe
//! ```
//!
//! The request's context is stored with the task. The spans of an attempt are made of its row when
//! everything of it is safe, by a reader of events with a stored cursor; so they survive whoever
//! falls, and their ids follow from what they are about: made twice, they are the same.

mod context;
mod export;
mod otlp;
mod spans;

pub use context::{Context, current, within};
pub use export::{NoTracer, Tracer};
pub use spans::{Status, TraceSpan};
