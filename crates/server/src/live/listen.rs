//! Whoever wants to listen: what is wanted, from where on, and whether that can be had.

use belay_api::Code;
use belay_store::Cursor;

use super::feed::{Begin, Feed, Form};
use super::wanted::Wanted;
use super::{Live, Slot};
use crate::answer::Failed;
use crate::service::Service;

/// Whoever wants to listen.
pub(crate) struct Listener {
    pub(crate) live: Live,
    pub(crate) wanted: Wanted,
    /// `after`, or the last event id: a cursor, or `oldest`; nothing means from now on.
    pub(crate) after: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) slot: Option<Slot>,
}

/// Begins a stream, if it can begin where it is asked to.
pub(super) async fn begin<S: Service>(
    service: S,
    listener: Listener,
    form: Form,
) -> Result<Feed<S>, Failed> {
    let Listener { live, wanted, after, token, slot } = listener;
    let (oldest, newest) = service.log_ends().await?;
    let after = match after.as_deref() {
        None | Some("") => newest,
        Some("oldest") => oldest,
        Some(text) => {
            let bad =
                |refusal: belay_store::Refusal| Failed::new(Code::BadRequest, refusal.to_string());
            let cursor: Cursor = text.parse().map_err(bad)?;
            // Asked for nothing, the log still says whether it knows the cursor.
            service.read_log(cursor, wanted.of_log(), 1).await?;
            cursor
        }
    };
    let place = live.place(slot.as_ref())?;
    let begin = Begin { wanted, after, form, token, place };
    Ok(Feed::new(service, live.hub.clone(), live.closing.clone(), begin))
}
