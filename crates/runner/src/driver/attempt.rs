//! One attempt, as its driver sees it: who it is, where its things are, and how to speak for it.

use std::future::Future;

use belay_api::port::{Assignment, Port, PortError, Who};
use belay_kernel::{Cause, QuestionId, Span, TaskId};
use belay_sandbox::{Error, Fence, Provider, Refusal};

use crate::files::Files;
use crate::shared::{Backoff, Shared, sleep};

/// Why acting for an attempt ended before it was over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Halt {
    /// It is not current any more: its agent is killed at once.
    #[error("it is not current any more")]
    Fenced,
    /// Control refused, and asking again changes nothing.
    #[error("control refuses: {0}")]
    Refused(String),
    /// It cannot go on, and control is to be told why.
    #[error("{0}")]
    Failed(Failed),
    /// Control has less or more of the transcript than was thought: report again from there.
    #[error("the transcript is durable up to {0}")]
    Realign(u64),
}

/// Why an attempt cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failed {
    pub(crate) cause: Cause,
    pub(crate) message: String,
}

impl Halt {
    pub(crate) fn failed(cause: Cause, message: impl Into<String>) -> Self {
        Self::Failed(Failed { cause, message: message.into() })
    }

    /// What the failure of one of our own files means.
    pub(crate) fn file(error: &std::io::Error) -> Self {
        Self::failed(Cause::Infrastructure, format!("a file of the attempt failed: {error}"))
    }

    /// What it means that a sandbox could not be made or started.
    pub(crate) fn sandbox(error: &Error) -> Self {
        let cause = match error.refusal() {
            Some(Refusal::Fenced { .. } | Refusal::Tombstoned { .. }) => return Self::Fenced,
            Some(
                Refusal::WrongSession { .. }
                | Refusal::TreeMissing { .. }
                | Refusal::TreeExists { .. }
                | Refusal::BindMissing { .. }
                | Refusal::ProgramMissing { .. }
                | Refusal::ProgramNotExecutable { .. }
                | Refusal::BadEnvironment { .. }
                | Refusal::BadPlan { .. }
                | Refusal::ImageMissing { .. }
                | Refusal::Unsupported { .. },
            ) => Cause::Configuration,
            Some(_) | None => Cause::Infrastructure,
        };
        Self::failed(cause, chain(error))
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

/// One attempt.
pub(crate) struct Attempt<'a, C, P, W> {
    pub(crate) shared: &'a Shared<C, P, W>,
    pub(crate) assignment: &'a Assignment,
    pub(crate) fence: Fence,
    pub(crate) files: Files,
}

impl<'a, C: Port, P: Provider, W> Attempt<'a, C, P, W> {
    pub(crate) fn new(shared: &'a Shared<C, P, W>, assignment: &'a Assignment) -> Self {
        let fence = Fence {
            session: assignment.session,
            sandbox: assignment.sandbox,
            epoch: assignment.who.epoch,
        };
        Self { shared, assignment, fence, files: Files::of(&shared.config.root, assignment) }
    }

    /// The provider that the attempt runs with, if this runner has it.
    pub(crate) fn provider(&self) -> Result<&'a P, Halt> {
        let name = &self.assignment.work.provider;
        self.shared.providers.get(name).ok_or_else(|| {
            Halt::failed(Cause::Configuration, format!("this runner has no provider `{name}`"))
        })
    }

    /// Says something to control until it is answered. The agent runs on meanwhile; its lease
    /// decides how long.
    pub(crate) async fn say<T, F>(&self, call: impl Fn() -> F + Send + Sync) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, PortError>> + Send,
    {
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(PortError::Fenced | PortError::Gone) => return Err(Halt::Fenced),
                Err(PortError::Refused(why)) => return Err(Halt::Refused(why)),
                Err(PortError::Unavailable(_)) => {
                    sleep(self.shared.config.limits.renewal_retry).await;
                }
            }
        }
    }

    /// Ends whatever is left of the sandbox, without grace. A few tries; the termination that
    /// follows tries on.
    pub(crate) async fn kill_now(&self) {
        let Ok(provider) = self.provider() else { return };
        let mut backoff = Backoff::new(Span::from_millis(100), Span::from_secs(1));
        for _ in 0..5 {
            match provider.stop(&self.fence, Span::ZERO).await {
                Ok(_) => return,
                // Somebody newer has the session, and with it the right to end this sandbox.
                Err(Error::Refused(refusal)) => {
                    tracing::info!(who = ?self.assignment.who, code = refusal.code(), "no kill");
                    return;
                }
                Err(error) => {
                    tracing::warn!(who = ?self.assignment.who, error = chain(&error), "no kill");
                    backoff.wait().await;
                }
            }
        }
    }

    /// The id of a question that the agent holds open: the same whenever it is asked again. It is
    /// known by the attempt that the sandbox was made for, because it stays open while the sandbox
    /// is frozen; and by the task that is to be asked now, which may be another one.
    pub(crate) fn question_id(&self, key: &str, round: usize) -> QuestionId {
        let who = self.assignment.who;
        let first = self.assignment.thaw.as_ref().map_or(who, |thaw| thaw.first);
        question_id(who.task, first, key, round)
    }

    /// The id of the question that the agent leaves in its file when it is done for now: one for
    /// each attempt, also where several follow each other in a sandbox.
    pub(crate) fn file_question_id(&self) -> QuestionId {
        let who = self.assignment.who;
        question_id(who.task, who, "file", 0)
    }
}

fn question_id(task: TaskId, by: Who, key: &str, round: usize) -> QuestionId {
    let name = format!("{task}\n{}\n{}\n{round}\n{key}", by.task, by.attempt);
    let hash = blake3::hash(name.as_bytes());
    let mut bits = [0; 16];
    bits.copy_from_slice(&hash.as_bytes()[..16]);
    QuestionId::from_bits(u128::from_be_bytes(bits))
}
