//! Who asks, and what that lets them ask for.

use std::fmt;
use std::str::FromStr;

use belay_kernel::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::port::Who;

/// What a token is for.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Reads everything and changes nothing.
    #[default]
    Viewer,
    /// Reads everything, and makes and moves tasks.
    Operator,
    /// Does everything, tokens and backups included.
    Admin,
    /// A machine that hosts sandboxes.
    Runner,
    /// An agent, as long as its attempt may act. Runners make these tokens; people cannot.
    Attempt,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] =
        [Self::Viewer, Self::Operator, Self::Admin, Self::Runner, Self::Attempt];

    /// The scope's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Runner => "runner",
            Self::Attempt => "attempt",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a text is not a scope.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a scope; known are viewer, operator, admin, runner")]
pub struct ScopeError(String);

impl FromStr for Scope {
    type Err = ScopeError;

    /// Reads a scope that a person may give to a token.
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let given = Self::ALL.into_iter().filter(|scope| *scope != Self::Attempt);
        let mut same = given.filter(|scope| scope.name() == text);
        same.next().ok_or_else(|| ScopeError(text.chars().take(40).collect()))
    }
}

/// Who asks: whoever holds a token, or an agent that speaks for its attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    scope: Scope,
    name: String,
    who: Option<Who>,
}

impl Principal {
    /// Whoever holds the token of this name. A token never makes an attempt: that takes a [`Who`].
    pub fn holder(scope: Scope, name: impl Into<String>) -> Self {
        assert!(scope != Scope::Attempt, "an attempt is known by its number and epoch");
        Self { scope, name: name.into(), who: None }
    }

    /// An agent that speaks for its attempt.
    pub fn attempt(who: Who) -> Self {
        let name = format!("attempt {}/{}", who.task, who.attempt);
        Self { scope: Scope::Attempt, name, who: Some(who) }
    }

    /// What it may ask for.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The name under which its requests are known: keys are its own, and what it makes says so.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The attempt that it speaks for, if it is an agent.
    pub const fn who(&self) -> Option<Who> {
        self.who
    }
}

/// A change that is asked for: by whom, known again by which key, and only if what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The name of the principal.
    pub by: String,
    /// The key by which the same request is known again.
    pub key: Option<String>,
    /// The task must be at one of these revisions; at any, if nothing is said.
    pub expects: Option<Vec<Revision>>,
}

impl Ask {
    /// A change that `by` asks for.
    pub fn by(by: impl Into<String>) -> Self {
        Self { by: by.into(), key: None, expects: None }
    }

    /// The same, known again by `key`.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The same, done only if the task is still at this revision.
    #[must_use]
    pub fn expecting(self, revision: Revision) -> Self {
        Self { expects: Some(vec![revision]), ..self }
    }
}

impl From<&str> for Ask {
    fn from(by: &str) -> Self {
        Self::by(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_give_every_scope_but_that_of_an_attempt() {
        for scope in Scope::ALL {
            let read = scope.name().parse::<Scope>();
            assert_eq!(read.is_ok(), scope != Scope::Attempt, "{scope}");
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
