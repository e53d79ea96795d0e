//! How often tokens from one address may open nothing.
//!
//! Counted by address and by what the token claims to be: the token that it names, without its
//! secret. So whoever guesses at one token is told to wait, and a program with a token that is over
//! keeps nobody else out. Whoever opened something not long ago is not told to wait either: else
//! guessing at a token would be a way to keep its holder out.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use belay_api::{Code, Problem};

use crate::answer::Failed;

/// So many failures are answered within a window; further ones wait for its end.
const MOST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Whoever opened something within this time is not kept waiting.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// The most that is remembered of each; beyond it, what is old is forgotten.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
struct Memory {
    /// How many failures there were, and since when.
    failures: HashMap<u64, (u32, Instant)>,
    /// Who opened something, and when.
    known: HashMap<u64, Instant>,
}

/// What is remembered of failures.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Keyed by hashes that nobody outside can compute, so that no token is kept here.
    hashes: RandomState,
    memory: Mutex<Memory>,
}

impl Failures {
    /// Whether a token from `address` is looked at now.
    pub(crate) fn check(&self, address: IpAddr, token: &str, now: Instant) -> Result<(), Failed> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let known = memory.known.get(&self.hashes.hash_one((network(address), token)));
        if known.is_some_and(|at| now.duration_since(*at) < KNOWN_FOR) {
            return Ok(());
        }
        let failures = memory.failures.get(&self.claim(address, token));
        let Some((count, since)) = failures.copied() else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.duration_since(since));
        if count < MOST || left.is_zero() {
            return Ok(());
        }
        let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let detail = format!("too many tokens opened nothing; ask again in {seconds} seconds");
        let problem = Problem::new(Code::TooManyRequests, detail);
        Err(Failed(Problem { retry_after: Some(seconds), ..problem }))
    }

    /// A token from `address` opened nothing.
    pub(crate) fn failed(&self, address: IpAddr, token: &str, now: Instant) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |since: Instant| now.duration_since(since) < WINDOW;
        if memory.failures.len() >= REMEMBERED {
            memory.failures.retain(|_, (_, since)| open(*since));
        }
        if memory.failures.len() >= REMEMBERED {
            memory.failures.clear();
        }
        let entry = memory.failures.entry(self.claim(address, token)).or_insert((0, now));
        if !open(entry.1) {
            *entry = (0, now);
        }
        entry.0 = entry.0.saturating_add(1);
    }

    /// A token from `address` opened something.
    pub(crate) fn opened(&self, address: IpAddr, token: &str, now: Instant) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.known.len() >= REMEMBERED {
            memory.known.retain(|_, at| now.duration_since(*at) < KNOWN_FOR);
        }
        if memory.known.len() >= REMEMBERED {
            memory.known.clear();
        }
        memory.known.insert(self.hashes.hash_one((network(address), token)), now);
    }

    /// The address, with what the token claims to be: everything but its secret.
    fn claim(&self, address: IpAddr, token: &str) -> u64 {
        let claim = token.strip_prefix("belay_").and_then(|rest| rest.rsplit_once('_'));
        let claim = claim.map_or("", |(claim, _)| claim);
        self.hashes.hash_one((network(address), claim))
    }
}

/// An address; of IPv6 the network, since a machine has as many addresses in it as it likes.
fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 | 1 << 127,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESS: &str = "belay_token_0123456789abcdef_secret";

    fn here() -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }

    #[test]
    fn whoever_guesses_waits_and_nobody_else_does() {
        let (failures, start) = (Failures::default(), Instant::now());
        for _ in 0..MOST {
            assert!(failures.check(here(), GUESS, start).is_ok());
            failures.failed(here(), GUESS, start);
        }
        let later = start + Duration::from_secs(10);
        let Err(Failed(problem)) = failures.check(here(), GUESS, later) else { panic!() };
        assert_eq!((problem.code, problem.retry_after), (Code::TooManyRequests, Some(51)));
        let other = "belay_token_fedcba9876543210_secret";
        assert!(failures.check(here(), other, later).is_ok(), "another token");
        assert!(failures.check(IpAddr::from([10, 0, 0, 1]), GUESS, later).is_ok(), "elsewhere");
        assert!(failures.check(here(), GUESS, start + WINDOW).is_ok(), "the window is over");
    }

    #[test]
    fn whoever_opened_something_is_not_kept_out_by_others_who_guess() {
        let (failures, start) = (Failures::default(), Instant::now());
        let right = "belay_token_0123456789abcdef_right";
        failures.opened(here(), right, start);
        for _ in 0..=MOST {
            failures.failed(here(), GUESS, start);
        }
        assert!(failures.check(here(), right, start).is_ok());
        assert!(failures.check(here(), GUESS, start).is_err());
        assert!(failures.check(here(), right, start + KNOWN_FOR - WINDOW).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_and_memory_is_bounded() {
        let (failures, start) = (Failures::default(), Instant::now());
        for n in 0..u64::from(MOST) {
            let address = IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n)).to_be_bytes());
            failures.failed(address, "x", start);
        }
        let another = IpAddr::from((0x2001_0db8_u128 << 96 | 0xffff).to_be_bytes());
        assert!(failures.check(another, "y", start).is_err());
        for n in 0..30_000_u32 {
            failures.failed(IpAddr::from(n.to_be_bytes()), "x", start);
            failures.opened(IpAddr::from(n.to_be_bytes()), "x", start);
        }
        let memory = failures.memory.lock().unwrap();
        assert!(memory.failures.len() <= REMEMBERED && memory.known.len() <= REMEMBERED);
    }
}
