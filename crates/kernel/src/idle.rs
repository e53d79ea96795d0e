//! When a session is idle: eight conditions, and the answer lists every one that does not hold.
//!
//! No attached client is not enough. A tool callback, a terminal, an unfinished turn or a dropped
//! event stream each mean that someone or something may still be at work. Every way in touches the
//! activity clock *before* it blocks, so that whoever is about to wait is already counted.

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Reading};
use crate::id::SandboxId;
use crate::limits::Limits;
use crate::session::State;
use crate::time::Timestamp;

/// Who a session serves; decides its grace time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    /// A person at a screen or a terminal.
    Interactive,
    /// A program.
    Automation,
    /// A chat, such as Slack.
    Chat,
}

/// What the agent was last known to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// No assistant turn is open.
    Finished,
    /// A turn is open.
    Unfinished,
    /// The agent said that it is idle. That outweighs an open turn (some agents never close a turn
    /// that was only text) and a dropped stream.
    SaidIdle,
}

/// Whether the agent's events arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// They do.
    Connected,
    /// They do not.
    Dropped,
}

/// Who and what is at work in a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Presence {
    /// Tool callbacks in flight.
    pub callbacks: u32,
    /// Tools that run.
    pub tools: u32,
    /// Attached clients.
    pub clients: u32,
    /// Proxy connections: terminals and ports.
    pub proxies: u32,
    /// What the agent was last known to do.
    pub turn: Turn,
    /// Whether its events arrive.
    pub stream: Stream,
    /// When anything last happened.
    pub last_activity: Timestamp,
    /// Whom the session serves.
    pub client: ClientKind,
}

/// A way into a session, and what the agent says in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ingress {
    /// A client attached.
    ClientAttached,
    /// A client went away.
    ClientDetached,
    /// A terminal or port was opened.
    ProxyOpened,
    /// A terminal or port was closed.
    ProxyClosed,
    /// A message for the agent.
    Prompt,
    /// A follow-up task was queued.
    FollowUpQueued,
    /// A tool called back.
    CallbackStarted,
    /// A tool callback was answered.
    CallbackEnded,
    /// The agent began to run a tool.
    ToolStarted,
    /// A tool of the agent ended.
    ToolEnded,
    /// The agent began a turn.
    TurnOpened,
    /// The agent ended its turn.
    TurnClosed,
    /// The agent said that it is idle.
    AgentIdle,
    /// Any other event of the agent.
    AgentEvent,
    /// A client says that it is still there.
    ClientHeartbeat,
}

/// What an ingress does to a session before it blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Touch {
    /// Nothing at all.
    Nothing,
    /// It counts as activity.
    Activity,
    /// It counts as activity, and the session is woken for it.
    Wake,
}

/// What an ingress does to a session in this state.
pub const fn touch(state: &State, ingress: Ingress) -> Touch {
    let live = matches!(state, State::Running { .. });
    match ingress {
        Ingress::ClientHeartbeat => {
            if live {
                Touch::Activity
            } else {
                Touch::Nothing
            }
        }
        Ingress::ClientAttached | Ingress::ProxyOpened | Ingress::Prompt => {
            if live {
                Touch::Activity
            } else {
                Touch::Wake
            }
        }
        // The rest happens in what runs, or is queued for whoever will run it.
        Ingress::ClientDetached
        | Ingress::ProxyClosed
        | Ingress::FollowUpQueued
        | Ingress::CallbackStarted
        | Ingress::CallbackEnded
        | Ingress::ToolStarted
        | Ingress::ToolEnded
        | Ingress::TurnOpened
        | Ingress::TurnClosed
        | Ingress::AgentIdle
        | Ingress::AgentEvent => Touch::Activity,
    }
}

impl Presence {
    /// Nobody is there yet.
    pub const fn new(client: ClientKind, now: Timestamp) -> Self {
        Self {
            callbacks: 0,
            tools: 0,
            clients: 0,
            proxies: 0,
            turn: Turn::Finished,
            stream: Stream::Connected,
            last_activity: now,
            client,
        }
    }

    /// Takes note of an ingress to a session in `state`. Counts never fall below zero, so that a
    /// clean-up that runs twice is harmless.
    pub fn on(&mut self, state: &State, ingress: Ingress, now: Timestamp) {
        match ingress {
            Ingress::ClientAttached => self.clients = self.clients.saturating_add(1),
            Ingress::ClientDetached => self.clients = self.clients.saturating_sub(1),
            Ingress::ProxyOpened => self.proxies = self.proxies.saturating_add(1),
            Ingress::ProxyClosed => self.proxies = self.proxies.saturating_sub(1),
            Ingress::CallbackStarted => self.callbacks = self.callbacks.saturating_add(1),
            Ingress::CallbackEnded => self.callbacks = self.callbacks.saturating_sub(1),
            Ingress::ToolStarted => self.tools = self.tools.saturating_add(1),
            Ingress::ToolEnded => self.tools = self.tools.saturating_sub(1),
            Ingress::Prompt | Ingress::TurnOpened => self.turn = Turn::Unfinished,
            Ingress::TurnClosed => self.turn = Turn::Finished,
            Ingress::AgentIdle => self.turn = Turn::SaidIdle,
            Ingress::FollowUpQueued | Ingress::AgentEvent | Ingress::ClientHeartbeat => {}
        }
        match touch(state, ingress) {
            Touch::Nothing => {}
            Touch::Activity | Touch::Wake => self.last_activity = self.last_activity.max(now),
        }
    }
}

/// A condition that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmet {
    /// Tool callbacks are in flight.
    ToolCallback(u32),
    /// Tools run.
    RunningTool(u32),
    /// Clients are attached.
    Client(u32),
    /// Terminals or ports are open.
    Proxy(u32),
    /// A turn is open, and the agent did not say that it is idle.
    UnfinishedTurn,
    /// The event stream is down, and idle was not seen before it dropped.
    StreamDropped,
    /// There is no sandbox.
    NoSandbox,
    /// The grace time is not over.
    Grace,
}

/// What the predicate says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Every condition holds: this sandbox may be snapshotted.
    Eligible {
        /// The sandbox.
        sandbox: SandboxId,
        /// The grace time, which is over.
        grace: Reading,
    },
    /// Some do not.
    Busy {
        /// Every condition that does not hold.
        unmet: Vec<Unmet>,
        /// The grace time, over or not.
        grace: Reading,
        /// When the grace time ends, if it is all that is missing; else only an event can help.
        recheck_at: Option<Timestamp>,
    },
}

/// The idle predicate.
pub fn judge(presence: &Presence, state: &State, limits: &Limits, now: Timestamp) -> Idle {
    let allowed = match presence.client {
        ClientKind::Interactive => limits.session_grace,
        ClientKind::Automation | ClientKind::Chat => limits.automation_grace,
    };
    let grace = Reading::since(Clock::Grace, presence.last_activity, now, allowed);
    let said_idle = presence.turn == Turn::SaidIdle;
    let unmet: Vec<Unmet> = [
        (presence.callbacks > 0).then_some(Unmet::ToolCallback(presence.callbacks)),
        (presence.tools > 0).then_some(Unmet::RunningTool(presence.tools)),
        (presence.clients > 0).then_some(Unmet::Client(presence.clients)),
        (presence.proxies > 0).then_some(Unmet::Proxy(presence.proxies)),
        (presence.turn == Turn::Unfinished).then_some(Unmet::UnfinishedTurn),
        (presence.stream == Stream::Dropped && !said_idle).then_some(Unmet::StreamDropped),
        state.sandbox().is_none().then_some(Unmet::NoSandbox),
        (!grace.passed()).then_some(Unmet::Grace),
    ]
    .into_iter()
    .flatten()
    .collect();
    match state.sandbox() {
        Some(sandbox) if unmet.is_empty() => Idle::Eligible { sandbox, grace },
        Some(_) | None => {
            let grace_end = Reading::passes_at(Clock::Grace, presence.last_activity, allowed);
            let recheck_at = (unmet == [Unmet::Grace]).then_some(grace_end);
            Idle::Busy { unmet, grace, recheck_at }
        }
    }
}

#[cfg(test)]
mod tests;
