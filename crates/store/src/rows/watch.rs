//! Who is told of events, what is counted of them, and which alerts there are.

use std::fmt;

use belay_kernel::alert::{Kind as AlertKind, State as AlertState};
use belay_kernel::meter::Totals;
use belay_kernel::{NodeId, TaskId, Timestamp, WebhookId};

use crate::cell::{
    Cell, Cells, Column, Document, Field, Kind, List, Name, Note, SHORT, Text, Unreadable, codes,
    column,
};
use crate::row::record;

/// A text that is stored, but never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Field for Secret {
    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(4_096), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.0.clone()));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        // What cannot be read is not shown either.
        let text = cells.cell()?.as_text().map(str::to_owned);
        text.map(Self).ok_or_else(|| cells.unreadable("no text"))
    }
}

/// How a webhook's bodies look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shape {
    /// The event, as the API tells it.
    Belay,
    /// A message, as Slack takes it.
    Slack,
    /// A notification, as ntfy takes it.
    Ntfy,
}

/// Who said that there is a webhook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HookOrigin {
    /// The installation's settings.
    File,
    /// A person, by the API.
    Api,
}

/// What becomes of a letter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LetterState {
    /// It waits to be sent.
    Waiting,
    /// It was given up.
    Dead,
}

codes! {
    Shape { Belay "belay", Slack "slack", Ntfy "ntfy" }
    HookOrigin { File "file", Api "api" }
    LetterState { Waiting "waiting", Dead "dead" }
}

record! {
    /// A receiver of events.
    pub struct WebhookRow in "webhooks" {
        id: WebhookId, key: 1, rank: 18, newest: "created_at", timer: None;
        /// Its id.
        id: WebhookId,
        /// What people call it; no two have the same name.
        name: Name,
        /// Where it is. Many services put a secret into it.
        url: Secret,
        /// How its bodies look.
        shape: Shape,
        /// The kinds of events that it is told.
        kinds: List,
        /// What its deliveries are signed with.
        secret: Option<Secret>,
        /// Who said that there is one.
        origin: HookOrigin,
        /// The number of the last event that was made a letter, or passed over.
        seen: u64,
        /// The node that sends for it, as long as that node's lease lasts.
        owner: Option<NodeId>,
        /// When it was made.
        created_at: Timestamp,
        /// Since when it is told nothing, if somebody paused it.
        paused_at: Option<Timestamp>,
    }
}

record! {
    /// Something that a webhook is still to be told.
    pub struct LetterRow in "letters" {
        id: (WebhookId, u64), key: 2, rank: 19, newest: "number", timer: None;
        /// Which webhook.
        webhook: WebhookId,
        /// The number of the event.
        number: u64,
        /// The task that it tells of; within it, letters are sent in order.
        task: Option<TaskId>,
        /// What the delivery is called, the same whenever it is repeated.
        delivery: Name,
        /// The event's kind.
        kind: Name,
        /// The event, as the API tells it.
        envelope: Text<524_288>,
        /// Whether it waits.
        state: LetterState,
        /// How often it was sent.
        tries: u32,
        /// Since when it is tried: when it was made, or last replayed.
        since: Timestamp,
        /// Not before then.
        send_at: Timestamp,
        /// Why it was not delivered the last time.
        failure: Option<Note>,
        /// When that was.
        failed_at: Option<Timestamp>,
        /// When it was made.
        made_at: Timestamp,
    }
}

record! {
    /// A reader of all events that adds them up.
    pub struct MeterRow in "meters" {
        id: Name, key: 1, rank: 20, newest: "name", timer: None;
        /// Its name.
        name: Name,
        /// The number of the last event that was counted.
        seen: u64,
        /// What was counted.
        totals: Document<Totals>,
    }
}

record! {
    /// An alert that fires, may fire soon, or has fired.
    pub struct AlertRow in "alerts" {
        id: (AlertKind, Name), key: 2, rank: 21, newest: "since", timer: None;
        /// What it is about.
        kind: AlertKind,
        /// Which one.
        subject: Name,
        /// Its life.
        state: AlertState,
        /// What is wrong, with measured and allowed value.
        sentence: Note,
    }
}

impl Field for AlertKind {
    fn columns(name: &str, out: &mut Vec<Column>) {
        column(name, Kind::Text(SHORT), out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        out.push(Cell::Text(self.code().to_owned()));
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let code = cells.cell()?.as_text().unwrap_or_default();
        let known = Self::ALL.iter().find(|kind| kind.code() == code);
        known.copied().ok_or_else(|| cells.unreadable(code))
    }
}

impl Field for AlertState {
    fn columns(_: &str, out: &mut Vec<Column>) {
        column("state", Kind::Text(SHORT), out);
        Timestamp::columns("since", out);
        Timestamp::columns("until", out);
    }

    fn put(&self, out: &mut Vec<Cell>) {
        let (name, since, until) = match *self {
            Self::Pending { since } => ("pending", since, None),
            Self::Firing { since } => ("firing", since, None),
            Self::Cleared { since, until } => ("cleared", since, Some(until)),
        };
        out.push(Cell::Text(name.to_owned()));
        since.put(out);
        until.put(out);
    }

    fn get(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        let name = cells.cell()?.as_text().unwrap_or_default();
        let since = Timestamp::get(cells)?;
        let until = Option::<Timestamp>::get(cells)?;
        let state = match (name, until) {
            ("pending", None) => Some(Self::Pending { since }),
            ("firing", None) => Some(Self::Firing { since }),
            ("cleared", Some(until)) => Some(Self::Cleared { since, until }),
            _ => None,
        };
        state.ok_or_else(|| cells.unreadable(name))
    }
}
