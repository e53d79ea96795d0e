//! How each agent is spoken to.
//!
//! ```text
//!            ┌── plan ───► argv, environment, files, standard input
//!  Launch ───┤
//!            └── reader ─► bytes in ──► observations out: events, conversation, usage, open tool
//!                                       calls, questions, end of turn, drift, bytes to write back
//! ```
//!
//! An [`Agent`] turns a [`Launch`] into a [`LaunchPlan`], which is data, and a [`Reader`], which
//! does no I/O. Whoever runs the plan pushes what the agent prints into the reader, writes what the
//! reader asks for, and at the end has one [`Judgement`] of what the agent said and how its process
//! ended. Detection alone looks at the machine.

mod adapter;
mod agent;
mod compatibility;
mod conversation_files;
mod detect;
mod field;
mod judge;
mod launch;
mod lines;
mod notes;
mod observation;
mod question_file;
mod reader;

pub use agent::{Agent, AgentError};
pub use compatibility::{Counts, Facts, Known, Version, table};
pub use detect::{Credentials, Found, Machine, detect, detect_one};
pub use judge::{Exit, Judgement, judge};
pub use launch::{
    BelayEnvironment, Conversation, Interrupt, Launch, LaunchPlan, LaunchRefusal, McpServer,
    Permissions, PlannedFile, Stdin, Stdout,
};
pub use notes::Turn;
pub use observation::{
    Clip, ConversationId, Detail, Drift, Event, Failure, Observation, Question, QuestionKey, Seen,
    TurnEnd, Write,
};
pub use question_file::{QUESTION_FILE_LIMIT, QuestionFile, read_question_file};
pub use reader::{AnswerRefusal, LINE_LIMIT, Reader};
