//! What an attempt has used: tokens and money, cumulative per attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of US dollars in millionths, so that sums are exact.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Money(u64);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// An amount in millionths of a dollar.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Millionths of a dollar.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Dollars as agents report them. What is NaN, negative, infinite or absurdly large is nothing.
    pub fn from_usd(usd: f64) -> Option<Self> {
        let micros = (usd * 1e6).round();
        (micros.is_finite() && (0.0..1e15).contains(&micros)).then_some(Self(micros as u64))
    }

    /// The sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// `$1.25`, `$0.0042`: cents, and further digits only where they say something.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        let shortest = text.len() - 4;
        let trimmed = text.trim_end_matches('0').len().max(shortest);
        write!(f, "${}", &text[..trimmed])
    }
}

/// What one attempt has used so far. Every field only grows while the attempt lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Tokens sent to the model, without those read from or written to its cache.
    pub input_tokens: u64,
    /// Tokens that the model produced, reasoning included.
    pub output_tokens: u64,
    /// Tokens read from the model's prompt cache.
    pub cache_read_tokens: u64,
    /// Tokens written to the model's prompt cache.
    pub cache_write_tokens: u64,
    /// What it cost, where the agent or the gateway can say.
    pub cost: Option<Money>,
}

impl Usage {
    /// All tokens together; what a token budget counts.
    pub const fn tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }

    /// What was used since an earlier count of the same thing.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        let cost = match (self.cost, before.cost) {
            (Some(cost), Some(before)) => Some(cost.minus(before)),
            (cost, _) => cost,
        };
        Self {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_sub(before.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(before.cache_write_tokens),
            cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_prints_as_dollars() {
        for (micros, text) in
            [(0, "$0.00"), (1_250_000, "$1.25"), (4_200, "$0.0042"), (10_000_000, "$10.00")]
        {
            assert_eq!(Money::from_micros(micros).to_string(), text);
        }
    }

    #[test]
    fn absurd_dollars_are_nothing() {
        for usd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.01, 1e300] {
            assert_eq!(Money::from_usd(usd), None, "{usd}");
        }
        assert_eq!(Money::from_usd(0.0125), Some(Money::from_micros(12_500)));
        assert_eq!(Money::from_usd(0.0), Some(Money::ZERO));
    }

    #[test]
    fn all_kinds_of_token_count() {
        let usage = Usage {
            input_tokens: 1,
            output_tokens: 2,
            cache_read_tokens: 4,
            cache_write_tokens: 8,
            cost: None,
        };
        assert_eq!(usage.tokens(), 15);
        let before = Usage { input_tokens: 1, output_tokens: 3, ..Usage::default() };
        assert_eq!(usage.since(before).tokens(), 12, "at least nothing of each kind");
        let dear = |micros| Usage { cost: Some(Money::from_micros(micros)), ..usage };
        assert_eq!(dear(5).since(dear(2)).cost, Some(Money::from_micros(3)));
    }
}
