//! Numbers that look random and are the same for the same seed.

/// Where they come from.
pub(crate) struct Draw(u64);

impl Draw {
    /// The numbers of one of those who draw.
    pub(crate) fn of(seed: u64, who: u64) -> Self {
        // Seeds that are next to each other shall have nothing in common.
        let mixed = (seed ^ (who << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((mixed ^ (mixed >> 29)) | 1)
    }

    /// One below this.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound.max(1)
    }

    /// One of so many.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}
