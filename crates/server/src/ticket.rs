//! Tickets: a page in a browser cannot put a token on a stream, because neither `EventSource` nor
//! `WebSocket` lets it say a header. It asks for a ticket with its token, and opens the stream with
//! the ticket in the query.
//!
//! A ticket is used once, within half a minute, for a stream and nothing else: whoever finds one in
//! a log or a history finds nothing that opens anything. It stands for the token that asked for it,
//! so the stream ends when that token opens nothing any more. Tickets are kept in memory, by the
//! node that made them: a page opens its stream where it got its ticket.
//!
//! Rejected: the token itself in the query, which logs and histories keep for as long as it opens
//! something; a WebSocket's subprotocol as a place for it, which does nothing for `EventSource`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use belay_api::{Code, Principal};

use crate::answer::Failed;

/// How long a ticket can be used.
pub(crate) const LASTS: Duration = Duration::from_secs(30);
/// How many wait to be used at a time; beyond that nobody is given one.
const MOST: usize = 10_000;
/// How a ticket begins.
const PREFIX: &str = "belay_ticket_";

/// Whom a ticket stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) principal: Principal,
    /// The token that asked for it, if it can be revoked.
    pub(crate) token: Option<String>,
}

/// The tickets that were given and not used.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<HashMap<String, (Held, Instant)>>);

impl Tickets {
    /// A ticket that stands for `held`.
    pub(crate) fn give(&self, held: Held, now: Instant) -> Result<String, Failed> {
        let mut drawn = [0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        let failed = |_| Failed::new(Code::Internal, "no ticket could be drawn");
        random.fill(&mut drawn).map_err(failed)?;
        let digits = drawn.iter().map(|byte| format!("{byte:02x}"));
        let ticket = [PREFIX.to_owned()].into_iter().chain(digits).collect::<String>();
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MOST {
            given.retain(|_, (_, until)| *until > now);
        }
        if given.len() >= MOST {
            let detail = format!("{MOST} tickets wait to be used, which is all there are");
            return Err(Failed::new(Code::Unavailable, detail));
        }
        given.insert(ticket.clone(), (held, now + LASTS));
        Ok(ticket)
    }

    /// Whom a ticket stands for. From now on it stands for nobody.
    pub(crate) fn take(&self, ticket: &str, now: Instant) -> Option<Held> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(ticket);
        taken.filter(|(_, until)| *until > now).map(|(held, _)| held)
    }
}

/// The ticket in a query.
pub(crate) fn in_query(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|part| part.strip_prefix("ticket="))
}

#[cfg(test)]
mod tests {
    use belay_api::Scope;

    use super::*;

    fn held() -> Held {
        Held { principal: Principal::holder(Scope::Viewer, "screen"), token: Some("t".into()) }
    }

    #[test]
    fn a_ticket_is_used_once_and_in_time() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let (one, other) = (tickets.give(held(), now).unwrap(), tickets.give(held(), now).unwrap());
        assert_ne!(one, other);
        assert_eq!(tickets.take("belay_ticket_", now), None);
        assert_eq!(tickets.take(&one, now + LASTS - Duration::from_millis(1)), Some(held()));
        assert_eq!(tickets.take(&one, now), None, "it was used");
        assert_eq!(tickets.take(&other, now + LASTS), None, "it is too old");
        assert_eq!(tickets.take(&other, now), None, "and that was its use");
    }

    #[test]
    fn tickets_that_nobody_uses_are_bounded_and_forgotten() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        for _ in 0..MOST {
            tickets.give(held(), now).unwrap();
        }
        assert!(tickets.give(held(), now).is_err());
        assert!(tickets.give(held(), now + LASTS).is_ok());
        assert_eq!(tickets.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_ticket_stands_anywhere_in_the_query() {
        for (query, found) in [
            (None, None),
            (Some(""), None),
            (Some("kind=a"), None),
            (Some("kind=a&ticket=t"), Some("t")),
            (Some("ticket=t&kind=a"), Some("t")),
        ] {
            assert_eq!(in_query(query), found, "{query:?}");
        }
    }
}
