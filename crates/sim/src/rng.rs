//! Everything that a world draws comes from here: one seed, one order of draws, one world.

use std::sync::Mutex;

use belay_api::Chance;

/// A small generator (SplitMix64): its whole state is one number, which the seed is.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from 0 up to, and without, `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number between both, which it can also be.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a thousand.
    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1_000) < chance
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len() as u64);
        from.get(usize::try_from(index).unwrap_or(0))
    }

    /// Another generator, whose draws do not move this one's.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// Scatters the bits of a number.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Ids and jitter of the real code, from the seed.
#[derive(Debug)]
pub(crate) struct Drawn(Mutex<Rng>);

impl Drawn {
    pub(crate) const fn new(rng: Rng) -> Self {
        Self(Mutex::new(rng))
    }
}

impl Chance for Drawn {
    fn draw(&self) -> u128 {
        let mut rng = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (u128::from(rng.next()) << 64) | u128::from(rng.next())
    }
}
