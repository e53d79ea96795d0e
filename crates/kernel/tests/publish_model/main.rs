//! Model (a): task × attempt × stop × timeout × publish.
//!
//! Two nodes look, decide and commit by compare-and-set on one task. Two runners host one attempt
//! each; the first can be cut off from the nodes. A shim beside each agent holds the lease. A push
//! that was once allowed may land at any later moment, as long as the remote's ref is what it
//! expects. Every decision is the kernel's own; the model only keeps the rows, the clock, the
//! processes and the remote, and looks from outside whether what must hold does.
//!
//! [`Twin`]s are the same model with one safeguard taken out. Each must be caught.

mod decide;
mod model;
mod world;

use belay_kernel::task::Policy;
use belay_kernel::{Limits, Span};
use stateright::{Checker, HasDiscoveries, Model};

/// The last moment of the model.
const END: i64 = 5;
/// How long a lease is.
const LEASE: Span = Span::from_millis(3);
const ATTEMPTS: usize = 2;

/// A safeguard that is taken out, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    /// Nothing is taken out.
    Sound,
    /// A report of an attempt that is not current is taken as the current one's.
    NoFence,
    /// A commit does not compare what it read.
    NoCompareAndSet,
    /// A cancel goes through in a final state.
    NoFinality,
    /// A runner pushes when it asks for the gate, not when the commit has opened it.
    PushBeforeCommit,
    /// “The remote has it not” is taken as “it was not pushed”.
    NoFencePush,
    /// The holder counts its lease from the reply instead of from before the renewal was sent.
    LeaseFromReply,
    /// A late start does not look for a tombstone.
    NoTombstone,
    /// A kill that could not be sent counts as proof.
    ProofAssumed,
    /// A commit writes back the lease end that it read.
    LeaseOverwritten,
}

const FINAL: &str = "final states never change";
const ONE_AGENT: &str = "at most one agent of a session lives";
const GATE: &str = "the remote gains nothing that never passed the gate";
const RECORD: &str = "what is recorded of a push is true for ever";
const STOPPED: &str = "after a stop is acknowledged nothing lives or lands";

struct Belay {
    twin: Twin,
    policy: Policy,
}

impl Belay {
    fn new(twin: Twin) -> Self {
        let limits = Limits {
            absolute: Span::from_millis(2),
            publish: Span::from_millis(1),
            stop_grace: Span::ZERO,
            kill_bound: Span::from_millis(1),
            drift: Span::ZERO,
            backoff_first: Span::ZERO,
            ..Limits::default()
        };
        Self { twin, policy: Policy { limits, ..Policy::default() } }
    }
}

#[test]
fn the_kernel_holds() {
    Belay::new(Twin::Sound).checker().threads(2).spawn_bfs().join().assert_properties();
}

/// The checker finds that `property` does not hold without the safeguard.
fn caught(twin: Twin, property: &'static str) {
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = Belay::new(twin).checker().threads(2).finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{twin:?} was not caught");
}

#[test]
fn without_the_fence_a_stale_attempt_publishes() {
    caught(Twin::NoFence, GATE);
}

#[test]
fn without_compare_and_set_a_final_state_changes() {
    caught(Twin::NoCompareAndSet, FINAL);
}

#[test]
fn without_finality_a_completed_task_is_cancelled() {
    caught(Twin::NoFinality, FINAL);
}

#[test]
fn a_push_before_the_commit_lands_after_a_stop() {
    caught(Twin::PushBeforeCommit, GATE);
}

#[test]
fn without_the_fence_push_a_late_push_lands() {
    caught(Twin::NoFencePush, RECORD);
}

#[test]
fn a_lease_counted_from_the_reply_leaves_two_agents() {
    caught(Twin::LeaseFromReply, ONE_AGENT);
}

#[test]
fn without_the_tombstone_a_late_start_outlives_its_stop() {
    caught(Twin::NoTombstone, STOPPED);
}

#[test]
fn proof_that_is_assumed_is_none() {
    caught(Twin::ProofAssumed, STOPPED);
}

#[test]
fn a_lease_end_that_is_written_back_proves_death_too_early() {
    caught(Twin::LeaseOverwritten, STOPPED);
}
