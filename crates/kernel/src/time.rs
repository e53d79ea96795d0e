//! Time as values: a [`Timestamp`] is a moment, a [`Span`] is a length.
//!
//! Both count whole milliseconds, so that what is stored, sent and compared is exactly what was
//! decided on. Nothing here reads a clock: `now` always comes in as an argument.
//!
//! Arithmetic saturates. A clock that was set back yields a span of zero, never a huge one, so a
//! wall-clock jump backwards cannot make anything look old.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since the Unix epoch, by the receiver's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch itself.
    pub const EPOCH: Self = Self(0);
    /// Later than anything that can be due.
    pub const MAX: Self = Self(i64::MAX);

    /// The moment `ms` milliseconds after the Unix epoch.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add_unsigned(span.0))
    }

    /// The moment `span` earlier.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub_unsigned(span.0))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        let ms = self.0.saturating_sub(earlier.0);
        if ms.is_negative() { Span::ZERO } else { Span(ms.unsigned_abs()) }
    }
}

/// A length of time in whole milliseconds.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than anything that is measured.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// A span of `minutes` minutes.
    pub const fn from_mins(minutes: u64) -> Self {
        Self::from_secs(minutes.saturating_mul(60))
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Span::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `factor` times as long, at most [`Span::MAX`].
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

/// `250ms`, `1.5s`, `90s` as `1m30s`, `2h`, `3d4h`: at most two units, so that it can be read.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        if self.0 < 1_000 {
            return write!(f, "{}ms", self.0);
        }
        if self.0 < 60_000 {
            let (seconds, ms) = (self.0 / 1_000, self.0 % 1_000);
            return match ms {
                0 => write!(f, "{seconds}s"),
                _ => write!(f, "{seconds}.{}s", format!("{ms:03}").trim_end_matches('0')),
            };
        }
        let mut rest = self.0;
        let mut written = 0;
        for (unit, name) in UNITS {
            let count = rest / unit;
            rest %= unit;
            if count > 0 {
                write!(f, "{count}{name}")?;
                written += 1;
            } else if written > 0 {
                break;
            }
            if written == 2 {
                break;
            }
        }
        Ok(())
    }
}

/// Why a text is not a span.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a duration; write a number with ms, s, m, h or d, like `90s` or `1h30m`")]
pub struct SpanError(String);

/// Reads `90s`, `1h30m`, `250ms`, `1.5s`.
impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let fail = || SpanError(text.chars().take(40).collect());
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(fail());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let unit_ms = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(fail()),
            };
            let ms = decimal_times(number, unit_ms).ok_or_else(fail)?;
            total = total.checked_add(ms).ok_or_else(fail)?;
            rest = tail;
        }
        Ok(Self(total))
    }
}

/// `number` (digits with at most one point) times `unit`, exactly, or nothing.
fn decimal_times(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    let scale = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
    if part % scale != 0 {
        return None;
    }
    whole.checked_mul(unit)?.checked_add(part / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_measures_zero() {
        let then = Timestamp::from_millis(5_000);
        assert_eq!(Timestamp::from_millis(1_000).since(then), Span::ZERO);
        assert_eq!(Timestamp::from_millis(5_001).since(then), Span::from_millis(1));
        assert_eq!(Timestamp::MAX.after(Span::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.before(Span::from_millis(3)).as_millis(), -3);
    }

    #[test]
    fn spans_stay_between_nothing_and_the_longest() {
        let [two, five] = [2, 5].map(Span::from_millis);
        assert_eq!(five.minus(two), Span::from_millis(3));
        assert_eq!(two.minus(five), Span::ZERO);
        assert_eq!(two.plus(five), Span::from_millis(7));
        assert_eq!(Span::MAX.plus(two), Span::MAX);
        assert_eq!(five.times(3), Span::from_millis(15));
        assert_eq!(Span::MAX.times(2), Span::MAX);
    }

    #[test]
    fn spans_print_as_people_write_them() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (59_999, "59.999s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (3_601_000, "1h"),
            (5_400_000, "1h30m"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(Span::from_millis(ms).to_string(), text);
        }
    }

    #[test]
    fn spans_are_read_or_refused_with_a_sentence() {
        for (text, ms) in
            [("90s", 90_000), ("1h30m", 5_400_000), ("1.5s", 1_500), ("2d", 172_800_000), ("0s", 0)]
        {
            assert_eq!(text.parse(), Ok(Span::from_millis(ms)), "{text}");
        }
        for text in ["", " ", "5", "s", "-1s", "1x", "1.s", ".5s", "1..5s", "1.0001ms", "9e9s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!("99999999999999999999d".parse::<Span>().is_err());
        assert!(format!("0.{}1s", "0".repeat(20)).parse::<Span>().is_err());
        assert_eq!(
            "soon".parse::<Span>().unwrap_err().to_string(),
            "`soon` is not a duration; write a number with ms, s, m, h or d, like `90s` or `1h30m`"
        );
    }
}
