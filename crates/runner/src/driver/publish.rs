//! Publishing: the gate, the push, and finding out what became of it.

use belay_api::port::{Left, Port};
use belay_api::token_hash;
use belay_kernel::planted::{self, Bug};
use belay_kernel::publish::{CommitId, Push, PushOutcome, Remote, Settling, settle};
use belay_kernel::{Cause, Span};
use belay_sandbox::Provider;

use super::act::{found_again, preparing, unprepared};
use super::attempt::{Attempt, Halt, chain};
use super::finish::summary;
use crate::launch::{self, tree_request};
use crate::publish::Said;
use crate::shared::Backoff;
use crate::workspace::{Tree, TreeError, Workspace};

/// How often the remote is asked for X before the attempt is given up.
const LOOKS: u32 = 4;

/// Publishes `commit`: looks for X, has the gate opened, pushes, and settles.
pub(super) async fn publish<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
    commit: CommitId,
    left: Left,
) -> Result<(), Halt> {
    let expected = look(attempt, tree).await?;
    let push = Push { commit, expected };
    let (port, who) = (&attempt.shared.port, attempt.assignment.who);
    if planted::is(Bug::PushBeforeGate) {
        send(attempt, tree, push).await;
    }
    match attempt.say(|| port.open_publish(who, push)).await {
        Err(Halt::Refused(why)) => return Err(Halt::failed(Cause::PublishFailed, why)),
        opened => opened?,
    }
    // This push is the first and only one through this gate: a refusal of the remote is final.
    let outcome = match send(attempt, tree, push).await {
        Said::Landed => PushOutcome::Pushed,
        Said::Refused => match attempt.shared.workspace.remote_of(tree, push).await {
            Remote::HasCommit => PushOutcome::Pushed,
            Remote::AsExpected | Remote::MovedOn | Remote::Unreachable => PushOutcome::NotPushed,
        },
        Said::Nothing => find_out(attempt, tree, push).await,
    };
    attempt.say(|| port.settled(who, outcome, left.clone())).await
}

/// Goes on with a publish whose gate was opened before this runner began again.
pub(super) async fn go_on<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
) -> Result<(), Halt> {
    let Some(push) = attempt.assignment.publish.push() else { return Ok(()) };
    let tree = locate(attempt).await?;
    // The gate is open: the same push again lands once or not at all.
    let outcome = match send(attempt, &tree, push).await {
        Said::Landed => PushOutcome::Pushed,
        Said::Refused | Said::Nothing => find_out(attempt, &tree, push).await,
    };
    say_settled(attempt, outcome).await
}

/// Settles a push that is open while its attempt is over: nothing is pushed any more.
pub(super) async fn settle_open<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
) -> Result<(), Halt> {
    let Some(push) = attempt.assignment.publish.push() else { return Ok(()) };
    let mut backoff = Backoff::new(Span::from_secs(2), Span::from_secs(30));
    let tree = loop {
        match locate(attempt).await {
            Ok(tree) => break tree,
            Err(halt) => tracing::warn!(who = ?attempt.assignment.who, %halt, "no remote"),
        }
        backoff.wait().await;
    };
    let outcome = find_out(attempt, &tree, push).await;
    say_settled(attempt, outcome).await
}

/// Publishes what an earlier attempt left, without running the agent.
pub(super) async fn again<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
) -> Result<(), Halt> {
    let Some(commit) = attempt.assignment.kept else {
        let why = "there is no kept work that could be published again";
        return Err(Halt::failed(Cause::Configuration, why));
    };
    // The commit must be here: a push that cannot be made would be settled by a fence.
    let want = tree_request(attempt.assignment);
    let prepared = preparing(attempt, attempt.shared.workspace.prepare(&want)).await?;
    let tree = prepared.map_err(|error| unprepared(&error))?;
    // Nobody has this token: no agent is run.
    let token = format!("{:032x}", attempt.shared.chance.draw());
    let start = belay_api::port::Start { token_hash: token_hash(&token), partial_output: true };
    let (port, who) = (&attempt.shared.port, attempt.assignment.who);
    attempt.say(|| port.start(who, start.clone())).await?;
    publish(attempt, &tree, commit, Left { changed: true, summary: None }).await
}

async fn locate<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
) -> Result<Tree, Halt> {
    let want = tree_request(attempt.assignment);
    attempt.shared.workspace.locate(&want).await.map_err(|error| unprepared(&error))
}

async fn say_settled<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    outcome: PushOutcome,
) -> Result<(), Halt> {
    let said = found_again(attempt).and_then(|(agent, _, decided)| {
        let variables = &attempt.assignment.work.environment;
        summary(&attempt.files, &launch::secrets(agent, variables, &decided.token))
    });
    let left = Left { changed: true, summary: said };
    let (port, who) = (&attempt.shared.port, attempt.assignment.who);
    attempt.say(|| port.settled(who, outcome, left.clone())).await
}

/// What the remote's branch is now; a few tries.
async fn look<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
) -> Result<Option<CommitId>, Halt> {
    let mut backoff = Backoff::new(Span::from_secs(2), Span::from_secs(8));
    let mut looks = 1;
    loop {
        match attempt.shared.workspace.look(tree).await {
            Ok(found) => return Ok(found),
            Err(error) if looks == LOOKS => {
                return Err(Halt::failed(Cause::PublishFailed, chain(&error)));
            }
            Err(error) => tracing::warn!(who = ?attempt.assignment.who, %error, "no remote"),
        }
        looks += 1;
        backoff.wait().await;
    }
}

/// Pushes once; what failed on this side is no answer.
async fn send<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
    push: Push,
) -> Said {
    let within = attempt.assignment.limits.publish;
    match attempt.shared.workspace.push(tree, push, within).await {
        Ok(said) => said,
        Err(error) => {
            tracing::warn!(who = ?attempt.assignment.who, error = chain(&error), "push");
            Said::Nothing
        }
    }
}

/// Finds out what became of a push, for as long as that takes.
async fn find_out<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    tree: &Tree,
    push: Push,
) -> PushOutcome {
    let workspace = &attempt.shared.workspace;
    let mut backoff = Backoff::new(Span::from_secs(2), Span::from_secs(60));
    let mut fence = None;
    loop {
        let blocked = match (settle(push, workspace.remote_of(tree, push).await), fence.take()) {
            (Settling::Settled(outcome), _) => return outcome,
            (Settling::FencePush { .. }, _) if planted::is(Bug::NotPushedWithoutFence) => {
                return PushOutcome::NotPushed;
            }
            (Settling::FencePush { .. }, None) => {
                // The next look follows at once; a fence that did not hold waits.
                fence = Some(workspace.fence(tree, push).await);
                continue;
            }
            (Settling::FencePush { .. }, Some(tried)) => unfenced(tree, &tried),
            (Settling::LookAgain, _) => "the remote does not answer".to_owned(),
        };
        tracing::warn!(who = ?attempt.assignment.who, blocked, "a push is not settled");
        let (port, who) = (&attempt.shared.port, attempt.assignment.who);
        // Only said to be shown: nobody waits for it, and the next round says it again.
        let _ = port.unsettled(who, blocked).await;
        backoff.wait().await;
    }
}

/// Why the branch could not be moved away from where the push expects it, and what helps.
fn unfenced(tree: &Tree, tried: &Result<Said, TreeError>) -> String {
    let why = match tried {
        Ok(Said::Refused) => "the remote refuses that".to_owned(),
        Ok(Said::Landed | Said::Nothing) => "the remote does not say whether it did".to_owned(),
        Err(error) => chain(error),
    };
    format!(
        "the push was cut off and may still land; to make sure that it does not, the branch `{}` \
         has to move, and {why}. Let the remote take one push to that branch, or move the branch \
         there yourself; it is tried again every minute",
        tree.branch
    )
}
