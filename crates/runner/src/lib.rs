//! The machine's side: claims attempts, prepares their trees, launches and watches their agents,
//! reports what they print, publishes what they leave, and ends them.
//!
//! A [`Runner`] speaks to control through a port, to sandboxes through providers, to git through a
//! [`Workspace`]. It keeps nothing in memory that cannot be had again from these and its directory.

mod any_provider;
mod beat;
mod board;
mod config;
mod driver;
mod files;
mod git;
mod git_workspace;
mod inspect;
mod journal;
mod launch;
mod moved;
mod program;
mod publish;
mod runner;
mod shared;
mod sweep;
mod tree;
mod workspace;

pub use any_provider::AnyProvider;
pub use config::{Inside, RunnerConfig};
pub use git::{Git, GitError};
pub use git_workspace::GitWorkspace;
pub use publish::{Publisher, Said};
pub use runner::Runner;
pub use tree::Trees;
pub use workspace::{Base, Dirty, Import, Kept, Tree, TreeError, TreeRequest, Workspace};
