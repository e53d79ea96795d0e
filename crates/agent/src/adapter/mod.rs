//! One module per agent: how it is started, and how it speaks.

mod acp;
mod acp_permission;
mod asking;
mod chunks;
mod claude;
mod claude_control;
mod claude_plan;
mod codex;
mod codex_ask;
mod codex_plan;
mod command;
mod copilot;
mod cursor;
mod gemini;
mod opencode;
mod rpc;

use crate::agent::Agent;
use crate::launch::{Launch, LaunchPlan, LaunchRefusal};
use crate::reader::{Dialect, Reader};

impl Agent {
    /// How to run `launch` with this agent.
    pub fn plan(self, launch: &Launch) -> Result<LaunchPlan, LaunchRefusal> {
        launch.check()?;
        match self {
            Self::Claude => claude_plan::plan(launch),
            Self::Codex => codex_plan::plan(launch),
            Self::Gemini => gemini::plan(launch),
            Self::OpenCode => opencode::plan(launch),
            Self::Copilot => copilot::plan(launch),
            Self::Cursor => cursor::plan(launch),
            Self::Acp => acp::plan(launch),
            Self::Command => command::plan(launch),
        }
    }

    /// The reader of what this agent prints when it is run as planned for the same launch.
    pub fn reader(self, launch: &Launch) -> Reader {
        let dialect: Box<dyn Dialect> = match self {
            Self::Claude => Box::new(claude::Claude::new(launch)),
            Self::Codex => Box::new(codex::Codex::new(launch)),
            Self::Gemini => Box::new(gemini::Gemini::new(launch)),
            Self::OpenCode => Box::new(opencode::OpenCode::default()),
            Self::Copilot => Box::new(copilot::Copilot::default()),
            Self::Cursor => Box::new(cursor::Cursor::default()),
            Self::Acp => Box::new(acp::Acp::new(launch)),
            Self::Command => Box::new(command::Command),
        };
        Reader::new(dialect, launch.line_limit)
    }
}
