//! What should happen: Belay's states, transitions, verdicts and policies, as values and total
//! functions. No clock, no chance, no I/O, no logging: time comes in as `now`, ids and jitter are
//! drawn by the caller, and every decision can be replayed.

mod cause;
mod clock;
mod disposition;
mod event;
mod id;
mod limits;
#[cfg(feature = "schema")]
mod schema;
mod time;
mod usage;

// The task and its attempts.
pub mod attempt;
pub mod budget;
pub mod claim;
pub mod fence;
pub mod graph;
pub mod publish;
pub mod question;
pub mod receipt;
pub mod retry;
pub mod status;
pub mod task;
pub mod termination;
pub mod why;

// Whether an agent is alive.
pub mod absence;
pub mod deadline;
pub mod evidence;
pub mod hold;
pub mod mass_death;
pub mod sandbox;
pub mod tool;
pub mod verdict;

// The session behind the tasks.
pub mod idle;
pub mod lock;
pub mod orphan;
pub mod resume;
pub mod session;
pub mod snapshot;

// Who works.
pub mod breaker;
pub mod recovery;
pub mod restart;
pub mod role;
pub mod worker;

// What it is for.
pub mod diagnostic;
pub mod workflow;

// Who is told.
pub mod alert;
pub mod meter;
pub mod webhook;
// How it is known that the tests see.
pub mod planted;

pub use cause::{Cause, Retry};
pub use clock::{Clock, Reading, Watched};
pub use disposition::Disposition;
pub use event::{EventClass, EventKind, HeartbeatStatus};
pub use id::{
    AttemptNumber, CommandId, ConnectionId, Epoch, IdError, InstallationId, NodeId, QuestionId,
    ResultId, Revision, RunnerId, SandboxId, SessionId, SnapshotId, TaskId, TokenId, WebhookId,
    WorkerId, WorkflowId,
};
pub use limits::{Caps, Limit, LimitError, Limits, Scope, Switches};
pub use time::{Span, SpanError, Timestamp};
pub use usage::{Money, Usage};
