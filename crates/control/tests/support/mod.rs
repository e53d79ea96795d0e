//! What the tests of control share: chance that counts, and the parts of a node in memory.
//! Each uses what it needs.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use belay_api::Chance;
use belay_control::{MemoryVault, Parts, Settings};
use belay_store::Memory;
use belay_store::blob::{BlobLimits, Blobs};

/// Chance without chance: each draw is another one, and the same ones come again.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU64);

impl Chance for Counting {
    fn draw(&self) -> u128 {
        let next = u128::from(self.0.fetch_add(1, Ordering::SeqCst) + 1);
        next.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }
}

/// A node over this store, with nothing beside it. `drawn` makes its ids other ones than those of
/// its predecessor.
pub(crate) fn parts(store: &Memory, drawn: u64) -> Parts<Memory> {
    Parts {
        store: store.clone(),
        blobs: Blobs::in_memory(BlobLimits::default()),
        vault: Arc::new(MemoryVault::default()),
        chance: Arc::new(Counting(AtomicU64::new(drawn))),
        settings: Settings { agent: "claude".into(), ..Settings::default() },
        embedded: None,
        back_up: None,
        courier: None,
    }
}
