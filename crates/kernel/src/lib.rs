//! What should happen: Belay's states, transitions, verdicts and policies, as values and total
//! functions. No clock, no chance, no I/O, no logging: time comes in as `now`, ids and jitter are
//! drawn by the caller, and every decision can be replayed.

mod cause;
mod clock;
mod disposition;
mod event;
mod id;
mod limits;
mod time;
mod usage;

pub mod deadline;
pub mod evidence;
pub mod hold;
pub mod idle;
pub mod lock;
pub mod mass_death;
pub mod orphan;
pub mod resume;
pub mod sandbox;
pub mod session;
pub mod snapshot;
pub mod tool;
pub mod verdict;

pub use cause::{Cause, Retry};
pub use clock::{Clock, Reading};
pub use disposition::Disposition;
pub use event::{EventClass, EventKind, HeartbeatStatus};
pub use id::{
    AttemptNumber, CommandId, ConnectionId, Epoch, IdError, InstallationId, NodeId, QuestionId,
    ResultId, Revision, RunnerId, SandboxId, SessionId, SnapshotId, TaskId, WorkerId, WorkflowId,
};
pub use limits::{Caps, Limit, LimitError, Limits, Scope, Switches};
pub use time::{Span, SpanError, Timestamp};
pub use usage::{Money, Usage};
