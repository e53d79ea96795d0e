//! What should happen: Belay's states, transitions, verdicts and policies, as values and total
//! functions. No clock, no chance, no I/O, no logging: time comes in as `now`, ids and jitter are
//! drawn by the caller, and every decision can be replayed.

pub mod attempt;
pub mod budget;
mod cause;
pub mod claim;
mod clock;
mod disposition;
mod event;
pub mod fence;
pub mod graph;
mod id;
mod limits;
pub mod publish;
pub mod question;
pub mod receipt;
pub mod retry;
pub mod status;
pub mod task;
pub mod termination;
mod time;
mod usage;
pub mod why;

pub mod breaker;
pub mod diagnostic;
pub mod recovery;
pub mod restart;
pub mod role;
pub mod worker;
pub mod workflow;

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
