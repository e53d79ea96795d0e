//! The conformance suite on the in-memory store, and its faults.

use std::sync::Arc;

use belay_kernel::task::{Blocked, Failure as TaskFailure, Plan, State};
use belay_kernel::{AttemptNumber, Cause, InstallationId, QuestionId, TaskId, Timestamp};
use belay_store::memory::{Fault, Operation};
use belay_store::rows::TaskRow;
use belay_store::{Commit, Failure, Memory, Record as _, Store};
use proptest::prelude::*;

mod suite;

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

/// Any state of a task, with any data.
fn any_state() -> impl Strategy<Value = State> {
    let plan = prop::sample::select(vec![Plan::Fresh, Plan::Same, Plan::Republish]);
    let attempt = any::<u32>().prop_map(AttemptNumber);
    let question = any::<u128>().prop_map(QuestionId::from_bits);
    let by = any::<u128>().prop_map(TaskId::from_bits);
    let time = any::<i64>().prop_map(Timestamp::from_millis);
    let both = (attempt.clone(), plan.clone());
    prop_oneof![
        plan.clone().prop_map(|plan| State::Pending { plan }),
        (plan.clone(), prop::option::of(time))
            .prop_map(|(plan, not_before)| State::Queued { plan, not_before }),
        both.clone().prop_map(|(attempt, plan)| State::Claimed { attempt, plan }),
        both.prop_map(|(attempt, plan)| State::Running { attempt, plan }),
        (attempt.clone(), question.clone())
            .prop_map(|(attempt, question)| State::Blocked(Blocked::Held { attempt, question })),
        question.prop_map(|question| State::Blocked(Blocked::Question { question })),
        attempt.clone().prop_map(|attempt| State::Blocked(Blocked::Subtasks { attempt })),
        attempt.clone().prop_map(|attempt| State::Ready { attempt }),
        prop::sample::select(Cause::ALL).prop_map(|cause| State::Failed(TaskFailure::Cause(cause))),
        (by.clone(), plan)
            .prop_map(|(by, plan)| State::Failed(TaskFailure::Dependency { by, plan })),
        (by, attempt).prop_map(|(by, attempt)| State::Failed(TaskFailure::Subtask { by, attempt })),
        prop::sample::select(vec![
            State::Completed,
            State::Cancelled,
            State::BudgetExceeded,
            State::Failed(TaskFailure::Publish),
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_state_survives_being_written_and_read(state in any_state(), priority: i64) {
        let mut row = make::task("builder");
        row.task.state = state;
        row.priority = priority;
        prop_assert_eq!(TaskRow::decode(&row.encode()), Ok(row));
    }

    #[test]
    fn any_history_agrees_with_the_model(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(model::run(&open(), seed, 25));
    }
}
