//! The board: which attempts this runner speaks for, how their agents are, and how long their
//! leases last. Drivers enter their attempts and read their leases; the beat reads the attempts and
//! writes the leases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_api::port::Who;
use belay_kernel::HeartbeatStatus;
use belay_sandbox::{Fence, Moment};
use tokio::sync::{Notify, watch};

/// How an attempt stands, by the last beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Nothing was answered yet.
    Unknown,
    /// Its lease lasts until then.
    Until(Moment),
    /// It is not current any more.
    Fenced,
    /// It is not either, but its agent is to stay.
    Stays,
}

/// An attempt on the board.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) fence: Fence,
    pub(crate) provider: String,
    pub(crate) status: HeartbeatStatus,
    /// Whether everything that was printed has been read.
    abreast: bool,
    /// Whether everything that was read is durable.
    durable: bool,
    standing: watch::Sender<Standing>,
}

impl Place {
    /// Whether control knows everything that the agent has printed.
    pub(crate) const fn is_told(&self) -> bool {
        self.abreast && self.durable
    }
}

/// All attempts that this runner speaks for.
#[derive(Debug, Default)]
pub(crate) struct Board {
    places: Mutex<BTreeMap<Who, Place>>,
    /// Somebody entered.
    pub(crate) entered: Notify,
}

impl Board {
    fn places(&self) -> MutexGuard<'_, BTreeMap<Who, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an attempt, for as long as the ticket is held. How it stands may be known by the
    /// claim that brought it, before the first beat.
    pub(crate) fn enter(
        self: &Arc<Self>,
        who: Who,
        fence: Fence,
        provider: &str,
        standing: Standing,
    ) -> Ticket {
        let (standing, read) = watch::channel(standing);
        let status = HeartbeatStatus::Running;
        let (abreast, durable) = (false, true);
        let place = Place { fence, provider: provider.into(), status, abreast, durable, standing };
        self.places().insert(who, place);
        self.entered.notify_one();
        Ticket { board: Arc::clone(self), who, standing: read }
    }

    /// Whether somebody acts for this attempt.
    pub(crate) fn has(&self, who: Who) -> bool {
        self.places().contains_key(&who)
    }

    /// Every attempt, in order.
    pub(crate) fn list(&self) -> Vec<(Who, Place)> {
        self.places().iter().map(|(who, place)| (*who, place.clone())).collect()
    }

    /// Writes down what a beat was answered with.
    pub(crate) fn stands(&self, who: Who, standing: Standing) {
        if let Some(place) = self.places().get(&who) {
            place.standing.send_replace(standing);
        }
    }
}

/// An attempt's place on the board, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    board: Arc<Board>,
    who: Who,
    standing: watch::Receiver<Standing>,
}

impl Ticket {
    /// Says how the agent is.
    pub(crate) fn status(&self, status: HeartbeatStatus) {
        if let Some(place) = self.board.places().get_mut(&self.who) {
            place.status = status;
        }
    }

    /// Says whether everything that was printed has been read.
    pub(crate) fn abreast(&self, abreast: bool) {
        if let Some(place) = self.board.places().get_mut(&self.who) {
            place.abreast = abreast;
        }
    }

    /// Says whether everything that was read is durable.
    pub(crate) fn durable(&self, durable: bool) {
        if let Some(place) = self.board.places().get_mut(&self.who) {
            place.durable = durable;
        }
    }

    /// The end of the lease, once a beat was answered.
    pub(crate) async fn until(&self) -> Moment {
        let mut standing = self.standing.clone();
        let known = standing.wait_for(|standing| matches!(standing, Standing::Until(_))).await;
        match known.map(|standing| *standing) {
            Ok(Standing::Until(until)) => until,
            // The board goes only with the runner.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the attempt is not current any more; whether its agent is to stay.
    pub(crate) async fn over(&self) -> bool {
        let mut standing = self.standing.clone();
        let is_over = |standing: &Standing| matches!(standing, Standing::Fenced | Standing::Stays);
        let over = standing.wait_for(is_over).await.map(|standing| *standing);
        match over {
            Ok(standing) => standing == Standing::Stays,
            // The board goes only with the runner.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.board.places().remove(&self.who);
    }
}
