//! The command line.

mod webhook;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use belay_api::Scope;
use belay_kernel::Span;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::fault::EXIT_CODES;
pub(crate) use webhook::{AddWebhook, HookShape, Letters, Webhook};

/// Runs AI coding agents unattended, and makes every stop final.
#[derive(Parser, Debug)]
#[command(
    name = "belay",
    version,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A whole number; what is none is told in words that say what to write.
fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let wrong = |_| format!("`{text}` is not a number that is taken here; write one like `3`");
    text.parse().map_err(wrong)
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shared {
    /// Where Belay keeps its data [default: $XDG_DATA_HOME/belay or ~/.local/share/belay]
    #[arg(long, global = true, env = "BELAY_DATA_DIR", value_name = "DIR", hide_env = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Print JSON, as the API tells it
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start the server in the foreground
    Up(Up),
    /// Stop the server; agents that run go on until their lease is over
    Down(Down),
    /// Give an agent a task, and follow it
    Run(Box<Run>),
    /// List tasks
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show a task
    Show(Show),
    /// Print what an agent said and did
    Logs(Logs),
    /// Explain why a task is where it is, and what comes next
    Why(Which),
    /// Stop a task, and wait for the proof
    Stop(Stop),
    /// Cancel a task, without waiting
    Cancel(Keyed),
    /// Answer an agent's question
    Answer(Answer),
    /// Take the work of a task
    Accept(Accept),
    /// Send the work of a task back
    Reject(Reject),
    /// Begin a failed task again, from its base
    Retry(Keyed),
    /// Go on with a task where it was, also one whose work was rejected
    Resume(Resume),
    /// Follow a task that is over with a new one in the same session
    Continue(Continue),
    /// Print what an attempt changed, as a patch
    Diff(Attempt),
    /// Remove a task and what is kept of it
    Rm(Which),
    /// Ask the person who gave the task, from inside a sandbox, and print the answer
    Ask(Ask),
    /// Hand in what came of an agent's work, from inside a sandbox
    SubmitResult(SubmitResult),
    /// Serve MCP on standard input and output, to an assistant or to an agent
    Mcp(Mcp),
    /// Tell what this machine can do, what is missing, what that costs, and what fixes it
    Doctor,
    /// Make, try and remove webhooks, and send again what was given up
    #[command(subcommand)]
    Webhook(Webhook),
    /// List alerts
    Alerts,
    /// Back the database up
    Backup(Backup),
    /// Watch ten short tasks with real processes: what goes well, what goes wrong, what is noticed
    Demo(Demo),
    /// Live through simulated worlds in which everything goes wrong, and tell what was found
    Sim(Sim),
    /// What the demo's agents are
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    /// Make, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print every setting and where it comes from
    Config,
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print versions
    Version,
}

/// `belay up`.
#[derive(Args, Debug)]
pub(crate) struct Up {
    /// The port; 0 takes any that is free [default: 7425]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The address to listen at; any but loopback needs a certificate [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// A certificate with its chain, as PEM; the server then speaks HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen beyond loopback without encryption: whoever is in between reads tokens and work
    #[arg(long)]
    pub(crate) insecure: bool,
    /// A PostgreSQL to use instead of the embedded database
    #[arg(long, value_name = "URL", env = "BELAY_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    /// How the log is written [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<crate::config::LogFormat>,
    /// Go into a session of its own; what the other commands start a server with
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// End when the process that started it does
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

/// `belay sim`.
#[derive(Args, Debug)]
pub(crate) struct Sim {
    /// How many worlds to live through [default: 200, 1 with --seed, any number with --minutes]
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<u64>,
    /// The seed of the first one; those of the others follow [default: drawn from the clock]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Begin no world after so many minutes
    #[arg(long, value_name = "M")]
    pub(crate) minutes: Option<f64>,
    /// Print what happens in a world, line by line
    #[arg(long)]
    pub(crate) trace: bool,
    /// Leave faults, or things that people do, out of it
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) without: Vec<String>,
    /// At most so many tasks are made by people
    #[arg(long, value_name = "N")]
    pub(crate) tasks: Option<u64>,
    /// At most so many nodes
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u64>,
    /// At most so many runners
    #[arg(long, value_name = "N")]
    pub(crate) runners: Option<u64>,
    /// There is trouble for so many simulated seconds at most
    #[arg(long, value_name = "SECONDS")]
    pub(crate) trouble: Option<u64>,
    /// Put a bug into each world on purpose, to see that it is found
    #[arg(long, value_name = "NAME")]
    pub(crate) planted: Option<String>,
    /// Do not look for the least of a world in which something is wrong
    #[arg(long)]
    pub(crate) no_shrink: bool,
}

/// `belay token`.
#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it this once
    Create(NewTokenArgs),
    /// List tokens
    #[command(visible_alias = "list")]
    Ls,
    /// Revoke a token: from then on it opens nothing
    Revoke {
        /// Its name or id
        name: String,
    },
}

/// `belay token create`.
#[derive(Args, Debug)]
pub(crate) struct NewTokenArgs {
    /// What it is called: letters, digits and `._-@`
    pub(crate) name: String,
    /// What it is for: viewer, operator, admin, runner
    #[arg(long, default_value = "viewer")]
    pub(crate) scope: Scope,
    /// How long it lasts, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires_in: Option<Span>,
}

/// `belay down`.
#[derive(Args, Debug)]
pub(crate) struct Down {
    /// Stop every task that is under way first
    #[arg(long)]
    pub(crate) stop_tasks: bool,
}

/// What becomes of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Publish {
    /// It is kept, and nothing is pushed
    None,
    /// It is pushed to the task's own branch
    Branch,
}

/// Who decides about a success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Review {
    /// A person accepts or rejects it
    Manual,
    /// It is accepted as it comes
    Auto,
}

/// What becomes of changes that are not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Dirty {
    /// The task begins with them
    Include,
    /// The task is refused
    Refuse,
}

/// Where agents run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Provider {
    /// As processes of this machine
    Process,
    /// In containers
    Docker,
}

/// `belay run`.
#[derive(Args, Debug, Default)]
pub(crate) struct Run {
    /// What the agent is to do; `-` reads it from standard input
    #[arg(required_unless_present = "program")]
    pub(crate) prompt: Option<String>,
    /// The agent: claude, codex, gemini, opencode, copilot, cursor, acp, command
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The model, in the agent's own words
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// A path or URL of a git repository [default: the one this directory is in]
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) repo: Option<String>,
    /// The branch, tag or commit that the tree begins with
    #[arg(long, value_name = "REF")]
    pub(crate) base: Option<String>,
    /// The branch that the work is pushed to [default: belay/TASK]
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// What becomes of the work [default: branch]
    #[arg(long, value_enum)]
    pub(crate) publish: Option<Publish>,
    /// Who decides about a success [default: manual]
    #[arg(long, value_enum)]
    pub(crate) review: Option<Review>,
    /// How long one attempt may take, such as 30m
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
    /// How long an attempt may print nothing while no tool runs
    #[arg(long, value_name = "DURATION")]
    pub(crate) inactivity: Option<Span>,
    /// How much money it may use, subtasks included
    #[arg(long, value_name = "USD", value_parser = crate::new_task::dollars)]
    pub(crate) budget_usd: Option<f64>,
    /// How many tokens it may use, subtasks included
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) max_tokens: Option<u64>,
    /// Accept an agent whose usage cannot be counted although there is a budget
    #[arg(long)]
    pub(crate) allow_uncounted: bool,
    /// How many attempts are made without a person [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub(crate) max_attempts: Option<u32>,
    /// Higher is claimed first; may be negative
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    pub(crate) priority: Option<i64>,
    /// A task that must complete first; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) after: Vec<String>,
    /// The task that this one is a subtask of
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// The role whose workers may claim it
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// A variable that the agent gets; without a value, the one it has here
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Where it runs
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// The container image
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Pause the session when it is idle, instead of ending it
    #[arg(long)]
    pub(crate) keep_alive: bool,
    /// What becomes of changes that are not committed [default: refuse]
    #[arg(long, value_enum)]
    pub(crate) dirty: Option<Dirty>,
    /// Makes a repeated command the same request
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Print the task's id, and do not follow it
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// The program to run instead of a known agent, with its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}

/// `belay ls`.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only these states, separated by commas
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<String>,
    /// Only this role
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// All tasks, instead of what is not at rest and the 10 newest
    #[arg(long, short)]
    pub(crate) all: bool,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) limit: Option<usize>,
}

/// A task.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// The task's id, or as much of it as is unique
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
}

/// A task, and the key of the request.
#[derive(Args, Debug)]
pub(crate) struct Keyed {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Makes a repeated command the same request
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

/// A task, and one of its attempts.
#[derive(Args, Debug)]
pub(crate) struct Attempt {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The attempt, instead of the last one
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub(crate) attempt: Option<u32>,
}

/// `belay show`.
#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Show the receipt of its stop
    #[arg(long)]
    pub(crate) receipt: bool,
}

/// `belay logs`.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) attempt: Attempt,
    /// Go on until the task is at rest
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// The very bytes that the agent printed
    #[arg(long)]
    pub(crate) raw: bool,
}

/// `belay stop`.
#[derive(Args, Debug)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// How long to wait for the receipt
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) wait: Span,
}

/// `belay answer`.
#[derive(Args, Debug)]
pub(crate) struct Answer {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// The answer, or the number of an option; asked for, if it is not given
    pub(crate) text: Option<String>,
}

/// `belay accept`.
#[derive(Args, Debug)]
pub(crate) struct Accept {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// Merge its branch into the base branch first, which must be checked out and clean
    #[arg(long)]
    pub(crate) merge: bool,
}

/// `belay reject`.
#[derive(Args, Debug)]
pub(crate) struct Reject {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// What is wrong with the work; the next attempt is told
    pub(crate) comment: Option<String>,
    /// Run it again at once
    #[arg(long)]
    pub(crate) run: bool,
}

/// `belay resume`.
#[derive(Args, Debug)]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// What to tell the agent
    pub(crate) message: Option<String>,
}

/// `belay continue`.
#[derive(Args, Debug)]
pub(crate) struct Continue {
    #[command(flatten)]
    pub(crate) keyed: Keyed,
    /// What the agent is to do next
    pub(crate) message: String,
}

/// `belay ask`.
#[derive(Args, Debug)]
pub(crate) struct Ask {
    /// What to ask
    pub(crate) question: String,
    /// An answer to choose from; may be given several times
    #[arg(long = "option", short, value_name = "TEXT")]
    pub(crate) options: Vec<String>,
    /// How long to wait for the answer [default: as long as the attempt lasts]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<Span>,
}

/// `belay submit-result`.
#[derive(Args, Debug)]
pub(crate) struct SubmitResult {
    /// A file with the result, as Markdown; `-` reads it from standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
}

/// `belay mcp`.
#[derive(Args, Debug)]
pub(crate) struct Mcp {
    /// Start the server when a tool needs it and none is up
    #[arg(long)]
    pub(crate) start: bool,
    /// Call the tool `ask_user` `ask_person`, for agents that hide ours behind one of their own
    #[arg(long)]
    pub(crate) ask_person: bool,
}

/// `belay backup`.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// Where the copy goes, on the server's machine
    pub(crate) path: PathBuf,
}

/// `belay demo`. It has a directory and a server of its own.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Leave the demo's directory, to look at it afterwards
    #[arg(long)]
    pub(crate) keep: bool,
}

/// `belay demo-agent`.
#[derive(Args, Debug)]
pub(crate) struct DemoAgent {
    /// What it does
    pub(crate) scenario: String,
    /// By which its processes are known
    pub(crate) mark: String,
}

/// `belay completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
