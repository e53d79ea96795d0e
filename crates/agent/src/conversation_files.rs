//! Where each agent keeps a conversation, so that it can be saved with the session and put back.
//!
//! Paths are relative to the launch's state directory, which is the agent's whole home for one
//! session of Belay. What is kept is what `resume` needs; credentials, caches and logs are not.

use crate::agent::Agent;
use crate::observation::ConversationId;

impl Agent {
    /// Whether the file at `path`, relative to the state directory, belongs to the conversation and
    /// is to be saved with it.
    pub fn keeps(self, conversation: &ConversationId, path: &str) -> bool {
        let id = conversation.as_str();
        match self {
            Self::Claude => path.strip_prefix("claude/projects/").is_some_and(|rest| {
                let below = rest.split_once('/').map_or("", |(_, below)| below);
                below == format!("{id}.jsonl") || below.starts_with(&format!("{id}/"))
            }),
            Self::Codex => path.strip_prefix("codex/").is_some_and(|rest| {
                let rollout =
                    rest.starts_with("sessions/") && rest.ends_with(&format!("{id}.jsonl"));
                rollout || (is_database(rest) && !rest.starts_with("logs"))
            }),
            Self::Gemini => {
                path == ".gemini/projects.json"
                    || path.strip_prefix(".gemini/tmp/").is_some_and(|rest| {
                        let first = id.split('-').next().unwrap_or(id);
                        let chat = rest.contains("/chats/") && rest.contains(first);
                        chat || rest.ends_with("/.project_root")
                    })
            }
            Self::OpenCode => path.strip_prefix(".local/share/opencode/").is_some_and(|rest| {
                is_database(rest) || (rest.starts_with("storage/") && rest.contains(id))
            }),
            Self::Copilot => path.strip_prefix(".copilot/").is_some_and(|rest| {
                rest.starts_with(&format!("session-state/{id}/")) || is_database(rest)
            }),
            Self::Cursor => {
                path.starts_with(".cursor/chats/") && path.split('/').any(|part| part == id)
            }
            // Nobody but the agent knows where an ACP agent keeps its sessions: its home is kept
            // as it is, but for what is known to be a secret.
            Self::Acp => !is_secret(path),
            Self::Command => false,
        }
    }
}

/// A SQLite database at the top of the agent's directory, with its journals: one without the
/// other is a torn one.
fn is_database(path: &str) -> bool {
    let name = path.strip_suffix("-wal").or_else(|| path.strip_suffix("-shm")).unwrap_or(path);
    !path.contains('/') && (name.ends_with(".sqlite") || name.ends_with(".db"))
}

/// Files in which agents are known to keep credentials.
fn is_secret(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let known = ["auth.json", ".credentials.json", "oauth_creds.json", "google_accounts.json"];
    known.contains(&name) || name.ends_with(".pem") || name.ends_with(".key") || name == ".env"
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "11111111-1111-4111-8111-111111111111";

    #[test]
    fn the_conversation_is_kept_and_nothing_else() {
        let id = ConversationId::new(ID).unwrap();
        let other = "22222222-2222-4222-8222-222222222222";
        for (agent, kept, not_kept) in [
            (
                Agent::Claude,
                vec![
                    format!("claude/projects/-w/{ID}.jsonl"),
                    format!("claude/projects/-w/{ID}/a"),
                ],
                vec![
                    format!("claude/projects/-w/{other}.jsonl"),
                    "claude/.credentials.json".into(),
                ],
            ),
            (
                Agent::Codex,
                vec![
                    format!("codex/sessions/2026/11/15/rollout-2026-11-15T09-00-00-{ID}.jsonl"),
                    "codex/state_5.sqlite".into(),
                    "codex/state_5.sqlite-wal".into(),
                ],
                vec![
                    format!("codex/sessions/2026/11/15/rollout-x-{other}.jsonl"),
                    "codex/auth.json".into(),
                    "codex/logs_2.sqlite".into(),
                ],
            ),
            (
                Agent::Gemini,
                vec![".gemini/tmp/w/chats/session-2026-11-15T09-15-11111111.jsonl".into()],
                vec![
                    ".gemini/tmp/w/chats/session-2026-11-15T09-15-22222222.jsonl".into(),
                    ".gemini/oauth_creds.json".into(),
                    ".gemini/settings.json".into(),
                ],
            ),
            (
                Agent::OpenCode,
                vec![".local/share/opencode/opencode.db-wal".into()],
                vec![
                    ".local/share/opencode/auth.json".into(),
                    ".local/share/opencode/log/opencode.log".into(),
                    "opencode.json".into(),
                ],
            ),
            (
                Agent::Copilot,
                vec![format!(".copilot/session-state/{ID}/events.jsonl")],
                vec![format!(".copilot/session-state/{other}/events.jsonl")],
            ),
            (
                Agent::Cursor,
                vec![format!(".cursor/chats/abc/{ID}/store.db")],
                vec![".cursor/mcp.json".into()],
            ),
            (
                Agent::Acp,
                vec![".gemini/tmp/w/chats/x.jsonl".into()],
                vec![".gemini/oauth_creds.json".into()],
            ),
            (Agent::Command, vec![], vec!["anything".into()]),
        ] {
            for path in &kept {
                assert!(agent.keeps(&id, path), "{agent} keeps {path}");
            }
            for path in &not_kept {
                assert!(!agent.keeps(&id, path), "{agent} does not keep {path}");
            }
        }
    }
}
