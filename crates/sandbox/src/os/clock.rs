//! The two clocks: the wall, for people and records; and the one that counts suspend, for leases.

use std::time::{SystemTime, UNIX_EPOCH};

use belay_kernel::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::plan::Moment;

/// Now, by the wall clock.
pub(crate) fn now() -> Timestamp {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Now, by the clock that counts suspend.
pub(crate) fn moment() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
    Moment::from_millis(seconds.saturating_mul(1_000).saturating_add(millis))
}

/// The id that the kernel drew at boot.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
