//! Several reads asked for together: one trip to the database instead of one for each.
//!
//! A view of a task reads a dozen tables. Where every trip wakes another thread, the trips cost
//! more than what is read.

use std::marker::PhantomData;

use crate::query::{Query, Scan};
use crate::refusal::Failure;
use crate::row::{Key, RawRow, Record, Stored};
use crate::table::Table;

/// One of several reads.
#[derive(Clone, Debug)]
pub enum Read {
    /// Rows by their keys, all of one table.
    Keys(&'static Table, Vec<Key>),
    /// Rows by conditions.
    Scan(Scan),
}

/// Reads that are asked for together.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    pub(crate) reads: Vec<Read>,
}

/// Where the rows of one read will be.
#[derive(Debug)]
pub struct Place<R> {
    index: usize,
    rows: PhantomData<fn() -> R>,
}

impl Gather {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the rows with these ids.
    pub fn load<R: Record>(&mut self, ids: &[R::Id]) -> Place<R> {
        let keys = ids.iter().map(Key::of::<R>).collect();
        self.put(Read::Keys(R::table(), keys))
    }

    /// Asks for the first page of a list.
    pub fn list<R: Record>(&mut self, query: Query<R>) -> Result<Place<R>, Failure> {
        Ok(self.put(Read::Scan(query.scan()?)))
    }

    fn put<R>(&mut self, read: Read) -> Place<R> {
        self.reads.push(read);
        Place { index: self.reads.len() - 1, rows: PhantomData }
    }
}

/// What was read.
#[derive(Debug)]
pub struct Gathered(pub(crate) Vec<Vec<Option<RawRow>>>);

impl Gathered {
    /// The rows of one read that are there, in order.
    pub fn rows<R: Record>(&self, place: &Place<R>) -> Result<Vec<Stored<R>>, Failure> {
        let found = self.0.get(place.index).map_or(&[][..], Vec::as_slice);
        found.iter().flatten().map(Stored::read).collect()
    }

    /// The first row of one read, if it is there.
    pub fn row<R: Record>(&self, place: &Place<R>) -> Result<Option<Stored<R>>, Failure> {
        let first = self.0.get(place.index).and_then(|found| found.first());
        first.and_then(Option::as_ref).map(Stored::read).transpose()
    }
}
