//! What is known of each agent: the version that the tests run, how it is started, resumed and
//! interrupted, what it reports and what it cannot. The table in docs/agents.md is made from this.

use std::fmt;

use crate::agent::Agent;

/// A version, as programs print it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Changes that break.
    pub major: u32,
    /// Changes that add.
    pub minor: u32,
    /// Changes that mend.
    pub patch: u32,
}

impl Version {
    /// The first thing in a text that looks like a version: three numbers with points between.
    pub fn find(text: &str) -> Option<Self> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
            let mut numbers = word.trim_matches('.').split('.');
            let mut next = || numbers.next()?.parse().ok();
            Some(Self { major: next()?, minor: next()?, patch: next()? })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Whether a version is known to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The tests run this very version.
    Tested,
    /// Not this version, but one that differs in its patch, or its minor number, alone.
    Near,
    /// Older than what was tested.
    Older,
    /// Newer, by a major number; drift is to be expected.
    Newer,
    /// The agent did not say its version, or none was ever tested.
    Unknown,
}

/// What is known of an agent.
pub struct Facts {
    /// The version that the tests run; nothing for agents that cannot be run there.
    pub tested: Option<Version>,
    /// How its turn begins.
    pub started: &'static str,
    /// How its conversation goes on in a new process.
    pub resumed: &'static str,
    /// How its turn is ended from outside.
    pub interrupted: &'static str,
    /// How its questions reach a person.
    pub asks: &'static str,
    /// What it reports.
    pub reports: &'static str,
    /// What it cannot.
    pub cannot: &'static str,
    /// Whether output flows while the model speaks, so that a minute of silence means something.
    pub partial_output: bool,
    /// Whether tokens are counted, and whether it tells money.
    pub counts: Counts,
}

/// What an agent says of what it used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Tokens and money.
    TokensAndMoney,
    /// Tokens.
    Tokens,
    /// Nothing, or not always.
    Nothing,
}

const fn version(major: u32, minor: u32, patch: u32) -> Option<Version> {
    Some(Version { major, minor, patch })
}

impl Agent {
    /// What is known of this agent.
    pub const fn facts(self) -> Facts {
        match self {
            Self::Claude => CLAUDE,
            Self::Codex => CODEX,
            Self::Gemini => GEMINI,
            Self::OpenCode => OPENCODE,
            Self::Copilot => COPILOT,
            Self::Cursor => CURSOR,
            Self::Acp => ACP,
            Self::Command => COMMAND,
        }
    }

    /// Whether this version is known to work.
    pub fn known(self, version: Option<&Version>) -> Known {
        let (Some(tested), Some(version)) = (self.facts().tested, version) else {
            return Known::Unknown;
        };
        if *version == tested {
            Known::Tested
        } else if version.major == tested.major && version.minor == tested.minor {
            Known::Near
        } else if *version < tested {
            Known::Older
        } else if version.major == tested.major {
            Known::Near
        } else {
            Known::Newer
        }
    }
}

const CLAUDE: Facts = Facts {
    tested: version(2, 1, 325),
    started: "`claude -p` with stream-json in and out and its control protocol; prompt on stdin",
    resumed: "`--resume ID` in the same directory; the id is chosen (`--session-id`)",
    interrupted: "control request; the result says `aborted`",
    asks: "`AskUserQuestion` and permissions are held; MCP; question file",
    reports: "every event, partial output, tokens while it runs, money at the end, reset times",
    cannot: "say when a 429 ends unless it is a subscription's; be resumed in another directory",
    partial_output: true,
    counts: Counts::TokensAndMoney,
};

const CODEX: Facts = Facts {
    tested: version(0, 166, 0),
    started: "`codex app-server --listen stdio://`; JSON-RPC on stdin",
    resumed: "`thread/resume`; the id comes with the opened thread",
    interrupted: "`turn/interrupt`",
    asks: "`request_user_input` and approvals are held; MCP; question file",
    reports: "every event, partial output, tokens after each model call, typed errors",
    cannot: "tell money; end by itself while the network is away (a limit must)",
    partial_output: true,
    counts: Counts::Tokens,
};

const GEMINI: Facts = Facts {
    tested: version(0, 61, 0),
    started: "`gemini --output-format stream-json`; prompt on stdin",
    resumed: "`--resume ID` in the same directory; the id is chosen (`--session-id`)",
    interrupted: "signal to its group; it exits 0 without a result, which is no success",
    asks: "MCP; question file (with `gemini --acp`: permissions are held)",
    reports: "events, partial output, tokens at the end; causes by its exit code",
    cannot: "tell money, count while it runs, hold a question, use an MCP tool named `ask_user`, \
             tell a broken stream from a refusal, finish its output on a pipe",
    partial_output: true,
    counts: Counts::Tokens,
};

const OPENCODE: Facts = Facts {
    tested: version(1, 18, 33),
    started: "`opencode run --format json`; prompt on stdin",
    resumed: "`--session ID`; the id is in every event",
    interrupted: "signal to its group",
    asks: "MCP; question file (with `opencode acp`: permissions are held)",
    reports: "whole messages and finished tool calls, tokens and money per step",
    cannot: "stream partial output, show a running tool call, say that it waits for a quota, \
             finish its output on a pipe",
    partial_output: false,
    counts: Counts::TokensAndMoney,
};

const COPILOT: Facts = Facts {
    tested: version(1, 0, 102),
    started: "`copilot --prompt … --output-format json`; a long prompt by its file",
    resumed: "`--resume=ID`; the id is chosen (`--session-id`)",
    interrupted: "signal to its group",
    asks: "MCP; question file (with `copilot --acp`: permissions are held)",
    reports: "every event, partial output, typed errors with status",
    cannot: "count tokens with a model of one's own, tell money, hold a question",
    partial_output: true,
    counts: Counts::Nothing,
};

const CURSOR: Facts = Facts {
    tested: None,
    started: "`cursor-agent --print --output-format stream-json`; a long prompt by its file",
    resumed: "`--resume ID`; the id is in every event",
    interrupted: "signal to its group",
    asks: "MCP; question file",
    reports: "events, partial output, tokens at the end",
    cannot: "be run in our tests (documented streams only), tell causes, exit after its result",
    partial_output: true,
    counts: Counts::Tokens,
};

const ACP: Facts = Facts {
    tested: None,
    started: "the program that is named; JSON-RPC on stdin",
    resumed: "`session/load`, where the agent can",
    interrupted: "`session/cancel`",
    asks: "permissions are held; MCP; question file",
    reports: "events, partial output; tokens and money where the agent says them",
    cannot: "type most errors; run with `gemini --acp` and `opencode acp` in our tests",
    partial_output: true,
    counts: Counts::Nothing,
};

const COMMAND: Facts = Facts {
    tested: None,
    started: "the program that is named; prompt on stdin and in `$BELAY_PROMPT_FILE`",
    resumed: "not at all: same tree, new prompt",
    interrupted: "signal to its group",
    asks: "question file; `belay ask`; MCP if it speaks it",
    reports: "its lines; events and usage if it prints `agent.…` objects",
    cannot: "be resumed",
    // A program may well be silent while it works: a quiet build is not a hung one.
    partial_output: false,
    counts: Counts::Nothing,
};

/// The table of docs/agents.md.
pub fn table() -> String {
    let mut text = String::from(
        "| agent | tested version | started | resumed | interrupted | asks by | reports \
         | cannot |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for agent in Agent::ALL {
        let facts = agent.facts();
        let tested = facts.tested.map_or("—".to_owned(), |version| version.to_string());
        let cells = [
            facts.started,
            facts.resumed,
            facts.interrupted,
            facts.asks,
            facts.reports,
            facts.cannot,
        ];
        text.push_str(&format!("| {agent} | {tested} | {} |\n", cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_as_programs_print_them() {
        for (text, version) in [
            ("2.1.325 (Claude Code)\n", "2.1.325"),
            ("codex-cli 0.166.0\n", "0.166.0"),
            ("GitHub Copilot CLI 1.0.102.\nRun 'copilot update'", "1.0.102"),
            ("warning: 3 things\nv1.18.33-beta", "1.18.33"),
        ] {
            assert_eq!(Version::find(text).unwrap().to_string(), version);
        }
        for text in ["", "no version", "1.2", "99999999999.0.0"] {
            assert_eq!(Version::find(text), None, "{text}");
        }
    }

    #[test]
    fn nearness_is_by_the_tested_version() {
        let known = |text: &str| Agent::Claude.known(Version::find(text).as_ref());
        assert_eq!(known("2.1.325"), Known::Tested);
        assert_eq!(known("2.1.300"), Known::Near);
        assert_eq!(known("2.9.0"), Known::Near);
        assert_eq!(known("2.0.5"), Known::Older);
        assert_eq!(known("3.0.0"), Known::Newer);
        assert_eq!(known(""), Known::Unknown);
        assert_eq!(Agent::Cursor.known(Version::find("1.2.3").as_ref()), Known::Unknown);
    }
}
