//! What a column holds, and how the domain's values become columns and come back.
//!
//! Both databases hold the same two kinds of values: whole numbers of 64 bits, and text. Ids are
//! text, moments are milliseconds, enums are their stable names, so that an operator can read every
//! table with SQL. A value of the domain is a [`Field`]: it has one column or several, and writing
//! and reading it back loses nothing.

use belay_kernel::budget::Uncounted;
use belay_kernel::{
    AttemptNumber, CommandId, ConnectionId, Epoch, InstallationId, Money, NodeId, QuestionId,
    ResultId, RunnerId, SandboxId, SessionId, SnapshotId, Span, TaskId, Timestamp, TokenId,
    WebhookId, WorkerId, WorkflowId,
};

/// One value in one column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A text without NUL.
    Text(String),
}

impl Cell {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Int(_) => None,
        }
    }

    /// The number, if it is one.
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Null | Self::Text(_) => None,
        }
    }
}

/// The kind of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number of 64 bits.
    Int,
    /// A text of at most this many bytes.
    Text(usize),
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// A stored value that cannot be read: someone else wrote it, or the file is damaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column} holds what cannot be read: {found}")]
pub struct Unreadable {
    /// Which column, counted from 1.
    pub column: usize,
    /// What it holds, shortened.
    pub found: String,
}

/// Cells that are read one after the other.
pub struct Cells<'a> {
    cells: &'a [Cell],
    next: usize,
}

impl<'a> Cells<'a> {
    /// Begins at the first of `cells`.
    pub const fn new(cells: &'a [Cell]) -> Self {
        Self { cells, next: 0 }
    }

    /// The next cell.
    pub fn cell(&mut self) -> Result<&'a Cell, Unreadable> {
        let cell = self.cells.get(self.next);
        self.next += 1;
        cell.ok_or_else(|| self.unreadable("nothing"))
    }

    /// What is said of the cell that was read last when it makes no sense.
    pub fn unreadable(&self, found: impl ToString) -> Unreadable {
        let found = found.to_string().chars().take(80).collect();
        Unreadable { column: self.next, found }
    }

    fn int(&mut self) -> Result<i64, Unreadable> {
        let cell = self.cell()?;
        cell.as_int().ok_or_else(|| self.unreadable(format!("{cell:?}")))
    }

    fn text(&mut self) -> Result<&'a str, Unreadable> {
        let cell = self.cell()?;
        cell.as_text().ok_or_else(|| self.unreadable(format!("{cell:?}")))
    }
}

/// A value of the domain, as one or several columns.
pub trait Field: Sized {
    /// How many columns it has. Those that have one say so: they are asked often.
    fn width() -> usize {
        let mut columns = Vec::new();
        Self::columns("", &mut columns);
        columns.len()
    }

    /// Adds its columns; a field of one column takes `name`.
    fn columns(name: &str, out: &mut Vec<Column>);
    /// Adds its cells, as many as it has columns.
    fn put(&self, out: &mut Vec<Cell>);
    /// Reads its cells.
    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable>;
}

/// Adds one column.
pub(crate) fn column(name: &str, kind: Kind, out: &mut Vec<Column>) {
    out.push(Column { name: name.to_owned(), kind });
}

/// The longest identifier or code, in bytes.
pub(crate) const SHORT: usize = 200;

impl<T: Field> Field for Option<T> {
    fn width() -> usize {
        T::width()
    }

    fn columns(name: &str, out: &mut Vec<Column>) {
        T::columns(name, out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        match self {
            Some(value) => value.put(out),
            None => out.extend((0..T::width()).map(|_| Cell::Null)),
        }
    }

    /// Nothing is there when the first column is empty.
    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        if cells.cells.get(cells.next) != Some(&Cell::Null) {
            return T::get(cells).map(Some);
        }
        cells.next += T::width();
        Ok(None)
    }
}

macro_rules! parsed {
    ($($name:ty),* $(,)?) => {$(
        impl Field for $name {
            fn width() -> usize {
                1
            }

            fn columns(name: &str, out: &mut Vec<Column>) {
                column(name, Kind::Text(SHORT), out);
            }

            fn put(&self, out: &mut Vec<Cell>) {
                out.push(Cell::Text(self.to_string()));
            }

            fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
                let text = cells.text()?;
                text.parse().map_err(|_| cells.unreadable(text))
            }
        }
    )*};
}

parsed! {
    TaskId, SessionId, SandboxId, WorkerId, ConnectionId, RunnerId, NodeId, WorkflowId, QuestionId,
    ResultId, SnapshotId, CommandId, InstallationId, TokenId, WebhookId,
    belay_kernel::publish::CommitId, belay_kernel::role::RoleName,
}

macro_rules! counted {
    ($($name:ty: $into:expr, $from:expr;)*) => {$(
        impl Field for $name {
            fn width() -> usize {
                1
            }

            fn columns(name: &str, out: &mut Vec<Column>) {
                column(name, Kind::Int, out);
            }

            fn put(&self, out: &mut Vec<Cell>) {
                // A count beyond 2⁶³ is kept as −1 and refused by the check of every commit.
                let into: fn(&Self) -> Result<i64, std::num::TryFromIntError> = $into;
                out.push(Cell::Int(into(self).unwrap_or(TOO_LARGE)));
            }

            fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
                let number = cells.int()?;
                let from: fn(i64) -> Result<Self, std::num::TryFromIntError> = $from;
                from(number).map_err(|_| cells.unreadable(number))
            }
        }
    )*};
}

/// What stands for a number that does not fit: no stored count or length is negative.
pub(crate) const TOO_LARGE: i64 = i64::MIN;

counted! {
    u32: |n| Ok(i64::from(*n)), |n| u32::try_from(n);
    u64: |n| i64::try_from(*n), |n| u64::try_from(n);
    AttemptNumber: |n| Ok(i64::from(n.0)), |n| u32::try_from(n).map(AttemptNumber);
    Epoch: |n| i64::try_from(n.0), |n| u64::try_from(n).map(Epoch);
    Money: |n| i64::try_from(n.as_micros()), |n| u64::try_from(n).map(Money::from_micros);
    Span: |n| i64::try_from(n.as_millis()), |n| u64::try_from(n).map(Span::from_millis);
    i64: |n| Ok(*n), Ok;
    Timestamp: |n| Ok(n.as_millis()), |n| Ok(Timestamp::from_millis(n));
    i32: |n| Ok(i64::from(*n)), |n| i32::try_from(n);
    belay_kernel::Revision: |n| i64::try_from(n.0),
        |n| u64::try_from(n).map(belay_kernel::Revision);
    belay_kernel::restart::Generation: |n| i64::try_from(n.0),
        |n| u64::try_from(n).map(belay_kernel::restart::Generation);
    bool: |yes| Ok(i64::from(*yes)), |n| u8::try_from(n).map(|n| n != 0);
}

/// A text of at most `MAX` bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Text<const MAX: usize>(pub String);

impl<const MAX: usize> Field for Text<MAX> {
    fn width() -> usize {
        1
    }

    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(MAX), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.0.clone()));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        cells.text().map(|text| Self(text.to_owned()))
    }
}

impl<const MAX: usize> From<&str> for Text<MAX> {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<const MAX: usize> From<String> for Text<MAX> {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl<const MAX: usize> std::ops::Deref for Text<MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A name, a code, a reference.
pub type Name = Text<SHORT>;
/// A sentence or a short list.
pub type Note = Text<4_096>;
/// What people and agents write: prompts, comments, results.
pub type Prose = Text<1_048_576>;

/// A list of texts, stored as one JSON array.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct List(pub Vec<String>);

impl Field for List {
    fn width() -> usize {
        1
    }

    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(65_536), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let text = serde_json::Value::from(self.0.clone()).to_string();
        out.push(Cell::Text(text));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let text = cells.text()?;
        serde_json::from_str(text).map(Self).map_err(|_| cells.unreadable(text))
    }
}

/// A value of the kernel that is kept as one JSON document, because nothing is asked of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document<T>(pub T);

impl<T: serde::Serialize + serde::de::DeserializeOwned> Field for Document<T> {
    fn width() -> usize {
        1
    }

    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(1_048_576), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        // Maps with keys that are no text cannot be written; the kernel's values have none.
        out.push(serde_json::to_string(&self.0).map_or(Cell::Null, Cell::Text));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let text = cells.text()?;
        serde_json::from_str(text).map(Self).map_err(|_| cells.unreadable(text))
    }
}

/// Enums without data, by their stable names.
macro_rules! codes {
    ($($name:ty { $($variant:ident $code:literal),* $(,)? })*) => {$(
        impl $crate::cell::Field for $name {
            fn width() -> usize {
                1
            }

            fn columns(name: &str, out: &mut Vec<$crate::cell::Column>) {
                $crate::cell::column(name, $crate::cell::Kind::Text($crate::cell::SHORT), out);
            }

            fn put(&self, out: &mut Vec<$crate::cell::Cell>) {
                let code = match self { $(Self::$variant => $code),* };
                out.push($crate::cell::Cell::Text(code.to_owned()));
            }

            fn get(
                cells: &mut $crate::cell::Cells<'_>,
            ) -> Result<Self, $crate::cell::Unreadable> {
                let cell = cells.cell()?;
                match cell.as_text() {
                    $(Some($code) => Ok(Self::$variant),)*
                    _ => Err(cells.unreadable(format!("{cell:?}"))),
                }
            }
        }
    )*};
}
pub(crate) use codes;

codes! {
    Uncounted { Refuse "refuse", Allow "allow" }
}

impl Field for belay_kernel::Cause {
    fn width() -> usize {
        1
    }

    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.code().to_owned()));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let code = cells.text()?;
        let known = Self::ALL.iter().find(|cause| cause.code() == code);
        known.copied().ok_or_else(|| cells.unreadable(code))
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),+);)*) => {$(
        /// Keys of several columns; their names come from the table.
        impl<$($part: Field),+> Field for ($($part,)+) {
            fn columns(name: &str, out: &mut Vec<Column>) {
                $($part::columns(name, out);)+
            }

            fn put(&self, out: &mut Vec<Cell>) {
                $(self.$index.put(out);)+
            }

            fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
                Ok(($($part::get(cells)?,)+))
            }
        }
    )*};
}

tuples! {
    (A 0, B 1);
    (A 0, B 1, C 2);
}
