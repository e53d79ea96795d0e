//! A node in memory, for tests of what no other node could bring about.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use belay_api::Chance;
use belay_kernel::InstallationId;
use belay_store::Memory;
use belay_store::blob::{BlobLimits, Blobs};

use crate::{Control, MemoryVault, Parts, Settings};

/// Chance without chance: each draw is another one.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Chance for Counting {
    fn draw(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1
    }
}

pub(crate) async fn control() -> Control<Memory> {
    let parts = Parts {
        store: Memory::new(InstallationId::from_bits(1), 1),
        blobs: Blobs::in_memory(BlobLimits::default()),
        vault: Arc::new(MemoryVault::default()),
        chance: Arc::new(Counting::default()),
        settings: Settings { agent: "claude".into(), ..Settings::default() },
        embedded: None,
        back_up: None,
        courier: None,
    };
    Control::open(parts).await.unwrap()
}
