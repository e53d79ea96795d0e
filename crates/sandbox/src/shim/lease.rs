//! The lease as a value: when it ends, and when the kill must begin so that all is dead by then.

use crate::error::Refusal;
use crate::plan::{Margins, Moment};

/// The right of one sandbox to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    until: Moment,
    margins: Margins,
    /// A frozen sandbox cannot act, so its lease does not run; a resume brings a new one.
    parked: bool,
}

impl Lease {
    pub(crate) const fn new(until: Moment, margins: Margins) -> Self {
        Self { until, margins, parked: false }
    }

    /// When the kill begins, if the lease runs.
    pub(crate) fn kill_at(&self) -> Option<Moment> {
        (!self.parked).then(|| self.until.before(self.margins.total()))
    }

    /// Whether the kill must begin now.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.kill_at().is_some_and(|at| now >= at)
    }

    /// Lasts until `until`; a renewal that was overtaken by a longer one changes nothing.
    pub(crate) fn renew(&mut self, until: Moment, now: Moment) -> Result<(), Refusal> {
        let renewed = Self { until: until.max(self.until), ..*self };
        if renewed.is_over(now) {
            return Err(Refusal::LeaseOver);
        }
        *self = renewed;
        Ok(())
    }

    pub(crate) const fn park(&mut self) {
        self.parked = true;
    }

    /// Runs again, until `until`; also after a time in which it did not run.
    pub(crate) fn unpark(&mut self, until: Moment, now: Moment) -> Result<(), Refusal> {
        let running = Self { until, parked: false, ..*self };
        if running.is_over(now) {
            return Err(Refusal::LeaseOver);
        }
        *self = running;
        Ok(())
    }

    /// Between the polite signal and the kill.
    pub(crate) const fn margins(&self) -> Margins {
        self.margins
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::Span;

    use super::*;

    const MARGINS: Margins = Margins {
        grace: Span::from_secs(2),
        kill_bound: Span::from_secs(1),
        drift: Span::from_millis(500),
    };

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    #[test]
    fn the_kill_begins_before_the_end_by_grace_kill_bound_and_drift() {
        let lease = Lease::new(at(60_000), MARGINS);
        assert_eq!(lease.kill_at(), Some(at(56_500)));
        assert!(!lease.is_over(at(56_499)));
        assert!(lease.is_over(at(56_500)));
    }

    #[test]
    fn a_renewal_never_shortens_and_never_revives() {
        let mut lease = Lease::new(at(60_000), MARGINS);
        assert_eq!(lease.renew(at(50_000), at(1)), Ok(()));
        assert_eq!(lease.kill_at(), Some(at(56_500)));
        assert_eq!(lease.renew(at(70_000), at(1)), Ok(()));
        assert_eq!(lease.kill_at(), Some(at(66_500)));
        assert_eq!(lease.renew(at(71_000), at(70_000)), Err(Refusal::LeaseOver));
        assert_eq!(lease.kill_at(), Some(at(66_500)));
    }

    #[test]
    fn a_parked_lease_does_not_run_and_comes_back_only_with_a_new_end() {
        let mut lease = Lease::new(at(60_000), MARGINS);
        lease.park();
        assert!(!lease.is_over(at(1_000_000)));
        assert_eq!(lease.unpark(at(1_000_000), at(1_000_000)), Err(Refusal::LeaseOver));
        assert_eq!(lease.unpark(at(1_060_000), at(1_000_000)), Ok(()));
        assert_eq!(lease.kill_at(), Some(at(1_056_500)));
    }
}
