//! `belay webhook` and everything after it.

use clap::{Args, Subcommand, ValueEnum};

/// `belay webhook`.
#[derive(Subcommand, Debug)]
pub(crate) enum Webhook {
    /// Make a webhook; its secret is printed once
    Add(AddWebhook),
    /// List webhooks
    #[command(visible_alias = "list")]
    Ls,
    /// Show a webhook
    Show(WhichWebhook),
    /// Change where a webhook is, or what it is told
    Edit(EditWebhook),
    /// Tell a webhook nothing for now; what happens meanwhile it is told later
    Pause(WhichWebhook),
    /// Tell a paused webhook what happened meanwhile, and what happens
    Resume(WhichWebhook),
    /// Remove a webhook and its letters
    Rm(WhichWebhook),
    /// Send a webhook a test
    Test(WhichWebhook),
    /// List what a webhook was not told yet, and what was given up
    Letters(Letters),
    /// Send dead letters again
    Replay(Replay),
}

/// A webhook.
#[derive(Args, Debug)]
pub(crate) struct WhichWebhook {
    /// The webhook's name or id
    #[arg(value_name = "WEBHOOK")]
    pub(crate) webhook: String,
}

/// How a webhook's bodies look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum HookShape {
    /// The event, as the API tells it
    #[default]
    Belay,
    /// A message, as Slack takes it
    Slack,
    /// A notification, as ntfy takes it
    Ntfy,
}

/// `belay webhook add`.
#[derive(Args, Debug)]
pub(crate) struct AddWebhook {
    /// What it is called
    pub(crate) name: String,
    /// Where it is; `-` reads it from standard input, where no list of processes shows it
    pub(crate) url: String,
    /// How its bodies look
    #[arg(long, value_enum, default_value_t)]
    pub(crate) shape: HookShape,
    /// The kinds of events it is told, such as task.ready or task.* [default: task.*,alert.*]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Vec<String>,
}

/// `belay webhook edit`.
#[derive(Args, Debug)]
pub(crate) struct EditWebhook {
    #[command(flatten)]
    pub(crate) which: WhichWebhook,
    /// Where it is; `-` reads it from standard input, where no list of processes shows it
    #[arg(long, value_name = "URL", required_unless_present_any = ["shape", "kinds"])]
    pub(crate) url: Option<String>,
    /// How its bodies look
    #[arg(long, value_enum)]
    pub(crate) shape: Option<HookShape>,
    /// The kinds of events it is told from now on, such as task.ready or task.*
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Option<Vec<String>>,
}

/// `belay webhook letters`.
#[derive(Args, Debug)]
pub(crate) struct Letters {
    #[command(flatten)]
    pub(crate) which: WhichWebhook,
    /// Only those that were given up
    #[arg(long)]
    pub(crate) dead: bool,
}

/// `belay webhook replay`.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) which: WhichWebhook,
    /// The number of one letter, instead of all
    pub(crate) number: Option<u64>,
}
