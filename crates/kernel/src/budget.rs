//! Money and token budgets: one ledger at the root of a task tree, charged by every attempt and
//! subtask below it.
//!
//! An agent reports usage that is cumulative per attempt, so a report that is delivered twice
//! counts once. A ledger never falls: what is NaN, negative, infinite or falling is ignored and
//! counted as drift. Where model traffic passes through the metering gateway, it reserves before
//! each request, so that a budget cannot be overrun by what is under way.

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};
use crate::usage::{Money, Usage};

/// What a task tree may use.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Budget {
    /// At most this much money.
    pub max_cost: Option<Money>,
    /// At most this many tokens.
    pub max_tokens: Option<u64>,
}

/// What a task tree has used, and what is reserved for requests under way.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ledger {
    /// Money spent, as far as it is known.
    pub cost: Money,
    /// Tokens used.
    pub tokens: u64,
    /// Money reserved.
    pub reserved_cost: Money,
    /// Tokens reserved.
    pub reserved_tokens: u64,
    /// Reports that were ignored, wholly or in part.
    pub drift: u64,
}

/// How a ledger stands against its budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// Something is left.
    Left,
    /// Nothing is left, and no more was used than allowed.
    UsedUp,
    /// More was used than allowed.
    Exceeded,
}

impl Standing {
    /// Whether nothing is left.
    pub const fn is_used_up(self) -> bool {
        !matches!(self, Self::Left)
    }
}

/// What an agent's reports and the gateway can tell of an attempt's usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Countable {
    /// Money can be counted.
    pub cost: bool,
    /// Tokens can be counted.
    pub tokens: bool,
}

/// How a budget can be kept for an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// Everything that is limited can be counted, or nothing is limited.
    Counted,
    /// Money is limited and cannot be counted; tokens are counted, and `why` says so.
    TokensOnly,
    /// Nothing that is limited can be counted, and the task allows that.
    Uncounted,
    /// Nothing that is limited can be counted: the attempt must not start.
    Refused,
}

/// Whether a task accepts an agent whose usage cannot be counted.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Uncounted {
    /// It does not.
    #[default]
    Refuse,
    /// It does.
    Allow,
}

impl Budget {
    /// How `used` stands against this budget; reservations count as used.
    pub fn standing(&self, used: &Ledger) -> Standing {
        let cost = used.cost.plus(used.reserved_cost);
        let tokens = used.tokens.saturating_add(used.reserved_tokens);
        let cost = self.max_cost.map_or(Standing::Left, |max| compare(cost, max));
        let tokens = self.max_tokens.map_or(Standing::Left, |max| compare(tokens, max));
        cost.max(tokens)
    }

    /// The used share of whichever limit is nearer, in hundredths; 80 raises an alert.
    pub fn percent_used(&self, used: &Ledger) -> u64 {
        let percent = |used: u64, max: u64| match max {
            0 => 100,
            _ => (u128::from(used) * 100 / u128::from(max)) as u64,
        };
        let cost = self.max_cost.map_or(0, |max| percent(used.cost.as_micros(), max.as_micros()));
        let tokens = self.max_tokens.map_or(0, |max| percent(used.tokens, max));
        cost.max(tokens)
    }

    /// How this budget can be kept for an attempt of which this much can be counted.
    pub const fn keeping(&self, countable: Countable, uncounted: Uncounted) -> Keeping {
        let cost_blind = self.max_cost.is_some() && !countable.cost;
        let tokens_blind = self.max_tokens.is_some() && !countable.tokens;
        match (cost_blind, tokens_blind) {
            (false, false) => Keeping::Counted,
            (true, false) if countable.tokens => Keeping::TokensOnly,
            (false, true) if self.max_cost.is_some() => Keeping::Counted,
            (true, _) | (_, true) => match uncounted {
                Uncounted::Allow => Keeping::Uncounted,
                Uncounted::Refuse => Keeping::Refused,
            },
        }
    }
}

fn compare<T: Ord>(used: T, max: T) -> Standing {
    match used.cmp(&max) {
        std::cmp::Ordering::Less => Standing::Left,
        std::cmp::Ordering::Equal => Standing::UsedUp,
        std::cmp::Ordering::Greater => Standing::Exceeded,
    }
}

/// The result of charging one report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charged {
    /// The attempt's usage to store: each field the highest ever reported.
    pub usage: Usage,
    /// The ledger to store.
    pub ledger: Ledger,
}

/// Charges what an attempt reported beyond what it had reported before.
pub fn charge(ledger: &Ledger, before: &Usage, reported: &Usage) -> Charged {
    let usage = Usage {
        input_tokens: before.input_tokens.max(reported.input_tokens),
        output_tokens: before.output_tokens.max(reported.output_tokens),
        cache_read_tokens: before.cache_read_tokens.max(reported.cache_read_tokens),
        cache_write_tokens: before.cache_write_tokens.max(reported.cache_write_tokens),
        // A report that does not know the cost does not make a known cost unknown.
        cost: before.cost.max(reported.cost),
    };
    let fell = reported.input_tokens < before.input_tokens
        || reported.output_tokens < before.output_tokens
        || reported.cache_read_tokens < before.cache_read_tokens
        || reported.cache_write_tokens < before.cache_write_tokens
        || matches!((before.cost, reported.cost), (Some(before), Some(now)) if now < before);
    let spent = |usage: &Usage| usage.cost.unwrap_or(Money::ZERO);
    let nothing = Usage::default();
    let before = if planted::is(Bug::UsageCountedTwice) { &nothing } else { before };
    let ledger = Ledger {
        cost: ledger.cost.plus(spent(&usage).minus(spent(before))),
        tokens: ledger.tokens.saturating_add(usage.tokens().saturating_sub(before.tokens())),
        drift: ledger.drift + u64::from(fell),
        ..*ledger
    };
    Charged { usage, ledger }
}

/// Reserves the most that a request can use, or refuses because the budget would be exceeded.
pub fn reserve(budget: &Budget, ledger: &Ledger, cost: Money, tokens: u64) -> Option<Ledger> {
    let reserved = Ledger {
        reserved_cost: ledger.reserved_cost.plus(cost),
        reserved_tokens: ledger.reserved_tokens.saturating_add(tokens),
        ..*ledger
    };
    (budget.standing(&reserved) != Standing::Exceeded).then_some(reserved)
}

/// Gives a reservation back, when the request's real usage has been charged.
#[must_use]
pub fn release(ledger: &Ledger, cost: Money, tokens: u64) -> Ledger {
    Ledger {
        reserved_cost: ledger.reserved_cost.minus(cost),
        reserved_tokens: ledger.reserved_tokens.saturating_sub(tokens),
        ..*ledger
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(tokens: u64, micros: Option<u64>) -> Usage {
        let cost = micros.map(Money::from_micros);
        Usage { input_tokens: tokens, cost, ..Usage::default() }
    }

    fn budget(micros: Option<u64>, tokens: Option<u64>) -> Budget {
        Budget { max_cost: micros.map(Money::from_micros), max_tokens: tokens }
    }

    #[test]
    fn a_report_delivered_twice_counts_once() {
        let first = charge(&Ledger::default(), &Usage::default(), &usage(100, Some(50)));
        let again = charge(&first.ledger, &first.usage, &usage(100, Some(50)));
        assert_eq!(again, first);
        assert_eq!((first.ledger.tokens, first.ledger.cost), (100, Money::from_micros(50)));
    }

    #[test]
    fn a_ledger_never_falls_and_falling_usage_is_drift() {
        let first = charge(&Ledger::default(), &Usage::default(), &usage(100, Some(50)));
        let fell = charge(&first.ledger, &first.usage, &usage(40, Some(60)));
        assert_eq!((fell.ledger.tokens, fell.ledger.drift), (100, 1));
        assert_eq!(fell.ledger.cost, Money::from_micros(60));
        let cheaper = charge(&first.ledger, &first.usage, &usage(100, Some(49)));
        assert_eq!((cheaper.ledger.cost, cheaper.ledger.drift), (Money::from_micros(50), 1));
        let unsaid = charge(&first.ledger, &first.usage, &usage(100, None));
        assert_eq!(unsaid, first, "not saying a cost is not a fall");
        for one in [
            Usage { output_tokens: 1, ..Usage::default() },
            Usage { cache_read_tokens: 1, ..Usage::default() },
            Usage { cache_write_tokens: 1, ..Usage::default() },
        ] {
            assert_eq!(charge(&Ledger::default(), &one, &Usage::default()).ledger.drift, 1);
        }
    }

    #[test]
    fn attempts_and_subtasks_charge_one_ledger() {
        let mut ledger = Ledger::default();
        for _attempt in 0..3 {
            ledger = charge(&ledger, &Usage::default(), &usage(10, Some(7))).ledger;
        }
        assert_eq!((ledger.tokens, ledger.cost), (30, Money::from_micros(21)));
    }

    #[test]
    fn a_budget_is_used_up_at_its_limit_and_exceeded_above() {
        let standing = |tokens| {
            let ledger = Ledger { tokens, ..Ledger::default() };
            budget(None, Some(100)).standing(&ledger)
        };
        assert_eq!(
            [99, 100, 101].map(standing),
            [Standing::Left, Standing::UsedUp, Standing::Exceeded]
        );
        assert_eq!([99, 100, 101].map(|n| standing(n).is_used_up()), [false, true, true]);
        let rich = Ledger { tokens: u64::MAX, cost: Money::from_micros(9), ..Ledger::default() };
        assert_eq!(Budget::default().standing(&rich), Standing::Left, "no limit");
        assert_eq!(budget(Some(9), Some(u64::MAX)).standing(&rich), Standing::UsedUp);
        assert_eq!(budget(Some(8), None).standing(&rich), Standing::Exceeded);
    }

    #[test]
    fn lesson_a_reservation_keeps_a_cap_from_being_run_through() {
        let budget = budget(Some(500_000), None);
        let ledger = Ledger { cost: Money::from_micros(400_000), ..Ledger::default() };
        let under_way = reserve(&budget, &ledger, Money::from_micros(100_000), 0).unwrap();
        assert_eq!(reserve(&budget, &under_way, Money::from_micros(1), 0), None);
        assert_eq!(release(&under_way, Money::from_micros(100_000), 0), ledger);
        assert_eq!(budget.standing(&under_way), Standing::UsedUp);
        let tokens = reserve(&Budget::default(), &Ledger::default(), Money::ZERO, 5).unwrap();
        assert_eq!(tokens.reserved_tokens, 5);
        assert_eq!(release(&tokens, Money::ZERO, 5), Ledger::default());
    }

    #[test]
    fn unknown_cost_counts_tokens_or_refuses() {
        let blind = Countable { cost: false, tokens: false };
        let tokens_only = Countable { cost: false, tokens: true };
        let cost_only = Countable { cost: true, tokens: false };
        let all = Countable { cost: true, tokens: true };
        let (money, tokens, both) =
            (budget(Some(1), None), budget(None, Some(1)), budget(Some(1), Some(1)));
        for (budget, countable, keeping) in [
            (Budget::default(), blind, Keeping::Counted),
            (money, all, Keeping::Counted),
            (money, tokens_only, Keeping::TokensOnly),
            (money, blind, Keeping::Refused),
            (tokens, tokens_only, Keeping::Counted),
            (tokens, cost_only, Keeping::Refused),
            (both, tokens_only, Keeping::TokensOnly),
            (both, cost_only, Keeping::Counted),
            (both, blind, Keeping::Refused),
        ] {
            assert_eq!(budget.keeping(countable, Uncounted::Refuse), keeping, "{budget:?}");
        }
        assert_eq!(money.keeping(blind, Uncounted::Allow), Keeping::Uncounted);
    }

    #[test]
    fn the_nearer_limit_sets_the_percentage() {
        let ledger = Ledger { cost: Money::from_micros(8), tokens: 50, ..Ledger::default() };
        assert_eq!(budget(Some(10), Some(100)).percent_used(&ledger), 80);
        assert_eq!(budget(None, Some(100)).percent_used(&ledger), 50);
        assert_eq!(Budget::default().percent_used(&ledger), 0);
        assert_eq!(budget(None, Some(0)).percent_used(&ledger), 100);
    }

    proptest! {
        #[test]
        fn in_whatever_order_reports_arrive_the_highest_is_charged(
            reports in prop::collection::vec((0u64..1_000, prop::option::of(0u64..1_000)), 1..20)
        ) {
            let mut charged = Charged { usage: Usage::default(), ledger: Ledger::default() };
            for (tokens, cost) in &reports {
                let next = charge(&charged.ledger, &charged.usage, &usage(*tokens, *cost));
                prop_assert!(next.ledger.tokens >= charged.ledger.tokens);
                prop_assert!(next.ledger.cost >= charged.ledger.cost);
                charged = next;
            }
            prop_assert_eq!(charged.ledger.tokens, reports.iter().map(|r| r.0).max().unwrap());
            let cost = reports.iter().filter_map(|r| r.1).max().unwrap_or(0);
            prop_assert_eq!(charged.ledger.cost, Money::from_micros(cost));
        }
    }
}
