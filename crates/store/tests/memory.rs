//! The conformance suite on the in-memory store, and its faults.

use std::sync::Arc;

use belay_kernel::{InstallationId, SessionId, Timestamp};
use belay_store::memory::{Fault, Operation};
use belay_store::rows::{RoleRow, SessionRow, TaskRow};
use belay_store::{Commit, Failure, Memory, Store};

mod suite;
include!("suite/rows.rs");

use suite::*;

fn open() -> Memory {
    Memory::new(InstallationId::from_bits(1), 5)
}

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $module::$case(Arc::new(open())).await;
        }
    )*};
}

for_every_case!(cases);

#[tokio::test]
async fn a_lost_reply_was_done_and_a_failure_was_not() {
    let store = open();
    let (lost, failed) = (make::task("builder"), make::task("builder"));
    let mut faults = vec![Fault::Fail, Fault::LoseReply];
    store.set_faults(Some(Box::new(move |operation| match operation {
        Operation::Commit => faults.pop().unwrap_or(Fault::None),
        _ => Fault::None,
    })));
    let reply = store.commit(make::creation(&lost)).await;
    assert!(matches!(reply, Err(Failure::Unknown)), "{reply:?}");
    let reply = store.commit(make::creation(&failed)).await;
    assert!(matches!(reply, Err(Failure::Injected)), "{reply:?}");
    assert!(make::load::<_, TaskRow>(&store, lost.task.id).await.is_some());
    assert!(make::load::<_, TaskRow>(&store, failed.task.id).await.is_none());
    make::done(&store, make::creation(&failed)).await;
}

#[tokio::test]
async fn nodes_share_a_store_and_its_clock_never_goes_back() {
    let node = open();
    let other = node.clone();
    make::done(&node, Commit::new().insert(&make::task("builder"))).await;
    other.set_now(Timestamp::from_millis(9));
    other.set_now(Timestamp::from_millis(3));
    assert_eq!(node.now().await.unwrap(), Timestamp::from_millis(9));
}
