//! What is said between Belay's parts.
//!
//! ```text
//!  person, program ──► wire (JSON over HTTP) ──► server ──► control
//!  runner ───────────► port (a trait: in process, or over HTTP) ──► control
//! ```
//!
//! [`port`] is what a runner says to control and what it is told. The other modules are what people
//! and programs say, with the [`Client`] that says it.

mod access;
mod agent_event;
mod attempt;
mod client;
pub mod port;
mod problem;
mod request;
mod sandbox;
mod secrets;
mod token;
mod view;
mod watch;

pub use access::{Ask, Principal, Scope, ScopeError};
pub use agent_event::{
    AgentEvent, EventsTaken, Heartbeat, HeartbeatTaken, LONGEST_DATA, MOST_EVENTS, NewAgentEvent,
    NewAgentEvents, read_events,
};
pub use attempt::{
    Asking, NewQuestion, PROGRESS_LIMIT, Progress, ProgressView, RESULT_LIMIT, Submission,
};
pub use client::{Client, ClientError, Unanswered, UnusableAuthority};
pub use problem::{Code, Problem};
pub use request::{
    Accept, Act, Action, AfterCursor, Answer, Comment, Continue, Dirty, ListTasks, Listen,
    NewBackup, NewTask, Publishing, Resume, Stop, TranscriptRange, WhichAttempt,
};
pub use sandbox::{ListSandboxes, SandboxPage, SandboxView, VerdictView};
pub use secrets::{Masker, Secrets, each_text};
pub use token::{
    ListTokens, MadeTicket, MadeToken, NewToken, TOKEN, TokenPage, TokenView, token_is,
};
pub use view::{
    Announcement, AttemptView, Backup, ChildView, EventView, Events, Health, QuestionView, Ready,
    ReceiptView, Stopping, TaskPage, TaskSummary, TaskView, TranscriptPiece, Version, WhyView,
};
pub use watch::{
    AlertList, AlertView, EditWebhook, HookShape, LetterPage, LetterView, ListLetters, MadeWebhook,
    NewWebhook, Replayed, WebhookList, WebhookView,
};

use std::fmt;

/// How an attempt's token begins; its task, its number and a secret follow.
pub const ATTEMPT_TOKEN: &str = "belay_attempt_";

/// How a webhook's secret begins that Belay drew.
pub const WEBHOOK_SECRET: &str = "belay_hook_";

/// The hash of a token, under which it is stored.
pub fn token_hash(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

/// Where ids and jitter come from. A trait, so that a simulation can draw from its seed.
pub trait Chance: Send + Sync + fmt::Debug + 'static {
    /// 128 bits that nobody can guess.
    fn draw(&self) -> u128;
}
