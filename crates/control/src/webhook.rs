//! Webhooks: receivers that are told what happened, signed, in order per task, at least once.
//!
//! ```text
//!  events ──cursor──► letters (rows) ──► courier ──2xx──► gone
//!             one commit        ▲            │ else
//!                               └── due later, or dead
//! ```
//!
//! A hook has a cursor over the events. Moving it and making letters of what the hook wants is one
//! commit, so nothing is skipped and nothing is made twice. A letter is a row until it was
//! delivered; whoever falls between delivery and its record leaves the row, and the letter is sent
//! again under the same name. One node at a time sends for a hook: the one that owns it while its
//! own lease lasts.
//!
//! Rejected: effects, which have no order among each other; sending straight from the cursor, where
//! one receiver that is down either stops the cursor or loses its place.

mod courier;
mod deliver;
mod desk;
mod edit;
mod hooks;
mod shape;

pub use courier::{Courier, Delivery, HttpCourier, Parcel, Undelivered};
pub use hooks::HookSettings;
