//! The driver of one attempt: acts for it while it is current, then brings its termination about.
//!
//! ```text
//!  claim, join, Run ──► act ──────────────► told End ──► terminate
//!                        │  fenced: kill at once, wait ──▲
//! ```
//!
//! Acting is one sequence for a fresh claim and for one that is found again after a crash: each
//! step finds what an earlier one did. Therefore acting may be dropped at any await, which is what
//! happens when control ends the attempt.

mod act;
mod attempt;
mod finish;
mod follow;
mod publish;
mod reading;
mod report;
mod terminate;

use std::sync::Arc;

use belay_api::port::{Assignment, Port};
use belay_kernel::attempt::Phase;
use belay_kernel::publish::Publish;
use belay_kernel::{QuestionId, Span};
use belay_sandbox::{Moment, Provider};
use tokio::sync::mpsc;

use crate::board::Standing;
use crate::shared::{Shared, duration, sleep};
use crate::workspace::Workspace;
use attempt::{Attempt, Halt};

/// How long a driver that has nothing to do any more waits to be told what follows. Control tells
/// it again if nobody is there.
const PATIENCE: Span = Span::from_secs(30);

/// What a driver is told while it drives.
#[derive(Debug)]
pub(crate) enum Order {
    /// The attempt is over: go on with its termination.
    End(Box<Assignment>),
    /// Hand this answer to the agent.
    Answer {
        /// The question.
        question: QuestionId,
        /// The answer.
        text: String,
    },
}

/// What becomes of an agent when nobody acts for its attempt any more.
enum After {
    /// It is frozen already.
    Frozen,
    /// It is frozen now, for its session to go on with.
    Freeze,
    /// Whatever is left of it is killed, also where control could not be told how it ended.
    Kill(Option<Halt>),
}

/// Drives an attempt from wherever it stands to the end of its termination.
pub(crate) async fn drive<C: Port, P: Provider, W: Workspace>(
    shared: Arc<Shared<C, P, W>>,
    mut assignment: Assignment,
    mut orders: mpsc::Receiver<Order>,
    until: Option<Moment>,
) {
    match assignment.phase {
        Phase::Claimed | Phase::Running | Phase::Publishing { .. } => {
            match act_until_told(&shared, &assignment, &mut orders, until).await {
                Some(told) => assignment = *told,
                None => return,
            }
        }
        Phase::Ending(_) | Phase::Ended(..) => {}
    }
    terminate::terminate(&Attempt::new(&shared, &assignment)).await;
}

/// Brings the termination of an attempt about that nobody drives any more.
pub(crate) async fn end<C: Port, P: Provider, W: Workspace>(
    shared: Arc<Shared<C, P, W>>,
    assignment: Assignment,
) {
    terminate::terminate(&Attempt::new(&shared, &assignment)).await;
}

/// Finds out what became of a push that nobody has settled.
pub(crate) async fn settle<C: Port, P: Provider, W: Workspace>(
    shared: Arc<Shared<C, P, W>>,
    assignment: Assignment,
) {
    let attempt = Attempt::new(&shared, &assignment);
    if let Err(halt) = publish::settle_open(&attempt).await {
        tracing::warn!(who = ?assignment.who, ?halt, "a push is not settled from here");
    }
}

/// Acts for the attempt until control ends it; nothing if control does not say so.
async fn act_until_told<C: Port, P: Provider, W: Workspace>(
    shared: &Arc<Shared<C, P, W>>,
    assignment: &Assignment,
    orders: &mut mpsc::Receiver<Order>,
    until: Option<Moment>,
) -> Option<Box<Assignment>> {
    let attempt = Attempt::new(shared, assignment);
    let (hand, answers) = mpsc::channel(16);
    let after = {
        let standing = until.map_or(Standing::Unknown, Standing::Until);
        let provider = &assignment.work.provider;
        let ticket = shared.board.enter(assignment.who, attempt.fence, provider, standing);
        let acting = act::act(&attempt, &ticket, answers);
        tokio::pin!(acting);
        loop {
            tokio::select! {
                biased;
                stays = ticket.over() => match stays {
                    true => break After::Freeze,
                    false => break After::Kill(Some(Halt::Fenced)),
                },
                order = orders.recv() => match order? {
                    Order::End(told) if matches!(told.publish, Publish::Open(_)) => {
                        await_push(shared, &told, acting).await;
                        return None;
                    }
                    Order::End(told) => return Some(told),
                    Order::Answer { question, text } => {
                        // One that finds no room is told again.
                        let _ = hand.try_send((question, text));
                    }
                },
                done = &mut acting => match done {
                    Ok(act::Leaves::Frozen) => break After::Frozen,
                    Ok(act::Leaves::Nothing) => break After::Kill(None),
                    Err(halt) => break After::Kill(Some(halt)),
                },
            }
        }
    };
    match after {
        After::Frozen => {}
        After::Freeze => terminate::freeze_now(&attempt).await,
        After::Kill(halt) => {
            if let Some(halt) = halt {
                tracing::info!(who = ?assignment.who, %halt, "an attempt may not act any more");
            }
            attempt.kill_now().await;
        }
    }
    told_in_time(orders).await
}

/// Waits to be told what follows, for a while.
async fn told_in_time(orders: &mut mpsc::Receiver<Order>) -> Option<Box<Assignment>> {
    tokio::select! {
        biased;
        told = ended(orders) => told,
        () = sleep(PATIENCE) => None,
    }
}

/// Ends an attempt whose push is under way, and waits for the remote's own answer to it. A push
/// that is cut off may still land, and only a second push makes that impossible, which a remote may
/// refuse; one that was answered is known. What is not answered in time is settled by whoever is
/// told to.
async fn await_push<C: Port, P: Provider, W: Workspace>(
    shared: &Arc<Shared<C, P, W>>,
    told: &Assignment,
    pushing: impl Future<Output = Result<act::Leaves, Halt>>,
) {
    let limit = told.limits.publish.plus(told.limits.renewal_retry);
    let ending = Attempt::new(shared, told);
    let pushed = tokio::time::timeout(duration(limit), pushing);
    let (pushed, ()) = tokio::join!(pushed, terminate::terminate(&ending));
    if !matches!(pushed, Ok(Ok(_))) {
        tracing::info!(who = ?told.who, "a push is not answered yet");
    }
}

/// Waits to be told to end.
async fn ended(orders: &mut mpsc::Receiver<Order>) -> Option<Box<Assignment>> {
    loop {
        match orders.recv().await? {
            Order::End(told) => return Some(told),
            Order::Answer { .. } => {}
        }
    }
}
