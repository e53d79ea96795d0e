//! Bugs that are put in on purpose, to see that they are found: in the world, and in the real code.

use belay_kernel::planted::Bug;

/// A bug that is put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The provider lets lower epochs act.
    FenceIgnored,
    /// The provider starts what was stopped before it was made.
    TombstoneIgnored,
    /// A kill does not reach processes that left the agent's group.
    KillMissesEscapees,
    /// A stop asks politely, and says that it has killed.
    StopOnlyAsks,
    /// The shim does not end its sandbox with the lease.
    ShimForgetsLease,
    /// A start executes the agent twice.
    StartsTwice,
    /// Some output is not what was printed.
    OutputDropped,
    /// The remote moves branches whatever they are.
    PushWithoutLease,
    /// The publish gate is answered without being opened.
    GateSkipped,
    /// A stop is acknowledged as soon as it is asked for.
    StopAckedEarly,
    /// The store acknowledges what it has not written.
    StoreForgets,
    /// One in the real code, which has an effect only with the feature `planted`.
    Code(Bug),
}

impl Planted {
    /// Every one of the world's own.
    pub const WORLD: &[Self] = &[
        Self::FenceIgnored,
        Self::TombstoneIgnored,
        Self::KillMissesEscapees,
        Self::StopOnlyAsks,
        Self::ShimForgetsLease,
        Self::StartsTwice,
        Self::OutputDropped,
        Self::PushWithoutLease,
        Self::GateSkipped,
        Self::StopAckedEarly,
        Self::StoreForgets,
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        let code = Bug::ALL.iter().copied().map(Self::Code);
        Self::WORLD.iter().copied().chain(code).find(|planted| planted.name() == name)
    }

    /// Whether it has an effect in this program.
    pub const fn is_here(self) -> bool {
        cfg!(feature = "planted") || !matches!(self, Self::Code(_))
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Code(bug) => format!("{bug:?}"),
            world => format!("{world:?}"),
        }
    }
}

/// Puts one that is in the real code there, for as long as what is returned is held.
#[cfg(feature = "planted")]
pub(crate) fn plant(planted: Planted) -> Option<belay_kernel::planted::Planting> {
    match planted {
        Planted::Code(bug) => Some(belay_kernel::planted::plant(bug)),
        _ => None,
    }
}

/// There are none in the real code.
#[cfg(not(feature = "planted"))]
pub(crate) fn plant(_: Planted) {}
