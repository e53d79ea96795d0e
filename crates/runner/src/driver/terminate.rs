//! The termination sequence, as its runner does it: each step until it is done, then what control
//! says is next.

use belay_agent::Agent;
use belay_api::port::{Found, Port, PortError, Stepped};
use belay_kernel::Span;
use belay_kernel::planted::{self, Bug};
use belay_kernel::receipt::{TranscriptSeal, UNKNOWN_END};
use belay_kernel::termination::{Step, Storage, Termination, Went};
use belay_sandbox::{Error, Provider, Refusal};

use super::act::found_again;
use super::attempt::{Attempt, Halt, chain};
use super::follow;
use crate::launch;
use crate::shared::{Backoff, sleep};
use crate::workspace::Workspace;

/// Goes through the saga from where it stands until nothing is left to do here.
pub(super) async fn terminate<C: Port, P: Provider, W: Workspace>(attempt: &Attempt<'_, C, P, W>) {
    let begun = attempt.assignment.termination;
    let mut saga = begun.unwrap_or_else(|| Termination::begin(Storage::Outlives));
    if !matches!(saga.step, Step::Freeze | Step::Kill) {
        // The duty may be old, and the tree another attempt's by now. Ending processes needs no
        // such care, and no delay: the provider's fence looks after that.
        let stepped = Stepped { step: saga.step, went: Went::Failed, found: Found::Nothing };
        let Some(now) = say(attempt, &stepped).await else { return };
        saga = now;
    }
    let mut backoff = patience();
    while is_ours(saga.step) {
        let (went, found) = match perform(attempt, saga.step).await {
            Ok(done) => done,
            Err(Over) => return,
        };
        let stepped = Stepped { step: saga.step, went, found };
        let Some(next) = say(attempt, &stepped).await else { return };
        if next == saga {
            backoff.wait().await;
        } else {
            backoff = patience();
        }
        saga = next;
    }
}

/// What follows on the runner's steps is control's: it waits for a push that is not settled yet.
const fn is_ours(step: Step) -> bool {
    match step {
        Step::Freeze | Step::Kill | Step::SaveTranscript | Step::SaveTree | Step::Destroy => true,
        Step::Settle | Step::Tell | Step::Done => false,
    }
}

const fn patience() -> Backoff {
    Backoff::new(Span::from_secs(1), Span::from_secs(30))
}

/// Control has nothing more to do with this attempt.
struct Over;

/// Tells control how a step went; nothing if the saga is over as far as control is concerned.
async fn say<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    stepped: &Stepped,
) -> Option<Termination> {
    let who = attempt.assignment.who;
    loop {
        match attempt.shared.port.stepped(who, stepped.clone()).await {
            Ok(next) => return Some(next),
            Err(PortError::Fenced | PortError::Gone | PortError::Refused(_)) => return None,
            Err(PortError::Unavailable(_)) => {
                sleep(attempt.shared.config.limits.renewal_retry).await;
            }
        }
    }
}

async fn perform<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    step: Step,
) -> Result<(Went, Found), Over> {
    let Ok(provider) = attempt.provider() else { return Ok((Went::Impossible, Found::Nothing)) };
    let fence = &attempt.fence;
    Ok(match step {
        Step::Freeze => freeze(attempt, provider).await,
        Step::Kill => match provider.stop(fence, attempt.assignment.limits.stop_grace).await {
            Ok(receipt) => {
                let processes = u32::try_from(receipt.killed_count).unwrap_or(u32::MAX);
                if planted::is(Bug::DestroyedBeforeSaved) {
                    let _ = provider.destroy(fence).await;
                }
                (Went::Done, Found::Dead { processes })
            }
            Err(error) => match ended_already(attempt, provider, &error).await {
                Some(processes) => (Went::Done, Found::Dead { processes }),
                None => failed(attempt, step, &error),
            },
        },
        Step::SaveTranscript => save_transcript(attempt, provider).await?,
        Step::SaveTree => save_tree(attempt).await,
        Step::Destroy => match provider.destroy(fence).await {
            Ok(()) | Err(Error::Refused(Refusal::NotFound { .. })) => (Went::Done, Found::Nothing),
            // Its remains are the sweep's.
            Err(error) => match ended_already(attempt, provider, &error).await {
                Some(_) => (Went::Done, Found::Nothing),
                None => failed(attempt, step, &error),
            },
        },
        Step::Settle | Step::Tell | Step::Done => (Went::Done, Found::Nothing),
    })
}

/// Freezes an agent that can go on later; any other is ended instead.
async fn freeze<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    provider: &P,
) -> (Went, Found) {
    if !can_stay(attempt, provider).await {
        return (Went::Impossible, Found::Nothing);
    }
    match attempt.shared.port.freezing(attempt.assignment.who).await {
        Ok(()) => {}
        Err(error @ PortError::Unavailable(_)) => return failed(attempt, Step::Freeze, &error),
        Err(PortError::Fenced | PortError::Gone | PortError::Refused(_)) => {
            return (Went::Impossible, Found::Nothing);
        }
    }
    match provider.pause(&attempt.fence).await {
        Ok(()) => (Went::Done, Found::Nothing),
        Err(Error::Refused(_)) => (Went::Impossible, Found::Nothing),
        Err(error) => failed(attempt, Step::Freeze, &error),
    }
}

/// Freezes an agent before control tells to; one that cannot be frozen now may not go on either.
pub(super) async fn freeze_now<C: Port, P: Provider, W: Workspace>(attempt: &Attempt<'_, C, P, W>) {
    let frozen = match attempt.provider() {
        Ok(provider) => freeze(attempt, provider).await.0 == Went::Done,
        Err(_) => false,
    };
    if !frozen {
        attempt.kill_now().await;
    }
}

/// Whether an agent can be frozen and go on later: it has not ended, and takes further turns.
async fn can_stay<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    provider: &P,
) -> bool {
    let agent = attempt.assignment.work.agent.parse::<Agent>();
    let lives = matches!(provider.end(attempt.fence.sandbox).await, Ok(None));
    lives && attempt.files.is_started() && agent.is_ok_and(Agent::takes_turns)
}

/// How many processes were killed of a sandbox that is over, although a newer attempt of its
/// session has taken the right to end it: its lease ran out, and so it ended itself.
async fn ended_already<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    provider: &P,
    error: &Error,
) -> Option<u32> {
    let Some(Refusal::Fenced { .. }) = error.refusal() else { return None };
    match provider.end(attempt.fence.sandbox).await {
        Ok(end) => end.map(|end| u32::try_from(end.receipt.killed_count).unwrap_or(u32::MAX)),
        Err(Error::Refused(Refusal::NotFound { .. })) => Some(0),
        Err(_) => None,
    }
}

fn failed<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    step: Step,
    error: &dyn std::error::Error,
) -> (Went, Found) {
    tracing::warn!(who = ?attempt.assignment.who, ?step, error = chain(error), "not done yet");
    (Went::Failed, Found::Nothing)
}

/// Reports what is not durable yet. Where the sandbox has lost some of it, names that.
async fn save_transcript<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    provider: &P,
) -> Result<(Went, Found), Over> {
    let assignment = attempt.assignment;
    let nothing = Ok((Went::Done, Found::Nothing));
    if planted::is(Bug::TranscriptSealedEarly) {
        return nothing;
    }
    let Some((agent, launch, decided)) = found_again(attempt) else { return nothing };
    // Asked once: what is frozen does not end, and would be waited for.
    let end = provider.end(attempt.fence.sandbox).await;
    let frozen = matches!(end, Ok(None));
    match end {
        Err(Error::Refused(Refusal::NotFound { .. })) if !attempt.files.is_started() => {
            return nothing;
        }
        Err(Error::Refused(Refusal::NotFound { .. })) => {
            return Ok((Went::Done, lost(assignment.acknowledged, UNKNOWN_END)));
        }
        Err(error) => return Ok(failed(attempt, Step::SaveTranscript, &error)),
        Ok(_) => {}
    }
    let secrets = launch::secrets(agent, &assignment.work.environment, &decided.token);
    let run = follow::Run { agent, launch: &launch, secrets: &secrets };
    match follow::drain(attempt, &run, frozen).await {
        Ok(ended) if ended.missing.is_empty() => nothing,
        Ok(ended) => {
            let length = ended.printed;
            let seal = TranscriptSeal { length, hash: String::new(), missing: ended.missing };
            Ok((Went::Done, Found::Transcript(seal)))
        }
        Err(Halt::Fenced | Halt::Refused(_)) => Err(Over),
        Err(halt @ (Halt::Failed(_) | Halt::Realign(_))) => {
            Ok(failed(attempt, Step::SaveTranscript, &halt))
        }
    }
}

fn lost(from: u64, to: u64) -> Found {
    let missing = vec![(from, to)];
    Found::Transcript(TranscriptSeal { length: from, hash: String::new(), missing })
}

/// Saves the working tree, if there is one.
async fn save_tree<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
) -> (Went, Found) {
    let (workspace, who) = (&attempt.shared.workspace, attempt.assignment.who);
    let saved = async {
        let found = workspace.find(attempt.assignment.session).await?;
        let Some(tree) = found.filter(|_| !planted::is(Bug::KeptTreeDropped)) else {
            return Ok(None);
        };
        let since = attempt.assignment.kept;
        let kept = workspace.keep(&tree, who.task, who.attempt, since).await?;
        let diff = workspace.diff(&tree, kept.commit).await?;
        Ok::<_, crate::workspace::TreeError>(Some((kept, diff)))
    };
    match saved.await {
        Ok(None) => (Went::Done, Found::Nothing),
        Ok(Some((kept, diff))) => {
            let found = Found::Tree { reference: kept.reference, commit: kept.commit, diff };
            (Went::Done, found)
        }
        Err(error) => failed(attempt, Step::SaveTree, &error),
    }
}
