//! The machine's side: what a runner does with working trees and with what is to be published.

mod git;
mod publish;
mod tree;

pub use git::{Git, GitError};
pub use publish::{Publisher, Said};
pub use tree::{Base, BaseCommit, Dirty, Import, Kept, Tree, TreeError, TreeRequest, Trees};
