//! What an agent was seen to do, by kind, and whether it counts as work.
//!
//! Any event or output is a sign of life. Work is what resets the idle and stuck clocks. An event
//! type that is not known counts as work: an allowlist of work once killed live agents whenever a
//! new type appeared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether an event shows progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventClass {
    /// It shows progress.
    Work,
    /// It shows life only.
    NotWork,
}

/// The kind of an event of an agent; its name on the wire begins with `agent.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EventKind {
    /// The agent edited a file.
    FileEdited,
    /// The agent began to use a tool.
    ToolUse,
    /// A tool returned its result to the agent.
    ToolResult,
    /// The agent finished using a tool.
    ToolCompleted,
    /// An agent that this agent started is done.
    SubagentCompleted,
    /// A skill is done.
    SkillCompleted,
    /// The agent said something.
    AssistantMessage,
    /// The agent says it is done. The latest one counts; agents say it many times.
    Completed,
    /// The agent, or the runner for it, is alive.
    Heartbeat,
    /// The agent began.
    Started,
    /// The agent is thinking.
    Thinking,
    /// The agent met an error, which need not be its end.
    Error,
    /// A kind that is not known here; counts as work.
    Other(Box<str>),
}

impl EventKind {
    /// Every kind that is known.
    pub const KNOWN: [Self; 12] = [
        Self::FileEdited,
        Self::ToolUse,
        Self::ToolResult,
        Self::ToolCompleted,
        Self::SubagentCompleted,
        Self::SkillCompleted,
        Self::AssistantMessage,
        Self::Completed,
        Self::Heartbeat,
        Self::Started,
        Self::Thinking,
        Self::Error,
    ];

    /// The kind's name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::FileEdited => "agent.file_edited",
            Self::ToolUse => "agent.tool_use",
            Self::ToolResult => "agent.tool_result",
            Self::ToolCompleted => "agent.tool_completed",
            Self::SubagentCompleted => "agent.subagent_completed",
            Self::SkillCompleted => "agent.skill_completed",
            Self::AssistantMessage => "agent.assistant_message",
            Self::Completed => "agent.completed",
            Self::Heartbeat => "agent.heartbeat",
            Self::Started => "agent.started",
            Self::Thinking => "agent.thinking",
            Self::Error => "agent.error",
            Self::Other(name) => name,
        }
    }

    /// The kind with this name; any name is one.
    pub fn from_name(name: &str) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|kind| kind.name() == name)
            .unwrap_or_else(|| Self::Other(name.into()))
    }

    /// Whether an event of this kind shows progress.
    pub const fn class(&self) -> EventClass {
        match self {
            Self::FileEdited
            | Self::ToolUse
            | Self::ToolResult
            | Self::ToolCompleted
            | Self::SubagentCompleted
            | Self::SkillCompleted
            | Self::AssistantMessage
            | Self::Completed
            | Self::Other(_) => EventClass::Work,
            Self::Heartbeat | Self::Started | Self::Thinking | Self::Error => EventClass::NotWork,
        }
    }
}

impl From<String> for EventKind {
    fn from(name: String) -> Self {
        Self::from_name(&name)
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> Self {
        kind.name().into()
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a heartbeat says of its agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeartbeatStatus {
    /// No turn is open.
    Idle,
    /// A turn is open.
    Running,
    /// Alive, with trouble.
    Degraded,
    /// The agent says it has failed.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_type_that_is_not_known_counts_as_work() {
        let kind = EventKind::from_name("agent.telepathy");
        assert_eq!(kind, EventKind::Other("agent.telepathy".into()));
        assert_eq!(kind.class(), EventClass::Work);
    }

    #[test]
    fn work_and_not_work_are_as_specified() {
        let work: Vec<_> = EventKind::KNOWN
            .iter()
            .filter(|kind| kind.class() == EventClass::Work)
            .map(EventKind::name)
            .collect();
        assert_eq!(
            work.join(" "),
            "agent.file_edited agent.tool_use agent.tool_result agent.tool_completed \
             agent.subagent_completed agent.skill_completed agent.assistant_message agent.completed"
        );
        for name in ["agent.heartbeat", "agent.started", "agent.thinking", "agent.error"] {
            assert_eq!(EventKind::from_name(name).class(), EventClass::NotWork, "{name}");
        }
    }

    #[test]
    fn kinds_survive_the_wire() {
        for kind in EventKind::KNOWN {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<EventKind>(&json).unwrap(), kind);
        }
    }
}
