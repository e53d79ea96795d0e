//! The beat: one for everything that this runner has, and what its answers mean for the leases.
//!
//! A lease is counted from a reading of the clock that was taken before the beat was sent. A beat
//! that fails is sent again soon; meanwhile the shims hold the leases they have.

use std::sync::Arc;

use belay_api::port::{Beat, Beaten, Port, PortError, Pulse, Who};
use belay_kernel::planted::{self, Bug};
use belay_sandbox::{Error, Moment, Provider};
use tokio::task::JoinSet;

use crate::board::{Place, Standing};
use crate::shared::{Shared, sleep};

/// Beats until control does not know this runner any more.
pub(crate) async fn beat<C: Port, P: Provider, W: Send + Sync + 'static>(
    shared: Arc<Shared<C, P, W>>,
) {
    let limits = shared.config.limits;
    let mut renewals = JoinSet::new();
    loop {
        while renewals.try_join_next().is_some() {}
        let places = shared.board.list();
        let moments = shared.moments();
        let pulse = |(who, place): &(Who, Place)| Pulse {
            who: *who,
            status: place.status,
            told: place.is_told(),
        };
        let attempts = places.iter().map(pulse).collect();
        match shared.port.beat(Beat { runner: shared.config.runner, attempts }).await {
            Ok(answers) => {
                for ((who, place), answer) in places.iter().zip(answers) {
                    match answer {
                        Beaten::Current { lease } => {
                            let Some(moment) = moments.get(&place.provider) else { continue };
                            let until = match planted::is(Bug::LeaseFromReply) {
                                true => now(&shared, place).after(lease),
                                false => moment.after(lease),
                            };
                            shared.board.stands(*who, Standing::Until(until));
                            renewals.spawn(renew(Arc::clone(&shared), place.clone(), until));
                        }
                        // Its driver kills at once.
                        Beaten::Fenced => shared.board.stands(*who, Standing::Fenced),
                        // And here freezes.
                        Beaten::Freeze => shared.board.stands(*who, Standing::Stays),
                    }
                }
                tokio::select! {
                    biased;
                    () = shared.board.entered.notified() => {}
                    () = sleep(limits.heartbeat_interval) => {}
                }
            }
            Err(PortError::Unavailable(why)) => {
                tracing::warn!(why, "a beat was not answered");
                sleep(limits.renewal_retry).await;
            }
            Err(error @ (PortError::Fenced | PortError::Gone | PortError::Refused(_))) => {
                tracing::warn!(%error, "control does not know this runner");
                return;
            }
        }
    }
}

/// What the clock of an attempt's provider shows.
fn now<C, P: Provider, W>(shared: &Shared<C, P, W>, place: &Place) -> Moment {
    shared.providers.get(&place.provider).map_or(Moment::from_millis(0), Provider::moment)
}

/// Passes a renewed lease on to the shim.
async fn renew<C: Port, P: Provider, W: Send + Sync + 'static>(
    shared: Arc<Shared<C, P, W>>,
    place: Place,
    until: Moment,
) {
    let Some(provider) = shared.providers.get(&place.provider) else { return };
    match provider.renew(&place.fence, until).await {
        // One that is not made yet, or has ended, has no lease to renew.
        Ok(()) | Err(Error::Refused(_)) => {}
        Err(error) => tracing::warn!(sandbox = %place.fence.sandbox, %error, "a lease"),
    }
}
