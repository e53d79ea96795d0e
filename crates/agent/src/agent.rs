//! The agents that Belay can speak to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An agent, or a way to speak to many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agent {
    /// Anthropic's Claude Code.
    Claude,
    /// OpenAI's Codex.
    Codex,
    /// Google's Gemini CLI.
    Gemini,
    /// OpenCode.
    #[serde(rename = "opencode")]
    OpenCode,
    /// GitHub's Copilot CLI.
    Copilot,
    /// Cursor's CLI.
    Cursor,
    /// Any agent that speaks the Agent Client Protocol.
    Acp,
    /// Any command.
    Command,
}

/// Why a text is not an agent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an agent; known are {known}", known = Agent::names())]
pub struct AgentError(String);

impl Agent {
    /// Every agent.
    pub const ALL: [Self; 8] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::OpenCode,
        Self::Copilot,
        Self::Cursor,
        Self::Acp,
        Self::Command,
    ];

    /// The agent's name in configuration and on screens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
            Self::Copilot => "copilot",
            Self::Cursor => "cursor",
            Self::Acp => "acp",
            Self::Command => "command",
        }
    }

    /// The agent's program, where it has a usual one.
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Claude => Some("claude"),
            Self::Codex => Some("codex"),
            Self::Gemini => Some("gemini"),
            Self::OpenCode => Some("opencode"),
            Self::Copilot => Some("copilot"),
            Self::Cursor => Some("cursor-agent"),
            Self::Acp | Self::Command => None,
        }
    }

    /// Whether its process can stay after a turn and be given another one.
    pub const fn takes_turns(self) -> bool {
        match self {
            Self::Claude | Self::Codex => true,
            Self::Gemini
            | Self::OpenCode
            | Self::Copilot
            | Self::Cursor
            | Self::Acp
            | Self::Command => false,
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Agent {
    type Err = AgentError;

    fn from_str(text: &str) -> Result<Self, AgentError> {
        let known = Self::ALL.into_iter().find(|agent| agent.name() == text);
        known.ok_or_else(|| AgentError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_wire_and_the_command_line() {
        for agent in Agent::ALL {
            assert_eq!(agent.name().parse(), Ok(agent));
            assert_eq!(serde_json::to_string(&agent).unwrap(), format!("\"{agent}\""));
        }
        assert_eq!(
            "hal".parse::<Agent>().unwrap_err().to_string(),
            "`hal` is not an agent; known are claude, codex, gemini, opencode, copilot, cursor, \
             acp, command"
        );
    }
}
