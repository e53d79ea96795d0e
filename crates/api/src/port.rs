//! The port through which a runner speaks to control.
//!
//! A runner claims, prepares, asks whether it may start, reports what it sees, asks whether it may
//! publish, and says how it went. Everything it says names the attempt and its epoch; what is not
//! current is refused with [`PortError::Fenced`], and whoever gets that answer kills its agent at
//! once. Every call may be repeated, because an answer can be lost.
//!
//! What control wants of a runner comes as a [`Duty`]. Duties are told again until what they ask
//! for is seen in the database, so that neither side has to remember them.

use std::collections::BTreeMap;
use std::future::Future;

use belay_kernel::attempt::Phase;
use belay_kernel::budget::Budget;
use belay_kernel::publish::{CommitId, Publish, Push, PushOutcome};
use belay_kernel::receipt::TranscriptSeal;
use belay_kernel::task::Plan;
use belay_kernel::termination::{Step, Termination, Went};
use belay_kernel::{
    AttemptNumber, Cause, Epoch, EventKind, HeartbeatStatus, Limits, QuestionId, RunnerId,
    SandboxId, SessionId, Span, TaskId, Timestamp, Usage,
};
use serde::{Deserialize, Serialize};

/// Who speaks: an attempt, by its number and its epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Who {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: AttemptNumber,
    /// Its fencing number.
    pub epoch: Epoch,
}

/// Why control does not do what a runner asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PortError {
    /// The attempt is not current any more: kill its agent at once.
    #[error("the attempt is not current any more")]
    Fenced,
    /// The attempt is over: kill whatever is left of it.
    #[error("the attempt is over")]
    Gone,
    /// It is refused, and asking again changes nothing.
    #[error("{0}")]
    Refused(String),
    /// Nobody knows whether it was done, or it could not be done now: ask again.
    #[error("control cannot answer now: {0}")]
    Unavailable(String),
}

/// A runner that begins, or begins again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its id, which it keeps over restarts.
    pub runner: RunnerId,
    /// Its name.
    pub name: String,
    /// How many attempts it can have at a time.
    pub slots: u32,
    /// The roles that it works for.
    pub roles: Vec<String>,
    /// The providers that it has.
    pub providers: Vec<String>,
    /// Its version.
    pub version: String,
}

/// What a runner asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// Who asks.
    pub runner: RunnerId,
    /// Of this role.
    pub role: String,
    /// At most so many.
    pub slots: u32,
}

/// What an attempt runs in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// The agent's name.
    pub agent: String,
    /// The program and its arguments, if the agent is a plain command.
    pub command: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// The provider's name.
    pub provider: String,
    /// The image.
    pub image: Option<String>,
    /// A path or URL, if the task works on a repository.
    pub repository: Option<String>,
    /// What the tree begins with.
    pub base: Option<String>,
    /// The session of the task that this one is a subtask of, if they work on the same repository:
    /// the tree begins with what was committed last in that one's, where it is on this machine.
    pub beside: Option<SessionId>,
    /// The branch of the tree, and the one that is pushed to.
    pub branch: String,
    /// Whether the work is pushed.
    pub publish: bool,
    /// Whether changes in a local base that are not committed are taken along.
    pub include_uncommitted: bool,
    /// The variables that the agent gets.
    pub environment: BTreeMap<String, String>,
    /// What the task tree may use.
    pub budget: Budget,
    /// Whether the agent stays, frozen, when it has done its part.
    pub keep_alive: bool,
}

/// What the agent is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prompt {
    /// For a new conversation: the prompt, and the thread so far.
    pub whole: String,
    /// For a conversation that goes on: only what is new.
    pub next: String,
}

/// A sandbox that was frozen when an earlier attempt of its session had ended, and in which the
/// same agent goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Thaw {
    /// The attempt that it was made for, whose files its agent knows.
    pub first: Who,
    /// How much it had printed when it was frozen: the transcripts of the attempts before.
    pub printed: u64,
    /// What was answered so far: a question that the agent still holds is answered with it.
    pub answers: Vec<(QuestionId, String)>,
}

/// An attempt that a runner has, as control knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Which attempt.
    pub who: Who,
    /// The role whose worker it takes.
    pub role: String,
    /// Its session.
    pub session: SessionId,
    /// Its sandbox, whose id is stored before it is made.
    pub sandbox: SandboxId,
    /// What it begins with.
    pub plan: Plan,
    /// Where it is in its life.
    pub phase: Phase,
    /// What was published of it.
    pub publish: Publish,
    /// How far its termination is, if it is ending.
    pub termination: Option<Termination>,
    /// What it runs.
    pub work: Work,
    /// What the agent is told.
    pub prompt: Prompt,
    /// The agent's conversation, if the session has one.
    pub conversation: Option<String>,
    /// The commit that the session's last attempt left, where its tree is not here any more, and
    /// what is published again.
    pub kept: Option<CommitId>,
    /// The frozen sandbox that it goes on in, if it does.
    pub thaw: Option<Thaw>,
    /// How much of its transcript is durable.
    pub acknowledged: u64,
    /// How long its lease lasts after each renewal.
    pub lease: Span,
    /// Its limits.
    pub limits: Limits,
}

/// What control wants of a runner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// Run this attempt, or go on with it.
    Run(Box<Assignment>),
    /// End this attempt: go on with its termination.
    End(Box<Assignment>),
    /// Find out what became of this attempt's push.
    Settle(Box<Assignment>),
    /// Hand this answer to the attempt that is held for it.
    Answer {
        /// The attempt.
        who: Who,
        /// The question, by the id that the runner gave it.
        question: QuestionId,
        /// The answer.
        text: String,
    },
    /// Remove what is left of this session: its tree, its files, its home. Its kept work stays.
    Forget {
        /// The session.
        session: SessionId,
    },
    /// There may be something to claim for this role.
    Claim {
        /// The role.
        role: String,
    },
}

/// A beat of a runner, for everything that it has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// Who beats.
    pub runner: RunnerId,
    /// Its attempts.
    pub attempts: Vec<Pulse>,
}

/// How one attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pulse {
    /// Which.
    pub who: Who,
    /// How its agent is.
    pub status: HeartbeatStatus,
    /// Whether everything that its agent printed until now was reported and acknowledged: what was
    /// not told has not happened, and silence may be judged.
    pub told: bool,
}

/// What a beat is answered with, after it was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beaten {
    /// The attempt is current; its lease lasts so long from before the beat was sent.
    Current {
        /// How long.
        lease: Span,
    },
    /// It is not: kill its agent at once.
    Fenced,
    /// It is over, and its agent is to stay: freeze it at once, or kill it where that cannot be.
    Freeze,
}

/// The last step before the agent is executed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The hash of the token with which the agent speaks; the runner made the token.
    pub token_hash: String,
    /// Whether output flows while the agent thinks.
    pub partial_output: bool,
}

/// Something that was seen in an attempt's output, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The agent did something.
    Event {
        /// What kind of thing.
        kind: EventKind,
        /// What it is about.
        detail: serde_json::Value,
    },
    /// A tool call is open.
    ToolOpened {
        /// The call's id.
        id: String,
    },
    /// A tool call is over.
    ToolClosed {
        /// The call's id.
        id: String,
    },
    /// What the attempt has used so far, in all.
    Usage(Usage),
    /// The agent's own name for the conversation.
    Conversation(String),
    /// So many things that the reader does not know were seen since the last report.
    Drift(u64),
    /// The sandbox was probed before its agent goes on in it.
    Probed {
        /// Whether it answered.
        healthy: bool,
    },
}

/// What an attempt printed, and what was seen in it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where the bytes begin; what is durable ends here, or the report is not taken.
    pub from: u64,
    /// The bytes, both streams in the order in which they were read.
    pub bytes: Vec<u8>,
    /// What was seen in them.
    pub seen: Vec<Seen>,
}

/// The answer to a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// How much of the transcript is durable: the next report begins here.
    pub next: u64,
}

/// A question of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The id that the runner gives it, the same whenever it is asked again.
    pub question: QuestionId,
    /// What is asked.
    pub text: String,
    /// What may be chosen.
    pub options: Vec<String>,
    /// Whether the agent stays for the answer.
    pub held: bool,
}

/// How an attempt's agent ended, as its runner judges it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It succeeded, and there is nothing to push.
    Succeeded(Left),
    /// It failed.
    Failed {
        /// Why.
        cause: Cause,
        /// In whose words.
        message: String,
        /// When a usage limit resets, if it said so.
        resets_at: Option<Timestamp>,
        /// Whether the conversation to resume was not there.
        conversation_lost: bool,
        /// What it left behind.
        left: Left,
    },
}

/// What an attempt left behind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Left {
    /// Whether the tree or its commits changed.
    pub changed: bool,
    /// What the agent said it did.
    pub summary: Option<String>,
}

/// How a step of a termination went, with what it found out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stepped {
    /// The step.
    pub step: Step,
    /// How it went.
    pub went: Went,
    /// What it found out.
    pub found: Found,
}

/// What a step of a termination found out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Nothing to be told.
    Nothing,
    /// The processes are gone, and were seen to be.
    Dead {
        /// How many were there.
        processes: u32,
    },
    /// The transcript is whole, or what is missing of it is named.
    Transcript(TranscriptSeal),
    /// The tree is kept.
    Tree {
        /// The ref that keeps it.
        reference: String,
        /// The commit that holds it.
        commit: CommitId,
        /// What changed, as a patch, as far as it is stored.
        diff: Vec<u8>,
    },
}

/// A sandbox that a provider of a runner has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Present {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The installation's epoch when it was made.
    pub installation_epoch: u64,
}

/// What is to become of a sandbox that a provider has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A row wants it.
    Keep,
    /// No row wants it: leave a tombstone and kill it.
    Kill,
    /// It belongs to another life of this installation, before a restore: a person decides.
    Quarantine,
}

/// What control does for a runner.
pub trait Port: Send + Sync + 'static {
    /// A runner is there. Answered with the attempts that it has, as far as control knows.
    fn join(&self, hello: Hello)
    -> impl Future<Output = Result<Vec<Assignment>, PortError>> + Send;

    /// Claims tasks.
    fn claim(
        &self,
        ask: ClaimRequest,
    ) -> impl Future<Output = Result<Vec<Assignment>, PortError>> + Send;

    /// Waits for duties, at most for `patience`.
    fn duties(
        &self,
        runner: RunnerId,
        patience: Span,
    ) -> impl Future<Output = Result<Vec<Duty>, PortError>> + Send;

    /// Renews the leases of a runner's attempts; answered in order, after the commit.
    fn beat(&self, beat: Beat) -> impl Future<Output = Result<Vec<Beaten>, PortError>> + Send;

    /// The sandbox is still being prepared.
    fn preparing(&self, who: Who) -> impl Future<Output = Result<(), PortError>> + Send;

    /// The sandbox is about to be frozen. Only after this is committed may it be: what is frozen
    /// outlasts its lease.
    fn freezing(&self, who: Who) -> impl Future<Output = Result<(), PortError>> + Send;

    /// The sandbox that was frozen before goes on, under the attempt's lease.
    fn thawed(&self, who: Who) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Asks whether the agent may be executed. Only after this is committed may it be.
    fn start(&self, who: Who, start: Start) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Makes output durable, and tells what was seen in it.
    fn report(
        &self,
        who: Who,
        report: Report,
    ) -> impl Future<Output = Result<Acknowledged, PortError>> + Send;

    /// The agent asks.
    fn ask(&self, who: Who, asked: Asked) -> impl Future<Output = Result<(), PortError>> + Send;

    /// The answer to a held question was handed to the agent.
    fn delivered(
        &self,
        who: Who,
        question: QuestionId,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Opens the publish gate. Only after this is committed may anything be pushed.
    fn open_publish(
        &self,
        who: Who,
        push: Push,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// It is known what became of the push.
    fn settled(
        &self,
        who: Who,
        outcome: PushOutcome,
        left: Left,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// It is not known yet what became of the push, and this is what stands in the way: one
    /// sentence, for people.
    fn unsettled(
        &self,
        who: Who,
        why: String,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// The agent is gone, and this is how it ended.
    fn end(&self, who: Who, ending: Ending) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Nothing is left of a session on this runner.
    fn forgot(
        &self,
        runner: RunnerId,
        session: SessionId,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Tells what providers have, listed before this is asked; answered, in order, with what is to
    /// become of each.
    fn sweep(
        &self,
        runner: RunnerId,
        present: Vec<Present>,
    ) -> impl Future<Output = Result<Vec<Fate>, PortError>> + Send;

    /// A step of the termination went so; answered with the saga as it is stored now.
    fn stepped(
        &self,
        who: Who,
        stepped: Stepped,
    ) -> impl Future<Output = Result<Termination, PortError>> + Send;
}
