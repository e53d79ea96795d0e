//! What the store refuses, as values with stable codes, and what fails.

use crate::row::Key;

/// A rule that the database itself holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// At most one attempt of a task may act.
    OneLiveAttempt,
    /// At most one live sandbox of a session.
    OneLiveSandbox,
    /// At most one pending start of a role.
    OnePendingStart,
    /// No two tokens that are not revoked have one name.
    OneTokenName,
    /// Something must be the only one of its kind.
    Unique,
    /// What a row refers to must be there.
    Reference,
    /// A row must make sense by itself: a known state with exactly its data.
    Sense,
}

impl Rule {
    /// The rule's stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::OneLiveAttempt => "one_live_attempt",
            Self::OneLiveSandbox => "one_live_sandbox",
            Self::OnePendingStart => "one_pending_start",
            Self::OneTokenName => "one_token_name",
            Self::Unique => "unique",
            Self::Reference => "unknown_reference",
            Self::Sense => "senseless_row",
        }
    }

    /// The rule behind the only unique index of a table, besides its key.
    pub(crate) fn unique_in(table: &str) -> Self {
        match table {
            "attempts" => Self::OneLiveAttempt,
            "sandboxes" => Self::OneLiveSandbox,
            "starts" => Self::OnePendingStart,
            "tokens" => Self::OneTokenName,
            _ => Self::Unique,
        }
    }
}

/// Why the store does not do what it was asked; nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A field is too large.
    #[error("{table}.{column} is {bytes} bytes long; at most {max} are kept")]
    TooLarge {
        /// In which table.
        table: String,
        /// Which field.
        column: String,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A field holds what is not text: a NUL character, or bytes that are not UTF-8.
    #[error("{table}.{column} is not text")]
    NotText {
        /// In which table.
        table: String,
        /// Which field.
        column: String,
    },
    /// A number does not fit.
    #[error("{table}.{column} is larger than can be kept")]
    OutOfRange {
        /// In which table.
        table: String,
        /// Which field.
        column: String,
    },
    /// A rule of the database forbids it.
    #[error("{table} would break the rule {}", rule.code())]
    Rule {
        /// In which table.
        table: String,
        /// Which rule.
        rule: Rule,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The commit itself contradicts itself.
    #[error("the commit names {0:?} twice")]
    Twice(Key),
    /// More at once than is taken.
    #[error("{asked} at once; at most {max} are taken")]
    TooMany {
        /// How many were asked for.
        asked: usize,
        /// How many are taken.
        max: usize,
    },
    /// The cursor belongs to another installation, or to one before a restore.
    #[error("the cursor belongs to another installation or to the time before a restore")]
    ForeignCursor,
    /// The cursor points beyond what there is.
    #[error("the cursor points beyond the last event")]
    FutureCursor,
    /// The cursor cannot be read.
    #[error("the cursor cannot be read")]
    BadCursor,
    /// The events after the cursor have been pruned.
    #[error("events after the cursor have been pruned; begin with the oldest, {oldest}")]
    Pruned {
        /// The number of the oldest event that is kept.
        oldest: u64,
    },
}

impl Refusal {
    /// The refusal's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::NotText { .. } => "not_text",
            Self::OutOfRange { .. } => "out_of_range",
            Self::Rule { rule, .. } => rule.code(),
            Self::KeyReused => "idempotency_key_reused",
            Self::Twice(_) => "named_twice",
            Self::TooMany { .. } => "too_many",
            Self::ForeignCursor => "foreign_cursor",
            Self::FutureCursor => "future_cursor",
            Self::BadCursor => "bad_cursor",
            Self::Pruned { .. } => "pruned",
        }
    }
}

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody knows whether it was done: the reply was lost. Look again by revision or request key.
    #[error("the reply was lost; look again whether it was done")]
    Unknown,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// The disk is full; nothing was changed.
    #[error("the disk is full; make room, nothing was changed")]
    Full,
    /// A stored row cannot be read.
    #[error("a row of {table} cannot be read")]
    Unreadable {
        /// In which table.
        table: String,
        /// What is wrong with it.
        #[source]
        source: crate::cell::Unreadable,
    },
    /// SQLite failed.
    #[error("the embedded database failed")]
    Sqlite(#[source] std::sync::Arc<rusqlite::Error>),
    /// PostgreSQL failed.
    #[error("PostgreSQL failed")]
    Postgres(#[source] std::sync::Arc<tokio_postgres::Error>),
    /// PostgreSQL cannot be reached.
    #[error("PostgreSQL cannot be reached: {0}")]
    Unreachable(String),
    /// A failure that a test or a simulation asked for; nothing was changed.
    #[error("a failure was injected; nothing was changed")]
    Injected,
}

impl Failure {
    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// The same failure for everyone whose work was in one batch.
impl Clone for Failure {
    fn clone(&self) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Unknown => Self::Unknown,
            Self::Closed => Self::Closed,
            Self::Full => Self::Full,
            Self::Unreadable { table, source } => {
                Self::Unreadable { table: table.clone(), source: source.clone() }
            }
            Self::Sqlite(error) => Self::Sqlite(error.clone()),
            Self::Postgres(error) => Self::Postgres(error.clone()),
            Self::Unreachable(why) => Self::Unreachable(why.clone()),
            Self::Injected => Self::Injected,
        }
    }
}
