//! What shall be run ([`Launch`]) and how ([`LaunchPlan`]), as data. Whoever owns the sandbox
//! writes the files, sets the environment, starts the program and feeds its standard input.
//!
//! Nothing goes through a shell. No secret is in an argument or in a planned file: configuration
//! names the variable that holds it, and the agent's own configuration language reads that.

use std::collections::BTreeMap;
use std::fmt;

use belay_kernel::{AttemptNumber, Money, TaskId};
use serde_json::{Map, Value};

use crate::observation::ConversationId;

/// The longest prompt that travels as an argument; Linux takes 128 KiB per argument.
const ARGUMENT_LIMIT: usize = 96 << 10;

/// Which conversation the agent is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conversation {
    /// A new one. Agents that let their caller choose the id take this one; the others say theirs
    /// in their first event.
    Fresh(ConversationId),
    /// This one, in a new process.
    Resumed(ConversationId),
}

impl Conversation {
    /// The conversation that is resumed.
    pub const fn resumed(&self) -> Option<&ConversationId> {
        match self {
            Self::Fresh(_) => None,
            Self::Resumed(id) => Some(id),
        }
    }
}

/// What the agent may do without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permissions {
    /// Everything: the sandbox is the boundary.
    All,
    /// Tools that the agent would ask for become questions.
    Ask,
}

/// An MCP server that the agent is pointed at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum McpServer {
    /// Over HTTP.
    Http {
        /// Its name, which becomes part of its tools' names.
        name: String,
        /// Where it is.
        url: String,
        /// The variable that holds its bearer token.
        token_variable: Option<String>,
    },
    /// A program that the agent starts; it inherits the agent's environment.
    Program {
        /// Its name, which becomes part of its tools' names.
        name: String,
        /// The program and its arguments.
        argv: Vec<String>,
    },
}

impl McpServer {
    /// Belay's own server at `url`, with the attempt's own token.
    pub fn belay(url: &str) -> Self {
        Self::Http {
            name: "belay".into(),
            url: format!("{}/mcp", url.trim_end_matches('/')),
            token_variable: Some(TOKEN.into()),
        }
    }

    /// The same through this program with its first arguments, which goes on when Belay is
    /// restarted and finds it again.
    pub fn belay_program(program: &[String]) -> Self {
        let argv = program.iter().cloned().chain(["mcp".to_owned()]).collect();
        Self::Program { name: "belay".into(), argv }
    }

    /// The same for an agent that has a tool `ask_user` of its own, which hides ours.
    #[must_use]
    pub fn asking_as_ask_person(mut self) -> Self {
        match &mut self {
            Self::Http { url, .. } => url.push_str("?ask=ask_person"),
            Self::Program { argv, .. } => argv.push("--ask-person".into()),
        }
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Http { name, .. } | Self::Program { name, .. } => name,
        }
    }
}

/// The variable that holds the attempt's token.
const TOKEN: &str = "BELAY_TOKEN";

/// What every agent is told about Belay, through its environment.
#[derive(Clone, PartialEq, Eq)]
pub struct BelayEnvironment {
    /// Where Belay is.
    pub url: String,
    /// The attempt's own token.
    pub token: String,
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: AttemptNumber,
    /// Where the prompt is.
    pub prompt_file: String,
    /// Where to write a question.
    pub question_file: String,
    /// Where to write a summary.
    pub summary_file: String,
}

impl BelayEnvironment {
    /// The variables.
    pub fn variables(&self) -> [(&'static str, String); 7] {
        [
            ("BELAY_URL", self.url.clone()),
            (TOKEN, self.token.clone()),
            ("BELAY_TASK_ID", self.task.to_string()),
            ("BELAY_ATTEMPT", self.attempt.to_string()),
            ("BELAY_PROMPT_FILE", self.prompt_file.clone()),
            ("BELAY_QUESTION_FILE", self.question_file.clone()),
            ("BELAY_SUMMARY_FILE", self.summary_file.clone()),
        ]
    }
}

impl fmt::Debug for BelayEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BelayEnvironment({} attempt {} at {})", self.task, self.attempt, self.url)
    }
}

/// What shall be run.
#[derive(Clone, PartialEq, Debug)]
pub struct Launch {
    /// The program and its first arguments; empty for the agent's usual name.
    pub program: Vec<String>,
    /// What the agent shall do.
    pub prompt: String,
    /// Its conversation.
    pub conversation: Conversation,
    /// The model, in the agent's own words.
    pub model: Option<String>,
    /// What it may do without asking.
    pub permissions: Permissions,
    /// MCP servers.
    pub mcp: Vec<McpServer>,
    /// The directory to work in, absolute, as the agent sees it.
    pub work_dir: String,
    /// The agent's own home for this session, absolute, as the agent sees it; never a person's.
    pub state_dir: String,
    /// What the agent is told about Belay.
    pub belay: BelayEnvironment,
    /// Further variables that the task or role names: credentials, `PATH` and the like. They win.
    pub environment: BTreeMap<String, String>,
    /// Settings of the agent itself, in its own words, that the role names.
    pub settings: Map<String, Value>,
    /// At most so many model turns, where the agent can count them.
    pub max_turns: Option<u32>,
    /// At most so much money, where the agent can count it.
    pub max_budget: Option<Money>,
    /// The longest line of output that is read.
    pub line_limit: usize,
}

/// Why a launch is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaunchRefusal {
    /// ACP and plain commands have no usual program.
    #[error("no program is named, and this agent has no usual one")]
    NoProgram,
    /// There is nothing to do.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// An argument, variable or path has a NUL byte in it.
    #[error("{0} has a NUL byte in it")]
    NulByte(&'static str),
    /// A directory is not absolute.
    #[error("`{0}` is not an absolute path")]
    NotAbsolute(String),
    /// The agent insists on UUIDs.
    #[error("`{0}` is not a UUID, which this agent needs as the name of its conversation")]
    NotUuid(ConversationId),
    /// The agent cannot be asked to ask, without a terminal.
    #[error("this agent cannot ask for permission without a terminal; use its ACP mode")]
    CannotAsk,
    /// The agent has no place for settings.
    #[error("this agent takes no settings of its own")]
    NoSettings,
    /// The agent has no conversation to resume.
    #[error("this agent has no conversations that could be resumed")]
    NoConversations,
}

impl LaunchRefusal {
    /// The refusal's stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoProgram => "no_program",
            Self::EmptyPrompt => "empty_prompt",
            Self::NulByte(_) => "nul_byte",
            Self::NotAbsolute(_) => "not_absolute",
            Self::NotUuid(_) => "not_uuid",
            Self::CannotAsk => "cannot_ask",
            Self::NoSettings => "no_settings",
            Self::NoConversations => "no_conversations",
        }
    }
}

impl Launch {
    /// Refuses what no agent could be started with.
    pub(crate) fn check(&self) -> Result<(), LaunchRefusal> {
        if self.prompt.trim().is_empty() {
            return Err(LaunchRefusal::EmptyPrompt);
        }
        for directory in [&self.work_dir, &self.state_dir] {
            if !directory.starts_with('/') {
                return Err(LaunchRefusal::NotAbsolute(directory.clone()));
            }
        }
        let paths = [&self.work_dir, &self.state_dir, &self.prompt];
        let named = paths.into_iter().chain(&self.program).chain(&self.model);
        if named.into_iter().any(|text| text.contains('\0')) {
            return Err(LaunchRefusal::NulByte("an argument"));
        }
        let variables = self.environment.iter();
        if variables.into_iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(LaunchRefusal::NulByte("a variable"));
        }
        Ok(())
    }

    /// The program with its first arguments, or the agent's usual one.
    pub(crate) fn argv(&self, usual: &str) -> Vec<String> {
        if self.program.is_empty() { vec![usual.into()] } else { self.program.clone() }
    }

    /// The environment that every agent gets. `PWD` is set because some trust it over the real
    /// working directory.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::from([
            ("HOME".to_owned(), self.state_dir.clone()),
            ("PWD".to_owned(), self.work_dir.clone()),
        ]);
        variables.extend(self.belay.variables().map(|(name, value)| (name.to_owned(), value)));
        variables
    }

    /// A path in the agent's home.
    pub(crate) fn state(&self, path: &str) -> String {
        format!("{}/{path}", self.state_dir.trim_end_matches('/'))
    }

    /// The prompt for agents that take it as an argument; a long one is fetched from its file.
    pub(crate) fn prompt_argument(&self) -> String {
        if self.prompt.len() <= ARGUMENT_LIMIT {
            return self.prompt.clone();
        }
        format!(
            "Your task is in the file {}. Read all of it, then do what it says.",
            self.belay.prompt_file
        )
    }

    /// The value of a variable as the agent will see it.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let given = self.environment.get(name).cloned();
        given.or_else(|| self.variables().get(name).cloned())
    }
}

/// What is written to the agent's standard input before anything is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stdin {
    /// These bytes, then the end.
    Whole(Vec<u8>),
    /// These bytes; it stays open for what the reader writes, and is closed when the turn ended.
    Open(Vec<u8>),
}

/// What the agent's standard output has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdout {
    /// A pipe will do.
    Pipe,
    /// A regular file, read while it grows: the agent exits before a pipe is drained, and what was
    /// still in it is lost.
    File,
}

/// A file to be written before the start, readable by the agent alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedFile {
    /// Where, absolute.
    pub path: String,
    /// What.
    pub contents: String,
}

/// How the agent's turn is ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// By what [`crate::Reader::interrupt`] says, through its standard input.
    Message,
    /// By `SIGTERM` to its process group. Not `SIGINT`, which a process started in the background
    /// of a shell may have inherited as ignored.
    Signal,
}

/// How it is to be run.
#[derive(Clone, PartialEq)]
pub struct LaunchPlan {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment but for what the sandbox itself adds.
    pub environment: BTreeMap<String, String>,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Stdout,
    /// Directories to be made first, for the agent alone.
    pub directories: Vec<String>,
    /// Files to be written first.
    pub files: Vec<PlannedFile>,
    /// The directory to start in.
    pub work_dir: String,
    /// The conversation's id, where it is known before the start.
    pub conversation: Option<ConversationId>,
    /// How to end a turn from outside.
    pub interrupt: Interrupt,
}

impl LaunchPlan {
    /// A plan with the parts that agents share; the launch's own environment wins.
    pub(crate) fn new(launch: &Launch, argv: Vec<String>, stdin: Stdin) -> Self {
        Self {
            argv,
            environment: launch.variables(),
            stdin,
            stdout: Stdout::Pipe,
            directories: vec![launch.state_dir.clone()],
            files: Vec::new(),
            work_dir: launch.work_dir.clone(),
            conversation: launch.conversation.resumed().cloned(),
            interrupt: Interrupt::Signal,
        }
    }

    pub(crate) fn set<const N: usize>(&mut self, variables: [(&str, String); N]) {
        self.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    }

    pub(crate) fn arg(&mut self, arguments: &[&str]) {
        self.argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    }

    pub(crate) fn file(&mut self, path: String, contents: &Value) {
        self.files.push(PlannedFile { path, contents: contents.to_string() });
    }

    /// The last step of every plan.
    pub(crate) fn finish(mut self, launch: &Launch) -> Self {
        let given = launch.environment.iter();
        self.environment.extend(given.map(|(name, value)| (name.clone(), value.clone())));
        self
    }
}

/// Names of variables without their values: some are secrets.
impl fmt::Debug for LaunchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchPlan")
            .field("argv", &self.argv)
            .field("environment", &self.environment.keys())
            .field("work_dir", &self.work_dir)
            .field("conversation", &self.conversation)
            .finish_non_exhaustive()
    }
}

/// Lays `over` on top of `under`: objects are merged, all else is replaced.
pub(crate) fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                merge(under.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}
