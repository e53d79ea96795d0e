//! What is remembered: tasks, attempts, sessions, leases, events, effects; on SQLite (embedded), on
//! PostgreSQL (several nodes), and in memory (simulation). Bytes are kept as [`blob`]s.
//!
//! [`Store`] is the face. A decision is one [`Commit`]; it is durable when it is answered.

pub mod blob;
mod cell;
mod claim;
mod commit;
mod effect;
mod engine;
mod event;
mod gather;
mod lease;
pub mod memory;
pub mod migrate;
mod open;
pub mod postgres;
mod query;
mod refusal;
mod row;
pub mod rows;
pub mod sqlite;
mod store;
mod table;

pub use cell::{Cell, Column, Document, Field, Kind, List, Name, Note, Prose, Text, Unreadable};
pub use claim::{Candidate, Claim, ClaimAsk, Decide};
pub use commit::{ABSENT, Answered, Change, Commit, Committed, Request};
pub use effect::{Effect, NewEffect, Settle, Settled};
pub use event::{Cursor, Event, EventFilter, Events, MAX_BODY, NewEvent};
pub use gather::{Gather, Gathered, Place, Read};
pub use lease::{Beat, Beaten, Holder, Lease, LeaseAct, LeaseKind, LeaseWrite};
pub use memory::Memory;
pub use open::OpenError;
pub use postgres::{Postgres, PostgresOptions, Sessions};
pub use query::{After, Page, Query};
pub use refusal::{Failure, Refusal, Rule};
pub use row::{Key, Record, Row, Stored};
pub use sqlite::Sqlite;
pub use store::{Due, Installation, MAX_BATCH, Prune, Pruned, Store};
pub use table::{Table, Timer};
