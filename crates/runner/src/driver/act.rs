//! Acting for an attempt that is current: tree, files, sandbox, start, output, end.

use belay_agent::{Agent, ConversationId, Launch};
use belay_api::ATTEMPT_TOKEN;
use belay_api::port::{Ending, Left, Port, Report, Seen, Start};
use belay_kernel::attempt::Phase;
use belay_kernel::planted::{self, Bug};
use belay_kernel::task::Plan;
use belay_kernel::{Cause, QuestionId, Span};
use belay_sandbox::{Error, Probe, Provider, Refusal};
use tokio::sync::mpsc;

use super::attempt::{Attempt, Halt};
use super::{finish, follow, publish};
use crate::board::Ticket;
use crate::files::Decided;
use crate::launch::{self, Planned};
use crate::shared::sleep;
use crate::workspace::{TreeError, Workspace};

/// How often control is told that the preparation goes on.
const PREPARING: Span = Span::from_secs(20);

/// Answers to held questions, as control hands them over.
pub(super) type Answers = mpsc::Receiver<(QuestionId, String)>;

/// What acting leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// Nothing that lives.
    Nothing,
    /// The agent, frozen.
    Frozen,
}

/// Acts until the attempt is over as far as this runner can tell, and says so.
pub(super) async fn act<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    ticket: &Ticket,
    answers: Answers,
) -> Result<Leaves, Halt> {
    let failed = match steps(attempt, ticket, answers).await {
        Err(Halt::Failed(failed)) => failed,
        other => return other,
    };
    // The processes are gone before control hears of the end.
    attempt.kill_now().await;
    let ending = Ending::Failed {
        cause: failed.cause,
        message: failed.message,
        resets_at: None,
        conversation_lost: false,
        left: Left::default(),
    };
    let port = &attempt.shared.port;
    attempt.say(|| port.end(attempt.assignment.who, ending.clone())).await?;
    Ok(Leaves::Nothing)
}

async fn steps<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    ticket: &Ticket,
    answers: Answers,
) -> Result<Leaves, Halt> {
    let assignment = attempt.assignment;
    let provider = attempt.provider()?;
    if matches!(assignment.phase, Phase::Publishing { .. }) {
        // What was frozen before a restart is found again by the step that freezes.
        let leaves = if assignment.work.keep_alive { Leaves::Frozen } else { Leaves::Nothing };
        return publish::go_on(attempt).await.map(|()| leaves);
    }
    if assignment.plan == Plan::Republish {
        return publish::again(attempt).await.map(|()| Leaves::Nothing);
    }
    let agent: Agent =
        assignment.work.agent.parse().map_err(|error: belay_agent::AgentError| {
            Halt::failed(Cause::Configuration, error.to_string())
        })?;
    refuse_without_isolation(attempt, provider)?;
    let want = launch::tree_request(assignment);
    let tree = preparing(attempt, attempt.shared.workspace.prepare(&want)).await?;
    let tree = tree.map_err(|error| unprepared(&error))?;
    let decided = decide(attempt).map_err(|error| Halt::file(&error))?;
    let launch = launch::launch(
        agent,
        assignment,
        &attempt.files,
        &tree.path,
        &decided,
        &attempt.shared.config,
    );
    let planned =
        launch::plan(agent, &launch, assignment, &attempt.files, &tree, &attempt.shared.config)
            .map_err(|refusal| Halt::failed(Cause::Configuration, refusal.to_string()))?;
    start(attempt, ticket, provider, agent, &decided, &planned).await?;
    let secrets = launch::secrets(agent, &assignment.work.environment, &decided.token);
    let run = follow::Run { agent, launch: &launch, secrets: &secrets };
    let ended = follow::live(attempt, &run, &planned.agent.stdin, ticket, answers).await?;
    let leaves = if ended.end.is_none() { Leaves::Frozen } else { Leaves::Nothing };
    finish::finish(attempt, &tree, &secrets, ended).await.map(|()| leaves)
}

/// Work from a sandbox that shows the person's files could be anything: it is not published.
fn refuse_without_isolation<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
    provider: &P,
) -> Result<(), Halt> {
    let work = &attempt.assignment.work;
    let publishes = work.publish && work.repository.is_some();
    let allowed = attempt.shared.config.publish_without_isolation;
    if publishes && !allowed && !provider.capabilities().isolation {
        return Err(Halt::failed(
            Cause::Configuration,
            format!(
                "the provider `{}` cannot hide the person's files here, so its work is not \
                 published; `belay doctor` says what is missing",
                work.provider
            ),
        ));
    }
    Ok(())
}

/// Waits for something of the preparation, and tells control meanwhile that it goes on.
pub(super) async fn preparing<C: Port, P: Provider, W: Workspace, T>(
    attempt: &Attempt<'_, C, P, W>,
    part: impl Future<Output = T>,
) -> Result<T, Halt> {
    let tell = async {
        loop {
            sleep(PREPARING).await;
            if let Err(halt) =
                attempt.say(|| attempt.shared.port.preparing(attempt.assignment.who)).await
            {
                return halt;
            }
        }
    };
    tokio::select! {
        biased;
        done = part => Ok(done),
        halt = tell => Err(halt),
    }
}

/// What it means that a tree could not be had.
pub(super) fn unprepared(error: &TreeError) -> Halt {
    let cause = if error.is_permanent() { Cause::Configuration } else { Cause::Infrastructure };
    Halt::failed(cause, super::attempt::chain(error))
}

/// Draws what is drawn once for an attempt, or finds what was drawn.
fn decide<C: Port, P: Provider, W>(attempt: &Attempt<'_, C, P, W>) -> std::io::Result<Decided> {
    attempt.files.make()?;
    if let Some(decided) = attempt.files.decided()? {
        return Ok(decided);
    }
    let assignment = attempt.assignment;
    let chance = &attempt.shared.chance;
    // It names its attempt, so that whoever is shown it knows which row holds its hash.
    let (task, number) = (assignment.who.task, assignment.who.attempt);
    let (high, low) = (chance.draw(), chance.draw());
    let token = format!("{ATTEMPT_TOKEN}{task}_{number}_{high:032x}{low:032x}");
    // A plain command has no conversation that could be resumed.
    let resumable = assignment.work.agent != Agent::Command.name() && assignment.plan == Plan::Same;
    let old = assignment.conversation.as_deref().filter(|_| resumable);
    let decided = match old.and_then(ConversationId::new) {
        Some(conversation) => {
            let prompt = assignment.prompt.next.clone();
            Decided { token, conversation, resumed: true, prompt }
        }
        None => {
            let conversation = ConversationId::chosen(chance.draw());
            let prompt = assignment.prompt.whole.clone();
            Decided { token, conversation, resumed: false, prompt }
        }
    };
    attempt.files.decide(&decided)?;
    Ok(decided)
}

/// Makes the sandbox, asks control, and executes the agent, once. Where that was begun before, the
/// sandbox must be there: it is never made again, because its agent may have acted.
async fn start<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    ticket: &Ticket,
    provider: &P,
    agent: Agent,
    decided: &Decided,
    planned: &Planned,
) -> Result<(), Halt> {
    let assignment = attempt.assignment;
    if assignment.thaw.is_some() {
        return thaw(attempt, ticket, provider, agent, decided).await;
    }
    if attempt.files.is_started() || assignment.phase == Phase::Running {
        match provider.end(attempt.fence.sandbox).await {
            Ok(Some(_)) => return Ok(()),
            // Also if it was made anew meanwhile, by a call that was long given up.
            Ok(None) if attempt.files.is_executed() => return Ok(()),
            Ok(None) => {}
            Err(Error::Refused(Refusal::NotFound { .. })) => {
                return Err(Halt::failed(Cause::Lost, "the sandbox is not on this machine"));
            }
            Err(error) => return Err(Halt::sandbox(&error)),
        }
    } else {
        let files = &planned.agent;
        attempt
            .files
            .plant(&files.directories, &files.files)
            .map_err(|error| Halt::file(&error))?;
        let until = preparing(attempt, ticket.until()).await?;
        let made = provider.prepare(&attempt.fence, &planned.sandbox, until);
        preparing(attempt, made).await?.map_err(|error| Halt::sandbox(&error))?;
    }
    if planted::is(Bug::ExecutedBeforeCommit) {
        let _ = provider.start(&attempt.fence, ticket.until().await).await;
    }
    may_start(attempt, agent, decided).await?;
    match provider.start(&attempt.fence, ticket.until().await).await {
        Ok(()) | Err(Error::Refused(Refusal::Ended { .. })) => {
            attempt.files.set_executed().map_err(|error| Halt::file(&error))
        }
        Err(error) => Err(Halt::sandbox(&error)),
    }
}

/// Asks control whether the agent may act, and writes down that it may.
async fn may_start<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    agent: Agent,
    decided: &Decided,
) -> Result<(), Halt> {
    let start = Start {
        token_hash: belay_api::token_hash(&decided.token),
        partial_output: agent.facts().partial_output,
    };
    attempt.say(|| attempt.shared.port.start(attempt.assignment.who, start.clone())).await?;
    attempt.files.set_started().map_err(|error| Halt::file(&error))
}

/// Lets the agent that was kept go on, in the sandbox that it is frozen in. One that is gone is not
/// made again here: the attempt ends before it began, and the next one begins with the tree.
async fn thaw<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    ticket: &Ticket,
    provider: &P,
    agent: Agent,
    decided: &Decided,
) -> Result<(), Halt> {
    let began = attempt.files.is_started() || attempt.assignment.phase == Phase::Running;
    let patience = attempt.assignment.limits.health_probe;
    let probe = provider.probe(attempt.fence.sandbox, patience).await;
    tell_probe(attempt, &probe).await?;
    match probe {
        Probe::Healthy => {}
        // Whatever it still said is read, and how it ended.
        Probe::Gone if began => return Ok(()),
        Probe::Gone => {
            let why = "the sandbox that was kept is gone";
            return Err(Halt::failed(Cause::Infrastructure, why));
        }
        Probe::Unknown { why } => return Err(Halt::failed(Cause::Infrastructure, why)),
    }
    if !began {
        attempt.files.clear_words().map_err(|error| Halt::file(&error))?;
    }
    may_start(attempt, agent, decided).await?;
    match provider.resume(&attempt.fence, ticket.until().await).await {
        Ok(()) => attempt.say(|| attempt.shared.port.thawed(attempt.assignment.who)).await,
        Err(Error::Refused(Refusal::Ended { .. })) => Ok(()),
        Err(error) => Err(Halt::sandbox(&error)),
    }
}

/// Tells control how a probe went, for the figures.
async fn tell_probe<C: Port, P: Provider, W: Workspace>(
    attempt: &Attempt<'_, C, P, W>,
    probe: &Probe,
) -> Result<(), Halt> {
    let (port, assignment) = (&attempt.shared.port, attempt.assignment);
    let seen = vec![Seen::Probed { healthy: *probe == Probe::Healthy }];
    let report = Report { from: assignment.acknowledged, bytes: Vec::new(), seen };
    attempt.say(|| port.report(assignment.who, report.clone())).await.map(drop)
}

/// The launch of an attempt that was begun before, to read its output again. Where the agent worked
/// does not matter for that.
pub(super) fn found_again<C: Port, P: Provider, W>(
    attempt: &Attempt<'_, C, P, W>,
) -> Option<(Agent, Launch, Decided)> {
    let agent: Agent = attempt.assignment.work.agent.parse().ok()?;
    let decided = attempt.files.decided().ok()??;
    let (files, config) = (&attempt.files, &attempt.shared.config);
    let launch = launch::launch(agent, attempt.assignment, files, &files.home, &decided, config);
    Some((agent, launch, decided))
}
