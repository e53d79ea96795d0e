//! Moments and lengths as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

use belay_kernel::{Span, Timestamp};

/// Now, by this machine's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A length in one unit: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn short(span: Span) -> String {
    let seconds = span.as_millis() / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago a moment was.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", short(now.since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_in_one_unit() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (200_000, "2d")]
        {
            assert_eq!(short(Span::from_secs(seconds)), text);
        }
    }
}
