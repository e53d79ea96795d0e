//! How a runner is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belay_kernel::{Limits, RunnerId};

/// How a [`Runner`](crate::Runner) is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerConfig {
    /// Its id, which it keeps over restarts.
    pub runner: RunnerId,
    /// Its name.
    pub name: String,
    /// Its version, as it tells control.
    pub version: String,
    /// Its own directory: homes of sessions and files of attempts. Must be hidden from agents.
    pub root: PathBuf,
    /// The roles that it works for, each with how many attempts of it there may be at a time.
    pub workers: BTreeMap<String, u32>,
    /// Where agents reach Belay, if their sandbox shares this machine's network.
    pub url: String,
    /// This program, which agents call as `belay` where their sandbox shows this machine's files.
    pub belay: Option<PathBuf>,
    /// The providers, by name, whose sandboxes have files and a network of their own: containers.
    pub containers: BTreeMap<String, Inside>,
    /// What programs are searched in, here and by agents: the runner's own `PATH`.
    pub path: String,
    /// Directories that sandboxes hide besides the usual ones: a program below one is shown.
    pub hidden: Vec<PathBuf>,
    /// What each sandbox may use.
    pub sandbox: belay_sandbox::Limits,
    /// How often it beats and how soon it tries again; an attempt brings its own for the rest.
    pub limits: Limits,
    /// Whether work may be published from sandboxes that do not hide the person's files.
    pub publish_without_isolation: bool,
}

/// How Belay is reached from inside a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inside {
    /// The command that is this program there.
    pub belay: Vec<String>,
    /// Where the server is.
    pub url: String,
}
