//! What the tests of real agents share: the programs, a place to run in, and a driver that does
//! with plan and reader what a runner does.

pub(crate) mod case;
pub(crate) mod drive;
pub(crate) mod record;

use std::path::PathBuf;
use std::sync::OnceLock;

use belay_model_server::clis;

/// Where tests may write; under `target/`.
pub(crate) const BASE: &str = env!("CARGO_TARGET_TMPDIR");

/// The directory of the agents' programs; nothing if the person said to do without them. It fails,
/// with the reason, if they cannot be installed: a skipped test that looks like a passed one is
/// worse than none.
pub(crate) fn programs() -> Option<&'static PathBuf> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        if std::env::var_os(clis::SKIP).is_some() {
            return None;
        }
        Some(clis::install(BASE.as_ref()).unwrap_or_else(|error| panic!("{error}")))
    });
    programs.as_ref()
}
